"""A symmetric Dirichlet's concentration under a Gamma prior: its mean-field q, without a parametric form.

For n draws of m entries each, with expected logarithms that sum to L over all draws and entries, the part of the
evidence bound in which a concentration c per entry stands is

    f(c) = n [log Γ(m c) − m log Γ(c)] + c L

so that the best q(x) of a hyper-parameter x = c · share (a total: share = m; the value of one entry: share = 1) is
proportional to p(x) e^{f(x / share)}, whatever form that has, and what its factor adds to the bound is

    E_q[f] + E_q[log p(x)] + H[q] = log ∫ p(x) e^{f(x / share)} dx

which one-dimensional quadrature gives (Blei 2004, Eq. 2.18, for a factor outside of any family). So a bound at fixed
hyper-parameters, less f there, plus this integral, is a bound on the evidence with hyper-parameters integrated out.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import gammaln

from lvsearch.models.hyperpriors import GammaPrior

LOWEST, HIGHEST = -40.0, 40.0
"""Of log x: mass beyond is left out, which lowers the bound."""
NODES, REFINEMENTS = 2001, 5
NEGLIGIBLE = 50.0
"""Nats below the highest point from which on the integrand is left out."""


class Concentration(NamedTuple):
    """A hyper-parameter x and what beliefs at hand say of it.

    | field | meaning |
    |---|---|
    | `prior` | of x |
    | `draws`, `entries`, `log_sum` | n, m, L |
    | `share` | x / c: how many entries x is shared by |
    """

    prior: GammaPrior
    draws: int
    entries: int
    log_sum: float
    share: int

    def log_density(self, value: float) -> float:
        """f, nats: what the bound at this value of x has in it."""
        return float(self._log_densities(np.array([value]))[0])

    def log_integral(self) -> float:
        """log ∫ p(x) e^f(x) dx, nats."""
        return self._integrated()[0]

    def mean(self) -> float:
        """E[x] under q."""
        return self._integrated()[1]

    def _integrated(self) -> tuple[float, float]:
        """By the trapezoidal rule in log x, where the integrand falls off smoothly on both sides: the error falls
        faster than any power of the number of nodes. The range is narrowed to what counts first."""
        low, high = LOWEST, HIGHEST
        for _ in range(REFINEMENTS):
            grid = np.linspace(low, high, NODES)
            log_weight = self._log_integrand(grid)
            counts = np.flatnonzero(log_weight > log_weight.max() - NEGLIGIBLE)
            low, high = grid[max(counts[0] - 1, 0)], grid[min(counts[-1] + 1, NODES - 1)]
        grid = np.linspace(low, high, NODES)
        log_weight = self._log_integrand(grid) + np.log(grid[1] - grid[0])
        total = np.logaddexp.reduce(log_weight)
        return float(total), float(np.exp(np.logaddexp.reduce(log_weight + grid) - total))

    def _log_densities(self, values: Float64[np.ndarray, " node"]) -> Float64[np.ndarray, " node"]:
        c = values / self.share
        return self.draws * (gammaln(self.entries * c) - self.entries * gammaln(c)) + c * self.log_sum

    def _log_integrand(self, log_value: Float64[np.ndarray, " node"]) -> Float64[np.ndarray, " node"]:
        """Of log x: log p(x) + f(x) + log x."""
        shape, rate = (float(each) for each in self.prior)
        log_prior = shape * np.log(rate) - gammaln(shape) + shape * log_value - rate * np.exp(log_value)
        return log_prior + self._log_densities(np.exp(log_value))
