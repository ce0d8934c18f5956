"""Mean field of Poisson factorisations on whole matrices: the allocation at its optimum, three products a sweep.

With G = exp E[log ·] of each Gamma, and the allocation's q at its optimum, ∝ Gθ_nk Gβ_kv, the bound is (Cemgil 2009,
§3.2)

    Σ_nv x log Σ_k Gθ_nk Gβ_kv − log x! − Σ_k E[θ_nk] E[β_kv]  −  KL(q(θ) ‖ p(θ)) − KL(q(β) ‖ p(β)),      nats,

sums over observed cells, and with W = x / Gθ Gβ

    q(θ) = Gamma(a/K + Gθ (W Gβᵀ), rate a + M E[β]ᵀ),      q(β) = Gamma(c + Gβ (Gθᵀ W), rate c/μ + E[θ]ᵀ M),

M the mask of what was observed. A table (row, column, factor), which the generic engine holds, is never made. float64.
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
    """The data: x, 0 where nothing was observed, and 1 where something was."""

    x: Float64[np.ndarray, "row dim"]
    seen: Float64[np.ndarray, "row dim"]


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
    return Gammas(prior.shape + own * ((data.x / expected) @ geometric.T), prior.rate + data.seen @ mean.T)


def sweep(data: CountMatrix, priors: Priors, fitted: Fitted) -> Fitted:
    """A step of q(θ), one of q(β), and one of every factor's scale."""
    factors = fitted.factors
    geometric = factors.geometric_mean
    intensities = intensities_given(data, priors.intensity, fitted.intensities, geometric, factors.mean)
    own = intensities.geometric_mean
    allotted = own.T @ (data.x / np.maximum(own @ geometric, TINY))
    factors = Gammas(priors.factor.shape + geometric * allotted, priors.factor.rate + intensities.mean.T @ data.seen)
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
    expected = np.maximum(intensities.geometric_mean @ geometric, TINY)
    cells = data.x * np.log(expected) - gammaln(data.x + 1)
    means = (intensities.mean * (data.seen @ mean.T)).sum(1)
    return cells.sum(1) - means - intensities.divergence(prior).sum(1)


def bound(data: CountMatrix, priors: Priors, fitted: Fitted) -> float:
    """The bound on log p(counts), nats."""
    factors = fitted.factors
    rows = row_bounds(data, priors.intensity, fitted.intensities, factors.geometric_mean, factors.mean)
    return float(rows.sum() - factors.divergence(priors.factor).sum())
