"""The layout by which the arrays of sufficient statistics lie side by side on one axis.

Arrays of several particles and components are then one array, and one operation changes all statistics of a component.
"""

import itertools
import math
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
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, statistics: Any) -> "StatisticLayout":
        """Return the layout of the statistics of one thing, given as a pytree of arrays or of their shapes."""
        return cls(jax.tree.structure(statistics), tuple(leaf.shape for leaf in jax.tree.leaves(statistics)))

    def pack(self, statistics: Any) -> Float[Array, "*things statistic"]:
        """Return the statistics of many things, each array (things…, its own shape…), as one (things…, statistic).

        statistics: a pytree with the structure of the layout.
        """
        leaves = jax.tree.leaves(statistics)
        flat = [
            jnp.asarray(leaf).reshape((*jnp.shape(leaf)[: jnp.ndim(leaf) - len(shape)], math.prod(shape)))
            for leaf, shape in zip(leaves, self.shapes, strict=True)
        ]
        return jnp.concatenate(flat, axis=-1)

    def unpack(self, packed: Float[Array | np.ndarray, "*things statistic"]) -> Any:
        """Return one array (things…, statistic) taken apart into the arrays of the statistics: the inverse of `pack`.

        Returns: a pytree with the structure of the layout, each leaf (things…, its own shape…).
        """
        parts = [packed[..., part] for part in self._parts()]
        leaves = [leaf.reshape((*packed.shape[:-1], *shape)) for leaf, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)

    def split(self, packed: Float[Array, "statistic *things"]) -> Any:
        """Return one array (statistic, things…) cut into the arrays of the statistics, with their own axes as one.

        Returns: a pytree with the structure of the layout, each leaf (entries of the array, things…).
        """
        return jax.tree.unflatten(self.structure, [packed[part] for part in self._parts()])

    def _parts(self) -> list[slice]:
        """Return the stretch of the axis of statistics that each array takes."""
        ends = np.cumsum([0, *map(math.prod, self.shapes)]).tolist()
        return [slice(start, end) for start, end in itertools.pairwise(ends)]
