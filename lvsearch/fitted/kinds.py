"""The class of a fit for each type of model.

A type of model whose fits have methods of their own is registered here.
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
    """Return the class of the fits of a model."""
    return FittedModel


@fitted_type.register
def _(model: TopicModel) -> type[FittedModel]:
    return FittedTopics


@fitted_type.register
def _(model: PLSI) -> type[FittedModel]:
    return FittedAspects


@fitted_type.register
def _(model: Admixture) -> type[FittedModel]:
    return FittedPopulations


@fitted_type.register
def _(model: MixtureModel) -> type[FittedModel]:
    return FittedMixture


@fitted_type.register
def _(model: AnnotatedModel) -> type[FittedModel]:
    return FittedImages


@fitted_type.register
def _(model: IBP) -> type[FittedModel]:
    return FittedFeatures


@fitted_type.register
def _(model: HiddenMarkov) -> type[FittedModel]:
    return FittedSequences


@fitted_type.register
def _(model: LatentBlockModel) -> type[FittedModel]:
    return FittedBlocks


@fitted_type.register
def _(model: PoissonFactorization) -> type[FittedModel]:
    return FittedFactorization


def fitted(fit: Fit, training: Data) -> FittedModel:
    """Return a fit of a search in the form that people use. Raises ValueError for a fit that failed."""
    if fit.info.failure is not None or fit.state is None:
        raise ValueError(fit.info.failure or f"the fit of size {fit.size} carries no model; bring your own fits")
    return fitted_type(fit.state.model)(fit.size, fit.evidence, fit.state, training)


def load_fit(folder: str | Path) -> FittedModel:
    """Return the fit that `fit.save` wrote, to transform and score with. Nothing is fitted.

    Raises FileNotFoundError if there is no such folder. Raises `CorruptFolderError` (a ValueError) if it holds no fit,
    is damaged, or has a model that is not registered here (`lv.models.register`).
    """
    parts = load_parts(Path(folder))
    return fitted_type(parts.estimate.model)(*parts)
