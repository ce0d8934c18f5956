"""Estimators, which fit a model at one size, and the memory that a fit takes.

`estimator(model, data)` returns the fastest estimator known for the model's type, which stands in the type's kit
(`model_kits`). Every estimator returns an `Estimate`, whose bounds are computed in float64 at exactly the state that it
carries. The interface that all estimators share is here, and the generic estimator for any model.

An estimator states a `MemoryPlan` for every size, and works in chunks of the data that `Chunks` controls. There are so
many chunks that the plan stays within a budget. Their size is halved once more each time the device runs out of memory
all the same. Chunks depend only on the data, the size and `Chunks`, so a search resumed with the same `Chunks` gives
the same bits.
"""

import os
import sys
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jaxtyping import Array, Float

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.estimate import (
    Estimate,
    beliefs_of,
    capacity_of,
    cut_axes,
    pad_axes,
    recorded_beliefs_and_bound,
)
from lvsearch.inference.engine.meanfield import Beliefs, MeanField, ascend, batch_bound, cast, fit_locals
from lvsearch.inference.engine.meanfield_starts import (
    blank_globals,
    blank_unit,
    leanings_to_nearest,
    scattered_start,
)
from lvsearch.inference.kits import model_kit
from lvsearch.models.contract import Latents, Model
from lvsearch.models.kernels import kernel

# ── the memory of a fit ───────────────────────────────────────────────────────────────────────────────────────────────


KIB, MIB, GIB = 2**10, 2**20, 2**30
HOST_SHARE, DEVICE_SHARE = 0.5, 0.8
"""The share of a machine's memory that fits may take.

A host also holds other things, and a device keeps room for the compiler.
"""


