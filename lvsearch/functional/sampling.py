"""Gibbs sampling as pure functions: the generic sampler of one chain.

Use `vmap` over keys and states for several chains.

Source: Blei (2004), §2.2.1. `lvsearch.inference.engine.gibbs` says which conditionals are drawn from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lvsearch.functional.sizes import Places, checked_places, require_extents
from lvsearch.inference.annealing.generic import chain_from_priors
from lvsearch.inference.data.dataset import Batch
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
