"""Collapsed Gibbs sampling of features: loadings are integrated out, and rows visited in turn.

Source: Griffiths & Ghahramani (2005), §5.2, with the running posterior of Doshi-Velez & Ghahramani (2009). z_nk is 1 if
    row n of N rows has feature k, x_n is the row's data, and m_−nk the number of *other* rows that have feature k.

    z_nk | rest: prior odds m_−nk / (N − m_−nk), likelihood p(x_n | z_n, other rows),      m_−nk > 0
    features that only row n has: see `new_features`.

A sweep costs O(N K (K + D)) with K features and D columns.
"""

from typing import NamedTuple

import numpy as np

from lvsearch.inference.feature_samplers.chain import FeatureState, Hyperparameters
from lvsearch.inference.feature_samplers.loadings import Cells, PatternLoadings, SharedLoadings, fit_loadings
from lvsearch.inference.feature_samplers.new_features import draw_index, log_new_weights


class FeatureRows(NamedTuple):
    """The features of all rows, how many rows have each feature, and the posterior of the loadings given all rows.

    features: 0.0 or 1.0, (row, feature).
    counts: (feature,).
    """

    features: np.ndarray
    counts: np.ndarray
    loadings: SharedLoadings | PatternLoadings


def log_feature_odds(others: np.ndarray, n_rows: int) -> list[float]:
    """Return the prior log odds that a row has each feature, given how many other rows have it.

    others: the number of other rows that have each feature, above 0, (feature,).
    n_rows: the number of rows.
    """
    return (np.log(others) - np.log(n_rows - others)).tolist()


def collapsed_sweep(rng: np.random.Generator, cells: Cells, state: FeatureState) -> FeatureState:
    """Return the state after each row's features were redrawn once, given all other rows' features."""
    loadings = fit_loadings(cells, state.features, (state.hyper.sigma_x / state.hyper.sigma_a) ** 2)
    rows = FeatureRows(state.features.copy(), state.features.sum(0), loadings)
    for row in range(len(state.features)):
        rows = redraw_row(rng, rows, row, state.hyper)
    return state._replace(features=rows.features)


def redraw_row(rng: np.random.Generator, rows: FeatureRows, row: int, hyper: Hyperparameters) -> FeatureRows:
    """Return all features after those of one row were redrawn, given all other rows' features.

    The array of features is changed in place if the number of features stays the same.

    rows: all features, and the posterior of the loadings.
    row: the index of the row.
    """
    alpha, sigma_x, sigma_a = hyper
    features, counts, loadings = rows
    n_rows, z = len(features), features[row]
    # take the row out, then drop the features that only it had
    others = counts - z
    loadings = loadings.update_row(row, z, -1.0)
    shared = others > 0
    alone = len(z) - int(np.count_nonzero(shared))
    if alone:
        loadings = loadings.select(shared)
        features, z, others = features[:, shared], z[shared], others[shared]
    # while shared features are redrawn, the dropped ones still widen the row's variance; after that they do not
    odds, added = log_feature_odds(others, n_rows), alone * (sigma_a / sigma_x) ** 2
    drawn, spreads = loadings.draw_row(row, z, lambda k, _: odds[k], rng, sigma_x, added)
    spreads = [s._replace(variance=s.variance - alone * sigma_a**2) for s in spreads]
    # the number of new features, drawn from its conditional
    more = draw_index(log_new_weights(spreads, alpha / n_rows, sigma_a**2), rng.random())
    z = np.array(drawn + [1.0] * more)
    if more:
        features = np.concatenate([features, np.zeros((n_rows, more))], axis=1)
        loadings = loadings.add_features(more)
        others = np.concatenate([others, np.zeros(more)])
    features[row] = z
    return FeatureRows(features, others + z, loadings.update_row(row, z, 1.0))
