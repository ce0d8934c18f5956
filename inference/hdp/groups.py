"""The estimator of HDP mixtures: the clusters of all rows together, every group's largest as its first tables, ascent,
and proposals.

What is common to all groups is found first and cheaply, by a Dirichlet-process mixture of the pooled rows with its
sequential starts and proposals; the groups then get weights of their own, and the bound is climbed on the process of
two levels, with merges, deletions and births kept only where it rises. It is recorded in float64 at exactly the globals
that are returned.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import softmax

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.groups import rows_of_groups
from lvsearch.inference.data.memory import MIB, Chunks, MemoryPlan, Part, machine_chunks
from lvsearch.inference.data.packing import pack
from lvsearch.inference.data.rows import rows
from lvsearch.inference.engine.estimator import Estimate, beliefs_of, capacity_of, cut_axes, estimator, pad_axes
from lvsearch.inference.engine.meanfield import Beliefs
from lvsearch.inference.hdp.ascent import Climb, Units, ascend_units, parts_from, survey_units
from lvsearch.inference.hdp.contents import contents_of
from lvsearch.inference.hdp.units import Packed, bound_at, globals_of, packed_units, seat_largest
from lvsearch.inference.hdp.weights import CorpusWeights, starting_weights, weights_from
from lvsearch.inference.mixtures import MixtureEstimator, MixtureSettings
from lvsearch.inference.mixtures.cuts import find_cuts
from lvsearch.inference.mixtures.proposals import Idea, Proposal, Standing, ideas, improve
from lvsearch.inference.mixtures.rows import cast_tiles
from lvsearch.models.components import Component, log_normalisers
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.families import BetaStatistics, GammaStatistics
from lvsearch.models.hdp_mixture import HDPMixture
from lvsearch.models.hyperpriors import GammaPrior


@dataclass(frozen=True)
class GroupSettings:
    """How hard to try. Tolerances in nats per row and pass.

    | field | meaning |
    |---|---|
    | `pooled` | of the mixture of all rows that a fit starts from |
    | `passes`, `tolerance` | of the ascent |
    | `sweeps` | coordinate steps of every group in a pass |
    | `rounds`, `proposals` | rounds of proposals, and how many of each kind a round tries; 0 rounds for none |
    | `climb_passes` | passes given to a proposal |
    | `last_sweeps` | coordinate steps at the final globals, in float64 |
    | `double_below` | rows × components × statistics up to which everything is in float64 |
    """

    pooled: MixtureSettings = field(default_factory=MixtureSettings)
    passes: int = 500
    tolerance: float = 1e-6
    sweeps: int = 2
    rounds: int = 10
    proposals: int = 2
    climb_passes: int = 30
    last_sweeps: int = 10
    double_below: float = 2e6


class GroupsFit(NamedTuple):
    """A fit with its history.

    | field | meaning |
    |---|---|
    | `estimate` | as every estimator gives it |
    | `bounds` | the bound before each pass of the first ascent, nats |
    | `proposals` | every proposal tried on the two levels, in order |
    """

    estimate: Estimate
    bounds: Float[np.ndarray, " pass"]
    proposals: tuple[Proposal, ...]


class GroupsEstimator:
    """Fits `HDPMixture` to groups of rows; `size` is the truncation."""

    shrinks = False

    def __init__(self, model: HDPMixture, data: Dataset, settings: GroupSettings = GroupSettings()):
        self.model, self.settings, self.data = model, settings, data
        contents = contents_of(model, data)
        self.packed: Packed = packed_units(pack(contents.counts, n_batches=1), contents.members)
        self.owner = np.repeat(np.arange(data.n_units), np.diff(contents.counts.indptr))
        units, _ = rows_of_groups(data)
        mixture = DPMixture(model.components, model.shared_concentration)
        every = rows(np.asarray(units.value), np.asarray(units.observed))
        self.pooled = MixtureEstimator(mixture, every, settings.pooled)
        self.chunks = machine_chunks()

    @property
    def n_rows(self) -> int:
        return len(self.owner)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """The pooled mixture's; and densities of every row, and pointers of every group."""
        (capacity,) = capacity_of(size)
        pointers = 8 * self.packed.real.size * self.model.tables * capacity
        plan = self.pooled.memory_plan(size)
        own = (
            Part("densities and shares of rows", 4 * 8 * capacity * self.n_rows),
            Part("pointers", 4 * pointers),
            Part("compiled programs of groups", 150 * MIB),
        )
        return MemoryPlan((*plan.parts, *own))

    def with_chunks(self, chunks: Chunks) -> "GroupsEstimator":
        """Itself, but for what `chunks` says: groups stay resident."""
        other = copy(self)
        other.chunks = chunks
        return other

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """From the clusters of all rows together; or from another truncation's components, the largest split."""
        return self.fit_with_history(size, key, start).estimate

    def work(self, size: tuple[int, ...]) -> float:
        """Rows × components × statistics of one pass."""
        n_dims = self.data.extents["dim"]
        return float(self.n_rows) * size[0] * sum(map(np.size, jax.tree.leaves(self.model.components.prior(n_dims))))

    def fit_with_history(self, size: tuple[int, ...], key: Array, start: Estimate | None = None) -> GroupsFit:
        """As `fit`, with the bound along the way and every proposal."""
        begin = None if start is None else self._as_pooled(start)
        pooled = self.pooled.fit(size, key, begin)
        double = self.work(size) <= self.settings.double_below
        with jax.enable_x64(double):
            run = _Run(self, size, np.float64 if double else np.float32)
            climb, bounds, proposals = run.fit(pooled)
        natural = cut_axes(self.model, climb.beliefs.natural, size, run.capacity)
        natural = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), natural)
        seating = jax.tree.map(np.asarray, climb.seating)
        lower, _ = bound_at(self.model, natural, size, self.packed, seating, self.settings.last_sweeps)
        estimate = Estimate(self.model, size, natural, lower, np.inf, pooled.passes + run.passes)
        return GroupsFit(estimate, bounds, proposals)

    def _as_pooled(self, start: Estimate) -> Estimate:
        """Another truncation's components as those of a mixture of all rows."""
        mixture = self.pooled.model
        named = {"sticks": "shared_sticks", "components": "components", "concentration": "shared_concentration"}
        return start._replace(model=mixture, natural={name: start.natural[named[name]] for name in mixture.globals()})


