"""The ledger's numbers, by hand."""

import math
from dataclasses import replace

import pytest

import lvsearch as lv
from lvsearch.sizing.evidence import Bracket, Repeats
from lvsearch.sizing.ledger import (
    MEAN_OF_BEST,
    NEGLIGIBLE,
    SD_OF_BEST,
    Trial,
    Visit,
    near_mode,
    pooled_spread,
    record_of,
    scale_evidence,
    standard_error,
    unvisited_neighbour,
    visits_beside,
    visits_between,
)
from lvsearch.sizing.sizes import Size

FLAT = lv.sizes.Table([1 / 40] * 40)


def trial(estimate: float, log_symmetry: float = 0.0, error: float = 0.0) -> Trial:
    failure = "not a number" if math.isnan(estimate) else None
    lower = -math.inf if failure else estimate - log_symmetry
    return Trial("documents", lv.Evidence(lower, max(lower, 100.0), error), log_symmetry, 0.25, failure)


def visit(size: int | Size, *estimates: float, error: float = 0.0, replaced_by: Size | None = None) -> Visit:
    trials = tuple(trial(estimate, error=error) for estimate in estimates)
    best = max(trials, key=lambda one: one.estimate)
    size = (size,) if isinstance(size, int) else size
    return Visit(size, trials, best.evidence, best.log_symmetry, replaced_by, -9.0, 0.0)


STUDENT = {1: 12.7062047, 2: 4.3026527, 3: 3.1824463, 4: 2.7764451}
"""97.5 % points by degrees of freedom, from a printed table; the normal one is 1.9599640."""


def widened(spread: float, freedom: int) -> object:
    return pytest.approx(spread * STUDENT[freedom] / 1.9599640, rel=1e-7)


def test_spread_is_pooled_over_sizes_with_several_trials():
    # sums of squares 2 (one degree of freedom) and 6 (two); the size with one trial and the failed trial say nothing
    visits = [visit(1, 1.0, 3.0), visit(2, 0.0, 0.0, 3.0), visit(3, 50.0), visit(4, 7.0, math.nan)]
    assert pooled_spread(visits) == widened(math.sqrt(8 / 3), 3)


def test_spread_without_repeats_is_the_roughness_of_the_curve():
    # even steps: root of the mean squared second difference / 6
    visits = [visit(3, 0.0), visit(1, 0.0), visit(2, 1.0), visit(4, 2.0)]  # second differences −2, 3
    assert pooled_spread(visits) == widened(math.sqrt((4 + 9) / 2 / 6), 2)
    # 1, 2, 4: the line at 2 weighs its ends 2/3 and 1/3, so 3 lies 2 above it, with variance 1 + 4/9 + 1/9
    assert pooled_spread([visit(1, 0.0), visit(2, 3.0), visit(4, 3.0)]) == widened(math.sqrt(36 / 14), 1)
    assert pooled_spread([visit(1, 2.0), visit(2, 4.0), visit(4, 8.0), visit(8, 16.0)]) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "visits",
    [
        [],
        [visit(1, 0.0)],
        [visit(1, 0.0), visit(2, 9.0)],
        [visit((1, 1), 0.0), visit((1, 2), 9.0), visit((1, 3), 0.0)],
        [visit(1, -math.inf), visit(2, 9.0), visit(3, 0.0)],
    ],
    ids=["none", "one", "two", "two variables", "too few of them finite"],
)
def test_spread_is_zero_where_nothing_can_tell(visits: list[Visit]):
    assert pooled_spread(visits) == 0.0


def test_impossible_data_do_not_spoil_the_spread():
    visits = [visit(1, -math.inf, 4.0), visit(2, 1.0, 3.0)]
    assert pooled_spread(visits) == widened(math.sqrt(2), 1)


def test_standard_error_by_hand():
    one, three = visit(4, 1.0), visit(4, 1.0, 2.0, 0.0)
    assert standard_error(three, 2.0, usual_trials=3) == pytest.approx(2.0 * SD_OF_BEST[2], rel=1e-12)
    assert standard_error(one, 2.0, usual_trials=1) == pytest.approx(2.0, rel=1e-12)
    lagging = 2.0 * math.hypot(1.0, MEAN_OF_BEST[2])
    assert standard_error(one, 2.0, usual_trials=3) == pytest.approx(lagging, rel=1e-12)
    assert standard_error(three, 2.0, usual_trials=1) == pytest.approx(2.0 * SD_OF_BEST[2], rel=1e-12)  # no lead
    own = visit(4, 1.0, 2.0, 0.0, error=3.0)
    assert standard_error(own, 2.0, usual_trials=3) == pytest.approx(math.hypot(2.0 * SD_OF_BEST[2], 3.0), rel=1e-12)
    failed_once = visit(4, 1.0, math.nan, math.nan)  # only fits that are numbers count
    assert standard_error(failed_once, 2.0, usual_trials=3) == pytest.approx(lagging, rel=1e-12)
    many = visit(4, *range(9))  # the tables end; more trials cannot make it worse
    assert standard_error(many, 2.0, usual_trials=20) == pytest.approx(2.0 * SD_OF_BEST[-1], rel=1e-12)


