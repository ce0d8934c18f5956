"""Apply the rule of the recommended size: the smallest size that predicts as well as any. It is plain NumPy.

A size is a number of topics, clusters or other components. A unit is a document or a row.

Every size has a score of every held-out unit, log p(unit | parameters fitted without it), in nats. Two sizes are
compared unit by unit, on the units on which both were scored. So what makes a unit hard for every size cancels.

The one-standard-error rule is that of Breiman, Friedman, Olshen & Stone (1984, *Classification and Regression Trees*,
§3.4.3), with the error of the paired difference in place of the error of the score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
