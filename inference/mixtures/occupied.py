"""How many components some row is in: the distribution of that number under q, along a chain, or over several."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from lvsearch.inference.diagnostics import mean_effective_sample_size


class OccupiedCounts(NamedTuple):
    """A posterior over the number of occupied components.

    | field | meaning |
    |---|---|
    | `sizes` | the numbers seen, rising |
    | `probability` | of each |
    | `standard_error` | of each probability, from the sampling alone: what another run would differ by |
    """

    sizes: Int[np.ndarray, " sizes"]
    probability: Float[np.ndarray, " sizes"]
    standard_error: Float[np.ndarray, " sizes"]


def occupied_under(shares: Float[np.ndarray, "row component"], rng: np.random.Generator, draws: int) -> OccupiedCounts:
    """From `draws` independent draws of all rows' components from q; shares: (rows, K), rows summing to 1."""
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
    """From the number of occupied components after each sweep of one chain; errors by batch means. A chain that never
    changes has the error of as many independent draws as there are batches."""
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
    """From the counts after each sweep of several chains from starts of their own, the first `burn_in` left out.

    The error of the probability p of a number is √(p̃ (1 − p̃) / n): n the effective sample size of its indicator,
    between and within chains, and p̃ = (n p + ½) / (n + 1), so that no frequency of 1 passes for certainty. Where every
    draw is one and the same number, n is how often the slowest chain could have come there from its start.
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
    """p̃ (1 − p̃), p̃ = (n p + ½) / (n + 1)."""
    shrunk = (draws * probability + 0.5) / (draws + 1)
    return shrunk * (1 - shrunk)
