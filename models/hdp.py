"""The hierarchical Dirichlet process as a topic model, by stick-breaking on two levels.

Source: Teh, Jordan, Beal & Blei (2006); Blei (2004), §5.6; Wang, Paisley & Blei (2011). The generative story is that of
`lvsearch.models.hierarchical_process`, whose units are here documents and whose parts are topics. Steps 3 and 7 are:

    3. topics            φ_k ~ Dirichlet(η, …, η)
    7. word              w_dn ~ Categorical(φ_k),       k = c_{d, z_dn}

A *table* is a stick of one document, which points to a topic. A latent variable of the model is called a site.

| field | letter | shape | support |
|---|---|---|---|
| `topic_concentration` | η | () | > 0 |
| `corpus_concentration` | γ | () or a `GammaPrior` | > 0 |
| `document_concentration` | α | () or a `GammaPrior` | > 0 |
| `tables` | truncation of a document's sticks | | |
| site `topic_word` | log φ | (topic, word) | simplex |
| site `table` | z_dn, one row for each *distinct* word of the document | (token, table) | one-hot |
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from lvsearch.models.contract import (
    HyperparameterArray,
    Masks,
    Site,
    Statistics,
    concentration_parameter,
    is_known_false,
)
from lvsearch.models.families import Dirichlet
from lvsearch.models.hierarchical_process import TABLES, Axes, HierarchicalProcess, Level, checked_tables
from lvsearch.models.hyperpriors import GammaPrior, as_text, positive_or_gamma_prior
from lvsearch.models.topic_model import TopicModel, saturated_log_likelihood
from lvsearch.models.units import BagOfWords

CORPUS_PRIOR, DOCUMENT_PRIOR = GammaPrior(1.0, 0.1), GammaPrior(1.0, 1.0)
"""The default priors of γ (corpus concentration) and α (document concentration), from Teh et al. (2006), §6.1."""


class HDP(HierarchicalProcess, TopicModel):
    """Hierarchical Dirichlet process topics; `size` is the truncation of q's corpus sticks, not a size of the model.

    topic_concentration: parameter of the symmetric Dirichlet on each topic's words.
    corpus_concentration, document_concentration: γ and α. A number fixes one; with a `GammaPrior` it is a latent
        variable that is inferred.
    tables: the truncation of a document's sticks. A document uses at most this many tables (sticks that point to
        topics).

    The number of topics is answered by a posterior over *occupied* topics, from chains of a sampler (`lv.occupied`).
    Every truncation bounds the same evidence from below: a larger one is only a better bound.
    """

    topic_concentration: HyperparameterArray
    corpus_concentration: HyperparameterArray | GammaPrior
    document_concentration: HyperparameterArray | GammaPrior
    tables: int = eqx.field(static=True)

    unit_type: ClassVar[type] = BagOfWords
    topic_site: ClassVar[str] = "topic_word"
    levels: ClassVar[tuple[Level, Level]] = (
        Level("corpus_concentration", "corpus_sticks"),
        Level("document_concentration", "document_sticks"),
    )
    axes: ClassVar[Axes] = Axes("topic", "token")

    def __init__(
        self,
        topic_concentration: Any = 0.05,
        corpus_concentration: Any = CORPUS_PRIOR,
        document_concentration: Any = DOCUMENT_PRIOR,
        tables: int = TABLES,
    ):
        self.topic_concentration = concentration_parameter("topic_concentration", topic_concentration)
        if self.topic_concentration.ndim or is_known_false(self.topic_concentration > 0):
            raise ValueError(f"topic_concentration must be one positive number, got {topic_concentration!r}")
        self.corpus_concentration = positive_or_gamma_prior("corpus_concentration", corpus_concentration)
        self.document_concentration = positive_or_gamma_prior("document_concentration", document_concentration)
        self.tables = checked_tables(tables, "word of a document")

    def describe(self) -> str:
        """Describe the model in one line, such as "HDP: topic_concentration 0.05; corpus concentration ~ Gamma(1, rate
        0.1); …".
        """
        return (
            f"HDP: topic_concentration {float(self.topic_concentration):g}; corpus concentration "
            f"{as_text(self.corpus_concentration)}; document concentration {as_text(self.document_concentration)}; "
            f"{self.tables} tables in a document"
        )

    def part_sites(self) -> dict[str, Site]:
        """Return the latent variable of the topics: {"topic_word": log φ on the axes (topic, word)}."""
        return {"topic_word": Site(Dirichlet(), ("topic", "word"))}

    def log_parts_prior(self, g: Mapping[str, Statistics]) -> Float[Array, " topic"]:
        """Return log Dirichlet(φ_k | η, …, η) of each topic, in nats, shape (topic,).

        g: {"topic_word": log φ, shape (topic, word)}.
        """
        log_phi = g["topic_word"]
        n_words, eta = log_phi.shape[-1], jnp.asarray(self.topic_concentration, log_phi.dtype)
        return gammaln(n_words * eta) - n_words * gammaln(eta) + ((eta - 1) * log_phi).sum(-1)

    def members(self, unit: BagOfWords) -> Any:
        """Return the vocabulary id of each distinct word of a document, shape (token,)."""
        return unit.words

    def copies(self, unit: BagOfWords) -> Any:
        """Return how often each distinct word occurs in a document, shape (token,); 0 for padding."""
        return unit.counts

    def log_likelihoods(self, g: Mapping[str, Statistics], members: Any) -> Float[Array, "token topic"]:
        """Return log p(word | topic) of each distinct word under each topic, in nats, shape (token, topic).

        g: {"topic_word": log φ, shape (topic, word)}. members: vocabulary ids, shape (token,).
        """
        return g["topic_word"][:, members].T

    def draw_parts(self, key: Array, size: tuple[int, ...], extents: Mapping[str, int]) -> dict[str, Statistics]:
        """Draw the topics from their prior, and return {"topic_word": log φ, shape (topic, word)}.

        size: (truncation,). extents: {"word": number of words in the vocabulary}.
        """
        eta = jnp.broadcast_to(jnp.asarray(self.topic_concentration), (size[0], extents["word"]))
        return {"topic_word": Dirichlet().sample(key, eta - 1)}

    def proportions_prior(
        self, size: tuple[int, ...], natural: Mapping[str, Statistics]
    ) -> Float[np.ndarray, " topic"]:
        """Return E[α] E[β_k], the Dirichlet parameter of a document's proportions, for each topic k, shape (topic,).

        α is the document concentration and β are the corpus weights of topics. Given β, a document's shares of any
        finite partition of the topics are Dirichlet(α β). The mass of topics beyond the truncation is left out.

        size: not used. natural: {name: natural parameters} of the globals.
        """
        weights, _ = self.expected_weights(natural)
        return self.expected_concentration(self.levels[1], natural) * weights

    def ceiling(self, units: BagOfWords) -> float:
        """Return Σ_d Σ_w n_dw log(n_dw / N_d) in nats: the log-likelihood if each document had its own word
        frequencies.

        n_dw is how often document d has word w, and N_d the length of document d. units: all documents.

        Proof: given topics and proportions every token of document d has one distribution over words. Σ_w n_w log p_w
        over the simplex is greatest at p_w = n_w / N (Gibbs' inequality). An average is at most the maximum.
        """
        return saturated_log_likelihood(units)

    def draw_unit(
        self, key: Array, g: Mapping[str, Statistics], l: Mapping[str, Statistics], unit: BagOfWords, on: Masks
    ) -> BagOfWords:
        """Draw a word for every token of a document, given its table and the topic of each table.

        g: {"topic_word": log φ}. l: {"table": one-hot (token, table); "pointer": one-hot (table, topic)}.
        unit: a document with one token in every column (counts 0 or 1); its words are replaced.
        """
        words = jax.random.categorical(key, l["table"] @ l["pointer"] @ g["topic_word"])
        return BagOfWords(words.astype(unit.words.dtype), unit.counts)
