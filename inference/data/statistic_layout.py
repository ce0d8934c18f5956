"""The layout by which the arrays of sufficient statistics lie side by side on one axis.

Arrays of several particles and components are then one array, and one operation changes all statistics of a component.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class StatisticLayout(NamedTuple):
    """The layout of the statistics of one thing, such as a cell or a component: `pack` puts them on one axis.

    | field | meaning |
    |---|---|
    | `structure` | the pytree that the arrays of one thing are the leaves of |
    | `shapes` | the shape of each array of one thing, in the order of the leaves |
    | `once` | for each array: True if all its entries are always equal, so that one of them is packed |
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    once: tuple[bool, ...]

    @classmethod
    def of(cls, statistics: Any, once: Sequence[bool] | None = None) -> "StatisticLayout":
        """Return the layout of the statistics of one thing, given as a pytree of arrays or of their shapes.

        once: for each array, whether all its entries are always equal; None if nothing is known of them.
        """
        shapes = tuple(leaf.shape for leaf in jax.tree.leaves(statistics))
        return cls(jax.tree.structure(statistics), shapes, tuple(once or [False] * len(shapes)))

    def pack(self, statistics: Any) -> Float[Array, "*things statistic"]:
        """Return the statistics of many things, each array (things…, its own shape…), as one (things…, statistic).

        statistics: a pytree with the structure of the layout.
        """
        return jnp.concatenate(self._flattened(jax.tree.map(jnp.asarray, statistics)), axis=-1)

    def pack_on_host(self, statistics: Any) -> Float[np.ndarray, "*things statistic"]:
        """Return what `pack` returns as a NumPy array, for which no program is compiled.

        statistics: a pytree with the structure of the layout.
        """
        return np.concatenate(self._flattened(jax.tree.map(np.asarray, statistics)), axis=-1)

    def _flattened(self, statistics: Any) -> list[Any]:
        """Return each array of the statistics with its own axes as one, of length 1 where it is packed `once`."""
        leaves = jax.tree.leaves(statistics)
        flat = [
            leaf.reshape((*leaf.shape[: leaf.ndim - len(shape)], math.prod(shape)))
            for leaf, shape in zip(leaves, self.shapes, strict=True)
        ]
        return [leaf[..., :1] if once else leaf for leaf, once in zip(flat, self.once, strict=True)]

    def unpack(self, packed: Float[Array | np.ndarray, "*things statistic"]) -> Any:
        """Return one array (things…, statistic) taken apart into the arrays of the statistics: the inverse of `pack`.

        Returns: a pytree with the structure of the layout, each leaf (things…, its own shape…).
        """
        leaves = []
        for part, shape, once in zip(self._parts(), self.shapes, self.once, strict=True):
            leaf, whole = packed[..., part], (*packed.shape[:-1], *shape)
            if once:
                wide = (*packed.shape[:-1], math.prod(shape))
                leaf = np.broadcast_to(leaf, wide) if isinstance(leaf, np.ndarray) else jnp.broadcast_to(leaf, wide)
            leaves.append(leaf.reshape(whole))
        return jax.tree.unflatten(self.structure, leaves)

    def split(self, packed: Float[Array, "statistic *things"]) -> Any:
        """Return one array (statistic, things…) cut into the arrays of the statistics, with their own axes as one.

        Returns: a pytree with the structure of the layout, each leaf (entries of the array, things…), or (1, things…)
            for an array whose entries are all equal.
        """
        return jax.tree.unflatten(self.structure, [packed[part] for part in self._parts()])

    def _parts(self) -> list[slice]:
        """Return the stretch of the axis of statistics that each array takes."""
        lengths = [1 if once else math.prod(shape) for shape, once in zip(self.shapes, self.once, strict=True)]
        ends = np.cumsum([0, *lengths]).tolist()
        return [slice(start, end) for start, end in itertools.pairwise(ends)]
