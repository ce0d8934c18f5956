"""The estimator of mixtures of rows: sequential starts, compiled ascent, proposals, and the bound in float64."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.memory import MIB, Chunks, MemoryPlan, Part, machine_chunks
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.engine.estimator import Estimate, beliefs_of, capacity_of, cut_axes, estimator, pad_axes
from lvsearch.inference.engine.meanfield import Beliefs
from lvsearch.inference.mixtures.cuts import find_cuts
from lvsearch.inference.mixtures.kernel import ascend_rows, beliefs_from, survey
from lvsearch.inference.mixtures.proposals import Idea, Proposal, Standing, ideas, improve
from lvsearch.inference.mixtures.rows import PreparedRows, RowTiles, cast_tiles, chosen_rows, prepare
from lvsearch.inference.mixtures.starts import sequential_pass, split_along_spread
from lvsearch.models.mixture import MixtureModel


@dataclass(frozen=True)
class MixtureSettings:
    """How hard to try. Tolerances in nats per row and sweep.

    | field | meaning |
    |---|---|
    | `starts` | sequential passes, of which the best after `start_sweeps` sweeps goes on |
    | `start_rows` | rows that a sequential pass goes over, drawn at random where there are more |
    | `sample_rows` | with more than twice as many rows, so many of them, drawn at random, are fitted first |
    | `sweeps`, `tolerance` | of the ascent |
    | `settling`, `settled` | plug-in fits in float64: further sweeps to a maximum, and its tolerance |
    | `rounds`, `proposals` | rounds of proposals, and how many of each kind a round tries; 0 rounds for none |
    | `proposal_work` | rows × components × statistics that proposals may go over beyond what the ascent did |
    | `climb_sweeps` | sweeps given to a proposal |
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


class MixtureFit(NamedTuple):
    """A fit with its history.

    | field | meaning |
    |---|---|
    | `estimate` | as every estimator gives it |
    | `bounds` | the bound before each sweep of the first ascent, nats |
    | `proposals` | every proposal tried, in order |
    """

    estimate: Estimate
    bounds: Float[np.ndarray, " sweep"]
    proposals: tuple[Proposal, ...]


class MixtureEstimator:
    """Fits any `MixtureModel` to rows: the same bound as the generic engine, in matrix products."""

    shrinks = False

    def __init__(self, model: MixtureModel, data: Dataset, settings: MixtureSettings = MixtureSettings()):
        self.model, self.settings = model, settings
        model.components.check(rows_of(data)[0])
        self.prepared: PreparedRows = prepare(model, data)
        self.chunks = machine_chunks()

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """The rows in float64 and float32, one tile's work, and the responsibilities that proposals rearrange."""
        (capacity,) = capacity_of(size)
        tiles, n_rows = self.prepared.tiles, self.prepared.tiles.weight.size
        width = len(self.prepared.layout.varying)
        rows = 3 * sum(np.asarray(leaf).nbytes for leaf in tiles)
        tile = 4 * 8 * tiles.weight.shape[1] * (2 * width + 4 * capacity)
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

    def with_chunks(self, chunks: Chunks) -> "MixtureEstimator":
        """Itself, but for what `chunks` says: tiles are small already, and rows stay resident."""
        other = copy(self)
        other.chunks = chunks
        return other

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """From sequential passes, or from another size's components, the largest of them split into the new ones."""
        return self.fit_with_history(size, key, start).estimate

    def work(self, size: tuple[int, ...]) -> float:
        """Rows × components × statistics of one pass."""
        return float(self.prepared.n_rows) * size[0] * (len(self.prepared.layout.varying) + 1)

    def on_rows(self, chosen: Int[np.ndarray, " row"]) -> "MixtureEstimator":
        """The same model on some of the rows: its fits are for starting from."""
        other = copy(self)
        other.prepared = chosen_rows(self.prepared, chosen)
        return other

    def fit_with_history(self, size: tuple[int, ...], key: Array, start: Estimate | None = None) -> MixtureFit:
        """As `fit`, with the bound along the way and every proposal."""
        double = self.work(size) <= self.settings.double_below
        with jax.enable_x64(double):
            run = _Run(self, size, np.float64 if double else np.float32)
            found = run.fit(key, start)
        natural = cut_axes(self.model, found[0].beliefs.natural, size, run.capacity)
        natural = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), natural)
        lower = recorded_bound(self.model, self.prepared, natural, size)
        exact = self.model.components.estimated  # rows summed out at point estimates: nothing is bounded
        upper = lower + 1e-9 * max(1.0, abs(lower)) if exact else np.inf
        return MixtureFit(Estimate(self.model, size, natural, lower, upper, found[1]), found[2], found[3])


