"""The course of a search, with evaluators that are plain arithmetic: what is fitted, in which order, from where, and
what is kept and said of it. No JAX is compiled here."""

import io
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from small_searches import Fake, annealed_visit, fake_search, settings

import lvsearch as lv
from lvsearch.results.result import SearchResult
from lvsearch.searching.controller import Budget, SearchRules, SearchState, Task, _expected_seconds, run
from lvsearch.sizing import bounds as bounds_of
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.witness import WitnessSearch

FLAT12 = lv.sizes.Table([1 / 12] * 12)
TWO = lv.sizes.Product(lv.sizes.Poisson(2), lv.sizes.Geometric(0.4))
DEPENDENT = lv.sizes.Joint(lambda s: -0.3 * s[0] - 0.2 * s[1] - 0.5 * abs(s[0] - 2 * s[1]), (6, 4))


def rising(size: Size, trial: int = 0) -> float:
    """Never falls when a size grows; not the same in all variables."""
    return -60.0 + sum(12.0 * (axis + 1) * (1 - 0.6**part) for axis, part in enumerate(size))


def peaked(size: Size, trial: int = 0) -> float:
    return -10.0 * (size[0] - 5) ** 2


def certified_history(result: SearchResult, history: list[SearchState]) -> list[bounds_of.Certified]:
    rules = SearchRules(result.evaluator, result.prior, result.settings)
    return [rules.witness_search(state).bounds() for state in history]


def assert_monotone(result: SearchResult, history: list[SearchState]) -> None:
    assert bounds_of.audit(certified_history(result, history)) == ()
    table = result.bounds()
    lower, upper = table["log_lower"].to_numpy(), table["log_upper"].to_numpy()
    assert (lower[1:] >= lower[:-1] - 1e-12).all()
    assert (upper[1:] <= upper[:-1] + 1e-12).all()
    assert (lower <= upper).all()


# ── nested evidence ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("prior", "max_size"), [(lv.sizes.Poisson(4), (9,)), (TWO, (4, 5)), (DEPENDENT, (6, 4)), (TWO, (1, 3))]
)
def test_nested_order_is_that_of_the_witness_algorithm(prior: lv.sizes.SizePrior, max_size: Size):
    names = ("rows", "columns")[: prior.dimension]
    evaluator = Fake(rising, size_names=names)
    result, history = fake_search(evaluator, prior, settings(max_size))
    by_hand = WitnessSearch(prior, 0.0, True, max_size)
    starts: list[Size | None] = []
    while (size := by_hand.next_size()) is not None:
        witness = by_hand.best_witness(size)
        starts.append(None if witness is None else witness.size)
        by_hand.record(size, rising(size))
    assert evaluator.calls == list(zip(by_hand.generated, starts, [0] * len(starts), strict=True))
    assert result.certified() == by_hand.bounds()
    assert result.state.stopped == "finished"
    assert_monotone(result, history)


def test_where_fits_shrink_sizes_are_filled_in_from_a_slightly_larger_one():
    evaluator = Fake(peaked, nested=False, shrinks=True)
    result, _ = fake_search(evaluator, FLAT12, settings((12,), exhaustive=True, starts=2))
    assert {visit.size for visit in result.visits} == {(size,) for size in range(1, 13)}
    starts = {size: start for size, start, trial in evaluator.calls if trial == 0}
    begun = {size: start for size, start in starts.items() if start is not None}
    assert len(begun) >= 3
    assert all(start == (size[0] + 1,) for size, start in begun.items())  # a twentieth of less than 40 is none
    ladder, filled_in = [1, 2, 4, 8, 12], [11, 10, 9, 7, 6, 5, 3]
    assert [size[0] for size in starts] == ladder + filled_in
    near = {visit.size for visit in lv.sizing.ledger.near_mode(result.visits, FLAT12, 3, 1.0, repeatable=True)}
    assert near <= {size for size, start, trial in evaluator.calls if trial > 0 and start is None}


