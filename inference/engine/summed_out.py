"""Indicators summed out exactly.

The log-joint is linear in an indicator. So the sum over its values is Σ_element copies · log Σ_k exp(natural_k), with
the natural parameters taken at z = 0 (Blei 2004, Eq. 2.18 read as a complete conditional):

    log Σ_z exp log_unit(z) = log_unit(z = 0) + Σ_element copies · log-normaliser(natural),    q(z) = p(z | all else).

This holds only for indicators that do not interact with each other, inside one site or across sites. The term of an
element with a gate is multiplied by the gate, at the given value of the indicator that is the gate.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from lvsearch.inference.engine.gates import gate_of
from lvsearch.inference.engine.meanfield import complete_conditional, expected_statistics, unit_masks
from lvsearch.models.contract import Latents, Masks, Model, Statistics, Unit
from lvsearch.models.families import IndicatorFamily


def log_unit_summed(
    model: Model,
    g: Latents,
    l: Latents,
    unit: Unit,
    on: Masks,
    summed: tuple[str, ...],
) -> tuple[Float[Array, ""], dict[str, Statistics]]:
    """Return log Σ exp(log_unit) over the values of some indicators of one unit, and the indicators' conditional means.

    Global sites are the latent variables that all units share, local sites those of one unit.

    g: {global site: sufficient statistics}.
    l: {local site: sufficient statistics} of the other local sites, and arrays of the right shape (any value) for those
        in `summed`.
    on: {axis: mask of the entries that exist}.
    summed: names of local sites to sum out.

    Returns: (the log of the sum in nats, {name: the mean of its complete conditional} for the sites in `summed`).

    Raises ValueError for a site that is not an indicator, whose elements interact, or whose gate is summed out too.
    """
    sites = model.locals()
    on = unit_masks(model, unit, on)
    for name in summed:
        if not isinstance(sites[name].family, IndicatorFamily) or sites[name].slices is not None:
            raise ValueError(
                f"cannot sum out {name!r}: got family {type(sites[name].family).__name__} with slices "
                f"{sites[name].slices!r}, expected an indicator whose elements do not interact; use mean field or Gibbs"
            )
        gate = sites[name].gate
        if gate is not None and gate.site in summed:
            raise ValueError(
                f"cannot sum out {name!r} together with {gate.site!r}, which decides where it exists; use mean field "
                "or Gibbs, or give a value for one of the two"
            )
    # log_unit at z = 0, to which each indicator adds its copies · log-normaliser (the module's equation)
    zeros = {**l, **{name: jax.tree.map(jnp.zeros_like, l[name]) for name in summed}}
    total = model.log_unit(g, zeros, unit, on)
    means = {}
    for name in summed:
        site = sites[name]
        gradient = jax.grad(lambda m, n=name: model.log_unit(g, {**zeros, n: m}, unit, on))(zeros[name])
        natural = complete_conditional(site, gradient, unit)
        log_sum = site.family.log_normaliser(natural, site.event_mask(on))  # log Σ_k exp(natural_k) of each element
        copies = 1.0 if site.copies is None else site.copies(unit)
        gate = gate_of(site, l, on)
        mask = site.element_mask(on, len(site.element_axes))
        weighted = copies * log_sum if gate is None else gate * copies * log_sum
        total = total + (weighted if mask is None else jnp.where(mask, weighted, 0)).sum()
        means[name] = expected_statistics(site, natural, on)
    return total, means