class _Run:
    """One fit at one size in one precision."""

    def __init__(self, owner: MixtureEstimator, size: tuple[int, ...], dtype: Any):
        self.owner, self.model, self.settings, self.prepared = owner, owner.model, owner.settings, owner.prepared
        self.size, self.capacity, self.dtype = size, capacity_of(size), dtype
        self.tiles: RowTiles = jax.tree.map(jax.device_put, cast_tiles(self.prepared.tiles, dtype))
        self.static = {"layout": self.prepared.layout, "capacity": self.capacity}
        self.passes = 0

    def fit(self, key: Array, start: Estimate | None) -> tuple[Standing, int, np.ndarray, tuple[Proposal, ...]]:
        begins = [self._first(key)] if start is None else self._grown(start)
        if self._to_a_maximum:
            begins = [*begins, self._blurred(key)]
        climbed = [self._ascend(beliefs, self.settings.sweeps) for beliefs in begins]
        beliefs, bounds = max(climbed, key=lambda each: each[1][-1] if each[1].size else -np.inf)  # none without sweeps
        if not self.settings.rounds:
            return self._standing(self._settled(beliefs)), self.passes, bounds, ()
        most = 2 * self.passes + self.settings.proposal_work / self.owner.work(self.size)
        standing, record = improve(
            self._standing(beliefs),
            self._ideas,
            self._climb,
            self._tolerance * 10,
            self.settings.rounds,
            lambda: self.passes > most,
        )
        if any(proposal.accepted for proposal in record):
            standing = self._standing(self._ascend(standing.beliefs, self.settings.sweeps)[0])
        settled = self._settled(standing.beliefs)
        return standing if settled is standing.beliefs else self._standing(settled), self.passes, bounds, record

    def _settled(self, beliefs: Beliefs) -> Beliefs:
        """Where parameters are estimated and rows few: at the maximum. On a plateau EM gains less than any tolerance
        for a row a sweep and still has tenths of a nat before it."""
        if not self._to_a_maximum:
            return beliefs
        left, tolerance = self.settings.settling, self.settings.settled * self.prepared.n_rows
        while left > 0:
            trace = ascend_rows(self.model, beliefs, self.tiles, self.size, tolerance, left, **self.static)
            beliefs, n = trace.beliefs, int(trace.sweeps)
            left, self.passes = left - n, self.passes + n
            bounds = np.asarray(trace.bounds)[:n]
            if n < 2 or not bounds[-1] - bounds[-2] > tolerance:
                break
        return beliefs

    @property
    def _to_a_maximum(self) -> bool:
        """Whether the fit is one of few rows at estimated parameters."""
        return self.model.components.estimated and self.dtype is np.float64

    def _blurred(self, key: Array) -> Beliefs:
        """From rows that belong a little to every component. Of answers in categories, which have no distances, 85 % of
        such starts reach the highest maximum known where 20 % of sequential passes do (`latent_classes.py`)."""
        weight = self.tiles.weight
        exists = jnp.arange(self.capacity[0]) < self.size[0]
        lean = jax.random.gumbel(key, (*weight.shape, self.capacity[0]), weight.dtype)
        shares = weight[..., None] * jax.nn.softmax(jnp.where(exists, lean, -jnp.inf))
        return beliefs_from(self.model, shares, self.tiles, self.size, **self.static)

    @property
    def _tolerance(self) -> float:
        return self.settings.tolerance * self.prepared.n_rows

    def _ascend(self, beliefs: Beliefs, sweeps: int) -> tuple[Beliefs, np.ndarray]:
        trace = ascend_rows(self.model, beliefs, self.tiles, self.size, self._tolerance, sweeps, **self.static)
        n = int(trace.sweeps)
        self.passes += n
        return trace.beliefs, np.asarray(trace.bounds, np.float64)[:n] + self.prepared.log_carrier

    # ── starts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _first(self, key: Array) -> Beliefs:
        """From nothing; where rows are many, from some of them, proposals included: a component that is missing shows
        there too, and costs less to find."""
        few, n_rows = self.settings.sample_rows, self.prepared.n_rows
        if n_rows <= 2 * few:
            return self._sequential(key)
        key_rows, key_fit = jax.random.split(key)
        chosen = np.sort(np.asarray(jax.random.permutation(key_rows, n_rows))[:few])
        return _Run(self.owner.on_rows(chosen), self.size, self.dtype).fit(key_fit, None)[0].beliefs

    def _sequential(self, key: Array) -> Beliefs:
        """The best of several random orders, each climbed a little."""
        best, height = None, -np.inf
        for number in range(self.settings.starts):
            beliefs = self._one_pass(jax.random.fold_in(key, number))
            beliefs, bounds = self._ascend(beliefs, self.settings.start_sweeps)
            if best is None or bounds[-1] > height:
                best, height = beliefs, bounds[-1]
        assert best is not None
        return best

    def _one_pass(self, key: Array) -> Beliefs:
        tiles = self.prepared.tiles
        n_rows = self.prepared.n_rows
        key_order, key_pass = jax.random.split(key)
        order = np.asarray(jax.random.permutation(key_order, n_rows))[: self.settings.start_rows]
        length = tiles.weight.size if n_rows <= self.settings.start_rows else self.settings.start_rows
        chosen = np.concatenate([order, np.arange(length - len(order))])

        def pick(leaf: Any) -> np.ndarray:
            return np.asarray(leaf).reshape(tiles.weight.size, *leaf.shape[2:])[chosen]

        weight = pick(tiles.weight) * (np.arange(length) < len(order))
        part = RowTiles(pick(tiles.coordinates).astype(self.dtype), pick(tiles.observed), weight.astype(self.dtype))
        labels = sequential_pass(self.model, key_pass, *part, self.size, capacity=self.capacity)
        tile = jax.tree.map(lambda leaf: leaf[None], part)
        shares = jax.nn.one_hot(labels, self.capacity[0], dtype=self.dtype)[None]
        return beliefs_from(self.model, shares, tile, self.size, **self.static)

    def _grown(self, start: Estimate) -> list[Beliefs]:
        """The largest components split into the new ones; and, where components have an order, the new ones left
        empty: sticks that no row reaches keep their prior, so that a process' bound is no lower than at the start."""
        old = capacity_of(start.size)
        natural = pad_axes(self.model, start.natural, start.size, old)
        natural = jax.tree.map(lambda leaf: np.asarray(leaf, self.dtype), natural)
        beliefs = beliefs_of(self.model, natural, start.size, capacity=old)
        seen = survey(self.model, beliefs, self.tiles, start.size, layout=self.prepared.layout, capacity=old)
        shares = np.asarray(seen.shares, np.float64).reshape(-1, old[0])[:, : start.size[0]]
        shares = np.pad(shares, ((0, 0), (0, self.capacity[0] - start.size[0])))
        weight = self.prepared.tiles.weight.reshape(-1)
        split = shares
        for child in range(start.size[0], self.size[0]):
            parent = int(np.argmax(weight @ split))
            split = split_along_spread(split * (weight > 0)[:, None], self._coordinates, parent, child)
        return [self._from_shares(each) for each in ([split, shares] if self.model.ordered else [split])]

    # ── proposals ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _coordinates(self) -> np.ndarray:
        return np.asarray(self.prepared.tiles.coordinates).reshape(-1, self.prepared.layout.n_dims)

    def _ideas(self, standing: Standing) -> Iterator[Idea]:
        shares = self._tiled(standing.shares)
        component = self.model.components.at(standing.beliefs.mean)
        cuts = find_cuts(component, shares, self.tiles, layout=self.prepared.layout)
        cuts = jax.tree.map(np.asarray, cuts)
        return ideas(standing, cuts, self._coordinates, self.model.ordered, self.settings.proposals)

    def _tiled(self, shares: np.ndarray) -> np.ndarray:
        wide = np.pad(shares, ((0, 0), (0, self.capacity[0] - shares.shape[1])))
        return wide.reshape(*self.prepared.tiles.weight.shape, self.capacity[0]).astype(self.dtype)

    def _from_shares(self, shares: np.ndarray) -> Beliefs:
        return beliefs_from(self.model, self._tiled(shares), self.tiles, self.size, **self.static)

    def _climb(self, shares: np.ndarray) -> Standing:
        return self._standing(self._ascend(self._from_shares(shares), self.settings.climb_sweeps)[0])

    def _standing(self, beliefs: Beliefs) -> Standing:
        seen = survey(self.model, beliefs, self.tiles, self.size, **self.static)
        n, weight = self.size[0], self.prepared.tiles.weight.reshape(-1, 1)
        shares = np.asarray(seen.shares, np.float64).reshape(-1, self.capacity[0])[:, :n] * (weight > 0)
        terms = {"rows": float(seen.log_total) + self.prepared.log_carrier, "log prior": float(seen.log_prior)}
        terms |= {f"entropy of {name}": float(value) for name, value in seen.entropies.items()}
        counts, together = np.asarray(seen.counts, np.float64)[:n], np.asarray(seen.together, np.float64)[:n, :n]
        return Standing(beliefs, shares, counts, together, terms)


def recorded_bound(model: MixtureModel, prepared: PreparedRows, natural: Any, size: tuple[int, ...]) -> float:
    """The bound in float64 at exactly these natural parameters, nats, the rows at their optimum."""
    capacity = capacity_of(size)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), pad_axes(model, natural, size, capacity))
        beliefs = beliefs_of(model, wide, size, capacity=capacity)
        tiles = cast_tiles(prepared.tiles, np.float64)
        trace = ascend_rows(model, beliefs, tiles, size, np.inf, 1, layout=prepared.layout, capacity=capacity)
        return float(trace.bounds[0]) + prepared.log_carrier


@estimator.register(MixtureModel)
def _mixture_estimator(model: MixtureModel, data: Dataset) -> MixtureEstimator:
    return MixtureEstimator(model, data)
