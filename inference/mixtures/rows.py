"""The rows of a data set as the kernels of mixtures read them: in coordinates, in tiles, and as packed statistics.

Rows are in the coordinates of a kind of component, and cut into tiles. Their sufficient statistics are flattened to
vectors, so that a sweep over the rows is two matrix products.

The log-likelihood of row n under component k is ⟨E[t(θ_k)], s(x_n)⟩ + log h(x_n). Here t(θ_k) and s(x_n) are sufficient
statistics of the parameters and of the row, and log h is the carrier. Packed, the former form a matrix W (component,
statistic) and the latter a matrix Φ (row, statistic). Then the E-step is Φ Wᵀ, and the sums of the M-step are Rᵀ Φ,
with R the responsibilities.

A symmetric matrix is packed as its upper triangle, with off-diagonal entries doubled in W. Columns of Φ that are the
same in every complete row, such as the one that counts rows, are left out of the products.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.models.components import Component
from lvsearch.models.kernels import kernel
from lvsearch.models.mixture import MixtureModel
from lvsearch.models.units import Row


class PackedColumns(NamedTuple):
    """The columns of the rows' packed sufficient statistics: which of them vary from row to row, and the others'
    values.

    It is static in compiled programs.

    `n_dims`: how many columns the data have.
    `varying`: positions of the packed columns that vary.
    `constants`: (position, value) of each other packed column.
    `most_missing`: the largest number of missing cells of a row, where these are latent variables of the row; else 0.
    """

    n_dims: int
    varying: tuple[int, ...]
    constants: tuple[tuple[int, float], ...]
    most_missing: int = 0

    @property
    def constant_columns(self) -> tuple[Int[np.ndarray, " constant"], Float[np.ndarray, " constant"]]:
        """(Positions of the packed columns that are the same in every row, the values of these columns)."""
        columns = np.array([column for column, _ in self.constants], int)
        return columns, np.array([value for _, value in self.constants], float)


def layout_of(component: Component, n_dims: int, complete: bool) -> PackedColumns:
    """Return which columns of the packed sufficient statistics vary from row to row, for this kind of component.

    n_dims: how many columns the data have.
    complete: True if every cell of every row is observed, padding aside. If False, all packed columns vary.
    """
    probe = np.random.default_rng(0).uniform(0.1, 0.9, (2, n_dims))
    values, varies = map(np.asarray, _probed(component, probe))
    varying = varies | (not complete)
    constants = tuple((int(c), float(values[c])) for c in np.flatnonzero(~varying))
    return PackedColumns(n_dims, tuple(np.flatnonzero(varying).tolist()), constants)


@kernel(brief=True, kept=True)
def _probed(
    component: Component, probe: Float[Array | np.ndarray, "row dim"]
) -> tuple[Float[Array, " packed"], Bool[Array, " packed"]]:
    """Return the packed sufficient statistics of the first of some complete rows, and which entries vary.

    An entry varies if it differs between the rows. An entry that is 0 counts as varying too, since it may be 0 at these
    values only. For example, the indicator of a level is 0 in all cells between levels.

    probe: made-up rows without missing cells, (row, dim).

    Returns: (values in the first row's first variant, (packed,); True where an entry varies, (packed,)).
    """
    each = jax.vmap(lambda row: pack_variants(component, row, jnp.ones(row.shape, bool)))(probe)
    every = each.reshape(-1, each.shape[-1])
    return every[0], (jnp.ptp(every, axis=0) >= 1e-12) | (every[0] == 0)


def pack_increment(component: Component, coordinates: Any, observed: Any) -> Float[Array, " packed"]:
    """Return s(x), the sufficient statistics of one row, as one vector, (packed,).

    coordinates, observed: the row, and which of its cells are not missing, (dim,).
    """
    return _packed(component, component.increment(coordinates, observed))


def pack_variants(component: Component, coordinates: Any, observed: Any) -> Float[Array, "variant packed"]:
    """Return the sufficient statistics s_v(x) of one row in each variant v in which it may arise, (variant, packed).

    coordinates, observed: the row, and which of its cells are not missing, (dim,).
    """
    return pack_each(component, component.variant_increments(coordinates, observed))


def pack_each(component: Component, increments: Any) -> Float[Array, "each packed"]:
    """Return several sufficient statistics as vectors, (each, packed). increments: a pytree, with `each` leading."""
    return jax.vmap(partial(_packed, component))(increments)


def _packed(component: Component, increment: Any) -> Float[Array, " packed"]:
    """Return the sufficient statistics of one row as one vector, with symmetric matrices as their upper triangles.

    increment: the statistics as a pytree.
    """
    parts = []
    for leaf, ndim in _leaves(component, increment):
        parts.append(leaf[_triangle(leaf)] if ndim == 2 else leaf.reshape(-1))
    return jnp.concatenate(parts)


@kernel(brief=True)
def pack_increments(component: Component, coordinates: Any, observed: Any) -> Float[Array, "row packed"]:
    """Return s(x), the sufficient statistics of each row, as vectors, (row, packed).

    coordinates, observed: the rows, and which of their cells are not missing, (row, dim).
    """
    return jax.vmap(partial(pack_increment, component))(coordinates, observed)


def pack_statistics(component: Component, statistics: Any) -> Float[Array, "component packed"]:
    """Return the sufficient statistics t(θ) of component parameters as vectors, (component, packed).

    The inner product of such a vector and a packed row is ⟨t(θ), s(x)⟩: off-diagonal entries of symmetric matrices are
    doubled here.

    statistics: t(θ) as a pytree with components on the leading axis.
    """
    parts = []
    for leaf, ndim in _leaves(component, statistics):
        if ndim == 2:
            rows, columns = _triangle(leaf)
            parts.append(leaf[:, rows, columns] * np.where(rows == columns, 1, 2).astype(leaf.dtype))
        else:
            parts.append(leaf.reshape(len(leaf), -1))
    return jnp.concatenate(parts, axis=1)


def unpack_sums(component: Component, sums: Float[Array, "component packed"], like: Any) -> Any:
    """Return sums of packed sufficient statistics of rows as a pytree of the components' natural parameters.

    This undoes `pack_increments` for sums over rows.

    sums: the packed sums, (component, packed).
    like: a pytree whose shape the result gets, components on the leading axis.
    """
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
    """Return (leaf, how many event axes it has) for each leaf of statistics; a leaf with 2 is a symmetric matrix."""
    leaves = jax.tree.leaves(statistics)
    return list(zip(leaves, component.family.field_event_ndims or (0,) * len(leaves), strict=True))


def _triangle(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and column numbers of the upper triangle, diagonal included, of a square matrix."""
    return np.triu_indices(matrix.shape[-1])


TILE = 1024
"""The number of rows of a tile. With 60 components and 150 statistics its arrays stay in a core's cache."""
TILE_CELLS = 2**22
"""The most cells (rows × columns) of a tile, for data of many columns.

Sufficient statistics of a full tile take four times as much memory as its cells: 128 MB in float64.
"""


class RowTiles(NamedTuple):
    """The rows of a data set in the components' coordinates, cut into tiles of equally many rows.

    | field | meaning |
    |---|---|
    | `coordinates` | (tile, row, dim) the values of the cells, 0 in missing ones |
    | `observed` | (tile, row, dim) False in missing cells |
    | `weight` | (tile, row) the weight of each row, 0 for rows that pad the last tile |
    """

    coordinates: Float[Array, "tile row dim"] | np.ndarray
    observed: Bool[Array, "tile row dim"] | np.ndarray
    weight: Float[Array, "tile row"] | np.ndarray


class PreparedRows(NamedTuple):
    """The rows of a data set with everything that the kernels of mixtures need to know about them.

    | field | meaning |
    |---|---|
    | `tiles` | the rows, float64 |
    | `layout` | which entries of their flattened sufficient statistics vary from row to row; static |
    | `log_carrier` | Σ weight · log h(x), the part of the log density that is the same for all components, nats |
    | `n_rows` | how many rows there are, without padding |
    """

    tiles: RowTiles
    layout: PackedColumns
    log_carrier: float
    n_rows: int


@kernel(brief=True, kept=True)
def coordinates_and_carriers(component: Component, rows: Row) -> tuple[Float[Array, "row dim"], Float[Array, " row"]]:
    """Return the rows in the coordinates of this kind of component, and log h(x) of each row.

    Coordinates are the values in which the component's density is written. log h(x), the carrier, is the part of the
    log density that does not depend on the component's parameters.

    Returns: (coordinates, (row, dim); log h(x), (row,), in nats).
    """
    coordinates = jax.vmap(component.coordinates)(rows)
    return coordinates, jax.vmap(component.log_carrier)(coordinates, jnp.asarray(rows.observed))


FILLING = 8
"""The number of times that one Gaussian is fitted to all rows, with missing cells at their means under the last."""


@kernel(brief=True)
def fill_in(
    component: Component, coordinates: Float[Array, "row dim"], observed: Bool[Array, "row dim"]
) -> Float[Array, "row dim"]:
    """Return the rows with their missing cells at their expected values under one Gaussian of all rows.

    Fits begin from rows that are filled in like this; their ascents then keep a distribution for each missing cell.

    component: a kind of component with `partial_rows`, all its hyper-parameters numbers. coordinates, observed: the
        rows.
    """
    prior = component.prior(coordinates.shape[1])

    def filled(natural: Any, y: Array, seen: Array) -> tuple[Array, Any]:
        point = jax.tree.map(lambda leaf: leaf[None], component.family.point(natural))
        laws = component.laws_of_cells(point, y, seen)
        expected = component.expected_increments(laws, y, seen)
        one = jax.tree.map(lambda leaf: leaf[0], expected)
        return one.precision_mean, one

    def fit(_: Array, natural: Any) -> Any:
        each = jax.vmap(filled, in_axes=(None, 0, 0))(natural, coordinates, observed)[1]
        return jax.tree.map(lambda begin, rows: begin + rows.sum(0), prior, each)

    start = jax.tree.map(jnp.asarray, prior)
    return jax.vmap(filled, in_axes=(None, 0, 0))(jax.lax.fori_loop(0, FILLING, fit, start), coordinates, observed)[0]


@kernel(brief=True)
def increments(component: Component, coordinates: Any, observed: Any) -> Any:
    """Return s(x), the sufficient statistics of each row, as a pytree with rows on the leading axis.

    coordinates, observed: the rows, and which of their cells are not missing, (row, dim).
    """
    return jax.vmap(component.increment)(coordinates, observed)


@kernel(static_argnames=("n_dims",), brief=True, kept=True)
def prior_of(component: Component, *, n_dims: int) -> Any:
    """Return the natural parameters of a component's conjugate prior, which are those of a component without rows.

    n_dims: the number of columns of the rows' coordinates.
    """
    return component.prior(n_dims)


@kernel()
def variants(component: Component, coordinates: Any, observed: Any) -> tuple[Any, Float[Array, "row variant"]]:
    """Return the sufficient statistics of each row in every variant in which the row may arise, and their log weights.

    Most kinds of component have one variant. coordinates, observed: the rows, and which cells are not missing, (row,
    dim).

    Returns: (s_v(x), a pytree whose leaves are (row, variant, …); log h_v(x) − log h(x) in nats, (row, variant)).
    """
    tilts = jax.vmap(component.variant_tilts)(observed)
    return jax.vmap(component.variant_increments)(coordinates, observed), tilts


def prepare(model: MixtureModel, data: Dataset) -> PreparedRows:
    """Return the rows of a data set in tiles, padded with rows of weight 0.

    Coordinates are computed in float64, so that data far from 0 keep their digits. Missing cells that are latent
    variables are filled in for the starts of a fit (`fill_in`).
    """
    units, weight = rows_of(data)
    with jax.enable_x64(True):
        coordinates, carriers = map(np.asarray, coordinates_and_carriers(model.components, units))
        layout = layout_of(model.components, coordinates.shape[1], bool(np.all(units.observed)))
        if model.components.partial_rows:
            coordinates = np.asarray(fill_in(model.components.at_prior_means(), coordinates, units.observed))
            missing = np.sum(~np.asarray(units.observed), axis=1)
            layout = layout._replace(most_missing=int(np.max(missing * (missing < coordinates.shape[1]), initial=0)))
    tiles = _tiled(coordinates, np.asarray(units.observed), weight)
    return PreparedRows(tiles, layout, float(weight @ carriers), len(weight))


def chosen_rows(prepared: PreparedRows, chosen: Int[np.ndarray, " row"]) -> PreparedRows:
    """Return some of the prepared rows by themselves, for a first fit that the fit of all rows will start from.

    The bound of such a fit is not one on log p of the chosen rows, because `log_carrier` is 0.

    chosen: the numbers of the rows.
    """
    flat = [leaf.reshape(-1, *leaf.shape[2:])[chosen] for leaf in map(np.asarray, prepared.tiles)]
    return PreparedRows(_tiled(*flat), prepared.layout, 0.0, len(chosen))


def _tiled(coordinates: np.ndarray, observed: np.ndarray, weight: np.ndarray) -> RowTiles:
    """Return rows cut into tiles of equally many rows, padded with rows of weight 0.

    coordinates, observed: (row, dim). weight: (row,).
    """
    most = max(8, TILE_CELLS // max(1, coordinates.shape[1]) // 8 * 8)
    length = min(TILE, most, -(-len(weight) // 8) * 8)
    n_tiles = -(-len(weight) // length)
    pad = n_tiles * length - len(weight)

    def tiled(leaf: np.ndarray) -> np.ndarray:
        return np.pad(leaf, [(0, pad)] + [(0, 0)] * (leaf.ndim - 1)).reshape(n_tiles, length, *leaf.shape[1:])

    return RowTiles(tiled(coordinates), tiled(observed), tiled(weight))


def cast_tiles(tiles: RowTiles, dtype: Any) -> RowTiles:
    """Return the tiles with their floating-point arrays converted to `dtype`."""
    return RowTiles(tiles.coordinates.astype(dtype), tiles.observed, tiles.weight.astype(dtype))
