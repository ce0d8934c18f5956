"""The examples run as they stand, and find what they planted."""

import runpy

import pytest
from test_structure import ROOT

from lvsearch.models import registry

EXAMPLES = {
    "poisson_mixture": ("PoissonMixture keeps the contract", "log 3! = 1.792", "size 3, their mean counts:"),
    "hidden_markov": ("HiddenMarkov keeps the contract", "2 empty entries more", "mean of each state:"),
    "component": ("FiniteMixture keeps the contract", "log 3! = 1.792", "dim        column0"),
}
MOST_PROBABLE = 3


def test_every_example_is_run():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


SLOW = ("component",)
"""Compiles the whole of an annealed search."""


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
    posterior = [line.split() for line in lines[begin : begin + 4]]  # sizes 1 to 4 at least
    assert int(max(posterior, key=lambda row: float(row[-1]))[0]) == MOST_PROBABLE, said