def test_without_growing_every_fit_is_from_scratch():
    evaluator = Fake(rising)
    result, _ = fake_search(evaluator, lv.sizes.Poisson(4), settings((5,), grow=False))
    assert {start for _, start, _ in evaluator.calls} == {None}
    assert set(result.starts()["start"]) == {"scratch"}


def test_several_starts_of_every_nested_size_the_best_counts():
    evaluator = Fake(lambda size, trial: rising(size) - (trial - 1) ** 2)
    result, history = fake_search(evaluator, lv.sizes.Poisson(4), settings((3,), starts=3))
    assert evaluator.calls == [
        ((1,), None, 0), ((1,), None, 1), ((1,), None, 2),
        ((2,), (1,), 0), ((2,), None, 1), ((2,), None, 2),
        ((3,), (2,), 0), ((3,), None, 1), ((3,), None, 2),
    ]  # fmt: skip
    assert [visit.evidence.lower for visit in result.visits] == [rising((k,)) for k in (1, 2, 3)]
    assert [result.state.kept[(k,)].state for k in (1, 2, 3)] == [((k,), 1) for k in (1, 2, 3)]
    assert len(result.starts()) == 9
    assert_monotone(result, history)


def test_a_fit_below_its_witness_is_recorded_as_the_witness_and_says_so():
    values = {1: -50.0, 2: -20.0, 3: -30.0, 4: -25.0, 5: -10.0}
    evaluator = Fake(lambda size, trial: lv.Evidence(values[size[0]], values[size[0]] + 1.5))
    result, history = fake_search(evaluator, lv.sizes.Poisson(3), settings((5,)))
    assert [visit.replaced_by for visit in result.visits] == [None, None, (2,), (3,), None]
    assert [visit.evidence for visit in result.visits[1:4]] == [lv.Evidence(-20.0, -18.5)] * 3
    assert [visit.trials[0].evidence.lower for visit in result.visits] == list(values.values())  # what was found stays
    assert list(result.starts()["log_evidence_lower"]) == list(values.values())
    assert [record.replaced_by for record in result.search.records] == [None, None, (2,), (3,), None]
    for size in ((3,), (4,)):
        kept = result.state.kept[size]
        assert (kept.size, kept.state, kept.evidence) == (size, ((2,), 0), lv.Evidence(-20.0, -18.5))
        assert "witness" in kept.info.start
        assert "extra components empty" in kept.info.start
    assert evaluator.calls[-1] == ((5,), (4,), 0)
    assert_monotone(result, history)


def test_replacing_is_exact_on_a_scale():
    """Per token: dividing and multiplying again would lose a bit."""
    values = {1: -50.1, 2: -20.3, 3: -30.7}
    evaluator = Fake(lambda size, trial: values[size[0]], scale=7.0)
    result, _ = fake_search(evaluator, lv.sizes.Poisson(3), settings((3,)))
    assert result.visits[2].evidence == result.visits[1].evidence == lv.Evidence(-20.3)
    assert result.with_prior(result.prior).bounds().equals(result.bounds())


@pytest.mark.parametrize("keep", [1, 2])
def test_witnesses_the_most_probable_and_the_last_are_kept(keep: int):
    evaluator = Fake(rising, size_names=("rows", "columns"))
    result, history = fake_search(evaluator, TWO, settings((4, 4), keep=keep))
    for state in history:
        search = SearchRules(evaluator, TWO, result.settings).witness_search(state)
        ranked = sorted(state.visits, key=lambda v: (-(TWO.log_pmf(v.size) + v.estimate), v.size))
        wanted = {v.size for v in ranked[:keep]} | set(search.witnesses) | {state.visits[-1].size}
        assert set(state.kept) == wanted
    assert len(result.state.kept) < len(result.visits)


