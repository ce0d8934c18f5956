"""Which size comes next: nothing with prior mass is missed unsaid, and effort goes where it decides."""

import math

import numpy as np
import pytest
from small_searches import annealed_visit as visit

import lvsearch as lv
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.ledger import Trial, Visit
from lvsearch.sizing.racing import TOLERANCE, found_so_far, next_size, unvisited_share

POISSON = lv.sizes.Poisson(5)


def sizes_tried(evidence, prior, max_size=None, trials=5):
    """The whole course of a search whose first trials have errors and whose fifths have nearly none."""
    visits: list[Visit] = []
    order = []
    while (size := next_size(visits, prior, trials, max_size)) is not None:
        order.append(size[0])
        known = next((v for v in visits if v.size == size), None)
        done = 0 if known is None else len(known.trials)
        again = visit(size[0], *[(evidence(size[0]), 8.0 / 3**n) for n in range(done + 1)])
        visits = [again if v.size == size else v for v in visits] if known else [*visits, again]
        assert len(order) < 200
    return order, visits


def test_a_search_starts_at_one_and_ends_around_the_mode():
    order, visits = sizes_tried(lambda k: -3.0 * (k - 7) ** 2, POISSON)
    assert order[0] == 1
    assert {6, 7, 8} <= set(order)
    assert max(order) <= 16
    assert len(next(v for v in visits if v.size == (7,)).trials) > 1


@pytest.mark.parametrize("support", [(37, 100), (2, 3), (1, 64)])
def test_all_prior_mass_is_visited_wherever_it_lies(support):
    table = np.zeros(max(support))
    table[[n - 1 for n in support]] = 0.5
    order, _ = sizes_tried(lambda k: 0.0, lv.sizes.Table(table))
    assert set(support) <= set(order) <= {1, *support}


def test_mass_far_above_size_one_is_not_missed():
    table = np.zeros(100)
    table[0], table[99] = 0.001, 0.999
    order, _ = sizes_tried(lambda k: 0.0, lv.sizes.Table(table))
    assert set(order) == {1, 100}


def test_the_prior_alone_does_not_end_a_search_that_still_rises():
    order, _ = sizes_tried(lambda k: 50.0 * k, POISSON, max_size=(40,))
    assert 40 in order


def test_beyond_the_largest_size_allowed_nothing_is_tried():
    order, _ = sizes_tried(lambda k: 50.0 * k, POISSON, max_size=(6,))
    assert max(order) == 6


@pytest.mark.thorough
def test_no_rival_of_the_best_has_fewer_trials_than_the_best_but_one():
    _, visits = sizes_tried(lambda k: -0.5 * abs(k - 5), POISSON)
    best = next(v for v in visits if v.size == (5,))
    for rival in visits:
        if rival.size in ((4,), (6,)):
            assert len(rival.trials) >= len(best.trials) - 1


def test_a_flat_function_without_errors_is_tried_once_each():
    visits = [visit(k, (0.0, 0.0)) for k in range(1, 5)]
    assert next_size(visits, lv.sizes.Table([0.25] * 4), 5, (4,)) is None


@pytest.mark.thorough
def test_a_second_mode_is_found_or_its_prior_mass_is_said():
    """One at 24, 50 nats higher, with nothing around it to suggest it: the share that is said is of the prior."""
    evidence = {24: 50.0}
    order, visits = sizes_tried(lambda k: evidence.get(k, -abs(k - 4) * 1.0), lv.sizes.Geometric(0.2))
    if 24 not in order:
        tried = math.fsum(math.exp(lv.sizes.Geometric(0.2).log_pmf((n,))) for n in set(order))
        assert 1 - tried > 1e-3
        assert 0 <= unvisited_share(visits, lv.sizes.Geometric(0.2), None) < 1e-3


def test_unvisited_sizes_hold_what_their_neighbours_suggest():
    visits = [visit(1, (0.0, 0.0)), visit(2, (0.0, 0.0)), visit(4, (0.0, 0.0))]
    assert unvisited_share(visits, lv.sizes.Table([0.25] * 4), None) == pytest.approx(0.25)
    assert unvisited_share([], POISSON, None) == 0.0