def test_order_statistics_of_the_normal():
    """The two constants, by numerical integration of the density of the largest of n."""
    import numpy as np
    from scipy.stats import norm

    x = np.linspace(-9, 9, 20001)
    for n, (mean, deviation) in enumerate(zip(MEAN_OF_BEST, SD_OF_BEST, strict=True), start=1):
        density = n * norm.pdf(x) * norm.cdf(x) ** (n - 1)
        first, second = np.trapezoid(x * density, x), np.trapezoid(x**2 * density, x)
        assert mean == pytest.approx(first, abs=6e-4)
        assert deviation == pytest.approx(math.sqrt(second - first**2), abs=6e-4)


def test_near_the_mode_by_hand():
    # nothing uncertain: within log 1000 of the best
    visits = [visit(1, 0.0), visit(2, 10.0), visit(3, 10.0 - NEGLIGIBLE - 0.01), visit(4, 10.0 - NEGLIGIBLE + 0.01)]
    assert [v.size for v in near_mode(visits, FLAT, 3, 1.0, repeatable=False)] == [(2,), (4,)]
    # three degrees of freedom: 2 √(se² + se²) = 2 · √2 · .826 · 5.79 · 1.62 = 22
    wide = [visit(1, -10.0, 0.0), visit(2, 26.0, 16.0), visit(3, -6.0, -7.0)]
    spread = math.sqrt((50 + 50 + 0.5) / 3) * STUDENT[3] / 1.9599640
    reach = 2 * math.sqrt(2) * SD_OF_BEST[1] * spread
    assert 20 < reach < 25
    assert [v.size for v in near_mode(wide, FLAT, 2, 1.0, repeatable=True)] == [(2,)]
    closer = [visit(1, 16.0 - reach / 2, 26.0 - reach / 2), *wide[1:]]
    assert [v.size for v in near_mode(closer, FLAT, 2, 1.0, repeatable=True)][:2] == [(2,), (1,)]


def test_fits_that_cannot_change_have_no_spread():
    visits = [visit(1, 0.0), visit(2, 30.0), visit(3, 0.0)]  # rough, but exact
    assert [v.size for v in near_mode(visits, FLAT, 1, 1.0, repeatable=False)] == [(2,)]
    assert [v.size for v in near_mode(visits, FLAT, 1, 1.0, repeatable=True)] == [(2,), (1,), (3,)]


def test_near_mode_ranks_neither_failures_nor_what_has_no_weight():
    table = lv.sizes.Table([0.5, 0.0, 0.5])
    visits = [visit(1, 0.0), visit(2, 99.0), visit(3, math.nan)]
    assert [v.size for v in near_mode(visits, table, 1, 1.0, repeatable=True)] == [(1,)]
    assert near_mode([visit(1, math.nan)], FLAT, 1, 1.0, repeatable=True) == ()
    assert near_mode([visit(1, -math.inf), visit(2, -math.inf)], FLAT, 1, 1.0, repeatable=True) == ()
    assert near_mode([], FLAT, 1, 1.0, repeatable=True) == ()


def test_ties_go_to_the_smaller_size_and_the_prior_decides_between_equals():
    visits = [visit(3, 5.0), visit(2, 5.0)]
    assert [v.size for v in near_mode(visits, FLAT, 1, 1.0, repeatable=False)] == [(2,), (3,)]
    tilted = lv.sizes.Table([0.2, 0.3, 0.5])
    assert [v.size for v in near_mode(visits, tilted, 1, 1.0, repeatable=False)] == [(3,), (2,)]


def test_scale_divides_evidence_but_not_the_prior():
    visits = [visit(1, -100.0), visit(2, -110.0)]
    tilted = lv.sizes.Table([0.4, 0.6])
    assert near_mode(visits, tilted, 1, 1.0, repeatable=False)[0].size == (1,)
    assert near_mode(visits, tilted, 1, 100.0, repeatable=False)[0].size == (2,)
    assert scale_evidence(lv.Evidence(-8.0, -4.0, 2.0), 4.0) == lv.Evidence(-2.0, -1.0, 0.5)
    record = record_of(visit(2, -8.0, replaced_by=(1,)), 4.0)
    assert (record.size, record.evidence, record.replaced_by) == ((2,), lv.Evidence(-2.0, 25.0), (1,))


