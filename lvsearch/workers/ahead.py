"""What a search will ask for next, guessed, so that several workers have something to do at once.

What a search asks for depends on what it found. Here it goes on in thought, from fits that came out as those around
them suggest, or as they did where they were made already. A wrong guess costs the time of a worker and nothing else:
what is entered are fits, in the order in which one process would have made them.
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
    entered,
    next_task,
    witness_search,
)
from lvsearch.sizing.bracket import Bracket, Repeats
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Evaluator, Fit, FitInfo
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior

FARTHEST = 64
"""Tasks that are thought ahead at most."""
LEAP = 4
"""A size is not fitted in advance that has more than this many times the components of the largest one entered: what
it costs grows with the size, and most of the ladder lies beyond its end."""
DAMPED = 0.5
"""Of its last slope, with which the evidence is thought to go on beyond the largest size."""


class Unmade:
    """The state of a fit that is not made: nothing can be begun from it."""


UNMADE = Unmade()


def calls_ahead(
    evaluator: Evaluator,
    prior: SizePrior,
    settings: SearchSettings,
    state: SearchState,
    task: Task | None,
    made: Callable[[Call], Fit | None],
) -> Iterator[Call]:
    """The fits that a search in this state will ask for, those of `task` first; without those whose start is not made.

    made: the fit of a call where it is known, which is taken in place of a guess.
    """
    largest = LEAP * max((sum(visit.size) for visit in state.visits), default=prior.dimension)
    for _ in range(FARTHEST):
        if task is None or (state.visits and sum(task.size) > largest):
            return
        search = witness_search(evaluator, prior, settings, state)
        calls = calls_of(evaluator, settings, state, search, task)
        yield from (call for call in calls if call.start is None or call.start.state is not UNMADE)
        fits = [made(call) or guess(evaluator, state, call) for call in calls]
        try:
            state, search = entered(evaluator, prior, settings, state, search, task, fits)
        except ValueError:  # a fit that no search can enter: it is raised when its turn comes
            return
        task = next_task(evaluator, prior, settings, state, search)


def guess(evaluator: Evaluator, state: SearchState, call: Call) -> Fit:
    """The fit of a call as those of sizes around it suggest."""
    stateful = not state.kept or any(fit.state is not None for fit in state.kept.values())
    blank = Fit(
        call.size,
        Evidence(min(0.0, evaluator.ceiling), evaluator.ceiling),
        0.0,
        UNMADE if stateful else None,
        FitInfo("thought ahead", 0.0),
    )
    good = [visit for visit in state.visits if not visit.failed and math.isfinite(visit.estimate)]
    if not good:
        return blank
    near = min(good, key=lambda visit: (_distance(visit.size, call.size), visit.size))
    estimate = suggested(good, call.size)
    last = next((trial for trial in reversed(near.trials) if trial.failure is None and trial.brackets), None)
    if last is not None:
        shift = estimate - near.estimate
        return replace(blank, evidence=last.evidence, brackets=_moved(last.brackets, shift))
    lower = min(estimate - near.log_symmetry, evaluator.ceiling)
    evidence = Evidence(lower, evaluator.ceiling, near.evidence.standard_error)
    return replace(blank, evidence=evidence, log_symmetry=near.log_symmetry)


def suggested(good: Sequence[Visit], size: Size) -> float:
    """The evidence of a size, nats: on the line between those around it, of several variables that of the nearest."""
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
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def _moved(
    brackets: tuple[Bracket, ...] | tuple[Repeats, ...], shift: float
) -> tuple[Bracket, ...] | tuple[Repeats, ...]:
    """The same spread around another estimate."""
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
