"""Mean field from the gradient of the log-joint: coordinate ascent for any model.

Source: Blei (2004), §2.2.2. The factorisation is q = Π_site Π_element q(element), with each factor in its site's
    family. One coordinate step sets (Eq. 2.18)

    natural parameter of q*(site) = ∂ log-joint / ∂ E[t(site)] / copies,     E[t(site)] ← ∇ log-normaliser,

which is exact coordinate ascent on the evidence lower bound

    L(q) = log_prior(E[t]) + H[globals] + Σ_u weight_u (log_unit(E[t]) + H[locals_u])  ≤  log p(data),    in nats.

A site whose elements interact (`Site.slices`) takes the step one slice at a time. All slices at once would not be
coordinate ascent. An element of c copies is one factor that stands for c equal ones, so its gradient is divided by c
and its entropy counts c times. Elements with a gate have factors given that they exist (`gates`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.gates import gate_of, site_entropy, with_gated_entropy, with_open_gate
from lvsearch.models.contract import Latents, Masks, Model, Site, Statistics, Unit
from lvsearch.models.kernels import kernel


class Beliefs(NamedTuple):
    """q of some latent variables, as {site: pytree shaped like the statistics of the site}.

    `natural`: the natural parameters of q. `mean`: the expected sufficient statistics E[t] under q.
    """

    natural: dict[str, Statistics]
    mean: dict[str, Statistics]


# ── one site ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _leading(values: Array, leaf: Array) -> Array:
    """Return `values` with axes of length 1 added at the end, so that they broadcast against `leaf`.

    values: one number per element, (elements…). leaf: statistics, (elements…, event…).
    """
    return values.reshape(values.shape + (1,) * (leaf.ndim - values.ndim))


def mask_elements(site: Site, statistics: Statistics, on: Masks) -> Statistics:
    """Return the statistics of a site with 0 at the elements that do not exist.

    A site is a latent variable of the model, or an array of them.

    statistics: the site's statistics, or other arrays of that shape.
    on: {axis: mask of the entries that exist}.
    """

    def masked(leaf: Array) -> Array:
        mask = site.element_mask(on, len(site.element_axes))
        return leaf if mask is None else jnp.where(_leading(mask, leaf), leaf, 0)

    return jax.tree.map(masked, statistics)


def complete_conditional(site: Site, gradient: Statistics, unit: Unit | None) -> Statistics:
    """Return the natural parameters of q*(site): the gradient of the log-joint, divided by the number of copies (Eq.
    2.18).

    Global sites are the latent variables that all units share.

    site: the latent variable. An element of it can stand for several equal copies, such as the tokens of one word.
    gradient: ∂ log-joint / ∂ E[t(site)].
    unit: the unit whose copies count; None for a global site.

    Returns: shaped like `gradient`; 0 at padding, where there are 0 copies.
    """
    if site.copies is None:
        return gradient
    copies = site.copies(unit)

    def per_copy(leaf: Array) -> Array:
        c = _leading(copies, leaf)
        return jnp.where(c > 0, leaf / jnp.where(c > 0, c, 1), 0)

    return jax.tree.map(per_copy, gradient)


def expected_statistics(site: Site, natural: Statistics, on: Masks) -> Statistics:
    """Return the expected sufficient statistics E[t] of a site, with 0 at elements that do not exist.

    A site is a latent variable of the model, or an array of them.

    natural: the natural parameters of the site's distribution.
    on: {axis: mask of the entries that exist}.
    """
    return mask_elements(site, site.family.mean(natural, site.event_mask(on)), on)


def sweep_site(site: Site, name: str, beliefs: Beliefs, log_joint: Any, unit: Unit | None, on: Masks) -> Beliefs:
    """Return `beliefs` after one coordinate step of one site, taken slice by slice if its elements interact.

    Global sites are the latent variables that all units share.

    site, name: the latent variable whose factor of q is updated, and its name.
    beliefs: q of all sites that `log_joint` reads.
    log_joint: {site: sufficient statistics} -> a number in nats, at the current values of everything else.
    unit: the unit whose copies count; None for a global site.
    on: {axis: mask of the entries that exist}.
    """

    def step(b: Beliefs) -> tuple[Statistics, Statistics]:
        """Return (natural parameters, expected statistics) of the whole site after the step."""
        gradient = jax.grad(lambda m: log_joint({**b.mean, name: m}))(b.mean[name])
        natural = complete_conditional(site, gradient, unit)
        return natural, expected_statistics(site, natural, on)

    if site.slices is None:
        natural, mean = step(beliefs)
        return Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})

    # update the whole site given the rest as often as there are slices, and keep one slice each time
    axis = site.axes.index(site.slices)
    length = jax.tree.leaves(beliefs.mean[name])[0].shape[axis]

    def one_slice(index: Array, b: Beliefs) -> Beliefs:
        """Return the beliefs with slice number `index` of the site updated."""
        here = jnp.arange(length) == index

        def replace_slice(new: Array, old: Array) -> Array:
            return jnp.where(here.reshape([-1 if a == axis else 1 for a in range(new.ndim)]), new, old)

        natural, mean = step(b)
        return Beliefs(
            {**b.natural, name: jax.tree.map(replace_slice, natural, b.natural[name])},
            {**b.mean, name: jax.tree.map(replace_slice, mean, b.mean[name])},
        )

    return jax.lax.fori_loop(0, length, one_slice, beliefs)


# ── one unit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def unit_masks(model: Model, unit: Unit, on: Masks) -> Masks:
    """Return {axis: mask of the entries that exist for one unit}: the masks of the size, and those of the unit's own
    axes.

    Entries of a unit's axis that only padding adds do not exist.

    on: the masks of the size axes.
    """
    return {**on, **{axis: extent for axis, extent in model.extents(unit).items() if not isinstance(extent, int)}}


def local_lengths(model: Model, unit: Unit, on: Masks) -> dict[str, int]:
    """Return the length of each axis that the unit's local sites may have, as {axis: length}.

    Local sites are the latent variables of one unit.

    on: the masks of the size axes.
    """
    extents = {**on, **model.extents(unit)}
    return {axis: extent if isinstance(extent, int) else len(extent) for axis, extent in extents.items()}


def sweep_unit(model: Model, g: Latents, unit: Unit, beliefs: Beliefs, on: Masks) -> Beliefs:
    """Return q(locals) of one unit after one coordinate step of each local site, in the model's order.

    Global sites are the latent variables that all units share, local sites those of one unit.

    g: {global site: expected sufficient statistics}.
    beliefs: q(locals) of the unit before.
    on: {axis: mask of the entries that exist}.
    """
    on, sites = unit_masks(model, unit, on), model.locals()

    def log_unit(l: dict[str, Statistics]) -> Array:
        return model.log_unit(g, l, unit, on)

    for name, site in sites.items():
        log_joint = with_open_gate(site, with_gated_entropy(sites, name, log_unit, beliefs.natural, unit, on))
        beliefs = sweep_site(site, name, beliefs, log_joint, unit, on)
    return beliefs


def unit_bound(model: Model, g: Latents, unit: Unit, beliefs: Beliefs, on: Masks) -> Float[Array, ""]:
    """Return one unit's part of the evidence bound: log_unit at expected statistics plus the entropy of q(locals), (),
    in nats.

    Global sites are the latent variables that all units share, local sites those of one unit.

    g: {global site: expected sufficient statistics}.
    beliefs: q(locals) of the unit.
    on: {axis: mask of the entries that exist}.
    """
    on = unit_masks(model, unit, on)
    natural, mean = beliefs
    entropy = sum(site_entropy(s, natural[n], unit, on, gate_of(s, mean, on)) for n, s in model.locals().items())
    return model.log_unit(g, beliefs.mean, unit, on) + entropy


# ── batches ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def sweep_units(model: Model, g: Latents, batch: Batch, beliefs: Beliefs, on: Masks) -> Beliefs:
    """Return q(locals) of every unit of a batch after one coordinate step of each local site.

    Global sites are the latent variables that all units share, local sites those of one unit.

    g: {global site: expected sufficient statistics}.
    beliefs: q(locals) before, units on the leading axis.
    on: {axis: mask of the entries that exist}.
    """
    return jax.vmap(lambda unit, b: sweep_unit(model, g, unit, b, on))(batch.units, beliefs)


def settle_units(
    model: Model,
    g: Latents,
    batch: Batch,
    start: Beliefs,
    on: Masks,
    sweeps: int | Array,
    tolerance: float | Array,
) -> Beliefs:
    """Return q(locals) of a batch after sweeps that end when no statistic moves by more than `tolerance`.

    It is plain JAX code for callers that are compiled; `fit_locals` is the compiled version. Global sites are the
    latent variables that all units share, local sites those of one unit.

    g: {global site: expected sufficient statistics}.
    start: q(locals) to begin with, units on the leading axis.
    on: {axis: mask of the entries that exist}.
    sweeps: the most sweeps to make.
    tolerance: in units of the statistics.
    """

    def body(carry: tuple[Array, Beliefs, Array]) -> tuple[Array, Beliefs, Array]:
        n, b, _ = carry
        new = sweep_units(model, g, batch, b, on)
        moved = [jnp.abs(x - y).max() for x, y in zip(jax.tree.leaves(new.mean), jax.tree.leaves(b.mean), strict=True)]
        return n + 1, new, jnp.stack(moved).max()

    first = (jnp.asarray(0), start, jnp.asarray(jnp.inf, jax.tree.leaves(start)[0].dtype))
    return jax.lax.while_loop(lambda c: (c[0] < sweeps) & (c[2] > tolerance), body, first)[1]


def unit_bounds(model: Model, g: Latents, batch: Batch, beliefs: Beliefs, on: Masks) -> Float[Array, " units"]:
    """Return the evidence bound of every unit of a batch given the globals, (units,), in nats, without weights; 0 for
    padding.

    Global sites are the latent variables that all units share, local sites those of one unit.

    g: {global site: expected sufficient statistics}.
    beliefs: q(locals) of the units, which are on the leading axis.
    on: {axis: mask of the entries that exist}.
    """
    per_unit = jax.vmap(lambda unit, b: unit_bound(model, g, unit, b, on))(batch.units, beliefs)
    return jnp.where(batch.weight > 0, per_unit, 0)


@kernel(static_argnames=("capacity", "sweeps"), brief=True)
@counted
def fit_locals(
    model: Model,
    g: Latents,
    batch: Batch,
    start: Beliefs,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
    sweeps: int,
    tolerance: float | Array = 0.0,
) -> Beliefs:
    """Fit q(locals) of a batch with the globals fixed, by coordinate ascent from `start`.

    Global sites are the latent variables that all units share, local sites those of one unit.

    g: {global site: expected statistics, or those of a point value}.
    start: q(locals) to begin with (`blank_locals` if nothing is known).
    size, capacity: how many components exist, and how many array slots there are for them.
    sweeps: the most sweeps to make.
    tolerance: it stops when no statistic moves by more than this.

    Returns: q(locals) of every unit, with units on the leading axis.
    """
    return settle_units(model, g, batch, start, model.active(size, capacity), sweeps, tolerance)


def batch_log_joint(model: Model, g: Latents, batch: Batch, l: dict[str, Statistics], on: Masks) -> Array:
    """Return Σ_u weight_u log p(locals_u, unit_u | globals) over the units u of a batch, (), in nats.

    Global sites are the latent variables that all units share, local sites those of one unit.

    g: {global site: sufficient statistics}.
    l: {local site: sufficient statistics of all units}, units on the leading axis.
    on: {axis: mask of the entries that exist}.
    """
    per_unit = jax.vmap(lambda unit, lu: model.log_unit(g, lu, unit, on))(batch.units, l)
    return jnp.where(batch.weight > 0, batch.weight * per_unit, 0).sum()


@kernel(static_argnames=("capacity",), brief=True)
@counted
def batch_bound(
    model: Model,
    g: Latents,
    batch: Batch,
    beliefs: Beliefs,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Float[Array, " units"]:
    """Return the evidence bound of each unit of a batch given the globals, (units,), in nats, without weights; 0 for
    padding.

    Global sites are the latent variables that all units share, local sites those of one unit.

    g: {global site: expected sufficient statistics}.
    beliefs: q(locals) of the units.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    return unit_bounds(model, g, batch, beliefs, model.active(size, capacity))


