"""Tuning of a `DensityChain`: one pilot run finds the lengths of leapfrog steps and the spacing of temperatures.

Lengths follow the mean square of the gradient, E_t[(∂ log π_t / ∂u)²] = −E_t[∂² log π_t / ∂u²], which is the curvature
where the particles are. It is the same in every labelling. The spread of the particles, in contrast, mixes labellings.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from lvsearch.inference.annealing.density import DensityChain, DensityState, Place, StepLengths
from lvsearch.inference.annealing.particles import MOST_PILOT_STEPS, Profile, draw_from_q, next_temperature
from lvsearch.inference.compiles import counted
from lvsearch.inference.generators import generator
from lvsearch.models.kernels import kernel

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
