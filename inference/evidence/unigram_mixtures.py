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

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.draws import choose_in_proportion
from lvsearch.inference.annealing.particle_arrays import ParticleArrays, SymmetricStart
from lvsearch.inference.annealing.prefixes import InTurn
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of, documents
from lvsearch.inference.engine.estimate import Estimate, capacity_of, check_size
from lvsearch.models.contract import HyperparameterArray, first
from lvsearch.models.exponential.digamma import log_gamma_positive
from lvsearch.models.mixture_of_unigrams import MixtureOfUnigrams


class DocumentLabels(NamedTuple):
    """Topics of the documents and the counts that follow from them, for particles side by side.

    | field | meaning |
    |---|---|
    | `labels` | (document, particle), −1 for a document in no topic |
    | `documents` | (topic, particle): D_k, the number of documents of each topic |
    | `words` | (word, topic, particle): n_kw |
    | `tokens` | (topic, particle): N_k |
    """

    labels: Int[Array, "document particle"]
    documents: Float[Array, "topic particle"]
    words: Float[Array, "word topic particle"]
    tokens: Float[Array, "topic particle"]


class PaddedDocuments(NamedTuple):
    """Documents of one padded length, with their distinct words.

    | field | meaning |
    |---|---|
    | `words`, `counts` | the distinct words of each document, and how often each occurs |
    | `weight` | 0 for padding, else 1 |
    | `units` | the number of each document in the data set, −1 for padding |
    """

    words: Int[np.ndarray | Array, "document token"]
    counts: Float[np.ndarray | Array, "document token"]
    weight: Float[np.ndarray | Array, " document"]
    units: Int[np.ndarray | Array, " document"]


