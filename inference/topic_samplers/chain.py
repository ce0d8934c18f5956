"""LDA with proportions and topics integrated out, annealed from the prior, from given topics, or from a fit.

The state is a topic for every token. Let n be counts without token i: n_dk of topic k in its document, n_kw of its word
in topic k, and n_k of all tokens in topic k. With V words and concentrations α and η of the proportions' and topics'
priors (Griffiths & Steyvers 2004; Blei 2004, §3.7),

    p(z_i = k | z_¬i, w) ∝ (n_dk + α_k) (n_kw + η) / (n_k + Vη)

and the conditional on the path π_t ∝ q^(1−t) p^t, from q at t = 0 to the posterior p at t = 1, is

    (n_dk + α_k) · [(n_kw + η) / (n_k + Vη)]^t                  q = p(z | α):              log p/q = log p(w | z, η)
    (n_dk + α_k) · φ_kw^(1−t) · [(n_kw + η) / (n_k + Vη)]^t     q = p(z | w, φ, α):   − Σ log φ_zw + log p(w | φ, α)
    q_i(k)^(1−t) · [(n_dk + α_k) (n_kw + η) / (n_k + Vη)]^t     q = Π_i q_i(z_i):     + log p(z | α) − Σ log q_i(z_i)

with q_i(k) ∝ θ̂_dk φ_kw. There are three beginnings q:

- The prior is symmetric in the topics, and uses no knowledge of the data.
- Given topics φ, in which another path ended, make the shortest path. Documents are independent under q, whose evidence
  log p(w | φ, α) is a sum over documents, and the path has only to free the topics.
- With a fit's responsibilities q_i all tokens are free at first, so that a poor fit is corrected on the way.

The last two begin with one labelling (`relabelling`).

Topics with seeds have imaginary tokens, whose topics are known. They are in n_kw and n_k from the beginning, and
log p(w | z, η) is that of all tokens minus that of the imaginary ones. These topics keep their places; only the free
topics are relabelled.

The vocabulary may be divided into blocks, in each of which a topic is a distribution of its own (the alleles of loci,
`paths`). Then n_k is the count of the word's block, and V its number of words.

Tokens are visited one after another, each seeing the new topics of all before it. In large corpora they are drawn in
groups that share neither a document nor a word (`topic_state`). log Γ is read from tables, because
counts are whole numbers; float64 costs nothing that way. A path without powers, through posteriors with a larger η,
would be cheaper. But if topics are strong its ends were much farther apart at as many sweeps.
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
from lvsearch.inference.annealing.particle_arrays import ParticleArrays
from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.topic_samplers.topic_state import (
    OWN,
    Concentrations,
    GivenFactors,
    GroupUniforms,
    SeedTokens,
    TokenGroup,
    TokenPlace,
    TokenRule,
    TopicState,
    group_width,
    leaders_of_words,
    padded,
    redraw_group,
    redraw_token,
    small_groups,
    total_corrections,
    wide_groups,
    word_correction,
)

MOST_FROM_PRIOR = 20_000
"""The number of tokens up to which paths begin in the prior, which needs no knowledge of labellings or modes."""
SETTLING = 20
"""The number of sweeps after which documents under given topics count as drawn from their posterior."""
LANES, FEWEST_LANES, MOST_LANES = 2048, 32, 128
"""Numbers in a step's vectors up to which its time is mostly start-up time, and bounds on the particles that use this.

