"""A path from the prior to the posterior of any density on real coordinates, moved along by Hamiltonian Monte Carlo.

    π_t(u) ∝ p(u) p(data | u)^t,      0 ≤ t ≤ 1

Here p(u) is the prior of unconstrained coordinates, from which draws can be made, and p(data | u) is the program's
likelihood. A sweep is a few Hamiltonian trajectories that end in a Metropolis step. So it leaves π_t unchanged whatever
the lengths of its leapfrog steps. `tune_step_lengths` tabulates these lengths along the path beforehand;
on the runs that count they depend on the temperature alone.

Source: Neal 2011.

Tuning is one pilot run, which finds the lengths of leapfrog steps and the spacing of temperatures. Lengths follow the
mean square of the gradient, E_t[(∂ log π_t / ∂u)²] = −E_t[∂² log π_t / ∂u²], which is the curvature where the particles
are. It is the same in every labelling. The spread of the particles, in contrast, mixes labellings.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.annealing.particle_arrays import AnnealingChain, SymmetricStart
from lvsearch.inference.annealing.particles import MOST_PILOT_STEPS, Profile, draw_from_q, next_temperature
from lvsearch.inference.compiles import counted
from lvsearch.inference.generators import generator
from lvsearch.models.kernels import kernel

LEAPS, TRAJECTORIES = 5, 3
"""Number of leapfrog steps of a trajectory, and number of trajectories of a sweep."""
SHORTEST = 0.1
"""Smallest random factor on the leapfrog steps of a trajectory.

