"""The base class of chains whose states are arrays with particles on the last axis: it chooses and joins particles."""

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

State = TypeVar("State")


class ParticleArrays(eqx.Module):
    """A chain whose states have the particles on the last axis of every array."""

    def take(self, state: State, particles: Int[Array, " chosen"]) -> State:
        """Return the state of the chosen particles, in the order in which they are named.

        particles: the numbers of the particles, (chosen,). A particle may be named several times.
        """
        return jax.tree.map(lambda leaf: leaf[..., particles], state)

    def concatenate_particles(self, states: Sequence[State]) -> State:
        """Return one state that holds the particles of several states, one after another."""
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *states)

    def _as_float(self, leaf: Any) -> Array:
        """Return a leaf as an array of the session's floating-point type."""
        return jnp.asarray(leaf, jnp.result_type(float))