def test_the_fit_of_the_best_witness_is_there_when_it_is_needed():
    """Whatever is kept, no step may have to do without the fit that it should start from."""
    evaluator = Fake(lambda size, trial: rising(size) - 20.0 * (sum(size) % 3 == 0), size_names=("rows", "columns"))
    result, _ = fake_search(evaluator, TWO, settings((5, 5), keep=1))
    assert any(visit.replaced_by for visit in result.visits)
    search = WitnessSearch(TWO, 0.0, True, (5, 5))
    for (size, start, _), visit in zip(evaluator.calls, result.visits, strict=True):
        witness = search.best_witness(size)
        if witness is not None:
            assert start is not None
            assert start == witness.size
        search.record(size, visit.trials[0].evidence)


# ── marginal evidence ───────────────────────────────────────────────────────────────────────────────────────────────

LADDER = [((1,), None, 0), ((2,), (1,), 0), ((4,), (2,), 0), ((8,), (4,), 0)]
SETTLING = [  # the best is repeated, then its neighbours are tried, then the new best is repeated
    ((4,), None, 1),
    ((4,), None, 2),
    ((3,), (2,), 0),
    ((5,), (4,), 0),
    ((5,), None, 1),
    ((5,), None, 2),
    ((6,), (5,), 0),
    ((6,), None, 1),  # a size just outside is fitted twice; 4 has been
]


def test_marginal_order_ladder_then_repeats_and_neighbours_near_the_mode():
    evaluator = Fake(peaked, nested=False)
    result, history = fake_search(evaluator, FLAT12, settings((12,), starts=3))
    assert evaluator.calls == LADDER + SETTLING
    assert result.best_size == (5,)
    assert result.state.stopped == "finished"
    assert_monotone(result, history)


def test_exhaustive_goes_on_to_every_size_nearest_to_the_best_first():
    evaluator = Fake(peaked, nested=False)
    result, history = fake_search(evaluator, FLAT12, settings((12,), starts=3, exhaustive=True))
    assert evaluator.calls[: len(LADDER + SETTLING)] == LADDER + SETTLING
    assert [size for size, _, _ in evaluator.calls[len(LADDER + SETTLING) :]] == [(7,), (9,), (10,), (11,), (12,)]
    assert {visit.size for visit in result.visits} == {(k,) for k in range(1, 13)}
    assert result.certified().log_unvisited_prior == -math.inf
    assert_monotone(result, history)


def test_exhaustive_in_two_variables_visits_the_whole_box():
    evaluator = Fake(lambda s, t: -((s[0] - 2) ** 2) - (s[1] - 3.0) ** 2, nested=False, size_names=("rows", "columns"))
    result, _ = fake_search(evaluator, DEPENDENT, settings((6, 4), starts=2, exhaustive=True))
    assert {visit.size for visit in result.visits} == {(i, j) for i in range(1, 7) for j in range(1, 5)}


def test_without_a_largest_size_the_ladder_ends_where_prior_and_data_do():
    evaluator = Fake(peaked, nested=False, repeatable=False)
    result, _ = fake_search(evaluator, lv.sizes.Poisson(5), settings(starts=3))
    assert [size for size, _, _ in evaluator.calls] == [(1,), (2,), (4,), (8,), (6,), (5,)]
    assert result.best_size == (5,)


def test_one_start_and_fits_that_cannot_change_are_never_repeated():
    for evaluator in (Fake(peaked, nested=False), Fake(peaked, nested=False, repeatable=False)):
        chosen = settings((12,), starts=1 if evaluator.repeatable else 5)
        fake_search(evaluator, FLAT12, chosen)
        assert {trial for _, _, trial in evaluator.calls} == {0}


