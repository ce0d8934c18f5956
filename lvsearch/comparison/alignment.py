"""Match the components of two fits: of two runs of one size, or of two sizes, where components split and merge.

A component is a topic, a cluster or a feature; a unit is one document or row of the data. Components are matched by the
units that they share. Let r_nj be the share of component j of the first fit in unit n, and s_nk that of component k of
the second (rows sum to 1). The overlap of j and k is Σ_n r_nj s_nk, a number of units. The matching maximises the sum
of overlap / (units in either component). It is an assignment problem, so no component is used twice.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

SHARE = 0.15
"""The smallest part of a component, as a share of its units, that counts in a split or merger."""


@dataclass(frozen=True)
class ComponentMap:
    """A map between the components of two fits of the same units. Components go by their numbers, from 0.

    | field | meaning |
    |---|---|
    | `overlap` | the number of units shared: a row per component of the first fit, a column per one of the second |
    | `matched` | pairs (component of the first fit, component of the second fit): the best assignment |
    | `parts` | {component of the first: components of the second with at least 15 % of its units, largest first} |
    """

    overlap: pd.DataFrame
    matched: tuple[tuple[int, int], ...]
    parts: dict[int, tuple[int, ...]]

    @property
    def splits(self) -> dict[int, tuple[int, ...]]:
        """The components of the first fit that split, as {component: its two or more parts in the second fit}."""
        return {one: several for one, several in self.parts.items() if len(several) > 1}

    @property
    def merges(self) -> dict[int, tuple[int, ...]]:
        """The components of the second fit that merge several, as {component: two or more of the first fit}."""
        sources: dict[int, list[int]] = {}
        for one, several in self.parts.items():
            for other in several:
                sources.setdefault(other, []).append(one)
        return {other: tuple(ones) for other, ones in sources.items() if len(ones) > 1}

    def describe(self) -> str:
        """Return the map in words, such as "0 → 2, 1 → 0 + 3 (61%, 39%), 2 → 1".

        The numbers before an arrow are components of the first fit, those behind it components of the second.
        """
        words = []
        for one, several in self.parts.items():
            total = float(self.overlap.loc[one].sum())
            shares = ", ".join(f"{self.overlap.loc[one, other] / max(total, 1e-12):.0%}" for other in several)
            words.append(f"{one} → {' + '.join(map(str, several))}{f' ({shares})' if len(several) > 1 else ''}")
        return ", ".join(words)

    def order(self) -> np.ndarray:
        """Return the numbers of the second fit's components, each at the position of its partner in the first fit.

        Components without a partner come last. Shape (components of the second fit,).
        """
        partner = [second for _, second in self.matched]
        return np.array([*partner, *(k for k in range(self.overlap.shape[1]) if k not in partner)])


def component_map(
    first: Float[np.ndarray, "units component"], second: Float[np.ndarray, "units other"]
) -> ComponentMap:
    """Match the components of two fits by their shares of the same units.

    first, second: the share of each component in each unit, such as `transform` returns, (units, components)

    Returns a `ComponentMap`: which components are partners, which split and which merge.
    Raises ValueError for different numbers of units, and for shares that are negative or not finite.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    for name, shares in (("first", first), ("second", second)):
        if shares.ndim != 2 or not np.all(shares >= 0):  # True for NaN too
            raise ValueError(f"got {name} of shape {shares.shape}, expected shares ≥ 0, (units, components)")
    if len(first) != len(second):
        raise ValueError(f"got shares of {len(first)} and of {len(second)} units, expected the same units in both")
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    overlap = first.T @ second
    either = first.sum(0)[:, None] + second.sum(0) - overlap
    rows, columns = linear_sum_assignment(-overlap / np.maximum(either, 1e-12))
    parts = {}
    for one, shared in enumerate(overlap):
        large = np.flatnonzero(shared >= SHARE * max(shared.sum(), 1e-12))
        parts[one] = tuple(int(k) for k in large[np.argsort(-shared[large], kind="stable")])
    return ComponentMap(pd.DataFrame(overlap), tuple(zip(rows.tolist(), columns.tolist(), strict=True)), parts)
