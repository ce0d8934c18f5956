"""What fits a model at one size: the common face of the generic engine and of the hand-written kernels.

`estimator(model, data)` gives the fastest estimator known for the model's type; a kernel registers itself with
`estimator.register(ModelType)`. Every estimator answers with an `Estimate`, whose bounds are computed in float64 at
exactly the state that it carries.
"""

from collections.abc import Mapping
from copy import copy
from functools import partial, singledispatch
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.memory import MIB, Chunks, MemoryPlan, Part, machine_chunks
from lvsearch.inference.engine.meanfield import (
    Beliefs,
    MeanField,
    ascend,
    batch_bound,
    cast,
    expected_statistics,
    fit_locals,
    globals_bound,
    mask_elements,
)
from lvsearch.inference.engine.meanfield_starts import blank_globals, blank_locals, blank_unit, scattered_start
from lvsearch.inference.engine.representation import differs_in_length, existing, gathered, representing_value
from lvsearch.models.contract import Model, Statistics

CAPACITIES = (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
LARGE_STEP = 64
"""Sizes are padded to one of these (beyond the last: to multiples of the step), so that few shapes are compiled."""


class Estimate(NamedTuple):
    """A model fitted at one size.

    | field | meaning |
    |---|---|
    | `model` | with the hyper-parameters used, those of existing components only |
    | `size` | the size variables |
    | `natural` | natural parameters of q(globals), float32, existing components only |
    | `log_lower` | ≤ log p(data | size) (parameters integrated out) or log p(data | size, θ) (plug-in), nats |
    | `log_upper` | upper bound on the same, `inf` where none was computed |
    | `passes` | passes over the data |
    """

    model: Model
    size: tuple[int, ...]
    natural: dict[str, Statistics]
    log_lower: float
    log_upper: float
    passes: int


@runtime_checkable
class Estimator(Protocol):
    """Fits one model to one data set at any size.

    `shrinks`: warm starts are fits of slightly larger sizes, whose components are merged; else of smaller sizes, to
    which components are added.
    `chunks`: how small the chunks are that it works in, which decides the bits of its results.
    """

    chunks: Chunks

    @property
    def shrinks(self) -> bool: ...

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """One fit: from scratch with `key`, or from the fit of another size."""
        ...

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """What one fit of this size holds at most in these chunks."""
        ...

    def with_chunks(self, chunks: Chunks) -> "Estimator":
        """The same model and data in other chunks; the same plan says that there are none smaller."""
        ...


def capacity_of(size: tuple[int, ...]) -> tuple[int, ...]:
    """The capacity that each size variable is padded to."""
    return tuple(next((c for c in CAPACITIES if c >= n), -(-n // LARGE_STEP) * LARGE_STEP) for n in size)


def cut_axes(
    model: Model, statistics: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """Statistics of the globals without the components that do not exist, as NumPy arrays."""
    on = {axis: np.asarray(mask) for axis, mask in model.active(size, capacity).items()}
    out = {}
    for name, site in model.globals().items():
        index = tuple(on.get(axis, slice(None)) for axis in site.axes)

        def cut(leaf: Array | np.ndarray, index: tuple = index) -> np.ndarray:
            values = np.asarray(leaf)
            for position, mask in enumerate(index[: values.ndim]):
                if not isinstance(mask, slice):
                    values = np.compress(mask, values, axis=position)
            return values

        out[name] = jax.tree.map(cut, statistics[name])
    return out


def pad_axes(
    model: Model, statistics: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """The inverse of `cut_axes`: zeros where components do not exist."""
    lengths = {axis: mask.shape[0] for axis, mask in model.active(size, capacity).items()}
    out = {}
    for name, site in model.globals().items():
        wanted = [lengths.get(axis) for axis in site.axes]

        def pad(leaf: Array | np.ndarray, wanted: list[int | None] = wanted) -> np.ndarray:
            values = np.asarray(leaf)
            width = [(0, (n or have) - have) for n, have in zip(wanted, values.shape, strict=False)]
            width += [(0, 0)] * (values.ndim - len(width))  # of a family that has more axes in some of its fields
            return np.pad(values, width) if width else values  # a number of its own has no axis to pad

        out[name] = jax.tree.map(pad, statistics[name])
    return out


@partial(jax.jit, static_argnames=("capacity",))
@counted
def beliefs_of(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> Beliefs:
    """q(globals) from its padded natural parameters."""
    on = model.active(size, capacity)
    return Beliefs(natural, {n: expected_statistics(s, natural[n], on) for n, s in model.globals().items()})


@partial(jax.jit, static_argnames=("capacity",))
@counted
def point_of(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """The statistics of the globals at their posterior means."""
    on = model.active(size, capacity)
    points = {n: s.family.point(natural[n], s.event_mask(on)) for n, s in model.globals().items()}
    return {n: mask_elements(s, points[n], on) for n, s in model.globals().items()}


class GenericEstimator:
    """Batch mean field by the generic engine, for any model that has no kernel of its own."""

    shrinks = False

    def __init__(self, model: Model, data: Dataset, *, sweeps: int = 200, tolerance: float = 1e-5):
        self.model, self.data, self.sweeps, self.tolerance = model, data, sweeps, tolerance
        self.chunks = machine_chunks()

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Coarse: the arrays by their shapes, times how many of each are alive at once; see `resident_plan`."""
        return resident_plan(self.model, self.data, size, capacity_of(size))

    def with_chunks(self, chunks: Chunks) -> "GenericEstimator":
        """Itself, but for what `chunks` says: all units stay resident, so there is nothing to make smaller."""
        other = copy(self)
        other.chunks = chunks
        return other

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Coordinate ascent from scattered locals, or from the locals that follow from a smaller fit plus a scatter."""
        capacity = capacity_of(size)
        begin = scattered_start(self.model, key, self.data, size, capacity)
        if start is not None:
            begin = self._grown(begin, start, size, capacity)
        fitted = ascend(
            self.model, self.data, begin, size, capacity=capacity, sweeps=self.sweeps, tolerance=self.tolerance
        )
        natural = cut_axes(self.model, fitted.beliefs.natural, size, capacity)
        lower = exact_bound(self.model, self.data, natural, fitted, size, capacity)
        return Estimate(self.model, size, natural, lower, np.inf, len(fitted.trace))

    def _grown(self, begin: MeanField, start: Estimate, size: tuple[int, ...], capacity: tuple[int, ...]) -> MeanField:
        """Components of `start` where it has them, scattered ones where it has not."""
        old = pad_axes(self.model, start.natural, start.size, capacity)
        small = {axis: np.asarray(mask) for axis, mask in self.model.active(start.size, capacity).items()}
        natural = {}
        for name, site in self.model.globals().items():

            def choose(new: Array, kept: np.ndarray, site: Any = site) -> np.ndarray:
                where = np.ones((1,) * new.ndim, bool)
                for position, axis in enumerate(site.axes[: new.ndim]):
                    if axis in small:
                        where = where & small[axis].reshape([-1 if p == position else 1 for p in range(new.ndim)])
                return np.where(where, kept, np.asarray(new))

            natural[name] = jax.tree.map(choose, begin.beliefs.natural[name], old[name])
        return begin._replace(beliefs=beliefs_of(self.model, natural, size, capacity=capacity))


PROGRAMS = 150 * MIB
"""What compiling the generic engine for one capacity and layout leaves allocated, about."""
DATA_COPIES, LOCALS_COPIES, GLOBALS_COPIES = 3, 4, 6
"""Data: as they are, in float32, in float64. Locals: before and after a sweep, each with natural parameters and means
(one `Beliefs`), a sweep's gradients, and float64 of one batch. Globals: as locals, and the prior's gradient."""


def resident_plan(model: Model, data: Dataset, size: tuple[int, ...], capacity: tuple[int, ...]) -> MemoryPlan:
    """What the generic engine holds with all units resident, in bytes: data × 3 + q(locals) × 4 + q(globals) × 6.

    Shapes are evaluated abstractly: nothing is compiled or allocated.
    """

    def n_bytes(tree: Any) -> int:
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    q_globals = jax.eval_shape(lambda: blank_globals(model, data.extents, size, capacity))
    q_locals = 0
    on = model.active(size, capacity)
    for batch in data.batches:
        q_locals += n_bytes(jax.eval_shape(jax.vmap(lambda unit: blank_unit(model, unit, on, np.float32)), batch.units))
    return MemoryPlan(
        (
            Part("data", DATA_COPIES * n_bytes(data.batches)),
            Part("beliefs about units", LOCALS_COPIES * q_locals),
            Part("beliefs about parameters", GLOBALS_COPIES * n_bytes(q_globals)),
            Part("compiled programs", PROGRAMS),
        )
    )


def exact_bound(
    model: Model,
    data: Dataset,
    natural: Mapping[str, Statistics],
    fitted: MeanField,
    size: tuple[int, ...],
    capacity: tuple[int, ...],
) -> float:
    """The bound in float64 at exactly these globals, the locals refreshed by one sweep, in nats."""
    with jax.enable_x64(True):
        padded = jax.tree.map(lambda x: np.asarray(x, np.float64), pad_axes(model, natural, size, capacity))
        beliefs = beliefs_of(model, padded, size, capacity=capacity)
        total = float(globals_bound(model, beliefs, size, capacity=capacity))
        for batch, l in zip(cast(data, np.float64).batches, fitted.locals, strict=True):
            start = jax.tree.map(lambda x: np.asarray(x, np.float64), l)
            refreshed = fit_locals(model, beliefs.mean, batch, start, size, capacity=capacity, sweeps=1)
            per_unit = batch_bound(model, beliefs.mean, batch, refreshed, size, capacity=capacity)
            total += float(np.asarray(per_unit) @ np.asarray(batch.weight))
    return total


@singledispatch
def estimator(model: Model, data: Dataset) -> Estimator:
    """The fastest estimator known for this type of model."""
    return GenericEstimator(model, data)


# ── what a fitted model says about units ────────────────────────────────────────────────────────────────────────────


UNIT_SWEEPS, UNIT_TOLERANCE = 100, 1e-4


class Described(NamedTuple):
    """Per unit of a data set, in its order: the expected value of the representing site, and the bound in nats.

    `representation`: (units, …), or, where units differ in how many elements they have, one array for each.
    """

    representation: Any
    log_lower: np.ndarray


@singledispatch
def unit_ceilings(model: Model, data: Dataset) -> np.ndarray:
    """A number ≥ log p(unit | any size, any parameters) for each unit, nats; `inf` where there is none."""
    one_by_one = [
        np.array(
            [model.ceiling(jax.tree.map(lambda leaf, r=row: leaf[r : r + 1], batch.units)) for row in range(len(ids))]
        )
        for batch, ids in zip(data.batches, data.unit_ids, strict=True)
    ]
    return data.gather(one_by_one)


@singledispatch
def bound_units(model: Model, estimate: Estimate, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) ends of log p(unit | parameters at their posterior means), nats, one of each per unit.

    Where nothing better is known the upper end is the model's ceiling of that unit.
    """
    lower = describe_units(model, estimate, data).log_lower
    return lower, np.maximum(lower, unit_ceilings(model, data))


@singledispatch
def describe_units(model: Model, estimate: Estimate, data: Dataset) -> Described:
    """Fit the locals of new units with the parameters at their posterior means; model: `estimate.model`.

    The bound is a lower bound on log p(unit | θ̂) at the point estimate θ̂, in nats, in float64.
    """
    size = estimate.size
    capacity = capacity_of(size)
    on = model.active(size, capacity)
    representation, lower = [], []

    def point(dtype: Any) -> dict[str, Statistics]:
        natural = jax.tree.map(lambda x: np.asarray(x, dtype), pad_axes(model, estimate.natural, size, capacity))
        return point_of(model, natural, size, capacity=capacity)

    g = point(np.float32)
    for batch in data.batches:
        start = blank_locals(model, batch, size, capacity=capacity)
        settled = fit_locals(
            model, g, batch, start, size, capacity=capacity, sweeps=UNIT_SWEEPS, tolerance=UNIT_TOLERANCE
        )
        representation.append(existing(model, batch, np.asarray(representing_value(model, settled, on)), on))
        with jax.enable_x64(True):
            double = cast(Dataset.of_batches((batch,), (), {}, 0), np.float64).batches[0]
            wide = jax.tree.map(lambda x: np.asarray(x, np.float64), settled)
            g64 = point(np.float64)
            refreshed = fit_locals(model, g64, double, wide, size, capacity=capacity, sweeps=1)
            lower.append(np.asarray(batch_bound(model, g64, double, refreshed, size, capacity=capacity)))
    described_units = gathered(data, representation)
    ragged = differs_in_length(model, data.batches[0].units)
    return Described(described_units if ragged else np.stack(described_units), data.gather(lower))
