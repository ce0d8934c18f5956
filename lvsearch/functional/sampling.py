"""Pure functions to sample from a posterior: Gibbs sampling, the density for NUTS, and annealed evidence.

`gibbs` is the generic sampler of one chain. Use `vmap` over keys and states for several chains. Source: Blei (2004),
§2.2.1. `lvsearch.inference.engine.gibbs` says which conditionals are drawn from.

`log_density` is the posterior as a density on unconstrained reals, with indicators summed out, for NUTS of NumPyro,
blackjax or others. `lvsearch.inference.engine.reference` says how values become statistics.

`annealed_evidence` follows the generic annealing path from the priors to the posterior, and back.
`lvsearch.inference.annealing.generic` and `.particles` say what is exact and what is assumed. Its derivatives follow
from the draws at the end of the path: Louis (1982), *Finding the observed information matrix when using the EM
algorithm*.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.functional.batches import Places, checked_places, require_extents
from lvsearch.inference.annealing.generic import chain_from_priors
from lvsearch.inference.annealing.particles import traced_both_ways
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.gibbs import GibbsState, sweep_state
from lvsearch.inference.engine.meanfield import batch_log_joint
from lvsearch.models.contract import Model
from lvsearch.models.kernels import copies_arrays, full_precision


@dataclass(frozen=True)
class GibbsFunctions:
    """Pure functions of Gibbs sampling at one size.

    `places`: the size (may be traced), the capacity (the number of array slots for components), and the lengths of
        axes.

    A state of the chain is the sampled sufficient statistics of all latent variables (`lvsearch.models.families`).
    Local ones are grouped by batch, of which there is one.
    """

    places: Places

    @copies_arrays
    @full_precision
    def init(self, model: Model, key: Key[Array, ""], batch: Batch) -> GibbsState:
        """Draw a first state of the chain: latent variables are independent, and distributed roughly as their priors
        say.

        model: the model. key: the random key. batch: the data.

        Raises ValueError for axes without a length, for models with elements that exist only on a chosen path, and for
        point estimates.
        """
        require_extents(model, self.places)
        size, capacity, extents = self.places
        chain = chain_from_priors(model, (batch,), (jnp.arange(len(batch.weight)),), extents, size, capacity)
        return jax.tree.map(lambda leaf: leaf[0], chain.init(key, 1))

    @copies_arrays
    @full_precision
    def step(self, model: Model, key: Key[Array, ""], state: GibbsState, batch: Batch) -> GibbsState:
        """Draw all local latent variables, then all shared ones, each from its complete conditional; return the new
        state.

        model: the model. key: the random key. state: the present state. batch: the data.

        The step leaves the posterior invariant.
        """
        on = model.active(self.places.size, self.places.capacity)
        new = sweep_state(model, key, state, (batch,), (jnp.arange(len(batch.weight)),), on)
        return jax.tree.map(lambda a, b: a.astype(b.dtype), new, state)

    @copies_arrays
    @full_precision
    def log_joint(self, model: Model, state: GibbsState, batch: Batch) -> Float[Array, ""]:
        """Return log p(state, data | size) in nats.

        model: the model. state: the state of the chain. batch: the data.
        """
        on = model.active(self.places.size, self.places.capacity)
        return model.log_prior(state.globals, on) + batch_log_joint(model, state.globals, batch, state.locals[0], on)


def gibbs(size: Any, extents: Mapping[str, int] | None = None, *, capacity: Any = None) -> GibbsFunctions:
    """Return pure functions for Gibbs sampling of any model at one size.

    size: a number, or one for each size variable; may be traced if `capacity` is given.
    extents: {axis: length} of the axes that the data decide; `batch_of` returns them.
    capacity: the largest size, a number or one for each size variable; by default `size`.

    Raises ValueError for sizes that are not positive or above the capacity.
    """
    return GibbsFunctions(checked_places(size, extents, capacity))


Position = dict[str, Array]
"""{name of a latent variable: its value on unconstrained reals}. Local variables are called "name/0"."""


class Density(NamedTuple):
    r"""The log-density of a posterior on unconstrained reals, and functions to make and to read positions.

    | field | meaning |
    |---|---|
    | `log_density` | position -> log p(data, θ \| size) with the Jacobian of the coordinates, nats, () |
    | `init` | key -> a position, uniform on (−2, 2) in each coordinate |
    | `constrain` | position -> values on their natural scale: probabilities, means, precisions |
    """

    log_density: Callable[[Position], Float[Array, ""]]
    init: Callable[[Key[Array, ""]], Position]
    constrain: Callable[[Position], dict[str, Array]]


def log_density(model: Model, size: Any, batch: Batch, extents: Mapping[str, int] | None = None) -> Density:
    """Return the density of the posterior of the model's continuous latent variables at one size, in nats.

    model: the model.
    size: a number, or one for each size variable.
    batch: the data; units (observations) count by their weight.
    extents: {axis: length} of the axes that the data decide; `batch_of` returns them.

    Raises ValueError for point estimates, which have no posterior, for indicators that cannot be summed out, and for
    axes without a length.
    """
    # NumPyro takes most of a second to import, and nothing else here needs it
    from numpyro import handlers
    from numpyro.distributions import biject_to
    from numpyro.infer import init_to_uniform
    from numpyro.infer.util import constrain_fn, potential_energy

    from lvsearch.inference.engine.reference import reference_model

    places = checked_places(size, extents, None)
    require_extents(model, places)
    n_units = len(batch.weight)
    numpyro_model = reference_model(
        model, Dataset.of_batches((batch,), (np.arange(n_units),), places.extents, n_units), places.size
    )

    def log_density_at(position: Position) -> Float[Array, ""]:
        return -jnp.asarray(potential_energy(numpyro_model, (), {}, position))

    def init(key: Key[Array, ""]) -> Position:
        seeded = handlers.substitute(handlers.seed(numpyro_model, key), substitute_fn=init_to_uniform)
        drawn = handlers.trace(seeded).get_trace()
        sites = {name: site for name, site in drawn.items() if site["type"] == "sample" and not site["is_observed"]}
        return {name: biject_to(site["fn"].support).inv(site["value"]) for name, site in sites.items()}

    def constrain(position: Position) -> dict[str, Array]:
        return constrain_fn(numpyro_model, (), {}, position)

    return Density(log_density_at, init, constrain)


class EvidenceEnds(NamedTuple):
    """Estimates of log p(data | size) from both sides, in nats, each of shape (island,): one number per particle group.

    | field | meaning |
    |---|---|
    | `forward` | from the prior to the posterior; low on average |
    | `backward` | from the posterior to the prior; high on average, if the forward paths ended in posterior draws |
    """

    forward: Float[Array, " island"]
    backward: Float[Array, " island"]


@copies_arrays
@full_precision
def annealed_evidence(
    model: Model,
    key: Key[Array, ""],
    batch: Batch,
    *,
    size: Any,
    extents: Mapping[str, int] | None = None,
    capacity: Any = None,
    steps: int = 64,
    islands: int = 2,
    particles: int = 16,
) -> EvidenceEnds:
    """Return estimates of log p(data | size) by annealing, one low on average, the other high on average, in nats.

    model: the model. key: the random key. batch: the data; units (observations) count by their weight.
    size: a number, or one for each size variable; may be traced if `capacity` is given.
    extents: {axis: length} of the axes that the data decide; `batch_of` returns them.
    capacity: the largest size, a number or one for each size variable; by default `size`.
    steps: the number n of temperatures t = (i / n)³, which are densest near the prior.
    islands: the number of particle groups; particles resample within their group.
    particles: the number of particles in each group.

    It works for any model without elements that exist only on a chosen path. It is slower than the paths that
    `lv.search` has for lvsearch's own models, and its length is fixed. Ends far apart show that a path is too short.
    Ends close together do not prove that it is long enough: the second is high on average only if the forward paths
    reached the posterior. In float32 (outside of `jax.enable_x64`) sums of thousands of nats lose tenths.

    Derivatives with respect to the model and the batch, of any order and in both modes, are estimates of those of
    log p(data | size), from the particles at the end of the forward paths. The first is the mean slope of the log-joint
    (Fisher's identity). The second is the mean second derivative plus the covariance of the slopes (Louis 1982), which
    needs many more particles. Both ends have the same derivatives, so that their distance does not check these. They
    need little more memory than the estimates, and are right as far as the particles are draws of the posterior. They
    are not derivatives of the estimates at a fixed random key, which resampling makes discontinuous.

    Raises ValueError for sizes that are not positive or above the capacity, for axes without a length, and for models
    with elements that exist only on a chosen path.
    """
    places = checked_places(size, extents, capacity)
    require_extents(model, places)
    ids = jnp.arange(len(batch.weight))
    numbers, others = eqx.partition((model, batch), eqx.is_inexact_array)
    fixed_model, fixed_batch = eqx.combine(jax.lax.stop_gradient(numbers), others)
    chain = chain_from_priors(fixed_model, (fixed_batch,), (ids,), places.extents, places.size, places.capacity)
    temperatures = (jnp.arange(1, steps + 1) / steps) ** 3
    forward, backward, drawn = traced_both_ways(chain, key, temperatures, islands=islands, particles=particles)
    # p(data | other numbers) / p(data | these) is the posterior mean of the ratio of the two joint densities. At these
    # numbers it is 1, and its derivatives of any order are those of the evidence
    log_joint = replace(chain, model=model, batches=(batch,)).log_density(jax.lax.stop_gradient(drawn))
    log_ratio = (log_joint - jax.lax.stop_gradient(log_joint)).reshape(islands, particles)
    change = jax.nn.logsumexp(log_ratio, axis=1) - jnp.log(particles)
    return EvidenceEnds(forward + change, backward + change)
