"""What all chains over feature matrices share: their data, their state, and hyper-parameters given that.

The state is a member Z of a left-ordered class; the order of its columns means nothing. Hyper-parameters are drawn
after the features, by Gibbs steps (Griffiths & Ghahramani 2011, §5), each only where it has a prior:

    α    | Z      ~ Gamma(a + K₊, b + H_N)
    1/σ_A² | A    ~ Gamma(a + KD/2, b + Σ A²/2)
    1/σ_x² | X, Z, A ~ Gamma(a + n/2, b + Σ (X − ZA)²/2),      n observed cells

The collapsed samplers draw A | Z, X for the last two and forget it again: a step on (A, σ) that leaves their joint
conditional in place, so nothing needs tuning.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from lvsearch.inference.feature_samplers.loadings import Cells, fit_loadings
from lvsearch.inference.features import left_ordered, log_marginal, log_prior
from lvsearch.inference.features.prior import harmonic
from lvsearch.models.ibp import GammaPrior


class Hyperparameters(NamedTuple):
    """α, σ_x and σ_A of the linear-Gaussian feature model."""

    alpha: float
    sigma_x: float
    sigma_a: float


class Hyperpriors(NamedTuple):
    """The prior of each hyper-parameter that is to be drawn; None keeps it at its given value.

    `noise_precision` is the prior of 1/σ_x², `loading_precision` of 1/σ_A².
    """

    concentration: GammaPrior | None = None
    noise_precision: GammaPrior | None = None
    loading_precision: GammaPrior | None = None


FIXED = Hyperpriors()


class FeatureState(NamedTuple):
    """`features` Z (N, K) as 0.0 and 1.0, no empty column; hyper-parameters; `loadings` A (K, D) where the sampler has
    them in its state, None where it integrates them out."""

    features: Float64[np.ndarray, "row feature"]
    hyper: Hyperparameters
    loadings: Float64[np.ndarray, "feature column"] | None = None


Sweep = Callable[[np.random.Generator, Cells, FeatureState], FeatureState]


def log_joint(cells: Cells, features: np.ndarray, hyper: Hyperparameters) -> float:
    """log p(X, [Z]) in nats, loadings integrated out."""
    likelihood = log_marginal(cells.values, features, hyper.sigma_x, hyper.sigma_a, cells.observed)
    return log_prior(features, hyper.alpha) + likelihood


def draw_loadings(
    rng: np.random.Generator, cells: Cells, features: np.ndarray, hyper: Hyperparameters
) -> Float64[np.ndarray, "feature column"]:
    """A | Z, X: one draw (K, D)."""
    posterior = fit_loadings(cells, features, (hyper.sigma_x / hyper.sigma_a) ** 2)
    return posterior.draw(rng, hyper.sigma_x)


def draw_hyperparameters(
    rng: np.random.Generator, cells: Cells, state: FeatureState, priors: Hyperpriors
) -> Hyperparameters:
    """Each hyper-parameter that has a prior, given Z, and A (drawn for the purpose where the state has none)."""
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
    """Features (and loadings), then hyper-parameters."""
    state = sweep(rng, cells, state)
    return state._replace(hyper=draw_hyperparameters(rng, cells, state, priors))


def start_state(cells: Cells, start: Any, hyper: Hyperparameters) -> FeatureState:
    """The given features; none where `start` is None."""
    n_rows = len(cells.values)
    features = left_ordered(np.zeros((n_rows, 0)) if start is None else start).astype(np.float64)
    if len(features) != n_rows:
        raise ValueError(f"got start with {len(features)} rows, expected the {n_rows} rows of X")
    return FeatureState(features, hyper)
