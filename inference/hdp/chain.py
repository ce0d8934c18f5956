"""A chain of franchises: begun from nothing or from a sample, given more places where a sweep runs out, read off."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64, Int, Int32, Key

from lvsearch.inference.compiles import counted
from lvsearch.inference.hdp import franchise
from lvsearch.inference.hdp.franchise import Emission, Emitted, Franchise, empty_state, widened
from lvsearch.inference.hdp.weights import prior_mean
from lvsearch.models.hierarchical_process import HierarchicalProcess


def begun(
    model: HierarchicalProcess,
    unit_of: Int32[Array | np.ndarray, " member"],
    n_units: int,
    emission: Emission,
    key: Key[Array, ""],
    places: int,
) -> Franchise:
    """Members added one at a time, each drawn given those before it; with so many places at first."""
    gamma, alpha = (prior_mean(model.given(level)) for level in model.levels)
    empty = empty_state(len(unit_of), n_units, emission, places, gamma, alpha)
    return next_state(model, empty, unit_of, emission, key, adding=True)


def resumed(
    assignments: Int32[np.ndarray, " member"],
    in_unit: Int32[np.ndarray, "unit part"],
    emitted: Emitted,
    beta: Float64[np.ndarray, " part"],
    concentrations: tuple[float, float],
    emission: Emission,
    places: int,
) -> Franchise:
    """The state of these assignments, every part in use, with `places` doubled until there is room for more.

    concentrations: (γ, α).
    """
    n_units, n_parts = in_unit.shape
    state = empty_state(len(assignments), n_units, emission, n_parts, *concentrations)
    state = state._replace(
        assignments=jnp.asarray(assignments),
        in_unit=jnp.asarray(in_unit),
        emitted=emitted,
        total=jnp.asarray(in_unit.sum(0).astype(np.int32)),
        beta=jnp.asarray(beta, state.beta.dtype),
        left=jnp.asarray(max(1 - float(beta.sum()), 0.0), state.left.dtype),
    )
    while places <= n_parts:
        places *= 2
    return widened(state, emission, places)


def next_state(
    model: HierarchicalProcess,
    state: Franchise,
    unit_of: Int32[Array | np.ndarray, " member"],
    emission: Emission,
    key: Key[Array, ""],
    *,
    adding: bool = False,
) -> Franchise:
    """One sweep, made again with twice as many places where it needed more."""
    while True:
        new = _sweep(model, state, unit_of, emission, key, adding=adding)
        if not bool(new.overflow):
            return new
        state = widened(state, emission, 2 * len(state.beta))


def by_size(state: Franchise) -> tuple[Int[np.ndarray, " part"], Int32[np.ndarray, " member"]]:
    """(places in use, most members first, the assignments numbered so)."""
    total = np.asarray(state.total)
    order = np.argsort(-total, kind="stable")[: (total > 0).sum()]
    rank = np.zeros(len(total), np.int32)
    rank[order] = np.arange(len(order))
    return order, rank[np.asarray(state.assignments)]


@partial(jax.jit, static_argnames=("adding",))
@counted
def _sweep(
    model: HierarchicalProcess, state: Franchise, unit_of: Any, emission: Emission, key: Array, *, adding: bool
) -> Franchise:
    return franchise.sweep(model, state, jnp.asarray(unit_of), emission, key, adding=adding)
