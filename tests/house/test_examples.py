"""The examples run as they stand, and find what they planted."""

import runpy
import subprocess
import sys
from itertools import takewhile

import pytest
from test_structure import ROOT

from lvsearch.models import registry

EXAMPLES = {
    "poisson_mixture": ("PoissonMixture keeps the contract", "log 3! = 1.792", "size 3, their mean counts:"),
    "hidden_markov": ("HiddenMarkov keeps the contract", "2 empty entries more", "mean of each state:"),
    "component": ("FiniteMixture keeps the contract", "log 3! = 1.792", "dim        column0"),
}
MOST_PROBABLE = 3
FIRST_DAYS = {
    "first_day_numpyro": ("2 powers (", "diabetes.png"),
    "first_day_sklearn": ("components (", "iris.png"),
    "first_day_statistician": ("3 components (", "density.png"),
}
"""What they say, and the picture that they leave."""
LINES, LINES_OF_A_STATISTICIAN = 10, 25
"""The most lines from the data to the last picture or table, imports and empty lines apart."""


def test_every_example_is_run():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES, *FIRST_DAYS}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST_DAYS)
def test_a_first_day(name, tmp_path):
    """In a process of its own: they write where they stand."""
    path = ROOT / "examples" / f"{name}.py"
    body = path.read_text(encoding="utf-8").split("import lvsearch as lv\n")[1]
    uses_arviz = "import arviz" in path.read_text(encoding="utf-8")
    most = LINES_OF_A_STATISTICIAN if uses_arviz else LINES
    assert len([line for line in body.splitlines() if line.strip() and '"""' not in line]) < most
    if uses_arviz:
        pytest.importorskip("arviz")
    errors = () if uses_arviz else ("-W", "error")  # ArviZ warns of what it will change
    done = subprocess.run([sys.executable, *errors, path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, picture = FIRST_DAYS[name]
    assert said in done.stdout
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


SLOW = ("component", "hidden_markov")
"""They compile an annealed search, and a model with a recursion."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in EXAMPLES]
)
def test_example(name, capsys, monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})  # other tests have loaded the same file under another name
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert all(words in said for words in EXAMPLES[name]), said
    lines = said.splitlines()
    begin = next(number for number, line in enumerate(lines) if "probability" in line) + 1
    # the sizes in the table: all that were tried, or those that the draws have
    posterior = [*takewhile(lambda row: row[0].isdigit(), (line.split() for line in lines[begin:] if line.strip()))]
    assert len(posterior) > 1, said
    assert int(max(posterior, key=lambda row: float(row[-1]))[0]) == MOST_PROBABLE, said
