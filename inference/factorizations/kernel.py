"""Mean field of Poisson factorisations on whole matrices: the allocation at its optimum, three products a sweep.

With G = exp E[log ·] of each Gamma, and the allocation's q at its optimum, ∝ Gθ_nk Gβ_kv, the bound is (Cemgil 2009,
§3.2)

    Σ_nv x log Σ_k Gθ_nk Gβ_kv − log x! − Σ_k E[θ_nk] E[β_kv]  −  KL(q(θ) ‖ p(θ)) − KL(q(β) ‖ p(β)),      nats,

sums over observed cells, and with W = x / Gθ Gβ

    q(θ) = Gamma(a/K + Gθ (W Gβᵀ), rate a + M E[β]ᵀ),      q(β) = Gamma(c + Gβ (Gθᵀ W), rate c/μ + E[θ]ᵀ M),

M the mask of what was observed. A table (row, column, factor), which the generic engine holds, is never made. float64.

With noise of shape r in every cell, its q is at its optimum too, Gamma(r + x, r + m) of m = Σ_k E[θ_nk] E[β_kv], and
the bound has log ∫ Gamma(ε; r, r) ε^x e^(−ε m) dε = log Γ(r + x)/Γ(r) + r log r − (r + x) log(r + m) in the place of
−m. Rates are as above with M E[ε] in the place of M.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import digamma, gammaln

TINY = 1e-300


class Gammas(NamedTuple):
    """Independent Gamma distributions: shapes and rates, of one shape."""

    shape: Float64[np.ndarray, "..."]
    rate: Float64[np.ndarray, "..."]

    @property
    def mean(self) -> Float64[np.ndarray, "..."]:
        return self.shape / self.rate

    @property
    def geometric_mean(self) -> Float64[np.ndarray, "..."]:
        """exp E[log ·]"""
        return np.exp(digamma(self.shape)) / self.rate

    def divergence(self, prior: "Gammas") -> Float64[np.ndarray, "..."]:
        """KL(self ‖ prior) of each, nats."""
        s, r = self
        a, b = prior
        return (s - a) * digamma(s) - gammaln(s) + gammaln(a) + a * (np.log(r) - np.log(b)) + s * (b - r) / r


class CountMatrix(NamedTuple):
    """The data: x, 0 where nothing was observed, and 1 where something was; and r, None without noise."""

    x: Float64[np.ndarray, "row dim"]
    seen: Float64[np.ndarray, "row dim"]
    noise_shape: float | None = None

    def exposed(self, mean: Float64[np.ndarray, "row dim"]) -> Float64[np.ndarray, "row dim"]:
        """E[ε] of the observed cells given their means, 0 of the others."""
        r = self.noise_shape
        return self.seen if r is None else self.seen * (r + self.x) / (r + mean)

    def log_cells(
        self, counted: Float64[np.ndarray, "row dim"], mean: Float64[np.ndarray, "row dim"]
    ) -> Float64[np.ndarray, "row dim"]:
        """x log counted − log x! − m, nats, of the observed cells; with noise what it has in the place of −m. The log
        probability of a cell where both are its mean, its part of the bound where `counted` is the geometric one."""
        x, r = self.x, self.noise_shape
        expected = -mean
        if r is not None:
            expected = gammaln(r + x) - gammaln(r) - x * np.log(r) - (r + x) * np.log1p(mean / r)
        return self.seen * (x * np.log(np.maximum(counted, TINY)) - gammaln(x + 1) + expected)


class Priors(NamedTuple):
    """Of every intensity, and of every cell of a factor (1 or factor, 1 or dim)."""

    intensity: Gammas
    factor: Gammas


class Fitted(NamedTuple):
    """q of the intensities (row, factor) and of the factors (factor, dim)."""

    intensities: Gammas
    factors: Gammas


def intensities_given(
    data: CountMatrix, prior: Gammas, intensities: Gammas, geometric: np.ndarray, mean: np.ndarray
) -> Gammas:
    """One step of q(θ). geometric, mean: of the factors (factor, dim); equal where these are known."""
    own = intensities.geometric_mean
    expected = np.maximum(own @ geometric, TINY)
    exposed = data.exposed(intensities.mean @ mean)
    return Gammas(prior.shape + own * ((data.x / expected) @ geometric.T), prior.rate + exposed @ mean.T)


def sweep(data: CountMatrix, priors: Priors, fitted: Fitted) -> Fitted:
    """A step of q(θ), one of q(β), and one of every factor's scale."""
    factors = fitted.factors
    geometric = factors.geometric_mean
    intensities = intensities_given(data, priors.intensity, fitted.intensities, geometric, factors.mean)
    own = intensities.geometric_mean
    allotted = own.T @ (data.x / np.maximum(own @ geometric, TINY))
    exposed = data.exposed(intensities.mean @ factors.mean)
    factors = Gammas(priors.factor.shape + geometric * allotted, priors.factor.rate + intensities.mean.T @ exposed)
    return _rescaled(priors, Fitted(intensities, factors))


def _rescaled(priors: Priors, fitted: Fitted) -> Fitted:
    """θ_·k e^y and β_k e^−y at the best y, which the steps themselves creep up on where counts are many."""
    (intensities, factors), shape = fitted, priors.intensity.shape
    n_dims = factors.shape.shape[1]
    slope = float(len(intensities.shape) * shape - n_dims * priors.factor.shape)
    up = np.sum(priors.intensity.rate * intensities.mean, axis=0)
    down = np.sum(priors.factor.rate * factors.mean, axis=1)
    root = np.sqrt(slope**2 + 4 * up * down)
    by = (slope + root) / (2 * up) if slope > 0 else 2 * down / (root - slope)
    return Fitted(intensities._replace(rate=intensities.rate / by), factors._replace(rate=factors.rate * by[:, None]))


def row_bounds(
    data: CountMatrix, prior: Gammas, intensities: Gammas, geometric: np.ndarray, mean: np.ndarray
) -> Float64[np.ndarray, " row"]:
    """Every row's part of the bound, KL(q(β) ‖ p(β)) not among them; nats. geometric, mean: as above."""
    cells = data.log_cells(intensities.geometric_mean @ geometric, intensities.mean @ mean)
    return cells.sum(1) - intensities.divergence(prior).sum(1)


def bound(data: CountMatrix, priors: Priors, fitted: Fitted) -> float:
    """The bound on log p(counts), nats."""
    factors = fitted.factors
    rows = row_bounds(data, priors.intensity, fitted.intensities, factors.geometric_mean, factors.mean)
    return float(rows.sum() - factors.divergence(priors.factor).sum())
