"""The estimator of HDP mixtures: starts from clusters of all rows together, then ascent and proposals.

Clusters that are common to all groups are found first and cheaply. A Dirichlet-process mixture of the pooled rows finds
them, with its sequential starts and proposals. Then every group gets weights of its own, and its largest clusters
become its first tables. The bound on the process of two levels is climbed from there. Merges, deletions and births of
components are kept only if it rises. It is recorded in float64 at exactly the values of the shared variables that are
returned.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.special import softmax

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.data.packing import pack
from lvsearch.inference.data.rows import rows, rows_of_groups
from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.engine.estimate import Estimate, beliefs_of, capacity_of, pad_axes
from lvsearch.inference.engine.estimator import MIB, MemoryPlan, Part
from lvsearch.inference.engine.meanfield import Beliefs
from lvsearch.inference.hdp.ascent import Units, ascend_units, parts_from_shares, survey_units
from lvsearch.inference.hdp.kernel import TablePosterior
from lvsearch.inference.hdp.units import Packed, bound_at, contents_of, globals_of, packed_units, seat_largest
from lvsearch.inference.hdp.weights import CorpusWeights, starting_weights, weights_from
from lvsearch.inference.mixtures import MixtureEstimator, MixtureSettings
from lvsearch.inference.mixtures.improving import RowsEstimator, RowsRun, RowsStart
from lvsearch.inference.mixtures.proposals import Standing
from lvsearch.inference.mixtures.rows import prior_of
from lvsearch.models.contract import Statistics
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.families import BetaStatistics, GammaStatistics
from lvsearch.models.hdp import HDPMixture
from lvsearch.models.hyperpriors import GammaPrior


@dataclass(frozen=True)
class GroupSettings:
    """Settings of the estimator: effort and stopping rules. Tolerances are in nats per row and pass.

    | field | meaning |
    |---|---|
    | `pooled` | settings of the mixture of all rows that a fit starts from |
    | `passes`, `tolerance` | the most passes of the ascent; a pass that gains less is the last one |
    | `sweeps` | coordinate steps of every group in a pass |
    | `rounds`, `proposals` | rounds of proposals, and how many of each kind a round tries; 0 rounds for none |
    | `climb_passes` | the most passes of the ascent from a proposal |
    | `last_sweeps` | coordinate steps of every group at the final shared variables, in float64 |
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


class GroupsEstimator(RowsEstimator):
    """Fits `HDPMixture` to groups of rows. `size` is the truncation, the number of components that are represented."""

    model: HDPMixture
    settings: GroupSettings

    def __init__(self, model: HDPMixture, data: Dataset, settings: GroupSettings = GroupSettings()):
        super().__init__(model)
        self.settings, self.data, self.components = settings, data, model.components
        contents = contents_of(model, data)
        self.packed: Packed = packed_units(pack(contents.counts, n_batches=1), contents.members)
        self.owner = row_of_each_nonzero(contents.counts)
        units, _ = rows_of_groups(data)
        mixture = DPMixture(model.components, model.shared_concentration)
        every = rows(np.asarray(units.value), np.asarray(units.observed))
        self.pooled = MixtureEstimator(mixture, every, settings.pooled)
        self.prepared, self.n_rows = self.pooled.prepared, len(self.owner)

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return the memory a fit needs: the mixture of all rows, densities of every row, pointers of every group,
        programs.
        """
        (capacity,) = capacity_of(size)
        pointers = 8 * self.packed.real.size * self.model.tables * capacity
        plan = self.pooled.memory_plan(size)
        own = (
            Part("densities and shares of rows", 4 * 8 * capacity * self.n_rows),
            Part("pointers", 4 * pointers),
            Part("compiled programs of groups", 150 * MIB),
        )
        return MemoryPlan((*plan.parts, *own))

    def work(self, size: tuple[int, ...]) -> float:
        """Return the work of one pass over the rows: rows × components × statistics."""
        n_dims = self.data.extents["dim"]
        statistics = jax.eval_shape(lambda: self.model.components.prior(n_dims))
        return float(self.n_rows) * size[0] * sum(leaf.size for leaf in jax.tree.leaves(statistics))

    def begin(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> RowsStart:
        """Return where a fit begins: the clusters of all rows together.

        They are searched from another truncation's components if `start` is given.
        """
        return RowsStart(key, start, self.pooled.fit(size, key, None if start is None else self._as_pooled(start)))

    def run(self, size: tuple[int, ...], dtype: Any) -> "_Run":
        """Return the object that makes one fit at this size and in this precision; nothing is fitted yet."""
        return _Run(self, size, dtype)

    def bound(self, natural: dict[str, Statistics], size: tuple[int, ...], l: TablePosterior) -> float:
        """Return the evidence lower bound in float64 at exactly the given natural parameters, nats.

        A group's rows sit at tables, each of which serves one component.

        q of the groups' tables is updated from `l` first.

        natural: natural parameters of the variables that all groups share.
        l: q of the groups' tables, to begin with.
        """
        return bound_at(self.model, natural, size, self.packed, l, self.settings.last_sweeps)[0]

    def _as_pooled(self, start: Estimate) -> Estimate:
        """Return another truncation's fit in the form of a fit of the mixture of all rows."""
        mixture = self.pooled.model
        named = {"sticks": "shared_sticks", "components": "components", "concentration": "shared_concentration"}
        return start._replace(model=mixture, natural={name: start.natural[named[name]] for name in mixture.globals()})


