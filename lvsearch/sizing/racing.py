"""Choose the size to try next: first where probability may hide, then where errors of the evidence decide the answer.

1. Discover. Sizes not tried are given the evidence that their neighbours suggest, generously, plus `SLACK` nats. While
    a gap as a whole could hold a thousandth of the probability, its middle is tried. So the ladder 1, 2, 4, … ends
    where neither the prior nor the data go on. This finds the mode of any curve that rises and then falls. It also
    finds modes that stand above both ends of their gap by no more than the slack. For several variables it finds any
    mode that can be reached so by moving one variable at a time, or all at once.
2. Race. Contenders are the sizes that may hold a thousandth of the probability under their standard errors, or do on
    average over these. Before a size is ruled out it gets as many trials as the best size had (minus one). While a
    size that may be the best is known worse than to 3 nats, so that no size has a probability, the worst known one
    is tried again. The best size, if it is known as badly, is tried twice at least, even where it stands alone. A size
    next to it that is known as badly gets as many trials as the best, unless it is worse by 20 standard errors. Then
    the size whose error moves the posterior most is tried again, for longer. This goes on while errors move the
    posterior by more than `TOLERANCE`, and while a quarter of that is due to sizes with trials left.

Along one size variable, the evidence of untried sizes is estimated from the tried sizes around their gap (`gaps`):

- sizes beside the best one get its evidence
- sizes between two others get the evidence of the better of the two
- sizes beyond the largest one get its evidence plus the last gain per unit, extended over the same distance again

With several size variables (such as row and column clusters), two families of sizes are examined
(`hidden_in_lattice`). First, every line through a size of notable probability along one variable is treated as one size
variable. Second, the ladder (1, …, 1), (2, …, 2), (4, …, 4), … is climbed while sizes above its last rung in all
variables may hold probability. The ladder is needed because data may gain nothing until several variables grow
together: a chess-board has neither row clusters nor column clusters alone.

All functions depend only on what was found, so a search that was interrupted continues as if it had not been.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from lvsearch.sizing.ledger import Visit, standard_error
from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.posterior import SETTLED, EstimatedPosterior, estimate_posterior
from lvsearch.sizing.sizes import OpenSize, Size, SizePrior

FARTHEST = 1 << 20
"""The largest size that is ever considered."""


@runtime_checkable
class OneSize(Protocol):
    """The interface of a prior along one size variable, the other variables being fixed if there are several."""

    def log_pmf(self, size: Size) -> float:
        """Return the log prior probability of a size, given as a tuple with one number, nats."""
        ...

    def log_mass(self, corner: Size) -> float:
        """Return the log prior probability of all sizes from `corner` (a tuple with one number) upwards, nats."""
        ...


class Gap(NamedTuple):
    """A run of consecutive sizes that were not tried.

    size: the size to try first.
    log_weight: the log of the sum of prior times evidence that all sizes of the run may have, nats.
    """

    size: int
    log_weight: float


def gaps(tried: Sequence[int], known: Mapping[int, float], prior: OneSize, end: int | None, slack: float) -> list[Gap]:
    """Return every run of untried sizes with prior mass, below, between and beyond the tried sizes.

    tried: the tried sizes, in increasing order.
    known: log evidence of those tried sizes that have any, {size: nats}.
    prior: the prior over sizes.
    end: the largest size to try, or None.
    slack: nats added to the evidence suggested by neighbours.
    """
    best = max(known, key=lambda place: (prior.log_pmf((place,)) + known[place], -place), default=None)
    found = []
    for low, high in pairwise([0, *tried]):
        inside = np.arange(low + 1, high)
        log_prior = np.array([prior.log_pmf((int(n),)) for n in inside])
        if not np.any(log_prior > -math.inf):
            continue
        ends = [known[n] for n in ((best,) if best in (low, high) else (low, high)) if n in known]
        possible = inside[log_prior > -math.inf]
        middle = int(possible[np.argmin(np.abs(possible - (low + high) / 2))])
        found.append(Gap(middle, float(log_sum(log_prior) + max(ends, default=-math.inf) + slack)))
    further = gap_beyond(tried, known, prior, end, slack)
    return found if further is None else [*found, further]


def gap_beyond(
    tried: Sequence[int], known: Mapping[int, float], prior: OneSize, end: int | None, slack: float
) -> Gap | None:
    """Return the run of untried sizes beyond the largest tried size; None where the prior or `end` leaves no size.

    The size to try first is twice the largest tried one, or the next size that has prior mass.

    tried: the tried sizes, in increasing order.
    known: log evidence of those tried sizes that have any, {size: nats}.
    prior: the prior over sizes.
    end: the largest size to try, or None.
    slack: nats added to the evidence suggested by the largest tried sizes.
    """
    last, end_at = tried[-1], FARTHEST if end is None else end
    mass = prior.log_mass((last + 1,))
    if last >= end_at or mass == -math.inf:
        return None
    reach = min(2 * last, end_at)
    if prior.log_mass((reach + 1,)) == mass:  # no mass up to `reach`: find the next size with mass by halving
        low, high = reach, reach + 1
        while high < end_at and prior.log_mass((high + 1,)) == mass:
            low, high = high, min(2 * high, end_at)
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if prior.log_mass((middle + 1,)) == mass else (low, middle)
        if prior.log_pmf((high,)) == -math.inf:
            return None
        reach = high
    while prior.log_pmf((reach,)) == -math.inf and reach > last + 1:
        reach -= 1
    # The gap's mass is that of sizes last + 1 … end_at only.
    outside = -math.inf if end is None else prior.log_mass((end_at + 1,))
    if outside == mass:
        return None
    # evidence of the run: that of the largest tried size, plus the last gain per unit extended as far again
    places = sorted(known)
    gain = 0.0
    if len(places) > 1 and places[-1] == last:
        step = (known[places[-1]] - known[places[-2]]) / (places[-1] - places[-2])
        gain = max(0.0, step) * (reach - last)
    level = known[places[-1]] if places else 0.0
    allowed = mass + math.log1p(-math.exp(outside - mass)) if outside > -math.inf else mass
    return Gap(int(reach), float(allowed + level + gain + slack))


@dataclass(frozen=True)
class Line:
    """A line of sizes: those that differ from the size `through` in the size variable number `axis` only.

    Its methods are those of a prior along one size variable (`OneSize`).
    """

    prior: SizePrior
    through: Size
    axis: int

    def size_at(self, number: int) -> Size:
        """Return the size on the line whose size variable `axis` equals `number`."""
        return (*self.through[: self.axis], number, *self.through[self.axis + 1 :])

    def holds(self, size: Size) -> bool:
        """Return True if a size is on the line."""
        return self.size_at(size[self.axis]) == size

    def log_pmf(self, size: Size) -> float:
        """Return the log prior probability of the size on the line whose number is `size[0]`, nats."""
        return self.prior.log_pmf(self.size_at(size[0]))

    def log_mass(self, corner: Size) -> float:
        """Return the log prior mass of the sizes on the line from the number `corner[0]` on, nats."""
        ends: OpenSize = tuple(None if axis == self.axis else n + 1 for axis, n in enumerate(self.through))
        return self.prior.log_box(self.size_at(corner[0]), ends)


@dataclass(frozen=True)
class Ladder:
    """The ladder of sizes (n, …, n), called rungs, with each size variable stopping at its largest value.

    Its methods are those of a prior along one size variable (`OneSize`).
    """

    prior: SizePrior
    largest: Size | None

    def size_at(self, number: int) -> Size:
        """Return the size (n, …, n) of the ladder for n = `number`, with each variable cut at its largest value."""
        if self.largest is None:
            return (number,) * self.prior.dimension
        return tuple(min(number, most) for most in self.largest)

    def log_pmf(self, size: Size) -> float:
        """Return the log prior probability of the rung n = `size[0]`, nats."""
        return self.prior.log_pmf(self.size_at(size[0]))

    def log_mass(self, corner: Size) -> float:
        """Return the log prior mass of all sizes at or above the rung n = `corner[0]` in every variable, nats.

        It is −inf beyond the last rung.
        """
        if self.largest is not None and corner[0] > max(self.largest):
            return -math.inf
        return self.prior.log_mass(self.size_at(corner[0]))


@dataclass(frozen=True)
class Hidden:
    """An untried size, and the log of prior times evidence that it and the untried sizes around it may have, nats."""

    size: Size
    log_weight: float


def hidden_in_lattice(
    tried: Sequence[Size],
    known: Mapping[Size, float],
    counting: Sequence[Size],
    prior: SizePrior,
    largest: Size | None,
    slack: float,
) -> list[Hidden]:
    """Return untried sizes that may hold probability, on the ladder (n, …, n) and on lines through notable sizes.

    tried: the tried sizes.
    known: log evidence of those tried sizes that have any, {size: nats}.
    counting: the sizes of notable probability; a line along each variable goes through each.
    prior: the prior over sizes.
    largest: the largest size to try, or None.
    slack: nats added to the evidence that neighbouring tried sizes suggest.
    """
    ladder = Ladder(prior, largest)
    rungs = sorted(max(size) for size in tried if ladder.size_at(max(size)) == size)
    on_ladder = {n: known[ladder.size_at(n)] for n in rungs if ladder.size_at(n) in known}
    further = gap_beyond(rungs, on_ladder, ladder, None if largest is None else max(largest), slack)
    found = [] if further is None else [Hidden(ladder.size_at(further.size), further.log_weight)]
    lines = dict.fromkeys(
        Line(prior, (*size[:axis], 1, *size[axis + 1 :]), axis) for size in counting for axis in range(prior.dimension)
    )
    for line in lines:
        on_line = sorted(size[line.axis] for size in tried if line.holds(size))
        evidence = {n: known[line.size_at(n)] for n in on_line if line.size_at(n) in known}
        end = None if largest is None else largest[line.axis]
        each: list[Gap] = gaps(on_line, evidence, line, end, slack)
        found += [Hidden(line.size_at(gap.size), gap.log_weight) for gap in each]
    return found


NEGLIGIBLE = 1e-3
"""The smallest probability that untried sizes must be able to hold for the search to try them."""
SLACK = 3.0
"""Nats by which sizes not tried may be better than their neighbours suggest."""
TOLERANCE = 0.1
"""The search ends when standard errors move the posterior by less: Σ_s p(s) (1 − p(s)) · standard error in nats.

