"""Topics of all tokens, drawn one after another: what every collapsed chain of LDA does with one of them.

Particles stand side by side on the last axis, so that one draw is a vector operation over (topic, particle), and
documents and words pick whole rows.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class TopicState(NamedTuple):
    """Topics of all tokens and the counts that follow from them.

    | field | letter | shape |
    |---|---|---|
    | `assignment` | z | (token, particle); −1 for padding |
    | `document_topic` | n_dk | (document, topic, particle), float32 whole numbers |
    | `word_topic` | n_kw | (word, topic, particle) |
    | `topic_total` | n_bk, by block of the vocabulary | (block, topic, particle) |
    """

    assignment: Int[Array, "token particle"]
    document_topic: Float[Array, "document topic particle"]
    word_topic: Float[Array, "word topic particle"]
    topic_total: Float[Array, "block topic particle"]


class TokenPlace(NamedTuple):
    """One token: its number, its document, its word and the block of the vocabulary that this is in."""

    token: Int[Array, ""]
    document: Int[Array, ""]
    word: Int[Array, ""]
    block: Int[Array, ""]


def redrawn(
    state: TopicState,
    at: TokenPlace,
    weights: Callable[[Array, Array, Array], Array],
    uniform: Float[Array, " particle"] | None,
) -> tuple[TopicState, Float[Array, " particle"]]:
    """One token's topic drawn given all others (none: −1, where `uniform` is None), and the sum of the weights.

    weights: (n_dk, n_kw, n_bk), each (topic, particle) and without the token -> (topic, particle), none negative.
    Numbers of topics have 32 bits whatever JAX's default, and indices are promised to be in range: either costs as
    much as all the arithmetic.
    """
    topic = jnp.arange(state.topic_total.shape[1], dtype=jnp.int32)[:, None]
    below = jnp.tril(jnp.ones((len(topic), len(topic)), jnp.float32))
    row = partial(jax.lax.dynamic_index_in_dim, keepdims=False)
    assigned = row(state.assignment, at.token)
    own = (topic == assigned).astype(jnp.float32)  # nowhere where the token is added
    in_document = row(state.document_topic, at.document) - own
    of_word, total = row(state.word_topic, at.word) - own, row(state.topic_total, at.block) - own
    ends = jnp.matmul(below, weights(in_document, of_word, total), precision=jax.lax.Precision.HIGHEST)
    new = jnp.full_like(assigned, -1)
    if uniform is not None:
        new = (ends[:-1] <= uniform * ends[-1]).sum(0, dtype=jnp.int32)
    own = (topic == new).astype(jnp.float32)
    put = partial(jax.lax.dynamic_update_index_in_dim, axis=0)
    return (
        TopicState(
            put(state.assignment, new, at.token),
            put(state.document_topic, in_document + own, at.document),
            put(state.word_topic, of_word + own, at.word),
            put(state.topic_total, total + own, at.block),
        ),
        ends[-1],
    )
