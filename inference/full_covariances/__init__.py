"""Annealed paths for mixtures of Gaussians with a full covariance per component, whose inverse matrices are stored."""

from lvsearch.inference.full_covariances.chain import FullCovarianceChain
from lvsearch.inference.full_covariances.hyperparameters import HyperFullCovariances

__all__ = ["FullCovarianceChain", "HyperFullCovariances"]
