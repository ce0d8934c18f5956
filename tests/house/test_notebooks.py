"""The notebooks run from top to bottom, on a reduced grid: the first cell tagged "parameters" is overridden."""

from typing import NamedTuple

import nbformat
import pytest
from nbclient import NotebookClient
from test_structure import ROOT

NOTEBOOKS = ROOT / "notebooks"


class Reduced(NamedTuple):
    """What replaces a notebook's parameters, the pictures it must draw, and its tier."""

    parameters: str
    pictures: int
    slow: bool = False


REDUCED = {
    "annotation": Reduced(
        'IMAGES, FACTORS, MOST, EXAMPLES = 150, {"corel16k": (2, 3)}, 100, 3\n'
        "TABLE_FACTORS, TABLE_WORDS, SIMULATED, SIMULATED_IMAGES, MAX_SIZE = (3,), (0.1,), 1, 20, 2",
        pictures=4,
        slow=True,
    ),
    "classification": Reduced(
        "DOCUMENTS, TOPICS, FRACTIONS, REPEATS, CLASS_TOPICS = 900, 5, (0.2, 0.4), 2, (1, 2)", pictures=1, slow=True
    ),
    "block_model": Reduced("MAX_SIZE, USERS, FILMS, FILM_SIZE = (2, 2), 20, 15, (2, 2)", pictures=3, slow=True),
    "bring_your_own_model": Reduced(
        "ROWS, MAX_SIZE, TRIALS, GAUSSIAN_SIZES, WARMUP, DRAWS = 40, 2, 1, 4, 20, 20", pictures=2, slow=True
    ),
    "clusters": Reduced("ROWS, MAX_SIZE, DRAWS, SWEEPS, SAMPLES = 40, 4, 100, 256, 4", pictures=5, slow=True),
    "cora": Reduced(
        "FOLDS, MAX_SIZE, RATES = 1, 4, (2.0, 5.0)\n"
        "RESTART_SIZES, RESTARTS, MARGINAL_MAX_SIZE, DOCUMENTS = (3,), 2, 4, 150",
        pictures=5,
        slow=True,
    ),
    "dp_mixture": Reduced(
        "DIMENSIONS, SETS, ROWS, TRUNCATION, SAMPLES, PILOT = (2, 3), 1, 30, 6, 5, 100\n"
        "LAGS, ITERATIONS, SHOWN_SETS, MAX_SIZE, SWEEPS, DRAWS, DATA_SETS = 20, (1, 3), 1, 2, 60, 50, ('Galaxy',)\n"
        "DOCUMENTS, FOLDS, TOPICS, HDP_TRUNCATION, HDP_SWEEPS, SCORE_SAMPLES = 200, 1, (2, 3), 6, 3, 10",
        pictures=6,
        slow=True,
    ),
    "evidence": Reduced(
        "SIZES, STEPS, TOPIC_STEPS = (1, 2), (4, 8), 4\n"
        "GALAXY_STEPS, GALAXY_LARGEST, GALAXY_CHAINS, GALAXY_DRAWS, GALAXY_THIN = 20, 5, 4, 100, 1\n"
        "CORA_TOPICS, CORA_STEPS = 3, (1, 2)\n"
        "GAIN_LARGEST = 3",
        pictures=3,
        slow=True,
    ),
    "ibp": Reduced(
        "SHAPES, IMAGES, BEAMS, REFINE, GIBBS_SECONDS, DRAWS = ((12, 8), (20, 10)), 40, (5,), 2, (0.5,) * 3, 1\n"
        "STREAM_BEAMS, PARTICLES, GROWTH = (5,), (20,), (30, 60)\n"
        "STRENGTHS, BACKGROUNDS, DENSITIES, ANIMAL_FEATURES, ANIMAL_REFINE = (0.75,), (0.1,), (0.3,), 4, 1",
        pictures=6,
        slow=True,
    ),
    "latent_classes": Reduced('TABLES, LARGEST, SEEDS = ("carcinoma",), 3, 2', pictures=2, slow=True),
    "populations": Reduced("INDIVIDUALS, LOCI, POPULATIONS, LARGEST = 12, 6, 2, 2", pictures=3, slow=True),
    "single_cells": Reduced("CELLS, GENES, PROGRAMMES, LARGEST = 20, 15, 2, 2", pictures=2, slow=True),
    "perplexity": Reduced(
        'CORPORA, SIZES = {"ap": 150, "nematode": 150}, {"ap": (2, 4), "nematode": (2, 3)}\n'
        'HDP, CHOICE_SIZE, SEARCH, EXAMPLE_TOPICS = 5, 3, {"ap": (40, 2, 5)}, 4',
        pictures=3,
        slow=True,
    ),
    "recommendation": Reduced("FOLDS, LEAST, SIZES, BLOCKS = 1, (100,), (2, 3), ((2, 3),)", pictures=2, slow=True),
    "scores": Reduced(
        "TOPICS, DOCUMENTS, TOKENS, WORDS, LARGEST, DRAWS, SAMPLES = (2, 3), 60, 15, 40, 4, 2, 1\n"
        'HELD_OUT, EXAMPLE, CORPORA, REAL_LARGEST = (10, 30), 3, {"nematode": 60, "ap": 30}, 3',
        pictures=5,
        slow=True,
    ),
    "signatures": Reduced(
        "SEED, TUMOURS, PLANTED, NOISE, BURDEN, LARGEST, STARTS, BOOTSTRAPS, FILE = 0, 30, 2, 15.0, 800, 3, 1, 1, None",
        pictures=4,
        slow=True,
    ),
    "hlda": Reduced(
        "SETS, DOCUMENTS, ORDERS, ABSTRACTS, SWEEPS, INFER_SWEEPS = 2, 15, 1, 60, 5, 2\n"
        "SMALL, MAX_BRANCHES, BRANCH_DRAWS = 6, (1, 1), 5",
        pictures=2,
        slow=True,
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if reduced.slow else ()) for name, reduced in REDUCED.items()]
)
def test_notebook_runs(name, data_folder, monkeypatch):
    monkeypatch.setenv("LVSEARCH_DATA", str(data_folder))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    position = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    notebook.cells.insert(position + 1, nbformat.v4.new_code_cell(REDUCED[name].parameters))
    patient = {"timeout": 3600, "startup_timeout": 600, "iopub_timeout": 600}  # they end hangs; a busy machine is none
    NotebookClient(notebook, kernel_name="python3", **patient).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == REDUCED[name].pictures
    assert not [output for output in outputs if output.output_type == "error"]


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_is_stored_with_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count is not None for cell in code), "execute the notebook before committing it"
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
