"""Starts of mean field: blank statistics, or local variables that make components differ.

Local variables are random, but where units are rows, each row leans towards the nearest of some rows that are drawn. If
labels of rows are random, all components begin as a blur of all rows, nearly alike. Gaussians as wide as the data tell
rows apart so little that an ascent ends there: of two clusters, 60 rows each and six standard deviations apart, it
found none.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

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
from lvsearch.models.families import Categorical, IndicatorFamily
from lvsearch.models.kernels import kernel

START_ROUNDS = 3
"""The number of times that the globals are updated from the first locals.

At first all their numbers are 0, and a mean whose precision is 0 learns nothing from the rows. In the second round it
has a precision.
"""
TO_THE_NEAREST = 5.0
"""The natural parameter of the component towards which a row leans; that of the others is 0."""


def scattered_start(
    model: Model,
    key: Array,
    data: Dataset,
    size: tuple[int, ...],
    capacity: tuple[int, ...],
    dtype: Any = np.float32,
    leanings: Sequence[Array] | None = None,
) -> MeanField:
    """Return a start for `ascend`: the first q(locals), random unless `leanings` are given, and the q(globals) that
    follows from them.

    Globals are the latent variables that all units share, locals those of one unit.

    size, capacity: how many components exist, and how many array slots there are for them.
    dtype: the floating-point type of all numbers.
    leanings: for each batch, natural parameters of the units' components to begin with, (unit, component), instead of
        random ones (`leanings_to_nearest`).
    """
    blank = blank_globals(model, data.extents, size, capacity, dtype)
    batches = cast(data, dtype).batches
    each = [None] * len(batches) if leanings is None else leanings
    scattered = tuple(
        scattered_locals(model, key, blank.mean, batch, ids, size, leaning, capacity=capacity)
        for batch, ids, leaning in zip(batches, data.unit_ids, each, strict=True)
    )
    l, beliefs = tuple(b.mean for b in scattered), blank
    for _ in range(START_ROUNDS):
        beliefs = resident_sweep(model, beliefs, batches, l, size, capacity=capacity)
    return MeanField(beliefs, scattered, (), False)


def leanings_to_nearest(
    key: Array, batches: Sequence[Batch], size: tuple[Any, ...], capacity: tuple[int, ...]
) -> tuple[Array, ...] | None:
    """Return natural parameters with which each row leans towards the nearest of as many rows as there are components.

    These rows are drawn far apart from each other: the first one at random, and each further one with a probability in
    proportion to its squared distance to the nearest one drawn before. Distances are in standard deviations of the
    columns, and missing cells count as the column's mean. A unit is a row if it has one array of real numbers, with one
    axis or none, and otherwise only arrays of truth values of the same shape, which are False where a cell is missing.

    key: the random key of the draw.
    batches: all units.
    size, capacity: how many components exist, and how many array slots there are for them.

    Returns: an array (unit, component) for each batch, 0 for padding; None if units are no rows, or if the model has
        more than one size.

    Source: Arthur & Vassilvitskii 2007 (k-means++).
    """
    leaves = [jax.tree.leaves(batch.units) for batch in batches]
    if len(size) != 1 or not batches or not all(_are_rows(each) for each in leaves):
        return None
    cells = [_cells_and_seen(each) for each in leaves]
    values, seen, weight = (
        jnp.concatenate(parts)
        for parts in (*zip(*cells, strict=True), [jnp.asarray(batch.weight) for batch in batches])
    )
    leanings = _leanings_to_nearest(key, values, seen, weight, size[0], capacity=capacity[0])
    return tuple(jnp.split(leanings, np.cumsum([len(batch.weight) for batch in batches])[:-1]))


@kernel(static_argnames=("capacity",), brief=True)
@counted
def _leanings_to_nearest(
    key: Array,
    values: Float[Array, "unit dim"],
    seen: Bool[Array, "unit dim"],
    weight: Float[Array, " unit"],
    size: Array | int,
    *,
    capacity: int,
) -> Float[Array, "unit component"]:
    """Return `leanings_to_nearest` of rows whose cells are known where `seen` is True; weight: 0 for padding."""
    real = weight > 0
    seen = seen & real[:, None]
    count = jnp.maximum(seen.sum(0), 1)
    centred = jnp.where(seen, values - jnp.where(seen, values, 0.0).sum(0) / count, 0.0)
    deviation = jnp.sqrt((centred**2).sum(0) / count)
    standard = centred / jnp.where(deviation > 0, deviation, 1.0)

    def draw_row(group: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        """Draw one more row, and let the rows that are nearer to it than to those before lean towards it."""
        label, square = carry
        share = jnp.cumsum(jnp.where(real, jnp.where(group == 0, 1.0, square), 0.0))
        level = jax.random.uniform(jax.random.fold_in(key, group), (), share.dtype) * share[-1]
        chosen = jnp.minimum((share <= level).sum(), len(share) - 1)
        new = ((standard - standard[chosen]) ** 2).sum(1)
        nearer = (new < square) & (group < size)
        return jnp.where(nearer, group, label), jnp.where(nearer, new, square)

    nothing = jnp.zeros(len(weight), jnp.int32), jnp.full(len(weight), jnp.inf, standard.dtype)
    label, _ = jax.lax.fori_loop(0, capacity, draw_row, nothing)
    leans = real[:, None] & (label[:, None] == jnp.arange(capacity))
    return jnp.where(leans, TO_THE_NEAREST, 0.0).astype(standard.dtype)


def _are_rows(leaves: Sequence[Any]) -> bool:
    """Return True if units, whose arrays have a leading axis (unit,), are rows as `leanings_to_nearest` says."""
    kinds, shapes = sorted(np.dtype(leaf.dtype).kind for leaf in leaves), {np.shape(leaf) for leaf in leaves}
    return kinds.count("f") == 1 and set(kinds) <= {"b", "f"} and len(shapes) == 1 and len(min(shapes)) < 3


def _cells_and_seen(leaves: Sequence[Any]) -> tuple[Array, Array]:
    """Return the real numbers of units that are rows, and whether each is known, both (unit, dim)."""
    (values,) = (jnp.asarray(leaf) for leaf in leaves if np.dtype(leaf.dtype).kind == "f")
    seen = jnp.ones(values.shape, bool)
    for leaf in leaves:
        seen = seen & leaf if np.dtype(leaf.dtype).kind == "b" else seen
    return values.reshape(len(values), -1), seen.reshape(len(values), -1)


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
    leaning: Array | None = None,
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
    leaning: natural parameters of the units' components, (unit, component), which are taken instead of random ones.
    sharpness: the standard deviation of the random natural parameters.
    """
    on = model.active(size, capacity)
    dtype = jax.tree.leaves(blank_g)[0].dtype
    g = _scales_at_their_prior(model, blank_g, on)

    def one(unit: Unit, unit_id: Any, toward: Array | None) -> Beliefs:
        """Return the first q(locals) of one unit."""
        exists = unit_masks(model, unit, on)
        beliefs = blank_unit(model, unit, on, dtype)
        unit_key = jax.random.fold_in(key, unit_id)
        # indicators first, at random, then what follows from them
        for position, (name, site) in enumerate(model.locals().items()):
            if isinstance(site.family, IndicatorFamily):
                site_key = jax.random.fold_in(unit_key, position)
                blank = beliefs.mean[name]
                if toward is not None and isinstance(site.family, Categorical) and blank.shape[-1:] == toward.shape:
                    natural = jnp.broadcast_to(toward, blank.shape)
                else:
                    natural = jax.tree.map(partial(_leaning, site_key, site, sharpness), beliefs.mean[name])
                mean = expected_statistics(site, natural, exists)
                beliefs = Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})
        for name, site in model.locals().items():
            if not isinstance(site.family, IndicatorFamily):
                log_joint = with_open_gate(site, lambda l: model.log_unit(g, l, unit, exists))
                beliefs = sweep_site(site, name, beliefs, log_joint, unit, exists)
        return beliefs

    return jax.vmap(one)(batch.units, unit_ids, leaning)


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
