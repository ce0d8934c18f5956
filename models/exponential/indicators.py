"""Families of indicators, whose sufficient statistic is the indicator itself."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.models.exponential.family import (
    Element,
    Event,
    EventMask,
    IndicatorFamily,
    NumpyroDistribution,
    RandomKey,
    keep,
    keep_some,
    log_normalised,
    log_total,
)


class Categorical(IndicatorFamily[Event]):
    """One of several entries: p(x | η) = exp(Σ_k η_k x_k − A(η)), x one-hot.

    A(η) = log Σ_k exp η_k; E[x] = softmax(η) (Blei 2004, Eq. 3.9).
    """

    event_ndim: ClassVar[int] = 1

    def log_normaliser(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element"]:
        return keep_some(log_total(natural, event_mask)[..., 0], event_mask)

    def mean(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        return keep(jnp.exp(log_normalised(natural, event_mask)), event_mask)

    def natural(self, mean: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        """Return log E[x], natural parameters η with A(η) = 0. Others, which differ by a constant, have the same mean.

        mean: E[x], positive probabilities, shape (elements…, event).
        """
        return jnp.log(mean if event_mask is None else jnp.where(event_mask, mean, 1))

    def sample(self, key: RandomKey, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        logits = natural if event_mask is None else jnp.where(event_mask, natural, -jnp.inf)
        drawn = jax.random.categorical(key, logits, axis=-1)
        return keep(jax.nn.one_hot(drawn, natural.shape[-1], dtype=natural.dtype), event_mask)

    def sample_counts(
        self, key: RandomKey, natural: Event, copies: Float[Array | np.ndarray, "..."], event_mask: EventMask = None
    ) -> Float[Array, "*element event"]:
        """Draw from Multinomial(copies, softmax(η)) for each element, and return the counts divided by copies.

        natural: η, the log-odds. copies: the number of draws, broadcastable to the elements.
        """
        probabilities = self.mean(natural, event_mask)
        copies = jnp.broadcast_to(jnp.asarray(copies, probabilities.dtype), probabilities.shape[:-1])
        counts = jax.random.multinomial(key, copies, probabilities, dtype=probabilities.dtype)
        return counts / jnp.maximum(copies, 1)[..., None]

    def point(self, natural: Event, event_mask: EventMask = None) -> Float[Array, "*element event"]:
        return self.mean(natural, event_mask)

    def probability(self, mean: Event) -> Float[Array, "*element event"]:
        return jnp.asarray(mean)

    def value(self, statistics: Event, event_mask: EventMask = None) -> Int[Array, "*element"]:
        """Return the position of the chosen entry, shape (elements…); of expected statistics, the most probable
        position.
        """
        known = statistics if event_mask is None else jnp.where(event_mask, statistics, -jnp.inf)
        return jnp.argmax(known, axis=-1)

    def to_numpyro(self, natural: Event) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.CategoricalLogits(natural)


class Bernoulli(IndicatorFamily[Element]):
    """A number x in {0, 1}: p(x | η) = exp(ηx − A(η)), A(η) = log(1 + exp η), E[x] = 1 / (1 + exp −η)."""

    event_ndim: ClassVar[int] = 0

    def log_normaliser(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jax.nn.softplus(natural)

    def mean(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jax.nn.sigmoid(natural)

    def natural(self, mean: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jnp.log(mean) - jnp.log1p(-mean)

    def sample(self, key: RandomKey, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jax.random.bernoulli(key, self.mean(natural)).astype(natural.dtype)

    def sample_counts(
        self, key: RandomKey, natural: Element, copies: Float[Array | np.ndarray, "..."], event_mask: None = None
    ) -> Float[Array, "*element"]:
        """Draw from Binomial(copies, E[x]) for each element, and return the count divided by copies.

        natural: η, the log-odds. copies: the number of draws, broadcastable to the elements.
        """
        probabilities = self.mean(natural)
        copies = jnp.broadcast_to(jnp.asarray(copies, probabilities.dtype), probabilities.shape)
        counts = jax.random.binomial(key, copies, probabilities, dtype=probabilities.dtype)
        return counts / jnp.maximum(copies, 1)

    def point(self, natural: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return self.mean(natural)

    def probability(self, mean: Element) -> Float[Array, "*element"]:
        return jnp.asarray(mean)

    def value(self, statistics: Element, event_mask: None = None) -> Float[Array, "*element"]:
        return jnp.asarray(statistics)

    def to_numpyro(self, natural: Element) -> NumpyroDistribution:
        import numpyro.distributions as dist

        return dist.BernoulliLogits(natural)
