"""Models and exponential families: the probability distributions that are assumed, before any inference.

Every model is a pure log-joint. This package does no inference, no input or output and no search.
"""

from lvsearch.models import families
from lvsearch.models.admixture import Admixture
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.checks import ContractReport, check
from lvsearch.models.components import (
    BernoulliComponents,
    CategoricalComponents,
    DiagonalComponents,
    FactorAnalyzerComponents,
    FullCovarianceComponents,
    GenotypeComponents,
    KnownCovarianceComponents,
    LevelComponents,
    MixedComponents,
    MultinomialComponents,
    NegativeBinomialComponents,
    PoissonComponents,
    StudentComponents,
    VonMisesFisherComponents,
)
from lvsearch.models.components.component import Component
from lvsearch.models.contract import Gate, Masks, Model, Site, first, hyperparameter, log_relabellings
from lvsearch.models.corr_lda import CorrLDA
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.gm_lda import GMLDA
from lvsearch.models.gm_mixture import GMMixture
from lvsearch.models.hdp import HDP, HDPMixture
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.hlda import HLDA
from lvsearch.models.ibp import IBP, GammaPrior
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.lda import LDA, TopicSeeds
from lvsearch.models.mixture_of_unigrams import MixtureOfUnigrams, Unigram
from lvsearch.models.plsi import PLSI
from lvsearch.models.poisson_factorization import PoissonFactorization
from lvsearch.models.registry import register
from lvsearch.models.tied_mixture import TiedMixture
from lvsearch.models.units import AnnotatedImage, BagOfWords, GroupOfRows, Row

__all__ = [
    "GMLDA",
    "HDP",
    "HLDA",
    "IBP",
    "LDA",
    "PLSI",
    "Admixture",
    "AnnotatedImage",
    "BagOfWords",
    "BernoulliComponents",
    "CategoricalComponents",
    "Component",
    "ContractReport",
    "CorrLDA",
    "DPMixture",
    "DiagonalComponents",
    "FactorAnalyzerComponents",
    "FactorAnalyzerMixture",
    "FiniteMixture",
    "FullCovarianceComponents",
    "GMMixture",
    "GammaPrior",
    "Gate",
    "GenotypeComponents",
    "GroupOfRows",
    "HDPMixture",
    "HiddenMarkov",
    "IndependentNormalMixture",
    "KnownCovarianceComponents",
    "LatentBlockModel",
    "LevelComponents",
    "Masks",
    "MixedComponents",
    "MixtureOfUnigrams",
    "Model",
    "MultinomialComponents",
    "NegativeBinomialComponents",
    "PoissonComponents",
    "PoissonFactorization",
    "Row",
    "Site",
    "StudentComponents",
    "TiedMixture",
    "TopicSeeds",
    "Unigram",
    "VonMisesFisherComponents",
    "check",
    "families",
    "first",
    "hyperparameter",
    "log_relabellings",
    "register",
]