Two sizes with probabilities 0.75 and 0.25 are then known to 0.07. With 0.2 they were known to 0.15, and on a table of
five rows and four columns searches ended there.
"""
UNSETTLED = 2 * TOLERANCE
"""Where errors move the posterior by more than this at the end of a search, its headline says so."""
LEAST_TRIALS = 2
"""The least number of trials of the best size, where its standard error is above 3 nats and trials are left."""
OUT_OF_REACH = 20.0
"""A size next to the best one gets as many trials as that one only if it is worse by fewer standard errors than this.

Poor fits of factorisations, whose standard errors are about 55 nats, ended up to 1,100 nats below the best fit.
"""
HOPELESS = 8
"""The search gives up when this many sizes were tried and every one failed."""


def next_size(
    visits: Sequence[Visit],
    prior: SizePrior,
    trials: int,
    max_size: Size | None,
    scale: float = 1.0,
    exhaustive: bool = False,
) -> Size | None:
    """Return the size to try next, for the first time or again; None when the search is done.

    visits: the visited sizes.
    prior: the prior over sizes.
    trials: the largest number of trials (fits with annealing) of one size.
    max_size: the largest size to try, one number per variable, or None.
    scale: the divisor of the evidence before it is weighed against the prior.
    exhaustive: whether every size up to `max_size` is to be visited in the end.
    """
    good = [visit for visit in visits if not visit.failed and visit.estimate > -math.inf]
    if not visits:
        return prior.first
    if len(visits) >= HOPELESS and all(visit.failed for visit in visits):
        return None
    unseen = _discover(good, visits, prior, max_size, scale)
    if unseen is not None:
        return unseen
    weighted = [visit for visit in good if prior.log_pmf(visit.size) > -math.inf]
    again = _race(weighted, prior, trials, scale) if weighted else None
    if again is not None or not exhaustive or max_size is None:
        return again
    visited = {visit.size for visit in visits}
    every = (tuple(n + 1 for n in size) for size in np.ndindex(*max_size))
    return next((s for s in every if s not in visited and all(map(int.__ge__, s, prior.first))), None)


def unvisited_share(visits: Sequence[Visit], prior: SizePrior, max_size: Size | None, scale: float = 1.0) -> float:
    """Estimate the posterior probability of all untried sizes up to `max_size`, from 0 to 1.

    Untried sizes are given the evidence that the tried sizes around them suggest. The estimate shows why the search
    ended; it is not a bound.

    visits: the visited sizes.
    prior: the prior over sizes.
    max_size: the largest size that counts; None for no limit.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
    good = [visit for visit in visits if not visit.failed and visit.estimate > -math.inf]
    if not good:
        return 0.0
    total = log_sum([prior.log_pmf(visit.size) + visit.estimate / scale for visit in good])
    hidden = [mass for _, mass in _hidden(good, visits, prior, max_size, scale, slack=0.0)]
    rest = log_sum(hidden)
    return math.exp(rest - np.logaddexp(rest, total)) if rest > -math.inf else 0.0


