"""Mixtures of rows whose components share one covariance matrix: the annealed path, and the fits."""

from lvsearch.inference.tied_mixtures.chain import TiedMixtureChain
from lvsearch.inference.tied_mixtures.estimator import TiedEstimator

__all__ = ["TiedEstimator", "TiedMixtureChain"]
