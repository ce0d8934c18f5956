"""The estimator of hidden Markov models: where a fit begins, how it climbs, and what proposals are made from.

A fit begins at a mixture of the rows, order ignored, or at another size's fit. It climbs by compiled coordinate ascent
(`kernel`) from state probabilities of the rows. `mixtures.proposals` makes the proposals, such as to split or to join
states. `mixtures.improving`, whose `RowsEstimator` and `RowsRun` this file extends, tries them from `climb_from` and
keeps those that raise the bound. The bound is recorded in float64.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.rows import rows, rows_of_groups
from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.engine.estimate import Estimate, beliefs_at, capacity_of, recorded_beliefs_and_bound
from lvsearch.inference.engine.estimator import MIB, MemoryPlan, Part
from lvsearch.inference.engine.meanfield import Beliefs
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.inference.mixtures.estimator import MixtureEstimator, MixtureSettings
from lvsearch.inference.mixtures.improving import RowsEstimator, RowsRun, RowsStart
from lvsearch.inference.mixtures.kernel import survey
from lvsearch.inference.mixtures.proposals import Standing
from lvsearch.inference.mixtures.rows import pack_increment
from lvsearch.inference.mixtures.starts import split_along_spread
from lvsearch.inference.sequences.kernel import Sequences, ascend_paths, beliefs_from, exact_log_totals, survey_paths
from lvsearch.models.components import Component
from lvsearch.models.contract import Statistics
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.kernels import kernel
from lvsearch.models.units import Row

TRIMMED_ROWS = 64
"""Longer sequences are padded to a multiple of this number of rows."""
POOLED = MixtureSettings(sweeps=100, rounds=5)
"""The settings of the mixture of all rows from which a fit begins.

