"""Coordinate ascent in one compiled loop: sweeps until one gains too little, the bound of each kept."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lvsearch.inference.engine.meanfield import Beliefs

TRACE_LENGTH = 1000
"""Sweeps of one ascent at most."""


class AscentTrace(NamedTuple):
    """State of a compiled ascent.

    | field | meaning |
    |---|---|
    | `beliefs` | q(globals) |
    | `locals` | q of what of the units does not follow from the globals in closed form; None where all does |
    | `bounds` | the bound before each sweep, nats; nan beyond `sweeps` |
    | `sweeps` | sweeps made |
    """

    beliefs: Beliefs
    locals: Any
    bounds: Float[Array, " sweep"]
    sweeps: Array

    def made(self) -> Float[np.ndarray, " sweep"]:
        """The bounds of the sweeps made, nats, float64."""
        return np.asarray(self.bounds, np.float64)[: int(self.sweeps)]


Sweep = Callable[[Beliefs, Any], tuple[Beliefs, Any, Array]]
"""(q(globals), locals) → (both after a sweep, the bound before it in nats)."""


def sweep_until_settled(
    sweep: Sweep, beliefs: Beliefs, l: Any, tolerance: float | Array, sweeps: int | Array, dtype: Any
) -> AscentTrace:
    """At most `sweeps` (and `TRACE_LENGTH`) sweeps, until one gains less than `tolerance` nats. For `jit` to trace."""

    def body(carry: tuple[AscentTrace, Array]) -> tuple[AscentTrace, Array]:
        trace, last = carry
        new, l, bound = sweep(trace.beliefs, trace.locals)
        bounds = trace.bounds.at[trace.sweeps].set(bound)
        return AscentTrace(new, l, bounds, trace.sweeps + 1), jnp.stack([last[1], bound])

    def going(carry: tuple[AscentTrace, Array]) -> Array:
        trace, last = carry
        settled = (trace.sweeps > 1) & ~(last[1] - last[0] > tolerance)
        return (trace.sweeps < jnp.minimum(sweeps, TRACE_LENGTH)) & ~settled

    start = AscentTrace(beliefs, l, jnp.full(TRACE_LENGTH, jnp.nan, dtype), jnp.asarray(0))
    return jax.lax.while_loop(going, body, (start, jnp.full(2, -jnp.inf, dtype)))[0]
