"""Which size to fit next, and without which part of the units, until the recommended size is settled.

1. Climb. Sizes 1, 2, 4, 8, … are fitted without the first part of the units and scored on it, until larger ones
   predict worse.
2. Refine. Sizes in between are tried around the size that predicts best, and between the recommended size and the
   largest one below it that predicts worse.
3. Repeat. The sizes that decide the answer are asked about further parts, until enough units are held out.

Plain functions of what was found: a search that was cut off goes on as if it had not been.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from lvsearch.recommending.rule import Comparison

STEP = 2
"""From one rung of the ladder to the next."""
FINE_AT_ELBOW = 1.15
"""Sizes are tried between the recommended one and the largest worse one until these are so near, or one apart."""
FINE_AT_BEST = 1.5
"""The same between the best size and those beside it, whose differences are small: they only set the bar."""
SURELY = 2.0
"""Standard errors by which one rung must be worse for the ladder to end there; else two rungs must be worse."""


class PartLimits(NamedTuple):
    """How far the search may go.

    | field | meaning |
    |---|---|
    | `parts` | parts of the units that each size that decides is asked about |
    | `largest` | the largest size allowed |
    """

    parts: int
    largest: int


def next_part(asked: Mapping[int, int], found: Comparison | None, limits: PartLimits) -> tuple[int, int] | None:
    """Return the size to fit next and the part of the units to leave out, or None when nothing is left to settle.

    Args:
        asked: size -> how many parts it was asked about, failed fits included.
        found: the sizes that were scored, compared; None where there is none yet.
        limits: how far to go.
    """
    rung = _next_rung(asked, found, limits)
    if rung is not None:
        return rung, 0
    if found is None:  # every rung failed
        return None
    between = _in_between(asked, found)
    if between is not None:
        return between, 0
    waiting = [size for size in _deciding(found) if asked[size] < limits.parts]
    if not waiting:
        return None
    size = min(waiting, key=lambda each: (asked[each], each))
    return size, asked[size]


def _next_rung(asked: Mapping[int, int], found: Comparison | None, limits: PartLimits) -> int | None:
    """The smallest size of the ladder that was not tried, while the ladder goes on."""
    ladder = [STEP**power for power in range(math.ceil(math.log(limits.largest, STEP)) + 1)]
    ladder[-1] = min(ladder[-1], limits.largest)
    tried = [size for size in ladder if size in asked]
    if len(tried) == len(ladder):
        return None
    if len(tried) >= 3 and _worse(tried[-1], found, SURELY):
        return None
    if len(tried) >= 3 and _worse(tried[-1], found, 0.0) and _worse(tried[-2], found, 0.0):
        return None
    return ladder[len(tried)]


def _worse(size: int, found: Comparison | None, errors: float) -> bool:
    """Whether a larger size than the best one predicts worse than it by more than so many standard errors, or could
    not be fitted at all."""
    if found is None or (size,) not in found.sizes:
        return True
    place = found.sizes.index((size,))
    return (size,) > found.best and bool(found.difference[place] < -errors * found.standard_error[place])


def _in_between(asked: Mapping[int, int], found: Comparison) -> int | None:
    """A size between two that were tried, where the answer may hide."""
    tried = sorted(asked)
    (best,), (recommended,) = found.best, found.recommended
    beside = [(low, high) for low, high in pairwise(tried) if best in (low, high)]
    elbow = [(low, high) for low, high in pairwise(tried) if high == recommended]
    for gaps, fine in ((beside, FINE_AT_BEST), (elbow, FINE_AT_ELBOW)):
        for low, high in gaps:
            if high - low > 1 and high > fine * low:
                return round(math.sqrt(low * high))
    return None


def _deciding(found: Comparison) -> list[int]:
    """The best size, those within its error up to it, and the largest below these."""
    (best,), (recommended,) = found.best, found.recommended
    within = [size for (size,) in found.within if size <= best]
    below = [size for (size,) in found.sizes if size < recommended]
    return [*below[-1:], *within]