It needs little effort, because the ascent changes its states again.
"""


@dataclass(frozen=True)
class SequenceSettings:
    """Settings of the estimator: effort and stopping rules. Tolerances are in nats per row and sweep.

    | field | meaning |
    |---|---|
    | `pooled` | settings of the mixture of all rows, order ignored, from which a fit from scratch begins |
    | `sweeps`, `tolerance` | the most sweeps of the ascent; a sweep that gains less is the last one |
    | `rounds`, `proposals` | rounds of proposals, and how many of each kind a round tries; 0 rounds for none |
    | `climb_sweeps` | the most sweeps of the ascent from a proposal |
    | `double_below` | rows × states × statistics up to which everything is in float64 |
    """

    pooled: MixtureSettings = POOLED
    sweeps: int = 1000
    tolerance: float = 1e-6
    rounds: int = 10
    proposals: int = 2
    climb_sweeps: int = 40
    double_below: float = 2e6


class HiddenMarkovEstimator(RowsEstimator):
    """Fits a `HiddenMarkov` to sequences, with all sequences side by side. Its bound is that of the generic mean
    field.
    """

    model: HiddenMarkov
    settings: SequenceSettings

    def __init__(self, model: HiddenMarkov, data: Dataset, settings: SequenceSettings = SequenceSettings()):
        super().__init__(model)
        self.settings, self.data, self.components = settings, trim_padding(data), model.components
        units, lengths = rows_of_groups(data)
        model.components.check(units)
        concentration = None if model.concentration is None else 1.0
        mixture = FiniteMixture(model.components, concentration)
        self.pooled = MixtureEstimator(mixture, rows_in_order(units), settings.pooled)
        self.n_rows = int(lengths.sum())
        self.batches, self.log_carrier = sequences_of(model.components, self.data)
        self.places = _places(self.data, lengths)
        self.prepared = self.pooled.prepared
        self.exact = model.concentration is None  # paths summed out at point estimates

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return the memory a fit needs: the mixture of all rows, the rows' statistics, recursions of every row, and
        programs.
        """
        (capacity,) = capacity_of(size)
        padded = sum(batch.present.size for batch in self.batches)
        own = (
            Part("increments", 3 * sum(batch.increments.nbytes for batch in self.batches)),
            Part("recursions", 8 * 8 * capacity * padded),
            Part("compiled programs of sequences", 150 * MIB),
        )
        return MemoryPlan((*self.pooled.memory_plan(size).parts, *own))

    def work(self, size: tuple[int, ...]) -> float:
        """Return the work of one pass over the rows: rows × states × (statistics + states)."""
        return float(self.n_rows) * size[0] * (self.batches[0].increments.shape[-1] + size[0])

    def begin(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> RowsStart:
        """Return where a fit begins: another size's fit `start`, or else a mixture of all rows."""
        return RowsStart(key, start, self.pooled.fit(size, key, None) if start is None else None)

    def run(self, size: tuple[int, ...], dtype: Any) -> "_Run":
        """Return the object that makes one fit at this size and in this precision; nothing is fitted yet."""
        return _Run(self, size, dtype)

    def bound(self, natural: dict[str, Statistics], size: tuple[int, ...], l: None) -> float:
        """Return the evidence lower bound in float64 at exactly the given natural parameters, nats.

        q of the paths is at its optimum given the parameters.

        natural: natural parameters of all parameters, by variable.
        l: not used.
        """
        return recorded_bound(self.model, self.batches, self.log_carrier, natural, size)


class _Run(RowsRun[HiddenMarkovEstimator]):
    """One fit at one size in one precision."""

    def __init__(self, owner: HiddenMarkovEstimator, size: tuple[int, ...], dtype: Any):
        super().__init__(owner, size, dtype)
        self.model, self.settings = owner.model, owner.settings
        self.batches = tuple(Sequences(jnp.asarray(b.increments, dtype), jnp.asarray(b.present)) for b in owner.batches)

    @property
    def most_passes(self) -> float:
        """The number of passes over the rows after which no more proposals are tried.

        It is three times the passes made so far, and a climb for every round.
        """
        return float(3 * self.passes + self.settings.rounds * self.settings.climb_sweeps)

    def first_ascent(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"]]:
        """Run the ascent from the states of a mixture of all rows, or of another size's fit.

        Returns its trace, and the bound before each of its sweeps, nats.
        """
        shares = self._pooled_shares(begin.pooled) if begin.start is None else self._grown_shares(begin.start)
        trace = self._from_shares(shares, self.settings.sweeps)
        return trace, trace.bound_history() + self.owner.log_carrier

    def last_ascent(self, standing: Standing) -> AscentTrace:
        """Run the ascent to its end from the fit that proposals led to, and return its trace."""
        return self._ascend(standing.trace.beliefs, self.settings.sweeps)

    def climb_from(self, shares: Float[np.ndarray, "row state"]) -> Standing:
        """Run a short ascent from state probabilities of the rows, and return where it ends, as proposals need it."""
        return self.survey(self._from_shares(shares, self.settings.climb_sweeps))

    def _ascend(self, beliefs: Beliefs, sweeps: int) -> AscentTrace:
        """Run coordinate ascent from the given q of the parameters, return its trace, and count its sweeps."""
        trace = ascend_paths(
            self.model, beliefs, self.batches, self.size, self.tolerance, sweeps, capacity=self.capacity
        )
        self.passes += int(trace.sweeps)
        return trace

    # ── states of the rows, (rows, K) in the order of the sequences ─────────────────────────────────────────────────

    def _pooled_shares(self, pooled: Estimate | None) -> Float[np.ndarray, "row state"]:
        """Return each row's probability of every state under the mixture of all rows.

        pooled: the fit of that mixture.
        """
        assert pooled is not None
        owner = self.owner.pooled
        beliefs = beliefs_at(owner.model, pooled.natural, self.size, self.capacity, self.dtype)
        layout = owner.prepared.layout
        seen = survey(owner.model, beliefs, self.tiles, self.size, layout=layout, capacity=self.capacity)
        flat = np.asarray(seen.shares, np.float64).reshape(-1, self.capacity[0])
        return flat[: self.owner.n_rows, : self.size[0]]

    def _grown_shares(self, start: Estimate) -> Float[np.ndarray, "row state"]:
        """Return each row's probability of every state under another size's fit, with its largest states split."""
        old = capacity_of(start.size)
        beliefs = beliefs_at(self.model, start.natural, start.size, old, self.dtype)
        seen = survey_paths(self.model, beliefs, self.batches, start.size, capacity=old)
        shares = self._rows_in_order(seen.shares)[:, : start.size[0]]
        shares = np.pad(shares, ((0, 0), (0, max(0, self.size[0] - start.size[0]))))
        coordinates = self.coordinates(self.owner.n_rows)
        for child in range(start.size[0], self.size[0]):
            shares = split_along_spread(shares, coordinates, int(np.argmax(shares.sum(0))), child)
        return shares[:, : self.size[0]]

    def _rows_in_order(self, shares: tuple[Any, ...]) -> Float[np.ndarray, "row state"]:
        """Return state probabilities of the rows of all batches in the order of the sequences, padding left out.

        shares: (sequence, row, state) for each batch.
        """
        out = np.zeros((self.owner.n_rows, np.shape(shares[0])[-1]))
        for place, share in zip(self.owner.places, shares, strict=True):
            out[place[place >= 0]] = np.asarray(share, np.float64)[place >= 0]
        return out

    # ── climbs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _from_shares(self, shares: Float[np.ndarray, "row state"], sweeps: int) -> AscentTrace:
        """Run coordinate ascent from state probabilities of the rows, and return its trace."""
        wide = np.pad(shares, ((0, 0), (0, self.capacity[0] - shares.shape[1]))).astype(self.dtype)
        per_batch = tuple(np.where(place[..., None] >= 0, wide[place], 0) for place in self.owner.places)
        blank = blank_globals(self.model, self.owner.data.extents, self.size, self.capacity, self.dtype)
        begin = beliefs_from(self.model, per_batch, self.batches, blank, self.size, capacity=self.capacity)
        return self._ascend(begin, sweeps)

    def survey(self, trace: AscentTrace) -> Standing:
        """Return the end of an ascent in the form in which proposals are made from it."""
        seen = survey_paths(self.model, trace.beliefs, self.batches, self.size, capacity=self.capacity)
        shares = self._rows_in_order(seen.shares)[:, : self.size[0]]
        terms = {"sequences": float(seen.log_total) + self.owner.log_carrier, "globals": float(seen.of_globals)}
        return Standing(trace, shares, shares.sum(0), self.together(trace), terms)


def rows_in_order(units: Row) -> Dataset:
    """Return all rows as a data set in which each row is a unit of its own."""
    return rows(np.asarray(units.value), np.asarray(units.observed))


def trim_padding(data: Dataset) -> Dataset:
    """Return the data set with less padding where padding is most of a batch.

    Every padded row costs time, which matters for few or long sequences.
    """
    batches, unit_ids = [], []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        real = np.flatnonzero(ids >= 0) if 2 * np.sum(ids >= 0) < len(ids) else np.arange(len(ids))
        longest = int(np.asarray(batch.units.present).sum(1).max(initial=1))
        length = -(-longest // TRIMMED_ROWS) * TRIMMED_ROWS
        units = jax.tree.map(lambda leaf, r=real, n=length: np.asarray(leaf)[r, :n], batch.units)
        batches.append(Batch(units, np.asarray(batch.weight)[real]))
        unit_ids.append(ids[real])
    return Dataset.of_batches(tuple(batches), tuple(unit_ids), data.extents, data.n_units)


def sequences_of(component: Component, data: Dataset) -> tuple[tuple[Sequences, ...], float]:
    """Return the sequences of each batch in float64, and the sum of the log base measure (log h) of all rows, nats.

    component: the kind of component that rows come from.
    """
    batches, total = [], 0.0
    with jax.enable_x64(True):
        for batch in data.batches:
            present = np.asarray(batch.units.present) & (np.asarray(batch.weight) > 0)[:, None]
            units = Row(
                np.asarray(batch.units.value, np.float64), np.asarray(batch.units.observed) & present[..., None]
            )
            increments, carriers = _pack_rows(component, units)
            batches.append(Sequences(np.asarray(increments), present))
            total += float(np.asarray(carriers)[present].sum())
    return tuple(batches), total


@kernel(brief=True)
@counted
def _pack_rows(component: Component, units: Row) -> tuple[Array, Array]:
    """Return the packed sufficient statistics (sequence, row, packed) and log base measure (sequence, row; nats) of
    rows.
    """

    def one(unit: Row) -> tuple[Array, Array]:
        """Return the packed statistics and the log base measure of one row."""
        y, observed = component.coordinates(unit), jnp.asarray(unit.observed)
        return pack_increment(component, y, observed), component.log_carrier(y, observed)

    return jax.vmap(jax.vmap(one))(units)


def _places(data: Dataset, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return for every batch the number of each (sequence, row) among all rows of the data; −1 for padding.

    lengths: the number of rows of each sequence.
    """
    starts = np.cumsum(lengths) - lengths
    out = []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        present = np.asarray(batch.units.present) & (ids >= 0)[:, None]
        out.append(np.where(present, starts[ids][:, None] + np.arange(present.shape[1]), -1))
    return tuple(out)


def recorded_bound(
    model: HiddenMarkov, batches: tuple[Sequences, ...], log_carrier: float, natural: Any, size: tuple[int, ...]
) -> float:
    """Return the evidence lower bound in float64 at exactly the given natural parameters, nats.

    q of the paths is at its optimum given the parameters.

    log_carrier: the sum of the log base measure of all rows, nats.
    natural: natural parameters of all parameters, by variable.
    """
    capacity = capacity_of(size)
    with jax.enable_x64(True):
        beliefs, total = recorded_beliefs_and_bound(model, natural, size, capacity)
        for batch in batches:
            total += float(np.sum(exact_log_totals(model, beliefs.mean, batch, size, capacity=capacity)))
        return total + log_carrier
