"""The kinds of components that a mixture can have, related kinds in one file, all with the interface of `Component`."""

from lvsearch.models.components.categorical import (
    BernoulliComponents,
    CategoricalComponents,
    GenotypeComponents,
    LevelComponents,
)
from lvsearch.models.components.component import (
    Component,
    draw_hyper,
    draw_rows,
    log_hyper_prior,
    log_likelihood,
    log_normalisers,
    log_predictive,
    log_prior,
)
from lvsearch.models.components.counts import MultinomialComponents, NegativeBinomialComponents, PoissonComponents
from lvsearch.models.components.covariances import FullCovarianceComponents, KnownCovarianceComponents
from lvsearch.models.components.diagonal import DiagonalComponents
from lvsearch.models.components.directions import VonMisesFisherComponents
from lvsearch.models.components.factor_analyzers import FactorAnalyzerComponents
from lvsearch.models.components.mixed import MixedComponents
from lvsearch.models.components.student import StudentComponents

__all__ = [
    "BernoulliComponents",
    "CategoricalComponents",
    "Component",
    "DiagonalComponents",
    "FactorAnalyzerComponents",
    "FullCovarianceComponents",
    "GenotypeComponents",
    "KnownCovarianceComponents",
    "LevelComponents",
    "MixedComponents",
    "MultinomialComponents",
    "NegativeBinomialComponents",
    "PoissonComponents",
    "StudentComponents",
    "VonMisesFisherComponents",
    "draw_hyper",
    "draw_rows",
    "log_hyper_prior",
    "log_likelihood",
    "log_normalisers",
    "log_predictive",
    "log_prior",
]
