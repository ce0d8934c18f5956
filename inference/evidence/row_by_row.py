"""Mixtures whose rows come one after another: what a row is worth, given the labels of the rows before.

    p(x_m | x_1 … x_{m−1}, z) = Σ_k (n_k + a) / (m − 1 + Ka) · h(x_m) exp[A(λ + S_k + s(x_m)) − A(λ + S_k)],

n_k and S_k of the rows before: the conditional of the collapsed sweep (`mixtures`), whose normaliser is the weight.
Hyper-parameters with priors are drawn from these before any row and move with every sweep, given the rows so far.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.dispatch import along_data
from lvsearch.inference.annealing.prefixes import in_turn, sequential
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture, HyperMixtureState
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, Joining


class RowByRow(eqx.Module):
    """A chain from the prior, the order in which its `n_units` rows come, (row,), and after them those of padding."""

    chain: CollapsedMixtureChain
    order: Int[np.ndarray, " row"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        return len(self.order)

    def none_yet(self, key: Key[Array, ""], particles: int) -> CollapsedState:
        """No row has a label: −1."""
        return self.chain.of_labels(jnp.full((self.places, particles), -1, jnp.int32))

    def append(
        self, key: Key[Array, ""], state: CollapsedState, unit: Int[Array, ""]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        row = jnp.asarray(self.order)[unit]
        joining = self.chain.joining(state, row, self._normalisers(state))
        score = joining.score
        label = self.chain.chosen(score, jax.random.uniform(key, score.shape[1:], score.dtype))
        return self.chain.joined(state, row, label, joining.natural), self._worth(state, score, row)

    def remove(
        self, key: Key[Array, ""], state: CollapsedState, unit: Int[Array, ""]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        return self.removed(state, unit, self.chain.prior)

    def revisit(
        self, key: Key[Array, ""], state: CollapsedState, units: Int[Array, ""], *, backward: bool
    ) -> CollapsedState:
        # summed anew, so that rounding does not add up over sweeps
        return self.revisited(key, self.chain.of_labels(state.labels), units, backward, self.chain.prior)

    def take(self, state: CollapsedState, particles: Int[Array, " chosen"]) -> CollapsedState:
        return self.chain.take(state, particles)

    def removed(
        self, state: CollapsedState, unit: Int[Array, ""], prior: Any
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """`remove` under this λ: (…) a leaf, or (particle, …)."""
        row = jnp.asarray(self.order)[unit]
        left = self.chain.without(state, row, prior)
        worth = self._worth(left, self.chain.joining(left, row, self._normalisers(left)).score, row)
        return left._replace(labels=left.labels.at[row].set(-1)), worth

    def revisited(
        self, key: Key[Array, ""], state: CollapsedState, units: Int[Array, ""], backward: bool, prior: Any
    ) -> CollapsedState:
        """`revisit` under this λ."""

        def one(place: Array, carry: tuple[CollapsedState, Array]) -> tuple[CollapsedState, Array]:
            row = jnp.asarray(self.order)[units - 1 - place if backward else place]
            uniform = jax.random.uniform(jax.random.fold_in(key, place), carry[1].shape[1:], carry[1].dtype)

            def choose(left: CollapsedState, joining: Joining) -> Int[Array, " particle"]:
                return self.chain.chosen(self.chain.tempered(joining, row, None), uniform)

            return self.chain.redrawn(*carry, row, choose, prior)

        return jax.lax.fori_loop(0, units, one, (state, self._normalisers(state)))[0]

    def _normalisers(self, state: CollapsedState) -> Float[Array, "component particle"]:
        """A(λ + S_k)."""
        return self.chain.normalisers(state.natural).sum(-1)

    def _worth(
        self, before: CollapsedState, score: Float[Array, "label particle"], row: Int[Array, ""]
    ) -> Float[Array, " particle"]:
        """log p(row | the rows before and their labels)."""
        seats = before.counts.sum(0) + self.chain.total_concentration()
        carrier = jnp.asarray(self.chain.carriers, score.dtype)[row]
        score = jnp.where(self.chain.names.exist(self.chain.size), score, -jnp.inf)
        return jax.scipy.special.logsumexp(score, axis=0) - jnp.log(seats) + carrier


class HyperRowByRow(eqx.Module):
    """The rows of a chain whose hyper-parameters have priors."""

    chain: HyperMixture
    rows: RowByRow

    @property
    def places(self) -> int:
        return self.rows.places

    @property
    def n_units(self) -> Int[Array | np.ndarray, ""]:
        return self.rows.n_units

    def none_yet(self, key: Key[Array, ""], particles: int) -> HyperMixtureState:
        labels = jnp.full((self.places, particles), -1, jnp.int32)
        return self.chain.of_labels(labels, self.chain.drawn_hyper(key, particles))

    def append(
        self, key: Key[Array, ""], state: HyperMixtureState, unit: Int[Array, ""]
    ) -> tuple[HyperMixtureState, Float[Array, " particle"]]:
        mixture, worth = self.rows.append(key, state.mixture, unit)
        return state._replace(mixture=mixture), worth

    def remove(
        self, key: Key[Array, ""], state: HyperMixtureState, unit: Int[Array, ""]
    ) -> tuple[HyperMixtureState, Float[Array, " particle"]]:
        mixture, worth = self.rows.removed(state.mixture, unit, self.chain.prior(state.log_hyper))
        return state._replace(mixture=mixture), worth

    def revisit(
        self, key: Key[Array, ""], state: HyperMixtureState, units: Int[Array, ""], *, backward: bool
    ) -> HyperMixtureState:
        key_rows, key_hyper = jax.random.split(key)
        if backward:
            state = self.chain.with_hyper_moved(key_hyper, state, jnp.ones(()), backward)
        # sums are new since the hyper-parameters last moved
        prior = self.chain.prior(state.log_hyper)
        state = state._replace(mixture=self.rows.revisited(key_rows, state.mixture, units, backward, prior))
        return state if backward else self.chain.with_hyper_moved(key_hyper, state, jnp.ones(()), backward)

    def take(self, state: HyperMixtureState, particles: Int[Array, " chosen"]) -> HyperMixtureState:
        return self.chain.take(state, particles)


@sequential.register
def _(chain: CollapsedMixtureChain, key: Key[Array, ""]) -> RowByRow | None:
    if chain.anchor is not None:
        return None
    return RowByRow(chain, *in_turn(key, np.asarray(chain.weight) > 0))


@sequential.register
def _(chain: HyperMixture, key: Key[Array, ""]) -> HyperRowByRow | None:
    rows = sequential(chain.mixture, key)
    return HyperRowByRow(chain, rows) if isinstance(rows, RowByRow) else None


@along_data.register
def _(chain: CollapsedMixtureChain) -> bool:
    return chain.anchor is None


@along_data.register
def _(chain: HyperMixture) -> bool:
    return chain.mixture.anchor is None
