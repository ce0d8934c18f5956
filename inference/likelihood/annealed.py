"""Annealed importance sampling with resampling (ais), from a mean-field guess to the posterior of the topics.

A document's tokens l have words j_l and topics k_l. β_kj is the probability of word j in topic k, and α are the
Dirichlet parameters of the document's topic proportions. There are L tokens. The proportions are integrated out, and

  p(j, k | α, β) = p(k | α) Π_l β_{k_l, j_l},   p(k | α) = Π_t (α_t)_{C_t} / (Σα)_L,   C_t = tokens of topic t   (1)

with (a)_n the rising factorial. Particles start as independent draws of q(k) = Π_l q_l(k_l) and follow the path

  π_s(k) ∝ q(k)^{1−s} p(j, k)^s,   s from 0 to 1 in equal steps                                                (2)

Before each step a particle's weight is multiplied by (p(j, k)/q(k))^{Δs}. After it come three moves that leave π_s
invariant. The mean weight estimates p(j | α, β) without bias, for any number of steps and however slowly the moves mix
(Neal 2001). This still holds if particles are resampled by their weights on the way (Del Moral, Doucet & Jasra 2006).

  sweep     every token's topic is drawn given the others':  ∝ q_l(t)^{1−s} β_{t,j_l}^s (C_t + α_t)^s          (3)
  relabel   a token is chosen at random, and all tokens of its topic move together to a topic that has none, or stay:
            drawn in proportion to π_s. It is a Gibbs step: the chosen group of tokens is the same before and after.
            Sweeps move a topic of twenty tokens only by way of states that hold both topics, which a small α forbids.

  split     all tokens of two topics move to one topic, or those of one topic to two: a proposal that is accepted or
            rejected (`split_or_merge`). Sweeps merge two topics of twenty tokens only by way of states that a small α
            forbids, and far below α = 10⁻² the states of fewer topics have nearly all the probability.

q is the mean field at a concentration of at least WARM. There a document's mean field still gives a token all topics
that explain its word. At a smaller α it is one set of topics out of the many that explain the document, and the
particles would never find the others.

No move takes the tokens of one topic apart into several others that have tokens. At α = 10⁻⁴ and below, where topics
are peaked and a document has words of topics that it should do without, all particle groups may be low together. The
probability of a single topic for all tokens is known, and an estimate below it has an error that says so
(`reach_up_to`). An estimate that misses states with two topics, because it has three, does not say so.

Particles run in independent groups ("islands"), and are resampled within their group only. The estimate is the mean of
the groups' estimates, and the stated error comes from their spread (`average_of_islands`). It is at least one
particle's share of p, since all particles may miss a mode of that size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Float64, Int, Key
from scipy import sparse
from scipy.special import gammaln
from scipy.special import logsumexp as logsumexp_of_floats

from lvsearch.inference.likelihood.documents import SHORTEST_PADDED_LENGTH, DocumentTile, TopicSet, padded_lengths
from lvsearch.inference.likelihood.gibbs_sweep import (
    BLOCK,
    choose,
    document_keys,
    document_uniforms,
    running_sums,
    token_tile,
)
from lvsearch.inference.likelihood.sampling_estimates import (
    Bias,
    LikelihoodEstimate,
    average_of_islands,
    estimate_tiles,
)
from lvsearch.models.kernels import kernel

T = TypeVar("T")

WARM = 0.3
"""The least concentration of the mean field that particles start from.

