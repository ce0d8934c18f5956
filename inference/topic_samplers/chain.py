"""LDA with proportions and topics integrated out, annealed from the prior or from given topics.

The state is a topic for every token. With n the counts without token i (Griffiths & Steyvers 2004; Blei 2004, §3.7),

    p(z_i = k | z_¬i, w) ∝ (n_dk + α_k) (n_kw + η) / (n_k + Vη)

and the tempered conditional of π_t ∝ q^(1−t) p^t is

    (n_dk + α_k) · [(n_kw + η) / (n_k + Vη)]^t                  q = p(z | α):              log p/q = log p(w | z, η)
    (n_dk + α_k) · φ_kw^(1−t) · [(n_kw + η) / (n_k + Vη)]^t     q = p(z | w, φ, α):   − Σ log φ_zw + log p(w | φ, α)
    q_i(k)^(1−t) · [(n_dk + α_k) (n_kw + η) / (n_k + Vη)]^t     q = Π_i q_i(z_i):     + log p(z | α) − Σ log q_i(z_i)

with q_i(k) ∝ θ̂_dk φ_kw. There are three beginnings. The prior is symmetric in the topics, and uses no knowledge of the
data. Given topics φ, in which another path ended, make the shortest path. Documents are independent under q, whose
evidence log p(w | φ, α) is a sum over documents, and the path has only to free the topics. With a fit's
responsibilities q_i all tokens are free at first, so that a poor fit is corrected on the way. The last two begin with
one labelling (`relabelling`).

The vocabulary may be cut into blocks, in each of which a topic is a distribution of its own (the alleles of loci,
`admixture`). Then n_k is the count of the word's block, and V its number of words.

Tokens are visited one after another, each seeing the new topics of all before it. Where there are many, they are drawn
in groups that share neither a document nor a word (`topic_state`, `token_groups`). log Γ is read from tables, because
counts are whole numbers; float64 costs nothing that way. A path without powers, through posteriors with a larger η,
would be cheaper. But where topics are strong its ends were much farther apart at as many sweeps.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from scipy.sparse import csr_array
from scipy.special import gammaln

from lvsearch.inference.annealing.dispatch import MANY_LATENTS
from lvsearch.inference.topic_samplers.given import OWN, Concentrations, GivenFactors, padded
from lvsearch.inference.topic_samplers.token_groups import group_width, grouped
from lvsearch.inference.topic_samplers.topic_state import (
    TokenGroup,
    TokenPlace,
    TokenRule,
    TopicState,
    redrawn,
    redrawn_together,
    total_corrections,
)

MOST_FROM_PRIOR = 20_000
"""Number of tokens up to which paths begin in the prior, which needs no knowledge of labellings or modes."""
SETTLING = 20
"""Number of sweeps after which documents under given topics count as drawn from their posterior."""
LANES, FEWEST_LANES, MOST_LANES = 2048, 32, 128
"""Numbers in a step's vectors up to which its time is mostly start-up time, and bounds on the particles that use this.