class UnigramMixtureChain(ParticleArrays, SymmetricStart):
    """The annealing chain over the topics of a `MixtureOfUnigrams`' documents. The first `size` of `capacity` topics
    exist.

    | field | meaning | shape |
    |---|---|---|
    | `concentration` | a, the Dirichlet parameter of each weight | () |
    | `topic_concentration` | η, the Dirichlet parameter of each word in a topic | () |
    | `size` | K, the number of topics | (), traced |
    | `parts` | the documents, grouped by padded length | |
    | `n_words` | V, the number of words of the vocabulary | |
    """

    concentration: HyperparameterArray
    topic_concentration: HyperparameterArray
    size: Int[Array | np.ndarray, ""]
    parts: tuple[PaddedDocuments, ...]
    n_words: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)

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
            part = PaddedDocuments(words, amounts, np.asarray(batch.weight, np.float64), ids)
            by_length.setdefault(words.shape[1], []).append(part)
        parts = tuple(
            PaddedDocuments(*(np.concatenate(leaves) for leaves in zip(*same, strict=True)))
            for same in by_length.values()
        )
        return cls(model.concentration, model.topic_concentration, np.asarray(size), parts, counts.shape[1], capacity)

    @property
    def elements(self) -> int:
        """The number of documents, padding included."""
        return sum(len(part.weight) for part in self.parts)

    def init(self, key: Key[Array, ""], particles: int) -> DocumentLabels:
        """Return the first state, with `particles` particles drawn from the prior: first weights, then labels given the
        weights.
        """
        key_weights, key_labels = jax.random.split(key)
        a = self._as_float(self.concentration)
        log_gamma = jax.random.loggamma(key_weights, a, (self.capacity, particles), dtype=a.dtype)
        log_weights = jnp.where(self._exists(), log_gamma, -jnp.inf)
        return self.state_from_labels(
            jax.random.categorical(key_labels, log_weights, axis=0, shape=(self.elements, particles))
        )

    def step(
        self, key: Key[Array, ""], state: DocumentLabels, temperature: Float[Array, ""], *, backward: bool
    ) -> DocumentLabels:
        """Return the state after one sweep, which draws every document's topic in turn given all others.

        temperature: t, from 0 (the prior) to 1 (the posterior).
        backward: visit the last document first.
        """
        uniforms = jax.random.uniform(key, state.labels.shape, state.tokens.dtype)
        weight = jnp.concatenate([self._leaf(part.weight) for part in self.parts])
        order, n_real = jnp.argsort(weight == 0, stable=True), (weight > 0).sum()

        def one(place: Array, state: DocumentLabels) -> DocumentLabels:
            """Draw the topic of the document in position `place` of the sweep."""
            document = order[n_real - 1 - place if backward else place]
            return self.redraw_document(state, document, uniforms[document], temperature)[0]

        return jax.lax.fori_loop(
            0, n_real, one, self.state_from_labels(state.labels)
        )  # summed anew: rounding ends here

    def redraw_document(
        self,
        state: DocumentLabels,
        document: Int[Array, ""],
        uniform: Float[Array, " particle"] | None,
        temperature: Float[Array, ""] | None = None,
    ) -> tuple[DocumentLabels, Float[Array, " particle"]]:
        """Draw one document's topic given the topics of all others. A document that is in no topic yet is added.

        document: the number of the document in the chain's order.
        uniform: one uniform draw for each particle, by which the topic is found. None takes the document out (topic
            −1).
        temperature: t; None is 1.

        Returns: (the new state, log Σ_k (D_k + a) p(document | the words of topic k)^t, (particle,), in nats). The
            counts D_k of documents are taken without this one, and a is the concentration of the weights.
        """
        spans = self._spans()
        within = [
            partial(self._redrawn_within, self.parts[index], span.start, document, uniform, temperature)
            for index, span in enumerate(spans)
        ]
        which = jnp.searchsorted(jnp.asarray([span.stop for span in spans]), document, side="right")
        return jax.lax.switch(which, within, state)

    def _redrawn_within(
        self,
        part: PaddedDocuments,
        start: int,
        document: Int[Array, ""],
        uniform: Float[Array, " particle"] | None,
        temperature: Float[Array, ""] | None,
        state: DocumentLabels,
    ) -> tuple[DocumentLabels, Float[Array, " particle"]]:
        """Draw the topic of a document in one part of the documents, as `redraw_document` does for any document.

        part: the documents of one padded length. start: the number of its first document.
        document: the number of the document in the chain's order.
        uniform: one uniform draw for each particle; None takes the document out.
        temperature: t; None is 1.

        Returns: (the new state, log of the sum over topics in nats, (particle,)).
        """
        which, amounts = self._leaf(part.words)[document - start], self._leaf(part.counts)[document - start]
        counts, length, eta = amounts[:, None, None], amounts.sum(), self._as_float(self.topic_concentration)
        places = jnp.arange(self.capacity, dtype=jnp.int32)[:, None]
        old = state.labels[document]
        leaves = (places == old).astype(counts.dtype)
        documents = state.documents - leaves
        mine = state.words[which] - counts * leaves  # (token, topic, particle)
        spread = state.tokens - length * leaves + self.n_words * eta
        gain = (log_gamma_positive(mine + eta + counts) - log_gamma_positive(mine + eta)).sum(0)
        gain = gain + log_gamma_positive(spread) - log_gamma_positive(spread + length)
        gain = gain if temperature is None else temperature * gain
        score = jnp.where(self._exists(), jnp.log(documents + self._as_float(self.concentration)) + gain, -jnp.inf)
        new = jnp.full_like(old, -1)
        if uniform is not None:
            new = choose_in_proportion(score, uniform, self.size)
        joins = (places == new).astype(counts.dtype)
        moved = DocumentLabels(
            state.labels.at[document].set(new),
            documents + joins,
            state.words.at[which].add(counts * (joins - leaves)),
            state.tokens + length * (joins - leaves),
        )
        return moved, logsumexp(score, axis=0)

    def log_ratio(self, state: DocumentLabels) -> Float[Array, " particle"]:
        """Return log p(words | labels) of each particle, (particle,), in nats, with topics integrated out."""
        eta, n_words = self._as_float(self.topic_concentration), self.n_words
        of_words = (log_gamma_positive(state.words + eta) - gammaln(eta)).sum(0)
        of_topic = of_words + gammaln(n_words * eta) - gammaln(state.tokens + n_words * eta)
        return jnp.where(self._exists(), of_topic, 0.0).sum(0)

    def log_density(self, state: DocumentLabels) -> Float[Array, " particle"]:
        """Return log p(words, labels) of each particle, (particle,), in nats, with weights and topics integrated
        out.
        """
        a = self._as_float(self.concentration)
        each = jnp.where(self._exists(), gammaln(state.documents + a) - gammaln(a), 0.0).sum(0)
        total, n_documents = self.total_concentration(), state.documents.sum(0)
        return self.log_ratio(state) + each + gammaln(total) - gammaln(total + n_documents)

    def total_concentration(self) -> Float[Array, ""]:
        """Return K a, the number of topics times the concentration of their weights: the total of the Dirichlet's
        parameters, ().
        """
        return jnp.asarray(self.size) * self._as_float(self.concentration)

    def state_from_labels(self, labels: Int[Array, "document particle"]) -> DocumentLabels:
        """Return the state with these topics of documents, its counts summed from the documents.

        labels: (document, particle); −1 for a document in no topic.
        """
        labels = labels.astype(jnp.int32)
        dtype, shape = self._as_float(1.0).dtype, (self.n_words, self.capacity, labels.shape[1])
        documents, words = jnp.zeros(shape[1:], dtype), jnp.zeros(shape, dtype)
        for part, span in zip(self.parts, self._spans(), strict=True):
            which, counts, weight, _ = jax.tree.map(self._leaf, part)

            def add(words: Array, row: tuple[Array, Array, Array]) -> tuple[Array, None]:
                """Add one document's words to the counts of its topic."""
                ids, amounts, chosen = row
                return words.at[ids].add(amounts[:, None, None] * chosen), None

            chosen = (labels[span][:, None, :] == jnp.arange(self.capacity, dtype=jnp.int32)[:, None]).astype(dtype)
            words = jax.lax.scan(add, words, (which, counts, chosen))[0]
            documents = documents + jnp.einsum("dkp,d->kp", chosen, weight)
        return DocumentLabels(labels, documents, words, words.sum(0))

    def labels_of(self, topics: Int[np.ndarray, " unit"], particles: int) -> Int[Array, "document particle"]:
        """Return given topics of the documents in this chain's order, (document, particle), the same for all particles.

        topics: one for each document, in the order of the data set.
        """
        units = np.concatenate([np.asarray(part.units) for part in self.parts])
        labels = np.where(units >= 0, np.asarray(topics)[np.maximum(units, 0)], 0)
        return jnp.asarray(np.repeat(labels[:, None], particles, axis=1))

    def places_of_documents(self) -> Int[np.ndarray, " unit"]:
        """Return where each document of the data set stands in this chain's order, (unit,)."""
        units = np.concatenate([np.asarray(part.units) for part in self.parts])
        places = np.zeros(int(units.max(initial=-1)) + 1, np.int64)
        places[units[units >= 0]] = np.flatnonzero(units >= 0)
        return places

    def _spans(self) -> list[slice]:
        """Return, for each part of the documents (those of one padded length), the range of its document numbers."""
        ends = np.cumsum([len(part.weight) for part in self.parts]).tolist()
        return [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]

    def _exists(self) -> Array:
        """Return True for the topics that exist, (topic, 1)."""
        return first(jnp.asarray(self.size), self.capacity)[:, None]

    def _leaf(self, leaf: np.ndarray | Array) -> Array:
        """Return an array of numbers in the floating type of the session, and an array of ids as it is."""
        return jnp.asarray(leaf, jnp.result_type(float) if jnp.issubdtype(leaf.dtype, jnp.floating) else None)


