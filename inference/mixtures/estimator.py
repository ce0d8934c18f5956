"""The estimator of mixtures of rows: sequential starts, compiled ascent, proposals, and the bound in float64."""

from copy import copy
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.engine.estimate import Estimate, beliefs_at, capacity_of
from lvsearch.inference.engine.estimator import MIB, MemoryPlan, Part
from lvsearch.inference.engine.meanfield import Beliefs
from lvsearch.inference.generators import fold_in, permutation, split_key
from lvsearch.inference.mixtures.improving import RowsEstimator, RowsRun, RowsStart
from lvsearch.inference.mixtures.kernel import ascend_rows, beliefs_from, survey
from lvsearch.inference.mixtures.proposals import Standing
from lvsearch.inference.mixtures.rows import PreparedRows, RowTiles, cast_tiles, chosen_rows, prepare
from lvsearch.inference.mixtures.starts import sequential_pass, split_along_spread
from lvsearch.inference.sharding import on_host, one_after_another, split
from lvsearch.models.contract import Statistics
from lvsearch.models.mixture import MixtureModel


@dataclass(frozen=True)
class MixtureSettings:
    """Settings of a fit of a mixture, which say how much work it does. Tolerances are in nats per row and sweep.

    | field | meaning |
    |---|---|
    | `starts` | how many sequential passes are made; the best one after `start_sweeps` sweeps is climbed on |
    | `start_rows` | rows that a sequential pass goes over, drawn at random if there are more |
    | `sample_rows` | with more than twice as many rows, this many of them, drawn at random, are fitted first |
    | `start_sweeps` | sweeps of coordinate ascent after each sequential pass |
    | `sweeps`, `tolerance` | the most sweeps of the ascent, and the gain of a sweep at which it ends |
    | `settling`, `settled` | plug-in fits in float64: further sweeps to a maximum, and their tolerance |
    | `rounds`, `proposals` | rounds of proposals, and how many of each kind a round tries; 0 rounds for none |
    | `proposal_work` | rows × components × statistics that proposals may go over beyond what the ascent did |
    | `climb_sweeps` | sweeps given to each proposal |
    | `double_below` | rows × components × statistics up to which everything is in float64 |
    """

    starts: int = 3
    start_rows: int = 1000
    sample_rows: int = 8192
    start_sweeps: int = 6
    sweeps: int = 1000
    tolerance: float = 1e-6
    settling: int = 20_000
    settled: float = 1e-11
    rounds: int = 20
    proposals: int = 3
    proposal_work: float = 2e9
    climb_sweeps: int = 60
    double_below: float = 2e6


