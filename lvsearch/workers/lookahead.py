"""Predict which fits a search will ask for next, so that several workers have something to do at once.

A task is one step of a search, such as fitting a size several times; a call is one fit of it. Which task comes next
depends on the results so far. This module continues the search in simulation. It uses real fits
where they exist, and elsewhere guesses from fits of sizes nearby. A wrong guess wastes a worker's time and nothing
else: the search records only real fits, in the order in which one process would have made them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar

import numpy as np

from lvsearch.searching.controller import (
    Call,
    SearchRules,
    SearchState,
    Task,
)
from lvsearch.sizing.evidence import Bracket, Evidence, Repeats
from lvsearch.sizing.fit import Evaluator, Fit, FitInfo, HeldOutScores, first_gain_of, is_by_gains, smallest_size_of
from lvsearch.sizing.gains import SizeGain
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size

FARTHEST = 64
"""The largest number of steps of the search that are simulated."""
LEAP = 4
"""Sizes above this many times the largest recorded one are not fitted in advance. Large fits are slow, and a search
usually ends before it needs them. A search by gains counts as if it had recorded its first size, 16.
"""
DAMPED = 0.5
"""The factor on the slope of the evidence at the largest size, for guesses beyond that size."""
FIRST_GAIN = SizeGain((1e6,), (1e6,), 1)
"""The guess of all gains before any was measured, nats: surely positive, because the first sizes measured are small."""
STEEP = 1 / 3
"""If the last gain is less than this fraction of the one before, gains are extrapolated linearly in log size, to 0 and
below; otherwise by a constant ratio."""
LEFT_WHEN_DOUBLED = 0.25
"""The fraction of a gain that is guessed to be left at twice the size, while one gain alone is known."""


class GuessedState:
    """Marks a fit as guessed, in the place of its parameters: no other fit can start from it."""


GUESSED = GuessedState()
"""The state of guessed fits, if the fits of the evaluator have a state."""


def calls_ahead(
    rules: SearchRules,
    state: SearchState,
    task: Task | None,
    made: Callable[[Call], Fit | None],
) -> Iterator[Call]:
    """Yield the calls of the evaluator (each one fit) that a search will probably ask for, those of `task` first.

    Calls that would start from a guessed fit are left out. If the size of `task` lies between sizes with positive and
    with negative gains, both signs of its own gain are simulated. The calls of the two simulations alternate, and some
    come twice.

    rules: the rules of the search
    state: the results of the search so far
    task: the step that the search takes next; None if it is done
    made: a function that returns the real fit of a call, which is used in place of a guess, or None
    """
    evaluator = rules.evaluator
    visited = max((sum(visit.size) for visit in state.visits), default=0 if task is None else sum(task.size))
    largest = LEAP * max(visited, first_gain_of(evaluator) or rules.prior.dimension)

    def simulated(sign: float) -> Iterator[Call]:
        """Yield the calls of one simulation. sign: the factor on the guess of the gain that `task` measures."""
        now, following = state, task
        for step in range(FARTHEST):
            if following is None or sum(following.size) > largest:
                return
            search = rules.witness_search(now)
            calls = rules.calls_of(now, search, following)
            # go on as if every call had returned its fit, or a guess of it
            yield from (call for call in calls if call.start is None or call.start.state is not GUESSED)
            fits = [made(call) or guess(evaluator, now, call, sign if step == 0 else 1.0) for call in calls]
            try:
                now, search = rules.enter_fits(now, search, following, fits)
            except ValueError:  # a fit that no search can record: the search raises it when its turn comes
                return
            following = rules.next_task(now, search)

    is_open = is_by_gains(evaluator) and task is not None and _is_between_signs(state.visits, task.size[0])
    for calls in zip_longest(*map(simulated, (1.0, -1.0) if is_open else (1.0,))):
        yield from (call for call in calls if call is not None)


def _is_between_signs(visits: Sequence[Visit], size: int) -> bool:
    """Return True if a size lies between the largest with a positive gain and the smallest with a negative one.

    Both signs of its own gain are likely then.
    """
    measured = [(visit.size[0], visit.gain.estimate) for visit in visits if visit.gain is not None]
    gaining = max((each for each, gain in measured if gain > 0), default=size)
    losing = min((each for each, gain in measured if gain <= 0), default=size)
    return gaining < size < losing


def guess(evaluator: Evaluator, state: SearchState, call: Call, sign: float = 1.0) -> Fit:
    """Return a guess of the fit that a call will return, from the fits of sizes nearby.

    evaluator: makes the fits
    state: the results of the search so far
    call: the call
    sign: the factor on the guess of a gain, 1 or −1
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
    if is_by_gains(evaluator) and call.size > smallest_size_of(evaluator):
        blank = replace(blank, gains=(guess_gain(good, call.size[0], sign),))
    blank = replace(blank, scores=_guess_scores(state.visits, call))
    if not good:
        return blank
    near = min(good, key=lambda visit: (_distance(visit.size, call.size), visit.size))
    estimate = interpolate_evidence(good, call.size)
    # the paths of the last trial of the nearest size, moved so that their evidence is the guess
    last = next((trial for trial in reversed(near.trials) if trial.failure is None and trial.brackets), None)
    if last is not None:
        shift = estimate - near.estimate
        return replace(blank, evidence=last.evidence, brackets=_shift(last.brackets, shift))
    lower = min(estimate - near.log_symmetry, evaluator.ceiling)
    evidence = Evidence(lower, evaluator.ceiling, near.evidence.standard_error)
    return replace(blank, evidence=evidence, log_symmetry=near.log_symmetry)


