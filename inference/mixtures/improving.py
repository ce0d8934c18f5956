"""Fits of rows to components: a climb, proposals for as long as they raise the bound, the climb to its end.

Mixtures of rows, groups of rows and sequences of rows differ in where they begin and in how they climb. All else is
here once: in which precision, what is proposed, when to stop, and how the fit is recorded.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.engine.estimate import Estimate, capacity_of, just_above, recorded_natural
from lvsearch.inference.engine.estimator import BaseEstimator
from lvsearch.inference.mixtures.cuts import find_cuts
from lvsearch.inference.mixtures.kernel import gains_together
from lvsearch.inference.mixtures.proposals import Idea, Proposal, Standing, ideas, improve
from lvsearch.inference.mixtures.rows import PreparedRows, RowTiles, cast_tiles
from lvsearch.inference.sharding import on_devices, on_host, split
from lvsearch.models.components import Component
from lvsearch.models.contract import Statistics
from lvsearch.models.kernels import kernel

GAIN = 10
"""A proposal must gain so many times what a sweep must."""


ROUNDING_LOSS = 0.01
"""Nats of the bound that recording a fit in float32 may cost."""


@runtime_checkable
class RowsSettings(Protocol):
    """How hard to try, as far as it is the same for all; see the settings of each kind."""

    @property
    def tolerance(self) -> float: ...
    @property
    def rounds(self) -> int: ...
    @property
    def proposals(self) -> int: ...
    @property
    def double_below(self) -> float: ...


class FitHistory(NamedTuple):
    """A fit with its history.

    | field | meaning |
    |---|---|
    | `estimate` | as every estimator gives it |
    | `bounds` | the bound before each sweep of the first ascent, nats; none where sweeps have no bound |
    | `proposals` | every proposal tried, in order |
    """

    estimate: Estimate
    bounds: Float[np.ndarray, " sweep"]
    proposals: tuple[Proposal, ...]


class RowsStart(NamedTuple):
    """What a fit begins from: a key, the fit of another size, and that of all rows without their groups or order,
    where there are such."""

    key: Array
    start: Estimate | None
    pooled: Estimate | None = None


Owner = TypeVar("Owner", bound="RowsEstimator")


class RowsEstimator(BaseEstimator, ABC):
    """Fits a model of rows; `n_rows` of them."""

    settings: RowsSettings
    components: Component
    prepared: PreparedRows
    n_rows: int
    exact = False
    """Whether the bound is the likelihood itself: nothing is integrated out by mean field."""

    @abstractmethod
    def work(self, size: tuple[int, ...]) -> float:
        """Rows × components × statistics of one pass."""

    @abstractmethod
    def run(self, size: tuple[int, ...], dtype: Any) -> "RowsRun[Any]":
        """One fit at this size, to be made in this precision."""

    @abstractmethod
    def bound(self, natural: dict[str, Statistics], size: tuple[int, ...], l: Any) -> float:
        """In float64 at exactly these natural parameters, nats; l: the locals that the fit ended with."""

    def begin(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> RowsStart:
        """What to begin from."""
        return RowsStart(key, start)

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """From nothing, or from another size's components, the largest of them split into the new ones."""
        return self.fit_with_history(size, key, start).estimate

    def fit_with_history(self, size: tuple[int, ...], key: Array, start: Estimate | None = None) -> FitHistory:
        """As `fit`, with the bound along the way and every proposal."""
        begin = self.begin(size, key, start)
        double = self.work(size) <= self.settings.double_below
        with jax.enable_x64(double):
            run = self.run(size, np.float64 if double else np.float32)
            ended, bounds, proposals = run.fit(begin)
        natural, lower = self._recorded(ended, size, run.capacity, double=double)
        upper = just_above(lower) if self.exact else np.inf
        passes = run.passes + (0 if begin.pooled is None else begin.pooled.passes)
        return FitHistory(Estimate(self.model, size, natural, lower, upper, passes), bounds, proposals)

    def _recorded(
        self, ended: AscentTrace, size: tuple[int, ...], capacity: tuple[int, ...], *, double: bool
    ) -> tuple[dict[str, Statistics], float]:
        """(Natural parameters as they are recorded, the bound at exactly these in nats).

        In float32, unless the fit is in float64 and rounding it costs more than `ROUNDING_LOSS`. The rate of a narrow
        component is the small difference of two large sums, so that rounding these makes it too wide, or negative.
        """
        local = on_host(ended.locals)
        natural = recorded_natural(self.model, ended.beliefs, size, capacity)
        lower = self.bound(natural, size, local)
        if not double:
            return natural, lower
        exact = recorded_natural(self.model, ended.beliefs, size, capacity, np.float64)
        unrounded = self.bound(exact, size, local)
        return (natural, lower) if lower >= unrounded - ROUNDING_LOSS or np.isnan(unrounded) else (exact, unrounded)


