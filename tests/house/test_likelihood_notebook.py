"""notebooks/likelihoods.ipynb runs from top to bottom, on a grid reduced to a minute or two."""

import pytest
from test_structure import ROOT

NOTEBOOK = ROOT / "notebooks" / "likelihoods.ipynb"
REDUCED = """
PAIRS = 4
CURVE_SAMPLES = (20, 200)
TRAINING_SIZES = (200, 400)
TOPIC_COUNTS = (8, 10)
TEST_DOCUMENTS = 20
LARGE_TRAINING_SIZES = (200,)
LARGE_TOPIC_COUNTS = (30, 40)
LARGE_TEST_DOCUMENTS = 10
GIBBS_ITERATIONS = 10
STARTS = 1
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of the notebook client
def test_the_notebook_runs(data_folder, monkeypatch):
    pytest.importorskip("tomotopy")
    pytest.importorskip("gensim")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("LVSEARCH_DATA", str(data_folder))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(REDUCED))
    NotebookClient(notebook, timeout=3600, startup_timeout=600, iopub_timeout=600, kernel_name="python3").execute()


def test_the_notebook_is_stored_with_its_outputs():
    """Every code cell has run, in order, and shows no path of the machine that ran it."""
    import json

    text = NOTEBOOK.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"]) >= 5
    assert not any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
    assert "site-packages" not in text
