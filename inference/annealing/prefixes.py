"""An annealing path along the data: the posteriors of the first unit, of the first two, … of all units, and back.

    π_m(z_1 … z_m) = p(z_1 … z_m | x_1 … x_m),      m = 0, 1, …, n

Forward, the next unit weighs each particle by its predictive probability p(x_m | x_1 … x_{m−1}, z_1 … z_{m−1}), and its
latents are drawn given those before. Now and then a sweep over all latents so far leaves π_m unchanged (Liu & Chen
1998; MacEachern, Clyde & Liu 1999; Chopin 2002).

Backward, from draws of π_n, sweeps are made in reverse order and the last unit is removed again and again, each
weighing by 1 / p(x_m | …). This is the time reversal of the forward path: annealed importance sampling with units in
the place of temperatures. `particles` says what is exact and what is assumed. In addition, E[p̂] = p(x_1 … x_m) for
every m on the forward path.

No unit is ever present in part, so clusters form as their rows arrive. Where rows lie in well-separated groups,
tempered paths hold all of them in one cluster for long and separate them late.
"""

from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Int, Key

from lvsearch.inference.annealing.particles import CONSTANT, Population, resampled
from lvsearch.inference.chains import Chain, Sequential, State
from lvsearch.inference.compiles import counted
from lvsearch.inference.generators import generator
from lvsearch.inference.kits import chain_kit
from lvsearch.models.kernels import kernel

REMOVED = 0x4E40
"""Folded into a key to separate a unit's removal from the resampling after it."""
FEW_UNITS = 512
"""The largest number of units for which paths run a program that is compiled with less effort.

Units are counted and not elements, of which the particles have many on the way back.

It compiles in half the time or less, and runs a tenth to a sixth longer. For 272 rows and 8 hidden states the two
directions compiled in 25 instead of 53 s of the processor, for a mixture of 150 rows in 7 instead of 19 s.
"""


def sequential(chain: Chain, key: Key[Array, ""]) -> Sequential | None:
    """Return the chain's units (rows or documents) in an order drawn with the key, for annealing along the data.

    Returns None for chains whose units cannot come one by one (`AnnealingKit.sequential`).
    """
    return chain_kit(chain).annealing.sequential(chain, key)


Turn = TypeVar("Turn", bound="InTurn")


class InTurn(eqx.Module):
    """The units of a chain in a random order, for annealing along the data: what all `Sequential` samplers of one unit
    after another share.

    | field | meaning |
    |---|---|
    | `chain` | the chain over the labels of the units, on the path from the prior |
    | `order` | the array slots in the order in which their units come, padding last, (place,) |
    | `n_units` | how many units are not padding |
    """

    chain: Any
    order: Int[np.ndarray, " place"]
    n_units: Int[Array | np.ndarray, ""]

    @classmethod
    def shuffled(cls: type[Turn], chain: Any, real: Bool[np.ndarray, " place"], key: Key[Array, ""]) -> Turn:
        """Return the units of a chain in an order drawn with the key.

        real: which array slots hold units rather than padding, (place,).
        """
        order = np.concatenate([generator(key).permutation(np.flatnonzero(real)), np.flatnonzero(~real)])
        return cls(chain, order, np.asarray(real.sum(), np.int32))

    @property
    def places(self) -> int:
        """The number of units, padding included."""
        return len(self.order)

    def initial_state(self, key: Key[Array, ""], particles: int) -> State:
        """Return the state before any unit has come, in which no unit has a label (all are −1)."""
        return self.chain.state_from_labels(jnp.full((self.places, particles), -1, jnp.int32))

    def on_way_back(self: Turn, state: State) -> Turn:
        """Return the sampler itself: the way back ends in the distribution in which the way up began."""
        return self

    def take(self, state: State, particles: Int[Array, " chosen"]) -> State:
        """Return the state of the chosen particles, in the order in which they are named; a particle may be named
        twice.
        """
        return self.chain.take(state, particles)


