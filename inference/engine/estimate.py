"""A model fitted at one size: the record that every estimator returns, and q(globals) computed from it again.

The arrays of a fit hold existing components only. Compiled programs get them padded with zeros to a capacity
(`pad_axes`), so that one program serves many sizes.
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
"""The capacities that sizes are padded to, so that few shapes are compiled. Above the last, they are multiples of
`LARGE_STEP`.
"""
LARGE_STEP = 64
"""The step between capacities above the last of `CAPACITIES`."""
ROUNDING = 1e-9
"""The largest relative rounding error of a float64 sum over units."""


class Estimate(NamedTuple):
    """A model fitted at one size.

    | field | meaning |
    |---|---|
    | `model` | the model with the hyper-parameters used, those of existing components only |
    | `size` | the size variables |
    | `natural` | natural parameters of q(globals), of existing components only; float32, or float64 if the fit was |
    | `log_lower` | a lower bound on log p(data | size), or on log p(data | size, θ) for plug-in fits, nats |
    | `log_upper` | an upper bound on the same number; `inf` if none was computed |
    | `passes` | how many passes over the data were made |
    """

    model: Model
    size: tuple[int, ...]
    natural: dict[str, Statistics]
    log_lower: float
    log_upper: float
    passes: int


def capacity_of(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the capacity that each size variable is padded to, as one number for each."""
    return tuple(next((c for c in CAPACITIES if c >= n), -(-n // LARGE_STEP) * LARGE_STEP) for n in size)


def check_size(size: int, capacity: int) -> None:
    """Raise ValueError if a size is below 1 or above the capacity."""
    if not 1 <= size <= capacity:
        raise ValueError(f"got size={size}, expected at least 1 and at most the capacity {capacity}")


def cut_axes(
    model: Model, statistics: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """Return the statistics of the globals without the padding, as NumPy arrays.

    statistics: by site, padded to `capacity`.
    size: how many components exist.
    capacity: how many places for components the arrays have.
    """
    on = {axis: np.asarray(mask) for axis, mask in model.active(size, capacity).items()}
    out = {}
    for name, site in model.globals().items():
        index = tuple(on.get(axis, slice(None)) for axis in site.axes)

        def remove_padding(leaf: Array | np.ndarray, index: tuple = index) -> np.ndarray:
            values = np.asarray(leaf)
            for position, mask in enumerate(index[: values.ndim]):
                if not isinstance(mask, slice):
                    values = np.compress(mask, values, axis=position)
            return values

        out[name] = jax.tree.map(remove_padding, statistics[name])
    return out


def pad_axes(
    model: Model, statistics: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """Return the statistics of the globals with zeros in the places of components that do not exist.

    This is the inverse of `cut_axes`, with the same arguments.
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


@kernel(static_argnames=("capacity",), brief=True)
@counted
def beliefs_of(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> Beliefs:
    """Return q(globals), with its expected statistics, from its natural parameters, which are padded to `capacity`."""
    on = model.active(size, capacity)
    return Beliefs(natural, {n: expected_statistics(s, natural[n], on) for n, s in model.globals().items()})


@kernel(static_argnames=("capacity",), brief=True)
@counted
def point_of(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> dict[str, Statistics]:
    """Return the statistics of the globals at their posterior means, from natural parameters padded to `capacity`."""
    on = model.active(size, capacity)
    points = {n: s.family.point(natural[n], s.event_mask(on)) for n, s in model.globals().items()}
    return {n: mask_elements(s, points[n], on) for n, s in model.globals().items()}


def padded_natural(
    model: Model, natural: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any
) -> dict[str, Statistics]:
    """Return natural parameters padded to a capacity, as NumPy arrays of type `dtype`."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), pad_axes(model, natural, size, capacity))


def beliefs_at(
    model: Model, natural: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any
) -> Beliefs:
    """Return q(globals) of a recorded fit, padded to a capacity.

    natural: the natural parameters of the fit, of existing components only (`Estimate.natural`).
    dtype: the floating-point type; bounds that are recorded need float64, under `jax.enable_x64`.
    """
    return beliefs_of(model, padded_natural(model, natural, size, capacity, dtype), size, capacity=capacity)


def recorded_at(
    model: Model, natural: Mapping[str, Statistics], size: tuple[int, ...], capacity: tuple[int, ...]
) -> tuple[Beliefs, float]:
    """Return q(globals) of a recorded fit in float64, and its part of the evidence bound in nats.

    Call it under `jax.enable_x64`. The part of the bound is log_prior at the expected statistics plus the entropy of
    q(globals).
    """
    padded = padded_natural(model, natural, size, capacity, np.float64)
    beliefs, value = _recorded_globals(model, padded, size, capacity=capacity)
    return beliefs, float(value)


@kernel(static_argnames=("capacity",), once=True)
@counted
def _recorded_globals(
    model: Model, natural: dict[str, Statistics], size: tuple[Array | int, ...], *, capacity: tuple[int, ...]
) -> tuple[Beliefs, Array]:
    """Return q(globals) from padded natural parameters, and its part of the evidence bound in nats."""
    beliefs = beliefs_of(model, natural, size, capacity=capacity)
    return beliefs, globals_bound(model, beliefs, size, capacity=capacity)


def recorded_natural(
    model: Model, beliefs: Beliefs, size: tuple[int, ...], capacity: tuple[int, ...], dtype: Any = np.float32
) -> dict[str, Statistics]:
    """Return the natural parameters of q(globals) without padding, in the type that they are recorded in."""
    natural = cut_axes(model, beliefs.natural, size, capacity)
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), natural)


def just_above(log_likelihood: float) -> float:
    """Return a log-likelihood rounded up, in nats: the upper end of an interval around a number that is known, not
    bounded.
    """
    return log_likelihood + ROUNDING * max(1.0, abs(log_likelihood))
