"""Starts of mean field: blank statistics, or random local variables that make components differ."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.gates import with_open_gate
from lvsearch.inference.engine.meanfield import (
    Beliefs,
    MeanField,
    cast,
    expected_statistics,
    local_lengths,
    resident_sweep,
    sweep_site,
    unit_masks,
)
from lvsearch.models.contract import Latents, Masks, Model, Site, Statistics, Unit
from lvsearch.models.families import IndicatorFamily
from lvsearch.models.kernels import kernel


def scattered_start(
    model: Model, key: Array, data: Dataset, size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any = np.float32
) -> MeanField:
    """Return a random start for `ascend`: random q(locals), and the q(globals) that follows from them.

    Globals are the latent variables that all units share, locals those of one unit.

    size, capacity: how many components exist, and how many array slots there are for them.
    dtype: the floating-point type of all numbers.
    """
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
    """Return q(globals) with all numbers 0, the value that adds nothing to a multilinear log-joint.

    Globals are the latent variables that all units share.

    extents: lengths of the axes of the globals that are not size axes, such as {"word": number of words}.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    lengths = {**{axis: mask.shape[0] for axis, mask in model.active(size, capacity).items()}, **extents}
    shapes = jax.eval_shape(lambda: _blank(model.globals(), lengths, dtype))
    return jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype)), shapes)  # no program of its own


def _blank(sites: Mapping[str, Site], lengths: Mapping[str, int], dtype: Any) -> Beliefs:
    """Return q with zeros for natural parameters and expected statistics of every site.

    sites: the latent variables, by name.
    lengths: {axis: length}, for all axes of the sites.
    """
    zeros = {n: s.family.zeros(tuple(lengths[axis] for axis in s.axes), dtype) for n, s in sites.items()}
    return Beliefs(dict(zeros), dict(zeros))


@kernel(static_argnames=("capacity",), brief=True)
@counted
def blank_locals(model: Model, batch: Batch, size: tuple[Array | int, ...], *, capacity: tuple[int, ...]) -> Beliefs:
    """Return q(locals) with all numbers 0 for every unit of a batch, units on the leading axis.

    `fit_locals` starts from it when nothing better is known. Locals are the latent variables of one unit.

    size, capacity: how many components exist, and how many array slots there are for them.
    """
    on = model.active(size, capacity)
    dtype = jnp.asarray(batch.weight).dtype
    return jax.vmap(lambda unit: blank_unit(model, unit, on, dtype))(batch.units)


def blank_unit(model: Model, unit: Unit, on: Masks, dtype: Any) -> Beliefs:
    """Return q(locals) of one unit with all numbers 0.

    Locals are the latent variables of one unit.

    on: {axis: mask of the entries that exist}, by which the lengths of axes are known.
    """
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
    """Return random q(locals) of a batch that break the symmetry between components (Blei 2004, §3.6).

    All indicators of a unit lean towards the same randomly chosen components, with natural parameters `sharpness` ·
    N(0, 1). So components start from whole units, not from a blur of all units. The other sites follow by one
    coordinate step. Global sites are the latent variables that all units share, local sites those of one unit.

    blank_g: zero statistics of the globals (`blank_globals`).
    unit_ids: the number of each unit, (units,). Keys are folded with it, so that a unit's draw does not depend on its
        batch.
    size, capacity: how many components exist, and how many array slots there are for them.
    sharpness: the standard deviation of the random natural parameters.
    """
    on = model.active(size, capacity)
    dtype = jax.tree.leaves(blank_g)[0].dtype
    g = _scales_at_their_prior(model, blank_g, on)

    def one(unit: Unit, unit_id: Any) -> Beliefs:
        """Return random q(locals) of one unit."""
        exists = unit_masks(model, unit, on)
        beliefs = blank_unit(model, unit, on, dtype)
        unit_key = jax.random.fold_in(key, unit_id)
        # indicators first, at random, then what follows from them
        for position, (name, site) in enumerate(model.locals().items()):
            if isinstance(site.family, IndicatorFamily):
                site_key = jax.random.fold_in(unit_key, position)
                natural = jax.tree.map(partial(_leaning, site_key, site, sharpness), beliefs.mean[name])
                mean = expected_statistics(site, natural, exists)
                beliefs = Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})
        for name, site in model.locals().items():
            if not isinstance(site.family, IndicatorFamily):
                log_joint = with_open_gate(site, lambda l: model.log_unit(g, l, unit, exists))
                beliefs = sweep_site(site, name, beliefs, log_joint, unit, exists)
        return beliefs

    return jax.vmap(one)(batch.units, unit_ids)


def _leaning(key: Array, site: Site, sharpness: float, leaf: Array) -> Array:
    """Return random natural parameters shaped like `leaf`, with the same random event for all elements of the site.

    A site is a latent variable of the model, or an array of them.

    leaf: one array of the site's statistics, (elements…, event…).
    sharpness: the standard deviation of the random numbers.
    """
    event = leaf.shape[len(site.element_axes) :] or leaf.shape[-1:]
    return jnp.broadcast_to(sharpness * jax.random.normal(key, event, leaf.dtype), leaf.shape)


def _scales_at_their_prior(model: Model, blank_g: Latents, on: Masks) -> dict[str, Statistics]:
    """Return `blank_g` with those sites that have no axes, such as scales, at their expectation under `log_prior`
    alone.

    A scale cannot be 0, and all other sites stay 0. Global sites are the latent variables that all units share.

    blank_g: {global site: zero statistics}.
    on: {axis: mask of the entries that exist}.
    """
    g = dict(blank_g)
    for name, site in model.globals().items():
        if not site.axes:
            natural = jax.grad(lambda m, n=name: model.log_prior({**blank_g, n: m}, on))(blank_g[name])
            g[name] = expected_statistics(site, natural, on)
    return g
