"""Hyper-parameters on a path: where they come from and go to, and how they move.

With a Gamma prior p(h) and a Gamma q(h) to begin with, q(h)^(1−t) p(h)^t is a Gamma for every t. Whatever else depends
on h, a slice on the scale of logarithms leaves the product as it is, and is its own time reversal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.hyperpriors import GammaPrior

ABOUT = 4.0
"""Shape of q's Gamma about a number: half the number is its standard deviation. A q ten times as wide as the posterior
costs two nats of distance, one that is too narrow is mended on the way."""
WIDTH = 4.0
"""Of a slice's first interval, in log h."""


class Course(NamedTuple):
    """Where a hyper-parameter comes from and goes to: `prior` p(h), `start` q(h)."""

    prior: GammaPrior
    start: GammaPrior

    def at(self, temperature: Float[Array, ""]) -> tuple[Array, Array]:
        """Shape and rate of the Gamma ∝ q(h)^(1−t) p(h)^t."""
        (shape, rate), (first_shape, first_rate) = ((jnp.asarray(each) for each in prior) for prior in self)
        t = temperature
        return (1 - t) * first_shape + t * shape, (1 - t) * first_rate + t * rate

    def log_prior(self, log_value: Float[Array, "*number particle"]) -> Float[Array, "*number particle"]:
        """log p(h), a density of h."""
        return _log_gamma_density(self.prior, log_value)

    def log_ratio(self, log_value: Float[Array, "*number particle"]) -> Float[Array, "*number particle"]:
        """log p(h) − log q(h)."""
        return self.log_prior(log_value) - _log_gamma_density(self.start, log_value)


def _log_gamma_density(prior: GammaPrior, log_value: Array) -> Array:
    shape, rate = (jnp.asarray(each, log_value.dtype) for each in prior)
    constant = shape * jnp.log(rate) - log_gamma_positive(shape)
    return constant + (shape - 1) * log_value - rate * jnp.exp(log_value)


def gamma_about(value: Any) -> GammaPrior:
    """A Gamma with this mean."""
    return GammaPrior(np.asarray(ABOUT), np.asarray(ABOUT / value))


def slice_moved(
    key: Key[Array, ""],
    start: Float[Array, "number particle"],
    log_density: Callable[[Float[Array, "number particle"]], Float[Array, "number particle"]],
) -> Float[Array, "number particle"]:
    """One move of each number, which leaves its density as it is and is reversible: a slice, an interval of `WIDTH`
    placed over it at random, shrunk towards the start wherever a draw falls outside of the slice (Neal 2003, §4, with
    no stepping out). A density that is not a number ends the search for a draw: it is passed on, to be reported.

    log_density: of each number, whatever the others are.
    """
    key_slice, key_draws = jax.random.split(key)
    height, place = jax.random.uniform(key_slice, (2, *start.shape), start.dtype)
    level = log_density(start) + jnp.log1p(-height)
    low = start - WIDTH * place

    def searching(carry: tuple[Array, Array, Array, Array, Array]) -> Array:
        return ~carry[-1].all()

    def draw(carry: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        index, low, high, new, done = carry
        share = jax.random.uniform(jax.random.fold_in(key_draws, index), start.shape, start.dtype)
        proposed = jnp.where(done, new, low + share * (high - low))
        inside = done | ~(log_density(proposed) < level)
        low = jnp.where(~inside & (proposed < start), proposed, low)
        high = jnp.where(~inside & (proposed >= start), proposed, high)
        return index + 1, low, high, proposed, inside

    begin = jnp.asarray(0), low, low + WIDTH, start, jnp.zeros(start.shape, bool)
    return jax.lax.while_loop(searching, draw, begin)[3]
