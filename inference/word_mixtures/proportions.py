"""The distribution of the topic proportions of a new document, under any fitted model of documents.

`document_likelihood` and `document_completion` take it as their argument α.
"""

from functools import singledispatch
from typing import Any

import numpy as np

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.likelihood.proportions import Corners, TrainingDocuments
from lvsearch.inference.word_mixtures.mixture import mean_parameters
from lvsearch.models.mixture_of_unigrams import MixtureOfUnigrams
from lvsearch.models.plsi import PLSI
from lvsearch.models.topic_model import TopicModel


@singledispatch
def document_proportions(model: TopicModel, estimate: Estimate, training: Dataset) -> Any:
    """Return the distribution of a new document's topic proportions under a fit.

    It is the parameters of a Dirichlet distribution, (topic,), unless an overload for the model's type returns a
    `Proportions`.

    training: the documents that were fitted.

    Raises ValueError for models whose documents have no proportions on one simplex.
    """
    prior = model.proportions_prior(estimate.size, estimate.natural)
    if prior is None:
        raise ValueError(f"{type(model).__name__} has no distribution of document proportions on one simplex")
    return prior


@document_proportions.register
def _proportions_of_unigram_mixture(model: MixtureOfUnigrams, estimate: Estimate, training: Dataset) -> Corners:
    """Return a distribution on the corners of the simplex, with the fitted topic weights: each document has one
    topic.
    """
    return Corners(mean_parameters(estimate)[0])


@document_proportions.register
def _proportions_of_plsi(model: PLSI, estimate: Estimate, training: Dataset) -> TrainingDocuments:
    """Return the empirical distribution of the training documents' proportions, each weighted by its share of the
    tokens.
    """
    lengths = np.asarray(counts_of(training).sum(1), np.float64)
    return TrainingDocuments(describe_units(model, estimate, training).representation, lengths / lengths.sum())
