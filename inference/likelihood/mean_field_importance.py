"""Mean-field importance sampling (mfi, mfi2): unbiased on p for any number of samples, linear in the document.

  p(j | α, β) = E_{k ~ q} p(j, k | α, β) / q(k),   q(k) = Π_l q_l(k_l)                                          (Eq. 2)
  q_l(k) ∝ β_{k,j_l} exp E log(C_k^¬l + α_k)                                                                     (Eq. 3)
  mfi     E log u ≈ log ū                ū_k = Σ_{m≠l} q_m(k) + α_k                                              (Eq. 4)
  mfi2    E log u ≈ log ū − σ²/(2ū²)     σ²_k = Σ_{m≠l} q_m(k)(1 − q_m(k))

All tokens are updated together, in ten cycles (so tokens of one word keep one q). Departure in mfi2: C ≥ 0, so the
expectation is never below log α_k, and the expansion, which for rare topics runs off towards −∞ and would leave
their samples undrawn, is held there.

Where p(k | j) has several modes (small α, ambiguous words) a product q follows one of them: the estimate is then too
low in most runs, far too high in a few, and the stated error, seen from inside one mode, too small; mfi2's sharper
q suffers more. The reference is lrs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Float64, Key
from scipy import sparse
from scipy.special import logsumexp

from lvsearch.inference.likelihood.documents import Tile, TopicSet
from lvsearch.inference.likelihood.per_tile import estimate_tiles
from lvsearch.inference.likelihood.result import Bias, Estimate

LANES = 1 << 13  # documents × samples per call


def proposal(alpha, beta, counts, cycles: int, order: int) -> Float[Array, "slot topic"]:
    """q of every token of one document after `cycles` of (Eq. 4) or its second-order form."""
    weight = counts[:, None]

    def cycle(_, q):
        # the sum without the token itself, which rounding could take below zero
        mean = jnp.maximum(jnp.sum(weight * q, axis=0) - weight * q, 0.0) + alpha
        expected_log = jnp.log(mean)
        if order == 2:
            variance = jnp.sum(weight * q * (1 - q), axis=0) - weight * q * (1 - q)
            expected_log = jnp.maximum(expected_log - jnp.maximum(variance, 0.0) / (2 * mean**2), jnp.log(alpha))
        new = beta * jnp.exp(expected_log - jnp.max(expected_log, axis=1, keepdims=True))
        return new / jnp.sum(new, axis=1, keepdims=True)

    start = beta * (alpha + jnp.sum(counts) / len(alpha))
    return lax.fori_loop(0, cycles, cycle, start / jnp.sum(start, axis=1, keepdims=True))


@partial(jax.jit, static_argnames=("cycles", "order", "samples"))
def _log_weights(word_topic, alpha, words, counts, rows, key, cycles: int, order: int, samples: int):
    """log p(j, k) − log q(k) of every sample (document, sample); −inf where rounding drew an impossible topic."""
    real = counts.astype(word_topic.dtype)
    beta = word_topic[words]
    q = jax.vmap(lambda b, n: proposal(alpha, b, n, cycles, order))(beta, real)
    log_ratio = jnp.where(beta > 0, jnp.log(beta) - jnp.log(q), -jnp.inf).transpose(1, 2, 0)[..., None]
    running = jnp.cumsum(q, axis=2).transpose(1, 2, 0)[..., None]  # position, topic, document, sample
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)
    topics = jnp.arange(len(alpha))[:, None, None]
    mask = real.T[..., None]

    def draw(position, carry):
        topic_counts, log_weight = carry
        uniform = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(k, position), (samples,)))(keys)
        # q sums to 1 up to rounding: compare with the last sum, not with 1
        below = uniform * running[position, -1] >= running[position, :-1]
        topic = jnp.sum(below, axis=0, dtype=jnp.int32)
        chosen = (topics == topic) & (mask[position] > 0)
        gain = jnp.sum(jnp.where(chosen, log_ratio[position], 0.0), axis=0)
        return topic_counts + chosen.astype(alpha.dtype), log_weight + gain

    lanes = (len(rows), samples)
    longest = jnp.max(jnp.sum(counts, axis=1))
    zero = jnp.zeros((len(alpha), *lanes)), jnp.zeros(lanes)
    topic_counts, log_weight = lax.fori_loop(0, longest, draw, zero)
    a = alpha[:, None, None]
    log_prior = jnp.sum(gammaln(topic_counts + a) - gammaln(a), axis=0)
    lengths = jnp.sum(real, axis=1)
    return log_weight + log_prior, gammaln(jnp.sum(alpha)) - gammaln(lengths + jnp.sum(alpha))


@dataclass(frozen=True)
class MeanFieldImportance:
    """Importance sampling from the mean-field proposal of the given order."""

    order: Literal[1, 2]
    cycles: int = 10  # Buntine §4.1
    bias: Bias = "unbiased"
    samples: int = 200

    def estimate(self, topics: TopicSet, counts: sparse.csr_array, samples: int, key: Key[Array, " "]) -> Estimate:
        def one_tile(tile: Tile, word_topic, alpha) -> Estimate:
            log_weights, constant = _log_weights(
                word_topic, alpha, tile.words, tile.counts, tile.padded_rows, key, self.cycles, self.order, samples
            )
            return average_of_weights(np.asarray(log_weights, np.float64), np.asarray(constant, np.float64))

        return estimate_tiles(topics, counts, one_tile, documents_per_tile=max(1, LANES // samples))


def average_of_weights(log_weights: Float64[np.ndarray, "document sample"], constant: Any) -> Estimate:
    """log mean weight, its delta-method error sd/(mean √S), and Kish's (Σw)²/Σw²."""
    samples = log_weights.shape[1]
    log_sum = np.asarray(logsumexp(log_weights, axis=1))
    log_squares = np.asarray(logsumexp(2 * log_weights, axis=1))
    effective = np.exp(2 * log_sum - log_squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.maximum(1 / effective - 1 / samples, 0.0) * samples / (samples - 1))
    return Estimate(log_sum - np.log(samples) + constant, error, effective)
