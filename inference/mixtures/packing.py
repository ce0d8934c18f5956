"""Statistics of components as vectors, so that a sweep over the rows is two matrix products.

The log-likelihood of row n under component k is ⟨E[t(θ_k)], s(x_n)⟩ + log h(x_n): with statistics packed into W (K, S)
and increments into Φ (rows, S), the E-step is Φ Wᵀ and the M-step's sums are Rᵀ Φ. A symmetric matrix is packed as its
upper triangle, off-diagonal entries doubled on the side of the statistics. Columns of Φ that are the same in every
complete row (the ones that count) are left out of the products."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from lvsearch.models.components import Component
from lvsearch.models.kernels import kernel


class PackedColumns(NamedTuple):
    """Which columns of the packed increments vary from row to row, and what the others are: static.

    `varying`: their positions; `constants`: (position, value) of the others.
    """

    n_dims: int
    varying: tuple[int, ...]
    constants: tuple[tuple[int, float], ...]

    @property
    def constant_columns(self) -> tuple[Int[np.ndarray, " constant"], Float[np.ndarray, " constant"]]:
        """(Positions of the columns that do not vary, their values)."""
        columns = np.array([column for column, _ in self.constants], int)
        return columns, np.array([value for _, value in self.constants], float)


def layout_of(component: Component, n_dims: int, complete: bool) -> PackedColumns:
    """complete: every cell of every row is observed (rows of padding, of weight 0, may be anything)."""
    probe = np.random.default_rng(0).uniform(0.1, 0.9, (2, n_dims))
    values, varies = map(np.asarray, _probed(component, probe))
    varying = varies | (not complete)
    constants = tuple((int(c), float(values[c])) for c in np.flatnonzero(~varying))
    return PackedColumns(n_dims, tuple(np.flatnonzero(varying).tolist()), constants)


@kernel(brief=True)
def _probed(
    component: Component, probe: Float[Array | np.ndarray, "row dim"]
) -> tuple[Float[Array, " packed"], Bool[Array, " packed"]]:
    """s(x) of the first of these complete rows in its first variant, and which columns vary over all. What is 0 may
    only be so at these cells: whether a cell has a level is 0 at all cells between levels."""
    each = jax.vmap(lambda row: pack_variants(component, row, jnp.ones(row.shape, bool)))(probe)
    every = each.reshape(-1, each.shape[-1])
    return every[0], (jnp.ptp(every, axis=0) >= 1e-12) | (every[0] == 0)


def pack_increment(component: Component, coordinates: Any, observed: Any) -> Float[Array, " packed"]:
    """s(x) of one row as a vector."""
    return _packed(component, component.increment(coordinates, observed))


def pack_variants(component: Component, coordinates: Any, observed: Any) -> Float[Array, "variant packed"]:
    """s_v(x) of one row as vectors."""
    return jax.vmap(partial(_packed, component))(component.variant_increments(coordinates, observed))


def _packed(component: Component, increment: Any) -> Float[Array, " packed"]:
    parts = []
    for leaf, ndim in _leaves(component, increment):
        parts.append(leaf[_triangle(leaf)] if ndim == 2 else leaf.reshape(-1))
    return jnp.concatenate(parts)


@kernel(brief=True)
def pack_increments(component: Component, coordinates: Any, observed: Any) -> Float[Array, "row packed"]:
    """`pack_increment` of each row."""
    return jax.vmap(partial(pack_increment, component))(coordinates, observed)


def pack_statistics(component: Component, statistics: Any) -> Float[Array, "component packed"]:
    """Statistics of components (leading axis) as rows whose inner products with packed increments are ⟨t, s⟩."""
    parts = []
    for leaf, ndim in _leaves(component, statistics):
        if ndim == 2:
            rows, columns = _triangle(leaf)
            parts.append(leaf[:, rows, columns] * np.where(rows == columns, 1, 2).astype(leaf.dtype))
        else:
            parts.append(leaf.reshape(len(leaf), -1))
    return jnp.concatenate(parts, axis=1)


def unpack_sums(component: Component, sums: Float[Array, "component packed"], like: Any) -> Any:
    """Sums of packed increments (K, S) as natural parameters shaped like `like` (components leading)."""
    leaves, start = [], 0
    for leaf, ndim in _leaves(component, like):
        if ndim == 2:
            rows, columns = _triangle(leaf)
            upper = sums[:, start : start + len(rows)]
            matrix = jnp.zeros(leaf.shape, sums.dtype).at[:, rows, columns].set(upper)
            leaves.append(matrix.at[:, columns, rows].set(upper))
            start += len(rows)
        else:
            n = int(np.prod(leaf.shape[1:]))
            leaves.append(sums[:, start : start + n].reshape(leaf.shape))
            start += n
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _leaves(component: Component, statistics: Any) -> list[tuple[Any, int]]:
    """(leaf, 2 where it is a symmetric matrix)."""
    leaves = jax.tree.leaves(statistics)
    return list(zip(leaves, component.family.field_event_ndims or (0,) * len(leaves), strict=True))


def _triangle(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(matrix.shape[-1])