def test_every_size_that_cannot_be_told_apart_is_fitted_equally_often():
    """Trials scatter by ± 10 nats, sizes 4 to 7 differ by less."""
    curve = {size: -0.5 * (size - 5.5) ** 2 for size in range(1, 13)}
    noise = np.random.default_rng(4).normal(0, 10, (13, 3))
    evaluator = Fake(lambda s, t: lv.Evidence(curve[s[0]] + noise[s[0], t] - 60.0, 0.0), nested=False)
    result, history = fake_search(evaluator, FLAT12, settings((12,), starts=3))
    near = lv.sizing.ledger.near_mode(result.visits, FLAT12, 3, 1.0, repeatable=True)
    assert len(near) > 3
    assert all(len(visit.trials) == 3 for visit in near)
    neighbours = {k + step for visit in near for k in visit.size for step in (-1, 1)} & set(range(1, 13))
    assert neighbours <= {visit.size[0] for visit in result.visits}
    assert set(result.estimated.indistinguishable) <= {visit.size for visit in near}
    assert_monotone(result, history)


def test_one_unlucky_fit_at_the_edge_does_not_end_the_search():
    """The first fit of the best size is poor, and the sizes before it are better than that."""
    curve = {4: -20.0, 5: -10.0, 6: 0.0, 7: -15.0}
    evaluator = Fake(lambda s, t: curve.get(s[0], -50.0) - (60.0 if (s, t) == ((6,), 0) else 0.0), nested=False)
    result, _ = fake_search(evaluator, FLAT12, settings((12,), starts=2))
    assert result.best_size == (6,)


def test_a_repeat_that_improves_a_size_raises_only_the_lower_bound():
    evaluator = Fake(lambda s, t: lv.Evidence(peaked(s) - 40.0 + 8.0 * t, 0.0), nested=False)
    result, history = fake_search(evaluator, FLAT12, settings((12,), starts=3))
    certified = certified_history(result, history)
    repeats = [step for step, (_, _, trial) in enumerate(evaluator.calls) if trial > 0]
    assert repeats
    for step in repeats:
        gain = certified[step].log_lower - certified[step - 1].log_lower
        far_below = abs(evaluator.calls[step][0][0] - 5) > 1  # 8 nats there are less than the rounding of the sum
        assert gain >= 0 if far_below else gain > 0
        assert certified[step].log_upper == certified[step - 1].log_upper
    assert_monotone(result, history)
    best = result.state.kept[result.best_size]
    assert (best.state, best.evidence.lower) == (((5,), 2), -24.0)  # the fit that gave the evidence is the one kept


def test_a_repeat_that_is_better_only_by_its_relabellings_replaces_the_kept_fit_too():
    evaluator = Fake(peaked, nested=False)
    evaluator.log_symmetry = lambda size: float(sum(call[0] == (5,) for call in evaluator.calls))
    result, _ = fake_search(evaluator, FLAT12, settings((12,), starts=3))
    visit = next(visit for visit in result.visits if visit.size == (5,))
    assert visit.estimate == result.state.kept[(5,)].estimate == 3.0
    assert result.state.kept[(5,)].state == ((5,), 2)


def test_the_same_search_twice_is_the_same():
    noise = np.random.default_rng(0).normal(0, 5, (13, 3))
    runs = [
        fake_search(Fake(lambda s, t: peaked(s) + noise[s[0], t] - 50, nested=False), FLAT12, settings((12,), starts=3))
        for _ in range(2)
    ]
    assert runs[0][0].state == runs[1][0].state
    assert runs[0][1] == runs[1][1]


# ── any evidence: limits, interruptions, failures ───────────────────────────────────────────────────────────────────

CASES = [
    pytest.param(lambda: Fake(rising), lv.sizes.Poisson(4), settings((7,)), id="nested"),
    pytest.param(lambda: Fake(rising), lv.sizes.Poisson(4), settings((4,), starts=2), id="nested, two starts"),
    pytest.param(lambda: Fake(peaked, nested=False), FLAT12, settings((9,), starts=3), id="marginal"),
    pytest.param(
        lambda: Fake(peaked, nested=False), FLAT12, settings((9,), starts=2, exhaustive=True), id="exhaustive"
    ),
    pytest.param(
        lambda: Fake(rising, size_names=("rows", "columns")), TWO, settings((3, 4), keep=2), id="two variables, nested"
    ),
    pytest.param(
        lambda: Fake(lambda s, t: rising(s) - 3.0 * sum(s), nested=False, size_names=("rows", "columns")),
        DEPENDENT,
        settings((4, 3), starts=2),
        id="two variables, marginal",
    ),
]


