"""A model fitted at one size: the record that every estimator returns, and q(globals) computed from it again.

The arrays of a fit hold existing components only. Compiled programs get them padded with zeros to a capacity
(`pad_axes`), so that one program serves many sizes.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.compiles import counted
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.meanfield import Beliefs, expected_statistics, globals_bound, mask_elements
from lvsearch.models.contract import Latents, Model, Statistics
from lvsearch.models.kernels import kernel

CAPACITIES = (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
"""The numbers of array slots that numbers of components are padded to, so that few shapes are compiled. Above the last,
they are multiples of `LARGE_STEP`.
"""
LARGE_STEP = 64
"""The step between capacities above the last of `CAPACITIES`."""
ROUNDING = 1e-9
"""The largest relative rounding error of a float64 sum over units."""
ROUNDING_LOSS = 0.01
"""The most nats that the bound may lose when a fit is recorded in float32."""


class Estimate(NamedTuple):
    """A model fitted at one size.

    | field | meaning |
    |---|---|
    | `model` | the model with the hyper-parameters used, those of existing components only |
    | `size` | the size: for each size variable of the model, how many components exist |
    | `natural` | natural parameters of q(globals), existing components only; in float64 if the fit was, else float32 |
    | `log_lower` | a lower bound on log p(data | size), or on log p(data | size, θ) for plug-in fits, nats |
    | `log_upper` | an upper bound on the same number; `inf` if none was computed |
    | `passes` | how many passes over the data were made |
    | `bend` | the size at which the log likelihood bent while components were removed; None if at none |

    Globals are the latent variables that all units share, such as topics. q is their approximate posterior.
    """

    model: Model
    size: tuple[int, ...]
    natural: dict[str, Statistics]
    log_lower: float
    log_upper: float
    passes: int
    bend: int | None = None

    def in_file_order(self) -> "Estimate":
        """Return the same fit with arrays in C order, which files have.

        NumPy sums in memory order. So a loaded fit gives the same bits as this one.
        """
        return self._replace(natural=jax.tree.map(lambda leaf: np.array(leaf, order="C"), self.natural))


def capacity_of(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the capacity of a size: for each size variable, the number of array slots that its components are padded
    to.

    It is the smallest of `CAPACITIES` that is large enough, or above them a multiple of `LARGE_STEP`.

    size: how many components exist, for each size variable.
    """
    return tuple(next((c for c in CAPACITIES if c >= n), -(-n // LARGE_STEP) * LARGE_STEP) for n in size)


def check_size(size: int, capacity: int) -> None:
    """Raise ValueError if a number of components is below 1 or above the capacity, the number of array slots."""
    if not 1 <= size <= capacity:
        raise ValueError(f"got size={size}, expected at least 1 and at most the capacity {capacity}")


def cut_axes(
    model: Model, statistics: Latents, size: tuple[int, ...], capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """Return the statistics or natural parameters of the globals without padding, by site, as NumPy arrays.

    Global sites are the latent variables that all units share.

    statistics: {global site: a pytree of arrays whose component axes are padded to `capacity`}.
    size: how many components exist, for each size variable.
    capacity: how many array slots for components there are, for each size variable.
    """
    on = {axis: np.asarray(mask) for axis, mask in model.active(size, capacity).items()}
    out = {}
    for name, site in model.globals().items():
        index = tuple(on.get(axis, slice(None)) for axis in site.axes)

        def remove_padding(leaf: Array | np.ndarray, index: tuple = index) -> np.ndarray:
            """Return one array with only the entries that exist on each size axis."""
            values = np.asarray(leaf)
            for position, mask in enumerate(index[: values.ndim]):
                if not isinstance(mask, slice):
                    values = np.compress(mask, values, axis=position)
            return values

        out[name] = jax.tree.map(remove_padding, statistics[name])
    return out


def reordered(estimate: Estimate, order: Int[np.ndarray, " component"]) -> Estimate:
    """Return a fit of a model with one size variable whose components are in another order.

    order: the present number of each component, in the new order. Numbers that the model's hyper-parameters have for
        each component are not moved.
    """
    (n,) = estimate.size
    along = {axis for axis, mask in estimate.model.active(estimate.size, estimate.size).items() if len(mask) == n}
    natural = {}
    for name, site in estimate.model.globals().items():
        places = [place for place, axis in enumerate(site.axes) if axis in along]

        def moved(leaf: np.ndarray, places: list[int] = places) -> np.ndarray:
            for place in places:
                leaf = np.take(leaf, order, axis=place) if place < np.ndim(leaf) else leaf
            return leaf

        natural[name] = jax.tree.map(moved, estimate.natural[name])
    return estimate._replace(natural=natural)


def pad_axes(
    model: Model, statistics: Latents, size: tuple[int, ...], capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """Return statistics or natural parameters of the globals with zeros in the array slots of components that do not
    exist.

    This is the inverse of `cut_axes`. Global sites are the latent variables that all units share.

    statistics: {global site: a pytree of arrays with existing components only}.
    size: how many components exist, for each size variable.
    capacity: how many array slots for components there shall be, for each size variable.
    """
    lengths = {axis: mask.shape[0] for axis, mask in model.active(size, capacity).items()}
    out = {}
    for name, site in model.globals().items():
        wanted = [lengths.get(axis) for axis in site.axes]

        def pad(leaf: Array | np.ndarray, wanted: list[int | None] = wanted) -> np.ndarray:
            values = np.asarray(leaf)
            width = [(0, (n or have) - have) for n, have in zip(wanted, values.shape, strict=False)]
            width += [(0, 0)] * (values.ndim - len(width))  # some fields of the family have more axes
            return np.pad(values, width) if width else values  # a scalar has no axis to pad

        out[name] = jax.tree.map(pad, statistics[name])
    return out


@kernel(static_argnames=("capacity",), brief=True, kept=True)
@counted
def beliefs_of(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> Beliefs:
    """Return q(globals) with its expected statistics, computed from its natural parameters.

    Global sites are the latent variables that all units share.

    natural: {global site: natural parameters of q}, padded to `capacity`.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    on = model.active(size, capacity)
    return Beliefs(natural, {n: expected_statistics(s, natural[n], on) for n, s in model.globals().items()})


@kernel(static_argnames=("capacity",), brief=True)
@counted
def point_of(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """Return the statistics of the globals at their posterior means, {global site: sufficient statistics}, padded to
    `capacity`.

    Global sites are the latent variables that all units share.

    natural: {global site: natural parameters of q}, padded to `capacity`.
    size, capacity: how many components exist, and how many array slots there are for them.
    """
    on = model.active(size, capacity)
    points = {n: s.family.point(natural[n], s.event_mask(on)) for n, s in model.globals().items()}
    return {n: mask_elements(s, points[n], on) for n, s in model.globals().items()}


def padded_natural(
    model: Model, natural: Latents, size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any
) -> dict[str, Statistics]:
    """Return natural parameters of the globals padded from `size` components to `capacity` slots, as NumPy arrays of
    `dtype`.

    Global sites are the latent variables that all units share.

    natural: {global site: natural parameters}, of existing components only.
    """
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), pad_axes(model, natural, size, capacity))


def beliefs_at(model: Model, natural: Latents, size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any) -> Beliefs:
    """Return q(globals) of a recorded fit, padded to a capacity, with its expected statistics.

    Globals are the latent variables that all units share.

    natural: the natural parameters of the fit, of existing components only (`Estimate.natural`).
    size, capacity: how many components exist, and how many array slots there shall be for them.
    dtype: the floating-point type; bounds that are recorded need float64, under `jax.enable_x64`.
    """
    return beliefs_of(model, padded_natural(model, natural, size, capacity, dtype), size, capacity=capacity)


def recorded_beliefs_and_bound(
    model: Model, natural: Latents, size: tuple[int, ...], capacity: tuple[int, ...]
) -> tuple[Beliefs, float]:
    """Return (q(globals) of a recorded fit in float64, its part of the evidence bound in nats).

    Call it under `jax.enable_x64`. The part of the bound is log_prior at the expected statistics plus the entropy of
    q(globals). Globals are the latent variables that all units share.

    natural: the natural parameters of the fit, of existing components only (`Estimate.natural`).
    size, capacity: how many components exist, and how many array slots there shall be for them.
    """
    padded = padded_natural(model, natural, size, capacity, np.float64)
    beliefs, value = _recorded_globals(model, padded, size, capacity=capacity)
    return beliefs, float(value)


@kernel(static_argnames=("capacity",), once=True)
@counted
def _recorded_globals(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> tuple[Beliefs, Array]:
    """Return (q(globals) from padded natural parameters, its part of the evidence bound in nats).

    Global sites are the latent variables that all units share.

    natural: {global site: natural parameters of q}, padded to `capacity`.
    size: how many components exist, for each size variable.
    """
    beliefs = beliefs_of(model, natural, size, capacity=capacity)
    return beliefs, globals_bound(model, beliefs, size, capacity=capacity)


def recorded_natural(
    model: Model, beliefs: Beliefs, size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any = np.float32
) -> dict[str, Statistics]:
    """Return the natural parameters of q(globals) in the form that fits record: without padding, as arrays of `dtype`.

    Globals are the latent variables that all units share.

    beliefs: q(globals), padded to `capacity`.
    size: how many components exist, for each size variable.
    """
    natural = cut_axes(model, beliefs.natural, size, capacity)
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), natural)


def record_in_single_unless_it_costs(
    model: Model,
    beliefs: Beliefs,
    size: tuple[int, ...],
    capacity: tuple[int, ...],
    bound: Callable[[dict[str, Statistics]], float],
    *,
    double: bool,
) -> tuple[dict[str, Statistics], float]:
    """Return (natural parameters of the global variables as a fit records them, the bound at exactly these in nats).

    They are in float32, unless the fit is in float64 and rounding it costs more than `ROUNDING_LOSS`. That can happen:
    the rate of a narrow component is the small difference of two large sums. Rounding these would make it too wide, or
    negative.

    beliefs: q with which the fit ended.
    size, capacity: how many components exist, and how many array slots there are for them.
    bound: natural parameters -> the lower bound on the log evidence, in nats.
    double: True if the fit is in float64.
    """
    natural = recorded_natural(model, beliefs, size, capacity)
    lower = bound(natural)
    if not double:
        return natural, lower
    exact = recorded_natural(model, beliefs, size, capacity, np.float64)
    unrounded = bound(exact)
    return (natural, lower) if lower >= unrounded - ROUNDING_LOSS or np.isnan(unrounded) else (exact, unrounded)


def just_above(log_likelihood: float) -> float:
    """Return a number slightly larger than a log-likelihood, in nats, by more than the rounding error of its sum.

    It serves as the upper bound where the log-likelihood is known exactly, up to rounding.
    """
    return log_likelihood + ROUNDING * max(1.0, abs(log_likelihood))


CEILING_SLACK = 1e-9
"""The share by which the sum of the ceilings of all units is rounded upwards."""


def data_ceiling(model: Model, data: Dataset) -> float:
    """Return the model's ceiling: an upper bound on log p(data | any size, any parameters), nats, rounded upwards."""
    total = math.fsum(model.ceiling(batch.units) for part in data.iter_parts() for batch in part.batches)
    return total + CEILING_SLACK * abs(total) if math.isfinite(total) else total