# ── globals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@kernel(static_argnames=("capacity",), brief=True)
@counted
def update_globals(
    model: Model,
    beliefs: Beliefs,
    statistics: dict[str, Statistics],
    size: tuple[Array | int, ...],
    rate: float | Array = 1.0,
    *,
    capacity: tuple[int, ...],
) -> Beliefs:
    """Return q(globals) with the natural parameters of each site set to the prior's gradient plus the statistics of
    batches.

    It is for models whose batch statistics do not depend on the globals that are updated. `resident_sweep` is for the
    others. Global sites are the latent variables that all units share.

    beliefs: q(globals) before.
    statistics: what every batch adds to the natural parameters, summed.
    size, capacity: how many components exist, and how many array slots there are for them.
    rate: 1 is the coordinate step (batch or memoized). A rate in (0, 1], with the statistics of a reweighted minibatch,
        is the stochastic natural-gradient step.
    """
    on = model.active(size, capacity)
    for name, site in model.globals().items():
        prior = jax.grad(lambda m, n=name, b=beliefs: model.log_prior({**b.mean, n: m}, on))(beliefs.mean[name])
        target = jax.tree.map(jnp.add, prior, statistics[name])
        natural = jax.tree.map(lambda old, new: (1 - rate) * old + rate * new, beliefs.natural[name], target)
        mean = expected_statistics(site, natural, on)
        beliefs = Beliefs({**beliefs.natural, name: natural}, {**beliefs.mean, name: mean})
    return beliefs