@pytest.mark.parametrize(("make", "prior", "chosen"), CASES)
def test_no_size_beyond_the_largest_is_tried(make: Callable[[], Fake], prior: lv.sizes.SizePrior, chosen):
    evaluator = make()
    fake_search(evaluator, prior, chosen)
    assert all(part <= end for size, _, _ in evaluator.calls for part, end in zip(size, chosen.max_size, strict=True))
    assert len({(size, trial) for size, _, trial in evaluator.calls}) == len(evaluator.calls)  # and none twice


@pytest.mark.parametrize(("make", "prior", "chosen"), CASES)
def test_going_on_from_any_step_gives_the_same_search(make: Callable[[], Fake], prior: lv.sizes.SizePrior, chosen):
    whole, history = fake_search(make(), prior, chosen)
    for cut, state in enumerate([SearchState(), *history]):
        rest, _ = fake_search(make(), prior, chosen, state=state)
        assert rest.state == whole.state, f"cut after {cut} steps"


@pytest.mark.parametrize(("make", "prior", "chosen"), CASES)
def test_an_interruption_at_any_fit_keeps_everything_done(make: Callable[[], Fake], prior, chosen):
    _, history = fake_search(make(), prior, chosen)
    for last in range(1, len(make().calls) + 4):
        evaluator = make()
        inner = evaluator.function

        def interrupted(size: Size, trial: int, evaluator: Fake = evaluator, inner=inner, last: int = last) -> float:
            if len(evaluator.calls) == last:
                raise KeyboardInterrupt
            return inner(size, trial)

        evaluator.function = interrupted
        result, states = fake_search(evaluator, prior, chosen)
        assert result.state.stopped == "interrupted"
        assert states[-1] == result.state  # it is saved as such
        done = len(states) - 1
        assert result.state == replace(history[done - 1] if done else SearchState(), stopped="interrupted")
        evaluator.function = inner
        again, _ = fake_search(evaluator, prior, chosen, state=result.state)
        assert again.state == history[-1]


def test_interrupted_before_the_first_fit_says_so():
    def interrupted(size: Size, trial: int) -> float:
        raise KeyboardInterrupt

    result, _ = fake_search(Fake(interrupted, nested=False), FLAT12, settings((5,)))
    questions = (
        lambda: result.best_size,
        lambda: result.best,
        result.posterior,
        lambda: result.posterior("diminishing"),
    )
    for ask in questions:
        with pytest.raises(ValueError, match=r"no size was visited: the search was stopped before its first fit"):
            ask()
    assert len(result.bounds()) == len(result.starts()) == 0