def test_the_nearest_unvisited_neighbour():
    near, visits = [visit(5, 3.0), visit(8, 2.0)], [visit(5, 3.0), visit(8, 2.0), visit(4, 0.0), visit(6, 0.0)]
    assert unvisited_neighbour(near, visits, FLAT, None) == (7,)  # nearest to 5, though a neighbour of 8
    assert unvisited_neighbour(near[:1], visits, FLAT, None) is None
    assert unvisited_neighbour((), visits, FLAT, None) is None
    assert unvisited_neighbour([visit(1, 0.0)], [visit(1, 0.0)], FLAT, (1,)) is None
    assert unvisited_neighbour([visit(5, 3.0)], [visit(5, 3.0)], FLAT, None) == (4,)  # of two as near, the smaller
    assert unvisited_neighbour([visit(40, 3.0)], [visit(40, 3.0), visit(39, 0.0)], FLAT, None) is None  # 41: no mass


def test_neighbours_in_two_variables_respect_the_largest_size_axis_by_axis():
    prior = lv.sizes.Product(lv.sizes.Poisson(3), lv.sizes.Poisson(2))
    start = visit((2, 3), 0.0)
    visited = [start]
    order = []
    while (step := unvisited_neighbour([start], visited, prior, (2, 4))) is not None:
        order.append(step)
        visited.append(visit(step, -1.0))
    assert order == [(1, 3), (2, 2), (2, 4)]


def test_a_further_trial_counts_only_where_it_is_better():
    known = visit(3, 5.0)
    better = known.with_trial(trial(7.0, log_symmetry=3.0))
    assert (better.evidence.lower, better.log_symmetry, better.estimate) == (4.0, 3.0, 7.0)
    for worse in (trial(5.0), trial(4.0), trial(math.nan)):
        after = known.with_trial(worse)
        assert (after.evidence, after.estimate, len(after.trials)) == (known.evidence, 5.0, 2)
    assert better.seconds == 0.5
    assert visit(2, math.nan).failed
    assert not visit(2, math.nan, replaced_by=(1,)).failed
    assert not visit(2, math.nan, 1.0).failed


def test_sizes_one_step_outside_border_on_those_near_the_mode():
    visits = [visit(n, 0.0) for n in (1, 3, 4, 5, 6, 8)]
    assert [v.size for v in visits_beside([visits[2], visits[3]], visits)] == [(3,), (6,)]
    twice = [visits[0], visit(3, 0.0, 1.0), *visits[2:]]
    assert [v.size for v in visits_beside([visits[2], visits[3]], twice)] == [(6,), (3,)]
    grid = [visit((a, b), 0.0) for a in (1, 2, 3) for b in (1, 2, 3)]
    assert {v.size for v in visits_beside([grid[0]], grid)} == {(1, 2), (2, 1)}
    assert visits_beside([], grid) == ()


def test_sizes_between_two_near_the_mode_are_enclosed():
    visits = [visit(n, 0.0) for n in (1, 4, 5, 6, 8, 9)]
    found = visits_between([visits[1], visits[4]], visits)
    assert [v.size for v in found] == [(5,), (6,)]
    few = [visits[1], visit(5, 0.0, 1.0), *visits[3:]]
    assert [v.size for v in visits_between([visits[1], visits[4]], few)] == [(6,), (5,)]
    grid = [visit((a, b), 0.0) for a in (1, 2, 3) for b in (1, 2, 3)]
    corners = [v for v in grid if v.size in ((1, 2), (3, 2), (3, 3))]
    assert [v.size for v in visits_between(corners, grid)] == [(2, 2)]


def test_an_annealed_estimate_is_raised_to_the_bound_of_its_own_fit():
    """The fit proves −107.9; paths say −135.1. The estimate is raised, and a noisy function's calls prove nothing."""
    bracket = Bracket((-139.0, -137.0), (-132.0, -132.4), 24, 16)
    one = Trial("documents", lv.Evidence(-107.9, 0.0), 0.0, 0.25, None, (bracket,))
    found = Visit((3,), (one,), one.evidence, 0.0, None, -9.0, 0.0)
    assert found.estimate == -107.9
    assert standard_error(found, 0.0, 1) > 27.0
    sure = replace(found, evidence=lv.Evidence(-140.0, 0.0))
    assert sure.estimate == pytest.approx(bracket.estimate)
    calls = replace(one, brackets=(Repeats((-135.0, -135.2)),))
    assert replace(found, trials=(calls,)).estimate == pytest.approx(-135.1)
