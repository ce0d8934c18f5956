"""The base class of all topic models: what a model says about its topics, besides its log-joint, for people to read."""

from abc import abstractmethod
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import xlogy

from lvsearch.models.contract import Latents, Masks, Model, Site, first
from lvsearch.models.families import Categorical
from lvsearch.models.units import BagOfWords


class TopicModel(Model):
    """A model whose documents draw their words from topics; a topic is a distribution over the vocabulary.

    `topic_site` names the global latent variable of the topics, with axes (topic, word). `representation` is a
    document's share of each topic. A document's probability is an average of products of mixtures of topics.
    """

    size_names: ClassVar[tuple[str, ...]] = ("topics",)
    unit_type: ClassVar[type] = BagOfWords
    topic_site: ClassVar[str] = "topic_word"

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"topic": mask, True for the topics that exist at this size}."""
        return {"topic": first(size[0], capacity[0])}

    def ceiling(self, units: BagOfWords) -> float:
        """Return Σ_d Σ_w n_dw log(n_dw / N_d) in nats: the log-likelihood if each document had its own word
        frequencies.

        n_dw is how often document d has word w, and N_d the length of document d. units: all documents.

        Proof: given all parameters every token of document d has one distribution over words. Σ_w n_w log p_w over the
        simplex is greatest at p_w = n_w / N (Gibbs' inequality). An average over parameters is at most the maximum.
        """
        return saturated_log_likelihood(units)

    @abstractmethod
    def proportions_prior(self, size: tuple[int, ...], natural: Latents) -> Float[np.ndarray, " topic"] | None:
        """Return the parameters of the Dirichlet on a document's topic proportions, shape (topic,), float64.

        size: (number of topics,).
        natural: {name: natural parameters} of the fitted globals, of existing topics only.

        Returns None where proportions have no Dirichlet prior.
        """


class TokenTopics(TopicModel):
    """A topic model in which every token of a document has a topic of its own."""

    representation: ClassVar[str] = "proportions"

    def extents(self, unit: BagOfWords) -> dict[str, int]:
        """Return {"token": number of columns of the document}, one for each distinct word, padding included."""
        return {"token": unit.words.shape[-1]}

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> BagOfWords:
        """Draw a word for every token of a document, given the tokens' topics.

        g: {"topic_word": log β, (topic, word)}. l: {"assignment": one-hot (token, topic)}.
        unit: a document with one token in every column (counts 0 or 1); its words are replaced.
        """
        return draw_words(key, l["assignment"] @ g["topic_word"], unit)


class DocumentTopic(TopicModel):
    """A topic model in which all tokens of a document have one topic."""

    representation: ClassVar[str] = "topic"

    def locals(self) -> dict[str, Site]:
        """Return the latent variable of one document: its one topic, one-hot on the axis (topic,)."""
        return {"topic": Site(Categorical(), ("topic",))}

    def draw_unit(self, key: Array, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> BagOfWords:
        """Draw a word for every token of a document, given its topic.

        g: {"topic_word": log β, (topic, word)}. l: {"topic": one-hot}.
        unit: a document with one token in every column (counts 0 or 1); its words are replaced.
        """
        return draw_words(key, l["topic"] @ g["topic_word"], unit)


def draw_words(key: Array, log_probabilities: Float[Array, "*token word"], unit: BagOfWords) -> BagOfWords:
    """Draw a word for every token of a document.

    log_probabilities: the log-probability of each word for each token, or for all tokens.
    unit: a document with one token in every column (counts 0 or 1); its words are replaced.
    """
    words = jax.random.categorical(key, log_probabilities, shape=unit.words.shape)
    return BagOfWords(words.astype(unit.words.dtype), unit.counts)


def saturated_log_likelihood(units: BagOfWords) -> float:
    """Return Σ_d Σ_w n_dw log(n_dw / N_d) in nats: the log-likelihood if each document had its own word frequencies.

    n_dw is how often document d has word w, and N_d the length of document d. units: all documents.

    No distribution that draws a document's tokens independently gives them more (Gibbs' inequality), nor does an
    average of such distributions.
    """
    counts = np.asarray(units.counts, np.float64)
    return float(xlogy(counts, counts).sum() - xlogy(counts.sum(-1), counts.sum(-1)).sum())
