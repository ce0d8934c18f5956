"""Mixtures of unigrams whose documents come one after another, each weighted by its probability given those before.

    p(w_m | w_1 … w_{m−1}, z) = Σ_k (D_k + a) / (m − 1 + Ka) · p(w_m | the words of k)

Here w_m are the words of document m, D_k the number of earlier documents in topic k, and a the concentration of the K
weights. p(w_m | …) is the Dirichlet–multinomial of the collapsed sweep (`unigram_mixtures`), and the sum is the
normaliser of that sweep's conditional.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.kits import ChainKit, chain_kit
from lvsearch.inference.annealing.prefixes import draw_arrival_order
from lvsearch.inference.evidence.unigram_mixtures import DocumentLabels, UnigramMixtureChain


class UnigramsInTurn(eqx.Module):
    """The documents of a mixture of unigrams in a random order, for annealing along the documents (`Sequential`).

    | field | meaning |
    |---|---|
    | `chain` | the chain over topics of documents |
    | `order` | the documents in the order in which they come, padding last, (document,) |
    | `n_units` | how many documents are not padding |
    """

    chain: UnigramMixtureChain
    order: Int[np.ndarray, " document"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        """The number of documents, padding included."""
        return len(self.order)

    def initial_state(self, key: Key[Array, ""], particles: int) -> DocumentLabels:
        """Return the state before any document has come, in which no document has a topic (all are −1)."""
        return self.chain.state_from_labels(jnp.full((self.places, particles), -1, jnp.int32))

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

    def take(self, state: DocumentLabels, particles: Int[Array, " chosen"]) -> DocumentLabels:
        """Return the state of the chosen particles, in the order in which they are named; a particle may be named
        twice.
        """
        return self.chain.take(state, particles)

    def _uniform(self, key: Key[Array, ""], state: DocumentLabels) -> Float[Array, " particle"]:
        """Draw a uniform number for each particle."""
        return jax.random.uniform(key, state.tokens.shape[1:], state.tokens.dtype)

    def _log_seats(self, before: DocumentLabels) -> Float[Array, " particle"]:
        """Return log(number of documents with a topic + the total concentration of the weights), (particle,).

        before: the state, without the document that comes or went.
        """
        return jnp.log(before.documents.sum(0) + self.chain.total_concentration())


@chain_kit.register
def _kit_of_unigrams(chain: UnigramMixtureChain) -> ChainKit:
    """Return the kit of a mixture of unigrams, whose path goes along the documents."""

    def in_turn(key: Key[Array, ""]) -> UnigramsInTurn:
        """Return the documents in an order drawn by the key."""
        real = np.concatenate([np.asarray(part.weight) for part in chain.parts]) > 0
        return UnigramsInTurn(chain, *draw_arrival_order(key, real))

    return ChainKit(in_turn, along_data=True)
