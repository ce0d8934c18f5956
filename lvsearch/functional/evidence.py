"""Annealed evidence as a pure function: the generic path from what the priors say to the posterior, and back.

As `lvsearch.inference.annealing.generic` and `.annealing`, which say what is exact and what is assumed.
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
    """log p(data | size), nats, one number per island: `forward` is low on average, `backward` high as far as the
    forward paths, where it begins, ended in draws of the posterior."""

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
    """Both ends of the evidence at one size, along `steps` temperatures that are densest near the prior, t = (i / n)³.

    For any model; slower than the paths that `lv.search` knows for its own, and of a fixed length: look at how far the
    ends are apart. islands: groups of `particles` that resample among themselves. In float32, outside of
    `jax.enable_x64`, sums of thousands of nats lose tenths. size, extents, capacity and errors as for `mean_field`.
    """
    places = checked_places(size, extents, capacity)
    require_extents(model, places)
    ids = jnp.arange(len(batch.weight))
    chain = chain_from_priors(model, (batch,), (ids,), places.extents, places.size, places.capacity)
    temperatures = (jnp.arange(1, steps + 1) / steps) ** 3
    return EvidenceEnds(*traced_both_ways(chain, key, temperatures, islands=islands, particles=particles))
