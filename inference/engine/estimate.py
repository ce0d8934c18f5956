"""A model fitted at one size: what every estimator answers with, how it is recorded, and its q(globals) again.

Arrays of a fit hold existing components only; compiled programs see them padded to a capacity (`pad_axes`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from lvsearch.inference.compiles import counted
from lvsearch.inference.engine.meanfield import Beliefs, expected_statistics, globals_bound, mask_elements
from lvsearch.models.contract import Model, Statistics
from lvsearch.models.kernels import kernel

CAPACITIES = (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
LARGE_STEP = 64
"""Sizes are padded to one of these (beyond the last: to multiples of the step), so that few shapes are compiled."""
ROUNDING = 1e-9
"""Of a float64 sum over units, relative, at most."""


class Estimate(NamedTuple):
    """A model fitted at one size.

    | field | meaning |
    |---|---|
    | `model` | with the hyper-parameters used, those of existing components only |
    | `size` | the size variables |
    | `natural` | natural parameters of q(globals), of existing components only; float32, or float64 if the fit was |
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


def capacity_of(size: tuple[int, ...]) -> tuple[int, ...]:
    """The capacity that each size variable is padded to."""
    return tuple(next((c for c in CAPACITIES if c >= n), -(-n // LARGE_STEP) * LARGE_STEP) for n in size)


def check_size(size: int, capacity: int) -> None:
    """ValueError for a size that does not fit in the capacity."""
    if not 1 <= size <= capacity:
        raise ValueError(f"got size={size}, expected at least 1 and at most the capacity {capacity}")


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


@kernel(static_argnames=("capacity",), brief=True)
@counted
def beliefs_of(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> Beliefs:
    """q(globals) from its padded natural parameters."""
    on = model.active(size, capacity)
    return Beliefs(natural, {n: expected_statistics(s, natural[n], on) for n, s in model.globals().items()})


@kernel(static_argnames=("capacity",), brief=True)
@counted
def point_of(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """The statistics of the globals at their posterior means."""
    on = model.active(size, capacity)
    points = {n: s.family.point(natural[n], s.event_mask(on)) for n, s in model.globals().items()}
    return {n: mask_elements(s, points[n], on) for n, s in model.globals().items()}


def padded_natural(
    model: Model, natural: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any
) -> dict[str, Statistics]:
    """Natural parameters padded to a capacity, as arrays of this type."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), pad_axes(model, natural, size, capacity))


def beliefs_at(
    model: Model, natural: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any
) -> Beliefs:
    """q(globals) of a fit again. In float64 (under `jax.enable_x64`) every bound that is recorded begins here."""
    return beliefs_of(model, padded_natural(model, natural, size, capacity, dtype), size, capacity=capacity)


def recorded_at(
    model: Model, natural: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...]
) -> tuple[Beliefs, float]:
    """q(globals) of a fit again in float64, under `jax.enable_x64`, and what they add to the bound, nats."""
    padded = padded_natural(model, natural, size, capacity, np.float64)
    beliefs, value = _recorded_globals(model, padded, size, capacity=capacity)
    return beliefs, float(value)


@kernel(static_argnames=("capacity",), once=True)
@counted
def _recorded_globals(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> tuple[Beliefs, Array]:
    beliefs = beliefs_of(model, natural, size, capacity=capacity)
    return beliefs, globals_bound(model, beliefs, size, capacity=capacity)


def recorded_natural(
    model: Model, beliefs: Beliefs, size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any = np.float32
) -> dict[str, Statistics]:
    """The natural parameters that a fit is recorded with: those of existing components, float32 unless said."""
    natural = cut_axes(model, beliefs.natural, size, capacity)
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), natural)


def just_above(log_likelihood: float) -> float:
    """The upper end of a number that is not bounded but known, nats: the number, rounded up."""
    return log_likelihood + ROUNDING * max(1.0, abs(log_likelihood))
