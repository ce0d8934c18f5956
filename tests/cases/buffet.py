"""What the tests of feature samplers share: joint draws, z-scores, and a planted bug for each sampler."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lvsearch.inference.feature_samplers import collapsed, particles, sticks
from lvsearch.inference.feature_samplers.chain import Hyperparameters, Hyperpriors
from lvsearch.inference.feature_samplers.loadings import fit_loadings


@dataclass(frozen=True)
class Sampler:
    """A chain, how to break it (`plant` makes one of its functions wrong), and sweeps between nearly independent draws
    on four rows."""

    name: str
    sweep: Callable[..., Any]
    plant: Callable[[Any], None]
    thin: int


def plant_in_collapsed(monkeypatch: Any) -> None:
    """The row counts itself among the rows that have the feature."""
    monkeypatch.setattr(
        collapsed, "log_feature_odds", lambda others, n: (np.log(others + 1) - np.log(n - others)).tolist()
    )


def plant_in_compiled(monkeypatch: Any) -> None:
    """New features at twice their rate."""
    right = collapsed._sweep_rows

    def wrong(padded: Any, values: Any, randoms: Any, hyper: Any, first: Any) -> Any:
        return right(padded, values, randoms, hyper * np.array([2.0, 1.0, 1.0]), first)

    monkeypatch.setattr(collapsed, "_sweep_rows", wrong)


def plant_in_uncollapsed(monkeypatch: Any) -> None:
    """Loadings at their posterior mean instead of drawn."""

    def mean(rng: Any, cells: Any, features: Any, hyper: Any) -> Any:
        return fit_loadings(cells, features, (hyper.sigma_x / hyper.sigma_a) ** 2).mean

    monkeypatch.setattr(sticks, "draw_loadings", mean)


def plant_in_slice(monkeypatch: Any) -> None:
    """Sticks as under a uniform prior."""
    monkeypatch.setattr(sticks, "used_sticks", lambda rng, m, n: rng.beta(m + 1, 1 + n - m))


def plant_in_filter(monkeypatch: Any) -> None:
    """A row is weighted by its new features as drawn, not by the sum over their number."""
    right = particles._draw_new

    def wrong(*args: Any) -> Any:
        more, _, log_new, log_likelihood = right(*args)
        return more, log_new + log_likelihood, log_new, log_likelihood

    monkeypatch.setattr(particles, "_draw_new", wrong)


SAMPLERS = (
    Sampler("collapsed", collapsed.collapsed_sweep, plant_in_collapsed, 8),
    Sampler("uncollapsed", sticks.uncollapsed_sweep, plant_in_uncollapsed, 30),
    Sampler("slice", sticks.slice_sweep, plant_in_slice, 8),
)


COMPILED = Sampler("compiled", collapsed.compiled_sweep, plant_in_compiled, 8)
"""Collapsed too, without missing cells."""


def batch_z(samples: np.ndarray, truth: np.ndarray, n_batches: int = 50) -> np.ndarray:
    """Samples (sweep, …) against exact means, by batch means."""
    batches = samples[: len(samples) // n_batches * n_batches].reshape(n_batches, -1, *samples.shape[1:]).mean(1)
    return (batches.mean(0) - truth) / (batches.std(0, ddof=1) / np.sqrt(n_batches))


class Joint(NamedTuple):
    """One draw of everything: hyper-parameters, Z (N, K₊), A (K₊, D), X (N, D)."""

    hyper: Hyperparameters
    features: np.ndarray
    loadings: np.ndarray
    values: np.ndarray


def draw_buffet(rng: np.random.Generator, n_rows: int, alpha: float) -> np.ndarray:
    """Z (N, K₊) customer by customer: an old dish with probability m_k / n, Poisson(α/n) new ones."""
    features = np.zeros((n_rows, 0))
    for row in range(n_rows):
        features[row] = rng.random(features.shape[1]) < features.sum(0) / (row + 1)
        new = np.zeros((n_rows, rng.poisson(alpha / (row + 1))))
        new[row] = 1
        features = np.concatenate([features, new], axis=1)
    return features


def draw_values(rng: np.random.Generator, features: np.ndarray, loadings: np.ndarray, sigma_x: float) -> np.ndarray:
    return features @ loadings + sigma_x * rng.standard_normal((len(features), loadings.shape[1]))


def draw_joint(rng: np.random.Generator, n_rows: int, n_columns: int, priors: Hyperpriors) -> Joint:
    """From the prior: every hyper-parameter has one."""
    alpha, noise, loading = (rng.gamma(prior.shape) / prior.rate for prior in priors)
    hyper = Hyperparameters(float(alpha), float(noise**-0.5), float(loading**-0.5))
    features = draw_buffet(rng, n_rows, hyper.alpha)
    loadings = hyper.sigma_a * rng.standard_normal((features.shape[1], n_columns))
    return Joint(hyper, features, loadings, draw_values(rng, features, loadings, hyper.sigma_x))
