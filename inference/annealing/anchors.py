"""Anchors: a further path is annealed from a q around what the best of some particles settles to.

A path from the prior may end far from where it comes back to. A second one is shorter if it begins in a q around one
labelling and one mode of the posterior (`chains.Anchor`). Such a q is found in the same way for every chain. Particles
make some sweeps at temperature 1. What describes them is averaged over further sweeps, and so is their joint density.
The averages of the particle whose joint density was highest are the centre of q.

Each chain's own file says what describes its states, and makes q of the averages: broader than the posterior around
them. Where labels are concerned, `mix_with_even` makes q broader.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from lvsearch.inference.annealing.particles import log_densities
from lvsearch.models.kernels import kernel

Averages = TypeVar("Averages")

ANYWHERE = 0.02
"""The probability under q that a label is drawn evenly from all that exist."""


@dataclass(frozen=True)
class SettlingRun:
    """The length of a run at temperature 1 over which particles are averaged, and the number of its particles.

    | field | meaning |
    |---|---|
    | `settling` | number of sweeps before the averages begin |
    | `averaged` | number of sweeps that are averaged |
    | `particles` | number of particles: those with the highest joint density where others ended |
    """

    settling: int
    averaged: int
    particles: int


LABELS_RUN = SettlingRun(settling=10, averaged=20, particles=16)
"""The run of labels of rows and columns.

It begins at the end of an annealed path, where labels are settled already, and `mix_with_even` covers what so few
sweeps miss.
"""


class Settled(NamedTuple):
    """The end of a run of particles at temperature 1.

    | field | meaning |
    |---|---|
    | `averages` | averages over the run of the particle with the highest average joint density, in host arrays |
    | `best` | the number of this particle |
    | `state` | the state of all particles after the last sweep |
    """

    averages: Any
    best: int
    state: Any


def settle_best_particles(
    chain: Any,
    key: Key[Array, ""],
    states: Sequence[Any],
    observe: Callable[[Any, Any], Any],
    run: SettlingRun,
    *,
    further: Sequence[Any] = (),
) -> Settled:
    """Sweep the best particles of all states at temperature 1, and return the averages of the one that is best on
    average.

    chain: a chain whose particles lie on one axis (`ParticleArrays`).
    states: ends of a path, such as those of each half of an annealing.
    observe: (chain, state) -> what describes each particle, floating-point arrays with particles on the last axis.
    run: how many particles are taken, and how long they are swept.
    further: states whose particles are all swept beside the best ones.
    """
    with jax.enable_x64(True):
        together = take_best_particles(chain, states, run.particles)
        if further:
            together = chain.concatenate_particles([together, *further])
        state, found = _average_particles(chain, key, together, observe=observe, run=run)
        return Settled(*pick_highest(*found), state)


@kernel(static_argnames=("observe", "run"))
def _average_particles(
    chain: Any, key: Array, state: Any, *, observe: Callable[[Any, Any], Any], run: SettlingRun
) -> tuple[Any, tuple[Any, Float[Array, " particle"]]]:
    """Sweep all particles at temperature 1, and average over the later sweeps.

    Returns: (the final state, (averages of what `observe` returns, the average log joint of each particle in nats)).
    """
    return average_over_sweeps(chain, key, state, lambda now: (observe(chain, now), chain.log_density(now)), run)


def pick_highest(averages: Averages, log_density: Float[Array, " particle"]) -> tuple[Averages, int]:
    """Return the averages of the particle whose joint density is highest, in host arrays, and its number.

    averages: with particles on the last axis of every array.
    log_density: log of the joint density of each particle, nats.
    """
    best = int(np.argmax(np.asarray(log_density)))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[..., best], averages), best


def mix_with_even(
    probability: Float[np.ndarray | Array, "unit label"], exists: Bool[np.ndarray, " label"]
) -> Float[np.ndarray, "unit label"]:
    """Return the probabilities of labels mixed with a little of the even distribution over the labels that exist."""
    return (1 - ANYWHERE) * probability + ANYWHERE * exists / exists.sum()


def take_best_particles(chain: Any, states: Sequence[Any], most: int) -> Any:
    """Return one state with the `most` particles whose joint probability is highest, the highest first.

    chain: a chain whose particles lie on one axis (`ParticleArrays`).
    states: several states of the chain, such as those at the end of each half of an annealing.
    """
    together = chain.concatenate_particles(states)
    order = np.argsort(-np.asarray(log_densities(chain, together)), kind="stable")
    return chain.take(together, jnp.asarray(order[:most]))


def average_over_sweeps(
    chain: Any, key: Array, state: Any, observe: Callable[[Any], Averages], run: SettlingRun
) -> tuple[Any, Averages]:
    """Sweep all particles in the posterior, and average what `observe` returns over the later sweeps.

    observe: state -> the quantities to average, floating-point arrays.
    run: how many sweeps are made before the averages begin, and how many are averaged over.

    Returns: (the final state, the averages, shaped like what `observe` returns).
    """

    def one(index: Array, carry: tuple[Any, Averages]) -> tuple[Any, Averages]:
        """Make sweep number `index` and add its share to the averages."""
        state = chain.step(jax.random.fold_in(key, index), carry[0], jnp.ones(()), backward=False)
        share = jnp.where(index < run.settling, 0.0, 1 / run.averaged)
        return state, jax.tree.map(lambda mean, now: mean + share * now, carry[1], observe(state))

    begin = state, jax.tree.map(jnp.zeros_like, observe(state))
    return jax.lax.fori_loop(0, run.settling + run.averaged, one, begin)
