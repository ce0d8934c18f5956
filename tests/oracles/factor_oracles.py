"""Factor analysers by other ways than the library's: no sums over rows, no regressions. All numbers are in nats."""

import numpy as np
from scipy.special import gammaln, logsumexp


def log_marginal(
    rows: np.ndarray, scores: np.ndarray, count: float, loading: float, shape: float, rate: np.ndarray
) -> float:
    """log p(rows | scores) of one component: each column is jointly a multivariate t, its rows covarying as
    I + 1/κ + f fᵀ/ℓ."""
    n = len(rows)
    between = np.eye(n) + 1 / count + scores @ scores.T / loading
    quadratic = np.einsum("nd,nd->d", rows, np.linalg.solve(between, rows))
    each = gammaln(shape + n / 2) - gammaln(shape) + shape * np.log(rate) - n / 2 * np.log(2 * np.pi)
    each = each - 0.5 * np.linalg.slogdet(between)[1] - (shape + n / 2) * np.log(rate + quadratic / 2)
    return float(each.sum())


def log_joint(
    rows: np.ndarray, labels: np.ndarray, scores: np.ndarray, size: int, concentration: float, *prior: object
) -> float:
    """log p(rows, labels, scores), a density of scores. prior: as of `log_marginal`."""
    counts, total = np.bincount(labels, minlength=size), size * concentration
    of_labels = (gammaln(concentration + counts) - gammaln(concentration)).sum()
    of_labels += gammaln(total) - gammaln(total + len(labels))
    of_scores = -0.5 * (scores**2 + np.log(2 * np.pi)).sum()
    parts = [log_marginal(rows[labels == k], scores[labels == k], *prior) for k in range(size)]
    return float(of_labels + of_scores + sum(parts))


def log_evidence(
    rows: np.ndarray,
    size: int,
    n_factors: int,
    concentration: float,
    count: float,
    loading: float,
    shape: float,
    rate: np.ndarray,
    draws: int,
    seed: int = 0,
) -> tuple[float, float]:
    """(log p(rows | size), its standard error): the likelihood averaged over the prior of the parameters."""
    rng, found = np.random.default_rng(seed), []
    n_dims, batch = rows.shape[1], 100_000
    for _ in range(draws // batch):
        precision = rng.gamma(shape, 1 / rate, size=(batch, size, n_dims))
        mean = rng.normal(size=(batch, size, n_dims)) / np.sqrt(count * precision)
        loadings = rng.normal(size=(batch, size, n_dims, n_factors)) / np.sqrt(loading * precision)[..., None]
        covariance = loadings @ np.swapaxes(loadings, -1, -2) + np.eye(n_dims) / precision[..., None, :]
        inverse, log_det = np.linalg.inv(covariance), np.linalg.slogdet(covariance)[1]
        weights = rng.dirichlet([concentration] * size, size=batch)
        total = np.zeros(batch)
        for row in rows:
            away = row - mean
            quadratic = np.einsum("bki,bkij,bkj->bk", away, inverse, away)
            each = np.log(weights) - 0.5 * (quadratic + log_det + n_dims * np.log(2 * np.pi))
            total += logsumexp(each, axis=1)
        found.append(total)
    log = np.concatenate(found)
    likelihood = np.exp(log - log.max())
    error = likelihood.std() / likelihood.mean() / np.sqrt(len(log))
    return float(log.max() + np.log(likelihood.mean())), float(error)
