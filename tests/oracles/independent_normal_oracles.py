"""The evidence of Gaussian mixtures with independent priors of means and precisions, by enumeration and quadrature.

In the data's own unit, in NumPy and SciPy alone: given the rate β of a column, groups of rows are independent, the mean
of a group is integrated out in closed form and its precision by the trapezium rule in log τ; then β by the same rule,
each column on its own. All numbers are in nats.
"""

from typing import NamedTuple

import numpy as np
from partition_oracles import log_finite_prior, partitions
from scipy.special import gammaln, logsumexp

LOG_RATE, LOG_PRECISION = np.linspace(-24, 10, 171), np.linspace(-12, 30, 421)


class Prior(NamedTuple):
    """μ ~ Normal(centre, range²/κ), τ ~ Gamma(α, rate β), β ~ Gamma(g, rate h/range²), in the data's unit."""

    centre: np.ndarray
    range: np.ndarray
    kappa: float
    alpha: float
    g: float
    h: float


def log_group(x: np.ndarray, centre: float, kappa: float, alpha: float) -> np.ndarray:
    """log p(x | β) of the values of one group in one column at each β of the grid, x without missing ones."""
    n, y, t = len(x), x - centre, np.exp(LOG_PRECISION)
    square = (y**2).sum() - t * y.sum() ** 2 / (kappa + n * t)
    likelihood = 0.5 * (n * LOG_PRECISION - n * np.log(2 * np.pi) - np.log1p(n * t / kappa) - t * square)
    beta = np.exp(LOG_RATE)[:, None]
    prior = alpha * (LOG_RATE[:, None] + LOG_PRECISION) - gammaln(alpha) - beta * t
    return logsumexp(prior + likelihood, axis=1) + np.log(LOG_PRECISION[1] - LOG_PRECISION[0])


def log_joint(rows: np.ndarray, size: int, concentration: float, prior: Prior) -> dict[tuple[int, ...], float]:
    """Partition -> log p(rows, partition | size); rows: (n, D), NaN = missing."""
    log_step, known = np.log(LOG_RATE[1] - LOG_RATE[0]), {}

    def column(members: tuple[int, ...], d: int) -> np.ndarray:
        if (members, d) not in known:
            x = rows[list(members), d]
            args = x[~np.isnan(x)], prior.centre[d], prior.kappa / prior.range[d] ** 2, prior.alpha
            known[members, d] = log_group(*args) if len(args[0]) else np.zeros(len(LOG_RATE))
        return known[members, d]

    out = {}
    for labels in partitions(len(rows)):
        weight, array = log_finite_prior(labels, size, concentration), np.array(labels)
        if weight == -np.inf:
            continue
        groups = [tuple(np.flatnonzero(array == k).tolist()) for k in range(array.max() + 1)]
        for d in range(rows.shape[1]):
            h = prior.h / prior.range[d] ** 2
            log_rate_prior = prior.g * (LOG_RATE + np.log(h)) - gammaln(prior.g) - h * np.exp(LOG_RATE)
            weight += logsumexp(log_rate_prior + sum(column(members, d) for members in groups)) + log_step
        out[labels] = float(weight)
    return out


def log_evidence(rows: np.ndarray, size: int, concentration: float, prior: Prior) -> float:
    return float(logsumexp(list(log_joint(rows, size, concentration, prior).values())))
