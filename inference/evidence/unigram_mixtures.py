"""Mixtures of unigrams of one size, annealed from the prior of their labels, with weights and topics integrated out.

It is the path of `lvsearch.inference.evidence.mixtures` on sparse documents. Let z_d be the topic of document d, D_k
the number of documents of topic k, and n_kw the counts of word w in topic k, with sum N_k. The weights have
concentration a, and the topics, over V words, concentration η. Then

    π_t(z_d = k | the others) ∝ (D_k + a) · [p(w_d | the words of k)]^t,
    p(w_d | …) = Γ(N_k + Vη) / Γ(N_k + N_d + Vη) Π_w Γ(n_kw + n_dw + η) / Γ(n_kw + η)        (Dirichlet–multinomial)

with D_k, n_kw and N_k taken without document d. Only the words of the document are looked at, while the dense path
holds a row as long as the vocabulary for each document, component and particle. On equal labels both have the same
densities, except for the multinomial coefficients that a row of counts has and a sequence of tokens has not.

On the path along the data, documents come one after another, each weighted by its probability given those before.

    p(w_m | w_1 … w_{m−1}, z) = Σ_k (D_k + a) / (m − 1 + Ka) · p(w_m | the words of k)

Here w_m are the words of document m, D_k the number of earlier documents in topic k, and a the concentration of the K
weights. p(w_m | …) is the Dirichlet–multinomial of the collapsed sweep, and the sum is the
normaliser of that sweep's conditional.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of, documents
from lvsearch.inference.data.statistic_layout import StatisticLayout
from lvsearch.inference.engine.estimate import Estimate, capacity_of, check_size
from lvsearch.inference.evidence.mixtures import JointNormaliserChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, Joining, RowScores
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.mixture_of_unigrams import MixtureOfUnigrams


class WordSums(NamedTuple):
    """The counts of each word in the documents of each topic, for particles side by side: `natural` of a state.

    | field | meaning |
    |---|---|
    | `words` | (word, topic, particle): n_kw |
    | `tokens` | (topic, particle): N_k |
    """

    words: Float[Array, "word topic particle"]
    tokens: Float[Array, "topic particle"]


class PaddedDocuments(NamedTuple):
    """Documents of one padded length, with their distinct words.

    | field | meaning |
    |---|---|
    | `words`, `counts` | the distinct words of each document, and how often each occurs |
    | `units` | the number of each document in the data set, −1 for padding |
    """

    words: Int[np.ndarray | Array, "document token"]
    counts: Float[np.ndarray | Array, "document token"]
    units: Int[np.ndarray | Array, " document"]


class UnigramMixtureChain(JointNormaliserChain):
    """The annealing chain over the topics of a `MixtureOfUnigrams`' documents: a mixture whose rows are documents.

    `natural` of a state is `WordSums`. The fields are those of `CollapsedMixtureChain`, but

    | field | meaning | shape |
    |---|---|---|
    | `increments` | the documents, grouped by padded length (`PaddedDocuments`) | |
    | `prior` | η, the Dirichlet parameter of each word in a topic | () |
    | `n_words` | V, the number of words of the vocabulary | |
    """

    n_words: int = eqx.field(static=True)

    @classmethod
    def from_data(cls, model: MixtureOfUnigrams, data: Dataset, size: int, capacity: int) -> "UnigramMixtureChain":
        """Return the annealing chain of a mixture of unigrams with `size` topics.

        capacity: how many array slots there are for topics.

        Raises ValueError for estimated topics, documents whose weight is neither 0 nor 1, and a size beyond the
        capacity.
        """
        if model.concentration is None or model.topic_concentration is None:
            raise ValueError(
                f"got {model.describe()}, expected topics that have a prior: with estimated ones nothing is integrated "
                "out"
            )
        check_size(size, capacity)
        for batch in data.batches:
            if not np.all((np.asarray(batch.weight) == 0) | (np.asarray(batch.weight) == 1)):
                raise ValueError("got documents of a weight that is neither 0 nor 1, expected each document once")
        counts = counts_of(data)  # a word that stands in several columns of a document is one word here
        own = documents(counts)
        by_length: dict[int, list[PaddedDocuments]] = {}
        for batch, ids in zip(own.batches, own.unit_ids, strict=True):
            words, amounts = np.asarray(batch.units.words), np.asarray(batch.units.counts, np.float64)
            by_length.setdefault(words.shape[1], []).append(PaddedDocuments(words, amounts, ids))
        parts = tuple(
            PaddedDocuments(*(np.concatenate(leaves) for leaves in zip(*same, strict=True)))
            for same in by_length.values()
        )
        weight = np.concatenate([part.units >= 0 for part in parts]).astype(np.float64)
        none, eta = np.zeros_like(weight), np.asarray(model.topic_concentration, np.float64)
        component, layout = model.as_rows().components, StatisticLayout.of(eta)
        own = component, model.concentration, np.asarray(size), parts, none, none[:, None], weight, eta, None
        return cls(*own, capacity, layout, counts.shape[1])

    # ── one document ────────────────────────────────────────────────────────────────────────────────────────────────

    def score_row(
        self, state: CollapsedState, row: Int[Array, ""], normaliser: Float[Array, "one particle"]
    ) -> Joining:
        """Return the scores of a document that is in no topic, for each topic that it might get.

        state: the topics and counts without the document.
        row: the number of the document.
        normaliser: log p(words | topics) of the documents in `state`, (1, particle), nats.
        """
        eta, n_words = self.own_prior(), self.n_words

        def score(which: Array, amounts: Array, natural: WordSums) -> Array:
            """Return log p(document | the words of each topic), (topic, particle), nats."""
            before, spread = natural.words[which] + eta, natural.tokens + n_words * eta
            gain = (log_gamma_positive(before + amounts[:, None, None]) - log_gamma_positive(before)).sum(0)
            return gain + log_gamma_positive(spread) - log_gamma_positive(spread + amounts.sum())

        of_row = self._with_document(row, score, state.natural)
        of_label = jnp.log(state.counts + self._concentration())
        return Joining(RowScores(of_label, of_row), None, normaliser + of_row)

    def add_row(
        self, state: CollapsedState, row: Int[Array, ""], labels: Int[Array, " particle"], natural: None
    ) -> CollapsedState:
        """Return the state with a document, which was in no topic, put into topics by its labels.

        row: the number of the document.
        labels: its topic in each particle, (particle,).
        """
        joins = (self._component_numbers == labels).astype(state.counts.dtype)
        return CollapsedState(
            state.labels.at[row].set(labels), state.counts + joins, self._words_added(state.natural, row, joins)
        )

    def remove_row(self, state: CollapsedState, row: Int[Array, ""], prior: Any) -> CollapsedState:
        """Return the state with one document taken out of its topic. Its entry of `labels` keeps the old topic.

        row: the number of the document.
        """
        leaves = (self._component_numbers == state.labels[row]).astype(state.counts.dtype)
        return CollapsedState(state.labels, state.counts - leaves, self._words_added(state.natural, row, -leaves))

    def _words_added(self, natural: WordSums, row: Int[Array, ""], times: Float[Array, "topic particle"]) -> WordSums:
        """Return the counts of words with those of one document added `times` times to each topic, −1 to take them
        out.
        """

        def add(which: Array, amounts: Array, natural: WordSums) -> WordSums:
            words = natural.words.at[which].add(amounts[:, None, None] * times)
            return WordSums(words, natural.tokens + amounts.sum() * times)

        return self._with_document(row, add, natural)

    def _with_document(
        self, row: Int[Array, ""], use: Callable[[Array, Array, WordSums], Any], natural: WordSums
    ) -> Any:
        """Return use(distinct words of a document, how often each occurs, counts of the topics)."""

        def within(part: PaddedDocuments, start: int, natural: WordSums) -> Any:
            """Use a document of one part, whose first document has the number `start`."""
            return use(jnp.asarray(part.words)[row - start], self._as_float(part.counts)[row - start], natural)

        spans = self._spans()
        ends = jnp.asarray([span.stop for span in spans])
        each = [partial(within, part, span.start) for part, span in zip(self.increments, spans, strict=True)]
        return jax.lax.switch(jnp.searchsorted(ends, row, side="right"), each, natural)

    # ── all documents ───────────────────────────────────────────────────────────────────────────────────────────────

    def gains(self, natural: WordSums, prior: Any) -> Float[Array, "one particle"]:
        """Return log p(words | topics of the documents), (1, particle), in nats, with topics integrated out."""
        return self.normalisers(natural)

    def normalisers(self, natural: WordSums) -> Float[Array, "one particle"]:
        """Return Σ_k A(λ + S_k) − A(λ), the log-normaliser of all topics together against that of topics without
        documents, (1, particle), in nats.

        natural: the counts of words in each topic.
        """
        eta, n_words = self.own_prior(), self.n_words
        of_words = (log_gamma_positive(natural.words + eta) - gammaln(eta)).sum(0)
        of_topic = of_words + gammaln(n_words * eta) - gammaln(natural.tokens + n_words * eta)
        return jnp.where(self.exists(), of_topic, 0.0).sum(0, keepdims=True)

    def summed_anew(self, state: CollapsedState, prior: Any = None) -> CollapsedState:
        """Return the state as it is: counts are whole numbers, which no sweep rounds."""
        return state

    def _summed(self, chosen: Float[Array, "document topic variant particle"], prior: Any) -> WordSums:
        """Return the counts of words in each topic. chosen: 1 for the topic of a document."""
        words = jnp.zeros((self.n_words, self.capacity, chosen.shape[-1]), chosen.dtype)
        for part, span in zip(self.increments, self._spans(), strict=True):

            def add(words: Array, document: tuple[Array, Array, Array]) -> tuple[Array, None]:
                """Add one document's words to the counts of its topic."""
                which, amounts, topic = document
                return words.at[which].add(amounts[:, None, None] * topic), None

            of_part = jnp.asarray(part.words), self._as_float(part.counts), chosen[span, :, 0]
            words = jax.lax.scan(add, words, of_part)[0]
        return WordSums(words, words.sum(0))

    def labels_of(self, topics: Int[np.ndarray, " unit"], particles: int) -> Int[Array, "document particle"]:
        """Return given topics of the documents in this chain's order, (document, particle), the same for all particles.

        topics: one for each document, in the order of the data set.
        """
        units = np.concatenate([np.asarray(part.units) for part in self.increments])
        labels = np.where(units >= 0, np.asarray(topics)[np.maximum(units, 0)], 0)
        return jnp.asarray(np.repeat(labels[:, None], particles, axis=1))

    def places_of_documents(self) -> Int[np.ndarray, " unit"]:
        """Return where each document of the data set stands in this chain's order, (unit,)."""
        units = np.concatenate([np.asarray(part.units) for part in self.increments])
        places = np.zeros(int(units.max(initial=-1)) + 1, np.int64)
        places[units[units >= 0]] = np.flatnonzero(units >= 0)
        return places

    def _spans(self) -> list[slice]:
        """Return, for each part of the documents (those of one padded length), the range of its document numbers."""
        ends = np.cumsum([len(part.units) for part in self.increments]).tolist()
        return [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def evidence_chain_of_unigrams(
    model: MixtureOfUnigrams, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> UnigramMixtureChain:
    """Return the annealing chain of a mixture of unigrams, over the topics of documents, from the prior.

    The estimate is not used.
    """
    return UnigramMixtureChain.from_data(model, data, size[0], capacity_of(size)[0])
