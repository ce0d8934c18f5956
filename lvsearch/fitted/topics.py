"""A fitted model of documents: its topics, for people."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.fitted.model import FittedModel
from lvsearch.models.topic_model import TopicModel

TINY = 1e-300
"""In place of a probability of zero, which has no logarithm."""


@dataclass(frozen=True)
class FittedTopics(FittedModel):
    """A model whose documents draw their words from topics, at one size."""

    @property
    def model(self) -> TopicModel:
        """The model with the hyper-parameters of this fit."""
        model = self.estimate.model
        assert isinstance(model, TopicModel)
        return model

    @property
    def alpha(self) -> Float[np.ndarray, " topic"]:
        """Dirichlet parameters of a document's proportions, (K,). ValueError for models that have none."""
        prior = self.model.proportions_prior(self.estimate.size, self.estimate.natural)
        if prior is None:
            raise ValueError(f"{type(self.model).__name__} has no Dirichlet on document proportions and so no alpha")
        return prior

    def transform(self, data: Any) -> Float[np.ndarray, "docs topic"]:
        """Expected topic proportions, (docs, K), rows summing to 1; data may be raw texts.

        Warns (UserWarning) of new documents without a known word: their proportions are what documents have before a
        word of them is read, and no finding.
        """
        units = self.training.like_this(data)
        empty = np.flatnonzero(units.observations_per_unit == 0)
        if units is not self.training and len(empty):
            many = f"{len(empty):,} of {units.n_units:,} documents hold" if units.n_units > 1 else "the document holds"
            warnings.warn(
                f"{many} no word that the model knows (the first: document {empty[0]}); their proportions are those of "
                "documents before a word is read, no finding: leave them out, or look at corpus.document_lengths",
                stacklevel=2,
            )
        return super().transform(units)

    def topics(self, n_words: int = 10, relevance: float | int = 1.0) -> pd.DataFrame:
        """One row per topic, most prevalent first: share of the training tokens, its words, and the label of the
        documents that use it most out of proportion (where the corpus has labels).

        relevance: λ in λ log p(word | topic) + (1 − λ) log [p(word | topic) / p(word)], by which words are ordered: 1
        is the most probable words, which topics share; about 0.6 those that tell this topic from others (Sievert &
        Shirley 2014, Eq. 1). ValueError unless it is between 0 and 1.
        """
        if not 0 <= relevance <= 1:
            raise ValueError(f"got relevance={relevance}, expected a number from 0 (distinctive) to 1 (most probable)")
        words = self.table(self.model.topic_site)
        proportions = self.transform(self.training)
        lengths = self.training.observations_per_unit
        prevalence = lengths @ proportions / max(lengths.sum(), 1)
        log_words = np.log(np.maximum(words.to_numpy(), TINY))
        log_overall = np.log(np.maximum(prevalence @ words.to_numpy(), TINY))
        top = np.argsort((1 - relevance) * log_overall - log_words, axis=1, kind="stable")[:, :n_words]
        vocabulary = np.asarray(words.columns, dtype=object)
        frame = pd.DataFrame(
            {"prevalence": prevalence, "words": [" ".join(vocabulary[row]) for row in top]}, index=words.index
        )
        if self.training.unit_labels is not None:
            frame.insert(1, "label", _labels(self.training.unit_labels, proportions * lengths[:, None]))
        return frame.sort_values("prevalence", ascending=False, kind="stable")

    def representative(self, topic: int, n: int = 5) -> pd.DataFrame:
        """The training documents with the largest share of a topic: document (its number), share, tokens, and its label
        where the corpus has labels. ValueError for a topic that there is none of."""
        proportions = self.transform(self.training)
        if not 0 <= topic < proportions.shape[1]:
            raise ValueError(f"got topic={topic}, expected one of 0 … {proportions.shape[1] - 1}")
        first = np.argsort(-proportions[:, topic], kind="stable")[:n]
        frame = pd.DataFrame(
            {
                "document": first,
                "share": proportions[first, topic],
                "tokens": self.training.observations_per_unit[first],
            }
        )
        if self.training.unit_labels is not None:
            frame["label"] = [self.training.unit_labels[row] for row in first]
        return frame


def _labels(labels: tuple[str, ...], tokens: Float[np.ndarray, "docs topic"]) -> list[str]:
    """For each topic the label with most of its tokens, weighted by how much more than elsewhere it uses the topic."""
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    table = np.zeros((len(names), tokens.shape[1]))
    np.add.at(table, index, tokens)
    share = table / np.maximum(table.sum(axis=0, keepdims=True), 1e-12)
    lift = share / np.maximum(table.sum(axis=1, keepdims=True) / max(table.sum(), 1e-12), 1e-12)
    return [str(names[i]) for i in np.argmax(share * np.log1p(lift), axis=0)]
