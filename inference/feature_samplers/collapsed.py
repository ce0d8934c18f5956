"""`collapsed_gibbs`, the function that runs a collapsed Gibbs sampler of features (loadings integrated out).

The sweeps are in `collapsed_rows` and `compiled`.
"""

from typing import Any

import numpy as np
from jaxtyping import Array

from lvsearch.inference.feature_samplers.chain import FIXED, Hyperparameters, Hyperpriors
from lvsearch.inference.feature_samplers.collapsed_rows import collapsed_sweep
from lvsearch.inference.feature_samplers.compiled import compiled_sweep
from lvsearch.inference.feature_samplers.trace import FeatureTrace, run_chain


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
    compiled: bool = False,
) -> FeatureTrace:
    """Sample features by Gibbs sampling of one row after another, with the loadings integrated out.

    X: the data, (row, column).
    key: the random key.
    alpha: the concentration of the process; a starting value if `priors` draws it.
    sigma_x, sigma_a: standard deviations of noise and loadings; starting values if `priors` draws them.
    observed: booleans of the shape of X, None if all cells are observed; unobserved cells may hold anything.
    start: binary features to start with, (row, feature), such as `map_features(…).features`; None begins without
        features.
    sweeps: how many sweeps to make.
    priors: the priors of hyper-parameters that are to be drawn.
    keep: keep the features after every `keep`-th sweep, 0 for none.
    compiled: use the compiled sweep, which is several times faster after seconds of compiling for each capacity (8, 16,
        … features). It pays from about a thousand sweeps of a hundred rows. The first sweep's `seconds` contain the
        compiling.

    Raises ValueError for an observed cell that is not finite, for shapes that do not fit, for hyper-parameters that are
    not positive, and for missing cells if `compiled`.
    """
    if compiled and observed is not None and not np.all(observed):
        raise ValueError("got missing cells and compiled=True, expected all cells observed: leave compiled=False")
    hyper = Hyperparameters(alpha, sigma_x, sigma_a)
    sweep = compiled_sweep if compiled else collapsed_sweep
    return run_chain(sweep, X, observed, hyper, key, start, sweeps, priors, keep)
