"""A data set of rows in the coordinates of a kind of component, cut into the tiles that the mixture kernels work on."""

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
"""Rows of a tile. With 60 components and 150 statistics its arrays stay in a core's cache."""
TILE_CELLS = 2**22
"""The most cells of a tile, for data of many columns. Their statistics take four times as much memory, 128 MB in
float64.
"""


class RowTiles(NamedTuple):
    """Rows in the components' coordinates, cut into tiles of equally many rows.

    | field | meaning |
    |---|---|
    | `coordinates` | (tile, row, dim), 0 in missing cells |
    | `observed` | (tile, row, dim), False in missing cells |
    | `weight` | (tile, row), 0 for padding |
    """

    coordinates: Float[Array, "tile row dim"] | np.ndarray
    observed: Bool[Array, "tile row dim"] | np.ndarray
    weight: Float[Array, "tile row"] | np.ndarray


class PreparedRows(NamedTuple):
    """The rows of a data set, ready for the kernels.

    | field | meaning |
    |---|---|
    | `tiles` | the rows, float64 |
    | `layout` | which packed columns of their statistics vary, static |
    | `log_carrier` | Σ weight · log h(x), nats |
    | `n_rows` | how many rows there are, without padding |
    """

    tiles: RowTiles
    layout: PackedColumns
    log_carrier: float
    n_rows: int


@kernel(brief=True)
def coordinates_and_carriers(component: Component, rows: Row) -> tuple[Float[Array, "row dim"], Float[Array, " row"]]:
    """Return (the coordinates of the rows for this kind of component, log h(x) of each row in nats)."""
    coordinates = jax.vmap(component.coordinates)(rows)
    return coordinates, jax.vmap(component.log_carrier)(coordinates, jnp.asarray(rows.observed))


@kernel(brief=True)
def increments(component: Component, coordinates: Any, observed: Any) -> Any:
    """Return s(x) of each row, shaped like the component's statistics."""
    return jax.vmap(component.increment)(coordinates, observed)


@kernel(static_argnames=("n_dims",), brief=True)
def prior_of(component: Component, *, n_dims: int) -> Any:
    """Return the natural parameters of a component's conjugate prior: those of a component without rows.

    n_dims: the number of columns of the rows' coordinates.
    """
    return component.prior(n_dims)


@kernel()
def variants(component: Component, coordinates: Any, observed: Any) -> tuple[Any, Float[Array, "row variant"]]:
    """Return (s_v(x) of each row, each leaf (row, variant, …); log h_v(x) − log h(x) in nats, (row, variant))."""
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
    """Return some of the rows by themselves, for a fit that another fit will start from.

    Their carriers are left out, so its bound is not one on log p of these rows.
    """
    flat = [leaf.reshape(-1, *leaf.shape[2:])[chosen] for leaf in map(np.asarray, prepared.tiles)]
    return PreparedRows(_tiled(*flat), prepared.layout, 0.0, len(chosen))


def _tiled(coordinates: np.ndarray, observed: np.ndarray, weight: np.ndarray) -> RowTiles:
    """Return rows cut into tiles of equally many, padded with rows of weight 0."""
    most = max(8, TILE_CELLS // max(1, coordinates.shape[1]) // 8 * 8)
    length = min(TILE, most, -(-len(weight) // 8) * 8)
    n_tiles = -(-len(weight) // length)
    pad = n_tiles * length - len(weight)

    def tiled(leaf: np.ndarray) -> np.ndarray:
        return np.pad(leaf, [(0, pad)] + [(0, 0)] * (leaf.ndim - 1)).reshape(n_tiles, length, *leaf.shape[1:])

    return RowTiles(tiled(coordinates), tiled(observed), tiled(weight))


def cast_tiles(tiles: RowTiles, dtype: Any) -> RowTiles:
    """Return the tiles with their floating-point arrays in `dtype`."""
    return RowTiles(tiles.coordinates.astype(dtype), tiles.observed, tiles.weight.astype(dtype))
