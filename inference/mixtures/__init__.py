"""Variational fits of mixtures of rows with a given number of components.

Here are the kernels, starts and proposals of the fits, predictive densities, and simulation of partitions.
"""

from lvsearch.inference.mixtures.estimator import MixtureEstimator, MixtureSettings
from lvsearch.inference.mixtures.improving import FitHistory
from lvsearch.inference.mixtures.partitions import (
    OccupiedCounts,
    chinese_restaurant,
    log_block_count_prior,
    log_partition_prior,
    occupied_along,
    occupied_over_chains,
    occupied_under,
    polya_urn,
    stick_breaking,
)
from lvsearch.inference.mixtures.predictive import predictive_log_density
from lvsearch.inference.mixtures.proposals import Proposal

__all__ = [
    "FitHistory",
    "MixtureEstimator",
    "MixtureSettings",
    "OccupiedCounts",
    "Proposal",
    "chinese_restaurant",
    "log_block_count_prior",
    "log_partition_prior",
    "occupied_along",
    "occupied_over_chains",
    "occupied_under",
    "polya_urn",
    "predictive_log_density",
    "stick_breaking",
]
