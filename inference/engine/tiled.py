"""Coordinate ascent in tiles: the generic engine's steps, on as many units at a time as stay in the cache.

The steps are those of `meanfield`, by the model's own gradients; only their order differs. A pass takes one tile after
the other, updates its locals, and adds up what its units say about the globals. So the gradients and natural parameters
of all units are never held at once.

It serves models whose batch statistics do not depend on the globals that they update (`update_globals`). The
model's room cuts units into tiles (`annotation.tiles`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.meanfield import Beliefs, batch_log_joint, settle_units, sweep_units, unit_bounds
from lvsearch.inference.engine.meanfield_starts import blank_unit
from lvsearch.inference.sharding import units_of
from lvsearch.models.contract import Model, Statistics
from lvsearch.models.kernels import kernel


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
