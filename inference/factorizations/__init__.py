"""Matrices of counts at one size: the estimator of Poisson factorisations, and how they score rows."""

from lvsearch.inference.factorizations.estimator import FactorizationEstimator, FactorizationSettings

__all__ = ["FactorizationEstimator", "FactorizationSettings"]
