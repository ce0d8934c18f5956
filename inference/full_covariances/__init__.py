"""Mixtures of Gaussians with covariances of their own at one size: their annealed path, one matrix kept inverted."""

from lvsearch.inference.full_covariances.chain import FullCovarianceChain
from lvsearch.inference.full_covariances.hyperparameters import HyperFullCovariances

__all__ = ["FullCovarianceChain", "HyperFullCovariances"]
