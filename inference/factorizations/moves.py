"""Metropolis moves of annealed Poisson factorisations: Hamiltonian trajectories of rows and columns, and scales.

A *line* is a row or a column. Its values are the row's intensities or the column's factor entries. Their density is a
product of independent Gammas, times the cells' probability to a power t, with allocations and noise summed out. All
rows of a matrix, or all its columns, move at once, on the scale of logarithms. Each line moves by a Hamiltonian
trajectory (Neal 2011) with a Metropolis step of its own. Then single entries jump.

`scale_step` moves the scale that a factor and its intensities share. If factor k's intensities are multiplied by e^y
and its entries β_k are divided by e^y, all products stay the same, so no cell's mean depends on y.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from lvsearch.inference.factorizations.kernel import TINY


def scale_step(
    key: Key[Array, ""], slope: Float[Array, "..."], up: Float[Array, "*factor"], down: Float[Array, "*factor"]
) -> Float[Array, "*factor"]:
    """Draw y for each factor by one Metropolis step from y = 0. The caller multiplies intensities by e^y, factors by
    e^−y.

    The density of y is slope · y − up e^y − down e^−y, nats, up to a constant. The proposal is the Gaussian at its
    mode, independent of the current y. For a factor that does not exist the gain is NaN, and y is 0.

    slope: the linear coefficient, one number for all factors or one per factor.
    up, down: the coefficients of e^y and e^−y, one positive number per factor.
    """
    key_propose, key_accept = jax.random.split(key)
    curvature = jnp.sqrt(slope**2 + 4 * up * down)
    # of the two roots of one quadratic, the way without cancellation
    mode = jnp.log(jnp.where(slope > 0, (slope + curvature) / (2 * up), 2 * down / (curvature - slope)))

    def log_density(y: Array) -> Array:
        """Return log density of y minus log density of the proposal, nats, up to a constant."""
        return slope * y - up * jnp.exp(y) - down * jnp.exp(-y) + 0.5 * curvature * (y - mode) ** 2

    proposed = mode + jax.random.normal(key_propose, mode.shape, mode.dtype) / jnp.sqrt(curvature)
    gain = log_density(proposed) - log_density(jnp.zeros_like(mode))
    accepted = jnp.log(jax.random.uniform(key_accept, gain.shape, gain.dtype)) < gain
    return jnp.where(accepted, proposed, 0.0)


LEAPS = 5
"""The number of leapfrog steps of a trajectory."""
SHORTEST = 0.6
"""The smallest random factor on a trajectory's step lengths: each line draws its factor between this and 1."""
JUMPS, FAR = 2, 5.0
"""The number of jumps of each line, and the standard deviation of a jump of one entry's logarithm.

Values for which a line has no counts lie anywhere on a long tail. Therefore jumps are long.
"""
FAINT = 0.05
"""Entries that are expected to make fewer counts than this in their whole line are drawn anew together."""


