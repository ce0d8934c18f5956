"""The smallest size that predicts as well as any: the rule, and the order in which sizes are asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvsearch.recommending.rule import Comparison, PartLimits, compare_sizes, next_part, smallest_within_error

NOTHING = np.nan


def test_the_smallest_size_within_one_standard_error_is_recommended():
    """By hand: the differences of 2 to 4 are (−2, 0, −1, −1): sum −4, deviations (−1, 1, 0, 0), s² = 2/3, error
    √(4 · 2/3) = 1.63: too far. Those of 3 are (−1, 1, 0, −1): sum −1, s² = 11/12, error √(11/3) = 1.91: near enough."""
    best = np.array([-5.0, -6.0, -7.0, -8.0])
    scores = best + np.array([[-2, 0, -1, -1], [0, 0, 0, 0], [-1, 1, 0, -1]])
    found = compare_sizes([(2,), (4,), (3,)], scores)
    assert (found.sizes, found.best, found.recommended, found.within) == (((2,), (3,), (4,)), (4,), (3,), ((3,), (4,)))
    np.testing.assert_allclose(found.difference, [-4, -1, 0])
    np.testing.assert_allclose(found.standard_error, [np.sqrt(8 / 3), np.sqrt(11 / 3), 0])
    np.testing.assert_allclose(found.score, [-7.5, -6.75, -6.5])


def test_what_makes_a_unit_hard_for_every_size_cancels():
    """Unpaired, an error of hundreds of nats would hide a difference of one nat a unit."""
    rng = np.random.default_rng(0)
    hard = rng.normal(-500, 300, 40)
    scores = np.stack([hard - 1 + rng.normal(0, 0.1, 40), hard])
    found = compare_sizes([(1,), (2,)], scores)
    assert found.recommended == (2,)
    assert found.standard_error[0] < 1


def test_sizes_are_compared_on_the_units_of_both():
    """Size 2 was asked about hard units only, and is as good as size 3 there."""
    scores = np.array([[-9.0, -9.5, NOTHING, NOTHING], [-9.0, -9.6, -1.0, -1.0], [-12.0, -13.0, -3.0, -3.5]])
    found = compare_sizes([(2,), (3,), (1,)], scores)
    assert (found.best, found.recommended) == ((2,), (2,))
    assert found.n_units.tolist() == [2, 2, 2]


def test_a_size_asked_about_more_units_is_not_the_best_for_that():
    scores = np.array([[-5.0, -5.0, -5.0, -5.2], [-1.0, -1.5, NOTHING, NOTHING]])
    assert compare_sizes([(1,), (2,)], scores).best == (2,)


@pytest.mark.parametrize(
    ("scores", "words"),
    [(np.array([[-1.0], [-2.0]]), "at least two"), (np.array([[-1.0, -np.inf], [-2.0, -2.0]]), "infinite")],
)
def test_what_cannot_be_compared_is_refused(scores, words):
    with pytest.raises(ValueError, match=words):
        compare_sizes([(1,), (2,)], scores)
    with pytest.raises(ValueError, match="0 sizes"):
        compare_sizes([], np.zeros((0, 3)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(2, 30))
def test_the_recommended_size_never_predicts_significantly_worse_and_order_does_not_matter(seed, n_sizes, n_units):
    rng = np.random.default_rng(seed)
    sizes = [(int(size),) for size in rng.choice(50, n_sizes, replace=False) + 1]
    scores = rng.normal(0, 1, (n_sizes, 1)) + rng.normal(0, 2, (n_sizes, n_units))
    scores[rng.random((n_sizes, n_units)) < 0.2] = NOTHING
    scores[:, :2] = rng.normal(0, 1, (n_sizes, 2))  # every two sizes have units in common
    found = compare_sizes(sizes, scores)
    place = found.sizes.index(found.recommended)
    assert found.difference[place] >= -found.standard_error[place]
    assert found.recommended == min(found.within)
    assert found.best in found.within
    other = rng.permutation(n_sizes)
    again = compare_sizes([sizes[row] for row in other], scores[other])
    assert (again.sizes, again.best, again.recommended) == (found.sizes, found.best, found.recommended)


def test_what_has_an_error_of_its_own_stops_gaining_where_it_is_within_it():
    assert smallest_within_error(np.array([0.1, 0.28, 0.3]), np.array([0.05, 0.03, 0.02])) == 1
    with pytest.raises(ValueError, match="no value"):
        smallest_within_error(np.array([np.nan]), np.array([0.0]))


# ── the order of asking ─────────────────────────────────────────────────────────────────────────────────────────────


def searched(curve, noise, parts=2, largest=200, units=60, fails=()):
    """Run a whole search in which size s scores curve(s) nats a unit and what a unit adds is drawn: (asked, found)."""
    asked, scores = {}, {}
    for _ in range(400):
        known = {size: rows for size, rows in scores.items() if rows}
        found = table = None
        if known:
            table = np.full((len(known), parts * units), NOTHING)
            for row, rows in enumerate(known.values()):
                for part, values in rows.items():
                    table[row, part * units : (part + 1) * units] = values
            found = compare_sizes([(size,) for size in known], table)
        wanted = next_part(asked, found, PartLimits(parts, largest))
        if wanted is None:
            return asked, found
        size, part = wanted
        assert part == asked.get(size, 0)
        assert 1 <= size <= largest
        asked[size] = part + 1
        scores.setdefault(size, {})
        if size not in fails:
            rng = np.random.default_rng([part, size])
            scores[size][part] = curve(size) + rng.normal(0, noise, units)
    raise AssertionError("the search did not end")


@pytest.mark.parametrize("planted", [1, 2, 7, 13, 20, 40])
def test_a_sharp_peak_is_found_within_the_fineness_of_the_grid(planted):
    """A component too few costs a nat a unit each, one too many a fiftieth."""
    asked, found = searched(lambda s: -max(planted - s, 0) - 0.02 * max(s - planted, 0), 0.01)
    assert planted <= found.recommended[0] <= max(planted, 1.15 * planted)
    assert len(asked) <= 16
    assert asked[found.recommended[0]] == 2  # it was asked about every part


def test_a_curve_that_flattens_is_left_where_it_is_flat():
    """1 − e^(−s/10) with an error of .02 a unit and 120 units: the elbow is where the rest is below its error."""
    _, found = searched(lambda s: -np.exp(-s / 10), 0.1, largest=300)
    assert isinstance(found, Comparison)
    assert 20 <= found.recommended[0] <= 60


def test_the_search_ends_at_the_largest_size_allowed():
    asked, found = searched(lambda s: 0.5 * np.log(s), 0.01, largest=23)
    assert max(asked) == 23
    assert found.recommended == (23,)


def test_fits_that_fail_are_passed_over():
    asked, found = searched(lambda s: -abs(s - 6.0), 0.01, fails=(1, 8, 64))
    assert found.recommended == (6,)
    assert 8 in asked
    asked, found = searched(lambda s: 0.0, 0.01, fails=tuple(range(1, 300)))
    assert found is None
    assert len(asked) == 3
