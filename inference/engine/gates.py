"""Elements that exist only if an indicator says so (`Gate`): they have factors given the indicator, q(c) q(θ | c) q(z |
c).

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

from lvsearch.models.contract import Masks, Site, Statistics, Unit
from lvsearch.models.families import UnitCarrierFamily

LogJoint = Callable[[dict[str, Statistics]], Array]
"""A function of the statistics of one unit's sites whose gradient is taken; it returns a number in nats."""


def gate_of(site: Site, statistics: Mapping[str, Statistics], on: Masks) -> Array | None:
    """Return the gate of each element of `site`: the value of the indicator entry that lets the element exist.

    statistics: the statistics of all sites of the unit by name, sampled or expected.

    Returns: numbers in [0, 1], broadcastable to the elements, or None if the site has no gate and all elements exist.
    """
    return None if site.gate is None else site.gate.part(statistics[site.gate.site], on)


def site_entropy(
    site: Site, natural: Statistics, unit: Unit | None, on: Masks, gate: Array | None = None
) -> Float[Array, ""]:
    """Return Σ_element gate · copies · H[q(element)] over the elements of one site that exist, in nats.

    natural: natural parameters of q(site).
    unit: the unit whose copies count; None for a global site.
    on: the masks of existing entries.
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
    """Return `log_joint` with the gate of `site` set to 1.

    Its gradient is then the natural parameter of an element given that the element exists. Without a gate it is
    `log_joint` itself.
    """
    gate = site.gate
    return log_joint if gate is None else lambda l: log_joint({**l, gate.site: jnp.ones_like(l[gate.site])})


def with_gated_entropy(
    sites: Mapping[str, Site],
    name: str,
    log_joint: LogJoint,
    natural: Mapping[str, Statistics],
    unit: Unit,
    on: Masks,
) -> LogJoint:
    """Return `log_joint` plus the entropies of the elements that the entries of site `name` let exist.

    Its gradient at site `name` is the natural parameter of the indicator in the presence of gated elements (see the
    module). If no site is gated by `name`, it is `log_joint` itself.

    natural: natural parameters of q of the gated sites, at which the entropies are taken.
    """
    gated = [(n, site) for n, site in sites.items() if site.gate is not None and site.gate.site == name]
    if not gated:
        return log_joint

    def total(l: dict[str, Statistics]) -> Array:
        return log_joint(l) + sum(site_entropy(s, natural[n], unit, on, gate_of(s, l, on)) for n, s in gated)

    return total


def pseudo_prior(name: str, site: Site, statistics: Statistics) -> Statistics:
    """Return the natural parameters of elements of a gated site that do not exist: zeros, shaped like `statistics`.

    name: the name of the site, for the error message.

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
