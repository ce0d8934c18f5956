"""A path between LDA with K and with K + m topics, along which m topics are each split into two.

Let z be the topics of all tokens among K + m, of which m pairs are marked, and w the words. Let merge(z) be the same
with both topics of a pair taken as one. For token i of a pair let r_i(k) be given shares of its two topics, whose
sum is 1. Then

    π_0(z) = p(merge(z), w | K) Π_i r_i(z_i)          Σ_z π_0(z) = p(w | K), exactly
    π_1(z) = p(z, w | K + m)                          Σ_z π_1(z) = p(w | K + m)

So annealing from draws of π_0 to π_1 estimates p(w | K + m) / p(w | K), and back from draws of π_1 its reciprocal (the
idea of annealed reversible jump, Karagiannis & Andrieu 2013, used for evidence). Only the tokens of the pairs have a
choice on the way. The ends of the two directions are therefore tens of times nearer to each other than those of two
paths from the prior.

Let A be the total concentration of the proportions' prior. Topics outside the pairs differ between π_0 and π_1 in their
α alone: A/K in π_0, A/(K + m) in π_1. This is switched at once at the start: π_0' is π_0 with A/(K + m) for those
topics, and the path is π_t ∝ π_0'^(1−t) π_1^t. The log weight of the switch (`log_switch`) varies by a nat or so, and
topics outside the pairs need no power at any step.

With n the counts without token i, N those of merge(z), α₀ = A/K, α₁ = A/(K + m), V words and topic concentration η, the
conditional of z_i on the path is

    (n_dk + α₁) (n_kw + η) / (n_k + Vη)                                         for topics outside the pairs
    [(N_dk + α₀) (N_kw + η) / (N_k + Vη) r_i(k)]^(1−t) [(n_dk + α₁) (n_kw + η) / (n_k + Vη)]^t      for the others

The share r_i follows from the log odds of the second topic of a pair, which are a number of the document plus one of
the word (`document_odds`, `word_odds`).

This file has the path alone: its first states (`split`), its sweeps (`step`), its weights (`log_ratio`, `log_switch`).
`size_gain` makes what the path is given: it chooses the pairs, and `splits_between` there computes the log odds and the
topics for label scores from averages over a chain with K + m topics. `annealing.between_sizes` runs along the path.
Relabellings are corrected for at both ends, as on every path (`annealing.relabelling`).
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.particle_arrays import ParticleArrays
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.topic_state import TokenRule, TopicState, word_correction

LEAST_SHARE = 1e-4
"""The smallest share of a token for either topic of a pair, so that no token is lost to one of them for good."""


class TopicSplits(ParticleArrays):
    """The annealing path from K to K + m topics of one corpus. It is a `Chain` that starts at the posterior with K
    topics.

    The topics of the j-th of m pairs have numbers j and m + j; with K topics the second of them does not exist. At
    temperature 0 the path has the distribution π_0' (K topics, pairs divided at random), at 1 the posterior π_1 with K
    + m topics.

    | field | shape | meaning |
    |---|---|---|
    | `larger` | | the chain with K + m topics |
    | `smaller` | | the chain with K topics, on arrays of the same lengths |
    | `document_odds`, `word_odds` | (document, pair), (word, pair) | summands of the log odds of the second topic |
    | `log_topics` | (2, word, topic) | log topics for label scores, with K and with K + m topics |
    | `pairs` | | m, the number of pairs: the first 2m topics belong to pairs |
    """

    larger: CollapsedTopics
    smaller: CollapsedTopics
    document_odds: Float[Array | np.ndarray, "document pair"]
    word_odds: Float[Array | np.ndarray, "word pair"]
    log_topics: Float[Array | np.ndarray, "two word topic"]
    pairs: int = eqx.field(static=True)

    directed: ClassVar[bool] = False
    """False: paths in both directions sweep in the same order, so that they share a compiled program.

    The weights of a path are right for any sweep that leaves its distributions unchanged (Neal 2001).
    """

    @property
    def elements(self) -> int:
        """The number of array slots for tokens, which is roughly the cost of a sweep."""
        return self.larger.elements

    @property
    def efficient_particles(self) -> int:
        """The number of particles that run side by side cheaply: up to it, twice as many take less than twice as
        long.
        """
        return self.larger.efficient_particles

    def init(self, key: Key[Array, ""], particles: int) -> TopicState:
        """Raise TypeError: the path starts at draws of the posterior with K topics, from which `split` makes its first
        states.
        """
        raise TypeError(
            "a path between two sizes begins with draws of the smaller one's posterior: use split(key, state)"
        )

    def split(self, key: Key[Array, ""], state: TopicState) -> TopicState:
        """Draw the path's first states from draws of the posterior with K topics: tokens of each pair are divided at
        random.

        state: draws of the posterior with K topics; the second topic of every pair is empty.
        """
        topic = jnp.maximum(state.assignment, 0)
        second = topic + self.pairs
        divided = (state.assignment >= 0) & (topic < self.pairs)
        moves = jax.random.uniform(key, topic.shape, jnp.float32) < jnp.exp(self._log_shares(second))
        return self.larger.state_of_topics(jnp.where(divided & moves, second, state.assignment))

    def merge(self, state: TopicState) -> TopicState:
        """Return the state with K topics, in which the first topic of each pair has all tokens of the pair."""
        topic = jnp.maximum(state.assignment, 0)
        is_second = (topic >= self.pairs) & (topic < 2 * self.pairs)
        merged = jnp.where(is_second, topic - self.pairs, state.assignment)
        return self.smaller.state_of_topics(merged)

    def step(
        self, key: Key[Array, ""], state: TopicState, temperature: Float[Array, ""], *, backward: bool
    ) -> TopicState:
        """Draw every token's topic in turn given all others, and return the new state.

        temperature: the position on the path, from 0 (K topics) to 1 (K + m topics).
        backward: not used, since the path is not `directed`.
        """
        del backward
        rule = partial(self._rule, temperature.astype(jnp.float32))
        return self.larger.redraw_all(key, state, False, rule, None)

    def log_ratio(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log π_1(z) − log π_0'(z) of each particle, (particle,), in nats: the density at the path's end over
        its start.

        Topics outside the pairs contribute equally to both and cancel.
        """
        topic = jnp.maximum(state.assignment, 0)
        divided = (state.assignment >= 0) & (topic < 2 * self.pairs)
        exact = jnp.result_type(float)
        log_shares = jnp.where(divided, self._log_shares(topic), 0.0).astype(exact).sum(0)
        counts = (state.document_topic, state.word_topic, state.topic_total)
        first, second = zip(*(_pairs(each, self.pairs) for each in counts), strict=True)
        together = [_pair_sums(each, self.pairs) for each in counts]
        # terms of both topics of each pair at the larger size, minus those of the merged topic at the smaller size
        apart = self._log_topics(self.larger, 0, *first) + self._log_topics(self.larger, 1, *second)
        return apart - self._log_topics(self.smaller, 0, *together) - log_shares

    def log_switch(self, state: TopicState) -> Float[Array, " particle"]:
        """Return the log weight of the path's first step, log π_0'(z) − log π_0(z), (particle,), in nats.

        In this step the concentration α of the topics outside the pairs changes from A/K to A/(K + m), where A is their
        total.
        """
        topic = jnp.arange(len(self.larger.alpha))[:, None]
        counts = state.document_topic.astype(jnp.int32)
        after, before = (jnp.asarray(each.log_gamma_document)[topic, counts] for each in (self.larger, self.smaller))
        return jnp.where(topic >= 2 * self.pairs, after - before, 0.0).sum((0, 1))

    def log_density(self, state: TopicState) -> Float[Array, " particle"]:
        """Return log p(words, tokens' topics | K + m topics) of each particle, (particle,), in nats."""
        return self.larger.log_density(state)

    def label_scores(self, state: TopicState) -> Float[Array, "particle topic topic"]:
        """Return the scores by which `relabelling` draws how the K + m topics are named, (particle, topic, topic), in
        nats.
        """
        return self._scores(self.log_topics[1], state, self.larger)

    def smaller_label_scores(self, state: TopicState) -> Float[Array, "particle topic topic"]:
        """Return the scores by which `relabelling` draws how the K merged topics are named, (particle, topic, topic),
        in nats.
        """
        return self._scores(self.log_topics[0], self._merged_counts(state), self.smaller)

    def relabel(self, state: TopicState, order: Int[Array, "particle topic"]) -> TopicState:
        """Return the state in which topic l of each particle is called order[l]."""
        return self.larger.relabel(state, order)

    # ── inner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _scores(self, log_topics: Array, state: TopicState, chain: CollapsedTopics) -> Array:
        """Return label scores S[k, l]: `sharpness` times the sum over the tokens in topic l of log p(word | topic k),
        in nats.

        It is −∞ between topics that exist and array slots without a topic, and between topics with seeds and others.

        log_topics: log p(word | topic), (word, topic).
        """
        scores = chain.sharpness * jnp.einsum("wk,wlp->pkl", jnp.asarray(log_topics), state.word_topic)
        free = chain.exchangeable
        both = free[:, None] & free
        return jnp.where(both, scores, jnp.where(jnp.eye(len(free), dtype=bool), 0.0, -jnp.inf))

    def _log_topics(
        self, chain: CollapsedTopics, place: int, in_document: Array, with_word: Array, total: Array
    ) -> Float[Array, " particle"]:
        """Return what one topic of each pair contributes to the log joint density of a chain, (particle,), in nats.

        place: 0 for the first topics of the pairs, 1 for the second.
        in_document, with_word, total: counts of these topics, (document, pair, particle), (word, …) and (1, …).
        """
        in_document, with_word, total = (each.astype(jnp.int32) for each in (in_document, with_word, total))
        topic = place * self.pairs + jnp.arange(self.pairs)[:, None]
        documents = jnp.asarray(chain.log_gamma_document)[topic, in_document].sum((0, 1))
        words = jnp.asarray(chain.log_gamma_word)[with_word].sum((0, 1))
        return documents + words + jnp.asarray(chain.log_gamma_topic)[0, total].sum((0, 1))

    def _log_shares(self, topic: Int[Array, "token particle"]) -> Float[Array, "token particle"]:
        """Return the log of the share of each token for its topic, log r_i(k), for topics that belong to pairs.

        topic: a topic for each token.
        """
        document, word = (
            jnp.maximum(jnp.asarray(each), 0)[:, None] for each in (self.larger.document, self.larger.word)
        )
        pair = jnp.minimum(topic, 2 * self.pairs - 1) % self.pairs
        odds = jnp.asarray(self.document_odds)[document, pair] + jnp.asarray(self.word_odds)[word, pair]
        second = _clipped_share(jax.nn.sigmoid(odds))
        return jnp.log(jnp.where(topic >= self.pairs, second, 1 - second))

    def _with_partner(self, counts: Array) -> Array:
        """Return counts in which both topics of each pair have the counts of the pair together, (…, topic, particle).

        counts: counts of each topic, (…, topic, particle).
        """
        both = _pair_sums(counts, self.pairs)
        return jnp.concatenate([both, both, counts[..., 2 * self.pairs :, :]], axis=-2)

    def _merged_counts(self, state: TopicState) -> TopicState:
        """Return the state whose counts are those with both topics of each pair merged.

        The assignment is left unchanged, and is not used.
        """
        exists = jnp.asarray(self.smaller.alpha)[:, None] > 0
        counts = [jnp.where(exists, self._with_partner(each), 0.0) for each in state[1:]]
        return TopicState(state.assignment, *counts)

    def _rule(self, t: Float[Array, ""], of_particles: None) -> TokenRule:
        """Return how the topic of one token is drawn given all others.

        t: the position on the path, from 0 (K topics) to 1 (K + m topics). of_particles: not used.
        """
        eta, vocabulary = (jnp.asarray(each, jnp.float32) for each in (self.larger.eta, self.larger.vocabulary))
        split_alpha = jnp.asarray(self.larger.alpha, jnp.float32)[:, None]
        merged_alpha = jnp.asarray(self.smaller.alpha, jnp.float32)[: self.pairs, None]
        merged_alpha = jnp.concatenate([merged_alpha, merged_alpha])
        # odds, not their logs: the share of a token then needs no exponential
        odds = [jnp.exp(jnp.concatenate([-each, each], axis=1)) for each in (self.document_odds, self.word_odds)]
        base = vocabulary * eta
        # Powers in π_t: t for topics of pairs, 1 for topics outside the pairs, 1 − t for merged topics.
        powers = jnp.concatenate(
            [
                jnp.where(jnp.arange(len(self.larger.alpha)) < 2 * self.pairs, t, 1.0),
                jnp.broadcast_to(1 - t, (self.pairs,)),
            ]
        )

        def weights(of_document: Array, of_word: Array, in_document: Array, with_word: Array, total: Array) -> Array:
            weight = (in_document + split_alpha) * (with_word + eta) / (total + base)
            weight = jnp.where(split_alpha > 0, weight, 0.0)

            def on_the_path() -> Array:
                # One array over both topics of all pairs: XLA would compute two arrays again for each use.
                merged = [
                    self._with_partner(each)[..., : 2 * self.pairs, :] for each in (in_document, with_word, total)
                ]
                together = (merged[0] + merged_alpha) * (merged[1] + eta) / (merged[2] + base)
                ratio = odds[0][of_document] * odds[1][of_word]
                start = together * _clipped_share(ratio / (1 + ratio))[..., None]
                drawn = start * jnp.exp(t * jnp.log(weight[..., : 2 * self.pairs, :] / start))
                return jnp.concatenate([drawn, weight[..., 2 * self.pairs :, :]], axis=-2)

            # A branch, because its result is stored: XLA would compute the powers again for each use of a weight.
            return jax.lax.cond(t < 1, on_the_path, lambda: weight)

        def log_acceptance(total: Array, coming: Array, leaving: Array) -> Array:
            both = (jnp.concatenate([each, _pair_sums(each, self.pairs)]) for each in (total, coming, leaving))
            counts, come, left = both
            return (powers[:, None] * self.larger.corrections(counts, come, left)).sum(0)

        def log_word(topic: Array, cell: Callable[[Array], tuple[Array, Array]]) -> Array:
            topic = jnp.maximum(topic, 0)
            of_pair = topic < 2 * self.pairs
            partner = jnp.where(of_pair, (topic + self.pairs) % (2 * self.pairs), topic)
            (outside, inside), (others_outside, others_inside) = cell(topic), cell(partner)
            of_merged = word_correction(outside + others_outside, inside + others_inside, eta)
            own = powers[topic] * word_correction(outside, inside, eta)
            return own + jnp.where(of_pair, (1 - t) * of_merged, 0.0)

        return TokenRule(weights, log_acceptance, log_word)


def _pairs(counts: Array, pairs: int) -> tuple[Array, Array]:
    """Return (counts of the first topics of all pairs, counts of the second), each (…, pair, particle).

    counts: (…, topic, particle).
    pairs: the number of pairs, m; their topics are the first 2m.
    """
    return counts[..., :pairs, :], counts[..., pairs : 2 * pairs, :]


def _pair_sums(counts: Array, pairs: int) -> Array:
    """Return the counts of both topics of each pair together, (…, pair, particle).

    counts: (…, topic, particle).
    pairs: the number of pairs, m; their topics are the first 2m.
    """
    first, second = _pairs(counts, pairs)
    return first + second


def _clipped_share(share: Array) -> Array:
    """Return the share of a topic of a pair, clipped to [`LEAST_SHARE`, 1 − `LEAST_SHARE`]."""
    return jnp.clip(share, LEAST_SHARE, 1 - LEAST_SHARE)
