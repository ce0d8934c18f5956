"""Compiled steps of the generic engine by themselves: a Gibbs sweep, and what a batch says of the globals."""

from functools import partial
from typing import Any

import jax

from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.gibbs import GibbsState, sweep_state
from lvsearch.inference.engine.meanfield import batch_log_joint
from lvsearch.models.contract import Latents, Model


@partial(jax.jit, static_argnames=("capacity",))
def gibbs_sweep(
    model: Model,
    key: jax.Array,
    state: GibbsState,
    batches: tuple[Batch, ...],
    unit_ids: tuple[Any, ...],
    size: tuple[Any, ...],
    *,
    capacity: tuple[int, ...],
) -> GibbsState:
    """Return the state after one Gibbs sweep: all locals, then all globals, drawn from their complete conditionals."""
    return sweep_state(model, key, state, batches, unit_ids, model.active(size, capacity))


@partial(jax.jit, static_argnames=("capacity",))
def batch_statistics(
    model: Model, g: Latents, batch: Batch, l: Any, size: tuple[Any, ...], *, capacity: tuple[int, ...]
) -> dict[str, Any]:
    """Return what a batch adds to the natural parameters of the globals, {global site: sufficient statistics}."""
    on = model.active(size, capacity)
    return jax.grad(lambda m: batch_log_joint(model, m, batch, l, on))(dict(g))
