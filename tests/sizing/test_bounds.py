"""Bounds on the evidence: bracketing exact sums, monotone in the search, never looser than the paper's; the kinds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvsearch.sizing import sizes
from lvsearch.sizing.bounds import Certified, Diminishing, audit
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.witness import WitnessSearch

TABLE = sizes.Table([0.13, 0.42, 0.07, 0.38])
TRUTH = {1: -9.3, 2: -7.1, 3: -7.0, 4: -5.2}  # log p(y | s), nested; no size reaches the ceiling of −5


def interval(truth, ceiling, below=0.7, above=0.4):
    return Evidence(truth - below, min(truth + above, ceiling))


@pytest.mark.parametrize("order", [(1,), (1, 2), (1, 4), (1, 3, 2), (1, 2, 3, 4)])
@pytest.mark.parametrize("nested", [True, False])
def test_evidence_is_bracketed_on_an_enumerable_case(order, nested):
    search = WitnessSearch(TABLE, ceiling=-5.0, nested=nested)
    for size in order:
        search.record(size, interval(TRUTH[size], -5.0))
    exact = log_sum([TABLE.log_pmf(size) + TRUTH[size] for size in TRUTH])
    bounds = search.bounds()
    assert bounds.log_lower <= exact <= bounds.log_upper
    assert bounds.log_unvisited_prior == pytest.approx(
        log_sum([TABLE.log_pmf(size) for size in TRUTH if size not in order]), rel=1e-12
    )
    if len(order) == 4:
        assert bounds.unvisited_lower == bounds.unvisited_upper == -math.inf


@pytest.mark.parametrize(
    "prior",
    [sizes.Poisson(7.5), sizes.Geometric(0.2), sizes.NegativeBinomial(9.0, 1.7)],
    ids=lambda p: p.describe()[:20],
)
@pytest.mark.parametrize("visited", [1, 4, 15])
def test_infinite_priors_are_bracketed_by_the_nested_tail_and_by_the_ceiling(prior, visited):
    search = WitnessSearch(prior, ceiling=-2.0)
    for size in range(1, visited + 1):
        search.record(size, -14.0 + 9.0 * (1 - 0.8**size))
    known = np.array([-14.0 + 9.0 * (1 - 0.8**size) for size in range(1, visited + 1)])
    log_prior = np.array([prior.log_pmf(size) for size in range(1, 2001)])
    constant_beyond = np.concatenate([known, np.full(2000 - visited, known[-1])])
    rising_beyond = -14.0 + 9.0 * (1 - 0.8 ** np.arange(1, 2001.0))
    at_the_ceiling = np.concatenate([known, np.full(2000 - visited, -2.0)])
    bounds = search.bounds()
    assert bounds.log_lower == pytest.approx(log_sum(log_prior + constant_beyond), rel=1e-10)
    assert bounds.log_lower <= log_sum(log_prior + rising_beyond) + 1e-12
    assert log_sum(log_prior + rising_beyond) <= bounds.log_upper + 1e-12
    assert bounds.log_upper == pytest.approx(log_sum(log_prior + at_the_ceiling), rel=1e-10)


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), nested=st.booleans())
def test_certified_bounds_are_monotone_and_never_looser_than_the_papers(seed, nested):
    rng = np.random.default_rng(seed)
    prior = sizes.Product(sizes.Poisson(3.1), sizes.Geometric(0.37))
    search = WitnessSearch(prior, ceiling=-1.0, nested=nested)
    history = []
    for step in range(12):
        size = search.next_size()
        if step and rng.random() < 0.4:
            size = tuple(rng.integers(1, 6, size=2).tolist())
        if size is None or size in search.generated:
            continue
        lower = -1.0 - float(rng.gamma(3.0))
        search.record(size, Evidence(lower, lower + float(rng.gamma(2.0)), 0.1))
        bounds = search.bounds()
        history.append(bounds)
        own_lower, own_upper = log_sum(bounds.weights_lower), log_sum(bounds.weights_upper)
        if nested:
            min_witness = next(r for r in search.records if r.size == search.min_witness)
            paper = log_sum([own_lower, bounds.log_unvisited_prior + min_witness.evidence.lower])
            assert bounds.log_lower >= paper - 1e-12
        assert bounds.log_upper <= log_sum([own_upper, bounds.log_unvisited_prior]) + 1e-12  # the paper's ceiling is 0
        assert bounds.log_lower <= bounds.log_upper + 1e-12
    assert audit(history) == ()


def test_the_best_witness_per_box_gains_nats_over_one_min_witness_in_two_dimensions():
    prior = sizes.Table(np.array([[0.05, 0.05, 0.1], [0.1, 0.1, 0.2], [0.1, 0.1, 0.2]]))
    search = WitnessSearch(prior)
    ours, papers = [], []
    for size, evidence in [((1, 1), -9.0), ((2, 1), -3.0), ((1, 2), -8.9), ((2, 2), -2.9), ((3, 1), -2.8)]:
        search.record(size, evidence)
        bounds = search.bounds()
        lowest = min(record.evidence.lower for record in search.records if record.size in search.witnesses)
        ours.append(bounds)
        papers.append(log_sum([*bounds.weights_lower, bounds.log_unvisited_prior + lowest]))
    assert audit(ours) == ()
    assert all(bounds.log_lower >= paper - 1e-12 for bounds, paper in zip(ours, papers, strict=True))
    assert max(bounds.log_lower - paper for bounds, paper in zip(ours, papers, strict=True)) > 1.0


def test_the_audit_sees_a_planted_fault():
    search = WitnessSearch(sizes.Poisson(6))
    history = []
    for size in range(1, 6):
        search.record(size, -30.0 / size)
        history.append(search.bounds())
    assert audit(history) == ()
    assert audit([history[0], history[2], history[1], history[3]]) == (2,)
    assert audit(history[::-1]) == (1, 2, 3, 4)
    nudged = Certified(**{**vars(history[-1]), "unvisited_upper": history[-1].unvisited_upper + 3.0})
    assert audit([history[-1], nudged]) == (1,)


def test_one_kind_is_not_compared_with_the_other():
    search = WitnessSearch(sizes.Poisson(6))
    for size in range(1, 5):
        search.record(size, -30.0 / size)
    certified, diminishing = search.bounds(), search.diminishing()
    assert certified == search.bounds()
    assert diminishing == search.diminishing()
    assert (certified == "certified") is False
    for compare in (
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a < b,
        lambda a, b: a >= b,
        lambda a, b: a <= b,
    ):
        with pytest.raises(TypeError):
            compare(certified, diminishing)
        with pytest.raises(TypeError):
            compare(diminishing, certified)
    with pytest.raises(TypeError):
        max([certified, search.bounds()])  # pyright: ignore
    assert certified.describe().startswith("proved of these fits: log p(data) between")
    assert "not of the best parameters of a size" in certified.describe()
    with pytest.raises(AttributeError):
        certified.log_lower = 0.0  # pyright: ignore


# Diminishing


def gains(size):
    return -100.0 + 40.0 * (1.0 - math.exp(-0.45 * size))


def grown(prior, visited, evidence=gains, ceiling=0.0, nested=True):
    search = WitnessSearch(prior, ceiling=ceiling, nested=nested)
    for size in visited:
        search.record(size, evidence(size))
    return search


def test_diminishing_is_the_direct_sum_of_what_it_assumes():
    prior = sizes.Poisson(6)
    search = grown(prior, range(1, 16), lambda size: Evidence(gains(size), gains(size) + 0.3, 0.02))
    bounds = search.diminishing()
    gain = gains(13) - gains(12) + 2 * math.hypot(0.02, 0.02)
    level = gains(15) + 0.3 + 0.04
    assert bounds.gain == pytest.approx(gain)
    beyond = [prior.log_pmf(t) + level + gain * (t - 15) for t in range(16, 800)]
    assert bounds.unvisited_upper == pytest.approx(log_sum(beyond), rel=1e-10)
    assert not bounds.still_rising
    assert bounds.violations == ()
    assert bounds.log_lower == search.bounds().log_lower
    assert bounds.log_upper < search.bounds().log_upper
    exact = log_sum([prior.log_pmf(t) + gains(t) for t in range(1, 400)])
    assert bounds.log_lower <= exact <= bounds.log_upper
    assert "beyond size 15" in bounds.describe()
    assert f"{bounds.gain:,.3g} nats" in bounds.describe()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), nested=st.booleans())
def test_diminishing_is_never_above_certified(seed, nested):
    rng = np.random.default_rng(seed)
    prior = [sizes.Poisson(8.0), sizes.Geometric(0.15), sizes.Table(np.full(9, 1 / 9))][seed % 3]
    ceiling = [0.0, math.inf, -0.5][seed % 2]
    search = WitnessSearch(prior, ceiling=ceiling, nested=nested)
    for size in (1, *(rng.permutation(8) + 2)[: rng.integers(1, 8)].tolist()):
        search.record(size, Evidence(-0.5 - float(rng.gamma(2.0, 4.0)), None, float(rng.gamma(1.0, 0.3))))
        certified, diminishing = search.bounds(), search.diminishing()
        assert diminishing.log_upper <= certified.log_upper + 1e-12
        assert diminishing.log_lower == certified.log_lower
        assert diminishing.log_upper >= diminishing.log_lower - 1e-12
        assert not math.isnan(diminishing.width)


@pytest.mark.parametrize(
    "search",
    [
        grown(sizes.Poisson(6), (1, 2)),  # two sizes cannot tell
        grown(sizes.Geometric(0.05), range(1, 5)),  # the tail diverges
        grown(sizes.Poisson(40), range(1, 7)),  # what is left may outweigh all that was seen
        grown(sizes.Poisson(6), range(1, 6), lambda size: Evidence(-90.0 + size, math.inf), ceiling=math.inf),
    ],
)
def test_still_rising_says_so(search):
    bounds = search.diminishing()
    assert bounds.still_rising
    assert bounds.log_upper == search.bounds().log_upper
    assert bounds.describe().startswith("still rising: no upper bound yet")


def test_falling_evidence_and_gaps_without_nesting():
    prior = sizes.Poisson(9)
    values = {1: -70.0, 2: -60.0, 4: -50.0, 8: -44.0, 16: -48.0, 32: -70.0}
    bounds = grown(prior, values, values.get, nested=False).diminishing()
    assert bounds.gain == pytest.approx(6 / 4)  # from 4 to 8: the steepest of the last three gains, per unit
    values |= {64: -110.0}
    bounds = grown(prior, values, values.get, nested=False).diminishing()
    assert bounds.gain == pytest.approx(-0.5)
    terms = []
    for left, right in ((2, 4), (4, 8), (8, 16), (16, 32), (32, 64)):
        terms.append(max(values[left], values[right]) + prior.log_box((left + 1,), (right,)))
    terms.append(log_sum([prior.log_pmf(t) - 110.0 - 0.5 * (t - 64) for t in range(65, 600)]))
    assert bounds.unvisited_upper == pytest.approx(log_sum(terms), rel=1e-10)


def test_a_violated_assumption_is_reported():
    def jumps(size):
        return gains(size) + (8.0 if size >= 9 else 0.0)

    bounds = grown(sizes.Poisson(4), range(1, 14), jumps).diminishing()
    assert [violation.size for violation in bounds.violations] == [9]
    assert bounds.violations[0].found == jumps(9)
    assert "The assumption failed: size 9" in bounds.describe()
    inside = grown(sizes.Poisson(4), (1, 2, 5, 6, 3), lambda size: -8.0 + (3.0 if size == 3 else 0.1 * size))
    assert [violation.size for violation in inside.diminishing().violations] == [3]


def test_diminishing_needs_one_size_variable():
    search = WitnessSearch(sizes.Product(sizes.Poisson(2), sizes.Poisson(3)))
    search.record((1, 1), -3.0)
    with pytest.raises(ValueError, match="one size variable"):
        search.diminishing()


def test_the_kinds_are_frozen_and_distinct():
    assert not issubclass(Certified, Diminishing)
    assert not issubclass(Diminishing, Certified)
