"""The shape r of the noise of counts under a Gamma prior, given q of factors and intensities.

A cell's noise is a multiplier ~ Gamma(r, rate r) of its mean. Let L(r) be the bound on log p(counts | r) of one q. Then
log ∫ p(r) e^L(r) dr is a bound on log p(counts). L depends on r through the cells alone, so one-dimensional quadrature
in log r gives the integral.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from scipy.special import gammaln, logsumexp

from lvsearch.inference.factorizations.kernel import CountMatrix, Fitted
from lvsearch.models.hyperpriors import GammaPrior

LOWEST, HIGHEST = -12.0, 13.0
"""The range of log r, where r is the shape of the noise. Probability beyond it is left out, which lowers the bound."""
FURTHEST, CLOSE = 0.5, 0.01
"""How far log r may move in one step, since the factors move too, and how accurately its optimum is found."""
NODES = 61
"""The number of nodes of the final quadrature."""
COARSE, NEGLIGIBLE = 41, 40.0
"""The number of nodes of the grid that locates where the integrand matters, and how many nats below its maximum are
left out.
"""


def log_noise_prior(prior: GammaPrior, log_shape: float | Float64[np.ndarray, " node"]) -> Float64[np.ndarray, "*node"]:
    """Return the log prior density of log r, nats, where r is the shape of the noise.

    prior: the Gamma prior of r.
    log_shape: log r.
    """
    shape, rate = (float(each) for each in prior)
    return np.asarray(shape * np.log(rate) - gammaln(shape) + shape * log_shape - rate * np.exp(log_shape))


def most_probable_noise(counts: CountMatrix, prior: GammaPrior, fitted: Fitted) -> float:
    """Return the shape r of the noise that is most probable given q, at most `FURTHEST` from the current log r.

    It has the highest p(log r) e^L(r), where L(r) is the bound on log p(counts | r).

    counts: the counts, with the current r.
    prior: the Gamma prior of r.
    fitted: q of intensities and factors.
    """
    from scipy.optimize import minimize_scalar  # a tenth of a second that only this needs

    log_cells = _cells_by_log_shape(counts, fitted)
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
    """Return log ∫ p(r) e^L(r) dr − L(r of `counts`), nats, where r is the shape of the noise.

    L(r) is the evidence lower bound given r. So L at the current r plus the result is a bound with r integrated out.

    counts: the counts, with the current r.
    prior: the Gamma prior of r.
    fitted: q of intensities and factors.
    """
    log_cells = _cells_by_log_shape(counts, fitted)

    def integrand(grid: np.ndarray) -> np.ndarray:
        """Return log p(log r) + the part of L(r) that depends on r at each node of a grid of log r, nats."""
        return np.array([log_cells(node) for node in grid]) + log_noise_prior(prior, grid)

    # narrow the range to where the integrand is not negligible, then sum over a fine grid there
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


def _cells_by_log_shape(counts: CountMatrix, fitted: Fitted) -> Callable[[float], float]:
    """Return a function of log r that gives the part of the bound L(r) that depends on the noise's shape r, nats.

    Equal counts share their log-gammas, so a call is cheap.
    """
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