def found_so_far(good: Sequence[Visit], prior: SizePrior, scale: float = 1.0) -> EstimatedPosterior:
    """Return the estimated posterior over the sizes tried so far, averaged over the errors of their evidence.

    good: the visited sizes whose log evidence is finite.
    prior: the prior over sizes.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
    return estimate_posterior(
        [visit.size for visit in good],
        np.array([prior.log_pmf(visit.size) for visit in good]),
        np.array([visit.estimate / scale for visit in good]),
        np.array([standard_error(visit, 0.0, 1) / scale for visit in good]),
    )


# ── discover ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _discover(
    good: Sequence[Visit], visits: Sequence[Visit], prior: SizePrior, max_size: Size | None, scale: float
) -> Size | None:
    """Return the untried size that may hold most probability; None if none may hold a thousandth (step 1, discover).

    good: the visited sizes whose log evidence is finite. visits: all visited sizes.
    max_size: the largest size to try; None for no limit.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
    total = log_sum([prior.log_pmf(visit.size) + visit.estimate / scale for visit in good])
    hidden = _hidden(good, visits, prior, max_size, scale, slack=SLACK)
    size, mass = max(hidden, key=lambda each: each[1], default=(None, -math.inf))
    return size if mass > total + math.log(NEGLIGIBLE) or total == -math.inf else None


