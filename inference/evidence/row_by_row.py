"""Mixtures whose rows come one after another, each weighted by its probability given the rows before it.

    p(x_m | x_1 … x_{m−1}, z) = Σ_k (n_k + a) / (m − 1 + Ka) · h(x_m) exp[A(λ + S_k + s(x_m)) − A(λ + S_k)],

with n_k the number of rows before in component k, and S_k the sum of their statistics. The other letters are those of
`mixtures`. It is the normaliser of the conditional of the collapsed sweep there. Hyper-parameters with priors are drawn
from a first distribution q before any row, and move with every sweep, given the rows so far. With m of n rows their own
factor is q(h)^(1 − m/n) p(h)^(m/n).

Forward, q is the prior p. Backward, q is as wide as the draws of the posterior (`on_way_back`). For a prior that is
wide against the posterior, such as the Gamma(0.2) of Richardson & Green, the weights of the way back to p have an
infinite variance. With few rows the posterior of a rate β is ∝ β^(g + α − 1) near 0, and the weight of a row that goes
is ∝ β^(−α), whose square has no mean for α > g. Estimates from the way back were half a nat too high, and more
temperatures did not help.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.hyperparameters import courses_from_draws
from lvsearch.inference.annealing.prefixes import InTurn
from lvsearch.inference.evidence.mixture_hyperparameters import (
    HyperMixture,
    HyperMixtureState,
)
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.evidence.variant_labels import CollapsedState, RowScores


class RowByRow(InTurn):
    """The rows of a mixture in a random order, for annealing along the rows (`Sequential`)."""

    chain: CollapsedMixtureChain

    def append(
        self, key: Key[Array, ""], state: CollapsedState, unit: Int[Array, ""]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Draw the label of the next row given the rows before.

        unit: the number of the row in the order in which rows come.

        Returns: (the new state, log p(row | the rows before) of each particle in nats, (particle,)).
        """
        row = jnp.asarray(self.order)[unit]
        joining = self.chain.score_row(state, row, self._normalisers(state))
        score = joining.scores.score
        label = self.chain.draw_label(score, jax.random.uniform(key, score.shape[1:], score.dtype))
        return self.chain.add_row(state, row, label, joining.natural), self._log_predictive(state, score, row)

    def remove(
        self, key: Key[Array, ""], state: CollapsedState, unit: Int[Array, ""]
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Take the last row out of its component. The key is not used.

        unit: the number of the row in the order in which rows come.

        Returns: (the new state, log p(row | the rows that are left) of each particle in nats, (particle,)).
        """
        return self.remove_under(state, unit, self.chain.own_prior())

    def revisit(
        self, key: Key[Array, ""], state: CollapsedState, units: Int[Array, ""], *, backward: bool
    ) -> CollapsedState:
        """Return the state with the labels of the first `units` rows drawn again, one after another, at temperature 1.

        backward: the last row first.
        """
        return self.revisit_under(key, self.chain.summed_anew(state), units, backward, self.chain.own_prior())

    def remove_under(
        self, state: CollapsedState, unit: Int[Array, ""], prior: Any
    ) -> tuple[CollapsedState, Float[Array, " particle"]]:
        """Take the last row out of its component, under a given prior of the components.

        unit: the number of the row in the order in which rows come.
        prior: λ, the natural parameters of a component without rows, (statistic,) or (particle, statistic).

        Returns: (the new state, log p(row | the rows that are left) of each particle in nats, (particle,)).
        """
        row = jnp.asarray(self.order)[unit]
        left = self.chain.remove_row(state, row, prior)
        worth = self._log_predictive(left, self.chain.score_row(left, row, self._normalisers(left)).scores.score, row)
        return left._replace(labels=left.labels.at[row].set(-1)), worth

    def revisit_under(
        self, key: Key[Array, ""], state: CollapsedState, units: Int[Array, ""], backward: bool, prior: Any
    ) -> CollapsedState:
        """Return the state with the labels of the first `units` rows drawn again, under a given prior of the
        components.

        backward: the last row first.
        prior: λ, the natural parameters of a component without rows, (statistic,) or (particle, statistic).
        """

        def choose(row: Array, left: CollapsedState, scores: RowScores) -> Int[Array, " particle"]:
            score = self.chain.log_conditional(scores, row, None)
            uniform = jax.random.uniform(jax.random.fold_in(key, row), score.shape[1:], score.dtype)
            return self.chain.draw_label(score, uniform)

        return self.chain.redraw_rows(state, jnp.asarray(self.order), units, choose, prior, backward=backward)

    def _normalisers(self, state: CollapsedState) -> Float[Array, "component particle"]:
        """Return A(λ + S_k), the log-normaliser of each component with its rows, (component, particle), in nats."""
        return self.chain.normalisers(state.natural)

    def _log_predictive(
        self, before: CollapsedState, score: Float[Array, "label particle"], row: Int[Array, ""]
    ) -> Float[Array, " particle"]:
        """Return log p(row | the rows before and their labels), (particle,), in nats.

        before: the state without the row.
        score: the row's score under each label (`RowScores.score`).
        row: the number of the row.
        """
        seats = before.counts.sum(0) + self.chain.total_concentration()
        carrier = jnp.asarray(self.chain.carriers, score.dtype)[row]
        score = jnp.where(self.chain.names.exist(self.chain.size), score, -jnp.inf)
        return jax.scipy.special.logsumexp(score, axis=0) - jnp.log(seats) + carrier


class HyperRowByRow(eqx.Module):
    """The rows of a mixture whose hyper-parameters have priors, in a random order, for annealing along the rows.

    `chain`: the chain over labels and hyper-parameters. `rows`: the rows in their order.
    """

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

    def initial_state(self, key: Key[Array, ""], particles: int) -> HyperMixtureState:
        """Return the state before any row has come, with hyper-parameters drawn from their priors."""
        labels = jnp.full((self.places, particles), -1, jnp.int32)
        return self.chain.state_from_labels(labels, self.chain.drawn_hyper(key, particles))

    def on_way_back(self, state: HyperMixtureState) -> "HyperRowByRow":
        """Return the rows for the path back, on which hyper-parameters end as widely spread as they are in `state`."""
        courses = courses_from_draws(self.chain.courses, state.log_hyper)
        return eqx.tree_at(lambda rows: rows.chain.courses, self, courses)

    def append(
        self, key: Key[Array, ""], state: HyperMixtureState, unit: Int[Array, ""]
    ) -> tuple[HyperMixtureState, Float[Array, " particle"]]:
        """Draw the label of the next row given the rows before and the hyper-parameters.

        unit: the number of the row in the order in which rows come.

        Returns: (the new state, log p(row | the rows before) of each particle in nats, (particle,)), with the row's
            share of log p(h) − log q(h) of the hyper-parameters h.
        """
        mixture, worth = self.rows.append(key, state.mixture, unit)
        return state._replace(mixture=mixture), worth + self._share_of_row(state)

    def remove(
        self, key: Key[Array, ""], state: HyperMixtureState, unit: Int[Array, ""]
    ) -> tuple[HyperMixtureState, Float[Array, " particle"]]:
        """Take the last row out of its component. The key is not used.

        unit: the number of the row in the order in which rows come.

        Returns: (the new state, log p(row | the rows that are left) of each particle in nats, (particle,)), with
            the row's share of log p(h) − log q(h) of the hyper-parameters h.
        """
        mixture, worth = self.rows.remove_under(state.mixture, unit, self.chain.prior(state.log_hyper))
        return state._replace(mixture=mixture), worth + self._share_of_row(state)

    def revisit(
        self, key: Key[Array, ""], state: HyperMixtureState, units: Int[Array, ""], *, backward: bool
    ) -> HyperMixtureState:
        """Return the state with the labels of the first `units` rows drawn again, and then the hyper-parameters.

        backward: the hyper-parameters first, then the last row, and so on to the first.
        """
        key_rows, key_hyper = jax.random.split(key)
        share = units / jnp.asarray(self.n_units, jnp.result_type(float))
        if backward:
            state = self.chain.with_hyper_moved(key_hyper, state, jnp.ones(()), backward, share)
        # sums are new since the hyper-parameters last moved
        prior = self.chain.prior(state.log_hyper)
        state = state._replace(mixture=self.rows.revisit_under(key_rows, state.mixture, units, backward, prior))
        return state if backward else self.chain.with_hyper_moved(key_hyper, state, jnp.ones(()), backward, share)

    def take(self, state: HyperMixtureState, particles: Int[Array, " chosen"]) -> HyperMixtureState:
        """Return the state of the chosen particles, in the order in which they are named; a particle may be named
        twice.
        """
        return self.chain.take(state, particles)

    def _share_of_row(self, state: HyperMixtureState) -> Float[Array, " particle"]:
        """Return the share that one row has in log p(h) − log q(h) of the hyper-parameters h, (particle,), in nats."""
        return self.chain.log_hyper_ratio(state.log_hyper) / self.n_units


def is_along_rows(chain: Any) -> bool:
    """Return True on the path from the prior, which leads along the rows; False on the second one.

    chain: a chain over the labels of a mixture.
    """
    return (chain.mixture if isinstance(chain, HyperMixture) else chain).anchor is None


def rows_in_turn(chain: CollapsedMixtureChain, key: Key[Array, ""]) -> RowByRow | None:
    """Return the rows of a mixture in an order drawn with the key; None on a path where they do not come in turn."""
    return RowByRow.shuffled(chain, np.asarray(chain.weight) > 0, key) if is_along_rows(chain) else None


def hyper_rows_in_turn(chain: HyperMixture, key: Key[Array, ""]) -> HyperRowByRow | None:
    """Return the rows of a mixture whose hyper-parameters have priors, as `rows_in_turn` does."""
    rows = rows_in_turn(chain.mixture, key)
    return None if rows is None else HyperRowByRow(chain, rows)
