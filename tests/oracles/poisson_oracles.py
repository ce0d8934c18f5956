"""Exact evidence of Poisson factorisation by enumeration of what every count is allocated to; NumPy and SciPy only, no
code shared with the model."""

from collections.abc import Callable
from functools import cache, reduce
from itertools import product

import numpy as np
from scipy.special import gammaln, logsumexp, roots_genlaguerre
from scipy.stats import nbinom, poisson

NODES = 40
"""Of the Gauss–Laguerre rule of each column of a factor."""


def allocations(count: int, size: int) -> list[tuple[int, ...]]:
    """Every way to share `count` equal things among `size` factors."""
    if size == 1:
        return [(count,)]
    return [(first, *rest) for first in range(count + 1) for rest in allocations(count - first, size - 1)]


def log_evidence(
    counts: np.ndarray, size: int, concentration: float, factor_concentration: float, mean_count: float | np.ndarray
) -> float:
    """log p(counts | size), nats. counts: (row, column), NaN = missing.

    Given the allocation factors are independent. Of each, intensities are integrated out in closed form given its
    columns, and these by quadrature, one node for each column.
    """
    n_rows, n_columns = counts.shape
    observed = ~np.isnan(counts)
    a, c = concentration / size, factor_concentration
    rate = np.broadcast_to(c / np.asarray(mean_count, float), n_columns)

    @cache
    def of_factor(own: tuple[int, ...]) -> float:
        """log ∫∫ Π_n Π_v (θ_n β_v)^own e^(−θ_n β_v) over the prior, missing cells left out."""
        z = np.array(own).reshape(n_rows, n_columns)
        in_column, in_row = z.sum(0), z.sum(1)
        nodes, weights = [], []
        for v in range(n_columns):
            x, w = roots_genlaguerre(NODES, c + in_column[v] - 1)
            nodes.append(x / rate[v])
            weights.append(np.log(w) + c * np.log(rate[v]) - gammaln(c) - (c + in_column[v]) * np.log(rate[v]))
        grid = np.stack(np.meshgrid(*nodes, indexing="ij"), axis=-1).reshape(-1, n_columns)
        total = reduce(np.add.outer, weights).ravel()
        for n in range(n_rows):
            exposure = concentration + grid @ observed[n]
            constant = a * np.log(concentration) - gammaln(a) + gammaln(a + in_row[n])
            total = total + constant - (a + in_row[n]) * np.log(exposure)
        return float(logsumexp(total))

    filled = np.where(observed, counts, 0).astype(int).ravel()
    terms = []
    for chosen in product(*(allocations(count, size) for count in filled)):
        z = np.array(chosen)  # cells × factors
        terms.append(sum(of_factor(tuple(z[:, k])) for k in range(size)) - gammaln(z + 1).sum())
    return float(logsumexp(terms))


def noisy_log_evidence(
    counts: np.ndarray,
    size: int,
    concentration: float,
    factor_concentration: float,
    mean_count: float,
    noise_shape: float,
    *,
    nodes: tuple[int, int] = (14, 20),
) -> float:
    """log p(counts | size), nats, where cells are negative binomial about their means: nothing is allocated, factors
    and intensities are integrated out by Gauss–Laguerre rules of (factors, intensities). For two columns and two
    factors at most."""
    a, c, n_columns = concentration / size, factor_concentration, counts.shape[1]

    def rule(n: int, shape: float, rate: float, times: int) -> tuple[np.ndarray, np.ndarray]:
        x, w = roots_genlaguerre(n, shape - 1)
        grid = np.stack(np.meshgrid(*[x / rate] * times, indexing="ij"), -1).reshape(-1, times)
        return grid, reduce(np.add.outer, [np.log(w) - gammaln(shape)] * times).ravel()

    beta, log_weight = rule(nodes[0], c, c / mean_count, size * n_columns)
    theta, log_own = rule(nodes[1], a, concentration, size)
    total = log_weight
    for row in counts:
        cells = np.zeros((len(beta), len(theta)))
        for v in np.flatnonzero(~np.isnan(row)):
            mean = beta.reshape(-1, size, n_columns)[:, :, v] @ theta.T
            cells += nbinom.logpmf(row[v], noise_shape, noise_shape / (noise_shape + mean))
        total = total + logsumexp(cells + log_own, axis=1)
    return float(logsumexp(total))


def sampled_log_evidence(
    counts: np.ndarray,
    size: int,
    concentration: float,
    factor_concentration: float,
    mean_count: float | np.ndarray,
    *,
    draws: int,
    seed: int = 0,
    noise_shape: float | Callable[[np.random.Generator, int], np.ndarray] | None = None,
) -> tuple[float, float]:
    """(log of the mean of p(counts | parameters) over draws of the prior, its standard error), nats. noise_shape: a
    number, or what draws as many from its prior."""
    rng, (n_rows, n_columns) = np.random.default_rng(seed), counts.shape
    theta = rng.gamma(concentration / size, 1 / concentration, (draws, n_rows, size))
    beta = rng.gamma(factor_concentration, 1.0, (draws, size, n_columns)) * mean_count / factor_concentration
    mean = theta @ beta
    if noise_shape is not None:
        given = noise_shape(rng, draws)[:, None, None] if callable(noise_shape) else noise_shape
        mean = mean * rng.gamma(given, 1 / given, mean.shape)
    cells = poisson.logpmf(np.nan_to_num(counts), mean)
    log = np.where(np.isnan(counts), 0.0, cells).sum((1, 2))
    value = float(logsumexp(log) - np.log(draws))
    return value, float(np.exp(log - value).std() / np.sqrt(draws))
