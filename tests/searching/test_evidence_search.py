"""A search over annealed evidence: right on what can be enumerated, honest where cut off, the same after a stop."""

from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.inference.annealing import dispatch
from lvsearch.inference.evidence import TwoSided
from lvsearch.searching import evaluators

COUNTS = np.array([[2, 1, 1], [1, 2, 1], [1, 2, 1]])
MODEL, PRIOR, MAX_SIZE = lv.models.LDA(1.0, 0.5), lv.sizes.Poisson(2), 4
SETTINGS = {"prior": PRIOR, "max_size": MAX_SIZE, "seed": 3, "progress": False}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little data needs no long paths: a few dozen temperatures tell these sizes apart to hundredths of a nat."""
    monkeypatch.setattr(dispatch, "FIRST_DRAWS", 3000)


EXACT = [0.298, 0.334, 0.240, 0.127]
"""p(size | data) for sizes 1 … 4, by `enumerated`."""


def enumerated() -> np.ndarray:
    """p(size | data) for sizes 1 … 4 by enumeration."""
    sizes = range(1, MAX_SIZE + 1)
    evidence = [oracles.lda_posterior(COUNTS, np.full(size, 1.0 / size), 0.5).log_evidence for size in sizes]
    weights = np.array([PRIOR.log_pmf((size,)) for size in sizes]) + evidence
    return np.exp(weights - logsumexp(weights))


@cache
def searched() -> lv.SearchResult:
    return lv.search(MODEL, COUNTS, **SETTINGS)


def assert_same(one: lv.SearchResult, other: lv.SearchResult) -> None:
    assert [(v.size, [t.brackets for t in v.trials]) for v in one.visits] == [
        (v.size, [t.brackets for t in v.trials]) for v in other.visits
    ]
    np.testing.assert_array_equal(one.posterior()["probability"], other.posterior()["probability"])


def test_the_posterior_is_the_exact_one_within_its_errors():
    """What a mean-field bound calls "1, apart from every other" with probability .951."""
    table = searched().posterior().set_index("size")["probability"]
    assert table.to_numpy() == pytest.approx(EXACT, abs=0.03)
    assert searched().estimated.indistinguishable == ((1,), (2,), (3,), (4,))
    assert repr(searched()).splitlines()[0].endswith("95 %: 1–4.")


@pytest.mark.slow
def test_the_exact_posterior_is_what_is_written_here():
    """Sixteen million assignments at size 4: a minute."""
    assert enumerated() == pytest.approx(EXACT, abs=1e-3)


def test_few_data_may_be_annealed_more_often():
    """As long as an annealing is cheap, errors of the evidence need not decide; nothing is annealed by a bound."""
    few = lv.Corpus.from_matrix(COUNTS)
    many = lv.Corpus.from_matrix(np.full((60, 40), 3))

    def trials(corpus: lv.Corpus, evidence: str) -> int:
        return evaluators.ModelEvaluator(MODEL, corpus.dataset(), evidence=evidence, seed=0).usual_trials(3)

    assert trials(few, "marginal") > 3
    assert trials(many, "marginal") == trials(few, "bound") == 3


def test_ends_enclose_the_estimate_and_one_component_is_exact():
    table = searched().posterior().set_index("size")
    assert (table["log_evidence_lower"] <= table["log_evidence"]).all()
    assert (table["log_evidence"] <= table["log_evidence_upper"]).all()
    one = oracles.lda_posterior(COUNTS, np.array([1.0]), 0.5).log_evidence
    assert table.loc[1, "log_evidence"] == pytest.approx(one, abs=1e-3)


def test_headline_and_table_agree_on_the_best_size():
    table = searched().posterior()
    assert searched().best_size == (int(table["size"][table["probability"].argmax()]),)
    assert searched().best.size == searched().best_size


def test_a_stopped_search_says_so_and_goes_on_to_the_same_bits(tmp_path: Path):
    first = lv.search(MODEL, COUNTS, **SETTINGS, seconds=0, out=tmp_path / "run", report=False)
    assert len(first.visits) == 1
    assert repr(first).startswith("Unfinished (stopped after 0 seconds)")
    resumed = lv.resume(tmp_path / "run", report=False, progress=False)
    assert_same(resumed, searched())
    assert_same(lv.load(tmp_path / "run"), searched())


@pytest.mark.slow
def test_an_interruption_in_the_middle_of_an_annealing_keeps_what_was_done(tmp_path: Path, monkeypatch):
    anneal, calls = evaluators.anneal, []

    def interrupted(*arguments: Any) -> tuple[TwoSided, ...]:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return anneal(*arguments)

    monkeypatch.setattr(evaluators, "anneal", interrupted)
    stopped = lv.search(MODEL, COUNTS, **SETTINGS, out=tmp_path / "run", report=False)
    monkeypatch.setattr(evaluators, "anneal", anneal)
    assert stopped.state.stopped == "interrupted"
    assert sum(len(visit.trials) for visit in stopped.visits) == 3
    assert_same(lv.resume(tmp_path / "run", report=False, progress=False), searched())


@pytest.mark.slow
def test_an_interruption_half_way_along_a_path_keeps_what_was_done(tmp_path: Path, monkeypatch):
    """In one of the two threads, after its forward path."""
    backward, calls = dispatch.backward, count()

    def interrupted(*arguments: Any, **named: Any) -> Any:
        if next(calls) == 5:
            raise KeyboardInterrupt
        return backward(*arguments, **named)

    monkeypatch.setattr(dispatch, "backward", interrupted)
    stopped = lv.search(MODEL, COUNTS, **SETTINGS, out=tmp_path / "run", report=False)
    monkeypatch.setattr(dispatch, "backward", backward)
    assert stopped.state.stopped == "interrupted"
    assert sum(len(visit.trials) for visit in stopped.visits) == 2  # two calls each; the third was under way
    assert_same(lv.resume(tmp_path / "run", report=False, progress=False), searched())


@pytest.mark.thorough
@pytest.mark.parametrize("value", [np.nan, pytest.param(-np.inf, marks=pytest.mark.slow)])
def test_an_annealing_that_is_not_a_number_is_reported_and_not_ranked(monkeypatch, value):
    anneal = evaluators.anneal

    def failing(chain: Any, *arguments: Any) -> tuple[TwoSided, ...]:
        found = anneal(chain, *arguments)
        broken = np.asarray(chain.alpha > 0).sum() == 2
        return tuple(each._replace(forward=np.full_like(each.forward, value)) if broken else each for each in found)

    monkeypatch.setattr(evaluators, "anneal", failing)
    result = lv.search(MODEL, COUNTS, **SETTINGS, starts=2)
    assert 2 not in result.posterior()["size"].tolist()
    assert "not a number" in result.summary()


@pytest.mark.slow
def test_a_search_whose_limit_decides_says_that_it_still_rises():
    random = np.random.default_rng(0)
    separate = np.kron(np.eye(4, dtype=int), random.integers(3, 6, (6, 3)))
    result = lv.search(lv.models.LDA(0.4, 0.1), separate, **{**SETTINGS, "prior": lv.sizes.Poisson(4), "max_size": 2})
    assert repr(result).startswith("Still rising at 2 topics, the largest allowed")


@pytest.mark.slow
@pytest.mark.parametrize("counts", [np.array([[1]]), np.array([[3, 0, 2]]), np.array([[1, 1], [0, 0]])])
def test_little_data_leaves_the_prior(counts):
    """One token, one document, an empty document beside one; more topics than tokens."""
    result = lv.search(MODEL, counts, **SETTINGS)
    prior = np.exp([PRIOR.log_pmf((size,)) for size in range(1, MAX_SIZE + 1)])
    assert result.posterior()["probability"].to_numpy() == pytest.approx(prior / prior.sum(), abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows", [[[1.0, 0.0]], [[1.0, 0.0], [np.nan, np.nan]]], ids=["one row", "and one without cells"]
)
def test_one_row_leaves_the_prior(rows):
    """More components than rows, and a row of which nothing was observed."""
    points = lv.Points.from_array(np.array(rows), missing="nan")
    result = lv.search(lv.models.FiniteMixture(lv.models.BernoulliComponents()), points, **{**SETTINGS, "max_size": 3})
    prior = np.exp([PRIOR.log_pmf((size,)) for size in range(1, 4)])
    assert result.posterior()["probability"].to_numpy() == pytest.approx(prior / prior.sum(), abs=0.06)


@pytest.mark.slow
def test_mixtures_are_annealed_too():
    rows = np.random.default_rng(1).normal(size=(12, 2)) + np.repeat([[0, 0], [9, 9]], 6, axis=0)
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(rows))
    result = lv.search(model, rows, **{**SETTINGS, "max_size": 3}, evidence="annealed", starts=2)
    assert all(visit.annealed is not None for visit in result.visits)
    assert result.best_size == (2,)
