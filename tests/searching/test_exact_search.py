"""`lv.search` on corpora small enough to enumerate: every interval it prints holds the exact number."""

from functools import cache

import numpy as np
import oracles
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.inference.topics.estimator import point_topics

COUNTS = np.array(
    [[3, 1, 0, 0, 0], [0, 0, 2, 3, 0], [2, 0, 0, 0, 1], [0, 1, 0, 4, 0], [0, 0, 0, 0, 0], [1, 0, 2, 0, 2]]
)
TEST = np.array([[2, 1, 0, 0, 0], [0, 0, 1, 2, 1]])
PROBABILITIES = [0.1, 0.4, 0.3, 0.2]
SMALL = np.array([[2, 0, 1, 0], [0, 2, 0, 1], [1, 0, 0, 1]])


def sparse(counts: np.ndarray) -> csr_array:
    return csr_array(counts.astype(np.int32))


@cache
def plug_in_search() -> lv.SearchResult:
    return lv.search(
        lv.models.LDA(concentration=1.3, topic_concentration=0.2),
        sparse(COUNTS),
        prior=lv.sizes.Table(PROBABILITIES),
        evidence="plug-in",
        max_size=4,
        keep=8,
        seed=1,
        progress=False,
    )


def parameters(result: lv.SearchResult, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(α, topics) of the fit that stands for this size: its own, or its witness's with empty extra topics."""
    model = result.fit(size)
    return model.alpha, point_topics(model.estimate)


def exact_evidence(result: lv.SearchResult, counts: np.ndarray = COUNTS) -> np.ndarray:
    """(size,): log p(counts | size, θ_size)."""
    return np.array([oracles.corpus_log_likelihood(counts, *parameters(result, size)) for size in (1, 2, 3, 4)])


@pytest.mark.thorough
def test_plug_in_intervals_hold_the_exact_likelihood():
    """lower ≤ exact ≤ upper for every size at the fitted (α, β), which the kept fits carry."""
    result = plug_in_search()
    for visit, exact in zip(sorted(result.visits, key=lambda v: v.size), exact_evidence(result), strict=True):
        assert visit.evidence.lower <= exact <= visit.evidence.upper
        assert visit.evidence.upper - visit.evidence.lower < 12
    lower = [visit.evidence.lower for visit in sorted(result.visits, key=lambda v: v.size)]
    assert np.all(np.diff(lower) >= 0)  # Proposition 1, enforced


@pytest.mark.thorough
def test_certified_bounds_hold_the_exact_evidence_and_posterior():
    result = plug_in_search()
    weights = np.log(PROBABILITIES) + exact_evidence(result)
    bounds = result.certified()
    assert bounds.log_lower <= logsumexp(weights) <= bounds.log_upper
    table = result.posterior(kind="certified")
    exact = [*np.exp(weights - logsumexp(weights)), 0.0]
    assert list(table["size"]) == [1, 2, 3, 4, "unvisited"]
    assert np.all(table["probability_lower"] <= np.add(exact, 1e-12))
    assert np.all(table["probability_upper"] >= np.subtract(exact, 1e-12))


def test_bounds_of_every_step_hold_and_tighten():
    """After each expansion: unvisited sizes at least as good as their witness, at most at the ceiling."""
    result = plug_in_search()
    table, exact = result.bounds(), exact_evidence(result)
    truth = logsumexp(np.log(PROBABILITIES) + exact)
    assert np.all(table["log_lower"] <= truth)
    assert np.all(table["log_upper"] >= truth)
    assert np.diff(table["log_lower"]).min() >= 0
    assert np.diff(table["log_upper"]).max() <= 0


def test_infinite_prior_is_bracketed_by_witness_and_ceiling():
    """The exact sum over 1…4, extended by the tail at its witness (from below) and at the ceiling (from above)."""
    prior = lv.sizes.Poisson(3.0)
    result = plug_in_search().with_prior(prior)
    exact, log_mass = exact_evidence(result), prior.log_mass((5,))
    visited = [prior.log_pmf((size,)) + value for size, value in zip((1, 2, 3, 4), exact, strict=True)]
    bounds = result.certified()
    assert bounds.log_lower <= logsumexp([*visited, log_mass + exact[3]])
    assert bounds.log_upper >= logsumexp([*visited, log_mass + result.evaluator.ceiling]) - 1e-9
    assert result.evaluator.ceiling >= exact.max()


@pytest.mark.thorough
def test_plug_in_prediction_holds_the_exact_one():
    """p(test | train) = Σ_s p(s | train) p(test | s, θ_s), for the whole set and per document."""
    result = plug_in_search()
    predicted = result.predict(sparse(TEST))
    weights = np.log(PROBABILITIES) + exact_evidence(result)
    log_posterior = weights - logsumexp(weights)
    per_document = np.array([exact_evidence(result, row[None]) for row in TEST])  # (document, size)
    whole = logsumexp(log_posterior + per_document.sum(0))
    assert predicted.whole_set.log_lower <= whole <= predicted.whole_set.log_upper
    summed = logsumexp(log_posterior + per_document, axis=1).sum()
    assert predicted.per_unit.log_lower <= summed <= predicted.per_unit.log_upper


@pytest.mark.thorough
def test_marginal_bound_is_below_the_exact_evidence():
    """Smoothed LDA with the priors given: every recorded lower end, with its sizes' labellings counted once."""
    result = lv.search(
        lv.models.LDA(concentration=1.1, topic_concentration=0.3),
        sparse(SMALL),
        prior=lv.sizes.Table(PROBABILITIES),
        max_size=4,
        exhaustive=True,
        starts=1,
        seed=0,
        evidence="bound",
        progress=False,
    )
    for visit in result.visits:
        (size,) = visit.size
        exact = oracles.lda_posterior(SMALL, np.full(size, 1.1 / size), 0.3).log_evidence
        assert visit.evidence.lower <= exact <= visit.evidence.upper
        assert exact - visit.evidence.lower < 8
    assert len(result.visits) == 4
    with pytest.raises(ValueError, match="certified"):
        result.posterior(kind="certified")
