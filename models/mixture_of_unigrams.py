"""Models whose documents have one topic each: the mixture of unigrams, and the unigram model with one topic in all.

Source: Nigam et al. (2000); Blei (2004), §3.3.1 and §3.3.2, smoothed as in §3.4.3. The generative story of the mixture:

    1. topics       β_k ~ Dirichlet(η, …, η)          k = 1…K topics      (absent in the plug-in form)
    2. weights      π ~ Dirichlet(a, …, a)                                (absent in the plug-in form)
    3. topic        z_d ~ Categorical(π)              d = 1…D documents
    4. word         w_dn ~ Categorical(β_{z_d})       n = 1…N_d tokens

A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `topic_concentration` | η | () | > 0; None where topics have no prior |
| `concentration` | a | () | > 0; None where weights have no prior |
| site `topic_word` | log β | (topic, word) | simplex |
| site `weights` | log π | (topic,) | simplex |
| site `topic` | z_d | (topic,) | one-hot |

It is the same model as `FiniteMixture` of `MultinomialComponents` (`as_rows`), on bags of words in the place of rows of
counts. Most counts of a row are 0; here the cost is that of the words that occur, not of the vocabulary. A document's
probability is that of its tokens in their order, as for every model of documents. The probability of a row of counts
has the multinomial coefficient as well.

The unigram model (`Unigram`) is the mixture of unigrams, and LDA, with one topic: every token of every document is
drawn from one distribution over the vocabulary. It has no weights, `topic_word` has one row, and `topic` one entry. Its
posterior and its evidence have a closed form.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.models.components.arguments import positive_parameter
from lvsearch.models.components.counts import MultinomialComponents
from lvsearch.models.contract import (
    HyperparameterArray,
    JointDraw,
    Latents,
    Masks,
    Site,
    concentration_parameter,
)
from lvsearch.models.exponential.simplex import log_symmetric_dirichlet
from lvsearch.models.families import Dirichlet, Family, PointSimplex
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.topic_model import DocumentTopic
from lvsearch.models.units import BagOfWords


class MixtureOfUnigrams(DocumentTopic):
    """A mixture of unigrams with `size` topics, one for each document.

    concentration: of the symmetric Dirichlet on the weights of topics, per topic; None where they are estimated.
    topic_concentration: of the symmetric Dirichlet on each topic's words; None where they are estimated.
    topics: the family of topics. The default, `Dirichlet`, gives variational Bayes, the smoothed mixture of the thesis.
        `plug_in()` sets it to `PointSimplex`, which gives EM (maximum likelihood, without smoothing unless
        `PointSimplex(smoothing=…)`).

    `nested` is True: Proposition 1 of Chiang & Poole holds for the plug-in form, by the proof in `FiniteMixture`.
    """

    concentration: HyperparameterArray | None
    topic_concentration: HyperparameterArray | None
    topics: Family

    nested: ClassVar[bool] = True

    def __init__(self, concentration: Any = 1.0, topic_concentration: Any = 0.05, topics: Family | None = None):
        self.topics = Dirichlet() if topics is None else topics
        given = {"concentration": concentration, "topic_concentration": topic_concentration}
        for name, value in given.items():
            if (value is None) != self.estimated:
                raise ValueError(
                    f"got {name}={value!r} with topics that are {'' if self.estimated else 'not '}estimated, expected "
                    "None exactly where they are: leave both to plug_in()"
                )
        self.concentration = positive_or_none("concentration", concentration)
        self.topic_concentration = positive_or_none("topic_concentration", topic_concentration)

    @property
    def estimated(self) -> bool:
        """True if topics and weights are point estimates: nothing is integrated out."""
        return isinstance(self.topics, PointSimplex)

    def as_rows(self) -> FiniteMixture:
        """Return the model of rows of word counts that equals this mixture, a `FiniteMixture` of multinomial
        components.
        """
        eta = 1.0 if self.topic_concentration is None else self.topic_concentration
        return FiniteMixture(MultinomialComponents(eta, self.estimated), self.concentration)

    def describe(self) -> str:
        """Describe the model in one line, such as "MixtureOfUnigrams: topic_concentration 0.05; weights ~ Dirichlet,
        …".
        """
        if isinstance(self.topics, PointSimplex):
            return f"MixtureOfUnigrams: topics estimated, with {self.topics.smoothing:g} pseudo-counts per word"
        return (
            f"MixtureOfUnigrams: topic_concentration {float(np.asarray(self.topic_concentration)):g}; weights ~ "
            f"Dirichlet, {float(np.asarray(self.concentration)):g} per topic"
        )

    def globals(self) -> dict[str, Site]:
        """Return the latent variables that all documents share: the weights of the topics, and the topics."""
        weights = PointSimplex() if self.estimated else Dirichlet()
        return {"weights": Site(weights, ("topic",)), "topic_word": Site(self.topics, ("topic", "word"))}

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log Dirichlet(weights) + Σ_k log Dirichlet(β_k | η, …, η) over topics k, in nats; 0 if both are
        estimated.

        g: {"weights": log π, (topic,); "topic_word": log β, (topic, word)}. on: {"topic": mask of the topics that
            exist}.
        """
        exists, log_pi, log_beta = on["topic"], g["weights"], g["topic_word"]
        if self.concentration is None or self.topic_concentration is None:
            return jnp.zeros((), log_beta.dtype)
        weights_prior = log_symmetric_dirichlet(jnp.where(exists, log_pi, 0.0), self.concentration, exists.sum())
        topics_prior = log_symmetric_dirichlet(log_beta, self.topic_concentration, log_beta.shape[-1])
        return weights_prior + jnp.where(exists, topics_prior, 0.0).sum()

    def log_unit(self, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> Float[Array, ""]:
        """Return log p(z) + Σ_n log p(w_n | β_z) of one document with topic z and words w_n, in nats.

        g: {"weights": log π, (topic,); "topic_word": log β, (topic, word)}. l: {"topic": z, one-hot}.
        unit: the document. on: {"topic": mask of the topics that exist}.
        """
        per_topic = g["weights"] + (g["topic_word"][:, unit.words] * unit.counts).sum(-1)  # log p(z, w | topic)
        return jnp.where(on["topic"], l["topic"] * per_topic, 0.0).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return log(K! / Π_j m_j!) in nats, for K topics in groups of m_j identical ones: the log number of
        relabellings.

        size: (K,). natural: {name: natural parameters} of the globals.
        """
        rows = {"weights": natural["weights"], "components": natural["topic_word"]}
        return self.as_rows().log_symmetry(size, rows)

    def proportions_prior(self, size: tuple[int, ...], natural: Latents) -> None:
        """Return None: each document has exactly one topic, so there is no prior on proportions."""
        return

    def plug_in(self) -> "MixtureOfUnigrams":
        """Return the model without priors, whose weights and topics a fit estimates by maximum likelihood.

        The method itself fits nothing.
        """
        return self if self.estimated else MixtureOfUnigrams(None, None, PointSimplex())

    def simulate(self, key: Array, size: tuple[int, ...], units: BagOfWords, extents: Mapping[str, int]) -> JointDraw:
        """Draw parameters, topics and words from the joint distribution.

        size: (number of topics,).
        units: documents with one token in each column (counts 0 or 1); their words are replaced.
        extents: {"word": V}, the number V of words in the vocabulary.

        Returns (statistics of the globals by name, topics of the documents by name, the documents).
        Raises ValueError where topics have no prior.
        """
        if self.topic_concentration is None:
            raise ValueError("cannot draw topics that have no prior: simulate the model before plug_in()")
        key_weights, key_topics, key_z, key_words = jax.random.split(key, 4)
        eta = jnp.broadcast_to(jnp.asarray(self.topic_concentration), (size[0], extents["word"]))
        a = jnp.broadcast_to(jnp.asarray(self.concentration), size)
        g = {"weights": Dirichlet().sample(key_weights, a - 1), "topic_word": Dirichlet().sample(key_topics, eta - 1)}
        chosen = jax.random.categorical(key_z, g["weights"], shape=(units.words.shape[0],))
        l = {"topic": jax.nn.one_hot(chosen, size[0])}
        return g, l, self._draw_units(key_words, g, l, units, self.active(size, size))


def positive_or_none(name: str, value: Any) -> HyperparameterArray | None:
    """Return one positive number as an array of shape (), or None for None. Raises ValueError for any other value.

    name: the name of the hyper-parameter, for the error.
    """
    if value is None:
        return None
    concentration_parameter(name, value)  # refuses numbers above the largest concentration
    return positive_parameter(name, value)


class Unigram(DocumentTopic):
    """One distribution over words for all documents; its only size is 1.

    topic_concentration: of the symmetric Dirichlet on the topic; None where the topic is estimated.
    topics: the family of the topic. `plug_in()` sets it to `PointSimplex`: the shares of the words in the training
        data.
    """

    topic_concentration: HyperparameterArray | None
    topics: Family

    only_size: ClassVar[tuple[int, ...] | None] = (1,)
    nested: ClassVar[bool] = True

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

    def log_prior(self, g: Latents, on: Masks) -> Float[Array, ""]:
        """Return log Dirichlet(β | η, …, η) of the topic, in nats; 0 if the topic is estimated.

        g: {"topic_word": log β, shape (topic, word)}. on: {"topic": mask of the topics that exist}.
        """
        if self.topic_concentration is None:
            return jnp.zeros((), g["topic_word"].dtype)
        log_beta = g["topic_word"]
        per_topic = log_symmetric_dirichlet(log_beta, self.topic_concentration, log_beta.shape[-1])
        return jnp.where(on["topic"], per_topic, 0.0).sum()

    def log_unit(self, g: Latents, l: Latents, unit: BagOfWords, on: Masks) -> Float[Array, ""]:
        """Return Σ_n log p(w_n | β) of one document with tokens w_n, in nats.

        g: {"topic_word": log β, shape (topic, word)}. l: {"topic": 1 for the one topic}.
        unit: the document. on: {"topic": mask of the topics that exist}.
        """
        per_topic = (g["topic_word"][:, unit.words] * unit.counts).sum(-1)
        return jnp.where(on["topic"], l["topic"] * per_topic, 0.0).sum()

    def log_symmetry(self, size: tuple[int, ...], natural: Latents) -> float:
        """Return 0 nats: a single topic has no relabelling."""
        return 0.0

    def proportions_prior(self, size: tuple[int, ...], natural: Latents) -> Float[np.ndarray, " topic"]:
        """Return [1.], a Dirichlet parameter of shape (1,): with one topic the proportions are always 1."""
        return np.ones(1)

    def plug_in(self) -> "Unigram":
        """Return the model with the topic estimated by maximum likelihood."""
        return self if self.topic_concentration is None else Unigram(None, PointSimplex())

    def simulate(self, key: Array, size: tuple[int, ...], units: BagOfWords, extents: Mapping[str, int]) -> JointDraw:
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
        return g, l, self._draw_units(key_words, g, l, units, self.active(size, size))
