"""Gaussian mixtures with independent priors whose rows come one after another, parameters drawn and not integrated out.

    p(x_m | θ) = Σ_k π_k N(x_m | μ_k, 1/τ_k)

is the weight of the next row, whose label is then drawn; sweeps move labels of the rows so far and parameters given
them (`independent_normal`). Before any row, parameters are draws of their prior.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.prefixes import in_turn, sequential
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain, NormalState


class NormalInTurn(eqx.Module):
    """A chain, and the order in which its `n_units` rows come, (row,); after them those of padding."""

    chain: IndependentNormalChain
    order: Int[np.ndarray, " row"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        return len(self.order)

    def none_yet(self, key: Key[Array, ""], particles: int) -> NormalState:
        """Parameters from their prior; no row has a label: −1."""
        state = self.chain.init(key, particles)
        return state._replace(labels=jnp.full_like(state.labels, -1))

    def append(
        self, key: Key[Array, ""], state: NormalState, unit: Int[Array, ""]
    ) -> tuple[NormalState, Float[Array, " particle"]]:
        row = jnp.asarray(self.order)[unit]
        score = self.chain.scores(state, row)
        label = self.chain.chosen(score, jax.random.uniform(key, score.shape[1:], score.dtype))
        return self._with_label(state, row, label), self._worth(score, row)

    def remove(
        self, key: Key[Array, ""], state: NormalState, unit: Int[Array, ""]
    ) -> tuple[NormalState, Float[Array, " particle"]]:
        row = jnp.asarray(self.order)[unit]
        nowhere = jnp.full_like(state.labels[0], -1)
        return self._with_label(state, row, nowhere), self._worth(self.chain.scores(state, row), row)

    def revisit(self, key: Key[Array, ""], state: NormalState, units: Int[Array, ""], *, backward: bool) -> NormalState:
        came = jnp.zeros(self.places, bool).at[jnp.asarray(self.order)].set(jnp.arange(self.places) < units)
        return self.chain.swept(key, state, jnp.ones(()), backward, came)

    def take(self, state: NormalState, particles: Int[Array, " chosen"]) -> NormalState:
        return self.chain.take(state, particles)

    def _with_label(self, state: NormalState, row: Array, label: Array) -> NormalState:
        return state._replace(labels=state.labels.at[row].set(label.astype(state.labels.dtype)))

    def _worth(self, score: Float[Array, "component particle"], row: Array) -> Float[Array, " particle"]:
        """log p(row | parameters)."""
        return jax.scipy.special.logsumexp(score, axis=0) + jnp.asarray(self.chain.carriers)[row]


@sequential.register
def _(chain: IndependentNormalChain, key: Key[Array, ""]) -> NormalInTurn:
    return NormalInTurn(chain, *in_turn(key, np.asarray(chain.weight) > 0))