class _Run:
    """One fit at one size in one precision."""

    def __init__(self, owner: GroupsEstimator, size: tuple[int, ...], dtype: Any):
        self.owner, self.model, self.settings = owner, owner.model, owner.settings
        self.size, self.capacity, self.dtype = size, capacity_of(size), dtype
        packed = owner.packed
        self.units = Units(self._typed(packed.documents.tiles), jnp.asarray(packed.real), self._typed(packed.members))
        self.tiles = jax.tree.map(jax.device_put, cast_tiles(owner.pooled.prepared.tiles, dtype))
        self.passes = 0

    def fit(self, pooled: Estimate) -> tuple[Climb, np.ndarray, tuple[Proposal, ...]]:
        climb = self._from_shares(self._pooled_shares(pooled), self.settings.passes)
        bounds = np.asarray(climb.bounds, np.float64)[: int(climb.passes)]
        if not self.settings.rounds:
            return climb, bounds, ()
        most = 3 * self.passes + self.settings.rounds * self.settings.climb_passes
        standing, record = improve(
            self._standing(climb),
            self._ideas,
            lambda shares: self._standing(self._from_shares(shares, self.settings.climb_passes)),
            self._tolerance * 10,
            self.settings.rounds,
            lambda: self.passes > most,
        )
        if any(proposal.accepted for proposal in record):
            climb = self._from_shares(standing.shares, self.settings.passes, standing.beliefs)
        return climb, bounds, record

    @property
    def _tolerance(self) -> float:
        return self.settings.tolerance * self.owner.n_rows

    def _typed(self, tree: Any) -> Any:
        def typed(leaf: Any) -> Array:
            floating = np.issubdtype(np.asarray(leaf).dtype, np.floating)
            return jnp.asarray(leaf, self.dtype if floating else None)

        return jax.tree.map(typed, tree)

    # ── from shares of the rows ─────────────────────────────────────────────────────────────────────────────────────

    def _pooled_shares(self, pooled: Estimate) -> Float[np.ndarray, "row component"]:
        """Of every row, at the fit of all rows together."""
        n, model = self.size[0], self.model
        blank = self._natural(starting_weights(model, n))
        natural = pad_axes(model, {**blank, "components": pooled.natural["components"]}, self.size, self.capacity)
        mean = beliefs_of(model, self._typed(natural), self.size, capacity=self.capacity).mean
        seen, _ = globals_of(model, mean, self.units.members, self.size, capacity=self.capacity)
        weights, _ = self.owner.pooled.model.expected_weights(pooled.natural)
        logits = np.asarray(seen.log_topics, np.float64)[:, :n] + np.log(np.maximum(weights, 1e-300))
        return softmax(logits, axis=1)

    def _from_shares(
        self, shares: Float[np.ndarray, "row component"], passes: int, beliefs: Beliefs | None = None
    ) -> Climb:
        """An ascent from the seats that follow from shares, components most tables first; from these globals, or from
        those that follow as well."""
        model, owner, n = self.model, self.owner, self.size[0]
        in_groups = np.zeros((owner.data.n_units, n))
        np.add.at(in_groups, owner.owner, shares)
        weights = weights_from(model, in_groups)
        if beliefs is None:
            order = np.argsort(-weights.tables, kind="stable")  # sticks do best in order of size
            weights = weights._replace(beta=weights.beta[order], tables=weights.tables[order])
            in_groups, shares = in_groups[:, order], shares[:, order]
            natural = self._typed(pad_axes(model, self._natural(weights), self.size, self.capacity))
            beliefs = beliefs_of(model, natural, self.size, capacity=self.capacity)
            wide = self._typed(np.pad(shares, ((0, 0), (0, self.capacity[0] - n))))
            beliefs = parts_from(model, wide, beliefs, self.units.members, self.size, capacity=self.capacity)
        in_slots = owner.packed.documents.scatter(in_groups)
        seating = self._typed(seat_largest(in_slots, self.capacity[0], model.tables, weights.alpha))
        climb = ascend_units(
            model,
            beliefs,
            seating,
            self.units,
            self.size,
            self._tolerance,
            passes,
            self.settings.sweeps,
            capacity=self.capacity,
        )
        self.passes += int(climb.passes)
        return climb

    def _natural(self, weights: CorpusWeights) -> dict[str, Any]:
        """Natural parameters of globals about these weights, components at their prior."""
        model = self.model
        tables: Any = weights.tables
        beyond: Any = np.maximum(tables.sum() - np.cumsum(tables), 0.0)
        prior = model.components.prior(self.owner.data.extents["dim"])
        found: dict[str, Any] = {
            "shared_sticks": BetaStatistics(tables, weights.gamma + beyond - 1),
            "components": jax.tree.map(
                lambda leaf: np.broadcast_to(np.asarray(leaf), (len(tables), *np.shape(leaf))), prior
            ),
        }
        for level, value in zip(model.levels, (weights.gamma, weights.alpha), strict=True):
            given = model.given(level)
            if isinstance(given, GammaPrior):
                mean: tuple[Any, Any] = np.asarray(given.shape - 1), np.asarray(given.shape / value)
                found[level.concentration] = GammaStatistics(*mean)
        return {name: found[name] for name in model.globals()}

    # ── proposals ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _standing(self, climb: Climb) -> Standing:
        seen = survey_units(
            self.model,
            climb.beliefs,
            climb.seating,
            self.units,
            self.size,
            self.settings.sweeps,
            capacity=self.capacity,
        )
        n = self.size[0]
        shares = np.asarray(seen.shares, np.float64)[:, :n]
        prior = self._typed(self.model.components.prior(self.owner.data.extents["dim"]))
        natural = jax.tree.map(lambda leaf: leaf[:n], climb.beliefs.natural["components"])
        together = np.asarray(_together(self.model.components, natural, prior), np.float64)
        return Standing(climb.beliefs, shares, shares.sum(0), together, seen.terms("groups"))

    def _ideas(self, standing: Standing) -> Iterator[Idea]:
        prepared = self.owner.pooled.prepared
        n_slots = prepared.tiles.weight.size
        wide = np.zeros((n_slots, self.capacity[0]))
        wide[: self.owner.n_rows, : self.size[0]] = standing.shares
        wide = wide.reshape(*prepared.tiles.weight.shape, self.capacity[0]).astype(self.dtype)
        cuts = find_cuts(self.model.components, wide, self.tiles, layout=prepared.layout)
        coordinates = np.asarray(prepared.tiles.coordinates).reshape(n_slots, -1)[: self.owner.n_rows]
        # not as `ordered`: an ascent puts components in order anyway
        return ideas(standing, jax.tree.map(np.asarray, cuts), coordinates, False, self.settings.proposals)


@jax.jit
@counted
def _together(component: Component, natural: Any, prior: Any) -> Float[Array, "component component"]:
    """A(τ_j + τ_k − λ) − A(τ_j) − A(τ_k): how much better one component explains the rows of both."""
    alone = log_normalisers(component, natural)

    def with_all(one: Any) -> Float[Array, " component"]:
        return log_normalisers(component, jax.tree.map(lambda leaf, o, p: leaf + o - p, natural, one, prior))

    return jax.lax.map(with_all, natural) - alone[:, None] - alone


@estimator.register
def _(model: HDPMixture, data: Dataset) -> GroupsEstimator:
    return GroupsEstimator(model, data)
