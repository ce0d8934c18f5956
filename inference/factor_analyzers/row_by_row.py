"""Mixtures of factor analysers whose rows arrive one after another, and what is recorded of their chains.

The predictive density of row m, given the rows before and their labels, scores f and hyper-parameters h, is

    p(x_m | x_1 … x_{m−1}, their labels and scores, h)
        = Σ_k (n_k + a) / (m − 1 + Ka) ∫ Normal(f; 0, I) p(x_m | f, k) df,

with n_k (the number of rows in component k) and p(· | f, k) from the rows before, K components and a Dirichlet
concentration a. The integral is estimated by the candidates of a row (`regressions`). The estimate is unbiased, so the
weights of the path stay exact.

Forward, the row takes one candidate in proportion to the weights. Backward, the row's own label and scores stand among
newly drawn candidates. Each is the time reversal of the other.

With m of n rows, the hyper-parameters' own factor is q(h)^(1 − m/n) p(h)^(m/n). Forward, q is their prior p. Backward,
q is as wide as the draws of the posterior. Why, `evidence/row_by_row` says.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.hyperparameters import courses_around, courses_from_draws
from lvsearch.inference.annealing.prefixes import InTurn
from lvsearch.inference.chains import Anchor
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.evidence.mixtures import anchor_labels
from lvsearch.inference.evidence.recorders import OCCUPIED
from lvsearch.inference.evidence.simulation import Simulated
from lvsearch.inference.factor_analyzers.chain import FactorAnalyzerChain
from lvsearch.inference.factor_analyzers.regressions import CANDIDATES, Candidates, ScoredLabels
from lvsearch.inference.sampling.parameters import LabelReader, places_in_batches
from lvsearch.inference.sampling.trace import Quantity, Recorder, rows_of_units
from lvsearch.models.contract import Model
from lvsearch.models.factor_analyzers import FactorAnalyzerMixture
from lvsearch.models.families import VectorGaussianStatistics


class ScoredRowByRow(InTurn):
    """An annealing path along the rows of a mixture of factor analysers, which arrive in a random order."""

    chain: FactorAnalyzerChain

    def initial_state(self, key: Key[Array, ""], particles: int) -> ScoredLabels:
        """Return the state before any row: hyper-parameters from their prior, and label −1 for every row."""
        labels = jnp.full((self.places, particles), -1, jnp.int32)
        scores = jnp.zeros((self.places, self.chain.component.n_factors, particles))
        return self.chain.state_of(labels, scores, self.chain.draw_hyperparameters(key, particles))

    def on_way_back(self, state: ScoredLabels) -> "ScoredRowByRow":
        """Return the rows for the path back, on which hyper-parameters end as widely spread as they are in `state`."""
        courses = courses_from_draws(self.chain.courses, state.log_hyper)
        return eqx.tree_at(lambda rows: rows.chain.courses, self, courses)

    def append(
        self, key: Key[Array, ""], state: ScoredLabels, unit: Int[Array, ""]
    ) -> tuple[ScoredLabels, Float[Array, " particle"]]:
        """Add the next row: draw its component and scores from candidates.

        unit: the position of the row in the order of arrival.

        Returns the new state, and the log of the estimate of the row's predictive density, with the row's share of
        log p(h) − log q(h), nats.
        """
        row = jnp.asarray(self.order)[unit]
        key_row, key_choice = jax.random.split(key)
        found = self.chain.candidates(key_row, state, row)
        uniform = jax.random.uniform(key_choice, found.log_weight.shape[2:], found.log_weight.dtype)
        return self.chain.add_row(state, row, *self.chain.choose(found, uniform)), self._log_worth(state, found, row)

    def remove(
        self, key: Key[Array, ""], state: ScoredLabels, unit: Int[Array, ""]
    ) -> tuple[ScoredLabels, Float[Array, " particle"]]:
        """Take the last row out of its component.

        unit: the position of the row in the order of arrival.

        Returns the new state, and what `append` would return for the row, nats.
        """
        row = jnp.asarray(self.order)[unit]
        without_row = self.chain.remove_row(state, row)
        found = self.chain.candidates(key, without_row, row, (state.labels[row], state.scores[row]))
        nowhere = jnp.full_like(state.labels[0], -1)
        left = without_row._replace(labels=without_row.labels.at[row].set(nowhere))
        return left, self._log_worth(without_row, found, row)

    def revisit(
        self, key: Key[Array, ""], state: ScoredLabels, units: Int[Array, ""], *, backward: bool
    ) -> ScoredLabels:
        """Sweep over the rows one by one, then all at once, then over the hyper-parameters; in reverse order if
        `backward`.

        units: the number of rows that have arrived; only these move.
        """
        key_rows, key_blocked, key_hyper = jax.random.split(key, 3)
        order = jnp.asarray(self.order)
        came = jnp.zeros(self.places, bool).at[order].set(jnp.arange(self.places) < units)
        share = units / jnp.asarray(self.n_units, jnp.result_type(float))
        if backward:
            state = self.chain.move_hyperparameters(key_hyper, state, 1.0, backward, share)
            state = self.chain.sweep_at_once(key_blocked, state, came, 1.0)
            return self.chain.sweep_in_turn(key_rows, state, order, units, backward)
        state = self.chain.sweep_in_turn(key_rows, state, order, units, backward)
        state = self.chain.sweep_at_once(key_blocked, state, came, 1.0)
        return self.chain.move_hyperparameters(key_hyper, state, 1.0, backward, share)

    def _log_worth(self, before: ScoredLabels, found: Candidates, row: Array) -> Float[Array, " particle"]:
        """Return log of the estimate of p(row | the rows before, their labels and scores), with the row's share of
        log p(h) − log q(h) of the hyper-parameters h, nats.

        before: the state without the row.
        found: the row's candidates and their weights.
        row: the index of the row.
        """
        total = before.counts.sum(0) + self.chain.total_concentration()
        weight = found.log_weight.reshape(-1, len(total))
        carrier = jnp.asarray(self.chain.carriers, weight.dtype)[row]
        predictive = jax.scipy.special.logsumexp(weight, axis=0) - jnp.log(CANDIDATES * total) + carrier
        return predictive + self.chain.log_hyper_ratio(before.log_hyper) / self.n_units


def evidence_chain_of_factor_analyzers(
    model: FactorAnalyzerMixture, data: Dataset, size: tuple[int, ...], estimate: Estimate | None
) -> FactorAnalyzerChain:
    """Return the annealing chain of a mixture of factor analysers from the prior. `estimate` is not used."""
    return FactorAnalyzerChain.from_data(model, data, size[0], capacity_of(size)[0])


def scored_rows_in_turn(chain: FactorAnalyzerChain, key: Key[Array, ""]) -> ScoredRowByRow | None:
    """Return the rows in an order drawn with the key; None on a path where they do not come in turn."""
    return ScoredRowByRow.shuffled(chain, np.asarray(chain.weight) > 0, key) if chain.anchor is None else None


def anchor_of_factor_analyzers(
    chain: FactorAnalyzerChain, key: Key[Array, ""], states: Sequence[ScoredLabels]
) -> Anchor:
    """Return the chain around the labels and the hyper-parameters that the best particle ended with.

    states: the particles at the end of the first path, one state per half.
    """
    log_r, state = anchor_labels(chain, key, states)
    courses = courses_around(chain.courses, state.log_hyper)
    return Anchor(eqx.tree_at(lambda c: c.courses, chain.around_labelling(log_r), courses), 0.0)


# ── simulated data, and records ─────────────────────────────────────────────────────────────────────────────────────


def true_state_of_factor_analyzers(chain: FactorAnalyzerChain, simulated: Simulated, particles: int) -> ScoredLabels:
    """Return a state whose particles all have the simulated component and scores of every row, and hyper-parameters.

    chain: the chain whose state it is.
    simulated: the data set with the latent variables that it was simulated from.
    particles: the number of copies.
    """
    labels = np.argmax(simulated.locals["component"], -1)
    scores = np.asarray(simulated.locals["scores"].value, np.float64)[np.arange(len(labels)), labels]

    def copies(leaf: Any) -> Array:
        """Return an array with `particles` copies of `leaf` on a new last axis."""
        return jnp.asarray(np.repeat(np.asarray(leaf)[..., None], particles, axis=-1))

    log_hyper = {name: np.atleast_1d(simulated.globals[name].log_value) for name in chain.courses}
    each = {name: copies(np.asarray(value, np.float64)) for name, value in log_hyper.items()}
    return chain.state_of(copies(labels.astype(np.int32)), copies(scores), each)


class ScoredRecorder(Recorder):
    """Records the quantities that people ask about in a chain over labels and scores of rows.

    It records the hyper-parameters that have priors (in the components' coordinates), the number of `occupied`
    components and the number of `rows` in each. If `order` is given, it records the `component` of each row too.

    quantities: names and axes of the recorded values.
    order: the position in the chain of each row of the data; None if components of rows are not recorded.
    """

    order: Int[np.ndarray, " units"] | None

    def values(self, chain: FactorAnalyzerChain, state: ScoredLabels) -> tuple[Array, ...]:
        """Return the recorded values of every particle, particles first, in the order of `quantities`.

        Padding has weight 0, so no component counts it.
        """
        rows = jnp.round(state.counts).astype(jnp.int32).T
        axes = chain.component.hyper_axes
        hyper = [
            jnp.exp(state.log_hyper[name]).T if axes[name] else jnp.exp(state.log_hyper[name][0])
            for name in axes
            if name in chain.courses
        ]
        each = () if self.order is None else (state.labels[self.order].T,)
        return (*hyper, (rows > 0).sum(1, dtype=jnp.int32), rows, *each)


def recorder_of_factor_analyzers(chain: FactorAnalyzerChain, data: Dataset, *, units: bool) -> ScoredRecorder:
    """Return the recorder of a chain over labels and scores of rows.

    data: the data set that the chain was made of.
    units: True to record the component of every row as well.
    """
    axes = chain.component.hyper_axes
    hyper = [Quantity(n, axes[n], (data.extents["dim"],) * len(axes[n]), False) for n in axes if n in chain.courses]
    rows = Quantity(OCCUPIED, (), (), False), Quantity("rows", ("component",), (int(chain.size),), True)
    each = (Quantity("component", ("unit",), (data.n_units,), True, "component"),) if units else ()
    return ScoredRecorder((*hyper, *rows, *each), rows_of_units(data) if units else None)


class ScoredReader(LabelReader):
    """The reader of the component and the scores of each row."""

    def known(self, state: ScoredLabels) -> GibbsState:
        """Return the hyper-parameters, the component of each row, and its scores in this component."""
        found = super().known(state)
        batches = []
        for places, variables in zip(self.places, found.locals, strict=True):
            scores = jnp.moveaxis(state.scores[places], -1, 0)[:, :, None] * variables["component"][..., None]
            outer = -0.5 * scores[..., :, None] * scores[..., None, :]
            batches.append({**variables, "scores": VectorGaussianStatistics(scores, outer)})
        return GibbsState(found.globals, tuple(batches))


def reader_of_factor_analyzers(chain: FactorAnalyzerChain, model: Model, data: Dataset) -> ScoredReader:
    """Return the reader of a chain over labels and scores of rows."""
    size, capacity = (chain.size,), (chain.capacity,)
    return ScoredReader(model, size, capacity, 1, places_in_batches(data), hyper=tuple(chain.courses))