class RowsRun(ABC, Generic[Owner]):
    """One fit at one size in one precision. `tiles`: the rows in it; `passes`: made so far."""

    ordered = False
    """Whether components are sticks, which are best in order of size, and an ascent does not see to it."""

    def __init__(self, owner: Owner, size: tuple[int, ...], dtype: Any):
        self.owner, self.size, self.capacity, self.dtype = owner, size, capacity_of(size), dtype
        self.tiles: RowTiles = on_devices(cast_tiles(owner.prepared.tiles, dtype), 1)
        self.passes = 0

    @abstractmethod
    def first(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"]]:
        """The first ascent, and its bounds."""

    @abstractmethod
    def climbed(self, shares: Float[np.ndarray, "row component"]) -> Standing:
        """Where a short climb from these responsibilities ends."""

    @abstractmethod
    def finished(self, standing: Standing) -> AscentTrace:
        """The ascent to its end from what proposals led to."""

    @abstractmethod
    def standing(self, trace: AscentTrace) -> Standing:
        """An ascent's end as proposals see it."""

    @property
    @abstractmethod
    def most_passes(self) -> float:
        """Passes beyond which nothing more is proposed, given those of the first ascent."""

    def settled(self, trace: AscentTrace) -> AscentTrace:
        """What is left to do at the end."""
        return trace

    def fit(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"], tuple[Proposal, ...]]:
        """Where it ended, the bounds of the first ascent, every proposal tried."""
        trace, bounds = self.first(begin)
        settings, record = self.owner.settings, ()
        if settings.rounds:
            most, tolerance = self.most_passes, GAIN * self.tolerance
            standing, record = improve(
                self.standing(trace), self.ideas, self.climbed, tolerance, settings.rounds, lambda: self.passes > most
            )
            trace = self.finished(standing) if any(each.accepted for each in record) else standing.trace
        return self.settled(trace), bounds, record

    @property
    def tolerance(self) -> float:
        """Nats that a sweep must gain."""
        return self.owner.settings.tolerance * self.owner.n_rows

    def coordinates(self, n_rows: int) -> Float[np.ndarray, "row dim"]:
        """Of the first rows, padding among them where `n_rows` are all places."""
        tiles = self.owner.prepared.tiles
        return np.asarray(tiles.coordinates).reshape(tiles.weight.size, -1)[:n_rows]

    def in_tiles(self, shares: Float[np.ndarray, "row component"]) -> Float[Array | np.ndarray, "tile slot place"]:
        """Responsibilities as the kernels take them, (tile, row of it, place of a component), 0 where there is none."""
        weight = self.owner.prepared.tiles.weight
        wide = np.zeros((weight.size, self.capacity[0]), self.dtype)
        wide[: len(shares), : shares.shape[1]] = shares
        return split(wide.reshape(*weight.shape, self.capacity[0]), 1)

    def ideas(self, standing: Standing) -> Iterator[Idea[np.ndarray]]:
        """What to propose."""
        components = self.owner.components.with_expected_numbers(standing.trace.beliefs.mean)
        cuts = find_cuts(components, self.in_tiles(standing.shares), self.tiles, layout=self.owner.prepared.layout)
        coordinates = self.coordinates(len(standing.shares))
        most = self.owner.settings.proposals
        return ideas(standing, on_host(cuts), coordinates, self.ordered, most)

    def together(self, trace: AscentTrace) -> Float[np.ndarray, "component component"]:
        """How much better one component explains the rows of two, nats."""
        n, natural, n_dims = self.size[0], trace.beliefs.natural["components"], self.owner.prepared.layout.n_dims
        component = self.owner.components.with_expected_numbers(trace.beliefs.mean)
        return np.asarray(_gains(component, natural, n_dims=n_dims), np.float64)[:n, :n]


@kernel(static_argnames=("n_dims",), brief=True)
@counted
def _gains(component: Component, natural: Any, *, n_dims: int) -> Float[Array, "component component"]:
    return gains_together(component, natural, n_dims)
