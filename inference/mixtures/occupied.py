"""How many components some row is in: the distribution of that number under q, or along a chain."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class OccupiedCounts(NamedTuple):
    """A posterior over the number of occupied components.

    | field | meaning |
    |---|---|
    | `sizes` | the numbers seen, rising |
    | `probability` | of each |
    | `standard_error` | of each probability, from the sampling alone |
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
    """From the number of occupied components after each sweep of a chain; errors by batch means."""
    counts = np.asarray(counts)
    sizes = np.unique(counts)
    indicator = (counts[:, None] == sizes).astype(np.float64)
    n_batches = min(batches, len(counts))
    length = len(counts) // n_batches
    means = indicator[: length * n_batches].reshape(n_batches, length, len(sizes)).mean(1)
    error = means.std(0, ddof=1) / np.sqrt(n_batches) if n_batches > 1 else np.full(len(sizes), np.nan)
    return OccupiedCounts(sizes, indicator.mean(0), error)
