"""LDA with proportions and topics integrated out, on a path from the prior or from given topics.

The state is a topic for every token. With n the counts without token i (Griffiths & Steyvers 2004; Blei 2004, §3.7),

    p(z_i = k | z_¬i, w) ∝ (n_dk + α_k) (n_kw + η) / (n_k + Vη)

and the tempered conditional of π_t ∝ q^(1−t) p^t is

    (n_dk + α_k) · [(n_kw + η) / (n_k + Vη)]^t                  q = p(z | α):              log p/q = log p(w | z, η)
    (n_dk + α_k) · φ_kw^(1−t) · [(n_kw + η) / (n_k + Vη)]^t     q = p(z | w, φ, α):   − Σ log φ_zw + log p(w | φ, α)
    q_i(k)^(1−t) · [(n_dk + α_k) (n_kw + η) / (n_k + Vη)]^t     q = Π_i q_i(z_i):     + log p(z | α) − Σ log q_i(z_i)

From the prior the path is symmetric in the topics and knows nothing. From given topics φ (of where another path ended)
it is the shortest: documents are independent under q, whose evidence log p(w | φ, α) is a sum of theirs, and all that
is left to do is to let the topics go. From a fit's responsibilities q_i all tokens are free at first, so that a poor
fit is mended on the way. Both begin with one labelling (`relabelling`).

Where the vocabulary is cut into blocks, in each of which a topic is a distribution of its own (the alleles of loci,
`admixture`), n_k is that of the block of the word, and V its number of words.

Tokens are visited one after another, each seeing what all before it have become (`topic_state`). log Γ is read from
tables: counts are whole numbers, and float64 costs nothing that way. A path without powers, of posteriors with a larger
η, would be cheaper, but where topics are strong its ends were much farther apart at as many sweeps.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from scipy.sparse import csr_array
from scipy.special import gammaln

from lvsearch.inference.annealing.dispatch import path_needs_fit
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.engine.describing import describe_units
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.topics.estimator import point_topics
from lvsearch.inference.topics.topic_state import TokenPlace, TopicState, redrawn
from lvsearch.models.lda import LDA

MOST_FROM_PRIOR = 20_000
"""Tokens up to which paths begin in the prior, where there is nothing to know about labellings or modes."""
SETTLING = 20
"""Sweeps after which documents, each for itself under given topics, count as drawn from their posterior."""
LANES, FEWEST_LANES, MOST_LANES = 2048, 32, 128
"""Numbers in a step's vectors up to which its time is mostly that of starting it, and particles that this is used for:
with 16 topics, 32, 64, 128 and 256 particles take 2.9, 3.4, 5.6 and 10.7 microseconds a token on one core."""
TINY = 1e-12
LENGTHS = (64, 1.25)
"""Tokens, documents and words are padded to a geometric ladder, so that corpora of like size share a program."""


class Concentrations(NamedTuple):
    """Hyper-parameters of each particle in the place of the chain's own; None: the chain's own.

    | field | letter | shape |
    |---|---|---|
    | `alpha` | α | (topic, particle), 0 for topics that do not exist |
    | `eta` | η | (particle,) |
    """

    alpha: Float[Array, "topic particle"] | None = None
    eta: Float[Array, " particle"] | None = None


OWN = Concentrations()


class CollapsedTopics(eqx.Module):
    """The chain of one corpus at one size.

    | field | shape | meaning |
    |---|---|---|
    | `document`, `word` | (token,) | of each token, document by document; −1 for padding |
    | `alpha` | (topic,) | α, 0 for topics that do not exist |
    | `eta`, `vocabulary` | () | η; the number of words |
    | `block`, `widths` | (word,), (block,) | the block of each word; how many words each has, V |
    | `log_gamma_word` | (count,) | log Γ(η + n) − log Γ(η) |
    | `log_gamma_topic` | (block, count) | log Γ(Vη) − log Γ(Vη + n) |
    | `log_gamma_document` | (topic, count) | log Γ(α_k + n) − log Γ(α_k) |
    | `log_proportions` | () | Σ_d log Γ(A) − log Γ(A + N_d), A = Σ_k α_k |
    | `log_q` | (token, topic) or None | log φ_kw of its word, or log q_i(k); 0 at padding; None: q is the prior |
    | `log_start` | () | log p(w | φ, α), nats; 0 for the prior and for responsibilities |
    | `sharpness` | () | f = (Π_i exp log_q)^sharpness in `label_scores` |
    | `independent` | | q is Π_i q_i(z_i): no document's tokens depend on each other |
    """

    document: Int[np.ndarray, " token"]
    word: Int[np.ndarray, " token"]
    alpha: Float[np.ndarray, " topic"]
    eta: np.ndarray
    vocabulary: np.ndarray
    block: Int[np.ndarray, " word"]
    widths: Float[np.ndarray, " block"]
    log_gamma_word: Float[np.ndarray, " count"]
    log_gamma_topic: Float[np.ndarray, "block total"]
    log_gamma_document: Float[np.ndarray, "topic length"]
    log_proportions: np.ndarray
    log_q: Float[np.ndarray, "token topic"] | None
    log_start: np.ndarray
    sharpness: np.ndarray
    n_documents: int = eqx.field(static=True)
    n_words: int = eqx.field(static=True)
    independent: bool = eqx.field(static=True)

    @property
    def elements(self) -> int:
        return len(self.word)

    def init(self, key: Key[Array, ""], particles: int) -> TopicState:
        """Token after token; under given topics `SETTLING` sweeps follow, each document for itself."""
        return self.drawn(key, particles)

    def drawn(self, key: Key[Array, ""], particles: int, concentrations: Concentrations = OWN) -> TopicState:
        """As `init`, each particle under hyper-parameters of its own."""
        key_first, key_sweeps = jax.random.split(key)
        start = jnp.zeros(())
        state = self.swept(key_first, self._empty(particles), start, False, concentrations)
        if self.log_q is None or self.independent:
            return state

        def sweep(index: Array, state: TopicState) -> TopicState:
            return self.swept(jax.random.fold_in(key_sweeps, index), state, start, False, concentrations)

        return jax.lax.fori_loop(0, SETTLING, sweep, state)

    @property
    def lanes(self) -> int:
        return int(np.clip(LANES // len(self.alpha), FEWEST_LANES, MOST_LANES))

    @property
    def directed(self) -> bool:
        return True

    def step(
        self, key: Key[Array, ""], state: TopicState, temperature: Float[Array, ""], *, backward: bool
    ) -> TopicState:
        """Every token in turn, the last one first where `backward`."""
        return self.swept(key, state, temperature, backward)

    def log_ratio(self, state: TopicState) -> Float[Array, " particle"]:
        log_words = self.log_words(state)
        if self.log_q is None:
            return log_words
        ratio = log_words - self.log_chosen(state) + jnp.asarray(self.log_start, log_words.dtype)
        return ratio + self.log_documents(state) if self.independent else ratio

    def log_chosen(self, state: TopicState) -> Float[Array, " particle"]:
        """Σ over the tokens of `log_q`, which is not None, at their topics."""
        chosen = jnp.take_along_axis(jnp.asarray(self.log_q), jnp.maximum(state.assignment, 0), axis=1)
        return jnp.where(self._real[:, None], chosen, 0.0).astype(jnp.result_type(float)).sum(0)

    def log_density(self, state: TopicState) -> Float[Array, " particle"]:
        """log p(w, z | α, η)."""
        return self.log_words(state) + self.log_documents(state)

    def topic_means(self, state: TopicState) -> Float[Array, "word topic particle"]:
        """Of the topics given their tokens: (n_kw + η) / (n_k + Vη)."""
        eta = jnp.asarray(self.eta, jnp.float32)
        base = state.topic_total + eta * jnp.asarray(self.widths, jnp.float32)[:, None, None]
        return (state.word_topic + eta) / base[jnp.asarray(self.block)]

    def log_hyper(self, state: TopicState) -> tuple[None, None]:
        """Hyper-parameters are given here."""
        return None, None

    def label_scores(self, state: TopicState) -> Float[Array, "particle topic topic"] | None:
        """S[k, l] = sharpness · Σ over the tokens in topic l of log_q's k-th."""
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

    def words_of_documents(self) -> Int[np.ndarray, "document token"]:
        """The words of each document; −1 for padding."""
        real = self.word >= 0
        document = self.document[real]
        place = np.arange(len(document)) - np.searchsorted(document, document)
        words = np.full((self.n_documents, padded(int(place.max(initial=0)) + 1)), -1, np.int32)
        words[document, place] = self.word[real]
        return words

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
        blank = jnp.zeros((len(self.widths), *word_topic.shape[1:]), jnp.float32)
        totals = blank.at[jnp.asarray(self.block)].add(word_topic)
        return TopicState(assignment, counts(self.document, self.n_documents), word_topic, totals)

    def swept(
        self,
        key: Key[Array, ""],
        state: TopicState,
        temperature: Float[Array, ""],
        backward: bool,
        concentrations: Concentrations = OWN,
    ) -> TopicState:
        """Every token once, in order; tokens that are nowhere yet (−1) are added to the counts.

        With an α of each particle, and q of given topics under the chain's own α₀, the document's factor is
        (n_dk + α₀)^(1−t) (n_dk + α)^t.
        """
        n_tokens, particles = state.assignment.shape
        n_real = self._real.sum()
        own_alpha = jnp.asarray(self.alpha, jnp.float32)[:, None]
        alpha = own_alpha if concentrations.alpha is None else concentrations.alpha.astype(jnp.float32)
        eta = jnp.asarray(self.eta if concentrations.eta is None else concentrations.eta, jnp.float32)
        between = not (concentrations.alpha is None or self.log_q is None or self.independent)
        t = temperature.astype(jnp.float32)
        document, word, block = jnp.asarray(self.document), jnp.asarray(self.word), jnp.asarray(self.block)
        uniforms = jax.random.uniform(key, (n_tokens, particles), jnp.float32)
        given = None if self.log_q is None else jnp.exp((1 - t) * jnp.asarray(self.log_q, jnp.float32))

        def weights(token: Array, in_document: Array, of_word: Array, total: Array) -> Array:
            weight = jnp.where(alpha > 0, in_document + alpha, 0.0)
            if self.independent:
                weight = jnp.where(alpha > 0, jnp.exp(t * jnp.log(jnp.where(alpha > 0, weight, 1.0))), 0.0)
            if between:
                first, last = (jnp.log(in_document + jnp.where(alpha > 0, each, 1.0)) for each in (own_alpha, alpha))
                weight = jnp.where(alpha > 0, jnp.exp((1 - t) * first + t * last), 0.0)
            width = jnp.asarray(self.widths, jnp.float32)[block[word[token]]]
            weight = weight * jnp.exp(t * jnp.log((of_word + eta) / (total + eta * width)))
            return weight if given is None else weight * given[token][:, None]

        def one_token(position: Array, state: TopicState) -> TopicState:
            token = n_real - 1 - position if backward else position
            at = TokenPlace(token, document[token], word[token], block[word[token]])
            return redrawn(state, at, partial(weights, token), uniforms[token])[0]

        return jax.lax.fori_loop(0, n_real, one_token, state)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_words(self, state: TopicState) -> Float[Array, " particle"]:
        """log p(w | z, η) = Σ_k [log Γ(Vη) − log Γ(Vη + n_k) + Σ_w log Γ(η + n_kw) − log Γ(η)]."""
        of_words = jnp.asarray(self.log_gamma_word)[state.word_topic.astype(jnp.int32)].sum((0, 1))
        block = jnp.arange(len(self.widths))[:, None, None]
        return of_words + jnp.asarray(self.log_gamma_topic)[block, state.topic_total.astype(jnp.int32)].sum((0, 1))

    def log_documents(self, state: TopicState) -> Float[Array, " particle"]:
        """log p(z | α) = Σ_d [log Γ(A) − log Γ(A + N_d) + Σ_k log Γ(α_k + n_dk) − log Γ(α_k)]."""
        topic = jnp.arange(len(self.alpha))[:, None]
        table = jnp.asarray(self.log_gamma_document)
        return table[topic, state.document_topic.astype(jnp.int32)].sum((0, 1)) + self.log_proportions


