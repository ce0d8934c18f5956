"""Annealed evidence as a pure function: the generic path from the priors to the posterior, and back.

`lvsearch.inference.annealing.generic` and `.annealing` say what is exact and what is assumed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lvsearch.functional.sizes import checked_places, require_extents
from lvsearch.inference.annealing.generic import chain_from_priors
from lvsearch.inference.annealing.particles import traced_both_ways
from lvsearch.inference.data.dataset import Batch
from lvsearch.models.contract import Model
from lvsearch.models.kernels import full_precision


class EvidenceEnds(NamedTuple):
    """Estimates of log p(data | size) from both sides, in nats, one number per particle group.

    `forward` is low on average. `backward` is high, provided that the forward paths, at whose ends it starts, ended in
    draws of the posterior.
    """

    forward: Float[Array, " island"]
    backward: Float[Array, " island"]


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
    """Return estimates of the evidence at one size from below and from above, in nats, by annealing.

    steps: the number of temperatures t = (i / n)³, which are densest near the prior.
    islands: the number of particle groups; particles resample within their group.
    particles: the number of particles in each group.
    size, extents, capacity: as for `mean_field`.

    It works for any model. It is slower than the paths that `lv.search` has for lvsearch's own models, and its length
    is fixed: look at the distance between the two sides. In float32 (outside of `jax.enable_x64`) sums of thousands of
    nats lose tenths.

    Raises ValueError as `mean_field`.
    """
    places = checked_places(size, extents, capacity)
    require_extents(model, places)
    ids = jnp.arange(len(batch.weight))
    chain = chain_from_priors(model, (batch,), (ids,), places.extents, places.size, places.capacity)
    temperatures = (jnp.arange(1, steps + 1) / steps) ** 3
    return EvidenceEnds(*traced_both_ways(chain, key, temperatures, islands=islands, particles=particles))