class MixtureEstimator(RowsEstimator):
    """The estimator of any `MixtureModel` on rows: it fits the mixture at one size and bounds its evidence.

    Its bound is the one that the generic estimator computes for any model; here it is made of matrix products, which is
    much faster.
    """

    model: MixtureModel
    settings: MixtureSettings

    def __init__(self, model: MixtureModel, data: Dataset, settings: MixtureSettings = MixtureSettings()):
        """Check the rows and cut them into tiles; nothing is fitted.

        Raises ValueError for rows that the components cannot have.
        """
        super().__init__(model)
        self.settings, self.components = settings, model.components
        self.components.check(rows_of(data)[0])
        self.prepared = prepare(model, data)
        self.n_rows = self.prepared.n_rows
        self.exact = self.components.estimated  # rows summed out at point estimates

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return how many bytes one fit holds at its worst moment, part by part.

        The parts are the rows in float64 and float32, the work on one tile, the responsibilities that proposals
        rearrange, the parameters, and the compiled programs.

        size: (number of components,).
        """
        (capacity,) = capacity_of(size)
        tiles, n_rows = self.prepared.tiles, self.prepared.tiles.weight.size
        width = len(self.prepared.layout.varying)
        rows = 3 * sum(np.asarray(leaf).nbytes for leaf in tiles)
        variants = self.components.n_variants
        tile = 4 * 8 * tiles.weight.shape[1] * variants * (2 * width + 4 * capacity)
        shares = 8 * 3 * n_rows * capacity
        parameters = 8 * 12 * capacity * (width + 4)
        return MemoryPlan(
            (
                Part("rows", rows),
                Part("one tile", tile),
                Part("responsibilities", shares),
                Part("beliefs about parameters", parameters),
                Part("compiled programs", 100 * MIB),
            )
        )

    def work(self, size: tuple[int, ...]) -> float:
        """Return rows × components × statistics, the number of multiplications of one pass over the rows.

        size: (number of components,).
        """
        return float(self.prepared.n_rows) * size[0] * (len(self.prepared.layout.varying) + 1)

    def on_rows(self, chosen: Int[np.ndarray, " row"]) -> "MixtureEstimator":
        """Return an estimator of the same model on some of the rows, to make a first fit that the fit of all rows
        starts from.

        chosen: the numbers of the rows.
        """
        other = copy(self)
        other.prepared, other.n_rows = chosen_rows(self.prepared, chosen), len(chosen)
        return other

    def run(self, size: tuple[int, ...], dtype: Any) -> "MixtureRun":
        """Return an unfinished fit at this size. Its `fit` does the work.

        size: (number of components,).
        dtype: the floating-point type in which it computes.
        """
        return MixtureRun(self, size, dtype)

    def bound(self, natural: dict[str, Statistics], size: tuple[int, ...], l: None) -> float:
        """Return the lower bound on the log evidence for given natural parameters of q(weights, components), in nats,
        computed in float64.

        The rows' responsibilities are those that maximise it.

        natural: natural parameters of q by variable (weights, components, hyper-parameters).
        size: (number of components,).
        l: not used; a mixture has no further local variables.
        """
        return recorded_bound(self.model, self.prepared, natural, size)


class MixtureRun(RowsRun[MixtureEstimator]):
    """One fit of a mixture of rows at one size in one floating-point type."""

    def __init__(self, owner: MixtureEstimator, size: tuple[int, ...], dtype: Any):
        """Put the rows on the devices; nothing is fitted.

        owner: the estimator, which has model, rows and settings.
        size: (number of components,).
        dtype: the floating-point type in which the fit computes.
        """
        super().__init__(owner, size, dtype)
        self.model, self.settings, self.prepared = owner.model, owner.settings, owner.prepared
        self.static = {"layout": self.prepared.layout, "capacity": self.capacity}
        self.ordered = owner.model.ordered

    @property
    def most_passes(self) -> float:
        """The number of passes over the rows after which no more proposals are tried.

        It is twice the passes of the first ascent, plus the passes that `proposal_work` allows.
        """
        return 2 * self.passes + self.settings.proposal_work / self.owner.work(self.size)

    def first_ascent(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"]]:
        """Climb from all starts; return (the best ascent, its bounds before each sweep in nats, (sweep,)).

        begin: the random key, and the fit of another size to start from, if any.
        """
        starts = self.starts(begin)
        if self._to_a_maximum and not begin.alone:
            starts = [*starts, self._blurred(begin.key)]
        climbed = [self._ascend(beliefs, self.settings.sweeps) for beliefs in starts]
        ends = [trace.bound_history() + self.prepared.log_carrier for trace in climbed]
        best = max(range(len(ends)), key=lambda n: ends[n][-1] if ends[n].size else -np.inf)  # none without sweeps
        return climbed[best], ends[best]

    def last_ascent(self, standing: Standing) -> AscentTrace:
        """Climb on from the fit that proposals led to until a sweep gains too little, and return the ascent."""
        return self._ascend(standing.trace.beliefs, self.settings.sweeps)

    def polish(self, trace: AscentTrace) -> AscentTrace:
        """Climb on to a maximum if parameters are estimated and rows are few; else return the ascent as it is.

        On a plateau, EM gains less per row and sweep than any tolerance, and may still be tenths of a nat below the
        maximum.
        """
        left, tolerance = self.settings.settling, self.settings.settled * self.prepared.n_rows
        while self._to_a_maximum and left > 0:
            trace = ascend_rows(self.model, trace.beliefs, self.tiles, self.size, tolerance, left, **self.static)
            bounds = trace.bound_history()
            left, self.passes = left - len(bounds), self.passes + len(bounds)
            if len(bounds) < 2 or not bounds[-1] - bounds[-2] > tolerance:
                break
        return trace

    @property
    def _to_a_maximum(self) -> bool:
        """True if the fit has estimated parameters and is in float64 (few rows); it is then climbed to a maximum."""
        return self.model.components.estimated and self.dtype is np.float64

    def _blurred(self, key: Array) -> Beliefs:
        """Return q(weights, components) to start from in which every row belongs a little to every component, at
        random.

        Answers in categories have no distances for a sequential pass to use. For them 85 % of such starts reach the
        highest maximum known, while 20 % of sequential passes do (`latent_classes.py`).
        """
        weight = self.tiles.weight
        exists = jnp.arange(self.capacity[0]) < self.size[0]
        lean = jax.random.gumbel(key, (*weight.shape, self.capacity[0]), weight.dtype)
        shares = weight[..., None] * jax.nn.softmax(jnp.where(exists, lean, -jnp.inf))
        return beliefs_from(self.model, shares, self.tiles, self.size, **self.static)

    def _ascend(self, beliefs: Beliefs, sweeps: int) -> AscentTrace:
        """Climb from q(weights, components) for at most `sweeps` sweeps, and return the ascent. Its sweeps are added to
        `passes`.
        """
        trace = ascend_rows(self.model, beliefs, self.tiles, self.size, self.tolerance, sweeps, **self.static)
        self.passes += int(trace.sweeps)
        return trace

    # ── starts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def starts(self, begin: RowsStart) -> list[Beliefs]:
        """Return the q(weights, components) that the first ascents begin with: from nothing, or from a fit of another
        size.

        begin: the random key, and the fit of another size or None.
        """
        return [self.start_from_nothing(begin.key)] if begin.start is None else self.starts_from_smaller(begin.start)

    def start_from_nothing(self, key: Array) -> Beliefs:
        """Return q(weights, components) to begin with if there is no fit of another size.

        If there are many rows, it comes from a complete fit, proposals included, of `sample_rows` of them. A missing
        component shows in them too, and costs less to find. One component has all rows from the beginning.
        """
        if not self.has_choice:
            return self._from_shares(np.ones((self.prepared.n_rows, 1)))
        few, n_rows = self.settings.sample_rows, self.prepared.n_rows
        if n_rows <= 2 * few:
            return self._sequential(key)
        key_rows, key_fit = split_key(key)
        chosen = np.sort(permutation(key_rows, n_rows)[:few])
        return self.owner.on_rows(chosen).run(self.size, self.dtype).fit(RowsStart(key_fit, None))[0].beliefs

    def _sequential(self, key: Array) -> Beliefs:
        """Return q(weights, components) to start from: the best of several sequential passes in random orders.

        Each pass is climbed for `start_sweeps` sweeps before they are compared.
        """
        best, height = None, -np.inf
        for number in range(self.settings.starts):
            trace = self._ascend(self._one_pass(fold_in(key, number)), self.settings.start_sweeps)
            if best is None or trace.bound_history()[-1] > height:
                best, height = trace.beliefs, trace.bound_history()[-1]
        assert best is not None
        return best

    def _one_pass(self, key: Array) -> Beliefs:
        """Return q(weights, components) from one sequential pass over rows in random order."""
        key_order, key_pass = split_key(key)
        part = self.rows_in_order(permutation(key_order, self.prepared.n_rows))
        with one_after_another():
            labels = np.asarray(sequential_pass(self.model, key_pass, *part, self.size, capacity=self.capacity))
        return self.beliefs_from_labels(part, labels)

    def rows_in_order(self, order: Int[np.ndarray, " row"]) -> RowTiles:
        """Return the first `start_rows` rows of a given order, as arrays (row, …) padded with rows of weight 0.

        order: the numbers of all rows, in the order wanted.
        """
        tiles, n_rows, most = self.prepared.tiles, self.prepared.n_rows, self.settings.start_rows
        order = order[:most]
        length = tiles.weight.size if n_rows <= most else most
        chosen = np.concatenate([order, np.arange(length - len(order))])

        def pick(leaf: Any) -> np.ndarray:
            return np.asarray(leaf).reshape(tiles.weight.size, *leaf.shape[2:])[chosen]

        weight = pick(tiles.weight) * (np.arange(length) < len(order))
        return RowTiles(pick(tiles.coordinates).astype(self.dtype), pick(tiles.observed), weight.astype(self.dtype))

    def beliefs_from_labels(self, part: RowTiles, labels: Int[np.ndarray, " row"]) -> Beliefs:
        """Return the q(weights, components) that follows if each row is in one given component.

        part: the rows, as arrays (row, …).
        labels: the component of each of these rows.
        """
        tile = jax.tree.map(lambda leaf: leaf[None], part)
        shares = (labels[:, None] == np.arange(self.capacity[0])).astype(self.dtype)[None]
        return beliefs_from(self.model, shares, tile, self.size, **self.static)

    def starts_from_smaller(self, start: Estimate) -> list[Beliefs]:
        """Return starts made from a smaller fit: its largest components are split until there are enough.

        If components have an order (sticks of a process), a second start leaves the new ones empty. Sticks that no row
        reaches keep their prior, so the bound of a process is no lower there than that of the smaller fit.
        """
        old = capacity_of(start.size)
        beliefs = beliefs_at(self.model, start.natural, start.size, old, self.dtype)
        seen = survey(self.model, beliefs, self.tiles, start.size, layout=self.prepared.layout, capacity=old)
        shares = on_host(seen.shares).astype(np.float64).reshape(-1, old[0])[:, : start.size[0]]
        shares = np.pad(shares, ((0, 0), (0, self.capacity[0] - start.size[0])))
        weight = self.prepared.tiles.weight.reshape(-1)
        split = shares
        for child in range(start.size[0], self.size[0]):
            parent = int(np.argmax(weight @ split))
            split = split_along_spread(split * (weight > 0)[:, None], self.coordinates(len(split)), parent, child)
        return [self._from_shares(each) for each in ([split, shares] if self.model.ordered else [split])]

    # ── proposals ───────────────────────────────────────────────────────────────────────────────────────────────────

    def climb_from(self, shares: Float[np.ndarray, "row component"]) -> Standing:
        """Climb a little from given responsibilities, and return the fit in the form that proposals need.

        shares: responsibilities, (row, component).
        """
        return self.survey(self._ascend(self._from_shares(shares), self.settings.climb_sweeps))

    def _from_shares(self, shares: Float[np.ndarray, "row component"]) -> Beliefs:
        """Return the q(weights, components) that follows from responsibilities (row, component)."""
        return beliefs_from(self.model, self.in_tiles(shares), self.tiles, self.size, **self.static)

    def survey(self, trace: AscentTrace) -> Standing:
        """Return the end of an ascent in the form that proposals need. Padding rows have responsibilities 0."""
        seen = survey(self.model, trace.beliefs, self.tiles, self.size, **self.static)
        n, weight = self.size[0], self.prepared.tiles.weight.reshape(-1, 1)
        shares = on_host(seen.shares).astype(np.float64).reshape(-1, self.capacity[0])[:, :n] * (weight > 0)
        terms = {"rows": float(seen.log_total) + self.prepared.log_carrier, "log prior": float(seen.log_prior)}
        terms |= {f"entropy of {name}": float(value) for name, value in seen.entropies.items()}
        counts, together = np.asarray(seen.counts, np.float64)[:n], np.asarray(seen.together, np.float64)[:n, :n]
        return Standing(trace, shares, counts, together, terms)


def recorded_bound(model: MixtureModel, prepared: PreparedRows, natural: Any, size: tuple[int, ...]) -> float:
    """Return the lower bound on the log evidence for given natural parameters of q(weights, components), in nats,
    computed in float64.

    The rows' responsibilities are those that maximise it.

    natural: natural parameters of q by variable (weights, components, hyper-parameters), existing components only.
    size: (number of components,).
    """
    capacity = capacity_of(size)
    with jax.enable_x64(True):
        beliefs = beliefs_at(model, natural, size, capacity, np.float64)
        tiles = split(cast_tiles(prepared.tiles, np.float64), 1)
        trace = ascend_rows(model, beliefs, tiles, size, np.inf, 1, layout=prepared.layout, capacity=capacity)
        return float(np.asarray(trace.bounds)[0]) + prepared.log_carrier