class MatrixLines(NamedTuple):
    """The lines of a matrix of counts at temperature t: rows given the factors, or columns given the intensities.

    Lines are independent of each other.

    | field | meaning |
    |---|---|
    | `exists` | which factors exist: the first ones |
    | `x`, `seen` | counts, 0 where nothing was observed; 1 where a cell was observed, else 0 |
    | `noise_shape` | r, the shape of the noise, of every particle or of all; None without noise |
    | `other` | the values on the other side, by which the lines' values are multiplied to give a cell's mean |
    | `shape`, `rate` | of the Gammas that the lines' values have without counts |
    | `temperature` | t, the power of the cells' probability |
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
        """Return the log values after a trajectory of every line and jumps of its entries, (particle, line, factor).

        Each line accepts or rejects for itself.

        log_value: the logarithms of the values, (particle, line, factor).
        lengths: the length of a leapfrog step of each entry, (line, factor).
        """
        key_flight, key_jumps = jax.random.split(key)
        position, density = self._fly(key_flight, log_value, lengths)

        def jump(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Propose one jump of one random entry of every line."""
            key_which, key_far, key_accept = jax.random.split(jax.random.fold_in(key_jumps, number), 3)
            size = self.exists.sum()
            which = jnp.floor(jax.random.uniform(key_which, (*log_value.shape[:2], 1)) * size).astype(int)
            far = FAR * jax.random.normal(key_far, which.shape, log_value.dtype)
            candidate = jnp.where(jnp.arange(log_value.shape[2]) == which, carry[0] + far, carry[0])
            return _accept(key_accept, carry, candidate, self._log_density(candidate), jnp.zeros(()))

        key_jumps, key_redrawn = jax.random.split(key_jumps)
        return self._redraw_faint(key_redrawn, *jax.lax.fori_loop(0, JUMPS, jump, (position, density)))

    def _redraw_faint(self, key: Array, current: Array, density: Array) -> Array:
        """Return the log values after one draw of all entries that are too small for the counts to tell.

        Below a limit ℓ the likelihood is flat and e^(−rate · value) is 1. There an entry has the density ∝ value^(shape
        − 1), so its logarithm is ℓ + log(uniform) / shape. The same entries are below the limit before and after. What
        is not quite flat is left to Metropolis' rule. A random walk would take hundreds of sweeps along tails of width
        1 / shape.

        current: the current log values, (particle, line, factor).
        density: their log density, (particle, line), nats.
        """
        key_draw, key_accept = jax.random.split(key)
        exposed = jnp.asarray(self.seen) @ self.other
        limit = jnp.log(FAINT) - jnp.log(jnp.maximum(exposed, TINY))
        faint = self.exists & (current < limit)
        drawn = limit + jnp.log(jax.random.uniform(key_draw, current.shape, current.dtype, TINY)) / self.shape
        candidate = jnp.where(faint, drawn, current)
        proposed = jnp.where(faint, self.shape * (candidate - current), 0.0).sum(2)
        return _accept(key_accept, (current, density), candidate, self._log_density(candidate), -proposed)[0]

    def _fly(self, key: Array, log_value: Array, lengths: Array) -> tuple[Array, Array]:
        """Move every line by one trajectory. Returns the log values (particle, line, factor), and log π_t (particle,
        line), nats.

        The loop is written so that the gradient appears once: small matrices mostly wait for compilation.

        log_value: the log values before, (particle, line, factor).
        lengths: the length of a leapfrog step of each entry, (line, factor).
        """
        key_kick, key_length, key_accept = jax.random.split(key, 3)
        kick = jax.random.normal(key_kick, log_value.shape, log_value.dtype)
        some = jax.random.uniform(key_length, (*log_value.shape[:2], 1), log_value.dtype, SHORTEST, 1.0)
        length = lengths * some

        def leap(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Make one leapfrog step: a kick of the momentum (half a kick at both ends), then a move of the log
            values.
            """
            position, momentum = carry
            ends = (number == 0) | (number == LEAPS)
            momentum = momentum + jnp.where(ends, 0.5, 1.0) * length * self._gradient(position)
            return jnp.where(number == LEAPS, position, position + length * momentum), momentum

        position, momentum = jax.lax.fori_loop(0, LEAPS + 1, leap, (log_value, kick))
        energy = 0.5 * jnp.where(self.exists, kick**2 - momentum**2, 0.0).sum(2)
        return _accept(
            key_accept, (log_value, self._log_density(log_value)), position, self._log_density(position), energy
        )

    def _mean(self, value: Array) -> Array:
        """Return the means of the cells, (particle, line, across), from the lines' values."""
        return value @ jnp.swapaxes(self.other, 1, 2)

    def _gradient(self, log_value: Array) -> Array:
        """Return the gradient of log π_t by the logarithms of the values, (particle, line, factor)."""
        value = jnp.where(self.exists, jnp.exp(log_value), 0.0)
        of_cells = (slope(self.x, self.seen, self.noise_shape, self._mean(value)) @ self.other) * value
        return jnp.where(self.exists, self.temperature * of_cells + self.shape - self.rate * value, 0.0)

    def _log_density(self, log_value: Array) -> Array:
        """Return log π_t of every line as a density of logarithms, (particle, line), nats, up to a constant."""
        value = jnp.where(self.exists, jnp.exp(log_value), 0.0)
        cells = log_cells(self.x, self.seen, self.noise_shape, self._mean(value)).sum(2)
        gammas = jnp.where(self.exists, self.shape * log_value - self.rate * value, 0.0).sum(2)
        return self.temperature * cells + gammas


def log_cells(x: Array, seen: Array, r: Array | None, mean: Array) -> Array:
    """Return the part of log p(count | mean) that depends on the mean, of each cell, nats; 0 where nothing was
    observed.

    x, seen: counts, and 1 where a cell was observed.
    r: the shape of the noise; None without noise.
    """
    counted = x * jnp.log(jnp.maximum(mean, TINY))
    return seen * (counted - mean if r is None else counted - (r + x) * jnp.log1p(mean / r))


def slope(x: Array, seen: Array, r: Array | None, mean: Array) -> Array:
    """Return the derivative of `log_cells` by the mean, for each cell; 0 where nothing was observed.

    x, seen: counts, and 1 where a cell was observed.
    r: the shape of the noise; None without noise.
    """
    counted = x / jnp.maximum(mean, TINY)
    return seen * (counted - 1 if r is None else counted - (r + x) / (r + mean))


def _accept(
    key: Array, current: tuple[Array, Array], position: Array, density: Array, energy: Array
) -> tuple[Array, Array]:
    """Accept or reject each line's proposal by Metropolis' rule. Returns each line's log values, and log π_t there.

    current: the current log values and log π_t there.
    position, density: the proposed log values and log π_t there.
    energy: the kinetic energy lost, or the log proposal density of the current values minus that of the proposed, nats.
    """
    gain = density - current[1] + energy
    accepted = jnp.log(jax.random.uniform(key, gain.shape, gain.dtype)) < gain
    return jnp.where(accepted[..., None], position, current[0]), jnp.where(accepted, density, current[1])