At .01 and .1 some documents' groups disagree by four times as much as others' (α = .01, 30 tokens). At 1 every group's
spread is one and a half times that at .3.
"""

CYCLES = 20  # of the mean field
FLOOR = 0.02  # share of q_l that goes to topics in proportion to β alone: no possible topic is out of reach
CHOICES = 5  # uniform draws of a split or merge beside those of the tokens: two tokens, two topics, acceptance
SPARE = 3 + CHOICES  # extra uniform draws per particle and step: one for resampling, two for relabelling, CHOICES
LANES = 1024  # documents × particles per call: enough to hide the loop's overhead, few enough to stay in cache
FEWEST_LANES, CELLS = 64, 2**14  # with many topics CELLS / topics lanes, but never fewer than 64
FEW_DOCUMENTS = 1000  # up to so many: the program that compiles in 5 s, not 11, and runs up to twice as long
FEW_TOGETHER = 32  # the most documents of a call then: all of them take as long as the longest
CACHED = 2**19  # numbers of an array (position, topic, document) that stay in the cache: more take 3 times as long
FEW_LENGTHS = (16, 256, 512, 1024)  # few documents are all padded to the least that holds them: each is a program
LEAST_STRIDE = 4096  # draws of a step are numbered from step × this, or × the blocks of a document if it has more
MOVES = 2**32 - 1  # the number with which a document's key is folded for splits and merges: no sweep has it
IMPOSSIBLE = -1e4  # log of a probability of 0, as sums of it must stay finite


class TokenParticles(NamedTuple):
    """The topics of all tokens, for many documents and particles side by side; the particles of one group are
    neighbours.
    """

    topic: Int[Array, "position document particle"]
    counts: Float[Array, "topic document particle"]
    log_weight: Float[Array, "document particle"]  # since the particle's group was last resampled
    log_mean: Float[Array, "document island"]  # sum of the logs of the mean weights at which it was
    variance: Float[Array, "document island"]  # sum of the squared relative errors of those means
    spare: Float[Array, "draw document particle"]  # uniform draws for the next step's resampling and relabelling


class Document(NamedTuple):
    """The numbers of a tile of documents that do not change along the path.

    A tile is a group of documents of one padded length.

    alpha: Dirichlet parameters of the topic proportions.
    log_beta: log p(word of the token | topic).
    log_q: log of the mean field from which particles start.
    real: 1 for a token, 0 for padding.
    longest: the number of tokens of the longest document.
    log_urn: log of (α_t + n) / A for n = 0, 1, …, with A = max(Σα, 1) (`log_urns`).
    log_rising: log of (α_t)_n / A^n for n = 0, 1, ….
    log_total: log of (Σα)_L / A^L, for the L tokens of each document.
    """

    alpha: Float[Array, " topic"]
    log_beta: Float[Array, "position topic document"]
    log_q: Float[Array, "position topic document"]
    real: Float[Array, "position document"]  # 1 for a token, 0 for padding
    longest: Int[Array, ""]  # tokens of the longest document
    log_urn: Float[Array, "topic count"]
    log_rising: Float[Array, "topic count"]
    log_total: Float[Array, " document"]


def log_mean_field(
    alpha: Float[Array, " topic"],
    beta: Float[Array, "position topic document"],
    real: Float[Array, "position document"],
) -> Float[Array, "position topic document"]:
    """Return the log of the mean field from which particles start: the probability of each topic for every token.

    It is CYCLES rounds of q_l(k) ∝ β_{k,j_l} (Σ_{m≠l} q_m(k) + α_k) for token l with word j_l. Then a share FLOOR of it
    is given to topics in proportion to β alone.

    alpha: Dirichlet parameters of the topic proportions.
    beta: β, p(word of the token | topic).
    real: 1 for a token, 0 for padding.
    """
    tiny = jnp.finfo(beta.dtype).tiny
    normalised = lambda u: u / jnp.maximum(jnp.sum(u, axis=1, keepdims=True), tiny)  # noqa: E731

    def cycle(_, q):
        """Return q of every token's topic after one update of all tokens together."""
        rest = jnp.sum(q * real[:, None], axis=0) - q
        return normalised(beta * (jnp.maximum(rest, 0.0) + alpha[None, :, None]))

    q = lax.fori_loop(0, CYCLES, cycle, normalised(beta))
    mixed = log_of((1 - FLOOR) * q + FLOOR * normalised(beta))
    # Below float32's range the part of β is computed in logs. A q of 0 where p is above 0 would bias the estimate.
    floor = np.log(FLOOR) + log_of(beta) - jnp.log(jnp.sum(beta, axis=1, keepdims=True))
    return jnp.where(is_possible(beta), jnp.maximum(mixed, floor), IMPOSSIBLE)


def is_possible(probability: Float[Array, "..."]) -> Bool[Array, "..."]:
    """Return True where a probability is a float32 that arithmetic keeps. Some operations flush smaller ones to 0."""
    return probability >= jnp.finfo(probability.dtype).tiny


