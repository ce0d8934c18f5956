"""Annealed evidence as a pure function: the generic annealing path from the priors to the posterior, and back.

`lvsearch.inference.annealing.generic` and `.annealing` say what is exact and what is assumed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from lvsearch.functional.sizes import checked_places, require_extents
from lvsearch.inference.annealing.generic import chain_from_priors
from lvsearch.inference.annealing.particles import traced_both_ways
from lvsearch.inference.data.dataset import Batch
from lvsearch.models.contract import Model
from lvsearch.models.kernels import copies_arrays, full_precision


class EvidenceEnds(NamedTuple):
    """Estimates of log p(data | size) from both sides, in nats, each of shape (island,): one number per particle group.

    | field | meaning |
    |---|---|
    | `forward` | from the prior to the posterior; low on average |
    | `backward` | from the posterior to the prior; high on average, if the forward paths ended in posterior draws |
    """

    forward: Float[Array, " island"]
    backward: Float[Array, " island"]


@jax.custom_jvp
def _without_derivative(arrays: Any) -> Any:
    """Return a pytree of arrays unchanged, and raise ValueError where a derivative is taken through it."""
    return arrays


@_without_derivative.defjvp
def _refuse_derivative(primals: tuple[Any], tangents: tuple[Any]) -> Any:
    """Raise the ValueError of `_without_derivative`."""
    del primals, tangents
    raise ValueError(
        "got a derivative of annealed_evidence, which has none: it hangs on draws of labels and on resampling; "
        "expected the mean of jax.grad(gibbs(size, extents).log_joint) over draws of the posterior (Fisher's "
        "identity), or the derivative of a bound, mean_field(size, extents).elbo"
    )


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

    The estimates have no derivative, since they hang on draws of labels and on resampling. The derivative of the
    evidence is the mean over draws of the posterior of that of the log-joint (Fisher's identity): `jax.grad` of
    `gibbs(size, extents).log_joint`.

    Raises ValueError for sizes that are not positive or above the capacity, for axes without a length, and where it is
    differentiated with respect to the model or the batch.
    """
    numbers, others = eqx.partition((model, batch), eqx.is_inexact_array)
    model, batch = eqx.combine(_without_derivative(numbers), others)
    places = checked_places(size, extents, capacity)
    require_extents(model, places)
    ids = jnp.arange(len(batch.weight))
    chain = chain_from_priors(model, (batch,), (ids,), places.extents, places.size, places.capacity)
    temperatures = (jnp.arange(1, steps + 1) / steps) ** 3
    return EvidenceEnds(*traced_both_ways(chain, key, temperatures, islands=islands, particles=particles))
