"""Mixtures whose rows come one after another: what a row is worth, given the labels of the rows before.

    p(x_m | x_1 … x_{m−1}, z) = Σ_k (n_k + a) / (m − 1 + Ka) · h(x_m) exp[A(λ + S_k + s(x_m)) − A(λ + S_k)],

n_k and S_k of the rows before: the conditional of the collapsed sweep (`mixtures`), whose normaliser is the weight.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.evidence.dispatch import along_data
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain, CollapsedState
from lvsearch.inference.evidence.prefixes import sequential
from lvsearch.inference.generators import generator


class RowByRow(eqx.Module):
    """A chain from the prior, the order in which its `n_units` rows come, (row,), and after them those of padding."""

    chain: CollapsedMixtureChain
    order: Int[np.ndarray, " row"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        return len(self.order)

    def none_yet(self, particles: int) -> CollapsedState:
        """No row has a label: −1."""
        return self.chain.of_labels(jnp.full((self.places, particles), -1))

    def append(
        self, key: Key[Array, ""], state: CollapsedState, unit: Int[Array, ""]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        row = jnp.asarray(self.order)[unit]
        score, joined = self.chain.joining(state, row)
        label = self.chain.chosen(score, jax.random.uniform(key, score.shape[1:], score.dtype))
        return self.chain.joined(state, row, label, joined), self._worth(state, score, row)

    def remove(self, state: CollapsedState, unit: Int[Array, ""]) -> tuple[CollapsedState, Float[Array, " particle"]]:
        row = jnp.asarray(self.order)[unit]
        left = self.chain.without(state, row)
        worth = self._worth(left, self.chain.joining(left, row)[0], row)
        return left._replace(labels=left.labels.at[row].set(-1)), worth

    def revisit(
        self, key: Key[Array, ""], state: CollapsedState, units: Int[Array, ""], *, backward: bool
    ) -> CollapsedState:
        def one(place: Array, state: CollapsedState) -> CollapsedState:
            row = jnp.asarray(self.order)[units - 1 - place if backward else place]
            left = self.chain.without(state, row)
            score, joined = self.chain.joining(left, row)
            uniform = jax.random.uniform(jax.random.fold_in(key, place), score.shape[1:], score.dtype)
            return self.chain.joined(left, row, self.chain.chosen(score, uniform), joined)

        # summed anew, so that rounding does not add up over sweeps
        begin = jax.lax.cond(units > 0, lambda s: self.chain.of_labels(s.labels), lambda s: s, state)
        return jax.lax.fori_loop(0, units, one, begin)

    def take(self, state: CollapsedState, particles: Int[Array, " chosen"]) -> CollapsedState:
        return self.chain.take(state, particles)

    def _worth(
        self, before: CollapsedState, score: Float[Array, "component particle"], row: Int[Array, ""]
    ) -> Float[Array, " particle"]:
        """log p(row | the rows before and their labels)."""
        seats = before.counts.sum(0) + self.chain.total_concentration()
        carrier = jnp.asarray(self.chain.carriers, score.dtype)[row]
        return jax.scipy.special.logsumexp(score, axis=0) - jnp.log(seats) + carrier


@sequential.register
def _(chain: CollapsedMixtureChain, key: Key[Array, ""]) -> RowByRow | None:
    if chain.anchor is not None:
        return None
    real = np.asarray(chain.weight) > 0
    order = np.concatenate([generator(key).permutation(np.flatnonzero(real)), np.flatnonzero(~real)])
    return RowByRow(chain, order, np.asarray(real.sum(), np.int32))


@along_data.register
def _(chain: CollapsedMixtureChain) -> bool:
    return chain.anchor is None
