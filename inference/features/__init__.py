"""Binary features under the Indian buffet process: a search for the most probable matrix of features.

The search also bounds how much more probable a matrix that it missed can be.
"""

from lvsearch.inference.features.linear_gaussian import LinearGaussian
from lvsearch.inference.features.map_estimate import MapFeatures, map_features
from lvsearch.inference.features.marginal import log_marginal, posterior_loadings
from lvsearch.inference.features.noisy_or import NoisyOr
from lvsearch.inference.features.prior import left_ordered, log_prior

__all__ = [
    "LinearGaussian",
    "MapFeatures",
    "NoisyOr",
    "left_ordered",
    "log_marginal",
    "log_prior",
    "map_features",
    "posterior_loadings",
]