class Grown(NamedTuple):
    """The result of a forward path along the data.

    | field | shape | meaning |
    |---|---|---|
    | `log_evidence` | (unit, island) | log p̂(first m units) of each particle group at [m − 1], nats; then that of all |
    | `state` | | states of all particles, equally weighted |
    | `moved` | | whether a sweep changed any state, or none needs to (`particles.Annealed`) |
    """

    log_evidence: Float64[np.ndarray, "unit island"]
    state: State
    moved: bool


class Shrunk(NamedTuple):
    """The result of a backward path along the data.

    | field | shape | meaning |
    |---|---|---|
    | `log_evidence` | (island,) | −log of the estimate of 1 / p(all units) of each particle group, nats |
    | `moved` | | whether a sweep changed any state, or none needs to |
    """

    log_evidence: Float64[np.ndarray, " island"]
    moved: bool


def revisits(units: int, sweeps: int) -> Bool[np.ndarray, " unit"]:
    """Return after which units a sweep over the latent variables of all units so far takes place, as booleans (unit,).

    A sweep is due whenever there are 1 + 1/sweeps times as many units as at the last one, and after the last unit. So
    the total work is about that of `sweeps` sweeps over all units.

    units: the number of units.
    """
    due, last = np.zeros(units, bool), 0.0
    for unit in range(units):
        if unit + 1 >= (1 + 1 / sweeps) * last or unit == units - 1:
            due[unit], last = True, unit + 1
    return due


def grow(sampler: Sequential, key: Key[Array, ""], sweeps: int, *, islands: int, particles: int) -> Grown:
    """Run the forward path of an annealing along the data, from no unit to all units.

    Returns each particle group's estimates of the log evidence of the first 1, 2, … units, the last particles, and
    whether sweeps moved any of them.

    sampler: the units in their order.
    sweeps: the work in sweeps over all units, see `revisits`.
    islands: number of particle groups.
    particles: number of particles in each group.
    """
    with jax.enable_x64(True):
        due = _padded_revisits(sampler, sweeps)
        population, found, moved = _grow(sampler, key, due, islands=islands, particles=particles)
        return Grown(np.asarray(found), population.state, bool(moved))


def shrink(sampler: Sequential, key: Key[Array, ""], state: State, sweeps: int, *, islands: int) -> Shrunk:
    """Run the backward path of an annealing along the data, from draws of the posterior of all units to no unit.

    Returns each particle group's estimate of log p(all units), nats, and whether sweeps moved any particle.

    sampler: the units in their order.
    state: draws of the posterior of all units.
    sweeps: the work in sweeps over all units, see `revisits`. Pass the number that `grow` got: sweeps then take place
        after the same units.
    islands: number of particle groups.
    """
    with jax.enable_x64(True):
        due = _padded_revisits(sampler, sweeps)
        log_total, moved = _shrink(sampler.on_way_back(state), key, state, due, islands=islands)
        return Shrunk(-np.asarray(log_total), bool(moved))


def _padded_revisits(sampler: Sequential, sweeps: int) -> Bool[np.ndarray, " place"]:
    """Return `revisits`, padded with False to the number of array slots of the sampler, (place,)."""
    units = int(sampler.n_units)
    return np.pad(revisits(units, sweeps), (0, sampler.places - units))


def _has_few_units(sampler: Sequential, *args: Any, **kwargs: Any) -> bool:
    """Return True if there are at most `FEW_UNITS` units, with those of padding."""
    return sampler.places <= FEW_UNITS


