"""Mixtures whose components share a covariance at one size: their annealed path, and fits begun where one ended."""

from lvsearch.inference.tied_mixtures.chain import TiedMixtureChain
from lvsearch.inference.tied_mixtures.estimator import TiedEstimator

__all__ = ["TiedEstimator", "TiedMixtureChain"]