class Part(NamedTuple):
    """The bytes of one kind of array at the worst moment of a fit, all its copies together. `name` says which kind."""

    name: str
    n_bytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a fit of one size needs at its worst moment, beside the data set itself.

    | field | meaning |
    |---|---|
    | `parts` | bytes by kind of array at the moment that needs most |
    | `n_batches` | batches whose expected counts are kept between passes; 0 where none are |
    | `bytes_per_batch` | bytes that one such batch keeps |
    """

    parts: tuple[Part, ...]
    n_batches: int = 0
    bytes_per_batch: int = 0

    @property
    def peak_bytes(self) -> int:
        """The bytes that the fit needs at its worst moment: the sum over kinds of arrays."""
        return sum(part.n_bytes for part in self.parts)

    @property
    def kept_bytes(self) -> int:
        """The bytes that all batches together keep between passes."""
        return self.n_batches * self.bytes_per_batch

    def describe(self, size: str) -> str:
        """Return the plan as one line for people.

        size: the size in words, such as "64 topics".
        """
        text = f"at most about {in_words(self.peak_bytes)} at {size}"
        if self.n_batches:
            several = f"{self.n_batches} batches keep" if self.n_batches > 1 else "one batch keeps"
            text += f" ({several} {in_words(self.kept_bytes)} of counts)"
        return text


class Chunks(NamedTuple):
    """The memory that decides how large the chunks of data are in which a fit works.

    budget_bytes: the most that a memory plan may come to, in bytes.
    halvings: how often memory ran out; each time the chunks are halved.
    """

    budget_bytes: int
    halvings: int = 0

    def halved(self) -> "Chunks":
        """Return chunks half as large, after memory ran out."""
        return self._replace(halvings=self.halvings + 1)


def machine_chunks() -> Chunks:
    """Return chunks whose budget is the memory that this machine has for fits.

    The budget is 0.8 of the device's memory if the device says how much that is, else half of the host's memory.
    """
    stats = jax.local_devices()[0].memory_stats()
    if stats is not None and "bytes_limit" in stats:
        return Chunks(int(DEVICE_SHARE * stats["bytes_limit"]))
    if not hasattr(os, "sysconf"):  # Windows does not say without a further package
        return Chunks(sys.maxsize)
    return Chunks(int(HOST_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))


def out_of_memory(error: BaseException) -> bool:
    """Return True if an error says that memory ran out, on the host or on the device."""
    return isinstance(error, MemoryError) or (isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error))


def in_words(n_bytes: int) -> str:
    """Return a number of bytes in words, such as "1.2 GiB", "48 MiB" or "3 KiB"."""
    if n_bytes >= 0.995 * GIB:
        return f"{n_bytes / GIB:,.1f} GiB"
    return f"{n_bytes / MIB:,.0f} MiB" if n_bytes >= 0.995 * MIB else f"{n_bytes / KIB:,.0f} KiB"


# ── estimators ────────────────────────────────────────────────────────────────────────────────────────────────────────


@runtime_checkable
class Estimator(Protocol):
    """An object that fits one model to one data set at any size.

    `shrinks`: True if warm starts are fits of slightly larger sizes, whose components are merged. False if they are
        fits of smaller sizes, to which components are added.
    `chunks`: the largest chunks of data that it works in at a time. They bound its memory and decide the rounding of
        its results.
    """

    chunks: Chunks

    @property
    def shrinks(self) -> bool:
        """True if warm starts are fits of slightly larger sizes; False if they are fits of smaller ones."""
        ...

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return the fit of the model at one size.

        size: how many components, for each size variable.
        key: the random key of a start from scratch.
        start: the fit of another size to start from; None starts from scratch.
        """
        ...

    def fit_to_merge(self, size: tuple[int, ...], key: Array) -> Estimate:
        """Return a fit at a large size, from a random start, which serves only to be merged to a smaller size.

        size: how many components, for each size variable. key: the random key of the start.
        """
        ...

    def bend_below(self, fit: Estimate) -> int | None:
        """Return the size at which the log likelihood bends as components are removed from a fit, for models with one
        size variable; None if it does not bend, or if nothing is known of bends.
        """
        ...

    def continue_fit(self, size: tuple[int, ...], key: Array, start: Estimate) -> Estimate:
        """Return a fit that begins at a fit of the same size to other data; components keep their numbers.

        size: how many components, for each size variable. key: the random key of what the fit does not say.
        start: the fit of this size; nothing else is tried.
        """
        ...

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return the most memory that one fit of this size holds, by kind of array, if it works in the present
        chunks.
        """
        ...

    def with_chunks(self, chunks: Chunks) -> "Estimator":
        """Return an estimator of the same model and data that works in other chunks.

        If the new estimator's memory plan equals that of this one, no smaller chunks exist.
        """
        ...


Own = TypeVar("Own", bound="BaseEstimator")


class BaseEstimator:
    """The base of all estimators, which holds the model and the chunks. A subclass adds `fit` and `memory_plan`."""

    shrinks = False

    def __init__(self, model: Model):
        """Keep the model, and choose the chunks of data to work in by the memory of this machine."""
        self.model = model
        self.chunks = machine_chunks()

    def with_chunks(self: Own, chunks: Chunks) -> Own:
        """Return a copy that works in these chunks. A kernel that does not work in chunks is not changed by them.

        chunks: the memory that a plan may come to, and how often memory ran out before.
        """
        other = copy(self)
        other.chunks = chunks
        return other

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Return the fit of the model at one size (`Estimator.fit`). Every subclass has its own.

        Raises NotImplementedError if a subclass has none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fit")

    def fit_to_merge(self, size: tuple[int, ...], key: Array) -> Estimate:
        """Return a fit at a large size, from a random start, which serves only to be merged to a smaller size.

        A subclass may leave out what merging does not need, such as the bound on the evidence.

        size: how many components, for each size variable. key: the random key of the start.
        """
        return self.fit(size, key, None)

    def bend_below(self, fit: Estimate) -> int | None:
        """Return None: nothing is known of bends. A subclass that removes components from fits has its own."""
        return None

    def continue_fit(self, size: tuple[int, ...], key: Array, start: Estimate) -> Estimate:
        """Return a fit that begins at a fit of the same size to other data; components keep their numbers.

        A subclass whose `fit` also tries other starts, or moves components, leaves these out here.

        size: how many components, for each size variable. key: the random key of what the fit does not say.
        start: the fit of this size; nothing else is tried.
        """
        return self.fit(size, key, start)


class GenericEstimator(BaseEstimator):
    """Mean field by the generic engine with all data in every sweep, for any model that has no kernel of its own."""

    def __init__(self, model: Model, data: Dataset, *, sweeps: int = 200, tolerance: float = 1e-5):
        """Keep the model and the data; nothing is computed.

        sweeps: the most sweeps of a fit.
        tolerance: a fit ends when a sweep gains less than this many nats per unit.
        """
        super().__init__(model)
        self.data, self.sweeps, self.tolerance = data, sweeps, tolerance

    def memory_plan(self, size: tuple[int, ...]) -> MemoryPlan:
        """Return a coarse plan of a fit's memory: the bytes of its arrays, times how many of each exist at once.

        size: how many components, for each size variable.
        """
        return resident_plan(self.model, self.data, size, capacity_of(size))

    def fit(self, size: tuple[int, ...], key: Array, start: Estimate | None) -> Estimate:
        """Fit by coordinate ascent from local variables that make components differ (`meanfield_starts`), or from a
        smaller fit with such components added.

        The fit is in float32, or in float64 if float32 would lose digits that tell units apart (`needs_double`).

        size: how many components, for each size variable.
        key: the random key of the start.
        start: the fit of a smaller size; None starts from scratch.
        """
        capacity, double = capacity_of(size), needs_double(self.data)
        with jax.enable_x64(double):
            dtype = np.float64 if double else np.float32
            leanings = leanings_to_nearest(key, cast(self.data, dtype).batches, size, capacity)
            begin = scattered_start(self.model, key, self.data, size, capacity, dtype, leanings)
            if start is not None:
                begin = self._grown(begin, start, size, capacity)
            fitted = ascend(
                self.model, self.data, begin, size, capacity=capacity, sweeps=self.sweeps, tolerance=self.tolerance
            )
        return self._finished_estimate(fitted, size, capacity, len(fitted.trace))

    def _finished_estimate(
        self, fitted: MeanField, size: tuple[int, ...], capacity: tuple[int, ...], passes: int
    ) -> Estimate:
        """Return a finished fit without padding, with its evidence lower bound in float64.

        size, capacity: how many components exist, and how many array slots there are for them.
        passes: the number of sweeps that were made.
        """
        natural = cut_axes(self.model, fitted.beliefs.natural, size, capacity)
        lower = exact_bound(self.model, self.data, natural, fitted, size, capacity)
        return Estimate(self.model, size, natural, lower, np.inf, passes)

    def _grown(self, begin: MeanField, start: Estimate, size: tuple[int, ...], capacity: tuple[int, ...]) -> MeanField:
        """Return the random start `begin` with its first components replaced by those of the smaller fit `start`.

        size, capacity: how many components the new fit has, and how many array slots there are for them.
        """
        old = pad_axes(self.model, start.natural, start.size, capacity)
        small = {axis: np.asarray(mask) for axis, mask in self.model.active(start.size, capacity).items()}
        natural = {}
        for name, site in self.model.globals().items():

            def choose(new: Array, kept: np.ndarray, site: Any = site) -> np.ndarray:
                """Return `kept` in the array slots of the smaller fit's components, and `new` in all others."""
                where = np.ones((1,) * new.ndim, bool)  # True where the smaller fit has a component on every size axis
                for position, axis in enumerate(site.axes[: new.ndim]):
                    if axis in small:
                        where = where & small[axis].reshape([-1 if p == position else 1 for p in range(new.ndim)])
                return np.where(where, kept, np.asarray(new))

            natural[name] = jax.tree.map(choose, begin.beliefs.natural[name], old[name])
        return begin._replace(beliefs=beliefs_of(self.model, natural, size, capacity=capacity))