def test_the_budget_of_seconds_stops_after_the_step_that_uses_it_up(monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr(lv.searching.controller.time, "monotonic", lambda: clock[0])

    def slow(size: Size, trial: int) -> float:
        clock[0] += 10.0
        return rising(size)

    result, history = fake_search(Fake(slow), lv.sizes.Poisson(4), settings((20,)), Budget(seconds=25.0))
    assert [visit.size for visit in result.visits] == [(1,), (2,), (3,)]
    assert result.state.stopped == "stopped after 25 seconds"
    assert history[-1].stopped == result.state.stopped
    none, _ = fake_search(Fake(slow), lv.sizes.Poisson(4), settings((20,)), Budget(seconds=0.0))
    assert len(none.visits) == 1  # a search has at least something to say
    more, _ = fake_search(Fake(slow), lv.sizes.Poisson(4), settings((20,)), Budget(seconds=15.0), result.state)
    assert len(more.visits) == 5  # the seconds are those of this call


def test_the_time_of_a_later_trial_is_expected_from_trials_with_its_number():
    def visit(size: int, *seconds: float) -> Visit:
        once = annealed_visit(size, (0.0, 1.0))
        return replace(once, trials=tuple(replace(once.trials[0], seconds=each) for each in seconds))

    state = SearchState((visit(4, 10.0), visit(8, 20.0, 50.0)))
    expected = partial(_expected_seconds, state)
    assert expected(Task((5,), 0, 1), True) == 12.5  # in proportion to the size
    assert expected(Task((4,), 1, 1), True) == 50.0  # as at size 8, where there was a second trial
    assert expected(Task((8,), 2, 1), True) == 100.0  # no size had a third trial
    assert expected(Task((8,), 2, 1), False) == 50.0  # where further trials are no longer than the others
    assert _expected_seconds(SearchState(), Task((4,), 0, 1), True) == 0.0


@pytest.mark.parametrize(("said", "stopped", "visits"), [(True, "interrupted", 1), (False, "finished", 4)])
def test_processes_that_search_together_stop_when_one_says_so_and_not_by_their_own_clocks(
    said: bool, stopped: str, visits: int
):
    asked = []

    def agreed(own: bool) -> bool:
        asked.append(own)
        return said

    ended = run(
        Fake(lambda size, trial: -abs(size[0] - 3.0)), lv.sizes.Poisson(4), settings((4,)),
        budget=Budget(seconds=0.0), progress=False, agreed=agreed,
    )  # fmt: skip
    assert (ended.stopped, len(ended.visits)) == (stopped, visits)
    assert any(asked) == (not said)


def test_the_budget_of_width_stops_at_the_first_step_that_reaches_it():
    def near_zero(size: Size, trial: int) -> float:
        return rising(size) + 47.0

    full, history = fake_search(Fake(near_zero), lv.sizes.Poisson(2), settings((20,)))
    widths = [bounds.width for bounds in certified_history(full, history)]
    wanted = 0.5
    first = next(step for step, width in enumerate(widths) if width <= wanted)
    assert 1 < first < len(widths) - 2
    result, _ = fake_search(Fake(near_zero), lv.sizes.Poisson(2), settings((20,)), Budget(width=wanted))
    assert len(result.visits) == first + 1
    assert result.certified().width <= wanted
    assert "within 0.5 nats" in (result.state.stopped or "")


def test_a_nested_failure_is_reported_and_replaced_by_its_witness():
    evaluator = Fake(lambda size, trial: math.nan if size == (3,) else rising(size))
    result, history = fake_search(evaluator, lv.sizes.Poisson(3), settings((5,)))
    third = result.visits[2]
    assert (third.replaced_by, third.failed, third.evidence.lower) == ((2,), False, rising((2,)))
    assert result.not_compared == {}  # the witness's fit stands in for it
    assert list(result.starts()["failure"]) == ["", "", "size (3,) is not a number", "", ""]
    assert np.isneginf(result.starts()["log_evidence"][2])
    assert evaluator.calls[3] == ((4,), (3,), 0)  # grown from the witness's fit that stands in for it
    assert not result.posterior("certified").drop(columns="size").isna().to_numpy()[:-1].any()
    assert_monotone(result, history)


def test_a_failure_at_size_one_is_reported_and_the_search_goes_on():
    for nested in (True, False):
        evaluator = Fake(lambda size, trial: math.nan if size == (1,) else rising(size) - size[0] ** 2, nested=nested)
        result, history = fake_search(evaluator, lv.sizes.Poisson(3), settings((5,), starts=2))
        assert result.visits[0].failed
        assert (1,) not in result.standard_errors
        assert result.not_compared == {(1,): "size (1,) is not a number"}
        if not nested:
            assert "; not compared: 1, whose fits failed" in result.summary()
        assert result.best_size != (1,)
        assert evaluator.calls[2 if nested else 1][1] is None  # there is no fit to grow from
        assert 1 not in set(result.posterior("estimate")["size"])
        assert result.posterior("diminishing")["probability_upper"].iloc[0] > 0  # nothing is known of it
        assert_monotone(result, history)


@pytest.mark.parametrize(
    ("nested", "max_size"),
    [(True, (6,)), (False, (6,)), (False, None)],
    ids=["nested", "marginal", "marginal without a largest size"],
)
def test_a_search_in_which_everything_fails_ends_and_says_why(nested: bool, max_size: Size | None):
    evaluator = Fake(lambda size, trial: math.nan, nested=nested)
    result, history = fake_search(evaluator, lv.sizes.Poisson(3), settings(max_size, starts=3))
    assert result.visits[0].failed
    for ask in (lambda: result.best_size, lambda: result.best, lambda: result.posterior("estimate")):
        with pytest.raises(ValueError, match=r"no fit succeeded.*is not a number.*see result\.starts\(\)"):
            ask()
    assert (result.starts()["failure"] != "").all()
    assert len(evaluator.calls) < 25
    assert_monotone(result, history)


def test_failed_repeats_are_reported_and_do_not_rank():
    evaluator = Fake(lambda size, trial: math.nan if trial else peaked(size), nested=False)
    result, _ = fake_search(evaluator, FLAT12, settings((12,), starts=3))
    assert result.best_size == (5,)
    best = next(visit for visit in result.visits if visit.size == (5,))
    assert [trial.failure is None for trial in best.trials] == [True, False, False]
    assert result.state.kept[(5,)].state == ((5,), 0)


def test_impossible_data_rank_nowhere_and_break_nothing():
    evaluator = lv.from_function(lambda size: -math.inf if size[0] % 2 else -2.0 * size[0], ceiling=0.0)
    result, history = fake_search(evaluator, FLAT12, settings((12,), exhaustive=True))
    assert result.best_size == (2,)
    assert set(result.posterior()["size"]) == {2, 4, 6, 8, 10, 12}
    assert result.posterior()["probability"].sum() == pytest.approx(1.0, abs=1e-12)
    assert_monotone(result, history)


# ── priors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_prior_without_mass_on_size_one_starts_there_all_the_same():
    prior = lv.sizes.Table([0.0, 0.0, 0.5, 0.3, 0.2])
    nested, history = fake_search(Fake(rising), prior, settings((9,)))
    assert nested.visits[0].size == (1,)  # the one size that witnesses all others
    assert {visit.size for visit in nested.visits} >= {(3,), (4,), (5,)}
    assert max(visit.size[0] for visit in nested.visits) == 5  # nothing beyond the prior
    assert nested.best_size == (5,)
    row = nested.posterior("certified").iloc[0]
    assert (row["size"], row["log_prior"], row["probability_upper"]) == (1, -math.inf, 0.0)
    assert_monotone(nested, history)
    evaluator = Fake(peaked, nested=False)
    marginal, history = fake_search(evaluator, prior, settings(starts=2))
    assert [size for size, _, _ in evaluator.calls][:2] == [(1,), (4,)]  # rungs without mass are passed over
    assert {visit.size for visit in marginal.visits} == {(1,), (3,), (4,), (5,)}
    assert marginal.best_size == (5,)
    assert marginal.posterior()["probability"].iloc[0] == 0.0
    assert_monotone(marginal, history)


def test_a_prior_whose_mass_begins_beyond_the_first_rungs_is_reached():
    prior = lv.sizes.Table([0.0] * 20 + [0.25] * 4)  # mass on 21…24: no rung of the ladder has any
    evaluator = Fake(lambda size, trial: -float((size[0] - 23) ** 2), nested=False)
    result, _ = fake_search(evaluator, prior, settings((24,), starts=1, exhaustive=True))
    assert [visit.size[0] for visit in result.visits] == [1, 21, 22, 23, 24]
    assert result.best_size == (23,)


@pytest.mark.thorough
@pytest.mark.parametrize("prior", [TWO, DEPENDENT], ids=["Product", "Joint"])
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "marginal"])
def test_two_size_variables(prior: lv.sizes.SizePrior, nested: bool):
    def value(size: Size, trial: int) -> float:
        return rising(size) if nested else -40.0 - 6.0 * (size[0] - 4) ** 2 - 7.0 * (size[1] - 2) ** 2

    evaluator = Fake(value, nested=nested, size_names=("rows", "columns"))
    result, history = fake_search(evaluator, prior, settings((6, 4), starts=2))
    brute = max(
        ((i, j) for i in range(1, 7) for j in range(1, 5)), key=lambda size: prior.log_pmf(size) + value(size, 0)
    )
    assert result.best_size == brute
    for table in (result.posterior(), result.bounds(), result.starts()):
        assert list(table.columns[:2]) == ["rows", "columns"]
    if nested:
        assert list(result.posterior().iloc[-1][["rows", "columns"]]) == ["unvisited", "unvisited"]
        with pytest.raises(ValueError, match="need one size variable"):
            result.posterior("diminishing")
    assert_monotone(result, history)


