"""Decide which size to fit next, and without which part of the units, until the recommended size is clear.

A size is a number of topics or other components; a unit is a document or a row. The units are divided into parts.

1. Climb. Sizes 1, 2, 4, 8, … are fitted without the first part of the units and scored on it, until larger ones predict
worse.
2. Refine. Sizes in between are tried around the size that predicts best, and between the recommended size and the
largest one below it that predicts worse.
3. Repeat. The sizes that decide the answer are fitted without further parts and scored on them, until enough units were
held out.

The functions depend only on the results so far. So a search that was cut off goes on as if it had not been.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from lvsearch.recommending.rule import Comparison

STEP = 2
"""The ratio of one size of the ladder to the size before it."""
FINE_AT_ELBOW = 1.15
"""The ratio at which the gap between the recommended size and the largest worse one below it is narrow enough."""
FINE_AT_BEST = 1.5
"""The ratio at which the gaps on both sides of the best size are narrow enough.

It is larger than `FINE_AT_ELBOW`, because the sizes around the best one only set the bar for the others.
"""
SURELY = 2.0
"""Standard errors by which one size of the ladder must be worse to end the climb; otherwise two sizes must be worse."""


class PartLimits(NamedTuple):
    """The limits of a search by prediction.

    | field | meaning |
    |---|---|
    | `parts` | the number of parts on which each deciding size is scored |
    | `largest` | the largest size allowed |
    """

    parts: int
    largest: int


def next_part(asked: Mapping[int, int], found: Comparison | None, limits: PartLimits) -> tuple[int, int] | None:
    """Return (size to fit next, part of the units to leave out), or None when the recommended size is clear.

    Args:
        asked: {size: number of parts on which it was scored or failed}.
        found: the comparison of the sizes that were scored; None if there are none yet.
        limits: the largest number of parts, and the largest size.
    """
    rung = _next_rung(asked, found, limits)
    if rung is not None:
        return rung, 0
    if found is None:  # the fits of every size of the ladder failed
        return None
    between = _size_between(asked, found)
    if between is not None:
        return between, 0
    waiting = [size for size in _deciding_sizes(found) if asked[size] < limits.parts]
    if not waiting:
        return None
    size = min(waiting, key=lambda each: (asked[each], each))
    return size, asked[size]


def _next_rung(asked: Mapping[int, int], found: Comparison | None, limits: PartLimits) -> int | None:
    """Return the smallest size of the ladder 1, 2, 4, 8, … that was not tried, or None when the climb has ended.

    asked: {size: number of parts on which it was scored or failed}
    found: the comparison of the sizes that were scored; None if there are none yet
    limits: the largest number of parts, and the largest size
    """
    ladder = [STEP**power for power in range(math.ceil(math.log(limits.largest, STEP)) + 1)]
    ladder[-1] = min(ladder[-1], limits.largest)
    tried = [size for size in ladder if size in asked]
    if len(tried) == len(ladder):
        return None
    if len(tried) >= 3 and _is_worse(tried[-1], found, SURELY):
        return None
    if len(tried) >= 3 and _is_worse(tried[-1], found, 0.0) and _is_worse(tried[-2], found, 0.0):
        return None
    return ladder[len(tried)]


def _is_worse(size: int, found: Comparison | None, errors: float) -> bool:
    """Return True if `size` is larger than the best one and predicts worse by more than `errors` standard errors.

    Also return True if no fit of this size could be scored.

    found: the comparison of the sizes that were scored; None if there are none
    """
    if found is None or (size,) not in found.sizes:
        return True
    place = found.sizes.index((size,))
    return (size,) > found.best and bool(found.difference[place] < -errors * found.standard_error[place])


def _size_between(asked: Mapping[int, int], found: Comparison) -> int | None:
    """Return an untried size where the best or the recommended size may lie, between two that were tried.

    Return None if the gaps around both are narrow. The size is the geometric mean of its neighbours, rounded.

    asked: {size: number of parts on which it was scored or failed}
    found: the comparison of the sizes that were scored
    """
    tried = sorted(asked)
    (best,), (recommended,) = found.best, found.recommended
    beside = [(low, high) for low, high in pairwise(tried) if best in (low, high)]
    elbow = [(low, high) for low, high in pairwise(tried) if high == recommended]
    for gaps, fine in ((beside, FINE_AT_BEST), (elbow, FINE_AT_ELBOW)):
        for low, high in gaps:
            if high - low > 1 and high > fine * low:
                return round(math.sqrt(low * high))
    return None


def _deciding_sizes(found: Comparison) -> list[int]:
    """Return the sizes that decide the answer, increasing.

    They are the sizes within one standard error of the best up to the best, and the largest scored size below them.
    """
    (best,), (recommended,) = found.best, found.recommended
    within = [size for (size,) in found.within if size <= best]
    below = [size for (size,) in found.sizes if size < recommended]
    return [*below[-1:], *within]