def log_of(probability: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the log of a probability, with IMPOSSIBLE in the place of −∞."""
    possible = is_possible(probability)
    return jnp.where(possible, jnp.log(jnp.where(possible, probability, 1.0)), IMPOSSIBLE)


def path_log_weights(s: Float[Array, ""], document: Document, read: Callable[[Array], Array]) -> Array:
    """Return some of the log weights that the path gives to topics for tokens, nats, without the proportions' part.

    Only the entries that `read` takes are computed: a table of all entries would spend its time on padding.

    s: the position on the annealing path, from 0 to 1.
    read: takes entries from an array (position, topic, document).
    """
    return (1 - s) * read(document.log_q) + s * read(document.log_beta)


class Block(NamedTuple):
    """A block of neighbouring positions of all documents of a tile.

    number: its number, from 0.
    size: how many positions it has, padding included.
    document: the tile.
    """

    number: Int[Array, ""]
    size: int
    document: Document

    def of(self, values: Array) -> Array:
        """Return the block's part of an array whose first axis is that of positions."""
        return lax.dynamic_slice_in_dim(values, self.number * self.size, self.size)

    def uniforms(
        self, keys: Key[Array, " document"], step: Int[Array, ""], size: int, particles: int
    ) -> Float[Array, "draw document particle"]:
        """Return `size` uniform draws for each document and particle, which no other block and no other step has."""
        stride = max(LEAST_STRIDE, -(-len(self.document.log_q) // self.size))
        return document_uniforms(keys, step * stride + self.number, size, particles)

    def go_through(self, one_token: Callable[[Array, Array, T], T], start: T) -> T:
        """Call a function for each position up to the longest document, in order, and return the last state.

        one_token: takes (position in the document, position in the block, state) and returns the new state.
        start: the first state.
        """
        first = self.number * self.size
        end = jnp.minimum(self.size, self.document.longest - first)
        return lax.fori_loop(0, end, lambda n, state: one_token(first + n, n, state), start)


def go_through_blocks(document: Document, one_block: Callable[[Block, T], T], start: T) -> T:
    """Call a function for each block of positions, in order, and return the last state.

    Blocks beyond the longest document are left out. So neither time nor draws depend on the padding behind it.

    one_block: takes (block, state) and returns the new state.
    start: the first state.
    """
    size = min(BLOCK, len(document.log_q))
    n_blocks = (document.longest + size - 1) // size
    return lax.fori_loop(0, n_blocks, lambda number, state: one_block(Block(number, size, document), state), start)


def log_tilt(particles: TokenParticles, document: Document) -> Float[Array, "document particle"]:
    """Return log p(words, topics of tokens) − log q(topics of tokens) of each particle, nats."""

    def add_block(block, total):
        """Add log p(word | topic) − log q(topic) of one block of tokens."""
        ratio = (block.of(document.log_beta) - block.of(document.log_q))[..., None]
        per_token = jnp.take_along_axis(ratio, block.of(particles.topic)[:, None], axis=1, mode="clip")[:, 0]
        return total + jnp.sum(per_token * block.of(document.real)[..., None], axis=0)

    of_tokens = go_through_blocks(document, add_block, jnp.zeros_like(particles.log_weight))
    topics = jnp.arange(len(document.alpha))[:, None, None]
    rising = jnp.sum(look_up(document.log_rising, topics, particles.counts), axis=0)
    return of_tokens + rising - document.log_total[:, None]


def look_up(
    table: Float[Array, "topic count"], topic: Int[Array, "..."], count: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Return the entries of a table of all topics and counts, each at its topic and its whole count."""
    return jnp.take(table, topic * table.shape[1] + count.astype(jnp.int32), mode="clip")


def log_urns(
    alpha: Float64[np.ndarray, " topic"], most: int
) -> tuple[Float64[np.ndarray, "row count"], Float64[np.ndarray, "row count"]]:
    """Return the log of (a + n) / A, and of its products (a)_n / A^n, for n = 0 … most and A = max(Σα, 1).

    There is a row for every a = α_t, and a last one for a = Σα. The counts of all topics add up to the last row's, so
    the powers of A cancel in (1) and (3). Without them the products of α = 10⁶ have logs of thousands of nats, of which
    float32 would lose hundredths.

    Tables replace log Γ and powers inside the compiled program, which made up most of its compile time and were slower.
    (a + n is the weight of a topic with n tokens in Pólya's urn.)
    """
    total = alpha.sum()
    log_urn = np.log((np.append(alpha, total)[:, None] + np.arange(most + 1)) / max(total, 1.0))
    return log_urn, np.pad(np.cumsum(log_urn[:, :-1], axis=1), ((0, 0), (1, 0)))


def initial_particles(document: Document, islands: int, particles: int) -> TokenParticles:
    """Return particles with all tokens in topic 0 and equal weights, before the first sweep places the tokens.

    islands, particles: the number of particle groups, and how many particles each has.
    """
    n_positions, n_topics, n_documents = document.log_q.shape
    lanes, dtype = (n_documents, islands * particles), document.log_q.dtype
    lengths = jnp.broadcast_to(jnp.sum(document.real, axis=0)[:, None], lanes)
    counts = jnp.zeros((n_topics, *lanes), dtype).at[0].set(lengths)
    topic, none = jnp.zeros((n_positions, *lanes), jnp.int32), jnp.zeros((n_documents, islands), dtype)
    return TokenParticles(topic, counts, jnp.zeros(lanes, dtype), none, none, jnp.zeros((SPARE, *lanes), dtype))


def resample(particles: TokenParticles, uniform: Float[Array, "document island"]) -> TokenParticles:
    """Resample the particle groups whose effective number of particles is below half of them, systematically.

    uniform: one uniform draw for each group.
    """
    n_documents, islands = uniform.shape
    size = particles.log_weight.shape[1] // islands
    log_weight = particles.log_weight.reshape(n_documents, islands, size)
    largest, weight, total, effective = sum_of_weights(log_weight)
    uneven = effective < size / 2
    running = running_sums(jnp.moveaxis(weight, 2, 0))  # (particle, document, island)
    points = (jnp.arange(size)[:, None, None] + uniform) / size * running[-1]
    parent = jnp.sum(points >= running[:-1, None], axis=0, dtype=jnp.int32)  # (particle, document, island)
    parent = jnp.where(uneven, parent, jnp.arange(size, dtype=jnp.int32)[:, None, None])
    parent = parent + size * jnp.arange(islands, dtype=jnp.int32)
    parent = jnp.moveaxis(parent, 0, 2).reshape(n_documents, -1)
    log_mean = particles.log_mean + jnp.where(uneven, largest + jnp.log(total / size), 0.0)
    kept = jnp.where(uneven[..., None], 0.0, log_weight).reshape(n_documents, -1)
    take = lambda values: jnp.take_along_axis(values, parent[None], axis=2, mode="clip")  # noqa: E731
    variance = particles.variance + jnp.where(uneven, error_of_mean(effective, size), 0.0)
    return TokenParticles(take(particles.topic), take(particles.counts), kept, log_mean, variance, particles.spare)


def sum_of_weights(log_weight: Float[Array, "document island particle"]):
    """Return each group's largest log weight, its weights over the largest, their sum, and their effective number.

    The effective number is Kish's, (Σw)²/Σw². The weights are (document, island, particle), the others (document,
    island).
    """
    largest = jnp.max(log_weight, axis=2)
    weight = jnp.exp(log_weight - largest[..., None])
    total = jnp.sum(weight, axis=2)
    return largest, weight, total, total**2 / jnp.sum(weight**2, axis=2)


def error_of_mean(effective: Float[Array, "document island"], size: int) -> Float[Array, "document island"]:
    """Return the squared relative error of the mean of `size` weights, by the delta method.

    effective: Kish's effective number of particles.
    """
    return jnp.maximum(1 / effective - 1 / size, 0.0) * size / max(size - 1, 1)


def relabel(
    uniforms: Float[Array, "2 document particle"],
    s: Float[Array, ""],
    particles: TokenParticles,
    document: Document,
) -> TokenParticles:
    """Move all tokens of one topic to a topic without tokens, or leave them: a draw from the annealing path's
    distribution.

    The topic is that of a token chosen at random in each particle.

    uniforms: two uniform draws for each particle, which choose the token and the new topic.
    s: the position on the annealing path, from 0 to 1.
    """
    topics = jnp.arange(len(document.alpha))[:, None, None]
    which, where = uniforms
    # a random token's topic: topics in proportion to their tokens, which the move does not change
    old = choose(particles.counts, which)
    moving = (particles.topic == old) * document.real[..., None]
    size = jnp.sum(moving, axis=0)
    log_weight = sum_of_tokens(moving, s, document) + s * look_up(document.log_rising, topics, size)
    is_old = topics == old
    allowed = is_old | (particles.counts == 0)
    log_weight = jnp.where(allowed, log_weight, -jnp.inf)
    new = choose(jnp.exp(log_weight - jnp.max(log_weight, axis=0)), where)
    topic = jnp.where(moving > 0, new, particles.topic)
    is_new = topics == new
    counts = jnp.where(is_new, size, jnp.where(is_old, 0.0, particles.counts))
    return particles._replace(topic=topic, counts=counts)


def sum_of_tokens(
    chosen: Float[Array, "position document particle"], s: Float[Array, ""], document: Document
) -> Float[Array, "topic document particle"]:
    """Return each topic's sum of the path's log weights over the chosen tokens of each particle, nats.

    chosen: 1 for a token that is chosen, 0 for any other and for padding.
    s: the position on the annealing path, from 0 to 1.
    """

    def add_block(block, total):
        """Add the sums over one block of tokens."""
        log_weight = path_log_weights(s, document, block.of)
        return total + jnp.einsum("ldp,lkd->kdp", block.of(chosen), log_weight, precision=lax.Precision.HIGHEST)

    none = jnp.zeros((len(document.alpha), *chosen.shape[1:]), document.log_q.dtype)
    return go_through_blocks(document, add_block, none)


def shares_and_log_sum(
    log_weight: Float[Array, "topic document particle"],
) -> tuple[Float[Array, "topic document particle"], Float[Array, "document particle"]]:
    """Return (each topic's share of the sum of weights, the log of that sum).

    log_weight: logs of the weights, finite for at least one topic.
    """
    largest = jnp.max(log_weight, axis=0)
    weight = jnp.exp(log_weight - largest)
    total = jnp.sum(weight, axis=0)
    return weight / total, largest + jnp.log(total)


def split_or_merge(
    keys: Key[Array, " document"],
    step: Int[Array, ""],
    uniforms: Float[Array, "choice document particle"],
    s: Float[Array, ""],
    particles: TokenParticles,
    document: Document,
) -> TokenParticles:
    """Propose to put all tokens of two topics into one, or those of one topic into two, and accept or reject it.

    It is a Metropolis–Hastings step that leaves the annealing path's distribution invariant. Tokens i and j are chosen
    at random. Their group is all tokens of their topics, which are one or two. The group may have these topics, and
    those without tokens. If i and j have two topics, a *merge* is proposed: one topic for the group, drawn in
    proportion to π_s. If they share a topic, a *split* is proposed. i gets a topic, drawn half by its own word and half
    by those of the group, and j gets another, drawn by its own word. The other tokens choose between the two topics one
    after another, each given those before it (Dahl 2003). With W the sum of π_s over the topics of a merged group,

      accept a split with probability min(1, r), a merge with min(1, 1/r),
      r = π_s(split) / (W · probability of the draws that lead to this split)

    keys: one key for each document, for splits and merges alone.
    step: the number of this move, with which the keys are folded.
    uniforms: CHOICES uniform draws for each particle: of tokens i and j, of a topic for each, and of acceptance.
    s: the position on the annealing path, from 0 to 1.
    """
    topics, real = jnp.arange(len(document.alpha))[:, None, None], document.real[..., None] > 0
    rising = lambda topic, count: look_up(document.log_rising, topic, count)  # noqa: E731
    length = jnp.sum(document.real, axis=0)[:, None]
    i, j = (jnp.minimum(u * length, length - 1).astype(jnp.int32) for u in uniforms[:2])
    topic_of = lambda token: jnp.take_along_axis(particles.topic, token[None], axis=0, mode="clip")[0]  # noqa: E731
    of_i, of_j = topic_of(i), topic_of(j)
    shared = of_i == of_j
    group = ((particles.topic == of_i) | (particles.topic == of_j)) & real
    is_theirs = (topics == of_i) | (topics == of_j)
    free = is_theirs | (particles.counts == 0)

    # π_s of the group in one topic, and each topic's weight for token i and for token j
    per_topic = sum_of_tokens(group.astype(document.log_q.dtype), s, document)
    size = jnp.sum(group, axis=0, dtype=document.log_q.dtype)
    log_merged = jnp.where(free, per_topic + s * rising(topics, size), -jnp.inf)
    documents = jnp.arange(i.shape[0])[:, None]
    log_of = lambda token: jnp.moveaxis(path_log_weights(s, document, lambda each: each[token, :, documents]), 2, 0)  # noqa: E731
    share_merged, log_all_merged = shares_and_log_sum(log_merged)
    share_first = 0.5 * share_merged + 0.5 * shares_and_log_sum(jnp.where(free, log_of(i), -jnp.inf))[0]
    first = jnp.where(shared, choose(share_first, uniforms[2]), of_i)
    # −1e30 and not −∞: with one topic in all there is none for j, and shares have to be numbers
    share_second, _ = shares_and_log_sum(jnp.where(free & (topics != first), log_of(j), -1e30))
    second = jnp.where(shared, choose(share_second, uniforms[3]), of_j)
    take = lambda values, topic: jnp.take_along_axis(values, topic[None], axis=0, mode="clip")[0]  # noqa: E731
    shares_drawn = take(share_first, first) * take(share_second, second)
    possible = (i != j) & (first != second) & (shares_drawn > 0)

    alpha_first, alpha_second = document.alpha[first], document.alpha[second]

    def one_token(position, threshold, state):
        """Let one token choose between the topics, or find the probability with which it would choose its own.

        threshold: a logistic draw for each document and particle.
        """
        seconds, n_first, n_second, log_drawn, log_gain = state
        of_topic = lambda topic: path_log_weights(s, document, lambda each: each[position, topic, documents])  # noqa: E731
        gain = of_topic(second) - of_topic(first)  # (document, particle), nats
        log_odds = gain + s * (jnp.log(n_second + alpha_second) - jnp.log(n_first + alpha_first))
        drawn = threshold < log_odds
        chosen = jnp.where(shared, drawn, particles.topic[position] == of_j)
        is_second = group[position] & ((position == j) | (chosen & (position != i)))
        chooses = group[position] & (position != i) & (position != j)
        log_share = -jnp.logaddexp(0.0, jnp.where(is_second, -log_odds, log_odds))
        return (
            seconds.at[position].set(is_second),
            n_first + (chooses & ~is_second),
            n_second + (chooses & is_second),
            log_drawn + jnp.where(chooses, log_share, 0.0),
            log_gain + jnp.where(is_second, gain, 0.0),
        )

    def one_block(block, state):
        """Let the tokens of one block choose, one after another."""
        share = block.uniforms(keys, step, block.size, group.shape[2])
        thresholds = jnp.log(share) - jnp.log1p(-share)
        return block.go_through(lambda position, n, held: one_token(position, thresholds[n], held), state)

    one, none = jnp.ones_like(size), jnp.zeros_like(size)
    start = jnp.zeros(group.shape, bool), one, one, none, none
    seconds, n_first, n_second, log_drawn, log_gain = go_through_blocks(document, one_block, start)
    log_split = take(per_topic, first) + log_gain + s * (rising(first, n_first) + rising(second, n_second))
    log_draws = jnp.log(jnp.where(possible, shares_drawn, 1.0)) + log_drawn
    log_ratio = log_split - log_all_merged - log_draws
    accepted = possible & (jnp.log(uniforms[4]) < jnp.where(shared, log_ratio, -log_ratio))

    merged = choose(share_merged, uniforms[2])
    proposed = jnp.where(shared, jnp.where(seconds, second, first), merged)
    topic = jnp.where(group & accepted, proposed, particles.topic)
    split_counts = jnp.where(topics == first, n_first, jnp.where(topics == second, n_second, 0.0))
    group_counts = jnp.where(shared, split_counts, jnp.where(topics == merged, size, 0.0))
    counts = jnp.where(accepted, jnp.where(is_theirs, 0.0, particles.counts) + group_counts, particles.counts)
    return particles._replace(topic=topic, counts=counts)


def sweep(
    keys: Key[Array, " document"],
    step: Int[Array, ""],
    s: Float[Array, ""],
    particles: TokenParticles,
    document: Document,
) -> TokenParticles:
    """Draw the topic of every token again, given the topics of the others, and the spare uniforms of the next step.

    keys: one key for each document.
    step: the number of this sweep, with which the keys are folded.
    s: the position on the annealing path, from 0 to 1.
    """
    real, urns = document.real, jnp.exp(s * document.log_urn)
    topics = jnp.arange(len(urns))[:, None, None]
    lanes = jnp.indices(particles.topic.shape[1:])
    count_of = lambda counts, topic: jnp.take_along_axis(counts, topic[None], axis=0, mode="clip")[0]  # noqa: E731
    # Each particle changes one entry. Written alone, with 512 topics a sweep takes 10 s where passing over all took 14.
    written = lambda values, topic, new: values.at[topic, *lanes].set(  # noqa: E731
        new, mode="promise_in_bounds", unique_indices=True
    )

    def one_token(position, weight, uniform, state):
        """Draw the topic of one token again, and update the counts.

        weight: the path's weight of each topic for the token, without the proportions' part, (topic, document).
        """
        topic, counts, urn = state  # urn: ((C_t + α_t) / A)^s, read again only for the two topics that change
        # the old topic is not read from `topic`: XLA would copy the array at every token
        here, old = real[position][:, None], particles.topic[position]
        less = count_of(counts, old) - here
        counts, urn = written(counts, old, less), written(urn, old, look_up(urns, old, less))
        new = choose(urn * weight[:, :, None], uniform)
        more = count_of(counts, new) + here
        counts, urn = written(counts, new, more), written(urn, new, look_up(urns, new, more))
        return topic.at[position].set(new), counts, urn

    def one_block(block, carry):
        """Draw the topics of one block of tokens again; the spare uniforms are those of the first block."""
        state, spare = carry
        log_weight = path_log_weights(s, document, block.of)
        weight = jnp.exp(log_weight - jnp.max(log_weight, axis=1, keepdims=True))
        uniforms = block.uniforms(keys, step, block.size + SPARE, particles.topic.shape[2])
        state = block.go_through(lambda position, n, held: one_token(position, weight[n], uniforms[n], held), state)
        return state, jnp.where(block.number == 0, uniforms[block.size :], spare)

    urn = look_up(urns, topics, particles.counts)
    state = (particles.topic, particles.counts, urn)
    (topic, counts, _), spare = go_through_blocks(document, one_block, (state, particles.spare))
    return particles._replace(topic=topic, counts=counts, spare=spare)


def _estimate_islands(
    word_topic: Float[Array, "word topic"],
    alpha: Float[Array, " topic"],
    warm: Float[Array, " topic"],
    log_urn: Float[Array, "row count"],
    log_rising: Float[Array, "row count"],
    steps: Int[Array, ""],
    words: Int[Array, "document position"],
    counts: Int[Array, "document position"],
    rows: Int[Array, " document"],
    key: Key[Array, ""],
    islands: int,
    particles: int,
) -> tuple[Float[Array, "document island"], Float[Array, "document island"]]:
    """Return the log of each particle group's estimate of p(document), and the relative variance of that estimate.

    A tile is a group of documents of one padded length.

    The variance comes from the group's own particles.

    word_topic: p(word | topic). alpha: Dirichlet parameters of the topic proportions.
    warm: the concentration of the mean field from which particles start.
    log_urn, log_rising: tables of `alpha` and of its sum (`log_urns`).
    steps: how many steps the path has.
    words, counts: a tile's tokens, and 1 for each (0 for padding).
    rows: the number of each document in the corpus, with which its key is folded.
    islands, particles: how many groups, and how many particles each has.
    """
    beta, real = token_tile(word_topic, words, counts)
    lengths = jnp.sum(counts, axis=1)
    document = Document(
        alpha,
        log_of(beta),
        log_mean_field(warm, beta, real),
        real,
        jnp.max(lengths),
        log_urn[:-1],
        log_rising[:-1],
        log_rising[-1][lengths],
    )
    keys = document_keys(key, rows)
    move_keys = jax.vmap(lambda each: jax.random.fold_in(each, MOVES))(keys)

    def step(i, state: TokenParticles) -> TokenParticles:
        """Make one step of the path: weigh, resample, relabel, sweep.

        Step 0 makes the independent draws of q: at s = 0 a sweep draws every token from q, wherever the tokens were
        before. Weights do not change in step 0.
        """
        s = i.astype(beta.dtype) / steps
        rise = jnp.where(i > 0, 1.0, 0.0).astype(beta.dtype) / steps
        moved = state._replace(log_weight=state.log_weight + log_tilt(state, document) * rise)
        # one uniform for each group, that of its first particle
        moved = resample(moved, state.spare[0, :, ::particles])
        moved = relabel(state.spare[1:3], s, moved, document)
        moved = split_or_merge(move_keys, i, state.spare[3:], s, moved, document)
        return sweep(keys, i, s, moved, document)

    end = lax.fori_loop(0, steps + 1, step, initial_particles(document, islands, particles))
    largest, _, total, effective = sum_of_weights(end.log_weight.reshape(len(words), islands, particles))
    log_mean = end.log_mean + largest + jnp.log(total / particles)
    return log_mean, end.variance + error_of_mean(effective, particles)


_log_islands = kernel(static_argnames=("islands", "particles"))(_estimate_islands)
_log_islands_soon = kernel(static_argnames=("islands", "particles"), short=True, once=True)(_estimate_islands)


def log_of_single_topics(tile: DocumentTile, word_topic, alpha) -> Float64[np.ndarray, " document"]:
    """Return the log probability that a document occurs with all its tokens in one topic, summed over topics, nats.

    It is a known part of p(document).
    """
    prior = np.asarray(alpha, np.float64)
    with np.errstate(divide="ignore"):
        log_beta = np.log(np.asarray(word_topic, np.float64)[tile.words])  # (document, position, topic)
    log_words = np.where(tile.counts[..., None] > 0, log_beta, 0.0).sum(axis=1)
    lengths = tile.counts.sum(axis=1)[:, None].astype(np.float64)
    rising = gammaln(prior + lengths) - gammaln(prior) - gammaln(prior.sum() + lengths) + gammaln(prior.sum())
    return np.asarray(logsumexp_of_floats(log_words + rising, axis=1))


def reach_up_to(least: Float64[np.ndarray, " document"], estimate: LikelihoodEstimate) -> LikelihoodEstimate:
    """Return the estimate with an error that reaches, at 2 errors, the part of p(document) that is known.

    Far below α = 10⁻⁴ hardly any particle gets from two topics to one if these share few words, and all groups may be
    low together.

    least: log of the known part (`log_of_single_topics`), nats.
    """
    missing = np.maximum(least - estimate.log_likelihood, 0.0)
    return estimate._replace(standard_error=np.maximum(estimate.standard_error, missing / 2))


def lengths_of_many(sizes: Int[np.ndarray, " document"]) -> Int[np.ndarray, " document"]:
    """Return the lengths that documents are padded to: powers of two, and whole blocks beyond the shortest length.

    sizes: the number of tokens of each document.
    """
    lengths = padded_lengths(sizes)
    return np.where(lengths > SHORTEST_PADDED_LENGTH, np.maximum(lengths, BLOCK), lengths)


def lengths_of_few(sizes: Int[np.ndarray, " document"]) -> Int[np.ndarray, " document"]:
    """Return the lengths that a few documents are padded to: one of `FEW_LENGTHS` for all but longer documents.

    Each length compiles a program, and its loops end with the longest document of a tile. A document's draws, and so
    the estimate of its probability but for rounding, do not depend on its padding.

    sizes: the number of tokens of each document.
    """
    lengths = lengths_of_many(sizes)
    least = next((length for length in FEW_LENGTHS if length >= lengths.max(initial=0)), FEW_LENGTHS[-1])
    return np.maximum(lengths, least)


@dataclass(frozen=True)
class AnnealedImportance:
    """Estimates log p(document) by annealed importance sampling with resampling.

    `samples`: how many particles in all. `islands`: in how many independent groups they are. `steps`: how many steps
        the path has.
    """

    bias: Bias = "unbiased"
    samples: int = 128
    islands: int = 8
    steps: int = 50
    """The variance of an island's log falls as one over the steps."""

    def estimate(
        self, topics: TopicSet, counts: sparse.csr_array, samples: int, key: Key[Array, " "]
    ) -> LikelihoodEstimate:
        """Estimate log p of each document, nats, with errors from the spread of the particle groups.

        topics: checked topics and Dirichlet parameters.
        counts: word counts, (document, word).
        samples: the number of particles, rounded down to a multiple of the number of groups.
        key: the random key.
        """
        islands = min(self.islands, samples)
        particles = samples // islands
        prior = topics.active().alpha
        warm = np.maximum(prior, WARM)

        def one_tile(tile: DocumentTile, word_topic, alpha) -> LikelihoodEstimate:
            """Estimate log p of the documents of one tile.

            A tile is a group of documents of one padded length.
            """
            log_islands, variance = program(
                word_topic,
                alpha,
                jnp.asarray(warm, alpha.dtype),
                *(jnp.asarray(table, alpha.dtype) for table in log_urns(prior, tile.words.shape[1])),
                self.steps,
                tile.words,
                tile.counts,
                tile.padded_rows,
                key,
                islands,
                particles,
            )
            estimate = average_of_islands(np.asarray(log_islands, np.float64), np.asarray(variance, np.float64))
            # A mode with one particle's share of p may be missed by all, whose agreement then shows nothing.
            share = 1 / (islands * particles)
            estimate = estimate._replace(standard_error=np.maximum(estimate.standard_error, share))
            return reach_up_to(log_of_single_topics(tile, word_topic, alpha), estimate)

        few = counts.shape[0] <= FEW_DOCUMENTS
        program, most = (_log_islands_soon, FEW_TOGETHER) if few else (_log_islands, LANES)
        lanes = min(LANES, max(FEWEST_LANES, CELLS // len(prior)))
        together = min(most, lanes // (islands * particles))
        height_of = lambda length: max(1, min(together, CACHED // (len(prior) * length)))  # noqa: E731
        pad = lengths_of_few if few else lengths_of_many
        return estimate_tiles(topics, counts, one_tile, tokens=True, height_of=height_of, pad=pad)
