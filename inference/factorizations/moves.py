"""Metropolis moves of annealed Poisson factorisations: Hamiltonian trajectories of rows and columns, and scales.

A *line* is a row or a column. Its values are the row's intensities or the column's factor entries. Their density is a
product of independent Gammas, times the cells' probability to a power t, with allocations and noise summed out. All
rows of a matrix, or all its columns, move at once, on the scale of logarithms. Each line moves by a Hamiltonian
trajectory (Neal 2011) with a Metropolis step of its own. Then single entries jump.

`scale_step` moves the scale that a factor and its intensities share. If factor k's intensities are multiplied by e^y
and its entries β_k are divided by e^y, all products stay the same, so no cell's mean depends on y.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from lvsearch.inference.factorizations.kernel import TINY


class ScaleDraws(NamedTuple):
    """The random numbers of one move of scales (`scale_step`): standard normal and uniform, of equal shapes."""

    normal: Float[Array, "*factor"]
    uniform: Float[Array, "*factor"]


def scale_step(
    draws: ScaleDraws, slope: Float[Array, "..."], up: Float[Array, "*factor"], down: Float[Array, "*factor"]
) -> Float[Array, "*factor"]:
    """Draw y for each factor by one Metropolis step from y = 0. The caller multiplies intensities by e^y, factors by
    e^−y.

    The density of y is slope · y − up e^y − down e^−y, nats, up to a constant. The proposal is the Gaussian at its
    mode, independent of the current y. For a factor that does not exist the gain is NaN, and y is 0.

    draws: the random numbers of the step.
    slope: the linear coefficient, one number for all factors or one per factor.
    up, down: the coefficients of e^y and e^−y, one positive number per factor.
    """
    curvature = jnp.sqrt(slope**2 + 4 * up * down)
    # of the two roots of one quadratic, the way without cancellation
    mode = jnp.log(jnp.where(slope > 0, (slope + curvature) / (2 * up), 2 * down / (curvature - slope)))

    def log_density(y: Array) -> Array:
        """Return log density of y minus log density of the proposal, nats, up to a constant."""
        return slope * y - up * jnp.exp(y) - down * jnp.exp(-y) + 0.5 * curvature * (y - mode) ** 2

    proposed = mode + draws.normal / jnp.sqrt(curvature)
    gain = log_density(proposed) - log_density(jnp.zeros_like(mode))
    return jnp.where(jnp.log(draws.uniform) < gain, proposed, 0.0)


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


class LineDraws(NamedTuple):
    """The random numbers of one move of all lines (`MatrixLines.move`).

    | field | meaning | shape |
    |---|---|---|
    | `kicks` | standard normal: momenta at the start of the trajectories | (particle, line, factor) |
    | `far` | standard normal: how far entries jump, in units of `FAR` | (jump, particle, line, 1) |
    | `lengths` | uniform: lengths of the steps of the trajectories | (particle, line, 1) |
    | `which` | uniform: which entry of a line jumps | (jump, particle, line, 1) |
    | `redrawn` | uniform: new values of faint entries | (particle, line, factor) |
    | `accept` | uniform: acceptance of the trajectory, of jumps, of redrawn entries | (jump + 2, particle, line) |
    """

    kicks: Float[Array, "particle line factor"]
    far: Float[Array, "jump particle line one"]
    lengths: Float[Array, "particle line one"]
    which: Float[Array, "jump particle line one"]
    redrawn: Float[Array, "particle line factor"]
    accept: Float[Array, "proposal particle line"]


class SweepDraws(NamedTuple):
    """All random numbers of one sweep: of the moves of rows, columns, scales and log r, the noise's shape."""

    rows: LineDraws
    columns: LineDraws
    scales: ScaleDraws
    noise: ScaleDraws


