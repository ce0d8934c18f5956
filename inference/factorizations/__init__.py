"""Matrices of counts at one size: the estimator of Poisson factorisations, and scores of rows and cells."""

from lvsearch.inference.factorizations.estimator import FactorizationEstimator, FactorizationSettings
from lvsearch.inference.factorizations.scores import cell_scores

__all__ = ["FactorizationEstimator", "FactorizationSettings", "cell_scores"]
