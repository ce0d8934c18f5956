"""The witness algorithm: traces of Figures 1 and 2, three size variables against brute force, ties, other orders."""

import copy
import math
import pickle
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvsearch.sizing import sizes
from lvsearch.sizing.evidence import Evidence, Record
from lvsearch.sizing.witness import WitnessSearch


def precedes(first, second):
    return all(a <= b for a, b in zip(first, second, strict=True))


def run(search, evidence, steps):
    for _ in range(steps):
        size = search.next_size()
        search.record(size, evidence(size))
    return search


# Figures 1 and 2


@pytest.mark.parametrize("flat", [False, True])
def test_figure_1_one_size_variable(flat):
    search = WitnessSearch(sizes.Poisson(5))
    for k in range(1, 12):
        assert search.next_size() == (k,)
        search.record(k, -7.5 if flat else -40.0 / k)
        assert search.generated == tuple((j,) for j in range(1, k + 1))
        assert search.witnesses == ((k,),)
        assert search.min_witness == (k,)


# expanded, its log-likelihood, witness set, min-witness. (2,2) ties with (1,2): only then may the last row drop it.
FIGURE_2 = [
    ((1, 1), -9.0, {(1, 1)}, (1, 1)),
    ((2, 1), -7.0, {(1, 1), (2, 1)}, (1, 1)),
    ((1, 2), -6.0, {(1, 2), (2, 1)}, (2, 1)),
    ((3, 1), -4.0, {(1, 2), (3, 1)}, (1, 2)),
    ((2, 2), -6.0, {(1, 2), (3, 1)}, (1, 2)),
]


def test_figure_2_two_size_variables():
    search = WitnessSearch(sizes.Product(sizes.Poisson(3), sizes.Geometric(0.4)))
    for step, (size, log_likelihood, witnesses, min_witness) in enumerate(FIGURE_2, start=1):
        assert search.next_size() == size
        search.record(size, log_likelihood)
        assert set(search.witnesses) == witnesses
        assert search.min_witness == min_witness
        assert search.generated == tuple(row[0] for row in FIGURE_2[:step])


def test_figure_2_without_the_tie_keeps_the_better_witness():
    search = WitnessSearch(sizes.Product(sizes.Poisson(3), sizes.Geometric(0.4)))
    for size, log_likelihood, _, _ in FIGURE_2[:-1]:
        search.record(size, log_likelihood)
    search.record((2, 2), -5.5)
    assert set(search.witnesses) == {(1, 2), (3, 1), (2, 2)}


# Three size variables against brute force over 1…12 each

CUBE = list(product(range(1, 13), repeat=3))
WEIGHTS = np.random.default_rng(3).gamma(0.7, size=(12, 12, 12))
CUBE_PRIOR = sizes.Table(WEIGHTS / WEIGHTS.sum())


def cube_evidence(size):
    a, b, c = size
    return -30.0 / a - 17.0 / b - 11.0 / (c + 0.5) + 0.9 * math.log(a * c) - 20.0


def holds(region, size):
    ends = (end is None or part < end for part, end in zip(size, region.upper, strict=True))
    return precedes(region.lower, size) and all(ends)


def check_against_brute_force(search, pmf):
    lower = {record.size: record.evidence.lower for record in search.records}
    upper = {record.size: record.evidence.upper for record in search.records}
    regions = search._unvisited.regions
    best = {}
    for t in (t for t in CUBE if t not in lower):
        (home,) = [region for region in regions if holds(region, t)]
        best[t] = max(value for w, value in lower.items() if precedes(w, t))
        assert home.log_witness == best[t] == lower[home.witness]
        assert precedes(home.witness, t)
        assert home.witness in search.witnesses
    assert not any(holds(region, s) for region in regions for s in lower)
    for w in search.witnesses:  # minimal: no witness can be left out
        assert any(
            precedes(w, t)
            and best[t] == lower[w]
            and not any(precedes(v, t) and lower[v] == best[t] for v in search.witnesses if v != w)
            for t in best
        )
    visited = sum(pmf[s] * math.exp(lower[s]) for s in lower)
    witnessed = sum(pmf[t] * math.exp(best[t]) for t in best)
    bounds = search.bounds()
    assert bounds.log_lower == pytest.approx(math.log(visited + witnessed), rel=1e-12)
    ceiling = sum(pmf[t] for t in best) * math.exp(search.ceiling)
    assert bounds.log_upper == pytest.approx(
        math.log(sum(pmf[s] * math.exp(upper[s]) for s in upper) + ceiling), rel=1e-12
    )
    if search.witnesses:
        assert lower[search.min_witness] == min(lower[w] for w in search.witnesses)