def collapsed_topics(
    counts: csr_array,
    alpha: Float[np.ndarray, " topic"],
    eta: float,
    capacity: int,
    log_q: Float[np.ndarray, "pair topic"] | None = None,
    *,
    widths: Sequence[int] | None = None,
    independent: bool = False,
) -> CollapsedTopics:
    """The chain of a corpus. counts: (D, V), whole numbers. alpha: (K,). widths: how many words each block of the
    vocabulary has, one after another; None for a single block.

    log_q: for each stored count, in the order of `counts.data`: where `independent`, log q(z = k), rows normalised;
    otherwise log φ_kw of its word (the chain then knows its evidence only up to φ's: see `anchor`). None: q is
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
    width_of_block = np.asarray([n_words] if widths is None else widths, np.int64)
    block = np.repeat(np.arange(len(width_of_block)), width_of_block)
    most_block = int(np.bincount(block[counts.indices[pair]], minlength=1).max(initial=0))
    block_eta = width_of_block[:, None] * eta
    log_tokens = None
    if log_q is not None:
        log_tokens = np.zeros((len(pair) + width, capacity), np.float32)
        log_tokens[: len(pair), :n_topics] = log_q[pair]
    return CollapsedTopics(
        np.pad(document, (0, width), constant_values=-1).astype(np.int32),
        np.pad(counts.indices[pair], (0, width), constant_values=-1).astype(np.int32),
        padded_alpha,
        np.asarray(eta, np.float64),
        np.asarray(n_words, np.float64),
        np.pad(block, (0, padded(n_words) - n_words)).astype(np.int32),
        width_of_block.astype(np.float64),
        gammaln(eta + np.arange(padded(most_word + 1))) - gammaln(eta),
        gammaln(block_eta) - gammaln(block_eta + np.arange(padded(most_block + 1))),
        np.where(padded_alpha[:, None] > 0, gammaln(safe + in_document) - gammaln(safe), 0.0),
        np.asarray((gammaln(total) - gammaln(total + lengths)).sum()),
        log_tokens,
        np.zeros(()),
        np.asarray(min(1.0, 10.0 * n_topics / max(len(pair), 1))),
        padded(counts.shape[0]),
        padded(n_words),
        independent,
    )


def topics_chain(model: LDA, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> CollapsedTopics:
    """From the prior where that is affordable or nothing was fitted; from the fit's responsibilities otherwise. The
    model's hyper-parameters are numbers."""
    counts, (n_topics,), (capacity,) = counts_of(data), size, capacity_of(size)
    concentration, eta = model.numbers()
    total = np.asarray(concentration, np.float64)
    alpha = np.broadcast_to(total if total.ndim else total / n_topics, (n_topics,))
    if eta is None:
        raise ValueError("got an LDA whose topics are point estimates; expected topic_concentration, to integrate out")
    if estimate is None or counts.sum() <= MOST_FROM_PRIOR:
        return collapsed_topics(counts, alpha, float(eta), capacity)
    proportions = describe_units(estimate.model, estimate, data).representation
    document = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    shares = np.maximum(proportions[document] * point_topics(estimate)[:, counts.indices].T, TINY)
    log_q = np.log(shares / shares.sum(1, keepdims=True))
    return collapsed_topics(counts, alpha, float(eta), capacity, log_q, independent=True)


@path_needs_fit.register
def _(model: LDA, data: Dataset) -> bool:
    return bool(counts_of(data).sum() > MOST_FROM_PRIOR)


def padded(length: int) -> int:
    """The next length of the geometric ladder."""
    least, ratio = LENGTHS
    size = least
    while size < length:
        size = int(np.ceil(size * ratio / 8)) * 8
    return size
