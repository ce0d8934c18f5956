"""The rule of the recommended size, and which size to fit next until the rule's answer is clear. It is plain NumPy.

A size is a number of topics, clusters or other components. A unit is a document or a row. The recommended size is the
smallest size that predicts as well as any.

Every size has a score of every held-out unit, log p(unit | parameters fitted without it), in nats. Two sizes are
compared unit by unit, on the units on which both were scored. So what makes a unit hard for every size cancels.

The one-standard-error rule is that of Breiman, Friedman, Olshen & Stone (1984, *Classification and Regression Trees*,
§3.4.3), with the error of the paired difference in place of the error of the score.

The next size to fit is decided in three stages (`next_part`). The units are divided into parts.

1. Climb. Sizes 1, 2, 4, 8, … are fitted without the first part of the units and scored on it, until larger ones predict
worse.
2. Refine. Sizes in between are tried around the size that predicts best, and between the recommended size and the
largest one below it that predicts worse.
3. Repeat. The sizes that decide the answer are fitted without further parts and scored on them, until enough units were
held out.

The functions depend only on the results so far. So a search that was cut off goes on as if it had not been.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from lvsearch.sizing.sizes import Size


@dataclass(frozen=True)
class Comparison:
    """The comparison of every size with the size that predicts held-out units best. Arrays are in the order of `sizes`.

    | field | shape | meaning |
    |---|---|---|
    | `sizes` | (size,) | the sizes compared, increasing |
    | `score` | (size,) | mean log p of the units that were scored under the size, nats per unit |
    | `difference` | (size,) | total score minus that of `best`, over units scored under both, nats; 0 for the best |
    | `standard_error` | (size,) | of the difference, from its spread over units, nats |
    | `n_units` | (size,) | the number of units scored under both the size and `best` |
    | `best` | | the size that no other beats on the units scored under both |
    | `within` | | the sizes that are at most one standard error below the best |
    | `recommended` | | the smallest size of `within` |
    """

    sizes: tuple[Size, ...]
    score: Float[np.ndarray, " size"]
    difference: Float[np.ndarray, " size"]
    standard_error: Float[np.ndarray, " size"]
    n_units: Int[np.ndarray, " size"]
    best: Size
    within: tuple[Size, ...]
    recommended: Size


def compare_sizes(sizes: Sequence[Size], scores: Float[np.ndarray, "size unit"]) -> Comparison:
    """Compare sizes by their scores of held-out units, and recommend the smallest that is as good as any.

    Args:
        sizes: one for each row of `scores`, all different.
        scores: log p of each unit under each size, nats; NaN if the unit was not scored under the size.

    Returns:
        The comparison, with sizes increasing.

    Raises:
        ValueError: there is no size, a size has fewer than two units in common with the best, or a score is infinite
            (leave that size out).
    """
    order = sorted(range(len(sizes)), key=lambda place: (sum(sizes[place]), sizes[place]))
    ordered, table = tuple(sizes[place] for place in order), scores[order]
    if not ordered or np.isinf(table).any():
        raise ValueError(
            f"got {len(ordered)} sizes and {int(np.isinf(table).sum())} infinite scores; expected at least one size "
            "and finite scores: leave out sizes for which a held-out unit is impossible"
        )
    known = ~np.isnan(table)
    best = _best_row(table, known)
    both = known & known[best]
    n_units = both.sum(axis=1)
    if n_units.min() < 2:
        raise ValueError(
            f"got {n_units.min()} held-out units that a size and the best one were asked about, expected at least two, "
            "so that a difference has an error"
        )
    # The error of a sum of n paired differences is √n times their standard deviation.
    apart = np.where(both, table - table[best], 0.0)
    difference = apart.sum(axis=1)
    centred = np.where(both, apart - (difference / n_units)[:, None], 0.0)
    error = np.sqrt((centred**2).sum(axis=1) * n_units / (n_units - 1))
    close = difference >= -error
    return Comparison(
        sizes=ordered,
        score=np.where(known, table, 0.0).sum(axis=1) / known.sum(axis=1),
        difference=difference,
        standard_error=error,
        n_units=n_units,
        best=ordered[best],
        within=tuple(size for size, one in zip(ordered, close.tolist(), strict=True) if one),
        recommended=ordered[int(np.argmax(close))],
    )


def _best_row(table: Float[np.ndarray, "size unit"], known: Bool[np.ndarray, "size unit"]) -> int:
    """Return the index of the row of the size that no other size beats on the units scored under both.

    table: log p of each unit under each size, nats, (sizes, units)
    known: True where the unit was scored under the size, (sizes, units)

    The search begins with the best size on the units that all sizes have in common. As long as another size beats it,
    the one with the largest lead per unit takes its place. A former best size does not come back, so the loop ends even
    if sizes beat each other in a circle.
    """
    common = known.all(axis=0)
    best = int(np.argmax(np.where(common, table, 0.0).sum(axis=1)))
    former: set[int] = set()
    while True:
        both = known & known[best]
        ahead = np.where(both, table - table[best], 0.0).sum(axis=1) / np.maximum(both.sum(axis=1), 1)
        ahead[[*former, best]] = 0.0
        challenger = int(np.argmax(ahead))
        if not ahead[challenger] > 0:
            return best
        former.add(best)
        best = challenger


def smallest_within_error(values: Float[np.ndarray, " size"], errors: Float[np.ndarray, " size"]) -> int:
    """Return the first index whose value is at most one of its own standard errors below the largest value.

    It applies the one-standard-error rule to values without paired errors, such as the coherence of topics.

    values: a value for each size, sizes increasing, (sizes,)
    errors: the standard errors of the values, (sizes,)

    Raises ValueError if no value is finite.
    """
    if not np.isfinite(values).any():
        raise ValueError("got no value that is a number, expected at least one to choose by")
    return int(np.argmax(values + errors >= np.nanmax(values)))


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
    | `smallest` | the smallest size that the model has |
    """

    parts: int
    largest: int
    smallest: int = 1


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

    The ladder begins at the smallest size that the model has.

    asked: {size: number of parts on which it was scored or failed}
    found: the comparison of the sizes that were scored; None if there are none yet
    limits: the largest number of parts, and the largest size
    """
    rungs = math.ceil(math.log(limits.largest / limits.smallest, STEP)) + 1
    ladder = [limits.smallest * STEP**power for power in range(rungs)]
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
