"""Hierarchical Dirichlet processes of topics and of groups of rows: estimators, samplers, and how many parts are
occupied.

A part is a topic or a component; it is occupied if some token or row belongs to it.
"""

from lvsearch.inference.hdp.estimator import HDPEstimator, HDPSettings
from lvsearch.inference.hdp.gibbs import GroupsSample, HDPSample, direct_assignment, group_direct_assignment
from lvsearch.inference.hdp.groups import GroupsEstimator, GroupSettings
from lvsearch.inference.hdp.occupied import occupied_parts, occupied_shared_components, occupied_topics
from lvsearch.inference.hdp.units import group_predictive_log_density

__all__ = [
    "GroupSettings",
    "GroupsEstimator",
    "GroupsSample",
    "HDPEstimator",
    "HDPSample",
    "HDPSettings",
    "direct_assignment",
    "group_direct_assignment",
    "group_predictive_log_density",
    "occupied_parts",
    "occupied_shared_components",
    "occupied_topics",
]
