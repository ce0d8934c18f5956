"""Mixtures whose rows come one after another, each weighted by its probability given the rows before it.

    p(x_m | x_1 … x_{m−1}, z) = Σ_k (n_k + a) / (m − 1 + Ka) · h(x_m) exp[A(λ + S_k + s(x_m)) − A(λ + S_k)],

with n_k and S_k of the rows before. It is the normaliser of the conditional of the collapsed sweep (`mixtures`).
Hyper-parameters with priors are drawn from their priors before any row, and move with every sweep, given the rows so
far.
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
    """The rows of a mixture in a random order: a `Sequential` on the path from the prior.

    | field | meaning |
    |---|---|
    | `chain` | the chain, on the path from the prior |
    | `order` | the rows in the order in which they come, padding last, (row,) |
    | `n_units` | how many rows are not padding |
    """

    chain: CollapsedMixtureChain
    order: Int[np.ndarray, " row"]
    n_units: Int[Array | np.ndarray, ""]

    @property
    def places(self) -> int:
        """The number of rows, padding included."""
        return len(self.order)

    def none_yet(self, key: Key[Array, ""], particles: int) -> CollapsedState:
        """Return states in which no row has a label (all are −1)."""
        return self.chain.of_labels(jnp.full((self.places, particles), -1, jnp.int32))

    def append(
        self, key: Key[Array, ""], state: CollapsedState, unit: Int[Array, ""]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Draw the label of the next row; return the new state and log p(row | the rows before), nats."""
        row = jnp.asarray(self.order)[unit]
        joining = self.chain.joining(state, row, self._normalisers(state))
        score = joining.score
        label = self.chain.chosen(score, jax.random.uniform(key, score.shape[1:], score.dtype))
        return self.chain.add_row(state, row, label, joining.natural), self._log_predictive(state, score, row)

    def remove(
        self, key: Key[Array, ""], state: CollapsedState, unit: Int[Array, ""]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Take a row out; return the new state and log p(row | the rows that are left), nats."""
        return self.removed(state, unit, self.chain.prior)

    def revisit(
        self, key: Key[Array, ""], state: CollapsedState, units: Int[Array, ""], *, backward: bool
    ) -> CollapsedState:
        """Draw the labels of the first `units` rows again, one after another, at temperature 1."""
        # summed anew, so that rounding does not add up over sweeps
        return self.revisited(key, self.chain.of_labels(state.labels), units, backward, self.chain.prior)

    def take(self, state: CollapsedState, particles: Int[Array, " chosen"]) -> CollapsedState:
        """Return the state of the named particles, in that order."""
        return self.chain.take(state, particles)

    def removed(
        self, state: CollapsedState, unit: Int[Array, ""], prior: Any
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Do the same as `remove`, under a given λ.

        prior: λ, each leaf (…), or (particle, …).
        """
        row = jnp.asarray(self.order)[unit]
        left = self.chain.remove_row(state, row, prior)
        worth = self._log_predictive(left, self.chain.joining(left, row, self._normalisers(left)).score, row)
        return left._replace(labels=left.labels.at[row].set(-1)), worth

    def revisited(
        self, key: Key[Array, ""], state: CollapsedState, units: Int[Array, ""], backward: bool, prior: Any
    ) -> CollapsedState:
        """Do the same as `revisit`, under a given λ."""

        def one(place: Array, carry: tuple[CollapsedState, Array]) -> tuple[CollapsedState, Array]:
            row = jnp.asarray(self.order)[units - 1 - place if backward else place]
            uniform = jax.random.uniform(jax.random.fold_in(key, place), carry[1].shape[1:], carry[1].dtype)

            def choose(left: CollapsedState, joining: Joining) -> Int[Array, " particle"]:
                return self.chain.chosen(self.chain.tempered(joining, row, None), uniform)

            return self.chain.redrawn(*carry, row, choose, prior)

        return jax.lax.fori_loop(0, units, one, (state, self._normalisers(state)))[0]

    def _normalisers(self, state: CollapsedState) -> Float[Array, "component particle"]:
        """Return A(λ + S_k) of each component, (component, particle)."""
        return self.chain.normalisers(state.natural).sum(-1)

    def _log_predictive(
        self, before: CollapsedState, score: Float[Array, "label particle"], row: Int[Array, ""]
    ) -> Float[Array, " particle"]:
        """Return log p(row | the rows before and their labels), (particle,), nats.

        before: the state without the row. score: the row's score under each label (`Joining.score`).
        """
        seats = before.counts.sum(0) + self.chain.total_concentration()
        carrier = jnp.asarray(self.chain.carriers, score.dtype)[row]
        score = jnp.where(self.chain.names.exist(self.chain.size), score, -jnp.inf)
        return jax.scipy.special.logsumexp(score, axis=0) - jnp.log(seats) + carrier


class HyperRowByRow(eqx.Module):
    """The rows of a mixture whose hyper-parameters have priors, in a random order: a `Sequential`."""

    chain: HyperMixture
    rows: RowByRow

    @property
    def places(self) -> int:
        """The number of rows, padding included."""
        return self.rows.places

    @property
    def n_units(self) -> Int[Array | np.ndarray, ""]:
        """The number of rows that are not padding."""
        return self.rows.n_units

    def none_yet(self, key: Key[Array, ""], particles: int) -> HyperMixtureState:
        """Return states in which no row has a label, with hyper-parameters drawn from their priors."""
        labels = jnp.full((self.places, particles), -1, jnp.int32)
        return self.chain.of_labels(labels, self.chain.drawn_hyper(key, particles))

    def append(
        self, key: Key[Array, ""], state: HyperMixtureState, unit: Int[Array, ""]
    ) -> tuple[HyperMixtureState, Float[Array, " particle"]]:
        """Draw the label of the next row; return the new state and log p(row | the rows before), nats."""
        mixture, worth = self.rows.append(key, state.mixture, unit)
        return state._replace(mixture=mixture), worth

    def remove(
        self, key: Key[Array, ""], state: HyperMixtureState, unit: Int[Array, ""]
    ) -> tuple[HyperMixtureState, Float[Array, " particle"]]:
        """Take a row out; return the new state and log p(row | the rows that are left), nats."""
        mixture, worth = self.rows.removed(state.mixture, unit, self.chain.prior(state.log_hyper))
        return state._replace(mixture=mixture), worth

    def revisit(
        self, key: Key[Array, ""], state: HyperMixtureState, units: Int[Array, ""], *, backward: bool
    ) -> HyperMixtureState:
        """Draw the labels of the first `units` rows again, and the hyper-parameters after them (before them if
        `backward`).
        """
        key_rows, key_hyper = jax.random.split(key)
        if backward:
            state = self.chain.with_hyper_moved(key_hyper, state, jnp.ones(()), backward)
        # sums are new since the hyper-parameters last moved
        prior = self.chain.prior(state.log_hyper)
        state = state._replace(mixture=self.rows.revisited(key_rows, state.mixture, units, backward, prior))
        return state if backward else self.chain.with_hyper_moved(key_hyper, state, jnp.ones(()), backward)

    def take(self, state: HyperMixtureState, particles: Int[Array, " chosen"]) -> HyperMixtureState:
        """Return the state of the named particles, in that order."""
        return self.chain.take(state, particles)


@sequential.register
def _(chain: CollapsedMixtureChain, key: Key[Array, ""]) -> RowByRow | None:
    """Return the rows in an order drawn by the key, or None for a chain on the path around a labelling."""
    if chain.anchor is not None:
        return None
    return RowByRow(chain, *in_turn(key, np.asarray(chain.weight) > 0))


@sequential.register
def _(chain: HyperMixture, key: Key[Array, ""]) -> HyperRowByRow | None:
    """Return the rows in an order drawn by the key, or None for a chain on the path around a labelling."""
    rows = sequential(chain.mixture, key)
    return HyperRowByRow(chain, rows) if isinstance(rows, RowByRow) else None


@along_data.register
def _(chain: CollapsedMixtureChain) -> bool:
    """Return True on the path from the prior, which then goes along the rows."""
    return chain.anchor is None


@along_data.register
def _(chain: HyperMixture) -> bool:
    """Return True on the path from the prior, which then goes along the rows."""
    return chain.mixture.anchor is None
