"""Base classes of annealing chains: what most of them have in common."""

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

State = TypeVar("State")


class AnnealingChain(eqx.Module):
    """A chain whose states have the particles on the first axis of every array."""

    directed: ClassVar[bool] = True
    """Whether a backward sweep differs from a forward one."""

    @property
    def efficient_particles(self) -> int:
        """The number of particles up to which doubling them less than doubles the time of a sweep on this chain: 32."""
        return 32

    def take(self, state: State, particles: Int[Array, " chosen"]) -> State:
        """Return the state of the chosen particles, in the order in which they are named.

        particles: the numbers of the particles, (chosen,). A particle may be named several times.
        """
        return jax.tree.map(lambda leaf: leaf[particles], state)


class ParticleArrays(AnnealingChain):
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


class SymmetricStart(eqx.Module):
    """A chain whose path begins where renaming components changes nothing, as under the prior."""

    def label_scores(self, state: Any) -> None:
        """Return None, so that no relabellings are drawn."""
        return

    def relabel(self, state: State, order: Int[Array, "particle component"]) -> State:
        """Return the state as it is: `order` is ignored, because renaming needs no correction on this path."""
        return state
