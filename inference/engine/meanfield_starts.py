"""Where mean field begins: nothing known, or locals scattered about so that components differ."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.gates import given_chosen
from lvsearch.inference.engine.meanfield import (
    Beliefs,
    MeanField,
    cast,
    expected_statistics,
    local_lengths,
    resident_sweep,
    sweep_site,
    within,
)
from lvsearch.models.contract import Masks, Model, Site, Statistics, Unit
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.kernels import kernel


def scattered_start(
    model: Model, key: Array, data: Dataset, size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any = np.float32
) -> MeanField:
    """A start for `ascend`: scattered locals, and the globals that follow from them."""
    blank = blank_globals(model, data.extents, size, capacity, dtype)
    batches = cast(data, dtype).batches
    scattered = tuple(
        scattered_locals(model, key, blank.mean, batch, ids, size, capacity=capacity)
        for batch, ids in zip(batches, data.unit_ids, strict=True)
    )
    l = tuple(b.mean for b in scattered)
    beliefs = resident_sweep(model, blank, batches, l, size, capacity=capacity)
    return MeanField(beliefs, scattered, (), False)


def blank_globals(
    model: Model, extents: Mapping[str, int], size: tuple[Any, ...], capacity: tuple[int, ...], dtype: Any = np.float32
) -> Beliefs:
    """Zero statistics of the globals: the value that contributes nothing to a multilinear log-joint."""
    lengths = {**{axis: mask.shape[0] for axis, mask in model.active(size, capacity).items()}, **extents}
    shapes = jax.eval_shape(lambda: _blank(model.globals(), lengths, dtype))
    return jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype)), shapes)  # no program of its own


def _blank(sites: Mapping[str, Site], lengths: Mapping[str, int], dtype: Any) -> Beliefs:
    zeros = {n: s.family.zeros(tuple(lengths[axis] for axis in s.axes), dtype) for n, s in sites.items()}
    return Beliefs(dict(zeros), dict(zeros))


@kernel(static_argnames=("capacity",), brief=True)
@counted
def blank_locals(model: Model, batch: Batch, size: tuple[Array | int, ...], *, capacity: tuple[int, ...]) -> Beliefs:
    """Zero statistics for every unit of a batch: where `fit_locals` starts when nothing better is known."""
    on = model.active(size, capacity)
    dtype = jnp.asarray(batch.weight).dtype
    return jax.vmap(lambda unit: blank_unit(model, unit, on, dtype))(batch.units)


def blank_unit(model: Model, unit: Unit, on: Masks, dtype: Any) -> Beliefs:
    """Zero statistics for the locals of one unit."""
    return _blank(model.locals(), local_lengths(model, unit, on), dtype)


@kernel(static_argnames=("capacity",), brief=True)
@counted
def scattered_locals(
    model: Model,
    key: Array,
    blank_g: dict[str, Statistics],
    batch: Batch,
    unit_ids: Array | np.ndarray,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
    sharpness: float = 3.0,
) -> Beliefs:
    """Locals that break the symmetry between components: topics started from documents (Blei §3.6).

    All indicators of a unit lean towards the same randomly chosen components (natural parameters sharpness · N(0, 1)),
    so that components start from whole units, not from a blur of all; the other sites follow by a coordinate step. Keys
    are folded with the unit's id: the same draw whatever the batch.
    """
    on = model.active(size, capacity)
    dtype = jax.tree.leaves(blank_g)[0].dtype
    g = _scales_at_their_prior(model, blank_g, on)

    def one(unit: Unit, unit_id: Any) -> Beliefs:
        exists = within(model, unit, on)
        beliefs = blank_unit(model, unit, on, dtype)
        unit_key = jax.random.fold_in(key, unit_id)
        for position, (name, site) in enumerate(model.locals().items()):
            if isinstance(site.family, IndicatorFamily):
                site_key = jax.random.fold_in(unit_key, position)
                natural = jax.tree.map(partial(_leaning, site_key, site, sharpness), beliefs.mean[name])
                mean = expected_statistics(site, natural, exists)
                beliefs = Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})
        for name, site in model.locals().items():
            if not isinstance(site.family, IndicatorFamily):
                log_joint = given_chosen(site, lambda l: model.log_unit(g, l, unit, exists))
                beliefs = sweep_site(site, name, beliefs, log_joint, unit, exists)
        return beliefs

    return jax.vmap(one)(batch.units, unit_ids)


def _leaning(key: Array, site: Site, sharpness: float, leaf: Array) -> Array:
    """One random event for all elements."""
    event = leaf.shape[len(site.element_axes) :] or leaf.shape[-1:]
    return jnp.broadcast_to(sharpness * jax.random.normal(key, event, leaf.dtype), leaf.shape)


def _scales_at_their_prior(model: Model, blank_g: Mapping[str, Statistics], on: Masks) -> dict[str, Statistics]:
    """Sites without axes, which are hyper-parameters, at what `log_prior` alone says: a scale of 0 is not one."""
    g = dict(blank_g)
    for name, site in model.globals().items():
        if not site.axes:
            natural = jax.grad(lambda m, n=name: model.log_prior({**blank_g, n: m}, on))(blank_g[name])
            g[name] = expected_statistics(site, natural, on)
    return g
