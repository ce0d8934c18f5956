"""Estimate how much probability the sizes that were not tried may hold, along one size variable.

The estimates are generous. They follow from the evidence of the tried sizes around a gap:

- sizes beside the best one get its evidence
- sizes between two others get the evidence of the better of the two
- sizes beyond the largest one get its evidence plus the last gain per unit, extended over the same distance again

The caller's slack (nats) is added to each.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.sizes import Size

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
