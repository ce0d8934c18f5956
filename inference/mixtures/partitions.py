"""Random partitions under a Dirichlet process, drawn in three ways that agree, and the distribution of their block
count.

A partition of N rows is an array of labels (N,), numbered from 0 in order of appearance. Rows with one label form a
block.

Source: Blei (2004), Eq. 5.6–5.9; Antoniak (1974) for the block count.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import gammaln, logsumexp

from lvsearch.models.contract import HyperparameterArray
from lvsearch.models.hyperpriors import GammaPrior


def chinese_restaurant(key: Array, n: int, alpha: float | Array) -> Int[Array, " row"]:
    """Draw a partition of n rows under the Dirichlet process by the Chinese restaurant process (Eq. 5.7).

    After m rows, the next row joins block k with probability n_k / (m + α), where n_k is the number of its rows. It
    forms a new block with probability α / (m + α).

    alpha: α, the concentration.

    Returns: the labels, (row,), in order of appearance.
    """

    def sit(counts: Array, customer_key: Array) -> tuple[Array, Array]:
        tables = (counts > 0).sum()
        weight = jnp.where(jnp.arange(n) == tables, alpha, counts)
        table = jax.random.categorical(customer_key, jnp.log(weight))
        return counts.at[table].add(1.0), table

    return jax.lax.scan(sit, jnp.zeros(n), jax.random.split(key, n))[1]


def polya_urn(key: Array, n: int, alpha: float | Array) -> Int[Array, " row"]:
    """Draw a partition of n rows under the Dirichlet process by the Pólya urn (Eq. 5.6).

    Each row copies the label of one earlier row, all with weight 1, or gets a new label with weight α.

    alpha: α, the concentration.

    Returns: the labels, (row,), in order of appearance.
    """

    def draw(labels: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        draw_key, position = step
        weight = jnp.where(jnp.arange(n) < position, 1.0, jnp.where(jnp.arange(n) == position, alpha, 0.0))
        earlier = jax.random.categorical(draw_key, jnp.log(weight))
        label = jnp.where(earlier == position, labels.max(initial=-1) + 1, labels[earlier])
        return labels.at[position].set(label), label

    return jax.lax.scan(draw, jnp.full(n, -1), (jax.random.split(key, n), jnp.arange(n)))[1]


def stick_breaking(key: Array, n: int, alpha: float, tolerance: float = 1e-9) -> Int[np.ndarray, " row"]:
    """Draw a partition of n rows under the Dirichlet process by stick breaking (Eq. 5.8).

    Labels are drawn from weights V_t Π_{j<t}(1 − V_j) with V_t ~ Beta(1, α). Weights are made until they sum to more
    than 1 − `tolerance`. A draw beyond them, which has a probability below n · `tolerance`, takes the last weight.

    alpha: α, the concentration.

    Returns: the labels, (row,), in order of appearance.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    weights, left = [], 1.0
    while left > tolerance:
        part = rng.beta(1, alpha)
        weights.append(left * part)
        left *= 1 - part
    places = np.minimum(np.searchsorted(np.cumsum(weights), rng.random(n)), len(weights) - 1)
    return by_appearance(places)


def by_appearance(labels: Any) -> Int[np.ndarray, " row"]:
    """Return the same partition with its labels renumbered from 0 in the order in which they appear, (row,)."""
    _, first, inverse = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def log_partition_prior(counts: Any, alpha: float) -> float:
    """Return the log-probability of one partition under the Dirichlet process, in nats.

    It is log [α^K Π_k (n_k − 1)! Γ(α) / Γ(α + N)], for K blocks and N rows.

    counts: n_k, the number of rows of each block, (K,).
    alpha: α, the concentration.
    """
    n = np.asarray(counts, np.float64)
    return float(len(n) * np.log(alpha) + gammaln(n).sum() + gammaln(alpha) - gammaln(alpha + n.sum()))


def log_block_count_prior(
    n: int, concentration: float | HyperparameterArray | GammaPrior, most: int | None = None
) -> Float[np.ndarray, " blocks"]:
    """Return the log prior probability that n rows form K blocks under a Dirichlet process, for K = 1, …, n, in nats.

    It is log [c(n, K) α^K Γ(α) / Γ(α + n)], with c the unsigned Stirling numbers of the first kind.

    n: the number of rows.
    concentration: α, or its `GammaPrior`. Under a prior, α is integrated out by the trapezium rule in log α.
    most: if given, only K ≤ most are returned, which costs n · most operations instead of n².

    Returns: the log probabilities, (blocks,); entry i is for K = i + 1.
    """
    most = n if most is None else min(most, n)
    log_stirling = np.full(most + 1, -np.inf)
    log_stirling[0] = 0.0
    for m in range(n):  # c(m + 1, k) = c(m, k − 1) + m c(m, k)
        moved = np.concatenate([[-np.inf], log_stirling[:-1]])
        log_stirling = np.logaddexp(moved, np.log(m) + log_stirling) if m else moved
    k = np.arange(1, most + 1)
    if isinstance(concentration, GammaPrior):
        shape, rate = float(concentration.shape), float(concentration.rate)
        grid = np.linspace(-30 / shape - np.log(rate), np.log((shape + 12 * np.sqrt(shape) + 30) / rate), 300)
        log_weight = shape * (grid + np.log(rate)) - rate * np.exp(grid) - gammaln(shape) + np.log(grid[1] - grid[0])
    else:
        grid, log_weight = np.log(np.atleast_1d(np.asarray(concentration, np.float64))), np.zeros(1)
    each = k * grid[:, None] + (log_weight + gammaln(np.exp(grid)) - gammaln(np.exp(grid) + n))[:, None]
    return log_stirling[1:] + logsumexp(each, axis=0)
