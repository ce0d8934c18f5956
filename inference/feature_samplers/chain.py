"""The parts that samplers of feature matrices share: state, updates of hyper-parameters, and draws of new features.

The state has a matrix Z of features, (N rows, K features); the order of its columns means nothing. X is the data, (N,
D), and A the loadings, (K, D). Hyper-parameters are the concentration α and the standard deviations σ_x of noise and
σ_A of loadings. They are drawn after the features, by Gibbs steps (Griffiths & Ghahramani 2011, §5), each only if it
has a Gamma(a, b) prior:

    α    | Z      ~ Gamma(a + K, b + H_N),                     H_N = 1 + 1/2 + … + 1/N
    1/σ_A² | A    ~ Gamma(a + KD/2, b + Σ A²/2)
    1/σ_x² | X, Z, A ~ Gamma(a + n/2, b + Σ (X − ZA)²/2),      n observed cells

The collapsed samplers draw A | Z, X for the last two and then discard it. This is a step on (A, σ) that leaves their
joint conditional unchanged, so nothing needs tuning.

**New features** are those that one row has and no other row has. Given everything else, the number j of such features
of row n is Poisson(α/N) a priori, with N rows and concentration α (rows are exchangeable, so any row can be the last).
Each adds σ_A², the variance of a loading, to the variance of the row's cells x once its loadings are integrated out:

    p(j | rest) ∝ Poisson(j; α/N) · p(x | j),   p(x | j) = Π Normal(residual; 0, variance + j σ_A²).

j is drawn from this conditional itself (Griffiths & Ghahramani 2005, §5.2, who cut the sum off). A Metropolis step
whose proposal is the conditional is always accepted. A proposal from the Poisson alone would try a new feature only α
times per sweep. The sum is cut where the rest is below e^−TAIL of it. With L = max_j p(x | j) over real j, the terms
from J on are at most 2 L Poisson(J) as soon as J + 1 ≥ 2α/N.
"""

from collections.abc import Callable
from math import exp, inf, lgamma, log
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from lvsearch.inference.feature_samplers.loadings import Cells, Spread, fit_loadings
from lvsearch.inference.features import left_ordered, log_marginal, log_prior
from lvsearch.inference.features.prior import harmonic
from lvsearch.models.ibp import GammaPrior


class Hyperparameters(NamedTuple):
    """The hyper-parameters of the linear-Gaussian feature model.

    alpha: the concentration of the Indian buffet process.
    sigma_x: the standard deviation of the noise.
    sigma_a: the standard deviation of the loadings.
    """

    alpha: float
    sigma_x: float
    sigma_a: float


class Hyperpriors(NamedTuple):
    """The priors of the hyper-parameters that are to be drawn. None keeps a hyper-parameter at its given value.

    concentration: the prior of α, the concentration of the process.
    noise_precision: the prior of 1/σ_x², where σ_x is the standard deviation of the noise.
    loading_precision: the prior of 1/σ_A², where σ_A is the standard deviation of the loadings.
    """

    concentration: GammaPrior | None = None
    noise_precision: GammaPrior | None = None
    loading_precision: GammaPrior | None = None


FIXED = Hyperpriors()
"""The choice of priors by which no hyper-parameter is drawn: all keep their given values."""


class FeatureState(NamedTuple):
    """The state of one chain.

    features: Z, which row has which feature, (row, feature), as 0.0 and 1.0, without empty columns.
    hyper: the hyper-parameters.
    loadings: A, what each feature adds to a row, (feature, column); None if the sampler integrates them out.
    """

    features: Float64[np.ndarray, "row feature"]
    hyper: Hyperparameters
    loadings: Float64[np.ndarray, "feature column"] | None = None


Sweep = Callable[[np.random.Generator, Cells, FeatureState], FeatureState]
"""A function that makes one sweep over the features (and loadings) of a chain."""


def log_joint(cells: Cells, features: np.ndarray, hyper: Hyperparameters) -> float:
    """Return log p(data, features) in nats, with loadings integrated out.

    Feature matrices that differ only in the order of their columns count as one.

    features: Z, (row, feature).
    """
    likelihood = log_marginal(cells.values, features, hyper.sigma_x, hyper.sigma_a, cells.observed)
    return log_prior(features, hyper.alpha) + likelihood


def draw_loadings(
    rng: np.random.Generator, cells: Cells, features: np.ndarray, hyper: Hyperparameters
) -> Float64[np.ndarray, "feature column"]:
    """Draw the loadings from their posterior given data and features."""
    posterior = fit_loadings(cells, features, (hyper.sigma_x / hyper.sigma_a) ** 2)
    return posterior.draw(rng, hyper.sigma_x)