def _guess_scores(visits: Sequence[Visit], call: Call) -> HeldOutScores | None:
    """Return a guess of the scores of the held-out units of a call: those of the nearest size for the same part.

    Returns None where no size was scored on this part.

    visits: the records of the sizes tried
    call: the call, whose trial is the number of the part
    """
    known = [(visit.size, trial.scores) for visit in visits for trial in visit.trials if trial.scores is not None]
    same = [(_distance(size, call.size), size, scores) for size, scores in known if scores.part == call.trial]
    return min(same, key=lambda each: each[:2])[2] if same else None


def guess_gain(good: Sequence[Visit], size: int, sign: float = 1.0) -> SizeGain:
    """Return a guess of what the last components of a size gain, with the errors of the gain measured nearest to it.

    Between two measured sizes gains are interpolated linearly in log size. Beyond the largest they go on falling as
    before: by the same factor for the same ratio of sizes, or linearly in log size once they fall steeply (`STEEP`).

    good: the records of sizes whose fits did not fail
    size: the size
    sign: the factor on the guess, 1 or −1
    """
    measured = sorted((visit.size[0], visit.gain.estimate) for visit in good if visit.gain is not None)
    if all(gain >= FIRST_GAIN.estimate for _, gain in measured):  # none, or guesses alone
        return FIRST_GAIN
    places, gains = np.log([each for each, _ in measured]), np.array([gain for _, gain in measured])
    beyond = math.log(size) - places[-1]
    if beyond <= 0:
        guessed = np.interp(math.log(size), places, gains)
    elif len(gains) == 1:
        guessed = gains[0] * LEFT_WHEN_DOUBLED ** (beyond / math.log(2))
    else:
        steps, share = beyond / (places[-1] - places[-2]), gains[-1] / max(gains[-2], 1e-9)
        guessed = gains[-1] * min(share, 1.0) ** steps if share > STEEP else gains[-1] - steps * (gains[-2] - gains[-1])
    # the paths of the last trial of the nearest size, moved so that their gain is the guess
    known = [visit for visit in good if visit.gain is not None]
    near = min(known, key=lambda visit: abs(math.log(visit.size[0] / size)))
    last = next(gain for trial in reversed(near.trials) if trial.failure is None for gain in trial.gains)
    return _shift_paths(last, (sign * float(guessed) - last.estimate) * last.sizes)


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
        Repeats(tuple(value + shift for value in one.values)) if isinstance(one, Repeats) else _shift_paths(one, shift)
        for one in brackets
    ]
    return tuple(moved)  # pyright: ignore[reportReturnType]


Paths = TypeVar("Paths", Bracket, SizeGain)


def _shift_paths(paths: Paths, shift: float) -> Paths:
    """Return the estimates of paths in both directions, with every value `shift` nats higher."""
    forward, backward = (tuple(end + shift for end in ends) for ends in (paths.forward, paths.backward))
    return replace(paths, forward=forward, backward=backward)
