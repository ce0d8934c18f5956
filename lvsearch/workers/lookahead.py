"""Predict which fits a search will ask for next, so that several workers have something to do at once.

A task is one step of a search, such as fitting a size several times; a call is one fit of it. Which task comes next
depends on the results so far. This module continues the search in simulation. It uses real fits
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
from lvsearch.sizing.evidence import Bracket, Evidence, Repeats
from lvsearch.sizing.fit import Evaluator, Fit, FitInfo
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior

FARTHEST = 64
"""The largest number of steps of the search that are simulated."""
LEAP = 4
"""A size is not fitted in advance if it has more than this many times the components of the largest size recorded. Its
cost grows with the size, and a search usually ends before it gets there."""
DAMPED = 0.5
"""The factor on the slope of the evidence at the largest size, for guesses beyond that size."""


class GuessedState:
    """Marks a fit as guessed, in the place of its parameters: no other fit can start from it."""


GUESSED = GuessedState()
"""The state of every guessed fit."""


def calls_ahead(
    evaluator: Evaluator,
    prior: SizePrior,
    settings: SearchSettings,
    state: SearchState,
    task: Task | None,
    made: Callable[[Call], Fit | None],
) -> Iterator[Call]:
    """Yield the calls of the evaluator (each one fit) that a search will probably ask for, those of `task` first.

    Calls that would start from a fit that does not exist yet are left out.

    evaluator: makes the fits
    prior: the prior over sizes
    settings: the settings of the search
    state: the results of the search so far
    task: the step that the search takes next; None if it is done
    made: a function that returns the fit of a call if it was made already, else None; it replaces a guess
    """
    largest = LEAP * max((sum(visit.size) for visit in state.visits), default=prior.dimension)
    for _ in range(FARTHEST):
        if task is None or (state.visits and sum(task.size) > largest):
            return
        search = witness_search(evaluator, prior, settings, state)
        calls = calls_of(evaluator, settings, state, search, task)
        # go on as if every call had returned its fit, or a guess of it
        yield from (call for call in calls if call.start is None or call.start.state is not GUESSED)
        fits = [made(call) or guess(evaluator, state, call) for call in calls]
        try:
            state, search = enter_fits(evaluator, prior, settings, state, search, task, fits)
        except ValueError:  # a fit that no search can record: the search raises it when its turn comes
            return
        task = next_task(evaluator, prior, settings, state, search)


def guess(evaluator: Evaluator, state: SearchState, call: Call) -> Fit:
    """Return a guess of the fit that a call will return, from the fits of sizes nearby.

    evaluator: makes the fits
    state: the results of the search so far
    call: the call, whose size is looked at
    """
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
    # the guess has the spread of the last trials of the nearest size, moved to the guessed evidence
    last = next((trial for trial in reversed(near.trials) if trial.failure is None and trial.brackets), None)
    if last is not None:
        shift = estimate - near.estimate
        return replace(blank, evidence=last.evidence, brackets=_shift(last.brackets, shift))
    lower = min(estimate - near.log_symmetry, evaluator.ceiling)
    evidence = Evidence(lower, evaluator.ceiling, near.evidence.standard_error)
    return replace(blank, evidence=evidence, log_symmetry=near.log_symmetry)


def interpolate_evidence(good: Sequence[Visit], size: Size) -> float:
    """Return a guess of the log evidence of a size, in nats, by linear interpolation between the sizes around it.

    Beyond the largest size the last slope is halved. With several size variables it is the evidence of the nearest
    size.

    good: the records of sizes whose fits did not fail, at least one
    size: the size
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
    """Return the distance of two sizes: the sum of the absolute differences of their numbers of components."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def _shift(
    brackets: tuple[Bracket, ...] | tuple[Repeats, ...], shift: float
) -> tuple[Bracket, ...] | tuple[Repeats, ...]:
    """Return estimates of the evidence with every value `shift` nats higher.

    brackets: for each trial the values of its forward and backward paths, or of its repeats, in nats
    """
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
