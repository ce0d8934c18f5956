"""Sequences at one size: the kernel and the estimator of hidden Markov models."""

from lvsearch.inference.sequences.estimator import HiddenMarkovEstimator, SequenceSettings
from lvsearch.inference.sequences.kernel import most_probable_paths

__all__ = ["HiddenMarkovEstimator", "SequenceSettings", "most_probable_paths"]
