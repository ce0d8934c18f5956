"""The mean-field q of the concentration of symmetric Dirichlet priors, under a Gamma prior, without a parametric form.

There are n draws from a symmetric Dirichlet over m entries. The expected logarithms of all draws and entries sum to L.
The part of the evidence bound that depends on the concentration c of one entry is

    f(c) = n [log Γ(m c) − m log Γ(c)] + c L

A hyper-parameter is x = c · share: for the total of all entries, share = m; for the value of one entry, share = 1. Its
best q(x) is proportional to p(x) e^{f(x / share)}, whatever form that has. Its factor adds to the bound

    E_q[f] + E_q[log p(x)] + H[q] = log ∫ p(x) e^{f(x / share)} dx

which is computed by one-dimensional quadrature (Blei 2004, Eq. 2.18, for a factor outside of any family). So a bound at
fixed hyper-parameters, minus f there, plus this integral, is a bound on the evidence with hyper-parameters integrated
out.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import gammaln

from lvsearch.models.hyperpriors import GammaPrior

LOWEST, HIGHEST = -40.0, 40.0
"""The range of log x over which is integrated, for a hyper-parameter x. Mass outside is left out, which lowers the
bound.
"""
NODES, REFINEMENTS = 2001, 5
"""The number of grid points, and how often the range is narrowed before the integral is taken."""
NEGLIGIBLE = 50.0
"""How many nats below its highest point the integrand counts as negligible."""


class Concentration(NamedTuple):
    """A Dirichlet concentration x with a Gamma prior, and the statistics that decide its q.

    | field | meaning |
    |---|---|
    | `prior` | the prior of x |
    | `draws` | how many draws from the Dirichlet there are |
    | `entries` | how many entries each draw has |
    | `log_sum` | the sum of the expected logarithms of all draws and entries |
    | `share` | how many entries x is shared by: all of them for a total, 1 for the value of one entry |
    """

    prior: GammaPrior
    draws: int
    entries: int
    log_sum: float
    share: int

    def log_density(self, value: float) -> float:
        """Return the term of the evidence bound that depends on x, at this value of x, in nats."""
        return float(self._log_densities(np.array([value]))[0])

    def log_integral(self) -> float:
        """Return what x adds to the evidence bound when it is integrated out: log ∫ p(x) exp(its term of the bound) dx,
        in nats.
        """
        return self._integrated()[0]

    def mean(self) -> float:
        """Return the mean of x under its q."""
        return self._integrated()[1]

    def _integrated(self) -> tuple[float, float]:
        """Return (`log_integral()` in nats, `mean()`), by the trapezoidal rule in log x.

        The integrand falls off smoothly on both sides, so the error falls faster than any power of the number of nodes.
        The range is first narrowed to where the integrand is not negligible.
        """
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
        """Return the term of the evidence bound that depends on x at each of some values of x, (node,), in nats."""
        c = values / self.share
        return self.draws * (gammaln(self.entries * c) - self.entries * gammaln(c)) + c * self.log_sum

    def _log_integrand(self, log_value: Float64[np.ndarray, " node"]) -> Float64[np.ndarray, " node"]:
        """Return the log of p(x) exp(the term of the bound) x at each log x, (node,), in nats: the integrand in log
        x.
        """
        shape, rate = (float(each) for each in self.prior)
        log_prior = shape * np.log(rate) - gammaln(shape) + shape * log_value - rate * np.exp(log_value)
        return log_prior + self._log_densities(np.exp(log_value))
