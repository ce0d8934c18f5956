"""Slow oracles of the feature search: every left-ordered matrix, scored directly."""

import itertools
from functools import cache
from math import comb

import numpy as np
from scipy.special import gammaln
from scipy.stats import multivariate_normal, poisson


def histories(n_rows: int) -> np.ndarray:
    """The 2^N − 1 columns that are not all zero: (histories, rows)."""
    return np.array(list(itertools.product([0, 1], repeat=n_rows)))[1:]


@cache
def matrices(n_rows: int, n_features: int) -> np.ndarray:
    """Every class with exactly n_features columns, as counts of each history: (classes, histories)."""
    kinds = 2**n_rows - 1
    chosen = np.array(list(itertools.combinations_with_replacement(range(kinds), n_features)), int)
    counts = np.zeros((comb(kinds + n_features - 1, n_features), kinds), int)
    for column in chosen.T:
        counts[np.arange(len(counts)), column] += 1
    counts.flags.writeable = False  # shared by all callers
    return counts


def matrix(counts: np.ndarray, n_rows: int) -> np.ndarray:
    return np.repeat(histories(n_rows), counts, axis=0).T.reshape(n_rows, -1)


def log_prior_of_counts(counts: np.ndarray, n_rows: int, alpha: float) -> np.ndarray:
    """Griffiths & Ghahramani's Eq. 14, term by term."""
    ones = histories(n_rows).sum(axis=1)
    weight = gammaln(n_rows - ones + 1) + gammaln(ones) - gammaln(n_rows + 1)
    harmonic = sum(1 / n for n in range(1, n_rows + 1))
    return counts.sum(axis=1) * np.log(alpha) + counts @ weight - gammaln(counts + 1).sum(axis=1) - alpha * harmonic


def gaussian_marginals(X: np.ndarray, counts: np.ndarray, sigma_x: float, sigma_a: float) -> np.ndarray:
    """log p(X | Z) of every class: columns of X are N(0, σ_x² I + σ_a² ZZᵀ)."""
    n_rows, n_columns = X.shape
    h = histories(n_rows)
    outer = (h[:, :, None] * h[:, None]).reshape(len(h), -1)
    covariance = (sigma_a**2 * counts @ outer).reshape(-1, n_rows, n_rows) + sigma_x**2 * np.eye(n_rows)
    whitened = np.linalg.solve(covariance, np.broadcast_to(X, (len(counts), *X.shape)))
    log_determinant = np.linalg.slogdet(covariance)[1]
    return -0.5 * (n_columns * (n_rows * np.log(2 * np.pi) + log_determinant) + (X * whitened).sum(axis=(1, 2)))


def gaussian_ceiling(X: np.ndarray, sigma_x: float) -> float:
    """max log p(X | any Z): over every covariance of the rows that is ⪰ σ_x² I, not only σ_x² I + σ_a² ZZᵀ."""
    size = np.linalg.eigvalsh(X @ X.T / X.shape[1])
    variance = np.maximum(size, sigma_x**2)
    return float(-0.5 * X.shape[1] * np.sum(np.log(2 * np.pi * variance) + size / variance))


def feature_cap(log_joint: float, ceiling: float, n_rows: int, alpha: float) -> int:
    """No matrix with more columns reaches log_joint: P([Z]) ≤ P(K₊) = Poisson(K₊; α H_N), and p(X | Z) ≤ e^ceiling."""
    mean = alpha * sum(1 / n for n in range(1, n_rows + 1))
    k = int(mean) + 1
    while poisson.logpmf(k, mean) + ceiling >= log_joint:
        k += 1
    return k - 1


def best_matrix(X: np.ndarray, alpha: float, sigma_x: float, sigma_a: float, most: int) -> tuple[float, np.ndarray]:
    """The MAP among all matrices of at most `most` features, and its log joint."""
    best, found = -np.inf, np.zeros((len(X), 0), int)
    for k in range(most + 1):
        counts = matrices(len(X), k)
        score = log_prior_of_counts(counts, len(X), alpha) + gaussian_marginals(X, counts, sigma_x, sigma_a)
        if score.max() > best:
            best, found = float(score.max()), matrix(counts[score.argmax()], len(X))
    return best, found


def gaussian_with_missing(X: np.ndarray, Z: np.ndarray, sigma_x: float, sigma_a: float, observed: np.ndarray) -> float:
    total = 0.0
    for d in range(X.shape[1]):
        seen = observed[:, d]
        if seen.any():
            covariance = sigma_x**2 * np.eye(seen.sum()) + sigma_a**2 * Z[seen] @ Z[seen].T
            normal = multivariate_normal(np.zeros(seen.sum()), covariance)  # pyright: ignore[reportArgumentType]
            total += normal.logpdf(X[seen, d])
    return float(total)


def noisy_or_marginal(X: np.ndarray, Z: np.ndarray, strength, background, density, observed: np.ndarray) -> float:
    """Σ over all listening patterns y of each column."""
    total = 0.0
    for d in range(X.shape[1]):
        column = 0.0
        for pattern in itertools.product([0, 1], repeat=Z.shape[1]):
            y = np.array(pattern, int)
            off = (1 - background) * (1 - strength) ** (Z @ y)
            cells = np.where(X[:, d] > 0, 1 - off, off)[observed[:, d]]
            column += density ** y.sum() * (1 - density) ** (len(y) - y.sum()) * np.prod(cells)
        total += np.log(column)
    return float(total)
