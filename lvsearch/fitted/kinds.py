"""The subclass of `FittedModel` for each type of model, such as `FittedTopics` for topic models.

A type of model whose fits have further methods has a row in `FITTED_TYPES`.

The class of a fitted pLSI model, `FittedAspects`, is here too. In pLSI, document proportions have no prior
distribution, so new documents are scored in another way than under LDA.
"""

from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from lvsearch.data.base import Data
from lvsearch.data.corpus import Corpus
from lvsearch.files.storage import CorruptFolderError
from lvsearch.fitted.annotation import FittedImages
from lvsearch.fitted.blocks import FittedBlocks
from lvsearch.fitted.clusters import FittedMixture
from lvsearch.fitted.factorization import FittedFactorization
from lvsearch.fitted.features import FittedFeatures
from lvsearch.fitted.model import FittedModel
from lvsearch.fitted.populations import FittedPopulations
from lvsearch.fitted.sequences import FittedSequences
from lvsearch.fitted.stored_fits import load_parts
from lvsearch.fitted.topics import ArrangedTopics, FittedTopics
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.estimate import Estimate, reordered
from lvsearch.inference.kits import row_of
from lvsearch.inference.likelihood import document_likelihood
from lvsearch.inference.word_mixtures import with_more_words
from lvsearch.models.admixture import Admixture
from lvsearch.models.annotated import AnnotatedModel
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.contract import Model
from lvsearch.models.hdp import HDPMixture
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.hlda import HLDA
from lvsearch.models.ibp import IBP
from lvsearch.models.independent_normal import IndependentNormalMixture
from lvsearch.models.lda import LDA
from lvsearch.models.mixture import MixtureModel
from lvsearch.models.plain_arguments import as_path
from lvsearch.models.plsi import PLSI
from lvsearch.models.poisson_factorization import PoissonFactorization
from lvsearch.models.topic_model import TopicModel
from lvsearch.sizing.fit import Fit
from lvsearch.topics.readable_topics import Arrangement, ReadableTopics

SLACK = 1e-9
"""The amount by which each end of an interval is moved outwards for rounding errors, relative to 1 + |score|."""


@dataclass(frozen=True, repr=False)
class FittedAspects(FittedTopics):
    """A pLSI model (probabilistic latent semantic indexing), fitted at one size (number of topics).

    `transform` folds new documents in: it fits their proportions with the topics held fixed. Scores treat the
    proportions of a new document as drawn at random from those of the training documents.
    """

    def score_units(self, data: Any) -> Float[np.ndarray, " units"]:
        """Return log p(document) of each document, (documents,), in nats, exactly.

        It is the likelihood averaged over the proportions of the training documents. It is not the likelihood at
        folded-in proportions, which would be fitted to the scored words.

        data: new or training documents, as a `Corpus`, a matrix of counts, or raw texts.

        Source: Blei (2004), §3.6.1.
        """
        counts = counts_of(self.training.like_this(data).dataset())
        topics = self.table(self.model.topic_site).to_numpy(np.float64)
        return document_likelihood(topics, self.proportions_prior, counts, method="exact").log_likelihood

    def interval_units(self, data: Any) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
        """Return (lower, upper) bounds on log p(document) of each document, each (documents,), in nats.

        Both are the exact value of `score_units`, moved outwards by rounding errors.
        """
        value = self.score_units(data)
        slack = SLACK * (1 + np.abs(value))
        return value - slack, value + slack


FITTED_TYPES: dict[type[Model], type[FittedModel]] = {
    Model: FittedModel,
    TopicModel: FittedTopics,
    PLSI: FittedAspects,
    Admixture: FittedPopulations,
    HLDA: FittedModel,
    HDPMixture: FittedModel,
    MixtureModel: FittedMixture,
    IndependentNormalMixture: FittedMixture,
    HiddenMarkov: FittedSequences,
    LatentBlockModel: FittedBlocks,
    IBP: FittedFeatures,
    PoissonFactorization: FittedFactorization,
    AnnotatedModel: FittedImages,
}
"""{type of model: the type of its fits}. That of `Model` is what every fit offers."""


def fitted_type(model: Model) -> type[FittedModel]:
    """Return the subclass of `FittedModel` for fits of this model: that of its type, or of the nearest base class."""
    return row_of(FITTED_TYPES, model, "a subclass of lvsearch.models.Model")


@singledispatch
def component_table(fitted: FittedModel | ReadableTopics) -> pd.DataFrame:
    """Return a table of the components of a fit for people, with a row per component, the largest first.

    Columns are `name` and, where units are described by shares of components, `share` (of all observations). Of topics
    follow `label`, if documents have labels, and `words`; of mixtures the mean of each column of the data; of features
    what a feature adds to each column. The index has the numbers of the components.
    """
    assert isinstance(fitted, FittedModel)  # topics are registered below
    names = fitted.component_names()
    table = pd.DataFrame({"name": names}, index=pd.RangeIndex(len(names), name="component"))
    try:
        members = fitted.members()
    except ValueError:  # units that are not described by shares of components
        return table
    if not np.allclose(members.shares.sum(axis=1), 1.0, atol=1e-3):  # numbers of another kind, which happen to be small
        return table
    table["share"] = members.weight @ members.shares / max(float(members.weight.sum()), 1e-300)
    return table.sort_values("share", ascending=False, kind="stable")


