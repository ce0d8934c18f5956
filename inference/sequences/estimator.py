"""The estimator of hidden Markov models: starts from a mixture of the rows, compiled ascent, proposals, and the bound
in float64."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.groups import rows_of_groups
from lvsearch.inference.data.memory import MIB, Chunks, MemoryPlan, Part, machine_chunks
from lvsearch.inference.data.rows import rows
from lvsearch.inference.engine.estimator import Estimate, beliefs_of, capacity_of, cut_axes, estimator, pad_axes
from lvsearch.inference.engine.meanfield import Beliefs, globals_bound
from lvsearch.inference.engine.meanfield_starts import blank_globals
from lvsearch.inference.mixtures.cuts import find_cuts
from lvsearch.inference.mixtures.estimator import MixtureEstimator, MixtureSettings
from lvsearch.inference.mixtures.kernel import survey
from lvsearch.inference.mixtures.packing import pack_increment
from lvsearch.inference.mixtures.proposals import Idea, Proposal, Standing, ideas, improve
from lvsearch.inference.mixtures.rows import cast_tiles
from lvsearch.inference.mixtures.starts import split_along_spread
from lvsearch.inference.sequences.kernel import Sequences, ascend_paths, beliefs_from, exact_log_totals, survey_paths
from lvsearch.models.components import Component, log_normalisers
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.hidden_markov import HiddenMarkov
from lvsearch.models.units import Row

TRIMMED_ROWS = 64
"""Longer sequences are padded to a multiple of it."""
POOLED = MixtureSettings(sweeps=100, rounds=5)
"""Of a mixture that a fit begins from: states are looked for again with their order."""


@dataclass(frozen=True)
class SequenceSettings:
    """How hard to try. Tolerances in nats per row and sweep.

    | field | meaning |
    |---|---|
    | `pooled` | of the mixture of all rows, order forgotten, from which a fit from scratch begins |
    | `sweeps`, `tolerance` | of the ascent |
    | `rounds`, `proposals` | rounds of proposals, and how many of each kind a round tries; 0 rounds for none |
    | `climb_sweeps` | sweeps given to a proposal |
    | `double_below` | rows × states × statistics up to which everything is in float64 |
    """

    pooled: MixtureSettings = POOLED
    sweeps: int = 1000
    tolerance: float = 1e-6
    rounds: int = 10
    proposals: int = 2
    climb_sweeps: int = 40
    double_below: float = 2e6


class HiddenMarkovEstimator:
    """Fits a `HiddenMarkov` to sequences: the same bound as the generic engine, sequences side by side."""

    shrinks = False

    def __init__(self, model: HiddenMarkov, data: Dataset, settings: SequenceSettings = SequenceSettings()):
        self.model, self.settings, self.data = model, settings, trimmed(data)
        units, lengths = rows_of_groups(data)
        model.components.check(units)
        concentration = None if model.concentration is None else 1.0
        mixture = FiniteMixture(model.components, concentration)
        self.pooled = MixtureEstimator(mixture, rows_in_order(units), settings.pooled)
        self.n_rows = int(lengths.sum())
        self.batches, self.log_carrier = sequences_of(model.components, self.data)
        self.places = _places(self.data, lengths)
        self.chunks = machine_chunks()

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """The pooled mixture's; and increments, and the recursions of every row."""
        (capacity,) = capacity_of(size)
        padded = sum(batch.present.size for batch in self.batches)
        own = (
            Part("increments", 3 * sum(batch.increments.nbytes for batch in self.batches)),
            Part("recursions", 8 * 8 * capacity * padded),
            Part("compiled programs of sequences", 150 * MIB),
        )
        return MemoryPlan((*self.pooled.memory_plan(size).parts, *own))

    def with_chunks(self, chunks: Chunks) -> "HiddenMarkovEstimator":
        """Itself, but for what `chunks` says: sequences stay resident."""
        other = copy(self)
        other.chunks = chunks
        return other

    def work(self, size: tuple[int, ...]) -> float:
        """Rows × states × (statistics + states) of one pass."""
        return float(self.n_rows) * size[0] * (self.batches[0].increments.shape[-1] + size[0])

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """From a mixture of the rows; or from another size's states, the largest of them split into the new ones."""
        double = self.work(size) <= self.settings.double_below
        pooled = self.pooled.fit(size, key, None) if start is None else None
        with jax.enable_x64(double):
            run = _Run(self, size, np.float64 if double else np.float32)
            standing = run.fit(run.pooled_shares(pooled) if start is None else run.grown_shares(start))[0]
        natural = cut_axes(self.model, standing.beliefs.natural, size, run.capacity)
        natural = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), natural)
        lower = recorded_bound(self.model, self.batches, self.log_carrier, natural, size)
        exact = self.model.concentration is None  # paths summed out at point estimates: nothing is bounded
        upper = lower + 1e-9 * max(1.0, abs(lower)) if exact else np.inf
        return Estimate(self.model, size, natural, lower, upper, run.passes)


