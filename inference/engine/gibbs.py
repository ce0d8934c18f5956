"""Blocked Gibbs sampling from the gradient of the log-joint: the sampler for any model.

Source: Blei (2004), §2.2.1. The gradient of the log-joint at *sampled* statistics is the natural parameter of the
complete conditional. So a sweep is the mean-field sweep with sampled statistics instead of expected ones. An element of
c copies is c indicators with one conditional; their average is a multinomial of c divided by c. A site (latent
variable) whose elements interact is sampled one slice at a time. Elements whose gate is 0 do not exist. They are drawn
from a pseudo-prior, which the conditional of the indicator that gates them counts (`gates`).

Along a path π_t ∝ q^(1−t) p(·, data)^t (`Tilt`) a conditional has natural parameter (1 − t) · q's + t · the gradient.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.data.dataset import Batch
from lvsearch.inference.engine.gates import pseudo_prior, with_gated_entropy
from lvsearch.inference.engine.meanfield import complete_conditional, mask_elements, unit_masks
from lvsearch.models.contract import Latents, Masks, Model, Site, Statistics, Unit
from lvsearch.models.families import IndicatorFamily


class GibbsState(NamedTuple):
    """The sampled sufficient statistics of all latent variables.

    `globals`: {site: sufficient statistics} of the variables that all units share. `locals`: {site: sufficient
        statistics} of the units' own variables, for each batch, with units on the leading axis.
    """

    globals: dict[str, Statistics]
    locals: tuple[dict[str, Statistics], ...]


class Tilt(NamedTuple):
    """One distribution on the annealing path from q to the posterior, π_t ∝ q^(1−t) p(·, data)^t.

    Global sites are the latent variables that all units share, local sites those of one unit.

    | field | meaning |
    |---|---|
    | `temperature` | t: 0 is q, 1 is the posterior |
    | `globals` | natural parameters of q(globals), by site |
    | `locals` | natural parameters of q(locals), by site, for each batch |
    """

    temperature: Array
    globals: Latents
    locals: tuple[Latents, ...]


def conditional_draw(key: Array, site: Site, natural: Statistics, unit: Unit | None, on: Masks) -> Statistics:
    """Draw the statistics of a site from its exponential family, with 0 at elements that do not exist.

    Global sites are the latent variables that all units share.

    natural: natural parameters of the distribution to draw from.
    unit: the unit whose copies count; None for a global site. An element of c copies gets the average of c draws.
    on: {axis: mask of the entries that exist}.
    """
    event_mask = site.event_mask(on)
    if site.copies is None:
        sampled = site.family.sample(key, natural, event_mask)
    else:
        indicator = cast(IndicatorFamily, site.family)  # only an indicator can stand for several
        sampled = indicator.sample_counts(key, natural, site.copies(unit), event_mask)
    return mask_elements(site, sampled, on)


def _sample_site(
    key: Array,
    site: Site,
    name: str,
    state: dict[str, Statistics],
    log_joint: Any,
    unit: Unit | None,
    on: Masks,
    tilt: tuple[Array, Statistics] | None,
) -> dict[str, Statistics]:
    """Return `state` with one site drawn from its complete conditional, slice by slice if its elements interact.

    Global sites are the latent variables that all units share.

    site, name: the latent variable that is drawn, and its name.
    state: the statistics of all sites that `log_joint` reads, by name.
    log_joint: {site: sufficient statistics} -> a number in nats, whose gradient gives the conditional.
    unit: the unit whose copies count; None for a global site.
    on: {axis: mask of the entries that exist}.
    tilt: (temperature t, natural parameters of q of this site) on an annealing path. The conditional then has natural
        parameter (1 − t) · q's + t · the gradient. None samples the posterior.
    """

    def step(step_key: Array, s: dict[str, Statistics]) -> Statistics:
        """Return the whole site drawn anew, given the statistics of all sites."""
        gradient = jax.grad(lambda m: log_joint({**s, name: m}))(s[name])
        natural = complete_conditional(site, gradient, unit)
        if tilt is not None:
            t, reference = tilt
            natural = jax.tree.map(lambda q, p: (1 - t) * q + t * p, reference, natural)
        return conditional_draw(step_key, site, natural, unit, on)

    if site.slices is None:
        return {**state, name: step(key, state)}
    # draw the whole site given the rest as often as there are slices, and keep one slice each time
    axis = site.axes.index(site.slices)
    length = jax.tree.leaves(state[name])[0].shape[axis]

    def one_slice(index: Array, s: dict[str, Statistics]) -> dict[str, Statistics]:
        """Return the statistics with slice number `index` of the site drawn anew."""
        here = jnp.arange(length) == index

        def replace_slice(new: Array, old: Array) -> Array:
            return jnp.where(here.reshape([-1 if a == axis else 1 for a in range(new.ndim)]), new, old)

        return {**s, name: jax.tree.map(replace_slice, step(jax.random.fold_in(key, index), s), s[name])}

    return jax.lax.fori_loop(0, length, one_slice, state)


def sweep_state(
    model: Model,
    key: Array,
    state: GibbsState,
    batches: tuple[Batch, ...],
    unit_ids: tuple[Array | np.ndarray, ...],
    on: Masks,
    tilt: Tilt | None = None,
    *,
    fixed: frozenset[str] = frozenset(),
) -> GibbsState:
    """Return the state after one Gibbs sweep of all locals and then all globals. Call it inside a compiled function.

    Globals are the latent variables that all units share, locals those of one unit.

    state: the sampled statistics before the sweep.
    batches: the units of data.
    unit_ids: the number of each unit, (units,) for each batch.
    on: {axis: mask of the entries that exist}.
    tilt: the distribution on the path from q to the posterior that the sweep leaves invariant. None: the posterior.
    fixed: the names of latent variables that keep their values, so that all others are drawn given these.
    """
    key_locals, key_globals = jax.random.split(key)
    sites = model.locals()

    # Locals: units are independent given the globals.

    def one_unit(
        unit_key: Array, unit: Unit, l: dict[str, Statistics], reference: Latents | None
    ) -> dict[str, Statistics]:
        """Return the statistics of one unit's local sites, each drawn in turn given all else."""
        exists = unit_masks(model, unit, on)
        if fixed.issuperset(sites):
            return l
        absent = {n: pseudo_prior(n, site, l[n]) for n, site in sites.items() if site.gate is not None}

        def log_unit(m: dict[str, Statistics]) -> Array:
            return model.log_unit(state.globals, m, unit, exists)

        for position, (name, site) in enumerate(sites.items()):
            if name in fixed:
                continue
            site_key = jax.random.fold_in(unit_key, position)
            log_joint = with_gated_entropy(sites, name, log_unit, absent, unit, exists)
            own = None if tilt is None or reference is None else (tilt.temperature, reference[name])
            l = _sample_site(site_key, site, name, l, log_joint, unit, exists, own)
        return l

    sampled = []
    references = (None,) * len(batches) if tilt is None else tilt.locals
    for batch, ids, l, reference in zip(batches, unit_ids, state.locals, references, strict=True):
        keys = jax.vmap(lambda i: jax.random.fold_in(key_locals, i))(ids)
        sampled.append(jax.vmap(one_unit)(keys, batch.units, l, reference))

    # Globals, given all locals just drawn.
    def log_joint(g: Latents) -> Array:
        total = model.log_prior(g, on)
        for batch, l in zip(batches, sampled, strict=True):
            per_unit = jax.vmap(lambda unit, lu: model.log_unit(g, lu, unit, on))(batch.units, l)
            total = total + jnp.where(batch.weight > 0, batch.weight * per_unit, 0).sum()
        return total

    g = state.globals
    for position, (name, site) in enumerate(model.globals().items()):  # each given those drawn before it
        if name in fixed:
            continue
        own = None if tilt is None else (tilt.temperature, tilt.globals[name])
        g = _sample_site(jax.random.fold_in(key_globals, position), site, name, g, log_joint, None, on, own)
    return GibbsState(g, tuple(sampled))


def draw_unknown(
    model: Model,
    key: Array,
    state: GibbsState,
    batches: tuple[Batch, ...],
    unit_ids: tuple[Array | np.ndarray, ...],
    on: Masks,
    *,
    fixed: frozenset[str],
    steps: int,
) -> GibbsState:
    """Return a state whose other variables are drawn given those named in `fixed`, by Gibbs sweeps from `state`.

    Call it inside a compiled function. One step draws from the distribution itself where the other variables are
    independent of each other given the fixed ones.

    state: the fixed variables, and where the others begin; 0 will do.
    batches, unit_ids: the units of data, and the number of each.
    on: {axis: mask of the entries that exist}.
    """

    def step(number: Array, state: GibbsState) -> GibbsState:
        return sweep_state(model, jax.random.fold_in(key, number), state, batches, unit_ids, on, fixed=fixed)

    return jax.lax.fori_loop(0, steps, step, state)
