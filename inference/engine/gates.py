"""Elements of latent variables that exist only if an indicator says so (`Gate`), and their terms in bounds and draws.

An example is the level proportions of a path through a tree, which exist only if that path is chosen. Let c be the
indicator, θ a gated variable and z the indicators of its elements. Then q has factors given the indicator, q(c) q(θ |
c) q(z | c).

The gate γ_e of element e is an entry of the indicator c. The log-joint of a unit is Σ_e γ_e f_e(element) + the rest,
and the bound of that q is

    L = log_unit(E[t]) + Σ_gated γ_e · copies · H[q(e)] + Σ_other copies · H[q(e)].

Coordinate ascent on L has two kinds of steps. The natural parameter of a gated element is ∂f_e, the gradient at gate 1,
whatever q(c) is. The natural parameter of the indicator gains ∂/∂γ of the gated entropies. So q(c) ∝ p(c) exp(bound
given c), and the indicator is summed out exactly.

A Gibbs sampler keeps a value for the elements whose gate is 0 as well. There the gradient is 0, so they are drawn from
the family at natural parameter 0. This is a pseudo-prior, proper and of constant density exp(−A(0)) for the families
that may be gated. The posterior of all that exists does not depend on the pseudo-prior, provided that the indicator's
conditional counts it (Carlin & Chib 1995). An entry that is chosen spares its elements this density, so its log-odds
gain Σ copies · A(0), which is the entropy at natural parameter 0. So mean field and Gibbs share one formula.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.models.contract import Latents, Masks, Site, Statistics, Unit
from lvsearch.models.families import UnitCarrierFamily

LogJoint = Callable[[dict[str, Statistics]], Array]
"""A function of the statistics of one unit's sites whose gradient is taken; it returns a number in nats."""


def gate_of(site: Site, statistics: Latents, on: Masks) -> Array | None:
    """Return the gate of each element of a latent variable: the value of the indicator entry that lets the element
    exist.

    Local sites are the latent variables of one unit.

    site: the latent variable.
    statistics: {site: sufficient statistics} of all local sites of the unit, sampled or expected.
    on: {axis: mask of the entries that exist}.

    Returns: numbers in [0, 1], broadcastable to the elements, or None if the site has no gate and all elements exist.
    """
    return None if site.gate is None else site.gate.part(statistics[site.gate.site], on)


def site_entropy(
    site: Site, natural: Statistics, unit: Unit | None, on: Masks, gate: Array | None = None
) -> Float[Array, ""]:
    """Return the entropy Σ_element gate · copies · H[q(element)] of q over the existing elements of one site, (), in
    nats.

    Global sites are the latent variables that all units share.

    natural: natural parameters of q(site).
    unit: the unit whose numbers of copies count; None for a global site.
    on: {axis: mask of the entries that exist}.
    gate: the gate of each element (`gate_of`); None if there is none.
    """
    entropy = site.family.entropy(natural, site.event_mask(on))
    mask = site.element_mask(on, len(site.element_axes))
    if mask is not None:
        entropy = jnp.where(mask, entropy, 0)  # before the gate: of elements that do not exist it may be infinite
    if site.copies is not None:
        entropy = site.copies(unit) * entropy
    if gate is not None:
        entropy = gate * entropy
    return (entropy if mask is None else jnp.where(mask, entropy, 0)).sum()


def with_open_gate(site: Site, log_joint: LogJoint) -> LogJoint:
    """Return `log_joint` as it would be if all elements of `site` existed: with the gate of `site` set to 1.

    Its gradient is then the natural parameter of an element given that the element exists. If the site has no gate, the
    result is `log_joint` itself. A site is a latent variable of the model, or an array of them.

    log_joint: {site: sufficient statistics of one unit} -> a number in nats.
    """
    gate = site.gate
    return log_joint if gate is None else lambda l: log_joint({**l, gate.site: jnp.ones_like(l[gate.site])})


def with_gated_entropy(
    sites: Mapping[str, Site],
    name: str,
    log_joint: LogJoint,
    natural: Latents,
    unit: Unit,
    on: Masks,
) -> LogJoint:
    """Return `log_joint` plus the entropies of the elements that the entries of the indicator `name` let exist.

    The gradient of the sum at site `name` is the natural parameter of the indicator's factor of q. If the indicator
    gates no site, the result is `log_joint` itself. Local sites are the latent variables of one unit.

    sites: the local sites of the model, by name.
    name: the site of the indicator.
    log_joint: {site: sufficient statistics of one unit} -> a number in nats.
    natural: {site: natural parameters of q} of the gated sites, at which the entropies are taken.
    unit: the unit whose numbers of copies count.
    on: {axis: mask of the entries that exist}.
    """
    gated = [(n, site) for n, site in sites.items() if site.gate is not None and site.gate.site == name]
    if not gated:
        return log_joint

    def total(l: dict[str, Statistics]) -> Array:
        return log_joint(l) + sum(site_entropy(s, natural[n], unit, on, gate_of(s, l, on)) for n, s in gated)

    return total


def pseudo_prior(name: str, site: Site, statistics: Statistics) -> Statistics:
    """Return the natural parameters from which elements of a gated site are drawn while they do not exist: zeros.

    A site is a latent variable of the model, or an array of them.

    name: the name of the site, for the error message.
    statistics: the site's statistics, which give the shapes.

    Raises ValueError for a family without a constant density at natural parameter 0.
    """
    family = site.family
    proper = isinstance(family, UnitCarrierFamily)
    if proper:
        with jax.ensure_compile_time_eval():
            zero = family.zeros((2,) * family.event_ndim, np.float32)
            proper = bool(jnp.isfinite(family.log_normaliser(zero)).all())
    if not proper:
        raise ValueError(
            f"site {name!r} has a gate, and Gibbs sampling draws its elements at natural parameter 0 where they do not "
            f"exist: got {type(family).__name__}, expected a family with a constant density there, such as "
            "Categorical, Bernoulli, Dirichlet or Beta"
        )
    return jax.tree.map(jnp.zeros_like, statistics)
