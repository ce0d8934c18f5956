"""Mixtures of factor analysers at one size: their ascent, and their annealed path along the rows."""

from lvsearch.inference.factor_analyzers.chain import FactorAnalyzerChain
from lvsearch.inference.factor_analyzers.estimator import FactorAnalyzerEstimator
from lvsearch.inference.factor_analyzers.row_by_row import ScoredRecorder, ScoredRowByRow

__all__ = ["FactorAnalyzerChain", "FactorAnalyzerEstimator", "ScoredRecorder", "ScoredRowByRow"]
