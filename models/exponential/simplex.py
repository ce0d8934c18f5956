"""Families of a vector θ on the simplex (positive entries that sum to 1), whose sufficient statistic is log θ.

`SimplexBlocks` holds several such vectors side by side on one axis, each with its own number of entries.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from lvsearch.models.exponential.digamma import dirichlet_concentration, log_gamma_positive
from lvsearch.models.exponential.family import (
    Event,
    EventMask,
    Family,
    NumpyroDistribution,
    PointFamily,
    RandomKey,
    UnitCarrierFamily,
    inner,
    keep,
    keep_some,
    log_normalised,
)


class Dirichlet(UnitCarrierFamily[Event]):
    """A vector θ on the simplex: p(θ | η) = exp(Σ_k η_k log θ_k − A(η)), η = concentration − 1 > −1.

    A(η) = Σ_k log Γ(η_k + 1) − log Γ(Σ_k (η_k + 1)); E[log θ_k] = ψ(η_k + 1) − ψ(Σ_j (η_j + 1)) (Blei 2004, Eq. 3.1).
    """

    event_ndim: ClassVar[int] = 1

    def log_normaliser(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element"]:
        concentration, total = _concentration(natural, event_mask)
        terms = keep(log_gamma_positive(concentration), event_mask).sum(-1) - log_gamma_positive(total)
        return keep_some(terms, event_mask)

    def mean(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        concentration, total = _concentration(natural, event_mask)
        return keep(digamma(concentration) - digamma(total)[..., None], event_mask)

    def natural(self, mean: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        return keep(dirichlet_concentration(mean, event_mask) - 1, event_mask)

    def sample(self, key: RandomKey, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        """Draw θ for each element and return log θ, shape (elements…, event).

        It is drawn on the log scale: entries far below the smallest float keep their logarithm.
        """
        concentration, _ = _concentration(natural, event_mask)
        log_gamma = jax.random.loggamma(key, concentration, dtype=concentration.dtype)
        return log_normalised(log_gamma, event_mask)

    def point(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        concentration, total = _concentration(natural, event_mask)
        return keep(jnp.log(concentration) - jnp.log(total)[..., None], event_mask)

    def value(self, statistics: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        return keep(jnp.exp(statistics), event_mask)

    def to_numpyro(self, natural: Event) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Dirichlet(jnp.asarray(natural) + 1)


class PointSimplex(PointFamily[Event]):
    """A family with all mass at one θ, the maximiser over the simplex of ⟨η + smoothing, log θ⟩: a plug-in estimate.

    θ_k ∝ max(η_k, 0) + smoothing. It is then raised to at least `floor` and normalised again, so that θ is on the
    simplex and log θ is finite. The statistic is log θ, the entropy 0, and A(η) = ⟨η, log θ⟩. So entropy = A − ⟨η,
    E[t]⟩ holds, and ∇A = log θ where nothing is smoothed, cut off at 0 or floored. Without any counts θ is uniform.

    smoothing: pseudo-counts added to every entry that exists. They move the maximiser but are not part of the
        log-joint. With smoothing > 0 coordinate ascent is monotone in log-joint + smoothing · Σ log θ, not in the
        log-joint.
    floor: the smallest θ_k, at least 1e-37 so that it is a normal number in float32.

    Raises ValueError for smoothing below 0 and for a floor outside [1e-37, 1).
    """

    event_ndim: ClassVar[int] = 1
    smoothing: float | int = 0.0
    floor: float = 1e-30

    def __check_init__(self):
        if not self.smoothing >= 0:
            raise ValueError(f"got smoothing={self.smoothing!r}, expected a number of pseudo-counts, at least 0")
        if not 1e-37 <= self.floor < 1:
            raise ValueError(f"got floor={self.floor!r}, expected the smallest probability, in [1e-37, 1)")

    def log_normaliser(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element"]:
        return inner(self, natural, self.mean(natural, event_mask), event_mask)

    def mean(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        counts = keep(jnp.maximum(natural, 0) + self.smoothing, event_mask)
        counted = counts.sum(-1, keepdims=True) > 0
        counts = jnp.where(counted, counts, keep(jnp.ones_like(counts), event_mask))
        raised = jnp.maximum(counts / _positive(counts.sum(-1, keepdims=True)), self.floor)
        total = _positive(keep(raised, event_mask).sum(-1, keepdims=True))
        return keep(jnp.log(raised / total), event_mask)

    def natural(self, mean: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        """Return the smallest natural parameters η with this mean that have no negative count and a total of at least
        1.

        η is unique only up to its scale. mean: log θ, shape (elements…, event).
        """
        probability = jnp.exp(mean if event_mask is None else jnp.where(event_mask, mean, 0))
        entries = keep(jnp.ones_like(probability), event_mask).sum(-1, keepdims=True)
        smallest = probability.min(-1, keepdims=True)  # entries that do not exist have 1
        total = jnp.maximum(1 + entries * self.smoothing, self.smoothing / smallest)
        return keep(probability * total - self.smoothing, event_mask)

    def value(self, statistics: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        return keep(jnp.exp(statistics), event_mask)

    def to_numpyro(self, natural: Event) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.Delta(self.value(self.mean(natural)), event_dim=1)


def _concentration(natural: Any, event_mask: Any) -> tuple[Array, Array]:
    """Return (concentration, its total) of a Dirichlet, shapes (…, event) and (…).

    natural: η = concentration − 1. event_mask: mask of the entries that exist, or None.

    Both are 1 where nothing exists, so that gradients are finite.
    """
    if event_mask is None:
        return natural + 1, (natural + 1).sum(-1)
    concentration = jnp.where(event_mask, natural + 1, 1)
    total = jnp.where(event_mask, concentration, 0).sum(-1)
    return concentration, jnp.where(event_mask.any(-1), total, 1)


def _positive(total: Array) -> Array:
    """Return `total` where it is positive, and 1 elsewhere: a divisor whose gradient is finite."""
    return jnp.where(total > 0, total, 1)


class SimplexBlocks(Family[Event]):
    """Several independent vectors, each on a simplex of its own, one after another on the event axis, all of one
    family.

    base: the family of every vector.
    widths: the number of entries of each vector.

    An example is the allele frequencies of all loci. To compute, entries are gathered into rows of one length, and
    missing entries are masked.
    """

    base: Dirichlet | PointSimplex
    widths: tuple[int, ...] = eqx.field(static=True)

    event_ndim: ClassVar[int] = 1

    def log_normaliser(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element"]:
        rows, mask = self._rows(natural, event_mask)
        return self.base.log_normaliser(rows, mask).sum(-1)

    def mean(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(natural, event_mask)
        return self._flat(self.base.mean(rows, mask))

    def natural(self, mean: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(mean, event_mask)
        return self._flat(self.base.natural(rows, mask))

    def entropy(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element"]:
        rows, mask = self._rows(natural, event_mask)
        return self.base.entropy(rows, mask).sum(-1)

    def sample(self, key: RandomKey, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(natural, event_mask)
        return self._flat(self.base.sample(key, rows, mask))

    def point(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(natural, event_mask)
        return self._flat(self.base.point(rows, mask))

    def value(self, statistics: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        rows, mask = self._rows(statistics, event_mask)
        return self._flat(self.base.value(rows, mask))

    def to_numpyro(self, natural: Event) -> NumpyroDistribution:
        """Return a distribution over (…, block, entry). Raises ValueError unless all blocks have one width."""
        if len(set(self.widths)) > 1:
            raise ValueError(
                f"got blocks of {min(self.widths)} to {max(self.widths)} entries, expected one width: NumPyro has no "
                "distribution of several simplices of different lengths; use the samplers of lvsearch"
            )
        return self.base.to_numpyro(self._rows(natural, None)[0]).to_event(1)

    def _rows(self, leaf: Any, event_mask: Any) -> tuple[Array, Any]:
        """Return an array (…, event) rearranged as (…, block, entry), and a mask of the same shape of the entries that
        exist.

        leaf: the array; each block is one simplex. event_mask: mask (…, event) of the entries that exist, or None.
        """
        index, exists = _layout(self.widths)
        mask = exists if event_mask is None else exists & jnp.asarray(event_mask)[..., index]
        return jnp.where(exists, jnp.asarray(leaf)[..., index], 0), mask

    def _flat(self, rows: Array) -> Array:
        """Return an array (…, block, entry) rearranged as (…, event), the inverse of `_rows`."""
        block = np.repeat(np.arange(len(self.widths)), self.widths)
        entry = np.concatenate([np.arange(width) for width in self.widths])
        return rows[..., block, entry]


def _layout(widths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return (position of each entry on the event axis, mask of the entries that exist), both of shape (block, entry).

    widths: the number of entries of each block. The position is 0 where an entry does not exist.
    """
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    exists = np.arange(max(widths)) < np.array(widths)[:, None]
    return np.where(exists, starts[:, None] + np.arange(max(widths)), 0), exists


def log_symmetric_dirichlet(
    log_theta: Float[Array, "*element event"], concentration: Any, n: int | Array
) -> Float[Array, "*element"]:
    """Return the log-density of a symmetric Dirichlet(a, …, a) at θ, over the last axis, in nats, shape (elements…).

    log_theta: log θ, 0 at entries that do not exist.
    concentration: a.
    n: the number of entries that exist.
    """
    a, n = jnp.asarray(concentration, log_theta.dtype), jnp.asarray(n, log_theta.dtype)
    return gammaln(n * a) - n * gammaln(a) + ((a - 1) * log_theta).sum(-1)
