"""LDA with proportions and topics integrated out, on a path from the prior or from a fit's q(z).

The state is a topic for every token. With n the counts without token i (Griffiths & Steyvers 2004; Blei 2004, §3.7),

    p(z_i = k | z_¬i, w) ∝ (n_dk + α_k) (n_kw + η) / (n_k + Vη)

and the tempered conditional of π_t ∝ q^(1−t) p^t is, with q the prior p(z | α),

    (n_dk + α_k) · [(n_kw + η) / (n_k + Vη)]^t                      log p − log q = log p(w | z, η)

or, with q(z) = Π_i q_i(z_i) of a fit, q_i(k)^(1−t) · [p(z_i = k | …)]^t. From the prior the path is symmetric in the
topics and knows nothing; from a fit it is short, and begins with one labelling (`relabelling`).

Tokens are visited one after another, each seeing what all before it have become; particles stand side by side on the
last axis, so that one step is a vector operation over (topic, particle), and documents and words pick whole rows.
log Γ is read from tables: counts are whole numbers, and float64 costs nothing that way.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from scipy.sparse import csr_array
from scipy.special import gammaln

from lvsearch.inference.data import Dataset
from lvsearch.inference.documents import counts_of
from lvsearch.inference.estimator import Estimate, capacity_of, describe_units
from lvsearch.inference.evidence.dispatch import evidence_chain
from lvsearch.inference.topic_estimator import point_topics
from lvsearch.models.lda import LDA

MOST_FROM_PRIOR = 20_000
"""Tokens up to which paths begin in the prior, where there is nothing to know about labellings or modes."""
TINY = 1e-12
LENGTHS = (64, 1.25)
"""Tokens, documents and words are padded to a geometric ladder, so that corpora of like size share a program."""


class TopicState(NamedTuple):
    """Topics of all tokens and the counts that follow from them.

    | field | letter | shape |
    |---|---|---|
    | `assignment` | z | (token, particle); −1 for padding |
    | `document_topic` | n_dk | (document, topic, particle), float32 whole numbers |
    | `word_topic` | n_kw | (word, topic, particle) |
    | `topic_total` | n_k | (topic, particle) |
    """

    assignment: Int[Array, "token particle"]
    document_topic: Float[Array, "document topic particle"]
    word_topic: Float[Array, "word topic particle"]
    topic_total: Float[Array, "topic particle"]


class CollapsedTopics(eqx.Module):
    """The chain of one corpus at one size.

    | field | shape | meaning |
    |---|---|---|
    | `document`, `word` | (token,) | of each token, document by document; −1 for padding |
    | `alpha` | (topic,) | α, 0 for topics that do not exist |
    | `eta`, `vocabulary` | () | η; the number of words V |
    | `log_gamma_word` | (count,) | log Γ(η + n) − log Γ(η) |
    | `log_gamma_topic` | (count,) | log Γ(Vη) − log Γ(Vη + n) |
    | `log_gamma_document` | (topic, count) | log Γ(α_k + n) − log Γ(α_k) |
    | `log_proportions` | () | Σ_d log Γ(A) − log Γ(A + N_d), A = Σ_k α_k |
    | `log_q` | (token, topic) or None | log q_i(k), 0 at padding; None: q is the prior |
    | `sharpness` | () | f = q^sharpness in `label_scores` |
    """

    document: Int[np.ndarray, " token"]
    word: Int[np.ndarray, " token"]
    alpha: Float[np.ndarray, " topic"]
    eta: np.ndarray
    vocabulary: np.ndarray
    log_gamma_word: Float[np.ndarray, " count"]
    log_gamma_topic: Float[np.ndarray, " total"]
    log_gamma_document: Float[np.ndarray, "topic length"]
    log_proportions: np.ndarray
    log_q: Float[np.ndarray, "token topic"] | None
    sharpness: np.ndarray
    n_documents: int = eqx.field(static=True)
    n_words: int = eqx.field(static=True)

    @property
    def elements(self) -> int:
        return len(self.word)

    def init(self, key: Key[Array, ""], particles: int) -> TopicState:
        if self.log_q is None:
            return self._swept(key, self._empty(particles), jnp.zeros(()), False)
        uniforms = jax.random.uniform(key, (len(self.word), particles), jnp.float32)
        weight = jnp.exp(self.log_q - self.log_q.max(1, keepdims=True)).astype(jnp.float32) * self._exists
        ends = jnp.cumsum(weight, axis=1)
        drawn = (ends[:, :-1, None] <= uniforms[:, None] * ends[:, -1:, None]).sum(1)
        return self._state(jnp.where(self._real[:, None], drawn, -1).astype(jnp.int32))

    @property
    def directed(self) -> bool:
        return True

    def step(
        self, key: Key[Array, ""], state: TopicState, temperature: Float[Array, ""], *, backward: bool
    ) -> TopicState:
        """Every token in turn, the last one first where `backward`."""
        return self._swept(key, state, temperature, backward)

    def log_ratio(self, state: TopicState) -> Float[Array, " particle"]:
        log_words = self._log_words(state)
        if self.log_q is None:
            return log_words
        chosen = jnp.take_along_axis(jnp.asarray(self.log_q), jnp.maximum(state.assignment, 0), axis=1)
        log_q = jnp.where(self._real[:, None], chosen, 0.0).astype(log_words.dtype).sum(0)
        return log_words + self._log_documents(state) - log_q

    def log_density(self, state: TopicState) -> Float[Array, " particle"]:
        """log p(w, z | α, η)."""
        return self._log_words(state) + self._log_documents(state)

    def label_scores(self, state: TopicState) -> Float[Array, "particle topic topic"] | None:
        """S[k, l] = sharpness · Σ over the tokens in topic l of log q_i(k)."""
        if self.log_q is None:
            return None
        topics = jnp.arange(len(self.alpha))

        def one(assignment: Array) -> Array:
            chosen = (assignment[:, None] == topics).astype(jnp.float32)
            return jnp.einsum("ik,il->kl", jnp.asarray(self.log_q, jnp.float32), chosen)

        scores = self.sharpness * jax.lax.map(one, state.assignment.T)
        both = self._exists[:, None] & self._exists
        return jnp.where(both, scores, jnp.where(jnp.eye(len(topics), dtype=bool), 0.0, -jnp.inf))

    def relabel(self, state: TopicState, order: Int[Array, "particle topic"]) -> TopicState:
        named = jnp.take_along_axis(order.T, jnp.maximum(state.assignment, 0), axis=0)
        return self._state(jnp.where(state.assignment >= 0, named, -1).astype(jnp.int32))

    def take(self, state: TopicState, particles: Int[Array, " chosen"]) -> TopicState:
        return jax.tree.map(lambda leaf: leaf[..., particles], state)

    def of_topics(self, assignment: Int[Array, "token particle"]) -> TopicState:
        """The state of these topics of the tokens, −1 for padding."""
        return self._state(assignment)

    # ── one sweep ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _exists(self) -> Bool[Array, " topic"]:
        return jnp.asarray(self.alpha) > 0

    @property
    def _real(self) -> Bool[Array, " token"]:
        return jnp.asarray(self.word) >= 0

    def _empty(self, particles: int) -> TopicState:
        return self._state(jnp.full((len(self.word), particles), -1, jnp.int32))

    def _state(self, assignment: Int[Array, "token particle"]) -> TopicState:
        """The counts of an assignment."""
        chosen = (assignment[:, None] == jnp.arange(len(self.alpha))[:, None]).astype(jnp.float32)

        def counts(rows: Any, length: int) -> Array:
            zeros = jnp.zeros((length, *chosen.shape[1:]), jnp.float32)
            return zeros.at[jnp.maximum(jnp.asarray(rows), 0)].add(chosen)

        word_topic = counts(self.word, self.n_words)
        return TopicState(assignment, counts(self.document, self.n_documents), word_topic, word_topic.sum(0))

    def _swept(self, key: Key[Array, ""], state: TopicState, temperature: Array, backward: bool) -> TopicState:
        """Every token once, in order; tokens that are nowhere yet (−1) are added to the counts."""
        n_tokens, particles = state.assignment.shape
        n_topics = len(self.alpha)
        topic = jnp.arange(n_topics)[:, None]
        alpha = jnp.asarray(self.alpha, jnp.float32)[:, None]
        t, eta = temperature.astype(jnp.float32), jnp.asarray(self.eta, jnp.float32)
        total_eta = eta * jnp.asarray(self.vocabulary, jnp.float32)
        below = jnp.tril(jnp.ones((n_topics, n_topics), jnp.float32))
        document, word = jnp.maximum(jnp.asarray(self.document), 0), jnp.maximum(jnp.asarray(self.word), 0)
        uniforms = jax.random.uniform(key, (n_tokens, particles), jnp.float32)
        log_q = None if self.log_q is None else jnp.asarray(self.log_q, jnp.float32)

        def one_token(position: Array, carry: TopicState) -> TopicState:
            assignment, document_topic, word_topic, topic_total = carry
            i = n_tokens - 1 - position if backward else position
            d, w = document[i], word[i]
            here = topic == assignment[i]  # nowhere at padding and where tokens are added
            own = here.astype(jnp.float32)
            in_document, of_word, total = document_topic[d] - own, word_topic[w] - own, topic_total - own
            log_fit = t * jnp.log((of_word + eta) / (total + total_eta))
            if log_q is None:
                weight = (in_document + alpha) * jnp.exp(log_fit)
            else:
                shares = jnp.where(alpha > 0, in_document + alpha, 1.0)  # 0 · log 0 would not be 0
                log_weight = log_fit + t * jnp.log(shares) + (1 - t) * log_q[i][:, None]
                weight = jnp.where(alpha > 0, jnp.exp(log_weight - log_weight.max(0)), 0.0)
            ends = jnp.matmul(below, weight, precision=jax.lax.Precision.HIGHEST)
            new = (ends[:-1] <= uniforms[i] * ends[-1]).sum(0).astype(jnp.int32)
            new = jnp.where(self._real[i], new, -1)
            own = (topic == new).astype(jnp.float32)
            return TopicState(
                assignment.at[i].set(new),
                document_topic.at[d].set(in_document + own),
                word_topic.at[w].set(of_word + own),
                total + own,
            )

        return jax.lax.fori_loop(0, n_tokens, one_token, state)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_words(self, state: TopicState) -> Float[Array, " particle"]:
        """log p(w | z, η) = Σ_k [log Γ(Vη) − log Γ(Vη + n_k) + Σ_w log Γ(η + n_kw) − log Γ(η)]."""
        of_words = jnp.asarray(self.log_gamma_word)[state.word_topic.astype(jnp.int32)].sum((0, 1))
        return of_words + jnp.asarray(self.log_gamma_topic)[state.topic_total.astype(jnp.int32)].sum(0)

    def _log_documents(self, state: TopicState) -> Float[Array, " particle"]:
        """log p(z | α) = Σ_d [log Γ(A) − log Γ(A + N_d) + Σ_k log Γ(α_k + n_dk) − log Γ(α_k)]."""
        topic = jnp.arange(len(self.alpha))[:, None]
        table = jnp.asarray(self.log_gamma_document)
        return table[topic, state.document_topic.astype(jnp.int32)].sum((0, 1)) + self.log_proportions


def collapsed_topics(
    counts: csr_array,
    alpha: Float[np.ndarray, " topic"],
    eta: float,
    capacity: int,
    log_responsibilities: Float[np.ndarray, "pair topic"] | None = None,
) -> CollapsedTopics:
    """The chain of a corpus. counts: (D, V), whole numbers. alpha: (K,).

    log_responsibilities: log q(z = k) for each stored count, in the order of `counts.data`, rows normalised; None: q is
    the prior. ValueError for counts that are not whole.
    """
    if np.any(counts.data % 1):
        raise ValueError("got counts that are not whole numbers; expected raw word counts, of which each is a token")
    copies = np.asarray(counts.data, np.int64)
    pair = np.repeat(np.arange(len(copies)), copies)
    document = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))[pair]
    n_topics, n_words = len(alpha), counts.shape[1]
    width = padded(len(pair)) - len(pair)
    lengths = np.asarray(counts.sum(1), np.int64).ravel()
    padded_alpha = np.pad(np.asarray(alpha, np.float64), (0, capacity - n_topics))
    most_word = int(np.asarray(counts.sum(0)).max(initial=0))
    safe = np.where(padded_alpha > 0, padded_alpha, 1.0)[:, None]
    in_document = np.arange(padded(int(lengths.max(initial=0)) + 1))
    total = float(np.sum(alpha))
    log_q = None
    if log_responsibilities is not None:
        log_q = np.full((len(pair) + width, capacity), -np.inf, np.float32)
        log_q[: len(pair), :n_topics] = log_responsibilities[pair]
        log_q[len(pair) :] = 0.0
        log_q = np.maximum(log_q, -1e30)
    return CollapsedTopics(
        np.pad(document, (0, width), constant_values=-1).astype(np.int32),
        np.pad(counts.indices[pair], (0, width), constant_values=-1).astype(np.int32),
        padded_alpha,
        np.asarray(eta, np.float64),
        np.asarray(n_words, np.float64),
        gammaln(eta + np.arange(padded(most_word + 1))) - gammaln(eta),
        gammaln(n_words * eta) - gammaln(n_words * eta + np.arange(padded(len(pair) + 1))),
        np.where(padded_alpha[:, None] > 0, gammaln(safe + in_document) - gammaln(safe), 0.0),
        np.asarray((gammaln(total) - gammaln(total + lengths)).sum()),
        log_q,
        np.asarray(min(1.0, 10.0 * n_topics / max(len(pair), 1))),
        padded(counts.shape[0]),
        padded(n_words),
    )


@evidence_chain.register
def _(model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedTopics:
    """From the prior where that is affordable or nothing was fitted; from the fit's responsibilities otherwise."""
    counts, (n_topics,), (capacity,) = counts_of(data), size, capacity_of(size)
    total, eta = np.asarray(model.concentration, np.float64), model.topic_concentration
    alpha = np.broadcast_to(total if total.ndim else total / n_topics, (n_topics,))
    if eta is None:
        raise ValueError("got an LDA whose topics are point estimates; expected topic_concentration, to integrate out")
    if estimate is None or counts.sum() <= MOST_FROM_PRIOR:
        return collapsed_topics(counts, alpha, float(eta), capacity)
    proportions = describe_units(estimate.model, estimate, data).representation
    topics = point_topics(estimate)
    document = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    shares = np.maximum(proportions[document] * topics[:, counts.indices].T, TINY)
    log_q = np.log(shares / shares.sum(1, keepdims=True))
    return collapsed_topics(counts, alpha, float(eta), capacity, log_q)


def padded(length: int) -> int:
    """The next length of the geometric ladder."""
    least, ratio = LENGTHS
    size = least
    while size < length:
        size = int(np.ceil(size * ratio / 8)) * 8
    return size
