"""Coordinate ascent in tiles: the generic engine's steps on as many units at a time as stay in the cache.

The steps are those of `meanfield`, the model's own gradients; only their order differs. A pass takes the tiles one
after the other, updates their locals and adds up what they say about the globals, so that neither the gradients nor
the natural parameters of all units are ever held at once. It serves models whose units' statistics do not depend on
the globals that they update (`update_globals`). What cuts units into tiles is `data.tiles`.
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
