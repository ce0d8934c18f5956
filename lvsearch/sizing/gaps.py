"""What sizes not tried may hold, along one size variable: generously, from the evidence of those around them.

Sizes beside the best one are given as much evidence as it has, those between two others that of the better of the two,
those beyond the largest its own and the last gain per unit for as far again; the caller's slack on top.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.sizes import Size

FARTHEST = 1 << 20
"""Beyond this size nothing is looked for."""


@runtime_checkable
class OneSize(Protocol):
    """A prior over one size variable, or over one that moves while others stand still; logs in nats."""

    def log_pmf(self, size: Size) -> float:
        """log p(size)."""
        ...

    def log_mass(self, corner: Size) -> float:
        """log p(at least this size)."""
        ...


class Gap(NamedTuple):
    """Sizes not tried: the one to try first, and log of what all of them may weigh (prior times evidence, nats)."""

    size: int
    log_weight: float


def gaps(tried: Sequence[int], known: Mapping[int, float], prior: OneSize, end: int | None, slack: float) -> list[Gap]:
    """For each run of sizes not tried that have prior mass, below, between and beyond those tried.

    tried: in increasing order. known: size -> log evidence (nats) of those that have any. end: the largest to try.
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
    further = beyond(tried, known, prior, end, slack)
    return found if further is None else [*found, further]


def beyond(
    tried: Sequence[int], known: Mapping[int, float], prior: OneSize, end: int | None, slack: float
) -> Gap | None:
    """Those beyond the largest tried, the first to try twice as large; None where the prior or `end` leaves none.
    Arguments as for `gaps`."""
    last, end_at = tried[-1], FARTHEST if end is None else end
    mass = prior.log_mass((last + 1,))
    if last >= end_at or mass == -math.inf:
        return None
    reach = min(2 * last, end_at)
    if prior.log_mass((reach + 1,)) == mass:  # nothing up to there: the next size that has any
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
    outside = -math.inf if end is None else prior.log_mass((end_at + 1,))
    if outside == mass:
        return None
    places = sorted(known)
    gain = 0.0
    if len(places) > 1 and places[-1] == last:
        step = (known[places[-1]] - known[places[-2]]) / (places[-1] - places[-2])
        gain = max(0.0, step) * (reach - last)
    level = known[places[-1]] if places else 0.0
    allowed = mass + math.log1p(-math.exp(outside - mass)) if outside > -math.inf else mass
    return Gap(int(reach), float(allowed + level + gain + slack))