def draw_hyperparameters(
    rng: np.random.Generator, cells: Cells, state: FeatureState, priors: Hyperpriors
) -> Hyperparameters:
    """Draw each hyper-parameter that has a prior, given features and loadings.

    If the state has no loadings, they are drawn for the purpose.
    """
    alpha, sigma_x, sigma_a = state.hyper
    if priors.concentration is not None:
        shape, rate = priors.concentration
        alpha = rng.gamma(shape + state.features.shape[1]) / (rate + harmonic(len(state.features)))
    if priors.loading_precision is None and priors.noise_precision is None:
        return Hyperparameters(float(alpha), sigma_x, sigma_a)
    loadings = draw_loadings(rng, cells, state.features, state.hyper) if state.loadings is None else state.loadings
    if priors.loading_precision is not None:
        shape, rate = priors.loading_precision
        sigma_a = ((rate + float((loadings**2).sum()) / 2) / rng.gamma(shape + loadings.size / 2)) ** 0.5
    if priors.noise_precision is not None:
        shape, rate = priors.noise_precision
        residual = (cells.values - state.features @ loadings)[cells.observed]
        sigma_x = ((rate + float(residual @ residual) / 2) / rng.gamma(shape + residual.size / 2)) ** 0.5
    return Hyperparameters(float(alpha), float(sigma_x), float(sigma_a))


def full_sweep(
    rng: np.random.Generator, sweep: Sweep, cells: Cells, state: FeatureState, priors: Hyperpriors
) -> FeatureState:
    """Return the state after one sweep over features (and loadings) and a draw of the hyper-parameters.

    sweep: the function that makes the sweep over the features.
    """
    state = sweep(rng, cells, state)
    return state._replace(hyper=draw_hyperparameters(rng, cells, state, priors))


def start_state(cells: Cells, start: Any, hyper: Hyperparameters) -> FeatureState:
    """Return the state with the given features `start`, (row, feature); without features if it is None.

    Raises ValueError if `start` has another number of rows than the data.
    """
    n_rows = len(cells.values)
    features = left_ordered(np.zeros((n_rows, 0)) if start is None else start).astype(np.float64)
    if len(features) != n_rows:
        raise ValueError(f"got start with {len(features)} rows, expected the {n_rows} rows of X")
    return FeatureState(features, hyper)


TAIL = 36.0
"""The sum over the number of new features is cut where the rest is below e^−TAIL of it."""


def log_new_weights(spreads: list[Spread], rate: float, loading_variance: float) -> list[float]:
    """Return the unnormalised log probability that a row has j = 0, 1, … features of its own, nats.

    It is log Poisson(j; rate) p(row | j) without e^−rate and 2π, up to where the rest is negligible.

    spreads: the row's cells, grouped by their predictive variance.
    rate: the prior mean of j.
    loading_variance: σ_A², by which each feature widens the cells' variance.
    """
    log_rate, most, highest = log(rate), 0.0, -inf
    for cells, variance, squares in spreads:
        best = max(squares / cells, variance)
        most -= 0.5 * (cells * log(best) + squares / best)
    weights: list[float] = []
    while True:
        j = len(weights)
        weight = j * log_rate - lgamma(j + 1)
        if weight + most < highest - TAIL and j + 1 >= 2 * rate:
            return weights
        added = j * loading_variance
        for cells, variance, squares in spreads:
            weight -= 0.5 * (cells * log(variance + added) + squares / (variance + added))
        weights.append(weight)
        highest = max(highest, weight)


def draw_index(log_weights: list[float], uniform: float) -> int:
    """Draw an index with probability ∝ exp(log_weights), by inverting a uniform random number."""
    highest = max(log_weights)
    weights = [exp(w - highest) for w in log_weights]
    threshold = uniform * sum(weights)
    for index, weight in enumerate(weights):
        threshold -= weight
        if threshold < 0:
            return index
    return weights.index(max(weights))  # rounding left the last crumb of probability


def draw_loadings_of_new(
    rng: np.random.Generator, residual: np.ndarray, seen: np.ndarray, more: int, sigma_x: float, sigma_a: float
) -> Float64[np.ndarray, "feature column"]:
    """Draw the loadings of new features that one row alone has, given the row's residual.

    A draw from the prior is corrected by the data. Let A⁰ and the noise be drawn from the prior, for `more` = j
    features. Then A⁰ + σ_A²/(σ_x² + jσ_A²) (residual − Σ A⁰ − noise) is a draw from the posterior. Columns that are not
    observed keep the prior.

    residual: the row's cells minus the sum of the loadings of its other features, (column,).
    seen: which cells of the row are observed, (column,).
    more: the number of new features.
    sigma_x, sigma_a: standard deviations of noise and loadings.
    """
    prior = sigma_a * rng.standard_normal((more, len(residual)))
    noise = sigma_x * rng.standard_normal(len(residual))
    gain = sigma_a**2 / (sigma_x**2 + more * sigma_a**2)
    return prior + np.where(seen, gain * (residual - prior.sum(0) - noise), 0.0)
