"""Images with captions in tiles: how they are cut, and the generic coordinate ascent on one tile after another.

A tile is a batch of so few units that its arrays stay in the cache. All tiles of units of one shape have one shape
themselves, whatever the data set. Training and test data then share their programs.

The steps of the ascent are those of `engine.meanfield`, by the model's own gradients; only their order differs. A pass
takes one tile after the other, updates its locals, and adds up what its units say about the globals. So the gradients
and natural parameters of all units are never held at once. They serve models whose batch statistics do not depend on
the globals that they update (`update_globals`).
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
from lvsearch.inference.sharding import on_host, units_of
from lvsearch.models.contract import Model, Statistics
from lvsearch.models.kernels import kernel

TILE_NUMBERS = 1 << 18
"""The most numbers that the largest local latent variable of one tile holds: 1 MiB in float32."""
SMALLEST_TILE, LARGEST_TILE = 8, 256
"""The fewest and the most units in a tile. The number of units is a power of two."""


def in_tiles(data: Dataset, numbers_per_unit: int) -> Dataset:
    """Return the units of a data set with each batch a tile: so few units that their arrays stay in the cache.

    The last tile of each shape is padded.

    numbers_per_unit: how many numbers the largest local latent variable holds for one unit.
    """
    wanted = SMALLEST_TILE
    while wanted < LARGEST_TILE and 2 * wanted * numbers_per_unit <= TILE_NUMBERS:
        wanted *= 2
    by_shape: dict[Any, list[int]] = {}  # the numbers of the batches whose units have one shape
    for index, batch in enumerate(data.batches):
        shape = tuple(leaf.shape[1:] for leaf in jax.tree.leaves(batch.units))
        by_shape.setdefault(shape, []).append(index)
    tiles: list[Batch] = []
    unit_ids = []
    for indices in by_shape.values():
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(data.batches[i] for i in indices))
        ids = np.concatenate([data.unit_ids[i] for i in indices])
        real = np.flatnonzero(ids >= 0)
        for start in range(0, len(real), wanted):
            rows = real[start : start + wanted]

            def pad_to_tile(leaf: np.ndarray, rows: np.ndarray = rows) -> np.ndarray:
                """Return the rows of one tile of an array, padded with zeros to the length of a tile."""
                return np.pad(leaf[rows], [(0, wanted - len(rows))] + [(0, 0)] * (leaf.ndim - 1))

            tiles.append(jax.tree.map(pad_to_tile, joined))
            unit_ids.append(np.pad(ids[rows], (0, wanted - len(rows)), constant_values=-1))
    return Dataset.of_batches(tuple(tiles), tuple(unit_ids), data.extents, data.n_units)


def tiles_of(data: Dataset, capacity: tuple[int, ...]) -> Dataset:
    """Return the images in tiles: batches of so few images that their largest latent variable stays in the cache.

    That variable is the regions' factors, (region, factor) for each image.

    capacity: how many array slots there are for factors.
    """
    longest = max(batch.units.present.shape[1] for batch in data.batches)
    return in_tiles(data, longest * capacity[0])


def weighted_sum(tiles: Dataset, per_unit: Sequence[Any]) -> float:
    """Return the sum over all units of a number times the unit's weight, in float64.

    per_unit: the numbers, one array (unit,) for each tile.
    """
    pairs = zip(tiles.batches, per_unit, strict=True)
    return sum(float(on_host(values).astype(np.float64) @ tile.weight.astype(np.float64)) for tile, values in pairs)


def to_float64(tree: Any) -> Any:
    """Return the tree of arrays as NumPy arrays, with floating-point numbers in float64."""

    def convert(leaf: Any) -> np.ndarray:
        array = on_host(leaf)
        return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array

    return jax.tree.map(convert, tree)


# ── steps of coordinate ascent on a tile ──────────────────────────────────────────────────────────────────────────────


@units_of("batch")
@kernel(static_argnames=("capacity",), brief=True)
@counted
def blank_tile(model: Model, batch: Batch, size: tuple[Array | int, ...], *, capacity: tuple[int, ...]) -> Any:
    """Return zero statistics of the local variables of every unit of a tile, {local site: sufficient statistics}, units
    leading.

    Local sites are the latent variables of one unit.

    batch: the tile: units that are worked on together.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    on = model.active(size, capacity)
    dtype = jnp.asarray(batch.weight).dtype
    return jax.vmap(lambda unit: blank_unit(model, unit, on, dtype).mean)(batch.units)


class TileStep(NamedTuple):
    """The result of one step of coordinate ascent on a tile of units.

    Globals are the latent variables that all units share, locals those of one unit.

    | field | meaning |
    |---|---|
    | `locals` | the expected statistics of the tile's local variables, (unit, …) |
    | `total` | natural parameters of the globals: the argument `total` plus what the tile's units add |
    | `bounds` | the evidence bound of each unit given the globals, (unit,), nats, without weights |
    """

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
    """Sweep over the local variables of a tile's units, and add what the units say about the globals to `total`.

    Global sites are the latent variables that all units share.

    g: {global site: expected sufficient statistics}.
    batch: the tile: units that are worked on together.
    l: the expected statistics of the tile's local variables to start from.
    total: the natural parameters of the globals, summed over the tiles before this one.
    size, capacity: how many components exist, and how many array slots there are for them.
    sweeps: the number of sweeps.
    """
    on = model.active(size, capacity)
    beliefs = jax.lax.fori_loop(0, sweeps, lambda _, b: sweep_units(model, g, batch, b, on), Beliefs(l, l))
    bounds = unit_bounds(model, g, batch, beliefs, on)
    added = jax.grad(lambda globals_: batch_log_joint(model, globals_, batch, beliefs.mean, on))(g)
    return TileStep(beliefs.mean, jax.tree.map(jnp.add, total, added), bounds)


Summary = Callable[[Model, dict[str, Statistics], Any, Beliefs, Any], Any]
"""A function (model, statistics of the globals, unit, q(locals) of the unit, masks) -> a pytree of arrays about the
unit.
"""


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
    """Fit the local variables of a tile's units with the globals fixed, and return `summary` of every unit, (unit, …).

    Global sites are the latent variables that all units share.

    g: {global site: sufficient statistics}.
    batch: the tile: units that are worked on together.
    start: the expected statistics of the local variables to start from.
    size, capacity: how many components exist, and how many array slots there are for them.
    tolerance, sweeps: sweeps end when no statistic moves by more than `tolerance`, or after `sweeps` of them.
    summary: what to compute of a fitted unit (`Summary`). It must be defined at module level, since it is a key of the
        compiled program.
    """
    on = model.active(size, capacity)
    settled = settle_units(model, g, batch, Beliefs(start, start), on, sweeps, tolerance)
    return jax.vmap(lambda unit, b: summary(model, g, unit, b, on))(batch.units, settled)
