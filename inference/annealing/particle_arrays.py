"""Base classes of annealing chains: what most of them have in common; and averages over the best particles.

A second path begins around the averages of a first path's best particles (`chains.Anchor`).
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.annealing.particles import log_densities

State = TypeVar("State")
Averages = TypeVar("Averages")


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


def take_best_particles(chain: Any, states: Sequence[Any], most: int) -> Any:
    """Return one state with the `most` particles whose joint probability is highest, the highest first.

    chain: a chain whose particles lie on one axis (`ParticleArrays`).
    states: several states of the chain, such as those at the end of each half of an annealing.
    """
    together = chain.concatenate_particles(states)
    order = np.argsort(-np.asarray(log_densities(chain, together)), kind="stable")
    return chain.take(together, jnp.asarray(order[:most]))


def average_over_sweeps(
    chain: Any, key: Array, state: Any, observe: Callable[[Any], Averages], settling: int, averaged: int
) -> tuple[Any, Averages]:
    """Sweep all particles in the posterior, and average what `observe` returns over the later sweeps.

    observe: state -> the quantities to average, floating-point arrays.
    settling: how many sweeps are made before the averages begin.
    averaged: how many sweeps are averaged over.

    Returns: (the final state, the averages, shaped like what `observe` returns).
    """

    def one(index: Array, carry: tuple[Any, Averages]) -> tuple[Any, Averages]:
        """Make sweep number `index` and add its share to the averages."""
        state = chain.step(jax.random.fold_in(key, index), carry[0], jnp.ones(()), backward=False)
        share = jnp.where(index < settling, 0.0, 1 / averaged)
        return state, jax.tree.map(lambda mean, now: mean + share * now, carry[1], observe(state))

    begin = state, jax.tree.map(jnp.zeros_like, observe(state))
    return jax.lax.fori_loop(0, settling + averaged, one, begin)
