"""Binary features under the Indian buffet process: a search for the best matrix, with a bound on what it may have
missed.
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