@kernel(static_argnames=("islands", "particles"), short=True, few=_has_few_units)
@counted
def _grow(
    sampler: Sequential, key: Key[Array, ""], due: Bool[Array, " place"], *, islands: int, particles: int
) -> tuple[Population, Float[Array, "place island"], Bool[Array, ""]]:
    """Run the forward path from no unit to all units (compiled).

    due: for each array slot, whether a sweep over all units so far follows its unit, (place,).
    islands, particles: number of particle groups, and of particles in each.

    Returns: (all particles, equally weighted; log p̂ after each unit (place, island) in nats; whether a sweep moved any
        particle, or weights were always alike).
    """
    later = jnp.arange(sampler.places)[:, None]

    def one(unit: Array, carry: Any) -> Any:
        """Add unit number `unit`, weigh the particles by its probability, resample, and sweep if a sweep is due."""
        population, found, moved, alike = carry
        key_append, key_resample, key_revisit = jax.random.split(jax.random.fold_in(key, unit), 3)
        # log p̂ is written at this unit and all later ones, which overwrite theirs when they come
        state, gain = sampler.append(key_append, population.state, unit)
        population = Population(state, population.log_weight + gain, population.log_total)
        found = jnp.where(later >= unit, _log_averages(population, islands), found)
        population = resampled(sampler, key_resample, population, islands, 0.5)
        state = _sweep_if_due(sampler, key_revisit, population.state, due, unit, backward=False)
        moved = moved | _states_differ(population.state, state)
        return population._replace(state=state), found, moved, alike & (gain.std() <= CONSTANT)

    state = sampler.initial_state(jax.random.fold_in(key, sampler.places + 1), islands * particles)
    begin = Population(state, jnp.zeros(islands * particles), jnp.zeros(islands))
    found = jnp.zeros((sampler.places, islands))
    population, found, moved, alike = jax.lax.fori_loop(
        0, sampler.n_units, one, (begin, found, np.bool_(False), np.bool_(True))
    )
    ended = resampled(sampler, jax.random.fold_in(key, sampler.places), population, islands, jnp.inf)
    return ended, found, moved | alike


@kernel(static_argnames=("islands",), short=True, few=_has_few_units)
@counted
def _shrink(
    sampler: Sequential, key: Key[Array, ""], state: State, due: Bool[Array, " place"], *, islands: int
) -> tuple[Float[Array, " island"], Bool[Array, ""]]:
    """Run the backward path from all units to no unit (compiled).

    state: draws of the posterior of all units.
    due: for each array slot, whether a sweep over all units so far follows its unit, (place,).
    islands: number of particle groups.

    Returns: (log of the estimate of 1 / p(all units) in nats, (island,); whether a sweep moved any particle, or weights
        were always alike).
    """
    n_units = jnp.asarray(sampler.n_units)

    def one(done: Array, carry: Any) -> Any:
        """Sweep if a sweep is due, take out the last unit, weigh the particles by its probability, and resample.

        done: how many units have been taken out before.
        """
        population, moved, alike = carry
        unit = n_units - 1 - done
        key_resample, key_revisit = jax.random.split(jax.random.fold_in(key, unit))
        state = _sweep_if_due(sampler, key_revisit, population.state, due, unit, backward=True)
        moved = moved | _states_differ(population.state, state)
        state, gain = sampler.remove(jax.random.fold_in(key_resample, REMOVED), state, unit)
        population = Population(state, population.log_weight - gain, population.log_total)
        population = resampled(sampler, key_resample, population, islands, 0.5)
        return population, moved, alike & (gain.std() <= CONSTANT)

    n_particles = jax.eval_shape(lambda: sampler.remove(key, state, n_units - 1)[1]).shape[0]
    begin = Population(state, jnp.zeros(n_particles), jnp.zeros(islands))
    population, moved, alike = jax.lax.fori_loop(0, n_units, one, (begin, np.bool_(False), np.bool_(True)))
    return _log_averages(population, islands), moved | alike


def _sweep_if_due(
    sampler: Sequential, key: Key[Array, ""], state: State, due: Bool[Array, " place"], unit: Array, *, backward: bool
) -> State:
    """Return the state after one sweep over all latent variables so far if one is due after `unit`, else the state
    itself.

    due: for each array slot, whether a sweep over all units so far follows its unit, (place,).
    backward: sweep in the reverse order.
    """
    return jax.lax.cond(due[unit], lambda s: sampler.revisit(key, s, unit + 1, backward=backward), lambda s: s, state)


def _log_averages(population: Population, islands: int) -> Float[Array, " island"]:
    """Return log p̂ of each particle group, the log of its average weight along the path so far, (island,), in nats."""
    weights = jnp.asarray(population.log_weight).reshape(islands, -1)
    average = jax.scipy.special.logsumexp(weights, axis=1) - jnp.log(weights.shape[1])
    return jnp.asarray(population.log_total) + average


def _states_differ(before: State, after: State) -> Bool[Array, ""]:
    """Return True if any entry of the two states differs."""
    leaves = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return jnp.stack([jnp.any(one != other) for one, other in leaves]).any()
