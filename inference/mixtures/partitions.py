"""Random partitions under a Dirichlet process, and the distribution of their number of blocks (occupied components).

A partition of N rows is an array of labels (N,), numbered from 0 in order of appearance. Rows with one label form a
block. Partitions are drawn in three ways that agree. Before any data, the number of blocks has the distribution
`log_block_count_prior`.

A component is occupied if it has at least one row. Given data, the distribution of the number of occupied components is
computed from the responsibilities of a variational fit, from one chain, or from several chains (`OccupiedCounts`).

Source: Blei (2004), Eq. 5.6–5.9; Antoniak (1974) for the block count.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import betaln, gammaln

from lvsearch.inference.diagnostics import mean_effective_sample_size
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
    if not isinstance(concentration, GammaPrior):
        return log_stirling[1:] + _log_powers(k, n, np.log(float(concentration)))
    nodes, log_weights, log_below = _concentration_grid(float(concentration.shape), float(concentration.rate), n, most)
    total = np.full(most, -np.inf)
    for node, log_weight in zip(nodes, log_weights, strict=True):  # one by one, so that no array is nodes × blocks
        total = np.logaddexp(total, _log_powers(k, n, node) + log_weight)
    total[:1] = np.logaddexp(total[:1], log_below - gammaln(n))
    return log_stirling[1:] + total


def _log_powers(k: Int[np.ndarray, " blocks"], n: int, log_alpha: float | np.floating) -> Float[np.ndarray, " blocks"]:
    """Return log [α^K Γ(α) / Γ(α + n)] for each number of blocks K, in nats.

    The quotient is B(α, n) / Γ(n). `betaln` keeps its digits where α is much larger than n, and a difference of two
    log-gammas does not.
    """
    return k * log_alpha + (betaln(np.exp(log_alpha), n) - gammaln(n))


def _concentration_grid(
    shape: float, rate: float, n: int, most: int
) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"], float]:
    """Return a grid of log α that integrates the block counts K = 1, …, `most` of n rows over α ~ Gamma(shape, rate).

    Let s be the shape, r the rate and u = log α. The integrand p(u) p(K | u) is log-concave in u.

    1. Spacing. At the maximum of the integrand r α + E[K | α] = s + K, so its curvature there, r α + Var[K | α], is at
       most s + K. A spacing of one standard deviation, 1 / √(s + most), leaves a relative error of exp(−2π²). Of a
       broad integrand, e^(−r α) as a function of complex u decides: its error is exp(−π² / spacing).
    2. Upper end. There e^(−r α) α^(s + K) has fallen by more than e^−38 from its maximum.
    3. Lower end. E[K | α] ≤ 1 + α (1 + log n) puts every maximum above s / (r + 1 + log n). Below it the integrand
       falls as e^((s + K − 1) u). So for K > 1, or s ≥ 1, the part below the end is less than e^−40 of all.
    4. Below the lower end there is one block, and p(u) = s e^(s u) up to a constant. This falls slowly if s is small.
       Further nodes at the same spacing are a geometric series there, which is summed.

    Returns: (log α of each node; log of each node's prior probability; log prior probability below the lowest node).
    """
    spacing = min(0.25, 1 / np.sqrt(shape + most))
    low = np.log((shape + 1) / (rate + 1 + np.log1p(n))) - 3 - 40 / max(shape, 1.0)
    highest = shape + most
    high = np.log((highest + 12 * np.sqrt(highest) + 30) / rate)
    nodes = np.arange(low, high + spacing, spacing)
    log_weights = shape * (nodes + np.log(rate)) - rate * np.exp(nodes) - gammaln(shape) + np.log(spacing)
    return nodes, log_weights, float(log_weights[0] - shape * spacing - np.log(-np.expm1(-shape * spacing)))


class OccupiedCounts(NamedTuple):
    """The posterior distribution of the number of occupied components.

    | field | meaning |
    |---|---|
    | `sizes` | the numbers seen, rising |
    | `probability` | the posterior probability of each number |
    | `standard_error` | the Monte Carlo standard error of each probability |
    """

    sizes: Int[np.ndarray, " sizes"]
    probability: Float[np.ndarray, " sizes"]
    standard_error: Float[np.ndarray, " sizes"]


def occupied_under(shares: Float[np.ndarray, "row component"], rng: np.random.Generator, draws: int) -> OccupiedCounts:
    """Return the distribution of the number of occupied components under a variational fit q.

    The labels of all rows are drawn `draws` times from q, each row independently.

    shares: responsibilities q(z_n = k), (row, component); every row sums to 1.
    """
    cumulative = np.cumsum(shares, axis=1)
    cumulative /= cumulative[:, -1:]
    counts = np.empty(draws, np.int64)
    for number in range(draws):
        chosen = (rng.random((len(shares), 1)) > cumulative).sum(1)
        counts[number] = len(np.unique(chosen))
    sizes = np.unique(counts)
    probability = (counts[:, None] == sizes).mean(0)
    return OccupiedCounts(sizes, probability, np.sqrt(probability * (1 - probability) / draws))


def occupied_along(counts: Int[np.ndarray, " sweep"], batches: int = 20) -> OccupiedCounts:
    """Return the distribution of the number of occupied components along one chain, with batch-means standard errors.

    A chain that never changes gets the error of as many independent draws as there are batches.

    counts: the number of occupied components after each sweep, (sweep,).
    batches: how many batches of consecutive sweeps the chain is cut into.
    """
    counts = np.asarray(counts)
    sizes = np.unique(counts)
    indicator = (counts[:, None] == sizes).astype(np.float64)
    n_batches = min(batches, len(counts))
    length = len(counts) // n_batches
    means = indicator[: length * n_batches].reshape(n_batches, length, len(sizes)).mean(1)
    error = means.std(0, ddof=1) / np.sqrt(n_batches) if n_batches > 1 else np.full(len(sizes), np.nan)
    if len(sizes) == 1:
        error = np.sqrt(_spread(np.ones(1), n_batches) / n_batches)
    return OccupiedCounts(sizes, indicator.mean(0), error)


def occupied_over_chains(counts: Int[np.ndarray, "chain sweep"], burn_in: int) -> OccupiedCounts:
    """Return the distribution of the number of occupied components over several chains that started differently.

    The standard error of the probability p of a number is √(p̃ (1 − p̃) / n). Here n is the effective sample size,
    within and between chains, of the indicator of that number. With p̃ = (n p + ½) / (n + 1), a frequency of 1 is not
    taken for certainty. If every kept draw is the same number, n is how often the slowest chain could have come there
    from its start.

    counts: the number of occupied components after each sweep, (chain, sweep).
    burn_in: how many sweeps at the beginning of each chain are left out.
    """
    kept = counts[:, burn_in:]
    sizes = np.unique(kept)
    indicator = (kept[..., None] == sizes).astype(np.float64)
    probability = indicator.mean((0, 1))
    if len(sizes) == 1:
        away = (counts != sizes[0]) * np.arange(1, counts.shape[1] + 1)
        effective = np.array([kept.size / max(1, int(away.max()))])
    else:
        effective = np.array([mean_effective_sample_size(indicator[..., i]) for i in range(len(sizes))])
    return OccupiedCounts(sizes, probability, np.sqrt(_spread(probability, effective) / effective))


def _spread(probability: np.ndarray, draws: np.ndarray | int) -> np.ndarray:
    """Return p̃ (1 − p̃), the variance of one 0/1 draw, with the frequency p shrunk to p̃ = (n p + ½) / (n + 1).

    probability: p of each number.
    draws: n, how many independent draws the frequency is worth.
    """
    shrunk = (draws * probability + 0.5) / (draws + 1)
    return shrunk * (1 - shrunk)
