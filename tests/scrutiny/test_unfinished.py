"""What is asked of a search stays with it while nothing is fitted anew, and says where the search had not finished."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from small_searches import searched

import lvsearch as lv
from lvsearch.reports.report import write_report
from lvsearch.results.result import SearchResult
from lvsearch.scrutiny.audit import Audit, AuditRow
from lvsearch.scrutiny.persistence import Persistence, Recurrence
from lvsearch.scrutiny.robustness import Robustness
from lvsearch.scrutiny.scrutiny import NOTHING_ASKED, Scrutiny
from lvsearch.scrutiny.sensitivity import Sensitivity, Variant

WORDS = "the search had not finished when this was asked (stopped after 3 seconds)"


def everything(unfinished: str | None = None) -> Scrutiny:
    """One answer of every kind, written down by hand."""
    row = AuditRow((2,), -10.0, 0.1, -10.5, -9.5, 0.1, ((1,), (2,)))
    found = Recurrence("samples", (2,), 1.0, (0.9, 0.2), (0.8, 0.1))
    variant = Variant("", 1.0, None, ((1,), (2,)), (-1.0, -2.0), (-10.0, -9.0), (0.1, 0.1))
    return Scrutiny(
        Audit((row,), ("topics",), 0, unfinished),
        Persistence((2,), ("topics",), ("a", "b"), (3.0, 4.0), "token", (found,), 0, 0.5, 0, unfinished),
        Robustness(np.array([1, 5]), np.zeros((2, 2, 2)), np.zeros(2), 5, "documents", "topics", unfinished),
        Sensitivity((variant, replace(variant, hyperparameter="x", factor=3.0)), ("topics",), unfinished),
    )


def test_a_finished_search_that_is_resumed_keeps_what_was_asked_of_it(tmp_path: Path):
    asked = everything()
    replace(searched("bound"), scrutiny=asked).save(tmp_path / "run")
    resumed = lv.resume(tmp_path / "run", report=False, progress=False)
    for result in (resumed, lv.load(tmp_path / "run")):
        assert result.scrutiny.to_stored()[0] == asked.to_stored()[0]
        np.testing.assert_array_equal(result.scrutiny.robustness.log_evidence, asked.robustness.log_evidence)


def test_one_that_makes_another_fit_begins_without(tmp_path: Path):
    result = searched("bound")
    visits = result.visits[:-1]
    kept = {size: fit for size, fit in result.state.kept.items() if size != result.visits[-1].size}
    cut = replace(result, state=replace(result.state, visits=visits, kept=kept, stopped="interrupted"))
    replace(cut, scrutiny=everything()).save(tmp_path / "run")
    assert lv.resume(tmp_path / "run", report=False, progress=False).scrutiny == NOTHING_ASKED


@pytest.mark.parametrize("part", ["audit", "persistence", "robustness", "sensitivity"])
def test_every_answer_says_that_the_search_had_not_finished(part: str):
    said = getattr(everything("stopped after 3 seconds"), part).describe()
    assert WORDS in said.replace("The search", "the search")
    assert "had not finished" not in getattr(everything(), part).describe()


def test_it_is_still_said_of_a_folder_and_under_another_prior(tmp_path: Path):
    replace(searched("bound"), scrutiny=everything("interrupted")).save(tmp_path / "run")
    loaded = lv.load(tmp_path / "run").scrutiny
    other = loaded.with_prior(lv.sizes.Poisson(2))
    for answer in (loaded.audit, loaded.persistence, loaded.robustness, loaded.sensitivity, other.robustness):
        assert answer is not None
        assert answer.unfinished == "interrupted"


@cache
def unfinished() -> SearchResult:
    """A search of ten rows that somebody stopped after it had tried two sizes."""
    rows = np.random.default_rng(2).normal(0, 1, (10, 1)) + 5 * (np.arange(10) % 2)[:, None]
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(rows))
    found = lv.search(model, rows, prior=lv.sizes.Poisson(1), max_size=2, starts=1, progress=False)
    return replace(found, state=replace(found.state, stopped="stopped after 3 seconds"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "ask",
    [
        lambda result: result.audit([1], progress=False),
        lambda result: result.persistence(bootstraps=1, starts=0, progress=False),
        lambda result: result.robustness(orders=2, most=6, max_size=2, progress=False),
        lambda result: result.sensitivity("concentration", progress=False),
    ],
    ids=["audit", "persistence", "robustness", "sensitivity"],
)
def test_whatever_is_asked_of_an_unfinished_search_says_so(ask):
    assert WORDS in ask(unfinished()).describe().replace("The search", "the search")


@pytest.mark.thorough
def test_the_report_of_a_killed_search_says_so(tmp_path: Path):
    result = searched("bound")
    replace(result, state=replace(result.state, stopped=None)).save(tmp_path / "run")
    write_report(lv.load(tmp_path / "run"), tmp_path / "report")
    assert "killed, or still running elsewhere" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
