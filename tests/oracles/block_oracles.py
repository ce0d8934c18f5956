"""Latent block models by enumeration: all labellings of rows and columns, blocks integrated in closed form."""

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import partition_oracles
from scipy.special import betaln, gammaln, logsumexp

Marginal = Callable[[np.ndarray], float]
"""Observed cells of one block -> log p(cells), its parameters integrated out, nats."""


def bernoulli_marginal(ones: float, zeros: float) -> Marginal:
    """Beta–Bernoulli."""
    return lambda cells: float(betaln(ones + cells.sum(), zeros + (1 - cells).sum()) - betaln(ones, zeros))


def categorical_marginal(levels: tuple[int, ...], concentration: float) -> Marginal:
    """Dirichlet–categorical."""

    def marginal(cells: np.ndarray) -> float:
        counts = np.array([(cells == level).sum() for level in levels])
        total = len(levels) * concentration
        gains = (gammaln(concentration + counts) - gammaln(concentration)).sum()
        return float(gains + gammaln(total) - gammaln(total + counts.sum()))

    return marginal


def poisson_marginal(shape: float, rate: float) -> Marginal:
    """Gamma–Poisson."""

    def marginal(cells: np.ndarray) -> float:
        a, b = shape + cells.sum(), rate + cells.size
        gain = gammaln(a) - a * np.log(b) - gammaln(shape) + shape * np.log(rate)
        return float(gain - gammaln(cells + 1).sum())

    return marginal


def normal_marginal(pseudo_count: float, shape: float, rate: float) -> Marginal:
    """Normal–Gamma, location 0, scale 1."""

    def marginal(cells: np.ndarray) -> float:
        n, k, a = cells.size, pseudo_count + cells.size, shape + cells.size / 2
        mean = cells.sum() / k
        b = rate + 0.5 * ((cells**2).sum() - k * mean**2)
        gain = gammaln(a) - a * np.log(b) - gammaln(shape) + shape * np.log(rate)
        return float(gain + 0.5 * (np.log(pseudo_count) - np.log(k)) - 0.5 * n * np.log(2 * np.pi))

    return marginal


def log_label_prior(labels: np.ndarray, size: int, concentration: float) -> float:
    """Dirichlet–multinomial of one labelling."""
    counts = np.bincount(labels, minlength=size)
    each = (gammaln(concentration + counts) - gammaln(concentration)).sum()
    return float(each + gammaln(size * concentration) - gammaln(size * concentration + len(labels)))


def log_joints(
    values: np.ndarray, size: tuple[int, int], marginal: Marginal, concentrations: tuple[float, float]
) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    """(labels of rows, labels of columns) -> log p(values, labels); NaN cells are missing."""
    found = {}
    for rows in product(range(size[0]), repeat=values.shape[0]):
        for columns in product(range(size[1]), repeat=values.shape[1]):
            z, w = np.array(rows), np.array(columns)
            total = log_label_prior(z, size[0], concentrations[0]) + log_label_prior(w, size[1], concentrations[1])
            for k, l in product(range(size[0]), range(size[1])):
                cells = values[np.ix_(z == k, w == l)]
                total += marginal(cells[~np.isnan(cells)])
            found[rows, columns] = total
    return found


def log_evidence(
    values: np.ndarray, size: tuple[int, int], marginal: Marginal, concentrations: tuple[float, float]
) -> float:
    """log p(values | size), nats."""
    return float(logsumexp(list(log_joints(values, size, marginal, concentrations).values())))


def posterior_of_sizes(
    values: np.ndarray, marginal: Marginal, log_prior: np.ndarray, concentrations: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """(p(K, L | values), p(occupied row clusters, occupied column clusters | values)), by all pairs of partitions.

    log_prior: log p(K, L) of K = 1, 2, … row clusters and L = 1, 2, … column clusters.
    """

    @cache
    def block(rows: tuple[int, ...], columns: tuple[int, ...]) -> float:
        cells = values[np.ix_(rows, columns)]
        return marginal(cells[~np.isnan(cells)])

    sizes, occupied = np.full(log_prior.shape, -np.inf), np.full(values.shape, -np.inf)
    of_rows, of_columns = (
        {
            labels: np.array([partition_oracles.log_finite_prior(labels, size, a) for size in range(1, most + 1)])
            for labels in partition_oracles.partitions(number)
        }
        for number, most, a in zip(values.shape, log_prior.shape, concentrations, strict=True)
    )
    for (z, log_z), (w, log_w) in product(of_rows.items(), of_columns.items()):
        rows, columns = (
            [tuple(np.flatnonzero(np.array(labels) == part).tolist()) for part in range(max(labels) + 1)]
            for labels in (z, w)
        )
        weight = log_prior + log_z[:, None] + log_w + sum(block(*pair) for pair in product(rows, columns))
        sizes = np.logaddexp(sizes, weight)
        parts = len(rows) - 1, len(columns) - 1
        occupied[parts] = np.logaddexp(occupied[parts], logsumexp(weight))
    return np.exp(sizes - logsumexp(sizes)), np.exp(occupied - logsumexp(occupied))