@pytest.mark.thorough
def test_three_size_variables_against_brute_force():
    pmf = {t: math.exp(CUBE_PRIOR.log_pmf(t)) for t in CUBE}
    search = WitnessSearch(CUBE_PRIOR, ceiling=-1.5)
    for step in range(45):
        expected_parent = search.min_witness
        size = search.next_size()
        assert size is not None
        if expected_parent is not None:
            assert precedes(expected_parent, size)
            assert sum(size) == sum(expected_parent) + 1
        search.record(size, cube_evidence(size))
        if step % 6 == 0:
            check_against_brute_force(search, pmf)


@pytest.mark.thorough
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), ties=st.booleans())
def test_three_size_variables_in_any_order_with_ties(seed, ties):
    rng = np.random.default_rng(seed)
    pmf = {t: math.exp(CUBE_PRIOR.log_pmf(t)) for t in CUBE}
    search = WitnessSearch(CUBE_PRIOR)
    search.record((1, 1, 1), -9.0)
    for size in {tuple(rng.integers(1, 7, size=3).tolist()) for _ in range(6)} - {(1, 1, 1)}:
        search.record(size, float(-rng.integers(3, 6)) if ties else float(-rng.gamma(3.0)))
    run(search, lambda size: float(-rng.integers(2, 5)), 3)
    check_against_brute_force(search, pmf)


# Ties, replacement, ends


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), dimension=st.integers(1, 3))
def test_the_search_never_stalls_under_ties_and_any_order(seed, dimension):
    rng = np.random.default_rng(seed)
    largest = (4, 3, 2)[:dimension]
    search = WitnessSearch(sizes.Product(*[sizes.Poisson(4.0)] * dimension), max_size=largest)
    search.record((1,) * dimension, -5.0)
    for size in {tuple(int(rng.integers(1, end + 1)) for end in largest) for _ in range(2)}:
        if size not in search.generated:
            search.record(size, float(-rng.integers(1, 4)))
    while (size := search.next_size()) is not None:
        search.record(size, float(-rng.integers(1, 4)))
    assert set(search.generated) == set(product(*(range(1, end + 1) for end in largest)))


def test_a_record_below_its_witness_is_replaced_and_says_so():
    search = WitnessSearch(sizes.Poisson(5))
    search.record(1, -20.0)
    search.record(3, Evidence(-12.0, -10.0, 0.25))
    entry = search.record(4, Evidence(-13.0, -9.0))
    assert entry == Record((4,), Evidence(-12.0, -10.0, 0.25), replaced_by=(3,))
    assert search.record(2, -15.0).replaced_by is None
    kept = search.record(5, Evidence(-12.0, -11.5))  # equal lower ends: nothing to replace
    assert kept.replaced_by is None
    witness = search.best_witness(7)
    assert witness is not None
    assert witness.size == (5,)
    assert all(record.evidence.upper >= record.evidence.lower for record in search.records)
    free = WitnessSearch(sizes.Poisson(5), nested=False)
    free.record(1, -20.0)
    assert free.record(2, -30.0).replaced_by is None
    assert free.witnesses == ()
    assert free.min_witness is None


def test_upper_ends_are_clipped_to_the_ceiling():
    search = WitnessSearch(sizes.Poisson(5), ceiling=-3.0)
    assert search.record(1, Evidence(-9.0, 4.0)).evidence.upper == -3.0
    assert search.record(2, -3.0 + 1e-12).evidence.lower == -3.0
    assert search.bounds().log_upper <= -3.0


def test_a_prior_without_mass_on_the_first_size():
    prior = sizes.Table([0.0, 0.0, 0.6, 0.4])
    search = WitnessSearch(prior)
    assert search.next_size() == (1,)
    search.record(1, -8.0)
    assert search.bounds().log_lower == pytest.approx(-8.0)  # all of the mass is witnessed by size 1
    assert search.bounds().log_upper == pytest.approx(0.0, abs=1e-12)
    run(search, lambda size: -8.0 + size[0], 3)
    assert search.generated == ((1,), (2,), (3,), (4,))
    assert search.next_size() is None  # no prior mass is left
    assert search.witnesses == ()
    assert search.bounds().log_lower == pytest.approx(math.log(0.6 * math.exp(-5) + 0.4 * math.exp(-4)))
    assert search.bounds().width == pytest.approx(0.0, abs=1e-12)


