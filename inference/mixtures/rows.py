"""The rows of a data set in the coordinates of a kind of component, cut into the tiles that the mixture kernels
read.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixtures.packing import PackedColumns, layout_of
from lvsearch.models.components import Component
from lvsearch.models.kernels import kernel
from lvsearch.models.mixture import MixtureModel
from lvsearch.models.units import Row

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


@kernel(brief=True)
def coordinates_and_carriers(component: Component, rows: Row) -> tuple[Float[Array, "row dim"], Float[Array, " row"]]:
    """Return the rows in the coordinates of this kind of component, and log h(x) of each row.

    Coordinates are the values in which the component's density is written. log h(x), the carrier, is the part of the
    log density that does not depend on the component's parameters.

    Returns: (coordinates, (row, dim); log h(x), (row,), in nats).
    """
    coordinates = jax.vmap(component.coordinates)(rows)
    return coordinates, jax.vmap(component.log_carrier)(coordinates, jnp.asarray(rows.observed))


@kernel(brief=True)
def increments(component: Component, coordinates: Any, observed: Any) -> Any:
    """Return s(x), the sufficient statistics of each row, as a pytree with rows on the leading axis.

    coordinates, observed: the rows, and which of their cells are not missing, (row, dim).
    """
    return jax.vmap(component.increment)(coordinates, observed)


@kernel(static_argnames=("n_dims",), brief=True)
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

    Coordinates are computed in float64, so that data far from 0 keep their digits.
    """
    units, weight = rows_of(data)
    with jax.enable_x64(True):
        coordinates, carriers = map(np.asarray, coordinates_and_carriers(model.components, units))
        layout = layout_of(model.components, coordinates.shape[1], bool(np.all(units.observed)))
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
