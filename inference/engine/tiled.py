"""Coordinate ascent in tiles: the generic engine's steps on as many units at a time as stay in the cache.

The steps are those of `meanfield`, the model's own gradients; only their order differs. A pass takes the tiles one
after the other, updates their locals and adds up what they say about the globals, so that neither the gradients nor
the natural parameters of all units are ever held at once. It serves models whose units' statistics do not depend on
the globals that they update (`update_globals`).

All tiles of units of one shape have one shape themselves, whatever the data set: training and test data share programs.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.meanfield import Beliefs, batch_log_joint, settle_units, sweep_units, unit_bounds
from lvsearch.inference.engine.meanfield_starts import blank_unit
from lvsearch.inference.sharding import units_of
from lvsearch.models.contract import Model, Statistics
from lvsearch.models.kernels import kernel

TILE_NUMBERS = 1 << 18
"""Numbers that the largest local site of one tile holds, at most: 1 MiB in float32."""
SMALLEST_TILE, LARGEST_TILE = 8, 256
"""Units; a tile has a power of two of them."""


class UnitTile(NamedTuple):
    """Some units of one shape; `unit_ids`: which of the data set they are, −1 for padding (of weight 0)."""

    batch: Batch
    unit_ids: np.ndarray


def cut_into_tiles(data: Dataset, numbers_per_unit: int) -> tuple[UnitTile, ...]:
    """All units of a data set in tiles, the last one of each shape padded."""
    wanted = SMALLEST_TILE
    while wanted < LARGEST_TILE and 2 * wanted * numbers_per_unit <= TILE_NUMBERS:
        wanted *= 2
    by_shape: dict[Any, list[int]] = {}
    for index, batch in enumerate(data.batches):
        shape = tuple(leaf.shape[1:] for leaf in jax.tree.leaves(batch.units))
        by_shape.setdefault(shape, []).append(index)
    tiles = []
    for indices in by_shape.values():
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(data.batches[i] for i in indices))
        ids = np.concatenate([data.unit_ids[i] for i in indices])
        real = np.flatnonzero(ids >= 0)
        for start in range(0, len(real), wanted):
            rows = real[start : start + wanted]

            def taken(leaf: np.ndarray, rows: np.ndarray = rows) -> np.ndarray:
                return np.pad(leaf[rows], [(0, wanted - len(rows))] + [(0, 0)] * (leaf.ndim - 1))

            unit_ids = np.pad(ids[rows], (0, wanted - len(rows)), constant_values=-1)
            tiles.append(UnitTile(jax.tree.map(taken, joined), unit_ids))
    return tuple(tiles)


def gather(tiles: Sequence[UnitTile], per_tile: Sequence[Any], n_units: int) -> np.ndarray:
    """Per-unit results, one array (unit, …) per tile, in the order of the data set."""
    out = np.zeros((n_units, *np.shape(per_tile[0])[1:]), np.asarray(per_tile[0]).dtype)
    for tile, values in zip(tiles, per_tile, strict=True):
        real = tile.unit_ids >= 0
        out[tile.unit_ids[real]] = np.asarray(values)[real]
    return out


@units_of("batch")
@kernel(static_argnames=("capacity",), brief=True)
@counted
def blank_tile(model: Model, batch: Batch, size: tuple[Array | int, ...], *, capacity: tuple[int, ...]) -> Any:
    """Zero statistics of the locals of every unit."""
    on = model.active(size, capacity)
    dtype = jnp.asarray(batch.weight).dtype
    return jax.vmap(lambda unit: blank_unit(model, unit, on, dtype).mean)(batch.units)


class TileStep(NamedTuple):
    """What a tile's step leaves: its locals' expected statistics (unit, …), `total` with what its units add to the
    natural parameters of the globals, and the bound of each unit given the globals (unit,), nats, not weighted."""

    locals: Any
    total: dict[str, Statistics]
    bounds: Float[Array, " unit"]


@units_of("batch", "l")
@kernel(static_argnames=("capacity", "sweeps"), brief=True)
@counted
def tile_step(
    model: Model,
    g: dict[str, Statistics],
    batch: Batch,
    l: Any,
    total: dict[str, Statistics],
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
    sweeps: int,
) -> TileStep:
    """`sweeps` sweeps over the locals of a tile's units, starting from the expected statistics `l`."""
    on = model.active(size, capacity)
    beliefs = jax.lax.fori_loop(0, sweeps, lambda _, b: sweep_units(model, g, batch, b, on), Beliefs(l, l))
    bounds = unit_bounds(model, g, batch, beliefs, on)
    added = jax.grad(lambda globals_: batch_log_joint(model, globals_, batch, beliefs.mean, on))(g)
    return TileStep(beliefs.mean, jax.tree.map(jnp.add, total, added), bounds)


Summary = Callable[[Model, dict[str, Statistics], Any, Beliefs, Any], Any]
"""(model, globals' statistics, unit, its settled locals, masks) -> what is wanted of the unit: a pytree of arrays."""


@units_of("batch", "start")
@kernel(static_argnames=("capacity", "summary"), brief=True)
@counted
def settled_tile(
    model: Model,
    g: dict[str, Statistics],
    batch: Batch,
    start: Any,
    size: tuple[Array | int, ...],
    tolerance: float | Array,
    sweeps: int | Array,
    *,
    capacity: tuple[int, ...],
    summary: Summary,
) -> Any:
    """`summary` of every unit (unit, …), its locals brought from the expected statistics `start` to where none moves by
    `tolerance`, in at most `sweeps` sweeps. summary: a module-level function (it is a compile key)."""
    on = model.active(size, capacity)
    settled = settle_units(model, g, batch, Beliefs(start, start), on, sweeps, tolerance)
    return jax.vmap(lambda unit, b: summary(model, g, unit, b, on))(batch.units, settled)