def sweep_draws(key: Key[Array, ""], particles: int, lines: tuple[int, int], factors: int, dtype: Any) -> SweepDraws:
    """Draw all random numbers of one sweep by two calls of the generator.

    A program with a call for each of the 18 arrays takes three times as long to compile. Uniform numbers are above 0
    and at most 1: float32 would draw a 0, by which anything is accepted, once in ten million times.

    lines: the numbers of rows and of columns.
    factors: the number of factors that arrays have room for.
    dtype: the floating type of the numbers.
    """
    key_normal, key_uniform = jax.random.split(key)
    wide = [(particles, n, factors) for n in lines]
    jumps = [(JUMPS, particles, n, 1) for n in lines]
    lengths, accept = (
        [(*before, n, *after) for n in lines] for before, after in (((particles,), (1,)), ((JUMPS + 2, particles), ()))
    )
    scales, noise = (particles, factors), (particles,)

    def cut(flat: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
        """Return consecutive parts of a flat array in the given shapes."""
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(jnp.split(flat, ends[:-1]), shapes, strict=True)]

    def draw(sampler: Callable[..., Array], key: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
        """Draw arrays of the given shapes by one call of the generator."""
        return cut(sampler(key, (sum(map(math.prod, shapes)),), dtype), shapes)

    normal = draw(jax.random.normal, key_normal, [*wide, *jumps, scales, noise])
    uniform = draw(
        lambda *args: 1 - jax.random.uniform(*args), key_uniform, [*lengths, *jumps, *wide, *accept, scales, noise]
    )
    of_rows, of_columns = (LineDraws(*normal[side:4:2], *uniform[side:8:2]) for side in (0, 1))
    return SweepDraws(of_rows, of_columns, *(ScaleDraws(*each) for each in zip(normal[4:], uniform[8:], strict=True)))


class Position(NamedTuple):
    """The position of all lines.

    | field | meaning | shape |
    |---|---|---|
    | `log_value` | the logarithms of the values, in the session's precision | (particle, line, factor) |
    | `value` | the values, in the cells' precision; 0 for factors that do not exist | (particle, line, factor) |
    | `mean` | the means of the cells, in the cells' precision | (particle, line, across) |
    """

    log_value: Float[Array, "particle line factor"]
    value: Float[Array, "particle line factor"]
    mean: Float[Array, "particle line across"]


class MatrixLines(NamedTuple):
    """The lines of a matrix of counts at temperature t: rows given the factors, or columns given the intensities.

    Lines are independent of each other. Everything but the logarithms of values may be in float32, which takes half as
    long: only *changes* of a line's log-probability are computed, from changes of logarithms and of the cells' means.
    So they are as exact as float32 allows for small numbers, whatever the number of counts.

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

    def move(self, draws: LineDraws, log_value: Array, lengths: Array) -> Array:
        """Return the log values after a trajectory of every line and jumps of its entries, (particle, line, factor).

        Each line accepts or rejects for itself. Proposals are judged in one loop, in which the judging appears once:
        compiling it takes longer than small matrices take to move.

        draws: the random numbers of the move.
        log_value: the logarithms of the values, (particle, line, factor).
        lengths: the length of a leapfrog step of each entry, (line, factor).
        """
        flown, energy = self._fly(draws, log_value, lengths)
        limit = self._faint_limit()

        def judge(number: Array, here: Position) -> Position:
            """Propose and judge: the end of each line's trajectory, jumps of an entry, and new faint entries."""
            jumped = here.log_value + self._jumps(draws, number - 1)
            redrawn, proposed = self._redraw_faint(draws.redrawn, limit, here)
            flew, jumps = number == 0, number <= JUMPS
            candidate = jnp.where(flew, flown, jnp.where(jumps, jumped, redrawn))
            return self._accept(
                draws.accept[number], here, candidate, jnp.where(flew, energy, jnp.where(jumps, 0.0, proposed))
            )

        return jax.lax.fori_loop(0, JUMPS + 2, judge, self.position(log_value)).log_value

    def position(self, log_value: Array) -> Position:
        """Return the position of lines with these logarithms of values, (particle, line, factor)."""
        value = self._values(log_value)
        return Position(log_value, value, self._mean(value))

    def _jumps(self, draws: LineDraws, number: Array) -> Array:
        """Return the steps of jump number `number`, 0 but for one random entry of every line, (particle, line,
        factor).
        """
        which = jnp.floor(draws.which[number] * self.exists.sum()).astype(int)
        return jnp.where(jnp.arange(len(self.exists)) == which, FAR * draws.far[number], 0.0)

    def _faint_limit(self) -> Array:
        """Return the logarithm of the value below which an entry makes fewer counts than `FAINT` in its line."""
        exposed = self.seen @ self.other
        return jnp.log(FAINT) - jnp.log(jnp.maximum(exposed, _least(exposed)))

    def _redraw_faint(self, redrawn: Array, limit: Array, here: Position) -> tuple[Array, Array]:
        """Propose one draw of all entries that are too small for the counts to tell.

        Below a limit ℓ the likelihood is flat and e^(−rate · value) is 1. There an entry has the density ∝ value^(shape
        − 1), so its logarithm is ℓ + log(uniform) / shape. The same entries are below the limit before and after. What
        is not quite flat is left to Metropolis' rule. A random walk would take hundreds of sweeps along tails of width
        1 / shape.

        redrawn: uniform random numbers for new values, (particle, line, factor).
        limit: ℓ of each entry, from `_faint_limit`.
        here: the current position.

        Returns: (the proposed log values, log proposal density of the current values minus that of the proposed ones
            (particle, line), nats).
        """
        faint = self.exists & (here.log_value < limit)
        candidate = jnp.where(faint, limit + jnp.log(redrawn) / self.shape, here.log_value)
        change = (candidate - here.log_value).astype(self.x.dtype)
        return candidate, -jnp.where(faint, self.shape * change, 0.0).sum(2)

    def _fly(self, draws: LineDraws, log_value: Array, lengths: Array) -> tuple[Array, Array]:
        """Return where one trajectory of every line ends, as log values, and the kinetic energy lost, nats.

        The loop is written so that the gradient appears once: small matrices mostly wait for compilation.

        draws: the random numbers of the move.
        log_value: the logarithms of the values before, (particle, line, factor).
        lengths: the length of a leapfrog step of each entry, (line, factor).
        """
        length = lengths * (SHORTEST + (1 - SHORTEST) * draws.lengths)

        def leap(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """Make one leapfrog step: a kick of the momentum (half a kick at both ends), then a move of the log
            values.
            """
            log_value, momentum = carry
            ends = (number == 0) | (number == LEAPS)
            momentum = momentum + jnp.where(ends, 0.5, 1.0) * length * self._gradient(log_value)
            return jnp.where(number == LEAPS, log_value, log_value + length * momentum), momentum

        log_value, momentum = jax.lax.fori_loop(0, LEAPS + 1, leap, (log_value, draws.kicks))
        return log_value, 0.5 * jnp.where(self.exists, draws.kicks**2 - momentum**2, 0.0).sum(2)

    def _values(self, log_value: Array) -> Array:
        """Return values from their logarithms, in the cells' precision; 0 for factors that do not exist."""
        return jnp.where(self.exists, jnp.exp(log_value.astype(self.x.dtype)), 0.0)

    def _mean(self, value: Array) -> Array:
        """Return the means of the cells from the lines' values, (particle, line, across)."""
        return value @ jnp.swapaxes(self.other, 1, 2)

    def _gradient(self, log_value: Array) -> Array:
        """Return the gradient of log π_t by the logarithms of the values, (particle, line, factor).

        Any force that depends on the log values alone leaves a trajectory reversible. So its precision decides only how
        often trajectories are accepted.
        """
        value = self._values(log_value)
        of_cells = (slope(self.x, self.seen, self.noise_shape, self._mean(value)) @ self.other) * value
        return jnp.where(self.exists, self.temperature * of_cells + self.shape - self.rate * value, 0.0)

    def _accept(self, uniform: Array, here: Position, candidate: Array, energy: Array) -> Position:
        """Return the position after each line accepted or rejected a proposal by Metropolis' rule.

        uniform: a uniform random number for each line, above 0.
        here: the current position.
        candidate: the proposed log values.
        energy: the kinetic energy lost, or the log proposal density of the current values minus that of the proposed,
            nats.
        """
        step, value = (candidate - here.log_value).astype(self.x.dtype), self._values(candidate)
        # the difference of two values that are nearly equal, without cancellation
        more = jnp.where(jnp.abs(step) < 1, here.value * jnp.expm1(jnp.clip(step, -1, 1)), value - here.value)
        change = self._mean(more)
        cells = log_cells_change(self.x, self.seen, self.noise_shape, here.mean, change).sum(2)
        gammas = jnp.where(self.exists, self.shape * step - self.rate * more, 0.0).sum(2)
        accepted = (jnp.log(uniform) < self.temperature * cells + gammas + energy)[..., None]
        return Position(
            jnp.where(accepted, candidate, here.log_value),
            jnp.where(accepted, value, here.value),
            jnp.where(accepted, jnp.maximum(here.mean + change, 0.0), here.mean),
        )


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
    counted = x / jnp.maximum(mean, _least(mean))
    return seen * (counted - 1 if r is None else counted - (r + x) / (r + mean))


def log_cells_change(x: Array, seen: Array, r: Array | None, mean: Array, change: Array) -> Array:
    """Return by how much `log_cells` changes when the means change, for each cell, nats.

    Its rounding errors are in proportion to the change, not to the log-probabilities.

    x, seen: counts, and 1 where a cell was observed.
    r: the shape of the noise; None without noise.
    mean: the means before.
    change: the means after, minus those before.
    """
    least = jnp.sqrt(_least(mean))  # a quotient of two means is finite
    before = jnp.maximum(mean, least)
    counted = x * jnp.log1p(jnp.maximum(change / before, least - 1))
    return seen * (counted - change if r is None else counted - (r + x) * jnp.log1p(change / (r + mean)))


def log_cells_change_of_noise(x: Array, seen: Array, before: Array, after: Array, mean: Array) -> Array:
    """Return by how much `log_cells` changes when the shape of the noise changes, for each cell, nats.

    Its rounding errors are in proportion to the change, not to the log-probabilities.

    x, seen: counts, and 1 where a cell was observed.
    before, after: the shape r of the noise, before and after.
    mean: the means, which stay.
    """
    # (r' + x) log(1 + m/r') − (r + x) log(1 + m/r), where the two logarithms differ by log(r (r' + m) / r' (r + m))
    quotient = mean * (before - after) / (after * (before + mean))
    return -seen * ((after - before) * jnp.log1p(mean / after) + (before + x) * jnp.log1p(quotient))


def _least(array: Array) -> float:
    """Return the smallest positive normal number of an array's floating type."""
    return float(jnp.finfo(array.dtype).tiny)