The factor is drawn between `SHORTEST` and 1, uniformly on the log scale. Components without data are as wide as the
prior and those with data are narrow, so one length does not suit both.
"""


class StepLengths(NamedTuple):
    """The length of a leapfrog step along each coordinate, as a table over temperatures of log lengths.

    | field | shape | meaning |
    |---|---|---|
    | `temperature` | (node,) | the temperatures of the table, rising from 0 to 1 |
    | `log_length` | (node, coordinate) | log of the step's length along each coordinate |
    """

    temperature: Float[Array | np.ndarray, " node"]
    log_length: Float[Array | np.ndarray, "node coordinate"]

    def log_length_at(self, temperature: Any) -> Float[Array, " coordinate"]:
        """Return the log length of a leapfrog step along each coordinate at a temperature, (coordinate,), by linear
        interpolation.
        """
        return jax.vmap(lambda known: jnp.interp(temperature, self.temperature, known), 1)(self.log_length)


class DensityState(NamedTuple):
    """All particles of a `DensityChain`: their unconstrained coordinates, and log p(data | coordinates) in nats."""

    position: Float[Array | np.ndarray, "particle coordinate"]
    log_likelihood: Float[Array | np.ndarray, " particle"]


class Place(NamedTuple):
    """Positions of all particles, with the quantities that a Hamiltonian trajectory needs there.

    These are log p(data | u), the log of the annealed density π_t(u), both in nats, and its gradient by the coordinates
    u.
    """

    position: Float[Array, "particle coordinate"]
    log_likelihood: Float[Array, " particle"]
    log_density: Float[Array, " particle"]
    gradient: Float[Array, "particle coordinate"]


class Flight(NamedTuple):
    """Hamiltonian trajectories under way, one for each particle.

    | field | meaning |
    |---|---|
    | `origin` | where each trajectory began |
    | `kick` | the momentum that it began with |
    | `position`, `momentum` | where it is now, and its momentum there |
    | `length` | the length of its leapfrog steps along each coordinate |
    """

    origin: Place
    kick: Float[Array, "particle coordinate"]
    position: Float[Array, "particle coordinate"]
    momentum: Float[Array, "particle coordinate"]
    length: Float[Array, "particle coordinate"]


class Traced(eqx.Module):
    """A function of arrays that JAX has traced once. The arrays that it closed over are leaves, and its Python code
    never runs again.

    So a program whose tracing is not thread-safe, such as NumPyro's handlers, can run in several threads.
    """

    constants: tuple[Array, ...]
    jaxpr: Any = eqx.field(static=True)

    def __call__(self, *arguments: Array) -> Array:
        """Return the array that the traced function gives for these arguments."""
        (value,) = jax.core.eval_jaxpr(self.jaxpr, self.constants, *arguments)
        return value


def traced(function: Callable[..., Array], *like: Array) -> Traced:
    """Return a function as a `Traced`, which can be called without running its Python code again.

    function: returns one array.
    like: arrays of the shapes and types of its arguments.
    """
    closed = jax.make_jaxpr(function)(*like)
    return Traced(tuple(map(jnp.asarray, closed.consts)), closed.jaxpr)


class DensityChain(AnnealingChain, SymmetricStart):
    """The annealing chain of one probabilistic program (a NumPyro model) and data set at one size.

    Everything that the chain closes over is a leaf of it.

    | field | meaning |
    |---|---|
    | `draw` | (key, size) -> unconstrained coordinates u, a draw of the prior |
    | `log_densities` | (u, size) -> log p(u), a density of coordinates, and log p(data | u), nats |
    | `size` | one number per size variable; traced |
    | `lengths` | leapfrog step lengths, from `tune_step_lengths` |
    | `work` | the number of values that one evaluation of the density computes, roughly the cost of a sweep |

    Draws of the prior do not depend on how components are numbered, so no correction for relabelling is needed.
    """

    draw: Traced
    log_densities: Traced
    size: Int[Array, " variable"]
    lengths: StepLengths
    work: int = eqx.field(static=True)

    directed: ClassVar[bool] = False
    """False: a sweep of reversible, identically distributed trajectories is its own time reversal."""

    @property
    def elements(self) -> int:
        """The number of values that one evaluation of the density computes, roughly what a sweep of one particle
        costs.
        """
        return self.work

    @property
    def efficient_particles(self) -> int:
        """The number of particles up to which doubling them less than doubles the time of a sweep on this chain: 64."""
        return 64

    def init(self, key: Key[Array, ""], particles: int) -> DensityState:
        """Draw the first state: `particles` independent draws of the prior."""
        position = jax.vmap(lambda k: self.draw(k, self.size))(jax.random.split(key, particles))
        return DensityState(position, self._log_densities(position)[:, 1])

    def step(
        self, key: Key[Array, ""], state: DensityState, temperature: Float[Array, ""], *, backward: bool
    ) -> DensityState:
        """Return the particles after one sweep of `TRAJECTORIES` Hamiltonian trajectories, which leaves π_t unchanged.

        temperature: t of the annealed density π_t(u) ∝ p(u) p(data | u)^t, from 0 to 1.
        backward: ignored, since a sweep is its own time reversal.
        """
        del backward
        log_length = self.lengths.log_length_at(temperature)
        place, _ = self.run_trajectories(
            key, state, temperature, TRAJECTORIES, lambda rule, _, __: (rule, log_length), None
        )
        return DensityState(place.position, place.log_likelihood)

    def log_ratio(self, state: DensityState) -> Float[Array, " particle"]:
        """Return log p(data | coordinates) of each particle, (particle,), in nats, by which importance weights grow
        along the path.
        """
        return jnp.asarray(state.log_likelihood)

    def log_density(self, state: DensityState) -> Float[Array, " particle"]:
        """Return log p(coordinates, data) of each particle, nats."""
        return self._log_densities(jnp.asarray(state.position)).sum(1)

    def _log_densities(self, position: Array) -> Float[Array, "particle two"]:
        """Return log p(u) and log p(data | u) of each particle's coordinates u, (particle, 2), in nats."""
        return jax.vmap(lambda u: self.log_densities(u, self.size))(position)

    def run_trajectories(
        self,
        key: Key[Array, ""],
        state: DensityState,
        temperature: Any,
        trajectories: int,
        rule: Callable[[Any, Place, Array], tuple[Any, Array]],
        memory: Any,
    ) -> tuple[Place, Any]:
        """Move the particles along several Hamiltonian trajectories, each of which ends in a Metropolis step.

        state: the particles.
        temperature: t, from 0 (the start of the annealing path) to 1 (the posterior).
        trajectories: how many trajectories each particle makes.
        rule: chooses step lengths from (memory, places of the particles, acceptance probabilities of the last
            trajectories). It returns (new memory, log lengths of the next steps).
        memory: the first memory of the rule.

        Returns: (the places of the particles, the rule's last memory).

        One loop runs over all leapfrog steps, so that the gradient is compiled once; compile time dominates on small
        problems. The first round only evaluates the density. Its trajectory has length 0 and is always kept.
        """

        def begin_next_trajectory(
            key: Array, there: Place, flight: Flight, memory: Any, first: Any
        ) -> tuple[Flight, Any]:
            """End each trajectory with a Metropolis step, and begin the next one with fresh momentum and step length.

            there: where the trajectories have arrived. first: True in the first round, in which all are accepted.
            """
            key_accept, key_momentum, key_length = jax.random.split(key, 3)
            # accept by the gain of log π_t minus kinetic energy; a gain that is not a number is refused
            gain = there.log_density - flight.origin.log_density
            gain = gain + 0.5 * ((flight.kick**2).sum(1) - (flight.momentum**2).sum(1))
            chance = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(gain), -jnp.inf, gain), 0.0))
            moves = first | (jax.random.uniform(key_accept, chance.shape) < chance)
            origin = jax.tree.map(
                lambda new, old: jnp.where(moves.reshape(-1, *[1] * (new.ndim - 1)), new, old), there, flight.origin
            )
            memory, log_length = rule(memory, origin, chance)
            # fresh momentum, and a random factor on the lengths of the next steps
            kick = jax.random.normal(key_momentum, origin.position.shape)
            shrunk = jax.random.uniform(key_length, (len(kick), 1), minval=jnp.log(SHORTEST), maxval=0.0)
            return Flight(origin, kick, origin.position, kick, jnp.exp(log_length + shrunk)), memory

        def leap(i: Array, carry: tuple[Flight, Any]) -> tuple[Flight, Any]:
            """Make one leapfrog step, ending the trajectory at every `LEAPS`-th one."""
            flight, memory = carry
            there = self.place(flight.position, temperature)
            flight = flight._replace(momentum=flight.momentum + 0.5 * flight.length * there.gradient)
            ends = i % LEAPS == 0
            flight, memory = jax.lax.cond(
                ends,
                lambda: begin_next_trajectory(jax.random.fold_in(key, i), there, flight, memory, i == 0),
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
        """Return the particles' positions with log p(data | u), log π_t and its gradient there, in nats.

        temperature: t, from 0 (the start of the annealing path) to 1 (the posterior).
        """

        def tempered(u: Array) -> tuple[Array, Array]:
            log_prior, log_likelihood = self.log_densities(u, self.size)
            return log_prior + temperature * log_likelihood, log_likelihood

        (density, likelihood), gradient = jax.vmap(jax.value_and_grad(tempered, has_aux=True))(position)
        return Place(position, likelihood, density, gradient)


ACCEPTED = 0.8
"""Target of the acceptance probability of a trajectory, averaged over particles and their drawn lengths."""
ROUNDS, GAIN = 6, 0.6
"""Number of trajectories at each temperature, and the gain of the stochastic approximation.

After each trajectory the log length changes by `GAIN` × (acceptance − `ACCEPTED`).
"""
FIRST_LENGTH = 0.5
"""First length of a leapfrog step, in units of 1/√curvature."""
LEAST_CURVATURE = 1e-12
NODES = 33
"""Number of temperatures in the stored table, fixed so that one compiled program serves all sizes of one shape."""


def blank_step_lengths(n_coordinates: int) -> StepLengths:
    """Return a table of leapfrog step lengths of the usual shape whose values mean nothing yet.

    n_coordinates: the number of coordinates of the density.
    """
    return StepLengths(np.linspace(0.0, 1.0, NODES), np.zeros((NODES, n_coordinates)))


def tune_step_lengths(chain: DensityChain, key: Key[Array, ""], particles: int) -> tuple[DensityChain, Profile]:
    """Tune a chain by one pilot run: find the lengths of its leapfrog steps, and measure the path.

    particles: number of particles of the pilot. All of them are resampled together, at temperatures that each leave
        half of the effective sample size.

    Returns: (the chain with its step lengths tabulated, the pilot's profile). If log p(data | u) is not a number the
        pilot stops, and the profile shows it.
    """
    key_init, key_path = jax.random.split(key)
    draw = generator(key)
    with jax.enable_x64(True):
        state = draw_from_q(chain, key_init, particles=particles)
        t, factor, visited, lengths = 0.0, np.log(FIRST_LENGTH), [], []
        while True:
            key_here = jax.random.fold_in(key_path, len(visited))
            state, log_length, factor = _adapt_step_lengths(chain, key_here, state, t, factor)
            ratio = np.asarray(state.log_likelihood)
            visited.append((t, ratio.mean(), ratio.std()))
            lengths.append(np.asarray(log_length))
            if t == 1.0 or not np.isfinite(ratio.max()):
                break
            after = 1.0 if len(visited) == MOST_PILOT_STEPS else next_temperature(partial(np.multiply, ratio), t)
            # resample all particles systematically by their weights for the step to the next temperature
            weight = np.cumsum(np.exp((after - t) * (ratio - ratio.max())))
            places = weight[-1] * (np.arange(particles) + draw.random()) / particles
            chosen = np.minimum(np.searchsorted(weight, places, side="right"), particles - 1)
            state, t = jax.tree.map(lambda leaf, chosen=chosen: np.asarray(leaf)[chosen], state), after
    profile = Profile(*np.array(visited, np.float64).T)
    return eqx.tree_at(lambda c: c.lengths, chain, _table(profile.temperature, np.stack(lengths))), profile


def _table(temperature: np.ndarray, log_length: np.ndarray) -> StepLengths:
    """Return a table of step lengths at `NODES` temperatures, spaced in proportion to the given ones.

    temperature: the temperatures of the pilot, (step,). log_length: log lengths at these, (step, coordinate).
    """
    known = np.arange(len(temperature))
    places = np.linspace(0, len(temperature) - 1, NODES)
    columns = [np.interp(places, known, column) for column in log_length.T]
    return StepLengths(np.interp(places, known, temperature), np.stack(columns, axis=1))


@kernel()
@counted
def _adapt_step_lengths(
    chain: DensityChain, key: Array, state: DensityState, temperature: Any, factor: Any
) -> tuple[DensityState, Array, Array]:
    """Adapt the step lengths during `ROUNDS` trajectories at one temperature (compiled).

    factor: log of the factor between the steps' lengths and 1/√curvature, before.

    Returns: (the particles, the log length along each coordinate (coordinate,), the log of the adapted factor).
    """

    def adapt_lengths(memory: tuple[Array, Array, Array], place: Place, chance: Array) -> tuple[tuple, Array]:
        """Update the log factor of the lengths from the acceptance probability; return the new memory and the next log
        lengths.

        memory: (log factor, last log lengths, whether this is the first round). place: the particles. chance: their
            acceptance probabilities.
        """
        factor, _, first = memory
        square = jnp.where(jnp.isfinite(place.gradient), place.gradient, 0.0) ** 2
        factor = factor + jnp.where(first, 0.0, GAIN * (chance.mean() - ACCEPTED))
        log_length = factor - 0.5 * jnp.log(jnp.maximum(square.mean(0), LEAST_CURVATURE))
        return (factor, log_length, jnp.bool_(False)), log_length

    memory = jnp.asarray(factor, float), jnp.zeros(state.position.shape[1]), jnp.bool_(True)
    place, (factor, log_length, _) = chain.run_trajectories(key, state, temperature, ROUNDS, adapt_lengths, memory)
    return DensityState(place.position, place.log_likelihood), log_length, factor
