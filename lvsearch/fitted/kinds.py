"""The subclass of `FittedModel` for each type of model, such as `FittedTopics` for topic models.

A type of model whose fits have further methods is registered here with `fitted_type.register`.
"""

from functools import singledispatch
from pathlib import Path

from lvsearch.data.base import Data
from lvsearch.fitted.annotation import FittedImages
from lvsearch.fitted.aspects import FittedAspects
from lvsearch.fitted.blocks import FittedBlocks
from lvsearch.fitted.clusters import FittedMixture
from lvsearch.fitted.factorization import FittedFactorization
from lvsearch.fitted.features import FittedFeatures
from lvsearch.fitted.model import FittedModel
from lvsearch.fitted.populations import FittedPopulations
from lvsearch.fitted.sequences import FittedSequences
from lvsearch.fitted.stored_fits import load_parts
from lvsearch.fitted.topics import FittedTopics
from lvsearch.models.admixture import Admixture
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.contract import Model
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.ibp import IBP
from lvsearch.models.mixture import MixtureModel
from lvsearch.models.plsi import PLSI
from lvsearch.models.poisson_factorization import PoissonFactorization
from lvsearch.models.topic_model import TopicModel
from lvsearch.sizing.fit import Fit


@singledispatch
def fitted_type(model: Model) -> type[FittedModel]:
    """Return the subclass of `FittedModel` for fits of this model; `FittedModel` itself for an unregistered type."""
    return FittedModel


@fitted_type.register
def _fitted_type_of_topic_model(model: TopicModel) -> type[FittedModel]:
    """Return `FittedTopics`, the class for fits of topic models."""
    return FittedTopics


@fitted_type.register
def _fitted_type_of_plsi(model: PLSI) -> type[FittedModel]:
    """Return `FittedAspects`, the class for fits of pLSI."""
    return FittedAspects


@fitted_type.register
def _fitted_type_of_admixture(model: Admixture) -> type[FittedModel]:
    """Return `FittedPopulations`, the class for fits of admixture models."""
    return FittedPopulations


@fitted_type.register
def _fitted_type_of_mixture(model: MixtureModel) -> type[FittedModel]:
    """Return `FittedMixture`, the class for fits of mixtures of rows."""
    return FittedMixture


@fitted_type.register
def _fitted_type_of_annotated_model(model: AnnotatedModel) -> type[FittedModel]:
    """Return `FittedImages`, the class for fits of models of images with captions."""
    return FittedImages


@fitted_type.register
def _fitted_type_of_ibp(model: IBP) -> type[FittedModel]:
    """Return `FittedFeatures`, the class for fits of binary feature models."""
    return FittedFeatures


@fitted_type.register
def _fitted_type_of_hidden_markov(model: HiddenMarkov) -> type[FittedModel]:
    """Return `FittedSequences`, the class for fits of hidden Markov models."""
    return FittedSequences


@fitted_type.register
def _fitted_type_of_block_model(model: LatentBlockModel) -> type[FittedModel]:
    """Return `FittedBlocks`, the class for fits of block models."""
    return FittedBlocks


@fitted_type.register
def _fitted_type_of_poisson_factorization(model: PoissonFactorization) -> type[FittedModel]:
    """Return `FittedFactorization`, the class for fits of Poisson factorisations."""
    return FittedFactorization


def as_fitted_model(fit: Fit, training: Data) -> FittedModel:
    """Return a fit that a search made as a `FittedModel`, with methods such as `transform` and `score`.

    fit: the record of one size in a search, with its evidence and the evaluator's state.
    training: the data that the model was fitted to.

    Raises ValueError for a fit that failed, and for one without a model (of the caller's own fitting function).
    """
    if fit.info.failure is not None or fit.state is None:
        raise ValueError(fit.info.failure or f"the fit of size {fit.size} carries no model; bring your own fits")
    return fitted_type(fit.state.model)(fit.size, fit.evidence, fit.state, training)


def load_fit(folder: str | Path) -> FittedModel:
    """Return the fit that `fit.save` wrote to a folder, ready for `transform` and `score`. Nothing is fitted again.

    Raises FileNotFoundError if there is no such folder. Raises `CorruptFolderError` (a ValueError) if it holds no fit,
    is damaged, or has a model that is not registered here (`lv.models.register`).
    """
    parts = load_parts(Path(folder))
    return fitted_type(parts.estimate.model)(*parts)