With 16 topics, 32, 64, 128 and 256 particles take 2.9, 3.4, 5.6 and 10.7 microseconds per token on one core.
"""
ACCEPTING = 0xACC
"""Folded into a key to separate the acceptance of a group from its draws."""


class CollapsedTopics(eqx.Module):
    """The collapsed annealing chain of one corpus at one number of topics.

    | field | shape | meaning |
    |---|---|---|
    | `document`, `word` | (token,) | document and word of each token, in groups of `width`; −1 at empty places |
    | `alpha` | (topic,) | α, 0 for topics that do not exist |
    | `eta`, `vocabulary` | () | η; the number of words |
    | `block`, `widths` | (word,), (block,) | the block of each word; the number of words V of each block |
    | `log_gamma_word` | (count,) | log Γ(η + n) − log Γ(η) |
    | `log_gamma_topic` | (block, count) | log Γ(Vη) − log Γ(Vη + n) |
    | `log_gamma_document` | (topic, count) | log Γ(α_k + n) − log Γ(α_k) |
    | `log_proportions` | () | Σ_d log Γ(A) − log Γ(A + N_d), A = Σ_k α_k |
    | `q` | `GivenFactors` or None | log φ, or the factors of Π_i q_i(z_i); None: q is the prior |
    | `log_start` | () | log p(w | φ, α), nats, or Σ_i log Σ_k exp of q's factors; 0 for the prior |
    | `sharpness` | () | f = (Π_i exp of q's factors)^sharpness in `label_scores` |
    | `width` | | number of tokens drawn together, which share neither document nor word; 1: one by one |
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
    q: GivenFactors | None
    log_start: np.ndarray
    sharpness: np.ndarray
    n_documents: int = eqx.field(static=True)
    n_words: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    @property
    def independent(self) -> bool:
        """Whether q is Π_i q_i(z_i), under which the tokens of a document do not depend on each other."""
        return self.q is not None and self.q.documents is not None

    @property
    def elements(self) -> int:
        """The number of places for tokens, which is roughly the cost of a sweep."""
        return len(self.word)

    def init(self, key: Key[Array, ""], particles: int) -> TopicState:
        """Draw particles from q, token after token.

        Under given topics `SETTLING` sweeps of each document follow.
        """
        return self.drawn(key, particles)

    def drawn(self, key: Key[Array, ""], particles: int, concentrations: Concentrations = OWN) -> TopicState:
        """Draw particles from q as `init` does, each under its own hyper-parameters."""
        key_first, key_sweeps = jax.random.split(key)
        start = jnp.zeros(())
        state = self.swept(key_first, self._empty(particles), start, False, concentrations)
        if self.q is None or self.independent:
            return state

        def sweep(index: Array, state: TopicState) -> TopicState:
            return self.swept(jax.random.fold_in(key_sweeps, index), state, start, False, concentrations)

        return jax.lax.fori_loop(0, SETTLING, sweep, state)

    @property
    def lanes(self) -> int:
        """The number of particles up to which twice as many take less than twice as long."""
        return int(np.clip(LANES // len(self.alpha), FEWEST_LANES, MOST_LANES))

    @property
    def directed(self) -> bool:
        """Whether a backward sweep differs from a forward one."""
        return True

    def step(
        self, key: Key[Array, ""], state: TopicState, temperature: Float[Array, ""], *, backward: bool
    ) -> TopicState:
        """Make one tempered sweep over all tokens in order, or in reverse order if `backward`."""
        return self.swept(key, state, temperature, backward)

    def log_ratio(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(state, data) − log q(state) of each particle, nats."""
        log_words = self.log_words(state)
        if self.q is None:
            return log_words
        ratio = log_words - self.log_chosen(state) + jnp.asarray(self.log_start, log_words.dtype)
        return ratio + self.log_documents(state) if self.independent else ratio

    def log_chosen(self, state: TopicState) -> Float[Array, " particle"]:
        """Return Σ over the tokens of q's log factors at their topics, nats, for a q that has factors."""
        exact = jnp.result_type(float)
        total = jnp.zeros(state.assignment.shape[1], exact)
        for factor, counts in self._factors_and_counts(state):
            total = total + jnp.einsum("ik,ikp->p", factor.astype(exact), counts.astype(exact))
        return total

    def log_density(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(w, z | α, η) of each particle, nats."""
        return self.log_words(state) + self.log_documents(state)

    def topic_means(self, state: TopicState) -> Float[Array, "word topic particle"]:
        """Return posterior means of the topics given the tokens' topics, (n_kw + η) / (n_k + Vη)."""
        eta = jnp.asarray(self.eta, jnp.float32)
        base = state.topic_total + eta * jnp.asarray(self.widths, jnp.float32)[:, None, None]
        return (state.word_topic + eta) / base[jnp.asarray(self.block)]

    def log_hyper(self, state: TopicState) -> tuple[None, None]:
        """Return (None, None), because this chain has given hyper-parameters."""
        return None, None

    def label_scores(self, state: TopicState) -> Float[Array, "particle topic topic"] | None:
        """Return S[k, l] = sharpness · Σ over the tokens in topic l of q's k-th log factors; None where q is the
        prior.
        """
        if self.q is None:
            return None
        scores = sum(jnp.einsum("ik,ilp->pkl", factor, counts) for factor, counts in self._factors_and_counts(state))
        scores = self.sharpness * scores
        both = self._exists[:, None] & self._exists
        return jnp.where(both, scores, jnp.where(jnp.eye(len(self.alpha), dtype=bool), 0.0, -jnp.inf))

    def relabel(self, state: TopicState, order: Int[Array, "particle topic"]) -> TopicState:
        """Return the state in which topic l of each particle becomes topic order[l]."""
        named = jnp.take_along_axis(order.T, jnp.maximum(state.assignment, 0), axis=0)
        return self._state(jnp.where(state.assignment >= 0, named, -1).astype(jnp.int32))

    def take(self, state: TopicState, particles: Int[Array, " chosen"]) -> TopicState:
        """Return the chosen particles, in the given order."""
        return jax.tree.map(lambda leaf: leaf[..., particles], state)

    def words_of_documents(self) -> Int[np.ndarray, "document token"]:
        """Return the words of each document, shape (document, token), −1 for padding."""
        real = np.flatnonzero(self.word >= 0)
        real = real[np.argsort(self.document[real], kind="stable")]
        document = self.document[real]
        place = np.arange(len(document)) - np.searchsorted(document, document)
        words = np.full((self.n_documents, padded(int(place.max(initial=0)) + 1)), -1, np.int32)
        words[document, place] = self.word[real]
        return words

    def of_topics(self, assignment: Int[Array, "token particle"]) -> TopicState:
        """Return the state in which the tokens have these topics (−1 for padding), with its counts."""
        return self._state(assignment)

    # ── one sweep ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _exists(self) -> Bool[Array, " topic"]:
        """Whether each topic exists, shape (topic,)."""
        return jnp.asarray(self.alpha) > 0

    @property
    def _real(self) -> Bool[Array, " token"]:
        """Whether each place holds a token, shape (token,)."""
        return jnp.asarray(self.word) >= 0

    def _factors_and_counts(self, state: TopicState) -> list[tuple[Array, Array]]:
        """Return pairs of each of q's log factors and the counts that they apply to."""
        if self.q is None:
            return []
        own = [] if self.q.documents is None else [(jnp.asarray(self.q.documents), state.document_topic)]
        return [*own, (jnp.asarray(self.q.words), state.word_topic)]

    def _empty(self, particles: int) -> TopicState:
        """Return the state in which no token has a topic."""
        return self._state(jnp.full((len(self.word), particles), -1, jnp.int32))

    def _state(self, assignment: Int[Array, "token particle"]) -> TopicState:
        """Return the state of an assignment, with its counts."""
        topic, particle = jnp.maximum(assignment, 0), jnp.arange(assignment.shape[1])
        real = (assignment >= 0).astype(jnp.float32)

        def counts(rows: Any, length: int) -> Array:
            """Count tokens by (row, topic, particle)."""
            zeros = jnp.zeros((length, len(self.alpha), assignment.shape[1]), jnp.float32)
            return zeros.at[jnp.maximum(jnp.asarray(rows), 0)[:, None], topic, particle].add(real)

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
        """Draw the topic of every token once, in order; tokens without a topic (−1) are added to the counts.

        With an α of each particle, and q of given topics under the chain's own α₀, the document's factor is (n_dk +
        α₀)^(1−t) (n_dk + α)^t.

        temperature: t of π_t.
        backward: whether the last token comes first.
        concentrations: hyper-parameters of each particle, where they replace the chain's own.
        """
        t = temperature.astype(jnp.float32)
        return self.redraw_all(key, state, backward, partial(self._rule, t), concentrations)

    def sweep_posterior(self, key: Key[Array, ""], state: TopicState) -> TopicState:
        """Draw every token in turn given all others under the posterior: `step` at temperature 1, without computing
        powers.
        """
        alpha = jnp.asarray(self.alpha, jnp.float32)[:, None]
        eta, widths = (jnp.asarray(each, jnp.float32) for each in (self.eta, self.widths))
        block = jnp.asarray(self.block)

        def weights(of_document: Array, of_word: Array, in_document: Array, with_word: Array, total: Array) -> Array:
            base = total + eta * widths[block[of_word]][..., None, None]
            return jnp.where(alpha > 0, (in_document + alpha) * (with_word + eta) / base, 0.0)

        def log_acceptance(total: Array, coming: Array, leaving: Array) -> Array:
            return total_corrections(total + (eta * widths[0]).astype(total.dtype), coming, leaving).sum(0)

        return self.redraw_all(key, state, False, lambda _: TokenRule(weights, log_acceptance), None)

    def redraw_all(
        self,
        key: Key[Array, ""],
        state: TopicState,
        backward: bool,
        rule_for: Callable[[Any], TokenRule],
        of_particles: Any,
    ) -> TopicState:
        """Draw the topic of every token once, in order, or in reverse order if `backward`.

        Tokens without a topic (−1) are added to the counts.

        rule_for: function of the particles' own values that returns how a token is drawn.
        of_particles: values of each particle for `rule_for`, a pytree with last axis (particle,), or without leaves.
        """
        document, word, block = (jnp.maximum(jnp.asarray(leaf), 0) for leaf in (self.document, self.word, self.block))
        rule = rule_for(of_particles)
        n_tokens, particles = state.assignment.shape
        uniforms = jax.random.uniform(key, (n_tokens, particles), jnp.float32)

        def one_token(position: Array, state: TopicState) -> TopicState:
            token = n_real - 1 - position if backward else position
            at = TokenPlace(token, document[token], word[token], block[word[token]])
            return redrawn(state, at, partial(rule.weights, at.document, at.word), uniforms[token])[0]

        def one_group(position: Array, now: TopicState) -> TopicState:
            group = n_groups - 1 - position if backward else position
            cut = partial(jax.lax.dynamic_slice_in_dim, start_index=group * self.width, slice_size=self.width)
            at = TokenGroup(group * self.width, cut(document), cut(word), cut(self._real))
            weights = partial(rule.weights, at.document, at.word)
            return redrawn_together(
                now, state.assignment, at, weights, rule.log_acceptance, (cut(uniforms), accepting[group])
            )

        if self.width == 1:
            n_real = self._real.sum()
            return jax.lax.fori_loop(0, n_real, one_token, state)
        if particles > 1:
            return self._one_by_one(key, state, backward, rule_for, of_particles)
        of_group = self._real.reshape(-1, self.width).any(1)
        n_groups = of_group.sum()
        accepting = jax.random.uniform(jax.random.fold_in(key, ACCEPTING), (len(of_group), 1), jnp.float32)
        return jax.lax.fori_loop(0, n_groups, one_group, state)

    def _one_by_one(
        self, key: Array, state: TopicState, backward: bool, rule_for: Callable[[Any], TokenRule], of_particles: Any
    ) -> TopicState:
        """Sweep the particles one after another.

        Groups of tokens already fill vectors. Eight particles of 48 topics side by side take six times as long as in
        turn.
        """

        def one(each: tuple[Array, tuple[TopicState, Any]]) -> TopicState:
            of_one = jax.tree.map(lambda leaf: leaf[..., None], each[1])
            swept = self.redraw_all(each[0], of_one[0], backward, rule_for, of_one[1])
            return jax.tree.map(lambda leaf: leaf[..., 0], swept)

        first = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), (state, of_particles))
        swept = jax.lax.map(one, (jax.random.split(key, state.assignment.shape[1]), first))
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), swept)

    def _rule(self, t: Float[Array, ""], concentrations: Concentrations) -> TokenRule:
        """Return how one token is drawn at temperature t."""
        own_alpha = jnp.asarray(self.alpha, jnp.float32)[:, None]
        alpha = own_alpha if concentrations.alpha is None else concentrations.alpha.astype(jnp.float32)
        eta = jnp.asarray(self.eta if concentrations.eta is None else concentrations.eta, jnp.float32)
        between = not (concentrations.alpha is None or self.q is None or self.independent)
        block, widths = jnp.asarray(self.block), jnp.asarray(self.widths, jnp.float32)
        given = jax.tree.map(lambda log: jnp.exp((1 - t) * jnp.asarray(log, jnp.float32)), self.q)

        def weights(of_document: Array, of_word: Array, in_document: Array, with_word: Array, total: Array) -> Array:
            weight = jnp.where(alpha > 0, in_document + alpha, 0.0)
            if self.independent:
                weight = jnp.where(alpha > 0, jnp.exp(t * jnp.log(jnp.where(alpha > 0, weight, 1.0))), 0.0)
            if between:
                first, last = (jnp.log(in_document + jnp.where(alpha > 0, each, 1.0)) for each in (own_alpha, alpha))
                weight = jnp.where(alpha > 0, jnp.exp((1 - t) * first + t * last), 0.0)
            base = total + eta * widths[block[of_word]][..., None, None]
            weight = weight * jnp.exp(t * jnp.log((with_word + eta) / base))
            if given is not None:
                weight = weight * given.words[of_word][..., None]
            if given is not None and given.documents is not None:
                weight = weight * given.documents[of_document][..., None]
            return weight

        def log_acceptance(total: Array, coming: Array, leaving: Array) -> Array:
            corrections = total_corrections(total + (eta * widths[0]).astype(total.dtype), coming, leaving)
            return t * corrections.sum(0)

        return TokenRule(weights, log_acceptance)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_words(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(w | z, η) = Σ_k [log Γ(Vη) − log Γ(Vη + n_k) + Σ_w log Γ(η + n_kw) − log Γ(η)], nats."""
        of_words = jnp.asarray(self.log_gamma_word)[state.word_topic.astype(jnp.int32)].sum((0, 1))
        block = jnp.arange(len(self.widths))[:, None, None]
        return of_words + jnp.asarray(self.log_gamma_topic)[block, state.topic_total.astype(jnp.int32)].sum((0, 1))

    def log_documents(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(z | α) = Σ_d [log Γ(A) − log Γ(A + N_d) + Σ_k log Γ(α_k + n_dk) − log Γ(α_k)], nats."""
        topic = jnp.arange(len(self.alpha))[:, None]
        table = jnp.asarray(self.log_gamma_document)
        return table[topic, state.document_topic.astype(jnp.int32)].sum((0, 1)) + self.log_proportions


def padded_topics(capacity: int) -> int:
    """Return the places for topics that programs of groups have: a power of two up to 128, then a multiple of 64."""
    return 1 << (capacity - 1).bit_length() if capacity <= 128 else -(-capacity // 64) * 64


def collapsed_topics(
    counts: csr_array,
    alpha: Float[np.ndarray, " topic"],
    eta: float,
    capacity: int,
    q: GivenFactors | None = None,
    *,
    widths: Sequence[int] | None = None,
    width: int | None = None,
) -> CollapsedTopics:
    """Build the collapsed chain of a corpus.

    counts: word counts, shape (document, word), whole numbers.
    alpha: α, shape (topic,).
    eta: η.
    capacity: number of places for topics.
    q: log factors (document, topic) and (word, topic). Without those of documents, the chain's evidence lacks that of φ
        (`anchor` adds it). None: q is the prior.
    widths: number of words in each block of the vocabulary, one block after another; None for a single block.
    width: number of tokens per group; None: 1 where tokens are few or the vocabulary has several blocks.

    Raises ValueError for counts that are not whole.
    """
    if np.any(counts.data % 1):
        raise ValueError("got counts that are not whole numbers; expected raw word counts, of which each is a token")
    copies = np.asarray(counts.data, np.int64)
    document = np.repeat(np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)), copies)
    word = np.repeat(counts.indices, copies)
    n_topics, n_words, n_tokens = len(alpha), counts.shape[1], len(word)
    if width is None:
        one_block = widths is None or len(widths) == 1
        # With several particles side by side, as few data have, groups of tokens would not be faster.
        width = group_width(document, word) if n_tokens > MANY_LATENTS and one_block else 1
    if width > 1:
        capacity = padded_topics(capacity)
    token = np.arange(n_tokens) if width == 1 else grouped(document, word, width).ravel()
    token = np.pad(token, (0, width * padded(-(-len(token) // width)) - len(token)), constant_values=-1)

    def placed(each: np.ndarray) -> Int[np.ndarray, " place"]:
        """Return the values of the tokens at their places, −1 at empty places."""
        return np.append(each, -1)[token].astype(np.int32)

    lengths = np.asarray(counts.sum(1), np.int64).ravel()
    padded_alpha = np.pad(np.asarray(alpha, np.float64), (0, capacity - n_topics))
    most_word = int(np.asarray(counts.sum(0)).max(initial=0))
    safe = np.where(padded_alpha > 0, padded_alpha, 1.0)[:, None]
    in_document = np.arange(padded(int(lengths.max(initial=0)) + 1))
    total = float(np.sum(alpha))
    width_of_block = np.asarray([n_words] if widths is None else widths, np.int64)
    block = np.repeat(np.arange(len(width_of_block)), width_of_block)
    most_block = int(np.bincount(block[word], minlength=1).max(initial=0))
    block_eta = width_of_block[:, None] * eta

    return CollapsedTopics(
        placed(document),
        placed(word),
        padded_alpha,
        np.asarray(eta, np.float64),
        np.asarray(n_words, np.float64),
        np.pad(block, (0, padded(n_words) - n_words)).astype(np.int32),
        width_of_block.astype(np.float64),
        gammaln(eta + np.arange(padded(most_word + 1))) - gammaln(eta),
        gammaln(block_eta) - gammaln(block_eta + np.arange(padded(most_block + 1))),
        np.where(padded_alpha[:, None] > 0, gammaln(safe + in_document) - gammaln(safe), 0.0),
        np.asarray((gammaln(total) - gammaln(total + lengths)).sum()),
        None if q is None else q.padded_to(capacity),
        np.asarray(0.0 if q is None or q.documents is None else q.log_normaliser(counts)),
        np.asarray(min(1.0, 10.0 * n_topics / max(n_tokens, 1))),
        padded(counts.shape[0]),
        padded(n_words),
        width,
    )
