"""The unigram model: every token of every document is drawn from one distribution over the vocabulary.

Source: Blei (2004), §3.3.1, smoothed as in §3.4.3. The generative story:

    1. topic      β ~ Dirichlet(η, …, η)             (absent in the plug-in form)
    2. word       w_dn ~ Categorical(β)              n = 1…N_d tokens, d = 1…D documents

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `topic_concentration` | η | () | > 0; None where the topic has no prior |
| site `topic_word` | log β | (topic, word), one topic | simplex |
| site `topic` | which topic: there is one | (topic,) | one-hot |

It is the mixture of unigrams, and LDA, with one topic. Its posterior and its evidence have a closed form.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.models.contract import HyperparameterArray, Masks, Site, Statistics, first
from lvsearch.models.families import Categorical, Dirichlet, Family, PointSimplex
from lvsearch.models.mixture_of_unigrams import positive_or_none
from lvsearch.models.topic_model import TopicModel, log_symmetric_dirichlet, saturated_log_likelihood
from lvsearch.models.units import BagOfWords


class Unigram(TopicModel):
    """One distribution over words for all documents; its only size is 1.

    topic_concentration: of the symmetric Dirichlet on the topic; None where the topic is estimated.
    topics: the family of the topic. `plug_in()` sets it to `PointSimplex`: the shares of the words in the training
        data.
    """

    topic_concentration: HyperparameterArray | None
    topics: Family

    size_names: ClassVar[tuple[str, ...]] = ("topics",)
    only_size: ClassVar[tuple[int, ...] | None] = (1,)
    nested: ClassVar[bool] = True
    unit_type: ClassVar[type] = BagOfWords
    representation: ClassVar[str] = "topic"
    topic_site: ClassVar[str] = "topic_word"

    def __init__(self, topic_concentration: Any = 0.05, topics: Family | None = None):
        self.topics = Dirichlet() if topics is None else topics
        if (topic_concentration is None) != isinstance(self.topics, PointSimplex):
            raise ValueError(
                f"got topic_concentration={topic_concentration!r} and topics={self.topics!r}, expected None exactly "
                "where the topic is estimated: leave both to plug_in()"
            )
        self.topic_concentration = positive_or_none("topic_concentration", topic_concentration)

    def describe(self) -> str:
        """Describe the model in one line, such as "Unigram: topic_concentration 0.05"."""
        if isinstance(self.topics, PointSimplex):
            return f"Unigram: the topic estimated, with {self.topics.smoothing:g} pseudo-counts per word"
        return f"Unigram: topic_concentration {float(np.asarray(self.topic_concentration)):g}"

    def globals(self) -> dict[str, Site]:
        """Return the latent variable that all documents share: the one topic, on the axes (topic, word)."""
        return {"topic_word": Site(self.topics, ("topic", "word"))}

    def locals(self) -> dict[str, Site]:
        """Return the latent variable of one document: its topic, which has only one value."""
        return {"topic": Site(Categorical(), ("topic",))}

    def active(self, size: tuple[Any, ...], capacity: tuple[int, ...]) -> dict[str, Bool[Array, " axis"]]:
        """Return {"topic": mask of the topics that exist}, of length `capacity[0]`; only one exists."""
        return {"topic": first(size[0], capacity[0])}

    def log_prior(self, g: Mapping[str, Statistics], on: Masks) -> Float[Array, ""]:
        """Return log Dirichlet(β | η, …, η) of the topic, in nats; 0 if the topic is estimated.

        g: {"topic_word": log β, shape (topic, word)}. on: {"topic": mask of the topics that exist}.
        """
        if self.topic_concentration is None:
            return jnp.zeros((), g["topic_word"].dtype)
        log_beta = g["topic_word"]
        per_topic = log_symmetric_dirichlet(log_beta, self.topic_concentration, log_beta.shape[-1])
        return jnp.where(on["topic"], per_topic, 0.0).sum()

    def log_unit(
        self, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: BagOfWords, on: Masks
    ) -> Float[Array, ""]:
        """Return Σ_n log p(w_n | β) of one document with tokens w_n, in nats.

        g: {"topic_word": log β, shape (topic, word)}. l: {"topic": 1 for the one topic}.
        unit: the document. on: {"topic": mask of the topics that exist}.
        """
        per_topic = (g["topic_word"][:, unit.words] * unit.counts).sum(-1)
        return jnp.where(on["topic"], l["topic"] * per_topic, 0.0).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Mapping[str, Statistics]) -> float:
        """Return 0 nats: a single topic has no relabelling."""
        return 0.0

    def proportions_prior(
        self, size: tuple[int, ...], natural: Mapping[str, Statistics]
    ) -> Float[np.ndarray, " topic"]:
        """Return [1.], a Dirichlet parameter of shape (1,): with one topic the proportions are always 1."""
        return np.ones(1)

    def ceiling(self, units: BagOfWords) -> float:
        """Return Σ_d Σ_w n_dw log(n_dw / N_d) in nats: the log-likelihood if each document had its own word
        frequencies.

        n_dw is how often document d has word w, and N_d the length of document d. units: all documents.
        """
        return saturated_log_likelihood(units)

    def plug_in(self) -> "Unigram":
        """Return the model with the topic estimated by maximum likelihood."""
        return self if self.topic_concentration is None else Unigram(None, PointSimplex())

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: BagOfWords, on: Masks
    ) -> BagOfWords:
        """Draw a word for every token of a document from the one topic.

        g: {"topic_word": log β, (topic, word)}. l: {"topic": 1 for the one topic}.
        unit: a document with one token in every column (counts 0 or 1); its words are replaced.
        """
        words = jax.random.categorical(key, l["topic"] @ g["topic_word"], shape=unit.words.shape)
        return BagOfWords(words.astype(unit.words.dtype), unit.counts)

    def simulate(
        self, key: Array, size: tuple[int, ...], units: BagOfWords, extents: Mapping[str, int]
    ) -> tuple[dict[str, Statistics], dict[str, Statistics], BagOfWords]:
        """Draw the topic and the words from the joint distribution.

        size: (1,).
        units: documents with one token in each column (counts 0 or 1); their words are replaced.
        extents: {"word": V}, the number V of words in the vocabulary.

        Returns (statistics of the globals by name, topics of the documents by name, the documents).
        Raises ValueError where topics have no prior.
        """
        if self.topic_concentration is None:
            raise ValueError("cannot draw a topic that has no prior: simulate the model before plug_in()")
        key_topics, key_words = jax.random.split(key)
        n_docs = units.words.shape[0]
        eta = jnp.broadcast_to(jnp.asarray(self.topic_concentration), (1, extents["word"]))
        g = {"topic_word": Dirichlet().sample(key_topics, eta - 1)}
        l = {"topic": jnp.ones((n_docs, 1), g["topic_word"].dtype)}
        on, keys = self.active(size, size), jax.random.split(key_words, n_docs)
        return g, l, jax.vmap(lambda k, lu, u: self.draw_unit(k, g, lu, u, on))(keys, l, units)
