"""The data, state and hyper-parameter updates that all chains over feature matrices share.

The state has a matrix Z of features, (N rows, K features); the order of its columns means nothing. X is the data, (N,
D), and A the loadings, (K, D). Hyper-parameters are the concentration α and the standard deviations σ_x of noise and
σ_A of loadings. They are drawn after the features, by Gibbs steps (Griffiths & Ghahramani 2011, §5), each only if it
has a Gamma(a, b) prior:

    α    | Z      ~ Gamma(a + K, b + H_N),                     H_N = 1 + 1/2 + … + 1/N
    1/σ_A² | A    ~ Gamma(a + KD/2, b + Σ A²/2)
    1/σ_x² | X, Z, A ~ Gamma(a + n/2, b + Σ (X − ZA)²/2),      n observed cells

The collapsed samplers draw A | Z, X for the last two and then discard it. This is a step on (A, σ) that leaves their
joint conditional unchanged, so nothing needs tuning.
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
