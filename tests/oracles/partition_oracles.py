"""Mixtures by enumeration of all set partitions, in NumPy and SciPy alone. All numbers are in nats.

Marginal likelihoods of a group are products of predictive densities from SciPy's own distributions (Student t, normal),
in the data's coordinates: nothing of lvsearch's statistics, coordinates or normalisers is repeated here.
"""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import multivariate_normal, multivariate_t, t, vonmises_fisher

LogMarginal = Callable[[np.ndarray], float]
"""log p(rows of one group, parameters integrated out); rows: (n, D)."""


def partitions(n: int) -> Iterator[tuple[int, ...]]:
    """All set partitions of n rows as restricted growth strings: labels in order of appearance."""

    def grow(labels: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(labels) == n:
            yield labels
            return
        for label in range(max(labels, default=-1) + 2):
            yield from grow((*labels, label))

    return grow(())


def canonical(labels: np.ndarray) -> tuple[int, ...]:
    """Labels in order of appearance."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(int(label), len(seen)) for label in labels)


def sizes(labels: tuple[int, ...]) -> np.ndarray:
    return np.bincount(labels)


def log_process_prior(labels: tuple[int, ...], alpha: float | np.ndarray) -> float | np.ndarray:
    """The Chinese restaurant process: α^K Π (n_k − 1)! Γ(α) / Γ(α + N)."""
    n = sizes(labels)
    return len(n) * np.log(alpha) + gammaln(n).sum() + gammaln(alpha) - gammaln(alpha + n.sum())


def log_finite_prior(labels: tuple[int, ...], n_components: int, concentration: float) -> float:
    """All labellings of a partition by `n_components` components, weights ~ Dirichlet(concentration, …)."""
    n, k = sizes(labels), len(sizes(labels))
    if k > n_components:
        return -np.inf
    total = n_components * concentration
    ways = gammaln(n_components + 1) - gammaln(n_components - k + 1)
    one = gammaln(total) - gammaln(total + n.sum()) + (gammaln(concentration + n) - gammaln(concentration)).sum()
    return float(ways + one)


def log_truncated_prior(labels: tuple[int, ...], truncation: int, alpha: float) -> float:
    """All labellings by sticks 1…T of the truncated process: V_t ~ Beta(1, α), the last one 1."""
    from itertools import permutations

    n = sizes(labels)
    terms = []
    for places in permutations(range(truncation), len(n)):
        counts = np.zeros(truncation)
        counts[list(places)] = n
        beyond = counts.sum() - np.cumsum(counts)
        terms.append(float((betaln(1 + counts, alpha + beyond) - betaln(1, alpha))[:-1].sum()))
    return float(logsumexp(terms)) if terms else -np.inf


def log_joint_of_partitions(
    rows: np.ndarray, log_marginal: LogMarginal, log_prior: Callable[[tuple[int, ...]], float]
) -> dict[tuple[int, ...], float]:
    """Partition -> log p(rows, partition)."""

    @cache
    def group(members: tuple[int, ...]) -> float:
        return log_marginal(rows[list(members)])

    def likelihood(labels: tuple[int, ...]) -> float:
        array = np.array(labels)
        return sum(group(tuple(np.flatnonzero(array == k).tolist())) for k in range(array.max() + 1))

    return {labels: log_prior(labels) + likelihood(labels) for labels in partitions(len(rows))}


def log_evidence(rows: np.ndarray, log_marginal: LogMarginal, log_prior: Callable[[tuple[int, ...]], float]) -> float:
    return float(logsumexp(list(log_joint_of_partitions(rows, log_marginal, log_prior).values())))


def gamma_process_prior(shape: float, rate: float, n: int = 400) -> Callable[[tuple[int, ...]], float]:
    """`log_process_prior` with α ~ Gamma(shape, rate) integrated out by the trapezium rule in log α."""
    grid = np.linspace(-30 / shape - np.log(rate), np.log((shape + 12 * np.sqrt(shape) + 30) / rate), n)
    log_density = shape * (grid + np.log(rate)) - rate * np.exp(grid) - gammaln(shape) + np.log(grid[1] - grid[0])
    return lambda labels: float(logsumexp(log_density + log_process_prior(labels, np.exp(grid))))


# ── one group ───────────────────────────────────────────────────────────────────────────────────────────────────────


def diagonal_marginal(location: np.ndarray, scale: np.ndarray, count: float, shape: float, rate: float) -> LogMarginal:
    """Normal–Gamma per column, row after row by Student t."""

    def one_column(x: np.ndarray, m: float, s: float) -> float:
        k, a, b, centre, total = count, shape, rate * s**2, m, 0.0
        for value in x[~np.isnan(x)]:
            total += t(2 * a, centre, np.sqrt(b * (k + 1) / (a * k))).logpdf(value)
            b += 0.5 * k * (value - centre) ** 2 / (k + 1)
            centre, k, a = (k * centre + value) / (k + 1), k + 1, a + 0.5
        return float(total)

    return lambda rows: sum(one_column(c, m, s) for c, m, s in zip(rows.T, location, scale, strict=True))


def full_marginal(
    location: np.ndarray, scale: np.ndarray, count: float, excess_degrees: float, spread: float
) -> LogMarginal:
    """Normal–Wishart, row after row by the multivariate Student t."""
    n_dims = len(location)

    def log_marginal(rows: np.ndarray) -> float:
        k, v, centre, total = count, excess_degrees + n_dims - 1, np.array(location), 0.0
        scatter = spread * np.diag(scale**2)
        for x in rows:
            free = v - n_dims + 1
            total += multivariate_t(centre, scatter * (k + 1) / (k * free), df=free).logpdf(x)
            scatter = scatter + k / (k + 1) * np.outer(x - centre, x - centre)
            centre, k, v = (k * centre + x) / (k + 1), k + 1, v + 1
        return float(total)

    return log_marginal


def known_marginal(covariance: np.ndarray, location: np.ndarray, count: float) -> LogMarginal:
    """The rows of a group jointly normal: covariance Σ within, Σ/κ between."""

    def log_marginal(rows: np.ndarray) -> float:
        n = len(rows)
        joint = np.kron(np.eye(n) + 1 / count, covariance)
        return float(multivariate_normal(np.tile(location, n), joint).logpdf(rows.ravel()))

    return log_marginal


def direction_marginal(concentrations: tuple[float, ...]) -> LogMarginal:
    """Directions in three columns: the average over concentrations, and over mean directions by quadrature.

    Gauss's rule in the height of the sphere and the trapezium rule around it; densities of rows from SciPy.
    """
    heights, weights = np.polynomial.legendre.leggauss(60)
    around = 2 * np.pi * np.arange(80) / 80
    ring = np.sqrt(1 - heights**2)[:, None]
    means = np.stack(
        [ring * np.cos(around), ring * np.sin(around), np.broadcast_to(heights[:, None], (60, 80))], axis=-1
    ).reshape(-1, 3)
    log_weights = np.log(np.repeat(weights / 2, 80) / 80)

    def log_marginal(rows: np.ndarray) -> float:
        each = [
            logsumexp(log_weights + sum(vonmises_fisher(row, kappa).logpdf(means) for row in rows))
            for kappa in concentrations  # a density is the same with row and mean exchanged
        ]
        return float(logsumexp(each) - np.log(len(concentrations)))

    return log_marginal


def bernoulli_marginal(ones: float, zeros: float) -> LogMarginal:
    def log_marginal(rows: np.ndarray) -> float:
        n, m = (~np.isnan(rows)).sum(0), np.nansum(rows, axis=0)
        return float((betaln(ones + m, zeros + n - m) - betaln(ones, zeros)).sum())

    return log_marginal


def multinomial_marginal(concentration: float) -> LogMarginal:
    def log_marginal(rows: np.ndarray) -> float:
        coefficient = (gammaln(rows.sum(1) + 1) - gammaln(rows + 1).sum(1)).sum()
        total, n = concentration * rows.shape[1], rows.sum(0)
        sequence = (
            gammaln(total) - gammaln(total + n.sum()) + (gammaln(concentration + n) - gammaln(concentration)).sum()
        )
        return float(coefficient + sequence)

    return log_marginal