# ── plain functions ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_function_with_its_own_errors():
    def value(size: Size) -> lv.Evidence:
        return lv.Evidence(peaked(size) / 20 - 9.0, standard_error=0.25 * size[0])

    result = lv.search(lv.from_function(value), prior=FLAT12, progress=False)
    table = result.posterior().set_index("size")
    assert (table["standard_error"] == 0.25 * table.index).all()  # nothing is added to what it says itself
    assert (table["log_evidence_upper"] - table["log_evidence_lower"] == 0.5 * table.index).all()
    assert result.best_size == (5,)
    assert result.estimated.indistinguishable == ((3,), (4,), (5,), (6,), (7,), (8,))
    assert {trial.start for visit in result.visits for trial in visit.trials} == {"function"}


def test_exact_values_give_the_exact_posterior():
    prior = lv.sizes.Table([0.1, 0.2, 0.3, 0.25, 0.15])
    exact = np.array([-3.0, -1.0, -1.5, -4.0, -2.0])
    evaluator = lv.from_function(lambda size: exact[size[0] - 1], ceiling=0.0)
    result = lv.search(evaluator, prior=prior, max_size=5, exhaustive=True, progress=False)
    weight = np.array(prior.probabilities) * np.exp(exact)
    for column in ("probability", "probability_lower", "probability_upper"):
        assert result.posterior()[column].to_numpy() == pytest.approx(weight / weight.sum(), rel=1e-12)
    assert (result.posterior()["standard_error"] == 0).all()
    nested = lv.search(
        lv.from_function(lambda size: -5.0 / size[0], ceiling=0.0, nested=True), prior=prior, max_size=5, progress=False
    )
    weight = np.array(prior.probabilities) * np.exp(-5.0 / np.arange(1, 6))
    table = nested.posterior("certified")
    for column in ("probability_lower", "probability_upper"):
        assert table[column].to_numpy()[:-1] == pytest.approx(weight / weight.sum(), rel=1e-12)
        assert table[column].iloc[-1] == 0.0
    assert nested.certified().log_lower == pytest.approx(math.log(weight.sum()), rel=1e-12)


def test_any_evaluator_can_be_searched():
    result = lv.search(Fake(rising), prior=lv.sizes.Poisson(3), max_size=4, progress=False)
    assert [visit.size for visit in result.visits] == [(1,), (2,), (3,), (4,)]
    assert all(len(visit.trials) == result.settings.starts == 3 for visit in result.visits)


def test_the_progress_bar_shows_the_best_size_and_the_gap(monkeypatch: pytest.MonkeyPatch, capsys):
    run(Fake(rising), lv.sizes.Poisson(3), settings((4,), starts=2), progress=True)
    assert capsys.readouterr().err == ""  # nobody looks at it

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    run(Fake(rising), lv.sizes.Poisson(3), settings((4,), starts=2), progress=True)
    shown = terminal.getvalue()
    assert "best 4" in shown
    assert "nats apart" in shown
    assert "8/8" in shown  # the expected number of fits, for the time left
    run(Fake(peaked, nested=False), FLAT12, settings((12,), starts=2), progress=True)
    assert "sizes near it" in terminal.getvalue()
