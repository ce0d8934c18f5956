"""The distribution of the number of occupied components: under q, along one chain, or over several chains.

A component is occupied if at least one row is in it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lvsearch.inference.diagnostics import mean_effective_sample_size


class OccupiedCounts(NamedTuple):
    """A posterior over the number of occupied components.

    | field | meaning |
    |---|---|
    | `sizes` | the numbers seen, rising |
    | `probability` | the probability of each |
    | `standard_error` | the standard error of each probability from sampling alone |
    """

    sizes: Int[np.ndarray, " sizes"]
    probability: Float[np.ndarray, " sizes"]
    standard_error: Float[np.ndarray, " sizes"]


def occupied_under(shares: Float[np.ndarray, "row component"], rng: np.random.Generator, draws: int) -> OccupiedCounts:
    """Return the distribution of the number of occupied components under q, from `draws` independent draws of all rows.

    shares: q of each row's component, (row, component), with rows that sum to 1.
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
    """Return the distribution of the number of occupied components along one chain, with errors by batch means.

    A chain that never changes gets the error of as many independent draws as there are batches.

    counts: the number of occupied components after each sweep. batches: how many batches the chain is cut into.
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
    """Return the distribution of the number of occupied components over several chains with starts of their own.

    The error of the probability p of a number is √(p̃ (1 − p̃) / n). Here n is the effective sample size of its
    indicator, between and within chains. With p̃ = (n p + ½) / (n + 1), a frequency of 1 is not taken for certainty. If
    every draw is the same number, n is how often the slowest chain could have come there from its start.

    counts: the number of occupied components after each sweep, (chain, sweep).
    burn_in: how many sweeps at the beginning are left out.
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
    """Return p̃ (1 − p̃) with p̃ = (n p + ½) / (n + 1), the variance of one draw."""
    shrunk = (draws * probability + 0.5) / (draws + 1)
    return shrunk * (1 - shrunk)
