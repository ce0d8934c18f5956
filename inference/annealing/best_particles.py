"""The particles of a first path with the highest joint probability, and averages over their further sweeps.

A second path begins around such averages (`lvsearch.inference.annealing.kits.Anchor`).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lvsearch.inference.annealing.particles import log_densities

Averages = TypeVar("Averages")


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
