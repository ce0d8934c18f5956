"""Annealed evidence as a pure function: the generic annealing path from the priors to the posterior, and back.

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
    """Estimates of log p(data | size) from both sides, in nats, each of shape (island,): one number per particle group.

    | field | meaning |
    |---|---|
    | `forward` | from the prior to the posterior; low on average |
    | `backward` | from the posterior to the prior; high on average, if the forward paths ended in posterior draws |
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

    model: the model. key: the random key. batch: the data; units (observations) count by their weight.
    size: a number, or one for each size variable; may be traced if `capacity` is given.
    extents: {axis: length} of the axes that the data decide; `batch_of` returns them.
    capacity: the largest size, a number or one for each size variable; by default `size`.
    steps: the number n of temperatures t = (i / n)³, which are densest near the prior.
    islands: the number of particle groups; particles resample within their group.
    particles: the number of particles in each group.

    It works for any model. It is slower than the paths that `lv.search` has for lvsearch's own models, and its length
    is fixed: look at the distance between the two sides. In float32 (outside of `jax.enable_x64`) sums of thousands of
    nats lose tenths.

    Raises ValueError for sizes that are not positive or above the capacity, and for axes without a length.
    """
    places = checked_places(size, extents, capacity)
    require_extents(model, places)
    ids = jnp.arange(len(batch.weight))
    chain = chain_from_priors(model, (batch,), (ids,), places.extents, places.size, places.capacity)
    temperatures = (jnp.arange(1, steps + 1) / steps) ** 3
    return EvidenceEnds(*traced_both_ways(chain, key, temperatures, islands=islands, particles=particles))
