"""The shape r of the noise of counts under a Gamma prior, given q of factors and intensities.

With L(r) the bound on log p(counts | r) of one q, log ∫ p(r) e^L(r) dr is a bound on log p(counts). L depends on r
through the cells alone, so that one-dimensional quadrature in log r gives it.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from scipy.special import gammaln, logsumexp

from lvsearch.inference.factorizations.kernel import CountMatrix, Fitted
from lvsearch.models.hyperpriors import GammaPrior

LOWEST, HIGHEST = -12.0, 13.0
"""Of log r: mass beyond is left out, which lowers the bound."""
FURTHEST, CLOSE = 0.5, 0.01
"""Of log r: how far one step goes, while factors move too, and how near it comes."""
NODES = 61
COARSE, NEGLIGIBLE = 41, 40.0
"""Nodes by which the part that counts is found, and nats below the highest from which on nothing does."""


def log_noise_prior(prior: GammaPrior, log_shape: float | Float64[np.ndarray, " node"]) -> Float64[np.ndarray, "*node"]:
    """log density of log r, nats."""
    shape, rate = (float(each) for each in prior)
    return np.asarray(shape * np.log(rate) - gammaln(shape) + shape * log_shape - rate * np.exp(log_shape))


def likely_noise(counts: CountMatrix, prior: GammaPrior, fitted: Fitted) -> float:
    """The r whose logarithm has the highest density p(log r) e^L(r), up to `FURTHEST` from that of `counts`."""
    from scipy.optimize import minimize_scalar  # a tenth of a second that only this needs

    log_cells = _of_cells(counts, fitted)
    assert counts.noise_shape is not None  # where r has a prior it has a value
    now = np.log(counts.noise_shape)
    found = minimize_scalar(
        lambda log_shape: -(log_cells(log_shape) + log_noise_prior(prior, log_shape)),
        bounds=(max(LOWEST, now - FURTHEST), min(HIGHEST, now + FURTHEST)),
        method="bounded",
        options={"xatol": CLOSE},
    )
    return float(np.exp(found.x))


def log_noise_integral(counts: CountMatrix, prior: GammaPrior, fitted: Fitted) -> float:
    """log ∫ p(r) e^L(r) dr − L(r of `counts`), nats."""
    log_cells = _of_cells(counts, fitted)

    def integrand(grid: np.ndarray) -> np.ndarray:
        return np.array([log_cells(node) for node in grid]) + log_noise_prior(prior, grid)

    low, high, n = LOWEST, HIGHEST, COARSE
    for _ in range(3):
        grid = np.linspace(low, high, n)
        values = integrand(grid)
        counting = np.flatnonzero(values > values.max() - NEGLIGIBLE)
        low, high = grid[max(counting[0] - 1, 0)], grid[min(counting[-1] + 1, n - 1)]
    grid = np.linspace(low, high, NODES)
    total = logsumexp(integrand(grid)) + np.log(grid[1] - grid[0])
    assert counts.noise_shape is not None  # where r has a prior it has a value
    return float(total - log_cells(np.log(counts.noise_shape)))


def _of_cells(counts: CountMatrix, fitted: Fitted) -> Callable[[float], float]:
    """log r -> what of L(r) depends on r, nats; equal counts share their log-gammas."""
    seen = counts.seen > 0
    x = counts.x[seen]
    mean = (fitted.intensities.mean @ fitted.factors.mean)[seen]
    values, times = np.unique(x, return_counts=True)
    total = float(x.sum())

    def log_cells(log_shape: float) -> float:
        r = np.exp(log_shape)
        gammas = float(times @ (gammaln(r + values) - gammaln(r)))
        return gammas - total * log_shape - float((r + x) @ np.log1p(mean / r))

    return log_cells
