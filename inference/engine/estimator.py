"""What fits a model at one size: the common face of the generic engine and of the hand-written kernels.

`estimator(model, data)` gives the fastest estimator known for the model's type; a kernel registers itself with
`estimator.register(ModelType)`. Every estimator answers with an `Estimate`, whose bounds are computed in float64 at
exactly the state that it carries.
"""

from collections.abc import Mapping
from copy import copy
from functools import singledispatch
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.memory import MIB, Chunks, MemoryPlan, Part, machine_chunks
from lvsearch.inference.engine.estimate import (
    Estimate,
    beliefs_of,
    capacity_of,
    cut_axes,
    pad_axes,
    recorded_at,
)
from lvsearch.inference.engine.meanfield import Beliefs, MeanField, ascend, batch_bound, cast, fit_locals
from lvsearch.inference.engine.meanfield_starts import blank_globals, blank_unit, scattered_start
from lvsearch.models.contract import Model, Statistics
from lvsearch.models.kernels import kernel


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


Own = TypeVar("Own", bound="BaseEstimator")


class BaseEstimator:
    """What estimators have in common. A kernel's own says how it fits and what memory that takes."""

    shrinks = False

    def __init__(self, model: Model):
        self.model = model
        self.chunks = machine_chunks()

    def with_chunks(self: Own, chunks: Chunks) -> Own:
        """The same model and data in other chunks, where the kernel works in any; else itself, but for their name."""
        other = copy(self)
        other.chunks = chunks
        return other


class GenericEstimator(BaseEstimator):
    """Batch mean field by the generic engine, for any model that has no kernel of its own."""

    def __init__(self, model: Model, data: Dataset, *, sweeps: int = 200, tolerance: float = 1e-5):
        super().__init__(model)
        self.data, self.sweeps, self.tolerance = data, sweeps, tolerance

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Coarse: the arrays by their shapes, times how many of each are alive at once; see `resident_plan`."""
        return resident_plan(self.model, self.data, size, capacity_of(size))

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Coordinate ascent from scattered locals, or from the locals that follow from a smaller fit plus a scatter.

        In float32, or in float64 where the data would lose digits that tell units apart (`needs_double`).
        """
        capacity, double = capacity_of(size), needs_double(self.data)
        with jax.enable_x64(double):
            dtype = np.float64 if double else np.float32
            begin = scattered_start(self.model, key, self.data, size, capacity, dtype)
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


ROUNDING_SHARE = 1e-4
"""Of a column's standard deviation: cells that rounding to float32 moves by more no longer tell units well apart."""


def needs_double(data: Dataset) -> bool:
    """Whether rounding to float32 moves some cell by more than `ROUNDING_SHARE` of how widely its column spreads.

    Columns are the last axis of the units' floating-point leaves. Zeros, which stand for padding and for what was not
    observed, are exact in any precision and are left out of the spread.
    """

    def loses(leaf: np.ndarray) -> bool:
        cells = leaf.reshape(-1, leaf.shape[-1] if leaf.ndim > 1 else 1)
        moved = np.abs(cells - cells.astype(np.float32)).max(0, initial=0.0)
        known = cells != 0
        count = np.maximum(known.sum(0), 1)
        centred = np.where(known, cells - cells.sum(0) / count, 0.0)
        return bool(np.any(moved > ROUNDING_SHARE * np.sqrt((centred**2).sum(0) / count)))

    leaves = (np.asarray(leaf) for batch in data.batches for leaf in jax.tree.leaves(batch.units))
    return any(loses(leaf) for leaf in leaves if leaf.dtype == np.float64)


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
        beliefs, total = recorded_at(model, natural, size, capacity)
        for batch, l in zip(cast(data, np.float64).batches, fitted.locals, strict=True):
            start = jax.tree.map(lambda x: np.asarray(x, np.float64), l)
            per_unit = _recorded_units(model, beliefs.mean, batch, start, size, capacity=capacity)
            total += float(np.asarray(per_unit) @ np.asarray(batch.weight))
    return total


@kernel(static_argnames=("capacity",), once=True)
@counted
def _recorded_units(
    model: Model,
    g: Mapping[str, Statistics],
    batch: Batch,
    start: Beliefs,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Float[Array, " units"]:
    """The bound of each unit after one sweep of its locals, nats, not weighted."""
    refreshed = fit_locals(model, g, batch, start, size, capacity=capacity, sweeps=1)
    return batch_bound(model, g, batch, refreshed, size, capacity=capacity)


@singledispatch
def estimator(model: Model, data: Dataset) -> Estimator:
    """The fastest estimator known for this type of model."""
    return GenericEstimator(model, data)