def test_infinite_ceiling_and_impossible_data_give_no_nan():
    search = WitnessSearch(sizes.Table([0.0, 0.3, 0.7]), ceiling=math.inf)
    search.record(1, Evidence(-math.inf, math.inf))
    assert search.bounds().log_lower == -math.inf
    assert search.bounds().log_upper == math.inf
    search.record(2, -math.inf)
    search.record(3, -math.inf)
    assert search.bounds().log_upper == -math.inf
    assert search.bounds().width == 0.0


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda s: s.record(1, -5.0), "recorded already"),
        (lambda s: s.record(2, math.nan), "not ranked"),
        (lambda s: s.record(2, 0.5), "above the ceiling"),
        (lambda s: s.record((2, 2), -5.0), "expected a whole number from 1 on"),
        (lambda s: s.record(0, -5.0), "from 1 on"),
        (lambda s: s.record(2, Evidence(-1.0, -2.0)), "lower <= upper"),
        (lambda s: s.record(2, Evidence(-1.0, standard_error=-2.0)), "standard error"),
        (lambda s: WitnessSearch(sizes.Poisson(2)).record(2, -5.0), "first size must be"),
        (lambda s: WitnessSearch(sizes.Poisson(2)).bounds(), "Nothing is recorded"),
        (lambda s: WitnessSearch(sizes.Poisson(2), ceiling=math.nan), "ceiling"),
    ],
)
def test_bad_input_is_explained_and_loses_nothing(act, says):
    search = WitnessSearch(sizes.Poisson(2))
    search.record(1, -5.0)
    before = search.records
    with pytest.raises(ValueError, match=says):
        act(search)
    assert search.records == before


# The order without nesting


def test_without_nesting_a_ladder_then_the_neighbours_of_the_best():
    search = WitnessSearch(sizes.Poisson(12), nested=False, max_size=20)
    run(search, lambda size: -0.3 * (size[0] - 11.2) ** 2, 20)
    assert search.generated[:5] == ((1,), (2,), (4,), (8,), (16,))
    assert search.generated[5:10] == ((7,), (9,), (10,), (11,), (12,))
    assert sorted(search.generated) == [(k,) for k in range(1, 21)]
    assert search.next_size() is None


def test_without_a_largest_size_the_ladder_ends_once_it_falls():
    search = WitnessSearch(sizes.Poisson(12), nested=False)
    run(search, lambda size: -0.3 * (size[0] - 11.2) ** 2, 12)
    assert search.generated[:7] == ((1,), (2,), (4,), (8,), (16,), (32,), (7,))
    assert len(set(search.generated)) == 12


def test_without_nesting_several_size_variables():
    prior = sizes.Product(sizes.Poisson(3), sizes.Poisson(6))
    search = WitnessSearch(prior, nested=False, max_size=(3, 9))
    run(search, lambda size: -((size[0] - 2) ** 2) - 0.5 * (size[1] - 5) ** 2, 27)
    assert search.generated[:4] == ((1, 1), (2, 2), (3, 4), (3, 8))
    assert len(set(search.generated)) == 27
    assert search.next_size() is None


@pytest.mark.parametrize("nested", [True, False])
def test_a_search_is_rebuilt_from_its_records(nested):
    def new():
        return WitnessSearch(sizes.Product(sizes.Poisson(4), sizes.Geometric(0.3)), -1.0, nested, (6, 7))

    def evidence(size):
        return Evidence(-20.0 / (size[0] + size[1] ** 0.5), -1.5, 0.1)

    whole = run(new(), evidence, 17)
    for stop in (0, 1, 6):
        part = run(new(), evidence, stop)
        again = WitnessSearch.from_records(part.prior, part.ceiling, part.nested, part.max_size, part.records)
        run(again, evidence, 17 - stop)
        assert again.records == whole.records
        assert (again.witnesses, again.min_witness) == (whole.witnesses, whole.min_witness)
        assert again.next_size() == whole.next_size()
        assert again.bounds() == whole.bounds()


def test_another_prior_over_the_same_records():
    search = run(WitnessSearch(sizes.Poisson(5)), lambda size: -50.0 / size[0], 9)
    other = WitnessSearch.from_records(sizes.Poisson(40), 0.0, True, None, search.records)
    assert other.generated == search.generated
    assert other.bounds().log_unvisited_prior > search.bounds().log_unvisited_prior


def test_a_step_takes_no_longer_than_in_proportion_to_the_sizes_before_it():
    """Calls of functions are counted, which no other process can slow down."""

    def calls(n_sizes: int) -> int:
        search = run(WitnessSearch(sizes.Poisson(40)), lambda size: -900.0 / size[0], n_sizes)
        made = []
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, argument: made.append(event))
        try:
            run(search, lambda size: -900.0 / size[0], 10)
            search.bounds()
        finally:
            sys.setprofile(before)
        return len(made)

    assert calls(150) < 2.2 * calls(75)  # quadratic: 4 times


@pytest.mark.parametrize("remake", [copy.deepcopy, lambda search: pickle.loads(pickle.dumps(search))])
@pytest.mark.parametrize("prior", [sizes.Poisson(5), sizes.Product(sizes.Poisson(3), sizes.Geometric(0.4))])
def test_a_search_survives_pickling_and_copying(prior, remake):
    search = run(WitnessSearch(prior, max_size=9), lambda size: -40.0 / sum(size), steps=6)
    again = remake(search)
    assert (again.records, again.regions, again.witnesses) == (search.records, search.regions, search.witnesses)
    assert (again.ceiling, again.nested, again.max_size) == (search.ceiling, search.nested, search.max_size)
    assert again.next_size() == search.next_size()