class _Run(RowsRun[GroupsEstimator]):
    """One fit at one size in one precision.

    It is not `ordered`, because an ascent puts components in order of size anyway.
    """

    def __init__(self, owner: GroupsEstimator, size: tuple[int, ...], dtype: Any):
        super().__init__(owner, size, dtype)
        self.model, self.settings = owner.model, owner.settings
        packed = owner.packed
        self.units = Units(
            self._typed(packed.documents.tiles), jax.device_put(packed.real), self._typed(packed.members)
        )

    @property
    def most_passes(self) -> float:
        """The number of passes over the rows after which no more proposals are tried.

        It is three times the passes made so far, and a climb for every round.
        """
        return float(3 * self.passes + self.settings.rounds * self.settings.climb_passes)

    def first_ascent(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"]]:
        """Run the ascent from the clusters of all rows together.

        Returns its trace, and the bound before each of its passes, nats.
        """
        assert begin.pooled is not None
        trace = self._from_shares(self._pooled_shares(begin.pooled), self.settings.passes)
        return trace, trace.bound_history()

    def last_ascent(self, standing: Standing) -> AscentTrace:
        """Run the ascent to its end from the fit that proposals led to, and return its trace."""
        return self._from_shares(standing.shares, self.settings.passes, standing.trace.beliefs)

    def climb_from(self, shares: Float[np.ndarray, "row component"]) -> Standing:
        """Run a short ascent from responsibilities of the rows, and return where it ends, as proposals need it."""
        return self.survey(self._from_shares(shares, self.settings.climb_passes))

    def _typed(self, tree: Any) -> Any:
        """Return the arrays of a tree on the device, floating-point ones in this run's precision."""

        def typed(leaf: Any) -> Array:
            """Return an array on the device, in this run's precision if it is floating-point."""
            floating = np.issubdtype(np.asarray(leaf).dtype, np.floating)
            return jax.device_put(np.asarray(leaf, self.dtype if floating else None))

        return jax.tree.map(typed, tree)

    # ── from shares of the rows ─────────────────────────────────────────────────────────────────────────────────────

    def _pooled_shares(self, pooled: Estimate) -> Float[np.ndarray, "row component"]:
        """Return each row's responsibilities (probability of every component) at the fit of all rows together."""
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
    ) -> AscentTrace:
        """Run an ascent from responsibilities of rows, and return its trace.

        A group's rows sit at tables, each of which serves one component.

        Without `beliefs`, components are put in order of their numbers of tables first.

        shares: the probability of each component for every row.
        passes: the most passes.
        beliefs: q of the shared variables to start from. None: that which follows from the responsibilities.
        """
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
            beliefs = parts_from_shares(model, wide, beliefs, self.units.members, self.size, capacity=self.capacity)
        in_slots = owner.packed.documents.scatter(in_groups)
        seating = self._typed(seat_largest(in_slots, self.capacity[0], model.tables, weights.alpha))
        trace = ascend_units(
            model,
            beliefs,
            seating,
            self.units,
            self.size,
            self.tolerance,
            passes,
            self.settings.sweeps,
            capacity=self.capacity,
        )
        self.passes += int(trace.sweeps)
        return trace

    def _natural(self, weights: CorpusWeights) -> dict[str, Any]:
        """Return natural parameters of the shared variables about the given weights, with components at their prior."""
        model = self.model
        tables: Any = weights.tables
        beyond: Any = np.maximum(tables.sum() - np.cumsum(tables), 0.0)
        prior = prior_of(model.components, n_dims=self.owner.data.extents["dim"])
        found: dict[str, Any] = {
            "shared_sticks": BetaStatistics(tables, weights.gamma + beyond - 1),
            "components": jax.tree.map(
                lambda leaf: np.broadcast_to(np.asarray(leaf), (len(tables), *np.shape(leaf))), prior
            ),
        }
        for level, value in zip(model.levels, (weights.gamma, weights.alpha), strict=True):
            given = model.concentration_of(level)
            if isinstance(given, GammaPrior):
                mean: tuple[Any, Any] = np.asarray(given.shape - 1), np.asarray(given.shape / value)
                found[level.concentration] = GammaStatistics(*mean)
        return {name: found[name] for name in model.globals()}

    # ── proposals ───────────────────────────────────────────────────────────────────────────────────────────────────

    def survey(self, trace: AscentTrace) -> Standing:
        """Return the end of an ascent in the form in which proposals are made from it."""
        seen = survey_units(
            self.model,
            trace.beliefs,
            trace.locals,
            self.units,
            self.size,
            self.settings.sweeps,
            capacity=self.capacity,
        )
        shares = np.asarray(seen.shares, np.float64)[:, : self.size[0]]
        return Standing(trace, shares, shares.sum(0), self.together(trace), seen.terms("groups"))
