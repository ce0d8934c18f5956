"""Mean field of Poisson factorisations on whole matrices: all work of a sweep is in products of matrices.

Row n has intensities θ_nk, and factor k has the mean count β_kv in column v. x is a count, a, c and μ are the numbers
of their Gamma priors, and K is the number of factors. Let G = exp E[log ·] of each Gamma. With q of the allocations
(the factor of each single count) at its optimum, ∝ Gθ_nk Gβ_kv, the bound is (Cemgil 2009, §3.2)

    Σ_nv x log Σ_k Gθ_nk Gβ_kv − log x! − Σ_k E[θ_nk] E[β_kv]  −  KL(q(θ) ‖ p(θ)) − KL(q(β) ‖ p(β)),      nats,

where sums are over observed cells. Let W = x / Gθ Gβ, and M the mask of observed cells. Then

    q(θ) = Gamma(a/K + Gθ (W Gβᵀ), rate a + M E[β]ᵀ),      q(β) = Gamma(c + Gβ (Gθᵀ W), rate c/μ + E[θ]ᵀ M).

The generic mean field would hold an array (row, column, factor); here it is never made. Everything is float64.

With noise ε of shape r in every cell, its q is at its optimum too: Gamma(r + x, r + m), where m = Σ_k E[θ_nk] E[β_kv].
In the bound, −m becomes

    log ∫ Gamma(ε; r, r) ε^x e^(−ε m) dε = log Γ(r + x)/Γ(r) + r log r − (r + x) log(r + m).

Rates are as above, with M E[ε] in the place of M. `CountMatrix` alone knows of unobserved cells and of noise.

The shape r may have a Gamma prior. Let L(r) be the bound on log p(counts | r) of one q. Then log ∫ p(r) e^L(r) dr is a
bound on log p(counts). L depends on r through the cells alone, so one-dimensional quadrature in log r gives the
integral (`log_noise_integral`).

A sweep also sets the scale that each factor and its intensities share (`_best_scales`). The loop over sweeps is in
`estimator`. All of this file is NumPy.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int
from scipy.special import digamma, gammaln, logsumexp

from lvsearch.models.hyperpriors import GammaPrior

TINY = 1e-300
"""The smallest divisor, which replaces smaller ones."""


class Gammas(NamedTuple):
    """Independent Gamma distributions: arrays of shapes and rates."""

    shape: Float64[np.ndarray, "..."]
    rate: Float64[np.ndarray, "..."]

    @property
    def mean(self) -> Float64[np.ndarray, "..."]:
        """The mean of each distribution."""
        return self.shape / self.rate

    @property
    def geometric_mean(self) -> Float64[np.ndarray, "..."]:
        """The geometric mean exp E[log ·] of each distribution."""
        return np.exp(digamma(self.shape)) / self.rate

    @property
    def transposed(self) -> "Gammas":
        """The distributions of two-dimensional arrays with rows and columns exchanged."""
        return Gammas(self.shape.T, self.rate.T)

    def divergence(self, prior: "Gammas") -> Float64[np.ndarray, "..."]:
        """Return the Kullback-Leibler divergence from `prior` to each distribution, KL(self ‖ prior), nats."""
        s, r = self
        a, b = prior
        return (s - a) * digamma(s) - gammaln(s) + gammaln(a) + a * (np.log(r) - np.log(b)) + s * (b - r) / r


class CountMatrix(NamedTuple):
    """A matrix of counts.

    x: the counts, 0 where nothing was observed, (row, dim).
    seen: 1 where a cell was observed, else 0, (row, dim).
    noise_shape: the shape r of the cells' noise; None without noise.
    values, places: the different counts, and the place of each cell's count among them. Cells of equal counts share
        their log-gammas, which would otherwise take most of the time of a bound.
    """

    x: Float64[np.ndarray, "row dim"]
    seen: Float64[np.ndarray, "row dim"]
    noise_shape: float | None
    values: Float64[np.ndarray, " value"]
    places: Int[np.ndarray, "row dim"]

    @classmethod
    def of_cells(cls, x: np.ndarray, seen: np.ndarray, noise_shape: float | None = None) -> "CountMatrix":
        """Return the matrix of counts `x`, 0 where nothing was observed. See the class for the arguments."""
        values, places = np.unique(x, return_inverse=True)
        return cls(x, seen, noise_shape, values, places.reshape(x.shape))

    @property
    def transposed(self) -> "CountMatrix":
        """The matrix with rows and columns exchanged."""
        return self._replace(x=self.x.T, seen=self.seen.T, places=self.places.T)

    def exposed(self, mean: Float64[np.ndarray, "row dim"]) -> Float64[np.ndarray, "row dim"]:
        """Return the expected noise E[ε] of observed cells given their means, and 0 for the others; 1 without noise."""
        r = self.noise_shape
        return self.seen if r is None else self.seen * (r + self.x) / (r + mean)

    def log_cells(
        self, counted: Float64[np.ndarray, "row dim"], mean: Float64[np.ndarray, "row dim"]
    ) -> Float64[np.ndarray, "row dim"]:
        """Return each observed cell's log-probability, or its part of the evidence lower bound, nats; 0 if not
        observed.

        Without noise it is x log `counted` − log x! − `mean`, where x is the count. With noise, −`mean` is replaced by
        the logarithm of an integral over the noise (see the file's docstring).

        counted: the cell's mean for the log-probability, or its geometric mean for the bound.
        mean: the cell's mean.
        """
        x, r, values = self.x, self.noise_shape, self.values
        of_value, expected = -gammaln(values + 1), -mean
        if r is not None:
            of_value = of_value + gammaln(r + values) - gammaln(r) - values * np.log(r)
            expected = -(r + x) * np.log1p(mean / r)
        return self.seen * (x * np.log(np.maximum(counted, TINY)) + of_value[self.places] + expected)


class Priors(NamedTuple):
    """The Gamma prior of every intensity, and of every entry of a factor; shapes () or (1 or factor, 1 or dim)."""

    intensity: Gammas
    factor: Gammas


class Fitted(NamedTuple):
    """q of the intensities (row, factor) and of the factors (factor, dim)."""

    intensities: Gammas
    factors: Gammas


def update_intensities(
    data: CountMatrix, prior: Gammas, intensities: Gammas, geometric: np.ndarray, mean: np.ndarray
) -> Gammas:
    """Return q of the intensities after one update, (row, factor).

    prior: the prior of the intensities.
    intensities: q of the intensities before the update.
    geometric, mean: geometric and ordinary means of the factors (factor, dim); equal if the factors are known.
    """
    return _updated_intensities(data, prior, intensities.geometric_mean, intensities.mean, geometric, mean)


def _updated_intensities(
    data: CountMatrix, prior: Gammas, own: np.ndarray, own_mean: np.ndarray, geometric: np.ndarray, mean: np.ndarray
) -> Gammas:
    """Return q of the intensities after one update, (row, factor).

    prior: the prior of the intensities.
    own, own_mean: geometric and ordinary means of the intensities before the update.
    geometric, mean: geometric and ordinary means of the factors (factor, dim); equal if the factors are known.
    """
    expected = np.maximum(own @ geometric, TINY)
    exposed = data.exposed(own_mean @ mean)
    return Gammas(prior.shape + own * ((data.x / expected) @ geometric.T), prior.rate + exposed @ mean.T)


def sweep(data: CountMatrix, priors: Priors, fitted: Fitted, times: int = 1) -> Fitted:
    """Return q after updates of the intensities, of the factors, and of the scale of every factor.

    times: how often all of them are updated.
    """
    intensities, factors = fitted
    # geometric means are carried along, because digamma functions would take a third of the time
    own, geometric = intensities.geometric_mean, factors.geometric_mean
    for _ in range(times):
        intensities = _updated_intensities(data, priors.intensity, own, intensities.mean, geometric, factors.mean)
        own = intensities.geometric_mean
        allotted = own.T @ (data.x / np.maximum(own @ geometric, TINY))
        exposed = data.exposed(intensities.mean @ factors.mean)
        factors = Gammas(priors.factor.shape + geometric * allotted, priors.factor.rate + intensities.mean.T @ exposed)
        by = _best_scales(priors, Fitted(intensities, factors))
        intensities, own = intensities._replace(rate=intensities.rate / by), own * by
        factors = factors._replace(rate=factors.rate * by[:, None])
        geometric = factors.geometric_mean
    return Fitted(intensities, factors)


def _best_scales(priors: Priors, fitted: Fitted) -> Float64[np.ndarray, " factor"]:
    """Return e^y of each factor, where intensities times e^y and factors times e^−y have the highest bound.

    The other updates approach that y only slowly where counts are many.
    """
    (intensities, factors), shape = fitted, priors.intensity.shape
    n_dims = factors.shape.shape[1]
    slope = float(len(intensities.shape) * shape - n_dims * priors.factor.shape)
    up = np.sum(priors.intensity.rate * intensities.mean, axis=0)
    down = np.sum(priors.factor.rate * factors.mean, axis=1)
    # the bound in y is slope · y − up e^y − down e^−y: its maximum is a root of a quadratic, in the stable form
    root = np.sqrt(slope**2 + 4 * up * down)
    return (slope + root) / (2 * up) if slope > 0 else 2 * down / (root - slope)


def row_bounds(
    data: CountMatrix, prior: Gammas, intensities: Gammas, geometric: np.ndarray, mean: np.ndarray
) -> Float64[np.ndarray, " row"]:
    """Return every row's part of the evidence lower bound, without the divergence of the factors from their prior,
    nats.

    prior: the prior of the intensities.
    intensities: q of the intensities.
    geometric, mean: geometric and ordinary means of the factors (factor, dim).
    """
    cells = data.log_cells(intensities.geometric_mean @ geometric, intensities.mean @ mean)
    return cells.sum(1) - intensities.divergence(prior).sum(1)


def bound(data: CountMatrix, priors: Priors, fitted: Fitted) -> float:
    """Return the evidence lower bound on log p(counts), nats."""
    factors = fitted.factors
    rows = row_bounds(data, priors.intensity, fitted.intensities, factors.geometric_mean, factors.mean)
    return float(rows.sum() - factors.divergence(priors.factor).sum())


LOWEST, HIGHEST = -12.0, 13.0
"""The range of log r, where r is the shape of the noise. Probability beyond it is left out, which lowers the bound."""
FURTHEST, CLOSE = 0.5, 0.01
"""The largest move of log r in one step, since the factors move too, and the accuracy of its optimum."""
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

    It has the highest p(log r) e^L(r), where L(r) is the bound on log p(counts | r). A current log r outside of
    `LOWEST` … `HIGHEST` is first moved to the nearer end.

    counts: the counts, with the current r.
    prior: the Gamma prior of r.
    fitted: q of intensities and factors.
    """
    from scipy.optimize import minimize_scalar  # a tenth of a second that only this needs

    log_cells = _cells_by_log_shape(counts, fitted)
    assert counts.noise_shape is not None  # where r has a prior it has a value
    now = np.clip(np.log(counts.noise_shape), LOWEST, HIGHEST)  # the prior mean, where it begins, may lie outside
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
    values, times = counts.values, np.bincount(counts.places[seen], minlength=len(counts.values))
    total = float(x.sum())

    def log_cells(log_shape: float) -> float:
        r = np.exp(log_shape)
        gammas = float(times @ (gammaln(r + values) - gammaln(r)))
        return gammas - total * log_shape - float((r + x) @ np.log1p(mean / r))

    return log_cells
