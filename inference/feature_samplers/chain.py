"""What all chains over feature matrices share: their data, their state, their trace, and the loop.

The state is a member Z of a left-ordered class; the order of its columns means nothing. Hyper-parameters are drawn
after the features, by Gibbs steps (Griffiths & Ghahramani 2011, §5), each only where it has a prior:

    α    | Z      ~ Gamma(a + K₊, b + H_N)
    1/σ_A² | A    ~ Gamma(a + KD/2, b + Σ A²/2)
    1/σ_x² | X, Z, A ~ Gamma(a + n/2, b + Σ (X − ZA)²/2),      n observed cells

The collapsed samplers draw A | Z, X for the last two and forget it again: a step on (A, σ) that leaves their joint
conditional in place, so nothing needs tuning.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float64

from lvsearch.inference.feature_samplers.loadings import Cells, fit_loadings, read_cells
from lvsearch.inference.features import left_ordered, log_marginal, log_prior
from lvsearch.inference.features.marginal import positive
from lvsearch.inference.features.prior import harmonic
from lvsearch.inference.generators import generator
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


class ChainState(NamedTuple):
    """`features` Z (N, K) as 0.0 and 1.0, no empty column; hyper-parameters; `loadings` A (K, D) where the sampler has
    them in its state, None where it integrates them out."""

    features: Float64[np.ndarray, "row feature"]
    hyper: Hyperparameters
    loadings: Float64[np.ndarray, "feature column"] | None = None


Sweep = Callable[[np.random.Generator, Cells, ChainState], ChainState]


@dataclass(frozen=True)
class FeatureTrace:
    """What a chain visited. Arrays have one entry per state: the start first, then one after each sweep.

    | field | meaning |
    |---|---|
    | `log_joint` | log p(X, [Z]) on left-ordered classes, loadings integrated out, in nats, at the state's own α, σ_x, σ_A: the score of `map_features`, for every sampler |
    | `n_features` | K₊, features that some row has |
    | `alpha`, `sigma_x`, `sigma_a` | hyper-parameters |
    | `seconds` | of each sweep, the start 0; computing `log_joint` is not counted |
    | `features` | the last Z (N, K₊), left-ordered |
    | `best` | the Z of the highest `log_joint`, left-ordered |
    | `kept` | Z after every `keep`-th sweep, left-ordered; empty unless asked for |
    """  # noqa: E501 — a table row is one line

    log_joint: np.ndarray
    n_features: np.ndarray
    alpha: np.ndarray
    sigma_x: np.ndarray
    sigma_a: np.ndarray
    seconds: np.ndarray
    features: np.ndarray
    best: np.ndarray
    kept: tuple[np.ndarray, ...]


class _Visit(NamedTuple):
    """One entry of each array of a trace, in its order."""

    log_joint: float
    n_features: int
    alpha: float
    sigma_x: float
    sigma_a: float
    seconds: float


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
    rng: np.random.Generator, cells: Cells, state: ChainState, priors: Hyperpriors
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
    rng: np.random.Generator, sweep: Sweep, cells: Cells, state: ChainState, priors: Hyperpriors
) -> ChainState:
    """Features (and loadings), then hyper-parameters."""
    state = sweep(rng, cells, state)
    return state._replace(hyper=draw_hyperparameters(rng, cells, state, priors))


def start_state(cells: Cells, start: Any, hyper: Hyperparameters) -> ChainState:
    """The given features; none where `start` is None."""
    n_rows = len(cells.values)
    features = left_ordered(np.zeros((n_rows, 0)) if start is None else start).astype(np.float64)
    if len(features) != n_rows:
        raise ValueError(f"got start with {len(features)} rows, expected the {n_rows} rows of X")
    return ChainState(features, hyper)


def run_chain(
    sweep: Sweep,
    X: Any,
    observed: Any,
    hyper: Hyperparameters,
    key: Array,
    start: Any,
    sweeps: int,
    priors: Hyperpriors,
    keep: int,
) -> FeatureTrace:
    """`sweeps` full sweeps from `start`. Raises ValueError as the samplers say."""
    cells = read_cells(X, observed)
    hyper = Hyperparameters(*(positive(name, value) for name, value in zip(hyper._fields, hyper, strict=True)))
    if sweeps < 0 or keep < 0:
        raise ValueError(f"got sweeps={sweeps}, keep={keep}; expected whole numbers ≥ 0 (keep=0 keeps no features)")
    rng = generator(key)
    state = start_state(cells, start, hyper)
    visited = [_Visit(log_joint(cells, state.features, hyper), state.features.shape[1], *hyper, 0.0)]
    best, kept = state.features, []
    for number in range(1, sweeps + 1):
        begun = perf_counter()
        state = full_sweep(rng, sweep, cells, state, priors)
        seconds = perf_counter() - begun
        score = log_joint(cells, state.features, state.hyper)
        if score > max(visit.log_joint for visit in visited):
            best = state.features
        visited.append(_Visit(score, state.features.shape[1], *state.hyper, seconds))
        if keep and number % keep == 0:
            kept.append(left_ordered(state.features))
    return FeatureTrace(
        *(np.array(column) for column in zip(*visited, strict=True)),
        features=left_ordered(state.features),
        best=left_ordered(best),
        kept=tuple(kept),
    )
