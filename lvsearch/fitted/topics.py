"""A fitted model of documents: its topics, for people."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.fitted.coloured import ColouredText, coloured
from lvsearch.fitted.model import FittedModel
from lvsearch.fitted.recommending import recommended
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.word_mixtures import document_proportions
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

    @property
    def proportions(self) -> Any:
        """What `lv.inference.document_likelihood` and `document_completion` take for alpha: `alpha`, or a distribution
        of another kind that a model's documents draw their proportions from.

        Of pLSI it is that of the training documents; `lvsearch.inference.likelihood.FoldedIn` refits them instead.
        ValueError for models that have neither.
        """
        return document_proportions(self.model, self.estimate, self.training.dataset())

    def recommend(self, unit: Any, n: int = 10, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
        """The words (films, items) that one document (user) does not have and is most likely to have next.

        unit: its counts, (1, V), or a corpus of one document. A row for each, most probable first: `word`;
        `probability` that the next one, given that it is new, is this; `lower` and `upper`, between which the fit puts
        that probability with probability 0.9, from `draws` draws of the unit's proportions and of the topics. What is
        not known beside, whether the model is true, is in neither. ValueError for more than one unit.
        """
        data = self.training.like_this(unit)
        if data.n_units != 1:
            raise ValueError(f"got {data.n_units} units, expected one: recommend for each by itself")
        words = self.table(self.model.topic_site)
        return recommended(
            self.model,
            self.estimate,
            words.to_numpy(np.float64),
            self.proportions,
            counts_of(data.dataset()),
            np.asarray(words.columns, dtype=object),
            n=n,
            draws=draws,
            seed=seed,
        )

    def coloured(self, text: str, n_topics: int = 4, threshold: float = 0.9) -> ColouredText:
        """A text with its words coloured by topic (Blei 2004, Figure 3.7): those whose most probable topic has at least
        `threshold`, and is one of the `n_topics` that the text has most of. ValueError for a text without known words.
        """
        words = self.table(self.model.topic_site)
        vocabulary = tuple(str(word) for word in words.columns)
        top = self.topics().sort_index()["words"].tolist()
        return coloured(
            text, words.to_numpy(np.float64), self.alpha, vocabulary, top, n_topics=n_topics, threshold=threshold
        )

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
