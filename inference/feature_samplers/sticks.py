"""Slice sampling on the stick-breaking form: every sweep handles an exact, finite set of features.

A *stick* π is the probability that a row has a feature, N the number of rows, and α the concentration of the process.

Source: Teh, Görür & Ghahramani (2007), §4, in its semi-ordered form. Given the features Z, independently,

    stick of a feature that m > 0 rows have:   π ~ Beta(m, 1 + N − m)
    sticks of the features that no row has:    a Poisson process on (0, 1) of intensity α π⁻¹ (1 − π)^N

(their ordered sticks, Eq. 25, are this process's points from the largest down). A slice level

    s | π, Z = π* u^(1/b),  u uniform,      π* = min(1, least stick of a feature that some row has)

has density b s^(b−1) / π*^b below π*. Features with π ≤ s are impossible in this sweep. For the others

    z_nk | rest: prior odds π_k / (1 − π_k), times (π*(z_nk = 0) / π*(z_nk = 1))^b where that changes.

The process above s is drawn by thinning: Poisson(α log(1/s)) points π = s^u, u uniform, are each kept with probability
(1 − π)^N.

There are two departures. The loadings are integrated out, so that a new feature need not guess them, and the row's
likelihood is that of the collapsed sampler. And b = LEVEL_POWER, where Teh et al. have b = 1. Features that no row has
have sticks near 1/N, and a level uniform below a π* of ½ would let them in only once in N/2 sweeps.
"""

from math import log
from typing import Any

import numpy as np
from jaxtyping import Array

from lvsearch.inference.feature_samplers.chain import (
    FIXED,
    FeatureState,
    Hyperparameters,
    Hyperpriors,
)
from lvsearch.inference.feature_samplers.loadings import Cells, LogOdds, Numbers, fit_loadings
from lvsearch.inference.feature_samplers.trace import FeatureTrace, run_chain

LEVEL_POWER = 0.25
"""The power b of the slice level's density: the level is the least used stick times (a uniform number)^(1/b)."""


def slice_sampler(
    X: Any,
    *,
    key: Array,
    alpha: float,
    sigma_x: float,
    sigma_a: float,
    observed: Any = None,
    start: Any = None,
    sweeps: int = 100,
    priors: Hyperpriors = FIXED,
    keep: int = 0,
) -> FeatureTrace:
    """Sample features with explicit sticks (the probabilities of features), with the loadings integrated out.

    X: the data, (row, column).
    key: the random key.
    alpha: the concentration of the process; a starting value if `priors` draws it.
    sigma_x, sigma_a: standard deviations of noise and loadings; starting values if `priors` draws them.
    observed: booleans of the shape of X, None if all cells are observed.
    start: binary features to start with, (row, feature); None begins without features.
    sweeps: how many sweeps to make.
    priors: the priors of hyper-parameters that are to be drawn.
    keep: keep the features after every `keep`-th sweep, 0 for none.

    Raises ValueError for an observed cell that is not finite, for shapes that do not fit, and for hyper-parameters that
    are not positive.
    """
    hyper = Hyperparameters(alpha, sigma_x, sigma_a)
    return run_chain(slice_sweep, X, observed, hyper, key, start, sweeps, priors, keep)


def used_sticks(rng: np.random.Generator, counts: np.ndarray, n_rows: int) -> np.ndarray:
    """Draw the sticks (probabilities) of features that some row has, (feature,).

    counts: how many rows have each feature, above 0, (feature,).
    n_rows: the number of rows.
    """
    return rng.beta(counts, 1 + n_rows - counts)


def unused_sticks(rng: np.random.Generator, alpha: float, level: float, n_rows: int) -> np.ndarray:
    """Draw the sticks (probabilities) above `level` of the features that no row has, (feature,).

    alpha: the concentration of the process.
    n_rows: the number of rows.
    """
    points = level ** rng.random(rng.poisson(-alpha * np.log(level)))
    return points[rng.random(len(points)) < (1 - points) ** n_rows]


def row_log_odds(sticks: np.ndarray, others: np.ndarray) -> LogOdds:
    """Return a function that gives the prior log odds that a row has feature k.

    sticks: the probability of each feature, (feature,).
    others: how many other rows have each feature, (feature,).
    """
    used = others > 0
    plain = (np.log(sticks) - np.log1p(-sticks)).tolist()
    least_used = float(sticks[used].min()) if used.any() else 1.0
    unshared = {k: float(sticks[k]) for k in np.flatnonzero(~used).tolist()}
    return lambda k, z: plain[k] + log_level_ratio(k, z, unshared, least_used) if k in unshared else plain[k]


def log_level_ratio(k: int, z: Numbers, unshared: dict[int, float], least_used: float) -> float:
    """Return how the slice level changes the log odds that the row has feature k, nats; k is one that no other row has.

    It is `LEVEL_POWER` · log(π*(without k) / π*(with k)). Here π* is the least stick (probability) of a
    feature that some row has.

    z: the row's features.
    unshared: the sticks of the features that no other row has, {feature: stick}.
    least_used: the least stick of a feature that another row has.
    """
    without = min([least_used, *(stick for j, stick in unshared.items() if j != k and z[j])])
    return LEVEL_POWER * log(without / min(without, unshared[k]))


def slice_sweep(rng: np.random.Generator, cells: Cells, state: FeatureState) -> FeatureState:
    """Return the state after new sticks and a new slice level were drawn, and then each row's features once."""
    alpha, sigma_x, sigma_a = state.hyper
    n_rows = len(state.features)
    counts = state.features.sum(0)
    sticks = used_sticks(rng, counts, n_rows)
    level = (1.0 - rng.random()) ** (1 / LEVEL_POWER) * min([1.0, *sticks.tolist()])
    unused = unused_sticks(rng, alpha, level, n_rows)
    sticks = np.concatenate([sticks, unused])
    features = np.concatenate([state.features, np.zeros((n_rows, len(unused)))], axis=1)
    counts = features.sum(0)
    loadings = fit_loadings(cells, features, (sigma_x / sigma_a) ** 2)
    for row in range(n_rows):
        z = features[row]
        others = counts - z
        loadings = loadings.update_row(row, z, -1.0)
        drawn, _ = loadings.draw_row(row, z, row_log_odds(sticks, others), rng, sigma_x, 0.0)
        z = np.array(drawn)
        features[row] = z
        counts = others + z
        loadings = loadings.update_row(row, z, 1.0)
    return state._replace(features=features[:, counts > 0])