@kernel(static_argnames=("capacity",), brief=True)
@counted
def resident_sweep(
    model: Model,
    beliefs: Beliefs,
    batches: tuple[Batch, ...],
    l: tuple[dict[str, Statistics], ...],
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Beliefs:
    """Return q(globals) after one coordinate step of each global site, with all units at hand.

    Sites whose elements interact are updated slice by slice. Global sites are the latent variables that all units
    share, local sites those of one unit.

    beliefs: q(globals) before.
    l: {local site: expected sufficient statistics}, for each batch.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    on = model.active(size, capacity)

    def log_joint(g: dict[str, Statistics]) -> Array:
        parts = [batch_log_joint(model, g, batch, lb, on) for batch, lb in zip(batches, l, strict=True)]
        return model.log_prior(g, on) + sum(parts)

    for name, site in model.globals().items():
        beliefs = sweep_site(site, name, beliefs, log_joint, None, on)
    return beliefs


@kernel(static_argnames=("capacity",), brief=True)
@counted
def globals_bound(model: Model, beliefs: Beliefs, size: tuple[Array | int, ...], *, capacity: tuple[int, ...]) -> Array:
    """Return the globals' part of the evidence bound: log_prior at the expected statistics plus the entropy of q, in
    nats.

    Globals are the latent variables that all units share.

    beliefs: q(globals).
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    on = model.active(size, capacity)
    entropy = sum(site_entropy(s, beliefs.natural[n], None, on) for n, s in model.globals().items())
    return model.log_prior(beliefs.mean, on) + entropy


# ── the whole fit ───────────────────────────────────────────────────────────────────────────────────────────────────


LOCAL_TOLERANCE = 1e-6
"""The change of a unit's statistics below which its sweeps end. In float32, more sweeps would gain nothing."""


class MeanField(NamedTuple):
    """A mean-field fit: q of all latent variables, and the course of the evidence bound.

    | field | meaning |
    |---|---|
    | `beliefs` | q(globals), the variables that all units share |
    | `locals` | q(locals), the units' own variables, of each batch |
    | `trace` | the bound after every sweep, nats |
    | `converged` | True if the last sweep gained less than the tolerance |
    """

    beliefs: Beliefs
    locals: tuple[Beliefs, ...]
    trace: tuple[float, ...]
    converged: bool


def ascend(
    model: Model,
    data: Dataset,
    start: MeanField,
    size: tuple[int, ...],
    *,
    capacity: tuple[int, ...],
    sweeps: int = 200,
    local_sweeps: int = 20,
    tolerance: float = 1e-5,
) -> MeanField:
    """Fit all of q by coordinate ascent from `start`, until a sweep gains less than `tolerance` nats per unit of
    weight.

    A sweep fits the locals, then updates the globals, then computes the bound at the state so reached. Globals are the
    latent variables that all units share, locals those of one unit.

    size, capacity: how many components exist, and how many array slots there are for them.
    sweeps: the most sweeps over all data.
    local_sweeps: the most sweeps over the locals within one of them.
    tolerance: nats per unit of data; units count by their weights.
    """
    dtype = jax.tree.leaves(start.beliefs)[0].dtype
    batches = cast(data, dtype).batches
    beliefs, l, trace = start.beliefs, start.locals, list(start.trace)
    total_weight = sum(float(np.sum(batch.weight)) for batch in batches)
    converged = False
    for _ in range(sweeps):
        l = tuple(
            fit_locals(
                model,
                beliefs.mean,
                batch,
                lb,
                size,
                capacity=capacity,
                sweeps=local_sweeps,
                tolerance=LOCAL_TOLERANCE,
            )
            for batch, lb in zip(batches, l, strict=True)
        )
        beliefs = resident_sweep(model, beliefs, batches, tuple(b.mean for b in l), size, capacity=capacity)
        trace.append(bound(model, batches, beliefs, l, size, capacity=capacity))
        converged = len(trace) > 1 and abs(trace[-1] - trace[-2]) < tolerance * total_weight
        if converged:
            break
    return MeanField(beliefs, l, tuple(trace), converged)


def bound(
    model: Model,
    batches: tuple[Batch, ...],
    beliefs: Beliefs,
    l: tuple[Beliefs, ...],
    size: tuple[int, ...],
    *,
    capacity: tuple[int, ...],
) -> float:
    """Return the evidence lower bound at this q, in nats. The bounds of units are summed in float64.

    Globals are the latent variables that all units share, locals those of one unit.

    beliefs: q(globals).
    l: q(locals) of each batch.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    total = float(globals_bound(model, beliefs, size, capacity=capacity))
    for batch, lb in zip(batches, l, strict=True):
        per_unit = batch_bound(model, beliefs.mean, batch, lb, size, capacity=capacity)
        total += float(np.asarray(per_unit, np.float64) @ np.asarray(batch.weight, np.float64))
    return total


def cast(data: Dataset, dtype: Any) -> Dataset:
    """Return the data set with its floating-point arrays converted to `dtype`; whole numbers stay as they are."""

    def convert(leaf: np.ndarray) -> np.ndarray:
        return leaf.astype(dtype) if np.issubdtype(leaf.dtype, np.floating) else leaf

    return Dataset.of_batches(jax.tree.map(convert, data.batches), data.unit_ids, data.extents, data.n_units)
