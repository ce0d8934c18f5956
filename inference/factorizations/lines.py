"""Moves of all rows of a matrix of counts, or of all its columns, at once: each by itself, on the scale of logarithms.

The density of a line's values is that of independent Gammas times its cells' probability to a power, allocations and
noise summed out. A trajectory (Neal 2011) ends in a Metropolis step of each line's own; then single entries jump.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from lvsearch.inference.factorizations.kernel import TINY

LEAPS = 5
"""Leapfrog steps of a trajectory."""
SHORTEST = 0.6
"""A trajectory's steps are the given lengths times a number drawn between this and 1."""
JUMPS, FAR = 2, 5.0
"""Jumps of each line, of one entry's logarithm, and their standard deviation: the values of what a line has nothing of
lie anywhere on a long tail."""
FAINT = 0.05
"""Counts that an entry is to be expected to make in its whole line below which it is drawn anew with all that are."""


class Lines(NamedTuple):
    """Rows given the factors, or columns given the intensities, at temperature t: independent of each other.

    | field | meaning |
    |---|---|
    | `exists` | which factors do; the first ones |
    | `x`, `seen` | counts, 0 where nothing was observed; 1 where something was |
    | `noise_shape` | r, of every particle or of all; None without noise |
    | `other` | values that those of the lines are multiplied with |
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

    def moved(self, key: Array, log_value: Array, lengths: Array) -> Array:
        """A trajectory of every line and jumps of its entries, each line kept or not by itself. log_value: (particle,
        line, factor)."""
        key_flight, key_jumps = jax.random.split(key)
        place, density = self._flown(key_flight, log_value, lengths)

        def jumped(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            key_which, key_far, key_accept = jax.random.split(jax.random.fold_in(key_jumps, number), 3)
            size = self.exists.sum()
            which = jnp.floor(jax.random.uniform(key_which, (*log_value.shape[:2], 1)) * size).astype(int)
            far = FAR * jax.random.normal(key_far, which.shape, log_value.dtype)
            there = jnp.where(jnp.arange(log_value.shape[2]) == which, carry[0] + far, carry[0])
            return _kept(key_accept, carry, there, self._log_density(there), jnp.zeros(()))

        key_jumps, key_redrawn = jax.random.split(key_jumps)
        return self._redrawn(key_redrawn, *jax.lax.fori_loop(0, JUMPS, jumped, (place, density)))

    def _redrawn(self, key: Array, here: Array, density: Array) -> Array:
        """All entries that are too small for counts to tell, at once: each anew from the tail of its Gamma below that.

        Below a limit ℓ, where its likelihood is flat and e^−rate·value is 1, an entry has the density ∝ value^(shape −
        1): log value = ℓ + log(uniform) / shape. Which entries are below is the same after as before; what is not flat
        is left to Metropolis' rule. Random walks take hundreds of sweeps along tails of width 1 / shape.
        """
        key_draw, key_accept = jax.random.split(key)
        exposed = jnp.asarray(self.seen) @ self.other
        limit = jnp.log(FAINT) - jnp.log(jnp.maximum(exposed, TINY))
        faint = self.exists & (here < limit)
        drawn = limit + jnp.log(jax.random.uniform(key_draw, here.shape, here.dtype, TINY)) / self.shape
        there = jnp.where(faint, drawn, here)
        proposed = jnp.where(faint, self.shape * (there - here), 0.0).sum(2)
        return _kept(key_accept, (here, density), there, self._log_density(there), -proposed)[0]

    def _flown(self, key: Array, log_value: Array, lengths: Array) -> tuple[Array, Array]:
        """(Where every line is after a trajectory, log π_t there). One loop, in which the gradient stands once:
        compiling it is what small matrices wait for."""
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
        return _kept(key_accept, (log_value, self._log_density(log_value)), place, self._log_density(place), energy)

    def _mean(self, value: Array) -> Array:
        return value @ jnp.swapaxes(self.other, 1, 2)

    def _gradient(self, log_value: Array) -> Array:
        """Of log π_t by the logarithms, which are its coordinates."""
        value = jnp.where(self.exists, jnp.exp(log_value), 0.0)
        of_cells = (slope(self.x, self.seen, self.noise_shape, self._mean(value)) @ self.other) * value
        return jnp.where(self.exists, self.temperature * of_cells + self.shape - self.rate * value, 0.0)

    def _log_density(self, log_value: Array) -> Array:
        """log π_t of every line, nats, a density of logarithms: (particle, line)."""
        value = jnp.where(self.exists, jnp.exp(log_value), 0.0)
        cells = log_cells(self.x, self.seen, self.noise_shape, self._mean(value)).sum(2)
        gammas = jnp.where(self.exists, self.shape * log_value - self.rate * value, 0.0).sum(2)
        return self.temperature * cells + gammas


def log_cells(x: Array, seen: Array, r: Array | None, mean: Array) -> Array:
    """What of log p(x | m) depends on the mean, nats; 0 where nothing was observed."""
    counted = x * jnp.log(jnp.maximum(mean, TINY))
    return seen * (counted - mean if r is None else counted - (r + x) * jnp.log1p(mean / r))


def slope(x: Array, seen: Array, r: Array | None, mean: Array) -> Array:
    """The derivative of `log_cells` by the mean."""
    counted = x / jnp.maximum(mean, TINY)
    return seen * (counted - 1 if r is None else counted - (r + x) / (r + mean))


def _kept(key: Array, here: tuple[Array, Array], place: Array, density: Array, energy: Array) -> tuple[Array, Array]:
    """Every line here or at the other place, and log π_t there, by Metropolis' rule. energy: kinetic, gained."""
    gain = density - here[1] + energy
    accepted = jnp.log(jax.random.uniform(key, gain.shape, gain.dtype)) < gain
    return jnp.where(accepted[..., None], place, here[0]), jnp.where(accepted, density, here[1])
