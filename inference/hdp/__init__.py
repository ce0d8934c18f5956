"""The hierarchical Dirichlet process of topics: its estimator, its sampler, and how many topics are occupied."""

from lvsearch.inference.hdp.estimator import HDPEstimator, HDPSettings
from lvsearch.inference.hdp.gibbs import HDPSample, direct_assignment
from lvsearch.inference.hdp.occupied import occupied_topics

__all__ = ["HDPEstimator", "HDPSample", "HDPSettings", "direct_assignment", "occupied_topics"]