class _Run:
    """One fit at one size in one precision."""

    def __init__(self, owner: HiddenMarkovEstimator, size: tuple[int, ...], dtype: Any):
        self.owner, self.model, self.settings = owner, owner.model, owner.settings
        self.size, self.capacity, self.dtype = size, capacity_of(size), dtype
        self.batches = tuple(Sequences(jnp.asarray(b.increments, dtype), jnp.asarray(b.present)) for b in owner.batches)
        self.tiles = jax.tree.map(jax.device_put, cast_tiles(owner.pooled.prepared.tiles, dtype))
        self.passes = 0

    def fit(self, shares: np.ndarray) -> tuple[Standing, tuple[Proposal, ...]]:
        """From states of the rows (rows, K)."""
        standing = self._climb(shares, self.settings.sweeps)
        if not self.settings.rounds:
            return standing, ()
        most = 3 * self.passes + self.settings.rounds * self.settings.climb_sweeps
        standing, record = improve(
            standing,
            self._ideas,
            lambda shares: self._climb(shares, self.settings.climb_sweeps),
            self._tolerance * 10,
            self.settings.rounds,
            lambda: self.passes > most,
        )
        if any(proposal.accepted for proposal in record):
            standing = self._standing(self._ascend(standing.beliefs, self.settings.sweeps))
        return standing, record

    @property
    def _tolerance(self) -> float:
        return self.settings.tolerance * self.owner.n_rows

    def _ascend(self, beliefs: Beliefs, sweeps: int) -> Beliefs:
        trace = ascend_paths(
            self.model, beliefs, self.batches, self.size, self._tolerance, sweeps, capacity=self.capacity
        )
        self.passes += int(trace.sweeps)
        return trace.beliefs

    # ── states of the rows, (rows, K) in the order of the sequences ─────────────────────────────────────────────────

    def pooled_shares(self, pooled: Estimate | None) -> Float[np.ndarray, "row state"]:
        """Those of a mixture of all rows."""
        assert pooled is not None
        owner = self.owner.pooled
        natural = pad_axes(owner.model, pooled.natural, self.size, self.capacity)
        natural = jax.tree.map(lambda leaf: np.asarray(leaf, self.dtype), natural)
        beliefs = beliefs_of(owner.model, natural, self.size, capacity=self.capacity)
        layout = owner.prepared.layout
        seen = survey(owner.model, beliefs, self.tiles, self.size, layout=layout, capacity=self.capacity)
        flat = np.asarray(seen.shares, np.float64).reshape(-1, self.capacity[0])
        return flat[: self.owner.n_rows, : self.size[0]]

    def grown_shares(self, start: Estimate) -> Float[np.ndarray, "row state"]:
        """Those of another size's fit, the largest states split."""
        old = capacity_of(start.size)
        natural = pad_axes(self.model, start.natural, start.size, old)
        natural = jax.tree.map(lambda leaf: np.asarray(leaf, self.dtype), natural)
        beliefs = beliefs_of(self.model, natural, start.size, capacity=old)
        seen = survey_paths(self.model, beliefs, self.batches, start.size, capacity=old)
        shares = self._in_order(seen.shares)[:, : start.size[0]]
        shares = np.pad(shares, ((0, 0), (0, max(0, self.size[0] - start.size[0]))))
        for child in range(start.size[0], self.size[0]):
            shares = split_along_spread(shares, self._coordinates, int(np.argmax(shares.sum(0))), child)
        return shares[:, : self.size[0]]

    @property
    def _coordinates(self) -> np.ndarray:
        tiles = self.owner.pooled.prepared.tiles
        return np.asarray(tiles.coordinates).reshape(tiles.weight.size, -1)[: self.owner.n_rows]

    def _in_order(self, shares: tuple[Any, ...]) -> Float[np.ndarray, "row state"]:
        out = np.zeros((self.owner.n_rows, np.shape(shares[0])[-1]))
        for place, share in zip(self.owner.places, shares, strict=True):
            out[place[place >= 0]] = np.asarray(share, np.float64)[place >= 0]
        return out

    # ── climbs and proposals ────────────────────────────────────────────────────────────────────────────────────────

    def _climb(self, shares: np.ndarray, sweeps: int) -> Standing:
        wide = np.pad(shares, ((0, 0), (0, self.capacity[0] - shares.shape[1]))).astype(self.dtype)
        per_batch = tuple(np.where(place[..., None] >= 0, wide[place], 0) for place in self.owner.places)
        blank = blank_globals(self.model, self.owner.data.extents, self.size, self.capacity, self.dtype)
        begin = beliefs_from(self.model, per_batch, self.batches, blank, self.size, capacity=self.capacity)
        return self._standing(self._ascend(begin, sweeps))

    def _standing(self, beliefs: Beliefs) -> Standing:
        seen = survey_paths(self.model, beliefs, self.batches, self.size, capacity=self.capacity)
        shares, n = self._in_order(seen.shares)[:, : self.size[0]], self.size[0]
        terms = {"sequences": float(seen.log_total) + self.owner.log_carrier, "globals": float(seen.of_globals)}
        natural = jax.tree.map(lambda leaf: leaf[:n], beliefs.natural["components"])
        prior = self.model.components.prior(self.owner.data.extents["dim"])
        prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, self.dtype), prior)
        together = np.asarray(_together(self.model.components, natural, prior), np.float64)
        return Standing(beliefs, shares, shares.sum(0), together, terms)

    def _ideas(self, standing: Standing) -> Iterator[Idea[np.ndarray]]:
        prepared = self.owner.pooled.prepared
        wide = np.zeros((prepared.tiles.weight.size, self.capacity[0]), self.dtype)
        wide[: self.owner.n_rows, : self.size[0]] = standing.shares
        wide = wide.reshape(*prepared.tiles.weight.shape, self.capacity[0])
        cuts = find_cuts(self.model.components, wide, self.tiles, layout=prepared.layout)
        return ideas(standing, jax.tree.map(np.asarray, cuts), self._coordinates, False, self.settings.proposals)