With 16 topics, 32, 64, 128 and 256 particles take 2.9, 3.4, 5.6 and 10.7 microseconds per token on one core.
"""


class CollapsedTopics(ParticleArrays):
    """The collapsed annealing chain of LDA on one corpus at one number of topics; it satisfies `Chain`.

    | field | shape | meaning |
    |---|---|---|
    | `document`, `word` | (token,) | document and word of each token, in groups of `width`; −1 at empty places |
    | `alpha` | (topic,) | α, the proportions' concentration on each topic; 0 for topics that do not exist |
    | `eta`, `vocabulary` | () | η, the concentration of the topics' prior; the number of words |
    | `block`, `widths` | (word,), (block,) | the block of each word; the number of words V of each block |
    | `log_gamma_word` | (count,) | log Γ(η + n) − log Γ(η) |
    | `log_gamma_topic` | (block, count) | log Γ(Vη) − log Γ(Vη + n) |
    | `log_gamma_document` | (topic, count) | log Γ(α_k + n) − log Γ(α_k) |
    | `log_proportions` | () | Σ_d log Γ(A) − log Γ(A + N_d), A = Σ_k α_k, N_d the tokens of document d |
    | `q` | `GivenFactors` or None | the log factors of the distribution at the start; None: it is the prior |
    | `log_start` | () | the log normaliser of these factors, nats; 0 for the prior |
    | `sharpness` | () | the power of q's factors in `label_scores` |
    | `leader` | (token,) | in wide groups, the place in its group of the first token with the same word; else None |
    | `seeds` | `SeedTokens` or None | the imaginary tokens of topics with seeds; None: all topics are free |
    | `width` | | number of tokens drawn together, none two of one document; 1: one by one |

    Unless groups are wide, the tokens of a group share no word either.
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
    leader: Int[np.ndarray, " token"] | None
    seeds: SeedTokens | None
    n_documents: int = eqx.field(static=True)
    n_words: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    @property
    def independent(self) -> bool:
        """True if the path starts at q = Π_i q_i(z_i), under which the tokens of a document do not depend on each
        other.
        """
        return self.q is not None and self.q.documents is not None

    @property
    def elements(self) -> int:
        """The number of array slots for tokens, which is roughly the cost of a sweep."""
        return len(self.word)

    def init(self, key: Key[Array, ""], particles: int) -> TopicState:
        """Draw independent particles from q, the distribution at the start of the path, token after token.

        If q has given topics, `SETTLING` sweeps of each document follow.
        """
        return self.draw_particles(key, particles)

    def draw_particles(self, key: Key[Array, ""], particles: int, concentrations: Concentrations = OWN) -> TopicState:
        """Draw independent particles from q, the distribution at the start of the path, each under its own
        hyper-parameters.

        concentrations: α and η of each particle, if they are not the chain's own.
        """
        key_first, key_sweeps = jax.random.split(key)
        start, empty = jnp.zeros(()), self._state(jnp.full((len(self.word), particles), -1, jnp.int32))
        state = self.sweep(key_first, empty, start, False, concentrations)
        if self.q is None or self.independent:
            return state

        def sweep(index: Array, state: TopicState) -> TopicState:
            return self.sweep(jax.random.fold_in(key_sweeps, index), state, start, False, concentrations)

        return jax.lax.fori_loop(0, SETTLING, sweep, state)

    @property
    def efficient_particles(self) -> int:
        """The number of particles that run side by side cheaply: up to it, twice as many take less than twice as
        long.
        """
        return int(np.clip(LANES // len(self.alpha), FEWEST_LANES, MOST_LANES))

    def step(
        self, key: Key[Array, ""], state: TopicState, temperature: Float[Array, ""], *, backward: bool
    ) -> TopicState:
        """Make one sweep over all tokens in order, or in reverse order if `backward`, and return the new state.

        temperature: the position on the path, from 0 (q) to 1 (the posterior).
        """
        return self.sweep(key, state, temperature, backward)

    def log_ratio(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(state, data) − log q(state) of each particle, (particle,), in nats.

        Its average exponential under q is the evidence.
        """
        log_words = self.log_words(state)
        if self.q is None:
            return log_words
        ratio = log_words - self.log_chosen(state) + jnp.asarray(self.log_start, log_words.dtype)
        return ratio + self.log_documents(state) if self.independent else ratio

    def log_chosen(self, state: TopicState) -> Float[Array, " particle"]:
        """Return the sum over the tokens of the log factors of q at their topics, (particle,), nats; for a q that has
        factors.
        """
        exact = jnp.result_type(float)
        total = jnp.zeros(state.assignment.shape[1], exact)
        for factor, counts in self._factors_and_counts(state):
            total = total + jnp.einsum("ik,ikp->p", factor.astype(exact), counts.astype(exact))
        return total

    def log_density(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(w, z | α, η) of each particle, (particle,), in nats: words w and topics z of all tokens."""
        return self.log_words(state) + self.log_documents(state)

    def topic_means(self, state: TopicState) -> Float[Array, "word topic particle"]:
        """Return the posterior means of the topics' distributions over words given the tokens' topics, (word, topic,
        particle).

        They are (n_kw + η) / (n_k + Vη), from counts of words in topics, imaginary tokens included.
        """
        eta = jnp.asarray(self.eta, jnp.float32)
        base = state.topic_total + eta * jnp.asarray(self.widths, jnp.float32)[:, None, None]
        return (state.word_topic + eta) / base[jnp.asarray(self.block)]

    def log_hyper(self, state: TopicState) -> tuple[None, None]:
        """Return (None, None): the log hyper-parameters that vary between particles, of which this chain has none."""
        return None, None

    def label_scores(self, state: TopicState) -> Float[Array, "particle topic topic"] | None:
        """Return scores S, (particle, topic, topic), nats, by which `relabelling` draws how topics are named; None
        without factors.

        S[k, l] is `sharpness` times the sum over the tokens in topic l of the log factor that q has for topic k. If q
        is the prior, topics need no names, and the result is None. A topic with seeds has −∞ off the diagonal.
        """
        if self.q is None:
            return None
        scores = sum(jnp.einsum("ik,ilp->pkl", factor, counts) for factor, counts in self._factors_and_counts(state))
        scores = self.sharpness * scores
        both = self.exchangeable[:, None] & self.exchangeable
        return jnp.where(both, scores, jnp.where(jnp.eye(len(self.alpha), dtype=bool), 0.0, -jnp.inf))

    def relabel(self, state: TopicState, order: Int[Array, "particle topic"]) -> TopicState:
        """Return the state in which topic l of each particle is called order[l]."""
        named = jnp.take_along_axis(order.T, jnp.maximum(state.assignment, 0), axis=0)
        return self._state(jnp.where(state.assignment >= 0, named, -1).astype(jnp.int32))

    def words_of_documents(self) -> Int[np.ndarray, "document token"]:
        """Return the word of each token of each document, (document, token), −1 for padding."""
        real = np.flatnonzero(self.word >= 0)
        real = real[np.argsort(self.document[real], kind="stable")]
        document = self.document[real]
        place = np.arange(len(document)) - np.searchsorted(document, document)
        words = np.full((self.n_documents, padded(int(place.max(initial=0)) + 1)), -1, np.int32)
        words[document, place] = self.word[real]
        return words

    def state_of_topics(self, assignment: Int[Array, "token particle"]) -> TopicState:
        """Return the state in which the tokens have the given topics (−1 for padding), with the counts that follow."""
        return self._state(assignment)

    @property
    def exchangeable(self) -> Bool[Array, " topic"]:
        """Return True for each topic that exists and has no seeds, so that it may be relabelled, (topic,)."""
        if self.seeds is None:
            return self._exists
        return self._exists & (jnp.asarray(self.seeds.words).sum(0) == 0)

    # ── one sweep ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _exists(self) -> Bool[Array, " topic"]:
        """Return True for each topic that exists, (topic,)."""
        return jnp.asarray(self.alpha) > 0

    @property
    def _real(self) -> Bool[Array, " token"]:
        """Return True for each array slot that holds a token, (token,)."""
        return jnp.asarray(self.word) >= 0

    def _factors_and_counts(self, state: TopicState) -> list[tuple[Array, Array]]:
        """Return pairs of each log factor of q and the counts that it is multiplied by, (row, topic) and (row, topic,
        particle).
        """
        if self.q is None:
            return []
        own = [] if self.q.documents is None else [(jnp.asarray(self.q.documents), state.document_topic)]
        of_words = state.word_topic
        if self.seeds is not None:  # q is a distribution of the tokens alone
            of_words = of_words - jnp.asarray(self.seeds.words, of_words.dtype)[..., None]
        return [*own, (jnp.asarray(self.q.words), of_words)]

    def _state(self, assignment: Int[Array, "token particle"]) -> TopicState:
        """Return the state in which tokens have the given topics (−1 for none), with the counts that follow."""
        topic, particle = jnp.maximum(assignment, 0), jnp.arange(assignment.shape[1])
        real = (assignment >= 0).astype(jnp.float32)

        def counts(rows: Any, length: int) -> Array:
            """Count tokens by (row, topic, particle), where `rows` is the document or word of each token."""
            zeros = jnp.zeros((length, len(self.alpha), assignment.shape[1]), jnp.float32)
            return zeros.at[jnp.maximum(jnp.asarray(rows), 0)[:, None], topic, particle].add(real)

        word_topic = counts(self.word, self.n_words)
        if self.seeds is not None:
            word_topic = word_topic + jnp.asarray(self.seeds.words, word_topic.dtype)[..., None]
        blank = jnp.zeros((len(self.widths), *word_topic.shape[1:]), jnp.float32)
        totals = blank.at[jnp.asarray(self.block)].add(word_topic)
        return TopicState(assignment, counts(self.document, self.n_documents), word_topic, totals)

    def sweep(
        self,
        key: Key[Array, ""],
        state: TopicState,
        temperature: Float[Array, ""],
        backward: bool,
        concentrations: Concentrations = OWN,
    ) -> TopicState:
        """Draw the topic of every token once given all others, in order, and return the new state.

        Tokens without a topic (−1) get one and are added to the counts. If particles have an α of their own and q has
        given topics under the chain's own α₀, the document's factor is (n_dk + α₀)^(1−t) (n_dk + α)^t.

        temperature: the position t on the path, from 0 (q) to 1 (the posterior).
        backward: True to visit the last token first.
        concentrations: hyper-parameters of each particle, if they are not the chain's own.
        """
        t = temperature.astype(jnp.float32)
        return self.redraw_all(key, state, backward, partial(self._rule, t), concentrations)

    def sweep_posterior(self, key: Key[Array, ""], state: TopicState) -> TopicState:
        """Draw every token's topic given all others under the posterior, and return the new state.

        This is `step` at temperature 1, but faster, since no powers are computed.
        """
        return self.redraw_all(key, state, False, lambda _: self.posterior_rule(), None)

    def posterior_rule(self) -> TokenRule:
        """Return how the topic of a token is drawn under the posterior, without powers."""
        alpha = jnp.asarray(self.alpha, jnp.float32)[:, None]
        eta, widths = (jnp.asarray(each, jnp.float32) for each in (self.eta, self.widths))
        block = jnp.asarray(self.block)

        def weights(of_document: Array, of_word: Array, in_document: Array, with_word: Array, total: Array) -> Array:
            base = total + eta * widths[block[of_word]][..., None, None]
            return jnp.where(alpha > 0, (in_document + alpha) * (with_word + eta) / base, 0.0)

        def log_acceptance(total: Array, coming: Array, leaving: Array) -> Array:
            return self.corrections(total, coming, leaving).sum(0)

        def log_word(topic: Array, cell: Callable[[Array], tuple[Array, Array]]) -> Array:
            return word_correction(*cell(topic), eta)

        return TokenRule(weights, log_acceptance, log_word)

    def corrections(
        self,
        total: Float[Array, "topic particle"],
        coming: Float[Array, "topic particle"],
        leaving: Float[Array, "topic particle"],
    ) -> Float[Array, "topic particle"]:
        """Return `total_corrections` under the chain's own η, with log Γ from a table, (topic, particle), nats.

        total: tokens in each topic without the group, whole numbers.
        coming, leaving: how many tokens of the group are proposed for each topic, and are now in it.
        """
        table = jnp.asarray(self.log_gamma_topic)[0].astype(total.dtype)  # minus log Γ, but for a constant
        joined, left = (
            table.at[(total + each).astype(jnp.int32)].get(mode="promise_in_bounds") for each in (coming, leaving)
        )
        base = total + jnp.asarray(self.eta * self.widths[0], total.dtype)
        return (coming - leaving) * jnp.log(base) + joined - left

    def redraw_all(
        self,
        key: Key[Array, ""],
        state: TopicState,
        backward: bool,
        rule_for: Callable[[Any], TokenRule],
        of_particles: Any,
    ) -> TopicState:
        """Draw the topic of every token once, in order, or in reverse order if `backward`, and return the new state.

        Tokens without a topic (−1) get one and are added to the counts.

        rule_for: values of particles -> how a token is drawn.
        of_particles: values of each particle for `rule_for`, a pytree with last axis (particle,), or without leaves.
        """
        document, word, block = (jnp.maximum(jnp.asarray(leaf), 0) for leaf in (self.document, self.word, self.block))
        rule = rule_for(of_particles)
        n_tokens, particles = state.assignment.shape
        # one number for each token, one for the acceptance of each group, and in wide groups one for that of each word
        n_groups = 0 if self.width == 1 else n_tokens // self.width
        n_of_words = 0 if self.leader is None else n_tokens
        uniforms = jax.random.uniform(key, (n_tokens + n_groups + n_of_words, particles), jnp.float32)

        def one_token(position: Array, state: TopicState) -> TopicState:
            token = n_real - 1 - position if backward else position
            at = TokenPlace(token, document[token], word[token], block[word[token]])
            return redraw_token(state, at, partial(rule.weights, at.document, at.word), uniforms[token])[0]

        def one_group(position: Array, now: TopicState) -> TopicState:
            group = n_real_groups - 1 - position if backward else position
            cut = partial(jax.lax.dynamic_slice_in_dim, start_index=group * self.width, slice_size=self.width)
            of_words = None if self.leader is None else cut(uniforms[n_tokens + n_groups :])
            numbers = GroupUniforms(cut(uniforms), uniforms[n_tokens + group], of_words)
            return redraw_group(now, state.assignment, self.group_at(group), rule, numbers)

        # tokens one by one, or groups of one particle; several particles of groups take turns, unless groups are wide
        if self.width == 1:
            n_real = self._real.sum()
            return jax.lax.fori_loop(0, n_real, one_token, state)
        if particles > 1 and self.leader is None:
            return self._one_by_one(key, state, backward, rule_for, of_particles)
        n_real_groups = self._real.reshape(-1, self.width).any(1).sum()
        return jax.lax.fori_loop(0, n_real_groups, one_group, state)

    def group_at(self, group: int | Int[Array, ""]) -> TokenGroup:
        """Return the tokens of one group, by its number."""
        cut = partial(jax.lax.dynamic_slice_in_dim, start_index=group * self.width, slice_size=self.width)
        document, word = (jnp.maximum(cut(jnp.asarray(leaf)), 0) for leaf in (self.document, self.word))
        leader = None if self.leader is None else cut(jnp.asarray(self.leader))
        return TokenGroup(jnp.asarray(group * self.width), document, word, cut(self._real), leader)

    def _one_by_one(
        self, key: Array, state: TopicState, backward: bool, rule_for: Callable[[Any], TokenRule], of_particles: Any
    ) -> TopicState:
        """Sweep the particles one after another (arguments as in `redraw_all`), and return the new state.

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
        """Return how the topic of one token is drawn given all others.

        t: the position on the path, from 0 (q) to 1 (the posterior).
        concentrations: hyper-parameters of each particle, if they are not the chain's own.
        """
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

        def log_word(topic: Array, cell: Callable[[Array], tuple[Array, Array]]) -> Array:
            return t * word_correction(*cell(topic), eta)

        return TokenRule(weights, log_acceptance, log_word)

    # ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────

    def log_words(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(words | topics of all tokens, η) of each particle, (particle,), in nats.

        It is Σ_k [log Γ(Vη) − log Γ(Vη + n_k) + Σ_w log Γ(η + n_kw) − log Γ(η)], with counts n and V words. With seeds,
        the same of their imaginary tokens is subtracted.
        """
        of_words = jnp.asarray(self.log_gamma_word)[state.word_topic.astype(jnp.int32)].sum((0, 1))
        block = jnp.arange(len(self.widths))[:, None, None]
        of_topics = jnp.asarray(self.log_gamma_topic)[block, state.topic_total.astype(jnp.int32)].sum((0, 1))
        found = of_words + of_topics
        return found if self.seeds is None else found - jnp.asarray(self.seeds.log_words, found.dtype)

    def log_documents(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(topics of all tokens | α) of each particle, (particle,), in nats.

        It is Σ_d [log Γ(A) − log Γ(A + N_d) + Σ_k log Γ(α_k + n_dk) − log Γ(α_k)], with A = Σ_k α_k and N_d tokens in
        document d.
        """
        topic = jnp.arange(len(self.alpha))[:, None]
        table = jnp.asarray(self.log_gamma_document)
        return table[topic, state.document_topic.astype(jnp.int32)].sum((0, 1)) + self.log_proportions


def padded_topics(capacity: int) -> int:
    """Return the length of arrays over topics if tokens are drawn in groups: a power of two up to 128, else a multiple
    of 64.

    capacity: the least length.
    """
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
    wide: bool = False,
    seeds: Float[np.ndarray, "seeded word"] | None = None,
) -> CollapsedTopics:
    """Return the collapsed annealing chain of a corpus.

    counts: word counts, (document, word), whole numbers.
    alpha: α, the proportions' concentration on each topic, (topic,).
    eta: η, the concentration of the topics' prior.
    capacity: the least length of arrays over topics.
    q: log factors (document, topic) and (word, topic) of the distribution at the start; None: the path starts at the
        prior. If its `documents` is None, the start is p(topics of tokens | words, φ, α) at given topics φ. Its log
        normaliser log p(words | φ, α) is then left at 0, and `anchor.from_topics` puts an estimate in its place.
    widths: number of words in each block of the vocabulary, one block after another; None for a single block.
    width: number of tokens per group; None chooses it, and 1 draws tokens one by one.
    wide: whether groups are wide (`topic_state.wide_groups`), which suits accelerators. Then `width` is not used.
    seeds: imaginary tokens of each word in each of some topics, the first ones, (topic, word), in one block of the
        vocabulary; None if all topics are free.

    Raises ValueError for counts that are not whole, for wide groups of several blocks, and for more topics with seeds
    than topics.
    """
    if seeds is not None and len(seeds) > len(alpha):
        raise ValueError(f"got {len(alpha)} topics, expected at least {len(seeds)}: so many have seeds")
    if wide and widths is not None and len(widths) > 1:
        raise ValueError(f"got wide groups and {len(widths)} blocks of the vocabulary, expected one block")
    if np.any(counts.data % 1):
        raise ValueError("got counts that are not whole numbers; expected raw word counts, of which each is a token")
    copies = np.asarray(counts.data, np.int64)
    document = np.repeat(row_of_each_nonzero(counts), copies)
    word = np.repeat(counts.indices, copies)
    n_topics, n_words, n_tokens = len(alpha), counts.shape[1], len(word)
    if wide:
        groups = wide_groups(document)
    else:
        one_block = widths is None or len(widths) == 1
        groups = _groups_or_single_tokens(document, word, width, n_tokens > MANY_LATENTS and one_block)
    n_together = groups.shape[1]
    if n_together > 1:
        capacity = padded_topics(capacity)
    more = padded(len(groups)) - len(groups)
    token = np.pad(groups, ((0, more), (0, 0)), constant_values=-1).ravel()

    def at_places(each: np.ndarray) -> Int[np.ndarray, " place"]:
        """Return the values of the tokens at their array slots, −1 at empty slots."""
        return np.append(each, -1)[token].astype(np.int32)

    leader = leaders_of_words(at_places(word).reshape(-1, n_together)).ravel() if wide and n_together > 1 else None
    lengths = np.asarray(counts.sum(1), np.int64).ravel()
    padded_alpha = np.pad(np.asarray(alpha, np.float64), (0, capacity - n_topics))
    # tables reach as far as counts of tokens may, imaginary ones included
    of_words, of_topic = np.asarray(counts.sum(0)), 0
    if seeds is not None:
        of_words, of_topic = of_words + seeds.max(0), int(seeds.sum(1).max())
    most_word = int(of_words.max(initial=0))
    safe = np.where(padded_alpha > 0, padded_alpha, 1.0)[:, None]
    in_document = np.arange(padded(int(lengths.max(initial=0)) + 1))
    total = float(np.sum(alpha))
    width_of_block = np.asarray([n_words] if widths is None else widths, np.int64)
    block = np.repeat(np.arange(len(width_of_block)), width_of_block)
    most_block = int(np.bincount(block[word], minlength=1).max(initial=0)) + of_topic
    block_eta = width_of_block[:, None] * eta
    seed_tokens = None
    if seeds is not None:
        padded_seeds = np.pad(seeds.T, ((0, padded(n_words) - n_words), (0, capacity - len(seeds)))).astype(np.float32)
        log_words = (gammaln(eta + seeds) - gammaln(eta)).sum()
        log_words += (gammaln(block_eta) - gammaln(block_eta + seeds.sum(1))).sum()
        seed_tokens = SeedTokens(padded_seeds, np.asarray(log_words))

    return CollapsedTopics(
        at_places(document),
        at_places(word),
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
        leader,
        seed_tokens,
        padded(counts.shape[0]),
        padded(n_words),
        n_together,
    )


def _groups_or_single_tokens(
    document: Int[np.ndarray, " token"], word: Int[np.ndarray, " token"], width: int | None, in_groups: bool
) -> Int[np.ndarray, "group place"]:
    """Return the tokens in groups that share neither document nor word, or each by itself.

    width: number of tokens per group; None chooses it if tokens are drawn `in_groups`, and 1 has each by itself.
    in_groups: with several particles side by side, as few data have, groups of tokens would not be faster.
    """
    if width is None:
        width = group_width(document, word) if in_groups else 1
    return np.arange(len(word))[:, None] if width == 1 else small_groups(document, word, width)
