"""Fits of rows to components: a coordinate ascent, proposals while they raise the bound, and an ascent to the end.

Mixtures of rows, of groups of rows and of sequences of rows differ in where they begin and how they climb. The common
part is here: the precision, the proposals, when to stop, and how the fit is recorded.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.engine.ascent import AscentTrace
from lvsearch.inference.engine.estimate import Estimate, capacity_of, just_above, record_in_single_unless_it_costs
from lvsearch.inference.engine.estimator import BaseEstimator
from lvsearch.inference.mixtures.kernel import gains_together
from lvsearch.inference.mixtures.proposals import Idea, Proposal, Standing, find_cuts, ideas, improve
from lvsearch.inference.mixtures.rows import PreparedRows, RowTiles, cast_tiles
from lvsearch.inference.sharding import on_devices, on_host, split
from lvsearch.models.components import Component
from lvsearch.models.contract import Statistics
from lvsearch.models.kernels import kernel

GAIN = 10
"""A proposal is accepted if it gains this many times the nats that a sweep of the ascent must gain."""


@runtime_checkable
class RowsSettings(Protocol):
    """The settings that all fits of rows share. Each kind of fit documents further ones.

    | field | meaning |
    |---|---|
    | `tolerance` | nats per row that a sweep must gain for the ascent to go on |
    | `rounds` | rounds of proposals |
    | `proposals` | how many proposals of each kind a round tries |
    | `double_below` | rows × components × statistics up to which everything is in float64 |
    """

    @property
    def tolerance(self) -> float:
        """The nats per row that a sweep must gain for the ascent to go on."""
        ...

    @property
    def rounds(self) -> int:
        """The most rounds of proposals."""
        ...

    @property
    def proposals(self) -> int:
        """The number of proposals of each kind that a round tries."""
        ...

    @property
    def double_below(self) -> float:
        """The rows × components × statistics up to which everything is in float64."""
        ...


class FitHistory(NamedTuple):
    """A fit with its history.

    | field | meaning |
    |---|---|
    | `estimate` | the fit, in the form that every estimator returns |
    | `bounds` | the bound before each sweep of the first ascent, nats; empty if sweeps have no bound |
    | `proposals` | every proposal tried, in order |
    """

    estimate: Estimate
    bounds: Float[np.ndarray, " sweep"]
    proposals: tuple[Proposal, ...]


class RowsStart(NamedTuple):
    """The beginning of a fit: a random key, and fits to start from.

    | field | meaning |
    |---|---|
    | `key` | a random key |
    | `start` | the fit of another size whose components are split, or None |
    | `pooled` | for groups or sequences: a fit of all rows without their groups or order, or None |
    | `alone` | True to begin at `start` alone and to try no proposals, so that components keep their numbers |
    """

    key: Array
    start: Estimate | None
    pooled: Estimate | None = None
    alone: bool = False


Owner = TypeVar("Owner", bound="RowsEstimator")


class RowsEstimator(BaseEstimator, ABC):
    """The base of estimators of rows, such as mixtures of rows, of groups of rows, and hidden Markov models.

    `settings`: how much work a fit does.
    `components`: the kind of component.
    `prepared`: the rows in tiles.
    `n_rows`: how many rows there are.
    `exact`: True if the bound is the likelihood itself, since nothing is integrated out by mean field.
    """

    settings: RowsSettings
    components: Component
    prepared: PreparedRows
    n_rows: int
    exact = False
    """True if the bound is the likelihood itself, since nothing is integrated out by mean field."""

    @abstractmethod
    def work(self, size: tuple[int, ...]) -> float:
        """Return rows × components × statistics of one pass over the rows, by which the precision is chosen.

        size: the size variables, such as (number of components,).
        """

    @abstractmethod
    def run(self, size: tuple[int, ...], dtype: Any) -> "RowsRun[Any]":
        """Return an unfinished fit at this size. Its `fit` does the work.

        size: the size variables, such as (number of components,).
        dtype: the floating-point type in which it computes.
        """

    @abstractmethod
    def bound(self, natural: dict[str, Statistics], size: tuple[int, ...], l: Any) -> float:
        """Return the lower bound on the log evidence for given natural parameters of q(weights, components), in nats,
        computed in float64.

        natural: natural parameters of q by variable (weights, components, hyper-parameters).
        size: the size variables.
        l: q of the local variables with which the fit ended.
        """

    def begin(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> RowsStart:
        """Return what a fit of this size begins from: by default the key and the fit of another size alone.

        start: the fit of another size, or None.
        """
        return RowsStart(key, start)

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Fit one size and return the fit.

        size: the size variables, such as (number of components,).
        key: a random key.
        start: a fit of a smaller size, whose largest components are split into the new ones; None begins from nothing.
        """
        return self.fit_with_history(size, key, start).estimate

    def continue_fit(self, size: tuple[int, ...], key: Array, start: Estimate) -> Estimate:
        """Return an ascent from a fit of the same size to other data, without proposals; components keep their numbers.

        size: the size variables. key: a random key. start: the fit of this size.
        """
        return self._fit_in_best_precision(size, RowsStart(key, start, alone=True)).estimate

    def fit_with_history(self, size: tuple[int, ...], key: Array, start: Estimate | None = None) -> FitHistory:
        """Fit one size, and return the fit together with its bounds along the way and every proposal tried.

        A fit in float32 that is not a number is made again in float64: with many equal cells in a column, float32 may
        lose the width of a component.

        size: the size variables, such as (number of components,).
        key: a random key.
        start: a fit of a smaller size, whose largest components are split into the new ones; None begins from nothing.
        """
        return self._fit_in_best_precision(size, self.begin(size, key, start))

    def _fit_in_best_precision(self, size: tuple[int, ...], begin: RowsStart) -> FitHistory:
        """Fit one size in float32 or float64, as `fit_with_history` says, and return the fit with its history.

        size: the size variables. begin: what the fit begins from.
        """
        double = self.work(size) <= self.settings.double_below
        history = self._fit_in_precision(size, begin, double=double)
        if double or not np.isnan(history.estimate.log_lower):
            return history
        return self._fit_in_precision(size, begin, double=True)

    def _fit_in_precision(self, size: tuple[int, ...], begin: RowsStart, *, double: bool) -> FitHistory:
        """Fit one size in float64 or in float32, and return the fit with its history.

        size: the size variables. begin: what the fit begins from. double: True for float64.
        """
        with jax.enable_x64(double):
            run = self.run(size, np.float64 if double else np.float32)
            ended, bounds, proposals = run.fit(begin)
        local = on_host(ended.locals)
        natural, lower = record_in_single_unless_it_costs(
            self.model, ended.beliefs, size, run.capacity, lambda n: self.bound(n, size, local), double=double
        )
        upper = just_above(lower) if self.exact else np.inf
        passes = run.passes + (0 if begin.pooled is None else begin.pooled.passes)
        return FitHistory(Estimate(self.model, size, natural, lower, upper, passes), bounds, proposals)


