"""Fits of rows to components: a climb, proposals for as long as they raise the bound, and the climb to its end.

Mixtures of rows, of groups of rows and of sequences of rows differ in where they begin and how they climb. What they
share is here: the precision, the proposals, when to stop, and how the fit is recorded.
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
"""A proposal must gain this many times what a sweep must gain."""


ROUNDING_LOSS = 0.01
"""The most nats of the bound that recording a fit in float32 may cost."""


@runtime_checkable
class RowsSettings(Protocol):
    """The settings that all fits of rows share. Each kind of fit documents its own.

    | field | meaning |
    |---|---|
    | `tolerance` | nats per row that a sweep must gain |
    | `rounds` | rounds of proposals |
    | `proposals` | how many proposals of each kind a round tries |
    | `double_below` | rows × components × statistics up to which everything is in float64 |
    """

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
    | `estimate` | the fit, as every estimator returns it |
    | `bounds` | the bound before each sweep of the first ascent, nats; empty if sweeps have no bound |
    | `proposals` | every proposal tried, in order |
    """

    estimate: Estimate
    bounds: Float[np.ndarray, " sweep"]
    proposals: tuple[Proposal, ...]


class RowsStart(NamedTuple):
    """The beginning of a fit.

    | field | meaning |
    |---|---|
    | `key` | a random key |
    | `start` | the fit of another size, or None |
    | `pooled` | for groups or sequences: a fit of all rows without their groups or order, or None |
    """

    key: Array
    start: Estimate | None
    pooled: Estimate | None = None


Owner = TypeVar("Owner", bound="RowsEstimator")


class RowsEstimator(BaseEstimator, ABC):
    """The base of estimators of rows.

    `n_rows`: how many rows there are. `exact`: True if the bound is the likelihood itself, since nothing is integrated
        out by mean field.
    """

    settings: RowsSettings
    components: Component
    prepared: PreparedRows
    n_rows: int
    exact = False
    """True if the bound is the likelihood itself, since nothing is integrated out by mean field."""

    @abstractmethod
    def work(self, size: tuple[int, ...]) -> float:
        """Return rows × components × statistics of one pass, by which the precision is chosen."""

    @abstractmethod
    def run(self, size: tuple[int, ...], dtype: Any) -> "RowsRun[Any]":
        """Return a fit at this size, to be made in this precision."""

    @abstractmethod
    def bound(self, natural: dict[str, Statistics], size: tuple[int, ...], l: Any) -> float:
        """Return the evidence bound in float64 at exactly these natural parameters, in nats.

        l: q of the locals that the fit ended with.
        """

    def begin(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> RowsStart:
        """Return what a fit of this size begins from."""
        return RowsStart(key, start)

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Fit one size: from nothing, or from another size's components, the largest of which are split into the new
        ones.
        """
        return self.fit_with_history(size, key, start).estimate

    def fit_with_history(self, size: tuple[int, ...], key: Array, start: Estimate | None = None) -> FitHistory:
        """Do the same as `fit`, and return the bound along the way and every proposal too."""
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
        """Return (natural parameters as they are recorded, the bound at exactly these in nats).

        They are in float32, unless the fit is in float64 and rounding it costs more than `ROUNDING_LOSS`. The rate of a
        narrow component is the small difference of two large sums. Rounding these would make it too wide, or negative.
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
    """One fit at one size in one precision.

    `tiles`: the rows in this precision. `passes`: how many passes over the rows were made so far.
    """

    ordered = False
    """True if components are sticks, which are best in order of size, and ascents do not put them in order."""

    def __init__(self, owner: Owner, size: tuple[int, ...], dtype: Any):
        """Put the rows of `owner` on the devices in this precision; nothing is fitted."""
        self.owner, self.size, self.capacity, self.dtype = owner, size, capacity_of(size), dtype
        self.tiles: RowTiles = on_devices(cast_tiles(owner.prepared.tiles, dtype), 1)
        self.passes = 0

    @abstractmethod
    def first(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"]]:
        """Make the first ascent; return it and its bounds."""

    @abstractmethod
    def climbed(self, shares: Float[np.ndarray, "row component"]) -> Standing:
        """Climb a little from these responsibilities, and return the fit as proposals see it."""

    @abstractmethod
    def finished(self, standing: Standing) -> AscentTrace:
        """Climb to the end from the fit that proposals led to."""

    @abstractmethod
    def standing(self, trace: AscentTrace) -> Standing:
        """Return the end of an ascent as proposals see it."""

    @property
    @abstractmethod
    def most_passes(self) -> float:
        """Passes after which no more proposals are tried, given those of the first ascent."""

    def polish(self, trace: AscentTrace) -> AscentTrace:
        """Do what is left to do at the end of a fit; by default nothing."""
        return trace

    def fit(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"], tuple[Proposal, ...]]:
        """Make the whole fit; return (the last ascent, the bounds of the first ascent, every proposal tried)."""
        trace, bounds = self.first(begin)
        settings, record = self.owner.settings, ()
        if settings.rounds:
            most, tolerance = self.most_passes, GAIN * self.tolerance
            standing, record = improve(
                self.standing(trace), self.ideas, self.climbed, tolerance, settings.rounds, lambda: self.passes > most
            )
            trace = self.finished(standing) if any(each.accepted for each in record) else standing.trace
        return self.polish(trace), bounds, record

    @property
    def tolerance(self) -> float:
        """The nats that a sweep must gain."""
        return self.owner.settings.tolerance * self.owner.n_rows

    def coordinates(self, n_rows: int) -> Float[np.ndarray, "row dim"]:
        """Return the coordinates of the first `n_rows` rows; rows of padding come last."""
        tiles = self.owner.prepared.tiles
        return np.asarray(tiles.coordinates).reshape(tiles.weight.size, -1)[:n_rows]

    def in_tiles(self, shares: Float[np.ndarray, "row component"]) -> Float[Array | np.ndarray, "tile slot place"]:
        """Return responsibilities as the kernels take them, (tile, row of it, place of a component), with 0 for
        padding.
        """
        weight = self.owner.prepared.tiles.weight
        wide = np.zeros((weight.size, self.capacity[0]), self.dtype)
        wide[: len(shares), : shares.shape[1]] = shares
        return split(wide.reshape(*weight.shape, self.capacity[0]), 1)

    def ideas(self, standing: Standing) -> Iterator[Idea[np.ndarray]]:
        """Yield the proposals for this fit, the most promising first."""
        components = self.owner.components.with_expected_numbers(standing.trace.beliefs.mean)
        cuts = find_cuts(components, self.in_tiles(standing.shares), self.tiles, layout=self.owner.prepared.layout)
        coordinates = self.coordinates(len(standing.shares))
        most = self.owner.settings.proposals
        return ideas(standing, on_host(cuts), coordinates, self.ordered, most)

    def together(self, trace: AscentTrace) -> Float[np.ndarray, "component component"]:
        """Return by how many nats one component explains the rows of two better than each its own, (K, K)."""
        n, natural, n_dims = self.size[0], trace.beliefs.natural["components"], self.owner.prepared.layout.n_dims
        component = self.owner.components.with_expected_numbers(trace.beliefs.mean)
        return np.asarray(_gains(component, natural, n_dims=n_dims), np.float64)[:n, :n]


@kernel(static_argnames=("n_dims",), brief=True)
@counted
def _gains(component: Component, natural: Any, *, n_dims: int) -> Float[Array, "component component"]:
    """Return `gains_together`, compiled."""
    return gains_together(component, natural, n_dims)
