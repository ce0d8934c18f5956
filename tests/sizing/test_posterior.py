"""The posterior over sizes: proved intervals, the unvisited row, and the estimate under standard errors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from lvsearch.sizing import sizes
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.posterior import estimate_posterior, format_probability, in_percent, posterior, prior_influence
from lvsearch.sizing.witness import WitnessSearch

TABLE = sizes.Table([0.13, 0.42, 0.07, 0.38])
TRUTH = {1: -9.3, 2: -7.1, 3: -7.0, 4: -5.2}


@pytest.mark.parametrize("order", [(1,), (1, 2), (1, 4), (1, 3, 2), (1, 2, 4, 3)])
@pytest.mark.parametrize("width", [0.0, 0.6])
@pytest.mark.parametrize("nested", [True, False])
def test_posterior_is_bracketed_and_within_lemma_2(order, width, nested):
    search = WitnessSearch(TABLE, ceiling=-5.0, nested=nested)
    for size in order:
        search.record(size, Evidence(TRUTH[size] - width, min(TRUTH[size] + width, -5.0)))
    bounds = search.bounds()
    table = posterior(bounds)
    exact = log_sum([TABLE.log_pmf(size) + TRUTH[size] for size in TRUTH])
    assert [row.size for row in table.rows] == [*((size,) for size in sorted(order)), None]
    for row in table.rows[:-1]:
        assert row.size is not None
        truth = math.exp(TABLE.log_pmf(row.size) + TRUTH[row.size[0]] - exact)
        assert 0.0 <= row.probability_lower <= truth + 1e-15
        assert truth - 1e-15 <= row.probability_upper <= 1.0
        assert row.log_prior == TABLE.log_pmf(row.size)
        lemma_lower = math.exp(row.log_prior + row.log_evidence_lower - bounds.log_upper)
        lemma_upper = math.exp(row.log_prior + row.log_evidence_upper - bounds.log_lower)
        assert row.probability_lower >= lemma_lower - 1e-15
        assert row.probability_upper <= lemma_upper + 1e-15
        if width and row.log_evidence_upper > row.log_evidence_lower:
            assert row.probability_lower > lemma_lower
            assert row.probability_upper < lemma_upper
    rest = sum(math.exp(TABLE.log_pmf(size) + TRUTH[size] - exact) for size in TRUTH if size not in order)
    assert table.unvisited.size is None
    assert table.unvisited.probability_lower <= rest + 1e-15
    assert rest - 1e-15 <= table.unvisited.probability_upper
    if len(order) < 4:
        assert table.unvisited.log_evidence_upper == pytest.approx(-5.0)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.3, 40.0, 20_000.0]))
def test_probabilities_stay_in_their_interval_at_any_scale(seed, scale):
    rng = np.random.default_rng(seed)
    search = WitnessSearch(sizes.Poisson(5), ceiling=0.0, nested=bool(seed % 2))
    for size in range(1, int(rng.integers(2, 9))):
        lower = -float(rng.gamma(2.0, scale))
        search.record(size, Evidence(lower, lower + float(rng.gamma(1.0, scale))))
    for bounds in (search.bounds(), search.diminishing()):
        table = posterior(bounds)
        assert table.kind == bounds.kind
        assert all(0.0 <= row.probability_lower <= row.probability_upper <= 1.0 for row in table.rows)
        assert sum(row.probability_lower for row in table.rows) <= 1.0 + 1e-12
        assert sum(row.probability_upper for row in table.rows) >= 1.0 - 1e-12


def test_a_tiny_rest_is_not_lost_beside_a_probability_near_one():
    search = WitnessSearch(sizes.Table([0.5, 0.5]))
    search.record(1, -100.0)
    search.record(2, -10.0)
    first, second, _ = posterior(search.bounds()).rows
    assert first.probability_upper == pytest.approx(math.exp(-90.0), rel=1e-9)
    assert second.probability_lower == pytest.approx(1.0)


def test_a_vacuous_posterior_says_so():
    search = WitnessSearch(sizes.Poisson(10))
    for size in range(1, 20):
        search.record(size, -1e6 + 5000.0 * (1.0 - 0.5**size))
    table = posterior(search.bounds())
    assert table.is_vacuous
    assert "says nothing about single sizes" in table.describe()
    assert table.unvisited.probability_upper == pytest.approx(1.0)
    assert not posterior(search.diminishing()).is_vacuous
    infinite = WitnessSearch(sizes.Poisson(10), ceiling=math.inf)
    infinite.record(1, Evidence(-math.inf, math.inf))
    row, rest = posterior(infinite.bounds()).rows
    assert (row.probability_lower, row.probability_upper) == (0.0, 1.0)
    assert (rest.probability_lower, rest.probability_upper) == (0.0, 1.0)


def test_an_estimate_without_error_is_the_softmax():
    ordered = [(2,), (3,), (7,)]
    log_prior, estimate = np.log([0.2, 0.5, 0.3]), np.array([-101.0, -100.0, -99.2])
    expected = np.exp(log_prior + estimate - np.logaddexp.reduce(log_prior + estimate))
    order = [2, 0, 1]
    got = estimate_posterior([ordered[i] for i in order], log_prior[order], estimate[order], np.zeros(3))
    assert got.sizes == tuple(ordered)
    assert got.probability == pytest.approx(expected, rel=1e-12)
    assert got.probability_lower == pytest.approx(expected, rel=1e-12)
    assert got.best == (7,)
    assert got.indistinguishable == ((2,), (3,), (7,))  # errors are 0, but no size holds 95 % alone


def test_an_estimate_under_errors_agrees_with_quadrature():
    estimate, error = np.array([-50.0, -48.2]), np.array([1.1, 1.9])
    got = estimate_posterior([(4,), (5,)], np.log([0.6, 0.4]), estimate, error)
    gap, spread = 1.8 + math.log(0.4 / 0.6), math.hypot(*error)
    exact = integrate.quad(lambda z: stats.norm.pdf(z) / (1 + math.exp(-(gap + spread * z))), -9, 9)[0]
    assert got.probability[1] == pytest.approx(exact, abs=2e-3)
    low, high = (1 / (1 + math.exp(-(gap + spread * z))) for z in stats.norm.ppf([0.05, 0.95]))
    assert got.probability_lower[1] == pytest.approx(low, abs=0.02)
    assert got.probability_upper[1] == pytest.approx(high, abs=0.02)
    again = estimate_posterior([(4,), (5,)], np.log([0.6, 0.4]), estimate, error)
    assert np.array_equal(got.probability, again.probability)
    assert got.probability.sum() == pytest.approx(1.0)


def test_sizes_that_cannot_be_told_apart_are_named():
    tried = [(size,) for size in range(8, 26)]
    estimate = np.array([-9000.0 if 12 <= size <= 21 else -9900.0 for (size,) in tried]) + np.arange(18) * 3.0
    got = estimate_posterior(tried, np.full(18, -3.0), estimate, np.full(18, 20.0))
    assert got.indistinguishable == tuple((size,) for size in range(12, 22))
    assert "the evidence cannot choose between 12 and 21;" in got.describe()
    sparse = [0, 4, 5, 6, 13, 17]
    got = estimate_posterior([tried[i] for i in sparse], np.zeros(6), estimate[sparse], np.full(6, 20.0))
    assert "the evidence cannot choose between 12–14 and 21;" in got.describe()
    alone = estimate_posterior([(2, 1), (1, 3)], np.zeros(2), np.array([-900.0, -100.0]), np.array([1.0, 2.0]))
    assert "(1, 3) stands apart" in alone.describe()
    assert ">0.999" in alone.describe()
    assert "1.000" not in alone.describe()


def test_whether_the_prior_still_matters():
    tried, error = [(1,), (2,), (3,)], np.full(3, 0.1)
    log_prior = np.log([0.7, 0.2, 0.1])
    assert not prior_influence(tried, log_prior, np.array([-900.0, -300.0, -200.0]), error).matters
    close = prior_influence(tried, log_prior, np.array([-5.0, -4.8, -4.6]), error)
    assert close.matters
    assert (close.mode, close.flat_mode) == ((1,), (3,))
    flat = np.exp([-5.0, -4.8, -4.6]) / np.exp([-5.0, -4.8, -4.6]).sum()
    ours = flat * [0.7, 0.2, 0.1] / (flat * [0.7, 0.2, 0.1]).sum()
    assert close.total_variation == pytest.approx(0.5 * np.abs(ours - flat).sum(), abs=0.01)
    assert "it matters among the sizes tried" in close.describe()


@pytest.mark.parametrize(
    ("probability", "text"),
    [(1.0, ">0.999"), (0.9995, ">0.999"), (0.5, "0.500"), (1e-9, "<0.001"), (0.0, "0.000"), (0.12345, "0.123")],
)
def test_no_probability_is_printed_as_one(probability, text):
    assert format_probability(probability) == text


def test_bad_estimates_are_explained():
    good = np.zeros(2)
    for log_prior, estimate, error, says in [
        (good, np.array([math.nan, 0.0]), good, "finite"),
        (good, good, np.array([-1.0, 0.0]), "Standard errors"),
        (np.full(2, -math.inf), good, good, "no mass"),
    ]:
        with pytest.raises(ValueError, match=says):
            estimate_posterior([(1,), (2,)], log_prior, estimate, error)
    with pytest.raises(ValueError, match="lengths"):
        estimate_posterior([(1,)], good, good, good)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        format_probability(math.nan)


def test_no_size_wins_because_it_was_measured_worst():
    """An average over errors of thousands of nats gave 34 more than 29, which had 612 nats more evidence."""
    sizes, error = [(29,), (34,), (256,)], np.array([1031.0, 2115.0, 3915.0])
    got = estimate_posterior(sizes, np.log([0.012, 0.009, 1e-6]), np.array([612.0, 0.0, -624.0]), error)
    assert got.best == (29,)
    assert not got.is_decided
    assert got.unsettled == ((29,), (34,), (256,))
    assert got.probability[0] > 0.99  # of the estimates themselves, which is why nothing shows it


def test_an_uncertain_size_far_below_does_not_unsettle_the_others():
    got = estimate_posterior([(3,), (4,), (9,)], np.zeros(3), np.array([0.0, -2.0, -900.0]), np.array([0.1, 0.1, 30.0]))
    assert got.is_decided
    assert got.best == (3,)
    assert got.indistinguishable == ((3,), (4,))


def test_a_size_that_stands_alone_needs_no_small_error_of_its_own():
    """Twenty planted factors had 74 nats more than 21, with errors of 22 and 27, and no number was named."""
    error = np.array([16.0, 22.0, 27.0])
    alone = estimate_posterior([(19,), (20,), (21,)], np.zeros(3), np.array([-2064.0, 0.0, -74.0]), error)
    assert alone.is_decided
    assert alone.indistinguishable == ((20,),)
    assert 0.97 < alone.probability[1] < 1  # what the errors leave open, not what the estimates say
    near = estimate_posterior([(19,), (20,), (21,)], np.zeros(3), np.array([-2064.0, 0.0, -64.0]), error)
    assert near.unsettled == ((20,), (21,))


@pytest.mark.parametrize(
    ("probability", "words"),
    [(0.742, "74 %"), (0.9999, "more than 99 %"), (1.0, "more than 99 %"), (0.004, "less than 1 %"), (0.0, "0 %")],
)
def test_percentages_never_claim_certainty(probability, words):
    assert in_percent(probability) == words


def test_a_probability_may_be_beyond_its_ends_by_rounding_alone():
    """The card of a search could not be printed where the shares of all sizes summed to 1.0000000000000002."""
    assert (in_percent(1 + 2**-52), format_probability(1 + 2**-52)) == ("more than 99 %", ">0.999")
    assert (in_percent(-(2.0**-60)), format_probability(-(2.0**-60))) == ("0 %", "0.000")
    for written in (in_percent, format_probability):
        for wrong in (1.001, -0.001, float("nan")):
            with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
                written(wrong)
