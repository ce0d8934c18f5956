"""Any density on real coordinates, on a path from its prior to its posterior: Hamiltonian Monte Carlo on the way.

    π_t(u) ∝ p(u) p(data | u)^t,      0 ≤ t ≤ 1

where p(u) is the prior of unconstrained coordinates, from which draws are made, and p(data | u) whatever the program
makes of them. A sweep is a few Hamiltonian trajectories (Neal 2011) that end in a Metropolis step, so that it leaves
π_t as it is whatever the lengths of its steps. These are tabulated along the path by `tuning`, beforehand: on the runs
that count they depend on the temperature alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

LEAPS, TRAJECTORIES = 5, 3
"""Leapfrog steps of a trajectory, and trajectories of a sweep."""
SHORTEST = 0.1
"""A trajectory's steps are those of the table times a number drawn between this and 1, even on the log scale:
components without data are as wide as the prior, those with data narrow, and one length does not suit both."""


class StepLengths(NamedTuple):
    """How far a leapfrog step goes along each coordinate, by temperature: log of the lengths, interpolated evenly."""

    temperature: Float[Array | np.ndarray, " node"]
    log_length: Float[Array | np.ndarray, "node coordinate"]

    def at(self, temperature: Any) -> Float[Array, " coordinate"]:
        """log of the length along each coordinate."""
        return jax.vmap(lambda known: jnp.interp(temperature, self.temperature, known), 1)(self.log_length)


class DensityState(NamedTuple):
    """All particles: their coordinates, and log p(data | coordinates), nats."""

    position: Float[Array | np.ndarray, "particle coordinate"]
    log_likelihood: Float[Array | np.ndarray, " particle"]


class Place(NamedTuple):
    """Particles, log p(data | u) there, log π_t and its gradient, nats."""

    position: Float[Array, "particle coordinate"]
    log_likelihood: Float[Array, " particle"]
    log_density: Float[Array, " particle"]
    gradient: Float[Array, "particle coordinate"]


class Flight(NamedTuple):
    """Trajectories under way: where they began and what momentum they began with, where they are, their steps."""

    origin: Place
    kick: Float[Array, "particle coordinate"]
    position: Float[Array, "particle coordinate"]
    momentum: Float[Array, "particle coordinate"]
    length: Float[Array, "particle coordinate"]


class Traced(eqx.Module):
    """A function of arrays, traced once: the arrays that it closed over are leaves, and Python never runs again.

    So programs whose tracing is no business of threads, as NumPyro's handlers are, may run in several.
    """

    constants: tuple[Array, ...]
    jaxpr: Any = eqx.field(static=True)

    def __call__(self, *arguments: Array) -> Array:
        (value,) = jax.core.eval_jaxpr(self.jaxpr, self.constants, *arguments)
        return value


def traced(function: Callable[..., Array], *like: Array) -> Traced:
    """The function as traced at arrays of these shapes."""
    closed = jax.make_jaxpr(function)(*like)
    return Traced(tuple(map(jnp.asarray, closed.consts)), closed.jaxpr)


class DensityChain(eqx.Module):
    """The chain of one program and data set at one size; closed over nothing that is not a leaf of it.

    | field | meaning |
    |---|---|
    | `draw` | (key, size) -> coordinates, a draw of the prior |
    | `log_densities` | (coordinates, size) -> log p(u), a density of coordinates, and log p(data | u), nats |
    | `size` | one number per size variable; traced |
    | `lengths` | of leapfrog steps, from `tuning.tuned` |
    | `work` | numbers that one evaluation makes: what a sweep costs, about |

    Relabelling: draws of the prior know no labelling, so there is nothing to correct.
    """

    draw: Traced
    log_densities: Traced
    size: Int[Array, " variable"]
    lengths: StepLengths
    work: int = eqx.field(static=True)

    @property
    def elements(self) -> int:
        return self.work

    @property
    def lanes(self) -> int:
        return 64

    @property
    def directed(self) -> bool:
        return False  # every trajectory is its own reversal, and all are alike

    def init(self, key: Key[Array, ""], particles: int) -> DensityState:
        """Draws of the prior."""
        position = jax.vmap(lambda k: self.draw(k, self.size))(jax.random.split(key, particles))
        return DensityState(position, self._log_densities(position)[:, 1])

    def step(
        self, key: Key[Array, ""], state: DensityState, temperature: Float[Array, ""], *, backward: bool
    ) -> DensityState:
        del backward
        log_length = self.lengths.at(temperature)
        place, _ = self.flown(key, state, temperature, TRAJECTORIES, lambda rule, _, __: (rule, log_length), None)
        return DensityState(place.position, place.log_likelihood)

    def log_ratio(self, state: DensityState) -> Float[Array, " particle"]:
        """log p(data | coordinates), nats."""
        return jnp.asarray(state.log_likelihood)

    def log_density(self, state: DensityState) -> Float[Array, " particle"]:
        """log p(coordinates, data), nats."""
        return self._log_densities(jnp.asarray(state.position)).sum(1)

    def _log_densities(self, position: Array) -> Float[Array, "particle two"]:
        return jax.vmap(lambda u: self.log_densities(u, self.size))(position)

    def label_scores(self, state: DensityState) -> None:
        """None: the prior knows no labelling."""
        del state

    def relabel(self, state: DensityState, order: Int[Array, "particle component"]) -> DensityState:
        """The same state: nothing is labelled."""
        del order
        return state

    def take(self, state: DensityState, particles: Int[Array, " chosen"]) -> DensityState:
        return DensityState(state.position[particles], state.log_likelihood[particles])

    def flown(
        self,
        key: Key[Array, ""],
        state: DensityState,
        temperature: Any,
        trajectories: int,
        rule: Callable[[Any, Place, Array], tuple[Any, Array]],
        memory: Any,
    ) -> tuple[Place, Any]:
        """Where the particles are after so many trajectories, each with its Metropolis step, and what the rule kept.

        rule: (memory, where the particles are, the probability with which each ended its last trajectory) -> (memory,
        log lengths of the next steps). One loop over all leapfrog steps, in which the gradient stands once: compiling
        it is what small problems wait for. The first round only evaluates, so that its trajectory of no length is kept.
        """

        def turned(key: Array, there: Place, flight: Flight, memory: Any, first: Any) -> tuple[Flight, Any]:
            key_accept, key_momentum, key_length = jax.random.split(key, 3)
            gain = there.log_density - flight.origin.log_density
            gain = gain + 0.5 * ((flight.kick**2).sum(1) - (flight.momentum**2).sum(1))
            chance = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(gain), -jnp.inf, gain), 0.0))
            moves = first | (jax.random.uniform(key_accept, chance.shape) < chance)
            origin = jax.tree.map(
                lambda new, old: jnp.where(moves.reshape(-1, *[1] * (new.ndim - 1)), new, old), there, flight.origin
            )
            memory, log_length = rule(memory, origin, chance)
            kick = jax.random.normal(key_momentum, origin.position.shape)
            shrunk = jax.random.uniform(key_length, (len(kick), 1), minval=jnp.log(SHORTEST), maxval=0.0)
            return Flight(origin, kick, origin.position, kick, jnp.exp(log_length + shrunk)), memory

        def leap(i: Array, carry: tuple[Flight, Any]) -> tuple[Flight, Any]:
            flight, memory = carry
            there = self.place(flight.position, temperature)
            flight = flight._replace(momentum=flight.momentum + 0.5 * flight.length * there.gradient)
            ends = i % LEAPS == 0
            flight, memory = jax.lax.cond(
                ends,
                lambda: turned(jax.random.fold_in(key, i), there, flight, memory, i == 0),
                lambda: (flight, memory),
            )
            gradient = jnp.where(ends, flight.origin.gradient, there.gradient)
            halfway = flight.momentum + 0.5 * flight.length * gradient
            return flight._replace(position=flight.position + flight.length * halfway, momentum=halfway), memory

        position, log_likelihood = map(jnp.asarray, state)
        still = jnp.zeros_like(position)
        nowhere = Place(position, log_likelihood, log_likelihood, still)
        start = Flight(nowhere, still, position, still, still)
        flight, memory = jax.lax.fori_loop(0, LEAPS * trajectories + 1, leap, (start, memory))
        return flight.origin, memory

    def place(self, position: Float[Array, "particle coordinate"], temperature: Any) -> Place:
        """log π_t and its gradient, nats, at all particles."""

        def tempered(u: Array) -> tuple[Array, Array]:
            log_prior, log_likelihood = self.log_densities(u, self.size)
            return log_prior + temperature * log_likelihood, log_likelihood

        (density, likelihood), gradient = jax.vmap(jax.value_and_grad(tempered, has_aux=True))(position)
        return Place(position, likelihood, density, gradient)
