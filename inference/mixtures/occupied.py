"""The distribution of the number of occupied components, which are those that have at least one row.

It is computed from the responsibilities of a variational fit, from one chain, or from several chains.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lvsearch.inference.diagnostics import mean_effective_sample_size


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
