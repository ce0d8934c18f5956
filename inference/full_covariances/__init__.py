"""Mixtures of Gaussians with covariance matrices, one per component or one for all: annealed paths, and fits."""

from lvsearch.inference.full_covariances.chain import FullCovarianceChain, HyperFullCovariances
from lvsearch.inference.full_covariances.tied import TiedEstimator, TiedMixtureChain

__all__ = ["FullCovarianceChain", "HyperFullCovariances", "TiedEstimator", "TiedMixtureChain"]