ROUNDING_SHARE = 1e-4
"""The largest rounding error that float32 may cause in a cell, as a share of its column's standard deviation."""


def needs_double(data: Dataset) -> bool:
    """Return True if rounding to float32 moves some cell by more than `ROUNDING_SHARE` of its column's standard
    deviation.

    Columns are the last axis of the units' float64 arrays. Zeros stand for padding and for missing cells. They are
    exact in any precision and are left out of the standard deviation.
    """

    def loses(leaf: np.ndarray) -> bool:
        """Return True if rounding one array to float32 moves a cell too far."""
        cells = leaf.reshape(-1, leaf.shape[-1] if leaf.ndim > 1 else 1)
        moved = np.abs(cells - cells.astype(np.float32)).max(0, initial=0.0)
        known = cells != 0
        count = np.maximum(known.sum(0), 1)
        centred = np.where(known, cells - cells.sum(0) / count, 0.0)
        return bool(np.any(moved > ROUNDING_SHARE * np.sqrt((centred**2).sum(0) / count)))

    leaves = (np.asarray(leaf) for batch in data.batches for leaf in jax.tree.leaves(batch.units))
    return any(loses(leaf) for leaf in leaves if leaf.dtype == np.float64)


PROGRAMS = 150 * MIB
"""About how many bytes stay allocated after the generic engine was compiled for one capacity and layout."""
DATA_COPIES, LOCALS_COPIES, GLOBALS_COPIES = 3, 4, 6
"""Number of copies of each kind of array that exist at once, counted in float32.

Data: as given, in float32, in float64. Locals: before and after a sweep, each with natural parameters and means (one
    `Beliefs`), a sweep's gradients, and float64 of one batch. Globals: as locals, and the prior's gradient.
"""


