"""Mean field of Poisson factorisations on whole matrices: each sweep is three matrix products.

Let G = exp E[log ·] of each Gamma. With the allocation's q at its optimum, ∝ Gθ_nk Gβ_kv, the bound is (Cemgil 2009,
§3.2)

    Σ_nv x log Σ_k Gθ_nk Gβ_kv − log x! − Σ_k E[θ_nk] E[β_kv]  −  KL(q(θ) ‖ p(θ)) − KL(q(β) ‖ p(β)),      nats,

where sums are over observed cells. Let W = x / Gθ Gβ, and M the mask of observed cells. Then

    q(θ) = Gamma(a/K + Gθ (W Gβᵀ), rate a + M E[β]ᵀ),      q(β) = Gamma(c + Gβ (Gθᵀ W), rate c/μ + E[θ]ᵀ M).

The array (row, column, factor) that the generic engine holds is never made. Everything is float64.

With noise of shape r in every cell, its q is at its optimum too: Gamma(r + x, r + m), where m = Σ_k E[θ_nk] E[β_kv]. In
the bound, −m becomes

    log ∫ Gamma(ε; r, r) ε^x e^(−ε m) dε = log Γ(r + x)/Γ(r) + r log r − (r + x) log(r + m).

Rates are as above, with M E[ε] in the place of M.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import digamma, gammaln

TINY = 1e-300
"""The smallest divisor."""


class Gammas(NamedTuple):
    """Independent Gamma distributions: arrays of shapes and rates."""

    shape: Float64[np.ndarray, "..."]
    rate: Float64[np.ndarray, "..."]

    @property
    def mean(self) -> Float64[np.ndarray, "..."]:
        return self.shape / self.rate

    @property
    def geometric_mean(self) -> Float64[np.ndarray, "..."]:
        """The geometric mean exp E[log ·] of each distribution."""
        return np.exp(digamma(self.shape)) / self.rate

    def divergence(self, prior: "Gammas") -> Float64[np.ndarray, "..."]:
        """Return KL(self ‖ prior) of each distribution, nats."""
        s, r = self
        a, b = prior
        return (s - a) * digamma(s) - gammaln(s) + gammaln(a) + a * (np.log(r) - np.log(b)) + s * (b - r) / r


class CountMatrix(NamedTuple):
    """A matrix of counts.

    x: the counts, 0 where nothing was observed, (row, dim).
    seen: 1 where a cell was observed, else 0, (row, dim).
    noise_shape: the shape r of the cells' noise; None without noise.
    """

    x: Float64[np.ndarray, "row dim"]
    seen: Float64[np.ndarray, "row dim"]
    noise_shape: float | None = None

    def exposed(self, mean: Float64[np.ndarray, "row dim"]) -> Float64[np.ndarray, "row dim"]:
        """Return E[ε] of the observed cells given their means, and 0 for the others, (row, dim)."""
        r = self.noise_shape
        return self.seen if r is None else self.seen * (r + self.x) / (r + mean)

    def log_cells(
        self, counted: Float64[np.ndarray, "row dim"], mean: Float64[np.ndarray, "row dim"]
    ) -> Float64[np.ndarray, "row dim"]:
        """Return x log counted − log x! − m of the observed cells, nats.

        With noise, −m is replaced as in the module's docstring.

        If `counted` and `mean` both are the cell's mean, this is its log-probability. If `counted` is the geometric
        mean, it is the cell's part of the bound.
        """
        x, r = self.x, self.noise_shape
        expected = -mean
        if r is not None:
            expected = gammaln(r + x) - gammaln(r) - x * np.log(r) - (r + x) * np.log1p(mean / r)
        return self.seen * (x * np.log(np.maximum(counted, TINY)) - gammaln(x + 1) + expected)


class Priors(NamedTuple):
    """The prior of every intensity, and of every entry of a factor (1 or factor, 1 or dim)."""

    intensity: Gammas
    factor: Gammas


class Fitted(NamedTuple):
    """q of the intensities (row, factor) and of the factors (factor, dim)."""

    intensities: Gammas
    factors: Gammas


def update_intensities(
    data: CountMatrix, prior: Gammas, intensities: Gammas, geometric: np.ndarray, mean: np.ndarray
) -> Gammas:
    """Return q(θ) after one update.

    prior: of the intensities.
    intensities: q(θ) before the update.
    geometric, mean: geometric and ordinary means of the factors (factor, dim); equal if the factors are known.
    """
    own = intensities.geometric_mean
    expected = np.maximum(own @ geometric, TINY)
    exposed = data.exposed(intensities.mean @ mean)
    return Gammas(prior.shape + own * ((data.x / expected) @ geometric.T), prior.rate + exposed @ mean.T)


def sweep(data: CountMatrix, priors: Priors, fitted: Fitted) -> Fitted:
    """Update q(θ), then q(β), then the scale of every factor."""
    factors = fitted.factors
    geometric = factors.geometric_mean
    intensities = update_intensities(data, priors.intensity, fitted.intensities, geometric, factors.mean)
    own = intensities.geometric_mean
    allotted = own.T @ (data.x / np.maximum(own @ geometric, TINY))
    exposed = data.exposed(intensities.mean @ factors.mean)
    factors = Gammas(priors.factor.shape + geometric * allotted, priors.factor.rate + intensities.mean.T @ exposed)
    return _rescale(priors, Fitted(intensities, factors))


def _rescale(priors: Priors, fitted: Fitted) -> Fitted:
    """Move each factor's scale to its optimum: θ_·k e^y and β_k e^−y at the best y.

    The other updates approach that y only slowly where counts are many.
    """
    (intensities, factors), shape = fitted, priors.intensity.shape
    n_dims = factors.shape.shape[1]
    slope = float(len(intensities.shape) * shape - n_dims * priors.factor.shape)
    up = np.sum(priors.intensity.rate * intensities.mean, axis=0)
    down = np.sum(priors.factor.rate * factors.mean, axis=1)
    # the bound in y is slope · y − up e^y − down e^−y: its maximum is a root of a quadratic, in the stable form
    root = np.sqrt(slope**2 + 4 * up * down)
    by = (slope + root) / (2 * up) if slope > 0 else 2 * down / (root - slope)
    return Fitted(intensities._replace(rate=intensities.rate / by), factors._replace(rate=factors.rate * by[:, None]))


def row_bounds(
    data: CountMatrix, prior: Gammas, intensities: Gammas, geometric: np.ndarray, mean: np.ndarray
) -> Float64[np.ndarray, " row"]:
    """Return every row's part of the bound, without KL(q(β) ‖ p(β)), nats.

    geometric, mean: geometric and ordinary means of the factors (factor, dim).
    """
    cells = data.log_cells(intensities.geometric_mean @ geometric, intensities.mean @ mean)
    return cells.sum(1) - intensities.divergence(prior).sum(1)


def bound(data: CountMatrix, priors: Priors, fitted: Fitted) -> float:
    """Return the bound on log p(counts), nats."""
    factors = fitted.factors
    rows = row_bounds(data, priors.intensity, fitted.intensities, factors.geometric_mean, factors.mean)
    return float(rows.sum() - factors.divergence(priors.factor).sum())