@component_table.register
def _table_of_topics(fitted: ReadableTopics) -> pd.DataFrame:
    """Return the table of topics: name, share of the tokens, label and words."""
    table = fitted.topics().rename(columns={"prevalence": "share"})
    if "name" not in table:
        table.insert(0, "name", fitted.names())
    return table


@component_table.register
def _table_of_clusters(fitted: FittedMixture) -> pd.DataFrame:
    """Return the table of clusters: name, mixing weight, and the mean of each column of the data."""
    return _with_columns(fitted.component_names(), fitted.weights(), fitted.means())


@component_table.register
def _table_of_features(fitted: FittedFeatures) -> pd.DataFrame:
    """Return the table of features: name, share of the rows, and what a feature adds to each column of the data."""
    return _with_columns(fitted.component_names(), fitted.shares(), fitted.loadings())


def _with_columns(names: tuple[str, ...], shares: pd.Series, columns: pd.DataFrame) -> pd.DataFrame:
    """Return names, shares and further columns as a table, the largest share first. A column may be called "name"."""
    head = pd.DataFrame({"name": list(names), "share": shares.to_numpy(np.float64)}, index=columns.index)
    order = np.argsort(-head["share"].to_numpy(), kind="stable")
    return pd.concat([head, columns], axis=1).iloc[order]


def as_fitted_model(fit: Fit, training: Data) -> FittedModel:
    """Return a fit that a search made as a `FittedModel`, with methods such as `transform` and `score`.

    fit: the record of one size in a search, with its evidence and the evaluator's state.
    training: the data that the model was fitted to.

    Raises ValueError for a fit that failed, and for one without a model (of the caller's own fitting function).
    """
    if fit.info.failure is not None or fit.state is None:
        raise ValueError(fit.info.failure or f"the fit of size {fit.size} carries no model; bring your own fits")
    return fitted_type(fit.state.model)(fit.size, fit.evidence, fit.state, training)


def load_fit(folder: str | Path) -> FittedModel | ArrangedTopics:
    """Return the fit that `fit.save` wrote to a folder, ready for `transform` and `score`. Nothing is fitted again.

    If topics with names of their own, or merged or without some, were saved, these are returned (`ArrangedTopics`).

    Raises FileNotFoundError if there is no such folder. Raises `CorruptFolderError` (a ValueError) if it holds no fit,
    is damaged, or has a model that is not registered here (`lv.models.register`). Raises ValueError for a folder that
    is no path.
    """
    folder = as_path("folder", folder)
    parts, arrangement = load_parts(folder)
    fitted = fitted_type(parts.estimate.model)(*parts)
    if arrangement is None:
        return fitted
    if not isinstance(fitted, FittedTopics):
        raise CorruptFolderError(f"{folder} holds an arrangement of topics, but no topics; was it written by lvsearch?")
    try:
        return ArrangedTopics(fitted, Arrangement.from_json(arrangement))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFolderError(f"{folder} holds a damaged arrangement of topics ({error})") from error


def start_on(fit: FittedModel, data: Data) -> Estimate | None:
    """Return the estimate of a fit in a form from which a fit of more data can begin; None if its kind has none.

    fit: a fit of the first part of the data.
    data: the data that will be fitted, joined by `Data.joined`: their vocabulary may be longer.
    """
    if isinstance(fit, FittedTopics) and isinstance(data, Corpus):
        return with_more_words(fit.estimate, data.term_totals[fit.table(fit.model.topic_site).shape[1] :])
    return fit.estimate if isinstance(fit, FittedMixture) else None


def numbered_like(fit: FittedModel, pattern: FittedModel) -> Estimate:
    """Return the estimate of a fit whose components have the numbers of the components of another fit.

    Each component gets the number of the one that it is paired with, in the pairs with the greatest sum of affinities.
    Components without a partner follow, in their order. Fewer components than the other fit has are in its order.
    Components that the model tells apart by itself (`n_given`) keep their numbers.

    fit: the fit of a model with one size variable. pattern: a fit of the same type of model to data on the same axes.

    Kinds of models whose components have no affinity, and processes, keep the numbers that they have.
    """
    estimate, model = fit.estimate, fit.model
    similar = None if model.process else pattern.affinity(fit)
    if similar is None:
        return estimate
    given = model.n_given
    free = linear_sum_assignment(-np.nan_to_num(similar)[given:, given:])[1]  # by increasing number in the pattern
    partners = [*range(given), *(given + free).tolist()]
    order = np.array([*partners, *sorted({*range(estimate.size[0])} - {*partners})])
    if isinstance(model, LDA) and np.ndim(model.numbers()[0]):  # a concentration for each topic
        concentration = np.asarray(model.numbers()[0])[order]
        estimate = estimate._replace(model=LDA(concentration, model.topic_concentration, model.topics, model.seeds))
    return reordered(estimate, order)
