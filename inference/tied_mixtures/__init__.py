"""Mixtures whose components share a covariance: their annealed path. They are fitted as other mixtures are."""

from lvsearch.inference.tied_mixtures.chain import TiedMixtureChain

__all__ = ["TiedMixtureChain"]
