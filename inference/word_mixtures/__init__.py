"""Fits of simpler models than LDA to word counts, for comparison: unigram, mixture of unigrams, and pLSI.

The unigram's posterior has a closed form. The mixture is fitted by variational Bayes or EM, pLSI by EM or tempered EM.
"""

from lvsearch.inference.word_mixtures.mixture import (
    UnigramMixtureEstimator,
    UnigramMixtureSettings,
    document_proportions,
    with_more_words,
)
from lvsearch.inference.word_mixtures.plsi import PLSIEstimator, PLSISettings, Tempering, choose_tempering

__all__ = [
    "PLSIEstimator",
    "PLSISettings",
    "Tempering",
    "UnigramMixtureEstimator",
    "UnigramMixtureSettings",
    "choose_tempering",
    "document_proportions",
    "with_more_words",
]
