"""LDA with documents that arrive one after another, token by token, while topics may still move (left to right).

    p(w_i | tokens before, z) = Σ_k (n_dk + α_k) / (n_d + A) · (n_kw + η) / (n_k + Vη),      A = Σ_k α_k.

Counts are of the tokens before token i, including those of the same document: n_dk of topic k in the document, n_d of
the document, n_kw of the word in topic k, n_k of topic k. There are V words, and α and η are the concentrations of the
priors. This is the conditional of the collapsed sweep (`chain`), whose normaliser is the weight.

Source: Wallach, Murray, Salakhutdinov & Mimno 2009, who do so for one document under given topics.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.generators import generator
from lvsearch.inference.topic_samplers.chain import CollapsedTopics
from lvsearch.inference.topic_samplers.topic_state import TokenPlace, TopicState, redraw_token


class DocumentByDocument(eqx.Module):
    """A chain of LDA from the prior, and the order in which its documents arrive; it satisfies `Sequential`.

    | field | shape | meaning |
    |---|---|---|
    | `chain` | | the chain, which holds the tokens |
    | `tokens` | (token,) | tokens of the chain, document after document in that order; padding last |
    | `ends` | (document,) | number of tokens up to the end of each document; at padding all tokens |
    | `n_units` | () | number of documents without padding |
    """

    chain: CollapsedTopics
    tokens: Int[np.ndarray, " token"]
    ends: Int[np.ndarray, " document"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        """The number of documents, including padding."""
        return len(self.ends)

    def initial_state(self, key: Key[Array, ""], particles: int) -> TopicState:
        """Return the state before any document has arrived, in which no token has a topic (−1). `key` is not used."""
        return self.chain.state_of_topics(jnp.full((len(self.tokens), particles), -1, jnp.int32))

    def append(
        self, key: Key[Array, ""], state: TopicState, unit: Int[Array, ""]
    ) -> tuple[TopicState, Float[Array, " particle"]]:
        """Add a document and draw the topics of its tokens in order.

        unit: the document's position in the order of arrival.

        Returns: (the new state, log p(document's words | documents before and topics drawn on the way), (particle,),
            nats).
        """
        first, last = self._tokens_of(unit)

        def one(place: Array, carry: tuple[TopicState, Array]) -> tuple[TopicState, Array]:
            state, gain = carry
            state, total = self._redraw_token(jax.random.fold_in(key, place), state, jnp.asarray(self.tokens)[place])
            return state, gain + self._log_token(total, place - first)

        return jax.lax.fori_loop(first, last, one, (state, self._zero(state)))

    def remove(
        self, key: Key[Array, ""], state: TopicState, unit: Int[Array, ""]
    ) -> tuple[TopicState, Float[Array, " particle"]]:
        """Remove the last document's tokens in reverse order, which undoes `append`.

        unit: the document's position in the order of arrival.

        Returns: (the new state, the log-probability that `append` would return for the topics that the tokens had,
            nats).
        """
        first, last = self._tokens_of(unit)

        def one(done: Array, carry: tuple[TopicState, Array]) -> tuple[TopicState, Array]:
            state, gain = carry
            place = last - 1 - done
            state, total = self._redraw_token(None, state, jnp.asarray(self.tokens)[place])
            return state, gain + self._log_token(total, place - first)

        return jax.lax.fori_loop(0, last - first, one, (state, self._zero(state)))

    def revisit(self, key: Key[Array, ""], state: TopicState, units: Int[Array, ""], *, backward: bool) -> TopicState:
        """Draw the topics of all tokens of the first `units` documents again, in reverse order if `backward`; return
        the state.
        """
        last = jnp.asarray(self.ends)[units - 1]

        def one(done: Array, state: TopicState) -> TopicState:
            token = jnp.asarray(self.tokens)[last - 1 - done if backward else done]
            return self._redraw_token(jax.random.fold_in(key, done), state, token)[0]

        return jax.lax.fori_loop(0, last, one, state)

    def take(self, state: TopicState, particles: Int[Array, " chosen"]) -> TopicState:
        """Return the state of the chosen particles, in the given order. A particle may be chosen several times."""
        return self.chain.take(state, particles)

    def _tokens_of(self, unit: Int[Array, ""]) -> tuple[Array, Array]:
        """Return where a document's tokens begin and end in `tokens`: (position of the first, position after the
        last).
        """
        ends = jnp.asarray(self.ends)
        return jnp.where(unit > 0, ends[unit - 1], 0), ends[unit]

    def _zero(self, state: TopicState) -> Float[Array, " particle"]:
        """Return 0 for each particle, (particle,)."""
        return jnp.zeros(state.assignment.shape[1])

    def _redraw_token(
        self, key: Key[Array, ""] | None, state: TopicState, token: Int[Array, ""]
    ) -> tuple[TopicState, Float[Array, " particle"]]:
        """Draw a token's topic given all others, or take its topic away (−1) if `key` is None.

        Returns: (the new state, Σ_k (n_dk + α_k) (n_kw + η) / (n_k + Vη) from counts without the token, (particle,)).
        """
        chain = self.chain
        alpha, eta = jnp.asarray(chain.alpha, jnp.float32)[:, None], jnp.asarray(chain.eta, jnp.float32)
        word = jnp.asarray(chain.word)[token]
        block = jnp.asarray(chain.block)[word]
        total_eta = eta * jnp.asarray(chain.widths, jnp.float32)[block]
        at = TokenPlace(token, jnp.asarray(chain.document)[token], word, block)
        uniform = None if key is None else jax.random.uniform(key, state.assignment.shape[1:], jnp.float32)

        def weights(of_document: Array, of_word: Array, total: Array) -> Array:
            return jnp.where(alpha > 0, of_document + alpha, 0.0) * (of_word + eta) / (total + total_eta)

        return redraw_token(state, at, weights, uniform)

    def _log_token(self, total: Float[Array, " particle"], before: Int[Array, ""]) -> Float[Array, " particle"]:
        """Return log p(token | tokens before), (particle,), in nats.

        total: the sum that `_redraw_token` returned.
        before: number of tokens before this one in the document.
        """
        concentration = jnp.asarray(self.chain.alpha, jnp.result_type(float)).sum()
        return jnp.log(total.astype(concentration.dtype)) - jnp.log(before + concentration)


def documents_in_random_order(chain: CollapsedTopics, key: Key[Array, ""]) -> DocumentByDocument:
    """Return the documents of a chain from the prior in a random order of arrival."""
    real = np.flatnonzero(chain.word >= 0)
    document = chain.document[real]
    order = generator(key).permutation(np.unique(document))  # documents without tokens have probability 1
    lengths = np.bincount(document, minlength=chain.n_documents)
    rank = np.empty(chain.n_documents, np.int64)
    rank[order] = np.arange(len(order))
    tokens = np.concatenate([real[np.argsort(rank[document], kind="stable")], np.flatnonzero(chain.word < 0)])
    ends = np.pad(np.cumsum(lengths[order]), (0, chain.n_documents - len(order)), mode="edge")
    return DocumentByDocument(chain, tokens.astype(np.int32), ends.astype(np.int32), np.asarray(len(order), np.int32))
