"""Gibbs sweeps over the topic assignments of many documents at once, with documents in the vector lanes.

Token l of a document has word j_l and topic k_l. C_t^¬l counts the other tokens of topic t, and β_tj is the probability
of word j in topic t. With the topic proportions, Dirichlet(α), integrated out:

  p(k_l = t | k_¬l, j) ∝ (C_t^¬l + α_t) β_{t, j_l}
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

MOST_TOPICS_BY_MATRIX = 256
"""Up to this many topics, running sums are a triangular product.

At 100 topics it is still 2.5 times faster than XLA's `cumsum` on CPU.
"""

FEW_TOPICS, GROUP = 16, 8
"""Up to 16 topics are drawn from at once; more in groups of 8. So sweeps of 512 topics take a quarter of the time."""

BLOCK = 64  # positions whose random numbers are drawn in one go: 16 and 256 cost half as much time again


class Assignment(NamedTuple):
    """The present topics of all tokens, and the counts of each topic, for each (document, chain)."""

    topic: Int[Array, "position document chain"]
    counts: Float[Array, "topic document chain"]


def running_sums(weight: Float[Array, "topic ..."]) -> Float[Array, "topic ..."]:
    """Return the running sums of weights over the first axis."""
    n_topics = weight.shape[0]
    if n_topics > MOST_TOPICS_BY_MATRIX:
        return jnp.cumsum(weight, axis=0)
    # a literal: XLA would write out the loop that fills the triangle, half a second of every compilation
    triangle = np.tril(np.ones((n_topics, n_topics), weight.dtype))
    return jnp.tensordot(triangle, weight, axes=1, precision=lax.Precision.HIGHEST)


def choose(weight: Float[Array, "topic document chain"], uniform: Float[Array, "document chain"]):
    """Draw a topic for each document and chain in proportion to `weight`, (document, chain).

    Of many topics a group of neighbours is drawn first, and then one of the group, which needs no running sum over all
    of them.

    uniform: one uniform draw for each; the running sum of the weights is inverted at it.
    """
    n_topics = len(weight)
    if n_topics <= FEW_TOPICS:
        running = running_sums(weight)
        return jnp.sum(uniform * running[-1] >= running[:-1], axis=0, dtype=jnp.int32)
    weight = jnp.pad(weight, ((0, -n_topics % GROUP), (0, 0), (0, 0)))
    groups = weight.reshape(-1, GROUP, *weight.shape[1:])
    running = running_sums(groups.sum(axis=1))
    point = uniform * running[-1]
    group = jnp.sum(point >= running[:-1], axis=0, dtype=jnp.int32)
    before = jnp.take_along_axis(running, jnp.maximum(group - 1, 0)[None], axis=0, mode="clip")[0]
    within = running_sums(jnp.take_along_axis(groups, group[None, None], axis=0, mode="clip")[0])
    # Below the group's sum, which rounding may reach: a topic without weight at its end is never drawn.
    rest = jnp.minimum(point - jnp.where(group > 0, before, 0.0), within[-1] * (1 - jnp.finfo(weight.dtype).eps))
    chosen = GROUP * group + jnp.sum(rest >= within[:-1], axis=0, dtype=jnp.int32)
    return jnp.minimum(chosen, n_topics - 1)  # where all weights are 0, any topic, but no padding


def one_hot(topic: Int[Array, "document chain"], n_topics: int, real: Float[Array, " document"]):
    """Return the topic counts of one token of each document and chain, (topic, document, chain); padding counts
    nothing.

    topic: the token's topic.
    real: 1 for a token, 0 for padding.
    """
    return (jnp.arange(n_topics)[:, None, None] == topic).astype(real.dtype) * real[:, None]


def resample(
    position,
    state: Assignment,
    uniform: Float[Array, "document chain"],
    alpha: Float[Array, " topic"],
    beta: Float[Array, "position topic document"],
    real: Float[Array, "position document"],
) -> Assignment:
    """Draw the topic of one position again, given the topics of all others.

    position: the position of the token in its document.
    uniform: one uniform draw for each document and chain.
    alpha: Dirichlet parameters of the topic proportions.
    beta: p(word of the token | topic).
    real: 1 for a token, 0 for padding.
    """
    n_topics = len(alpha)
    rest = state.counts - one_hot(state.topic[position], n_topics, real[position])
    weight = (rest + alpha[:, None, None]) * beta[position][:, :, None]
    new = choose(weight, uniform)
    return Assignment(state.topic.at[position].set(new), rest + one_hot(new, n_topics, real[position]))


def sweep(keys: Key[Array, "document chain"], n_positions, state, alpha, beta, real) -> Assignment:
    """Return the assignment after the topics of positions 0 … n_positions − 1 were drawn again, in order.

    keys: keys of each document and chain, for this sweep.
    alpha: Dirichlet parameters of the topic proportions, (topic,).
    beta: p(word of the token | topic), (position, topic, document).
    real: 1 for a token, 0 for padding, (position, document).
    """

    size = min(BLOCK, len(beta))

    def block(b, state):
        """Draw the topics of one block of positions again."""
        uniforms = block_uniforms(keys, b, size)
        first = b * size
        end = jnp.minimum(size, n_positions - first)
        return lax.fori_loop(0, end, lambda i, s: resample(first + i, s, uniforms[i], alpha, beta, real), state)

    return lax.fori_loop(0, (n_positions + size - 1) // size, block, state)


def document_keys(key: Key[Array, " "], rows: Int[Array, " document"]) -> Key[Array, " document"]:
    """Return a key for each document, which depends on its row in the corpus, so it is the same in any batch.

    rows: the number of each document in the corpus.
    """
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)


def document_uniforms(
    keys: Key[Array, " document"], number: Int[Array, ""], size: int, chains: int
) -> Float[Array, "position document chain"]:
    """Return uniform draws of `size` positions for each document and chain.

    number: the number of these draws among those of a document, with which its key is folded.
    """
    draw = lambda key: jax.random.uniform(jax.random.fold_in(key, number), (size, chains))  # noqa: E731
    return jnp.moveaxis(jax.vmap(draw)(keys), 0, 1)


def lane_keys(key: Key[Array, " "], rows: Int[Array, " document"], chains: int) -> Key[Array, "document chain"]:
    """Return a key for each document and chain.

    A document's key depends on its row in the corpus, so it is the same in any batch.

    rows: the number of each document in the corpus.
    chains: the number of chains of each document.
    """
    by_chain = lambda k: jax.vmap(lambda chain: jax.random.fold_in(k, chain))(jnp.arange(chains))  # noqa: E731
    return jax.vmap(by_chain)(document_keys(key, rows))


def sweep_keys(keys: Key[Array, "document chain"], step) -> Key[Array, "document chain"]:
    """Return the keys of each document and chain for one sweep, number `step`."""
    return jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, step)))(keys)


def block_uniforms(keys: Key[Array, "document chain"], block, size: int) -> Float[Array, "position document chain"]:
    """Return uniform draws for block number `block` of positions, of `size` positions.

    They are drawn block by block, so that short sweeps draw few.
    """
    draw = lambda key: jax.random.uniform(jax.random.fold_in(key, block), (size,))  # noqa: E731
    return jnp.moveaxis(jax.vmap(jax.vmap(draw))(keys), -1, 0)


def token_tile(word_topic: Float[Array, "word topic"], words, counts):
    """Return p(word | topic) of every token (position, topic, document), and 1 for tokens and 0 for padding.

    A tile is a group of documents of one padded length.

    The second array is (position, document).

    words, counts: a tile's tokens, and 1 for each (0 for padding), (document, position).
    """
    return word_topic[words].transpose(1, 2, 0), counts.T.astype(word_topic.dtype)
