"""Hamiltonian moves of all rows of a matrix of counts at once, or of all its columns, on the scale of logarithms.

The density of a line's values is that of independent Gammas times its cells' probability to a power, with allocations
and noise summed out. A line moves by a Hamiltonian trajectory (Neal 2011) with a Metropolis step of its own. Then
single entries jump.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.inference.factorizations.kernel import TINY

LEAPS = 5
"""The number of leapfrog steps of a trajectory."""
SHORTEST = 0.6
"""A trajectory's steps are the given lengths times a random number between this and 1."""
JUMPS, FAR = 2, 5.0
"""The number of jumps of each line, and the standard deviation of a jump of one entry's logarithm.

Values for which a line has no counts lie anywhere on a long tail, so jumps are long.
"""
FAINT = 0.05
"""Entries that are expected to make fewer counts than this in their whole line are drawn anew together."""


class MatrixLines(NamedTuple):
    """Rows given the factors, or columns given the intensities, at temperature t. Lines are independent of each other.

    | field | meaning |
    |---|---|
    | `exists` | which factors exist: the first ones |
    | `x`, `seen` | counts, 0 where nothing was observed; 1 where a cell was observed |
    | `noise_shape` | r, of every particle or of all; None without noise |
    | `other` | the values that those of the lines are multiplied with |
    | `shape`, `rate` | of the Gammas that values have without counts |
    """

    exists: Bool[Array, " factor"]
    x: Float[Array, "line across"]
    seen: Float[Array, "line across"]
    noise_shape: Array | None
    other: Float[Array, "particle across factor"]
    shape: Array | np.ndarray
    rate: Array | np.ndarray
    temperature: Array

    def move(self, key: Array, log_value: Array, lengths: Array) -> Array:
        """Move every line by a trajectory and then by jumps of its entries. Each line accepts or rejects for itself.

        log_value: the logarithms of the values, (particle, line, factor).
        lengths: the length of a leapfrog step of each entry.
        """
        key_flight, key_jumps = jax.random.split(key)
        place, density = self._fly(key_flight, log_value, lengths)

        def jump(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Propose one jump of one random entry of every line."""
            key_which, key_far, key_accept = jax.random.split(jax.random.fold_in(key_jumps, number), 3)
            size = self.exists.sum()
            which = jnp.floor(jax.random.uniform(key_which, (*log_value.shape[:2], 1)) * size).astype(int)
            far = FAR * jax.random.normal(key_far, which.shape, log_value.dtype)
            there = jnp.where(jnp.arange(log_value.shape[2]) == which, carry[0] + far, carry[0])
            return _accept(key_accept, carry, there, self._log_density(there), jnp.zeros(()))

        key_jumps, key_redrawn = jax.random.split(key_jumps)
        return self._redraw_faint(key_redrawn, *jax.lax.fori_loop(0, JUMPS, jump, (place, density)))

    def _redraw_faint(self, key: Array, here: Array, density: Array) -> Array:
        """Draw anew all entries that are too small for the counts to tell, at once.

        Below a limit ℓ the likelihood is flat and e^(−rate · value) is 1. There an entry has the density ∝ value^(shape
        − 1), so its logarithm is ℓ + log(uniform) / shape. The same entries are below the limit before and after. What
        is not quite flat is left to Metropolis' rule. A random walk would take hundreds of sweeps along tails of width
        1 / shape.
        """
        key_draw, key_accept = jax.random.split(key)
        exposed = jnp.asarray(self.seen) @ self.other
        limit = jnp.log(FAINT) - jnp.log(jnp.maximum(exposed, TINY))
        faint = self.exists & (here < limit)
        drawn = limit + jnp.log(jax.random.uniform(key_draw, here.shape, here.dtype, TINY)) / self.shape
        there = jnp.where(faint, drawn, here)
        proposed = jnp.where(faint, self.shape * (there - here), 0.0).sum(2)
        return _accept(key_accept, (here, density), there, self._log_density(there), -proposed)[0]

    def _fly(self, key: Array, log_value: Array, lengths: Array) -> tuple[Array, Array]:
        """Move every line by one trajectory. Returns where each line is then, and log π_t there.

        The loop is written so that the gradient appears once: small matrices mostly wait for compilation.
        """
        key_kick, key_length, key_accept = jax.random.split(key, 3)
        kick = jax.random.normal(key_kick, log_value.shape, log_value.dtype)
        some = jax.random.uniform(key_length, (*log_value.shape[:2], 1), log_value.dtype, SHORTEST, 1.0)
        length = lengths * some

        def leap(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            place, momentum = carry
            ends = (number == 0) | (number == LEAPS)
            momentum = momentum + jnp.where(ends, 0.5, 1.0) * length * self._gradient(place)
            return jnp.where(number == LEAPS, place, place + length * momentum), momentum

        place, momentum = jax.lax.fori_loop(0, LEAPS + 1, leap, (log_value, kick))
        energy = 0.5 * jnp.where(self.exists, kick**2 - momentum**2, 0.0).sum(2)
        return _accept(key_accept, (log_value, self._log_density(log_value)), place, self._log_density(place), energy)

    def _mean(self, value: Array) -> Array:
        """Return the means of the cells."""
        return value @ jnp.swapaxes(self.other, 1, 2)

    def _gradient(self, log_value: Array) -> Array:
        """Return the gradient of log π_t by the logarithms of the values, which are its coordinates."""
        value = jnp.where(self.exists, jnp.exp(log_value), 0.0)
        of_cells = (slope(self.x, self.seen, self.noise_shape, self._mean(value)) @ self.other) * value
        return jnp.where(self.exists, self.temperature * of_cells + self.shape - self.rate * value, 0.0)

    def _log_density(self, log_value: Array) -> Array:
        """Return log π_t of every line as a density of logarithms, nats, (particle, line)."""
        value = jnp.where(self.exists, jnp.exp(log_value), 0.0)
        cells = log_cells(self.x, self.seen, self.noise_shape, self._mean(value)).sum(2)
        gammas = jnp.where(self.exists, self.shape * log_value - self.rate * value, 0.0).sum(2)
        return self.temperature * cells + gammas


def log_cells(x: Array, seen: Array, r: Array | None, mean: Array) -> Array:
    """Return the part of log p(x | m) that depends on the mean m, nats; 0 where nothing was observed."""
    counted = x * jnp.log(jnp.maximum(mean, TINY))
    return seen * (counted - mean if r is None else counted - (r + x) * jnp.log1p(mean / r))


def slope(x: Array, seen: Array, r: Array | None, mean: Array) -> Array:
    """Return the derivative of `log_cells` by the mean."""
    counted = x / jnp.maximum(mean, TINY)
    return seen * (counted - 1 if r is None else counted - (r + x) / (r + mean))


def _accept(key: Array, here: tuple[Array, Array], place: Array, density: Array, energy: Array) -> tuple[Array, Array]:
    """Accept or reject each line's proposal by Metropolis' rule. Returns each line's place, and log π_t there.

    here: the current place and log π_t there.
    place, density: the proposed place and log π_t there.
    energy: the kinetic energy gained, or the log ratio of proposal densities, nats.
    """
    gain = density - here[1] + energy
    accepted = jnp.log(jax.random.uniform(key, gain.shape, gain.dtype)) < gain
    return jnp.where(accepted[..., None], place, here[0]), jnp.where(accepted, density, here[1])