def evidence_chain_of_unigrams(
    model: MixtureOfUnigrams, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> UnigramMixtureChain:
    """Return the annealing chain of a mixture of unigrams, over the topics of documents, from the prior.

    The estimate is not used.
    """
    return UnigramMixtureChain.from_data(model, data, size[0], capacity_of(size)[0])


# ── documents in turn ─────────────────────────────────────────────────────────────────────────────────────────────────


class UnigramsInTurn(InTurn):
    """The documents of a mixture of unigrams in a random order, for annealing along the documents (`Sequential`)."""

    chain: UnigramMixtureChain

    def append(
        self, key: Key[Array, ""], state: DocumentLabels, unit: Int[Array, ""]
    ) -> tuple[DocumentLabels, Float[Array, " particle"]]:
        """Draw the topic of the next document given the documents before.

        unit: the number of the document in the order in which documents come.

        Returns: (the new state, log p(document | the documents before) of each particle in nats, (particle,)).
        """
        after, score = self.chain.redraw_document(state, jnp.asarray(self.order)[unit], self._uniform(key, state))
        return after, score - self._log_seats(state)

    def remove(
        self, key: Key[Array, ""], state: DocumentLabels, unit: Int[Array, ""]
    ) -> tuple[DocumentLabels, Float[Array, " particle"]]:
        """Take the last document out of its topic. The key is not used.

        unit: the number of the document in the order in which documents come.

        Returns: (the new state, log p(document | the documents that are left) of each particle in nats, (particle,)).
        """
        left, score = self.chain.redraw_document(state, jnp.asarray(self.order)[unit], None)
        return left, score - self._log_seats(left)

    def revisit(
        self, key: Key[Array, ""], state: DocumentLabels, units: Int[Array, ""], *, backward: bool
    ) -> DocumentLabels:
        """Return the state with the topics of the first `units` documents drawn again, one after another, at
        temperature 1.

        backward: the last document first.
        """

        def one(place: Array, state: DocumentLabels) -> DocumentLabels:
            """Draw the topic of the document in position `place` of the sweep."""
            document = jnp.asarray(self.order)[units - 1 - place if backward else place]
            return self.chain.redraw_document(state, document, self._uniform(jax.random.fold_in(key, place), state))[0]

        return jax.lax.fori_loop(0, units, one, state)

    def _uniform(self, key: Key[Array, ""], state: DocumentLabels) -> Float[Array, " particle"]:
        """Draw a uniform number for each particle."""
        return jax.random.uniform(key, state.tokens.shape[1:], state.tokens.dtype)

    def _log_seats(self, before: DocumentLabels) -> Float[Array, " particle"]:
        """Return log(number of documents with a topic + the total concentration of the weights), (particle,).

        before: the state, without the document that comes or went.
        """
        return jnp.log(before.documents.sum(0) + self.chain.total_concentration())


def unigrams_in_turn(chain: UnigramMixtureChain, key: Key[Array, ""]) -> UnigramsInTurn:
    """Return the documents of a mixture of unigrams in an order drawn with the key."""
    real = np.concatenate([np.asarray(part.weight) for part in chain.parts]) > 0
    return UnigramsInTurn.shuffled(chain, real, key)