def resident_plan(model: Model, data: Dataset, size: tuple[int, ...], capacity: tuple[int, ...]) -> MemoryPlan:
    """Return the memory, in bytes by kind of array, of a mean-field fit by the generic engine with all units at hand.

    It is 3 times the data, 4 times q(locals) and 6 times q(globals), as explained at `DATA_COPIES`, and compiled
    programs. Shapes are evaluated abstractly: nothing is compiled or allocated. Globals are the latent variables that
    all units share, locals those of one unit.

    size, capacity: how many components exist, and how many array slots there are for them.
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
    natural: Latents,
    fitted: MeanField,
    size: tuple[int, ...],
    capacity: tuple[int, ...],
) -> float:
    """Return the evidence lower bound in float64 at exactly these natural parameters of the globals, in nats.

    Global sites are the latent variables that all units share, local sites those of one unit.

    natural: {global site: natural parameters of q}, of existing components only, as fits record them.
    fitted: the fit whose q(locals) is the start of one more sweep over the local variables, in float64.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    with jax.enable_x64(True):
        beliefs, total = recorded_beliefs_and_bound(model, natural, size, capacity)
        for batch, l in zip(cast(data, np.float64).batches, fitted.locals, strict=True):
            start = jax.tree.map(lambda x: np.asarray(x, np.float64), l)
            per_unit = _recorded_units(model, beliefs.mean, batch, start, size, capacity=capacity)
            total += float(np.asarray(per_unit) @ np.asarray(batch.weight))
    return total


@kernel(static_argnames=("capacity",), once=True)
@counted
def _recorded_units(
    model: Model,
    g: Latents,
    batch: Batch,
    start: Beliefs,
    size: tuple[Array | int, ...],
    *,
    capacity: tuple[int, ...],
) -> Float[Array, " units"]:
    """Return the evidence bound of each unit after one more sweep over its local variables, (units,), in nats, without
    weights.

    Global sites are the latent variables that all units share.

    g: {global site: expected sufficient statistics}.
    batch: the units.
    start: q of the units' local variables before the sweep.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    refreshed = fit_locals(model, g, batch, start, size, capacity=capacity, sweeps=1)
    return batch_bound(model, g, batch, refreshed, size, capacity=capacity)


def estimator(model: Model, data: Dataset) -> Estimator:
    """Return the fastest estimator that is known for this type of model (`ModelKit.estimator`)."""
    return model_kit(model).estimator(model, data)
