"""Brackets: ends, estimates and errors from islands, and several of them together."""

import math

import numpy as np
import pytest

from lvsearch.sizing.evidence import (
    ANCHORED_SHARE,
    HYSTERESIS_SHARE,
    Bracket,
    Pooled,
    contradicts,
    pooled,
    raised_to_bound,
)


def test_ends_are_averages_of_what_is_unbiased():
    bracket = Bracket((-10.0, -12.0), (-9.0, -7.0), 24, 16)
    assert bracket.lower == pytest.approx(math.log((math.exp(-10) + math.exp(-12)) / 2))
    assert bracket.upper == pytest.approx(-math.log((math.exp(9) + math.exp(7)) / 2))
    assert (bracket.estimate, bracket.hysteresis) == (-9.5, 3.0)


def test_errors_hold_the_spread_and_the_hysteresis():
    tight, apart = Bracket((-10.0,) * 4, (-10.0,) * 4, 24, 16), Bracket((-10.0,) * 4, (-6.0,) * 4, 24, 16)
    assert tight.standard_error == 0.0
    assert apart.standard_error == pytest.approx(HYSTERESIS_SHARE * 4.0)
    spread = Bracket((-10.0, -11.0, -9.0, -10.0), (-10.0, -9.0, -11.0, -10.0), 24, 16)
    assert spread.standard_error > math.sqrt((2 / 3 + 2 / 3) / 16)  # widened for their small number


def test_close_ends_leave_the_truth_anywhere_between_them():
    """However many temperatures; ends further apart keep the measured share."""
    close = Bracket((-5.2,) * 4, (-4.8,) * 4, 24 * 10_000, 16)
    assert close.standard_error == pytest.approx(0.4 / math.sqrt(12))
    far = Bracket((-8.0,) * 4, (-4.0,) * 4, 24 * 10_000, 16)
    assert far.standard_error == pytest.approx(0.5 / math.sqrt(12))


def test_a_kind_of_path_may_have_its_own_share():
    ends = (-10.0,) * 4, (-6.0,) * 4, 24, 16, 0.3
    assert Bracket(*ends).standard_error == pytest.approx(math.hypot(ANCHORED_SHARE * 4.0, 0.3))
    assert Bracket(*ends, hysteresis_share=0.4).standard_error == pytest.approx(math.hypot(1.6, 0.3))


def test_a_backward_path_below_the_forward_one_is_noise_not_negative_hysteresis():
    assert Bracket((-5.0, -5.0), (-6.0, -6.0), 24, 16).hysteresis == 0.0


def test_islands_that_are_not_numbers_are_seen():
    assert not Bracket((-1.0, math.nan), (-1.0, -1.0), 24, 16).is_finite
    assert not Bracket((-1.0, -math.inf), (-1.0, -1.0), 24, 16).is_finite


def test_pooled_weighs_by_precision_and_never_gets_worse():
    short, long = Bracket((-10.0, -10.4), (-4.0, -4.4), 24, 16), Bracket((-8.0, -8.1), (-7.8, -7.9), 192, 16)
    both = pooled([short, long])
    assert both.standard_error < long.standard_error
    assert abs(both.estimate - long.estimate) < 0.1 * abs(short.estimate - long.estimate)
    assert short.lower < both.lower < long.lower or both.lower == pytest.approx(long.lower, abs=0.2)
    assert pooled([long]).lower == pytest.approx(long.lower)
    assert np.isfinite(pooled([Bracket((-1.0,), (-1.0,), 24, 1)] * 2).standard_error)  # exact ones: no division by 0


def test_one_mode_is_doubted_more_and_its_own_error_is_added():
    plain = Bracket((-10.0,) * 4, (-6.0,) * 4, 24, 16)
    anchored = Bracket((-10.0,) * 4, (-6.0,) * 4, 24, 16, anchor_error=0.5)
    assert plain.standard_error < anchored.standard_error
    assert anchored.standard_error == pytest.approx(math.hypot(ANCHORED_SHARE * 4.0, 0.5))


def test_an_upper_end_below_another_s_lower_end_counts_for_nothing():
    """A path in a mode that is not the best one: narrow, and wrong."""
    missed = Bracket((-50.1, -50.0), (-49.9, -49.8), 24, 16, anchor_error=0.1)
    found = Bracket((-20.0, -22.0), (-9.0, -8.0), 24, 16)
    assert pooled([missed, found]) == pooled([found])
    assert pooled([missed]).estimate == pytest.approx(-49.95)


def test_an_estimate_is_never_below_a_proved_bound():
    """A path that missed the posterior: its estimate is raised, its error says by how much, its upper end is none."""
    found = Pooled(-135.1, 8.3, -140.0, -130.0)
    raised = raised_to_bound(found, -107.9)
    assert contradicts(found, -107.9)
    assert raised.estimate == raised.lower == -107.9
    assert raised.standard_error == pytest.approx(math.hypot(8.3, 27.2))
    assert math.isnan(raised.upper)
    within = raised_to_bound(found, -130.5)
    assert (within.estimate, within.standard_error, within.upper) == (-130.5, 8.3, -130.0)
    assert not contradicts(found, -130.5)
    assert raised_to_bound(found, -136.0) == found


@pytest.mark.thorough
def test_pooled_errors_have_the_tails_that_they_state():
    """Two annealings of four islands each, the second twice as long, both unbiased: the ideal case.

    Each weighted by its own islands' spread alone, errors had a root mean square z of 1.07, |z| > 3 in 1.28 % and
    |z| > 5 in .11 % of 200,000 cases. With the shared variance: .99, .61 % and .02 %; a normal has 1, .27 % and none.
    """
    rng, z, before = np.random.default_rng(0), [], []
    for _ in range(4_000):
        each = [
            Bracket(tuple(spread * rng.standard_normal(4)), tuple(spread * rng.standard_normal(4)), steps, 16)
            for steps, spread in ((24, 2**0.5), (48, 1.0))
        ]
        found = pooled(each)
        z.append(found.estimate / found.standard_error)
        weights = np.array([one.standard_error**-2 for one in each])
        before.append(weights @ [one.estimate for one in each] / weights.sum() ** 0.5)
    new, old = np.abs(z), np.abs(before)
    assert 0.9 < np.sqrt(np.mean(new**2)) < 1.05
    assert np.mean(new > 3) < 0.009 < np.mean(old > 3)
