"""Predictions of what a search will ask for next, so that several workers have something to do at once.

What a search asks for depends on the results so far. This module continues the search in simulation. It uses real fits
where they exist, and elsewhere guesses from fits of sizes nearby. A wrong guess wastes a worker's time and nothing
else: the search records only real fits, in the order in which one process would have made them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from lvsearch.searching.controller import (
    Call,
    SearchSettings,
    SearchState,
    Task,
    calls_of,
    enter_fits,
    next_task,
    witness_search,
)
from lvsearch.sizing.bracket import Bracket, Repeats
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Evaluator, Fit, FitInfo
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior

FARTHEST = 64
"""The largest number of tasks that are simulated."""
LEAP = 4
"""A size is not fitted in advance if it has more than this many times the components of the largest size recorded. Its
cost grows with the size, and a search usually ends before it gets there."""
DAMPED = 0.5
"""The factor on the slope of the evidence at the largest size, for guesses beyond that size."""


class GuessedState:
    """The state of a fit that is only guessed: no other fit can start from it."""


GUESSED = GuessedState()


def calls_ahead(
    evaluator: Evaluator,
    prior: SizePrior,
    settings: SearchSettings,
    state: SearchState,
    task: Task | None,
    made: Callable[[Call], Fit | None],
) -> Iterator[Call]:
    """Yield the calls of the evaluator that a search in this state will ask for, those of `task` first.

    made: a function that returns the fit of a call if it exists; it is used in the place of a guess.

    Calls that would start from a fit that does not exist yet are left out.
    """
    largest = LEAP * max((sum(visit.size) for visit in state.visits), default=prior.dimension)
    for _ in range(FARTHEST):
        if task is None or (state.visits and sum(task.size) > largest):
            return
        search = witness_search(evaluator, prior, settings, state)
        calls = calls_of(evaluator, settings, state, search, task)
        yield from (call for call in calls if call.start is None or call.start.state is not GUESSED)
        fits = [made(call) or guess(evaluator, state, call) for call in calls]
        try:
            state, search = enter_fits(evaluator, prior, settings, state, search, task, fits)
        except ValueError:  # a fit that no search can record: the search raises it when its turn comes
            return
        task = next_task(evaluator, prior, settings, state, search)


def guess(evaluator: Evaluator, state: SearchState, call: Call) -> Fit:
    """Return a guess of the fit of a call, from the fits of sizes nearby."""
    stateful = not state.kept or any(fit.state is not None for fit in state.kept.values())
    blank = Fit(
        call.size,
        Evidence(min(0.0, evaluator.ceiling), evaluator.ceiling),
        0.0,
        GUESSED if stateful else None,
        FitInfo("guessed", 0.0),
    )
    good = [visit for visit in state.visits if not visit.failed and math.isfinite(visit.estimate)]
    if not good:
        return blank
    near = min(good, key=lambda visit: (_distance(visit.size, call.size), visit.size))
    estimate = interpolate_evidence(good, call.size)
    last = next((trial for trial in reversed(near.trials) if trial.failure is None and trial.brackets), None)
    if last is not None:
        shift = estimate - near.estimate
        return replace(blank, evidence=last.evidence, brackets=_shift(last.brackets, shift))
    lower = min(estimate - near.log_symmetry, evaluator.ceiling)
    evidence = Evidence(lower, evaluator.ceiling, near.evidence.standard_error)
    return replace(blank, evidence=evidence, log_symmetry=near.log_symmetry)


def interpolate_evidence(good: Sequence[Visit], size: Size) -> float:
    """Return a guess of the evidence of a size in nats, by interpolation between the sizes around it.

    With several size variables it is the evidence of the nearest size.
    """
    nearest = min(good, key=lambda visit: (_distance(visit.size, size), visit.size))
    if len(size) > 1 or len(good) == 1 or nearest.size == size:
        return nearest.estimate
    ordered = sorted(good, key=lambda visit: visit.size)
    places, values = ([sum(visit.size) for visit in ordered], [visit.estimate for visit in ordered])
    beyond = sum(size) - places[-1]
    if beyond <= 0:
        return float(np.interp(sum(size), places, values))
    return values[-1] + DAMPED * beyond * (values[-1] - values[-2]) / (places[-1] - places[-2])


def _distance(one: Size, other: Size) -> int:
    """Return the sum of absolute differences of two sizes."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def _shift(
    brackets: tuple[Bracket, ...] | tuple[Repeats, ...], shift: float
) -> tuple[Bracket, ...] | tuple[Repeats, ...]:
    """Return trials with the same spread, around an estimate that is `shift` nats higher."""
    moved = [
        Repeats(tuple(value + shift for value in one.values))
        if isinstance(one, Repeats)
        else replace(
            one,
            forward=tuple(value + shift for value in one.forward),
            backward=tuple(value + shift for value in one.backward),
        )
        for one in brackets
    ]
    return tuple(moved)  # pyright: ignore[reportReturnType]
