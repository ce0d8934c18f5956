"""Matrices of counts at one size: the estimator of Poisson factorisations, and what they make of rows."""

from lvsearch.inference.factorizations.estimator import FactorizationEstimator, FactorizationSettings
from lvsearch.inference.factorizations.scores import cell_scores

__all__ = ["FactorizationEstimator", "FactorizationSettings", "cell_scores"]