@jax.jit
@counted
def _together(component: Component, natural: Any, prior: Any) -> Float[Array, "state state"]:
    """A(τ_j + τ_k − λ) − A(τ_j) − A(τ_k): how much better one component explains the rows of both."""
    own = jax.tree.map(jnp.add, natural, prior) if component.estimated else natural
    alone = log_normalisers(component, own)

    def with_all(one: Any) -> Float[Array, " state"]:
        return log_normalisers(component, jax.tree.map(lambda leaf, o, p: leaf + o - p, own, one, prior))

    return jax.lax.map(with_all, own) - alone[:, None] - alone


def rows_in_order(units: Row) -> Dataset:
    """The rows by themselves."""
    return rows(np.asarray(units.value), np.asarray(units.observed))


def trimmed(data: Dataset) -> Dataset:
    """Without most of the padding where it is most of a batch: few sequences, or long ones, pay for every row."""
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
    """Each batch's sequences in float64, and Σ log h of all rows, nats."""
    batches, total = [], 0.0
    with jax.enable_x64(True):
        for batch in data.batches:
            present = np.asarray(batch.units.present) & (np.asarray(batch.weight) > 0)[:, None]
            units = Row(
                np.asarray(batch.units.value, np.float64), np.asarray(batch.units.observed) & present[..., None]
            )
            increments, carriers = _prepared(component, units)
            batches.append(Sequences(np.asarray(increments), present))
            total += float(np.asarray(carriers)[present].sum())
    return tuple(batches), total


@jax.jit
@counted
def _prepared(component: Component, units: Row) -> tuple[Array, Array]:
    """(packed increments, log h) of rows with two leading axes."""

    def one(unit: Row) -> tuple[Array, Array]:
        y, observed = component.coordinates(unit), jnp.asarray(unit.observed)
        return pack_increment(component, y, observed), component.log_carrier(y, observed)

    return jax.vmap(jax.vmap(one))(units)


def _places(data: Dataset, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """For every batch (sequence, row), which of all rows each one is; −1 for padding."""
    starts = np.cumsum(lengths) - lengths
    out = []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        present = np.asarray(batch.units.present) & (ids >= 0)[:, None]
        out.append(np.where(present, starts[ids][:, None] + np.arange(present.shape[1]), -1))
    return tuple(out)


def recorded_bound(
    model: HiddenMarkov, batches: tuple[Sequences, ...], log_carrier: float, natural: Any, size: tuple[int, ...]
) -> float:
    """The bound in float64 at exactly these natural parameters, nats, the paths at their optimum."""
    capacity = capacity_of(size)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), pad_axes(model, natural, size, capacity))
        beliefs = beliefs_of(model, wide, size, capacity=capacity)
        total = float(globals_bound(model, beliefs, size, capacity=capacity)) + log_carrier
        for batch in batches:
            total += float(exact_log_totals(model, beliefs.mean, batch, size, capacity=capacity).sum())
        return total


@estimator.register
def _(model: HiddenMarkov, data: Dataset) -> HiddenMarkovEstimator:
    return HiddenMarkovEstimator(model, data)