def test_failures_are_passed_by():
    failed = Visit(
        (2,), (Trial("scratch", Evidence(-math.inf, 0.0), 0.0, 1.0, "not a number"),), Evidence(-math.inf, 0.0), 0.0,
        None, -1.0, 0.0,
    )  # fmt: skip
    following = next_size([visit(1, (0.0, 0.0)), failed], lv.sizes.Table([0.4, 0.3, 0.3]), 5, (3,))
    assert following == (3,)


def test_several_variables_go_on_from_the_best_corner():
    prior = lv.sizes.Product(lv.sizes.Poisson(2), lv.sizes.Poisson(2))
    first = next_size([], prior, 3, None)
    assert first == (1, 1)
    one = Visit((1, 1), (Trial("function", Evidence(-4.0), 0.0, 1.0),), Evidence(-4.0), 0.0, None, -4.0, 0.0)
    assert next_size([one], prior, 1, None) == (2, 2)


def test_a_size_that_moves_the_posterior_little_is_left_alone_once_those_that_move_it_are_done():
    flat = lv.sizes.Table([0.25] * 4)
    rivals = [visit(size, *[(0.0, 10.0)] * 3) for size in (1, 2)]
    small = [visit(size, *[(-6.0, 10.0)] * 2) for size in (3, 4)]
    assert next_size([*rivals, *small], flat, 3, (4,)) is None
    # with trials left, the rivals would go on
    assert next_size([*rivals, *small], flat, 4, (4,)) in {(1,), (2,)}
    # and a size that counts is tried as often as they were
    counts = [visit(size, *[(-1.0, 10.0)] * 2) for size in (3, 4)]
    assert next_size([*rivals, *counts], flat, 3, (4,)) in {(3,), (4,)}


def test_a_size_whose_error_alone_gives_it_probability_is_tried_again():
    # 97 of 100 draws of its error leave it nothing, and the other three most of what there is
    wide = visit(4, (-35.0, 110.0))
    sharp = [visit(size, *[(0.0, 1.0)] * 2) for size in (1, 2, 3)]
    assert next_size([*sharp, wide], lv.sizes.Table([0.25] * 4), 3, (4,)) == (4,)


def test_a_search_does_not_end_without_a_number_while_sizes_known_worse_than_to_3_nats_have_trials_left():
    # The estimates are 20 nats apart and their errors 8: by the estimates alone errors move nothing.
    def course(trials: int) -> list[Visit]:
        return [visit(1, (-900.0, 0.1)), *(visit(k, *[(-20.0 * abs(k - 3), 64.0)] * trials) for k in (2, 3, 4))]

    found = found_so_far(course(1), POISSON)
    assert not found.is_decided
    assert found.moved_by_errors < TOLERANCE
    assert next_size(course(1), POISSON, 4, (4,)) in found.unsettled
    assert next_size(course(4), POISSON, 4, (4,)) is None


def test_one_uncertain_annealing_does_not_decide_even_where_no_size_comes_near():
    flat, below = lv.sizes.Table([0.25] * 4), [visit(size, (-900.0, 0.1)) for size in (1, 3, 4)]
    assert next_size([visit(2, (0.0, 64.0)), *below], flat, 3, (4,)) == (2,)
    assert next_size([visit(2, *[(0.0, 64.0)] * 2), *below], flat, 3, (4,)) is None
    assert next_size([visit(2, (0.0, 64.0)), *below], flat, 1, (4,)) is None


def test_a_badly_known_size_beside_the_best_gets_as_many_trials():
    """One fit of 20 planted patterns lay in a poor mode, 1,850 nats below that of 21, and was not made again."""
    flat = lv.sizes.Table([0.25] * 4)
    best, above = visit(3, *[(0.0, 4.0)] * 2), visit(4, *[(-58.0, 4.0)] * 2)
    poor, far = visit(2, (-1850.0, 1600.0)), visit(1, (-2000.0, 1600.0))
    assert next_size([far, poor, best, above], flat, 2, (4,)) == (2,)
    again = visit(2, *[(-1850.0, 1600.0)] * 2)
    assert next_size([far, again, best, above], flat, 2, (4,)) is None
    known = visit(2, (-1850.0, 1.0))
    assert next_size([far, known, best, above], flat, 2, (4,)) is None
    out_of_reach = visit(2, (-50_000.0, 1600.0))
    assert next_size([far, out_of_reach, best, above], flat, 2, (4,)) is None
