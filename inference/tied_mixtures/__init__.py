"""Mixtures whose components share one covariance: their annealed path, and fits that begin from its labels."""

from lvsearch.inference.tied_mixtures.chain import TiedMixtureChain
from lvsearch.inference.tied_mixtures.estimator import TiedEstimator

__all__ = ["TiedEstimator", "TiedMixtureChain"]
