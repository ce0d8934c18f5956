"""Collapsed Gibbs sampling: loadings integrated out, rows visited in turn.

Source: Griffiths & Ghahramani (2005), §5.2, with the running posterior of Doshi-Velez & Ghahramani (2009). With m_−nk
the number of *other* rows that have feature k,

    z_nk | rest: prior odds m_−nk / (N − m_−nk), likelihood p(x_n | z_n, other rows),      m_−nk > 0
    features of row n alone: see `new_features`.

A sweep costs O(N K (K + D)).
"""

from typing import Any

import numpy as np
from jaxtyping import Array

from lvsearch.inference.feature_samplers.chain import ChainState, FeatureTrace, Hyperparameters, Hyperpriors, run_chain
from lvsearch.inference.feature_samplers.loadings import Cells, fit_loadings
from lvsearch.inference.feature_samplers.new_features import draw_index, log_new_weights

FIXED = Hyperpriors()


def collapsed_gibbs(
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
    """Sample features with the loadings integrated out.

    X: (N, D). observed: booleans (N, D), None for all; cells that are not observed may hold anything.
    alpha, sigma_x, sigma_a: hyper-parameters, starting values of those that `priors` draws.
    start: Z (N, K) binary, such as `map_features(…).features`; None begins with no feature at all.
    keep: keep Z after every `keep`-th sweep, 0 for none. Raises ValueError for an observed cell that is not finite, for
    shapes that do not fit, and for hyper-parameters that are not positive.
    """
    hyper = Hyperparameters(alpha, sigma_x, sigma_a)
    return run_chain(collapsed_sweep, X, observed, hyper, key, start, sweeps, priors, keep)


def log_feature_odds(others: np.ndarray, n_rows: int) -> list[float]:
    """log m_−nk / (N − m_−nk) for each feature that another row has."""
    return (np.log(others) - np.log(n_rows - others)).tolist()


def collapsed_sweep(rng: np.random.Generator, cells: Cells, state: ChainState) -> ChainState:
    """Each row's features once, given all other rows'."""
    alpha, sigma_x, sigma_a = state.hyper
    ratio = (sigma_x / sigma_a) ** 2
    features = state.features.copy()
    n_rows = len(features)
    counts = features.sum(0)
    loadings = fit_loadings(cells, features, ratio)
    for row in range(n_rows):
        z = features[row]
        others = counts - z
        loadings = loadings.updated(row, z, -1.0)
        shared = others > 0
        alone = len(z) - int(np.count_nonzero(shared))
        if alone:
            loadings = loadings.select(shared)
            features, z, others = features[:, shared], z[shared], others[shared]
        odds = log_feature_odds(others, n_rows)
        drawn, spreads = loadings.draw_row(row, z, lambda k, _, o=odds: o[k], rng, sigma_x, alone / ratio)
        spreads = [s._replace(variance=s.variance - alone * sigma_a**2) for s in spreads]
        more = draw_index(log_new_weights(spreads, alpha / n_rows, sigma_a**2), rng.random())
        z = np.array(drawn + [1.0] * more)
        if more:
            features = np.concatenate([features, np.zeros((n_rows, more))], axis=1)
            loadings = loadings.extended(more)
            others = np.concatenate([others, np.zeros(more)])
        features[row] = z
        counts = others + z
        loadings = loadings.updated(row, z, 1.0)
    return state._replace(features=features)