class RowsRun(ABC, Generic[Owner]):
    """One fit at one size in one floating-point type. Subclasses say where it begins and how it climbs.

    `owner`: the estimator.
    `size`, `capacity`: the size variables, and the lengths of the arrays over components.
    `tiles`: the rows in the fit's floating-point type.
    `passes`: how many passes over the rows were made so far.
    """

    ordered = False
    """True if components are sticks, which are best in order of size, and ascents do not put them in order."""

    def __init__(self, owner: Owner, size: tuple[int, ...], dtype: Any):
        """Put the rows of the estimator `owner` on the devices in this floating-point type; nothing is fitted."""
        self.owner, self.size, self.capacity, self.dtype = owner, size, capacity_of(size), dtype
        self.tiles: RowTiles = on_devices(cast_tiles(owner.prepared.tiles, dtype), 1)
        self.passes = 0

    @abstractmethod
    def first_ascent(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"]]:
        """Make the first ascent; return (the ascent, the bound before each of its sweeps in nats, (sweep,)).

        begin: what to begin from.
        """

    @abstractmethod
    def climb_from(self, shares: Float[np.ndarray, "row component"]) -> Standing:
        """Climb a little from given responsibilities, and return the fit in the form that proposals need.

        shares: responsibilities, (row, component).
        """

    @abstractmethod
    def last_ascent(self, standing: Standing) -> AscentTrace:
        """Climb to the end from the fit that proposals led to, and return the ascent."""

    @abstractmethod
    def survey(self, trace: AscentTrace) -> Standing:
        """Return the end of an ascent in the form in which proposals are made from it."""

    @property
    @abstractmethod
    def most_passes(self) -> float:
        """The number of passes over the rows after which no more proposals are tried.

        It is read once, after the first ascent.
        """

    def polish(self, trace: AscentTrace) -> AscentTrace:
        """Return the ascent after what is left to do at the end of a fit; by default the same ascent."""
        return trace

    def fit(self, begin: RowsStart) -> tuple[AscentTrace, Float[np.ndarray, " sweep"], tuple[Proposal, ...]]:
        """Make the whole fit; return (the last ascent, the bounds of the first ascent in nats, every proposal tried).

        begin: what to begin from.
        """
        trace, bounds = self.first_ascent(begin)
        settings, record = self.owner.settings, ()
        if settings.rounds and not begin.alone and self.has_choice:
            most, tolerance = self.most_passes, GAIN * self.tolerance
            standing, record = improve(
                self.survey(trace), self.ideas, self.climb_from, tolerance, settings.rounds, lambda: self.passes > most
            )
            trace = self.last_ascent(standing) if any(each.accepted for each in record) else standing.trace
        return self.polish(trace), bounds, record

    @property
    def has_choice(self) -> bool:
        """True if rows may lie in different components. One component has all rows, and nothing can be proposed."""
        return any(number > 1 for number in self.size)

    @property
    def tolerance(self) -> float:
        """The nats that a sweep must gain for the ascent to go on."""
        return self.owner.settings.tolerance * self.owner.n_rows

    def coordinates(self, n_rows: int) -> Float[np.ndarray, "row dim"]:
        """Return the coordinates of the first `n_rows` rows, (row, dim). Rows of padding come last."""
        tiles = self.owner.prepared.tiles
        return np.asarray(tiles.coordinates).reshape(tiles.weight.size, -1)[:n_rows]

    def in_tiles(self, shares: Float[np.ndarray, "row component"]) -> Float[Array | np.ndarray, "tile slot place"]:
        """Return responsibilities in the form that the kernels take: (tile, row of the tile, component), 0 for padding.

        shares: responsibilities, (row, component).
        """
        weight = self.owner.prepared.tiles.weight
        wide = np.zeros((weight.size, self.capacity[0]), self.dtype)
        wide[: len(shares), : shares.shape[1]] = shares
        return split(wide.reshape(*weight.shape, self.capacity[0]), 1)

    def ideas(self, standing: Standing) -> Iterator[Idea[np.ndarray]]:
        """Yield the proposals for a fit, the most promising first."""
        components = self.owner.components.with_expected_numbers(on_host(standing.trace.beliefs.mean))
        cuts = find_cuts(components, self.in_tiles(standing.shares), self.tiles, layout=self.owner.prepared.layout)
        coordinates = self.coordinates(len(standing.shares))
        most = self.owner.settings.proposals
        return ideas(standing, on_host(cuts), coordinates, self.ordered, most)

    def together(self, trace: AscentTrace) -> Float[np.ndarray, "component component"]:
        """Return by how many nats one component explains the rows of two better than two components do.

        It is negative for a pair that two components explain better (`gains_together`).

        trace: the ascent whose q(components) is used.

        Returns: (component, component).
        """
        n, natural, n_dims = self.size[0], trace.beliefs.natural["components"], self.owner.prepared.layout.n_dims
        component = self.owner.components.with_expected_numbers(trace.beliefs.mean)
        exists = np.arange(len(jax.tree.leaves(natural)[0])) < n
        return np.asarray(_gains(component, natural, exists, n_dims=n_dims), np.float64)[:n, :n]


@kernel(static_argnames=("n_dims",), brief=True)
@counted
def _gains(
    component: Component, natural: Any, exists: Bool[Array, " component"], *, n_dims: int
) -> Float[Array, "component component"]:
    """Return, compiled, by how many nats one component explains the rows of two better than two do (`gains_together`).

    natural: natural parameters of q(component parameters), components on the leading axis.
    exists: the components that exist; the others are places (array slots) without one.
    n_dims: the number of columns of the rows' coordinates.
    """
    return gains_together(component, natural, exists, n_dims)
