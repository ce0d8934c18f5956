"""Coordinate ascent as one compiled loop, which keeps the evidence bound of every sweep."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.engine.meanfield import Beliefs

TRACE_LENGTH = 1000
"""The largest number of sweeps of one ascent."""


class AscentTrace(NamedTuple):
    """The state of a compiled coordinate ascent on the evidence lower bound.

    | field | meaning |
    |---|---|
    | `beliefs` | q of the global latent variables |
    | `locals` | the part of q(local latent variables) that `beliefs` do not give in closed form; None if it is empty |
    | `bounds` | the bound before each sweep, nats; −inf from entry `sweeps` on, since `jax_debug_nans` stops at NaN |
    | `sweeps` | how many sweeps were made |
    """

    beliefs: Beliefs
    locals: Any
    bounds: Float[Array, " sweep"]
    sweeps: Array

    def bound_history(self) -> Float[np.ndarray, " sweep"]:
        """Return the evidence bound before each sweep that was made, in nats, as float64 NumPy array (sweep,)."""
        return np.asarray(self.bounds, np.float64)[: int(self.sweeps)]


Sweep = Callable[[Beliefs, Any], tuple[Beliefs, Any, Array]]
"""The type of one sweep: (q(globals), locals) → (q(globals), locals, bound), where the bound is the one before the
sweep, in nats.
"""


def sweep_until_settled(
    sweep: Sweep, beliefs: Beliefs, l: Any, tolerance: float | Array, sweeps: int | Array, dtype: Any
) -> AscentTrace:
    """Repeat `sweep` until one sweep gains at most `tolerance` nats, and return the trace of the ascent.

    It is plain JAX code without `jit` of its own: call it inside a compiled function. Globals are the latent variables
    that all units share, locals those of one unit.

    sweep: one sweep of coordinate ascent, (q(globals), locals) -> (q(globals), locals, bound before the sweep in nats).
    beliefs: q of the global latent variables to start from.
    l: q of the local latent variables to start from, in the form that `sweep` takes.
    tolerance: the gain of the bound, in nats, at which the ascent ends.
    sweeps: the most sweeps to make; never more than `TRACE_LENGTH`.
    dtype: the floating-point type of the bounds.
    """

    def body(carry: tuple[AscentTrace, Array]) -> tuple[AscentTrace, Array]:
        trace, last = carry
        new, l, bound = sweep(trace.beliefs, trace.locals)
        bounds = trace.bounds.at[trace.sweeps].set(bound)
        return AscentTrace(new, l, bounds, trace.sweeps + 1), jnp.stack([last[1], bound])

    def going(carry: tuple[AscentTrace, Array]) -> Array:
        trace, last = carry  # last: the bounds before the last two sweeps
        settled = (trace.sweeps > 1) & ~(last[1] - last[0] > tolerance)
        return (trace.sweeps < jnp.minimum(sweeps, TRACE_LENGTH)) & ~settled

    start = AscentTrace(beliefs, l, jnp.full(TRACE_LENGTH, -jnp.inf, dtype), jnp.asarray(0, int))
    return jax.lax.while_loop(going, body, (start, jnp.full(2, -jnp.inf, dtype)))[0]