def _hidden(
    good: Sequence[Visit], visits: Sequence[Visit], prior: SizePrior, max_size: Size | None, scale: float, slack: float
) -> list[tuple[Size, float]]:
    """Return every untried size worth a look, as (size, log of prior × evidence that sizes around it may have, nats).

    good: the visited sizes whose log evidence is finite. visits: all visited sizes.
    max_size: the largest size to try; None for no limit.
    scale: the divisor of the log evidence before it is weighed against the prior.
    slack: nats by which untried sizes may be better than the tried sizes around them suggest.
    """
    known = {visit.size: visit.estimate / scale for visit in good}
    tried = sorted({visit.size for visit in visits})
    if prior.dimension == 1:
        end = None if max_size is None else max_size[0]
        one = gaps([n for (n,) in tried], {n: value for (n,), value in known.items()}, prior, end, slack)
        return [((gap.size,), gap.log_weight) for gap in one]
    weighted = [visit for visit in good if prior.log_pmf(visit.size) > -math.inf]
    counting = tried[:1]
    if weighted:
        found = found_so_far(weighted, prior, scale)
        ranked = sorted(zip(found.sizes, found.probability_upper.tolist(), strict=True), key=lambda each: -each[1])
        counting = [size for size, high in ranked if high >= NEGLIGIBLE or size == found.best]
    return [
        (hidden.size, hidden.log_weight) for hidden in hidden_in_lattice(tried, known, counting, prior, max_size, slack)
    ]


def _is_next_to(size: Size, other: Size) -> bool:
    """Return True if two sizes differ by one in one variable, and in no other."""
    return sum(abs(n - m) for n, m in zip(size, other, strict=True)) == 1


# ── race ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _race(good: Sequence[Visit], prior: SizePrior, trials: int, scale: float) -> Size | None:
    """Return the visited size to try again; None if errors of the evidence no longer decide the answer (step 2, race).

    good: the visited sizes with finite log evidence and prior mass. trials: the largest number of trials of one size.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
    found = found_so_far(good, prior, scale)
    visits = {visit.size: visit for visit in good}
    runs = {size: len(visits[size].trials) for size in found.sizes}
    errors = np.array([standard_error(visits[size], 0.0, 1) / scale for size in found.sizes])
    # More trials reduce the error of annealed evidence only; other evidence states its own fixed error.
    sharpens = np.array([visits[size].annealed is not None for size in found.sizes])
    open_ = np.array(
        [runs[size] < trials and errors[row] > 0 and sharpens[row] for row, size in enumerate(found.sizes)]
    )
    unsettled = np.array([size in found.unsettled for size in found.sizes]) & open_
    contends = (np.maximum(found.probability, found.probability_upper) >= NEGLIGIBLE) & open_
    # The fit of a size beside the best one may lie in a poor mode, which its error does not show.
    fewer = np.array([runs[size] < runs[found.best] for size in found.sizes])
    weights = np.array([prior.log_pmf(size) + visits[size].estimate / scale for size in found.sizes])
    in_reach = weights.max() - weights < OUT_OF_REACH * errors
    next_to = np.array([_is_next_to(size, found.best) for size in found.sizes])
    beside = next_to & fewer & in_reach & (errors > SETTLED) & open_
    # One annealing that uncertain does not decide, even where no other size comes near the best.
    alone = (
        np.array([size == found.best and runs[size] < LEAST_TRIALS for size in found.sizes])
        & (errors > SETTLED)
        & open_
    )
    if not (contends | unsettled | alone | beside).any():
        return None
    # First give contenders as many trials as the best size had, minus one.
    behind = [
        size for size, one in zip(found.sizes, contends, strict=True) if one and runs[size] < runs[found.best] - 1
    ]
    if behind:
        return min(behind, key=lambda size: (runs[size], size))
    # Beyond an error of 3 nats probabilities are those of the estimates alone, which no error moves: sharpen it first.
    if unsettled.any():
        return found.sizes[int(np.argmax(np.where(unsettled, errors, -1.0)))]
    if alone.any():
        return found.best
    if beside.any():
        return found.sizes[int(np.argmax(np.where(beside, errors, -1.0)))]
    # d p(s) / d log weight(s) = p (1 − p): how far each error moves the posterior
    moved = found.probability * (1 - found.probability) * errors
    if moved.sum() <= TOLERANCE or moved[contends].sum() <= TOLERANCE / 4:
        return None
    return found.sizes[int(np.argmax(np.where(contends, moved, -1.0)))]
