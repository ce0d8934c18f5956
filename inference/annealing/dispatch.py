"""Annealed evidence of any model at one size: choice of the path, its length and the number of particles."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float64, Key

from lvsearch.inference.annealing.between_sizes import Gain
from lvsearch.inference.annealing.generic import GenericChain, flat_chain
from lvsearch.inference.annealing.particles import CONSTANT, Annealed, Profile, backward, forward, pilot, schedule
from lvsearch.inference.annealing.prefixes import grow, sequential, shrink
from lvsearch.inference.chains import Anchor, Chain, State
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.generators import fold_in, split_key
from lvsearch.inference.kits import chain_kit, model_kit
from lvsearch.inference.sharding import devices_at_work, in_processes, one_after_another
from lvsearch.models.contract import Model

FIRST_STEPS, FIRST_DRAWS = 24, 48_000
"""The number of temperatures of the cheapest annealing, and the number of latent variables that one of its particles
should draw in all. The larger of the two decides.
"""
MOST_FIRST_STEPS = 96
GROWTH = 3
"""Factor by which the number of temperatures grows with every further annealing of a size."""
ISLAND = 16
"""Particles in a group that resamples among itself, where data are small."""
MOST_ALONG_DATA = 4
"""Largest multiple of `ISLAND` on a path along few data.

The first units weigh most there, and many particles hold them well.
"""
TEMPERATURES_A_SWEEP = 12
"""Temperatures of a path whose work, along the data, is one sweep over all units.

Measured on 300 rows in three clusters with 2, 4 and 6 components: the ends of 288 temperatures are 13, 7 and 3 nats
apart, and the ends of 8 sweeps half a nat (`along_rows.py`).
"""
MANY_LATENTS = 60_000
"""Above this number of latents a path has one particle in each half."""
FEWEST_FOR_PILOT = 8
ORDER = 0x0DE2
"""Folded into a key to separate the order of units from the path along them."""
HALVES = 2
"""Number of halves: groups of particle groups that run side by side, each in its own thread.

On a mesh each half runs on its own device, of another process where there are several. Results do not depend on timing.
"""
NEAR = 10.0
"""Distance between both directions, in nats, up to which no second path is annealed.

Beyond it, and beyond the chain's `AnnealingKit.second_path_beyond`, a second path is annealed from where the first one
ended.
"""

HOPELESS = 3
"""Pilot steps per temperature of a path beyond which its two ends are bound to lie too far apart.

In each pilot step weights spread by a nat. On corpora that decide the number of topics, 24 temperatures leave the ends
hundreds of nats apart.
"""


class Effort(NamedTuple):
    """The work of one annealing, which runs in two halves side by side.

    | field | meaning |
    |---|---|
    | `steps` | number of temperatures |
    | `islands` | number of particle groups in each half; a group resamples among its own particles |
    | `particles` | number of particles in each group |
    """

    steps: int
    islands: int
    particles: int


class TwoSided(NamedTuple):
    """log p(data | size) annealed from q to the posterior and back, nats, one value per particle group.

    | field | meaning |
    |---|---|
    | `forward`, `backward` | estimates of each direction, (island,): one for each particle group |
    | `anchor_error` | see `Anchor.error`; None where q covers all labellings |
    | `moved` | whether states changed on all paths (`Annealed.moved`); if not, the numbers mean nothing |

    Forward estimates are low on average, backward ones high.
    """

    forward: Float64[np.ndarray, " island"]
    backward: Float64[np.ndarray, " island"]
    anchor_error: float | None
    moved: bool = True


def evidence_chain(model: Model, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> Chain:
    """Return the best known annealing path to the posterior of this type of model (`ModelKit.evidence_chain`).

    data: the units whose evidence is wanted.
    size: how many components, for each size variable.
    estimate: a fit to begin from, for models where a fit gives a better path; else None.

    Raises ValueError, with the reason, for models whose evidence cannot be annealed.
    """
    return model_kit(model).evidence_chain(model, data, size, estimate)


def chain_from_prior(model: Model, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> GenericChain:
    """Return the path from the prior that every log-joint has: `evidence_chain` of any log-joint. `estimate` is not
    used.
    """
    return flat_chain(model, data, size, capacity_of(size))


def sampled_chain(model: Model, data: Dataset, size: tuple[int, ...]) -> Chain:
    """Return the chain whose draws are recorded for people (`ModelKit.sampled_chain`).

    It is another than the annealed one where that integrates out variables that people ask for.

    size: how many components, for each size variable.

    Raises ValueError, with the reason, for models that cannot be sampled so.
    """
    return model_kit(model).sampled_chain(model, data, size)


def annealed_chain(model: Model, data: Dataset, size: tuple[int, ...]) -> Chain:
    """Return the chain that is annealed, without a fit, which has the posterior at its end."""
    return evidence_chain(model, data, size, None)


def path_needs_fit(model: Model, data: Dataset) -> bool:
    """Return True if `evidence_chain` gives a better path from a fit of this model and data than without one."""
    return model_kit(model).path_needs_fit(model, data)


def needs_no_fit(model: Model, data: Dataset) -> bool:
    """Return False: the path makes no use of a fit."""
    return False


def anchored_chain(chain: Chain, key: Key[Array, ""], states: Sequence[State]) -> Anchor | None:
    """Return a path to the same posterior from a q around the best of the given particles, or None for chains without
    one (`AnnealingKit.second_path`).

    chain: the chain on its first path.
    states: where the first path's forward annealing ended.
    """
    return chain_kit(chain).annealing.second_path(chain, key, states)


def bytes_while_annealed(model: Model, data: Dataset) -> int:
    """Return roughly how many bytes annealing holds in addition to a fit."""
    return model_kit(model).bytes_while_annealed(model, data)


def no_extra_bytes(model: Model, data: Dataset) -> int:
    """Return 0, the bytes in addition to a fit of a chain that holds less than the fit."""
    return 0


def first_gain(model: Model, data: Dataset) -> int | None:
    """Return the first size whose gain a search measures, or None if sizes are compared by the evidence of each.

    A gain is that of one component more (`gain_of_last_part`). Gains are needed where data are many, because two paths
    from a fit or the prior then end too far apart. It is None for a type without a path between two sizes
    (`ModelKit.gains`).
    """
    gains = model_kit(model).gains
    return None if gains is None else gains.first_size(model, data)


def gain_of_last_part(
    model: Model, data: Dataset, size: tuple[int, ...], estimate: Estimate, key: Key[Array, ""], trial: int
) -> Gain:
    """Measure log p(data | size) − log p(data | size − m), in nats, in the mode of the fit `estimate`.

    m is 1, or a few where sizes are so large that the gains of single components depend on the fit (`Gain.sizes`).

    size: the larger of the two sizes.
    estimate: a fit of this size.
    trial: how often the gain was measured before; later measurements may take longer.

    Returns: estimates of the gain along paths in both directions (`Gain`).

    Raises TypeError for models without such a path.
    """
    gains = model_kit(model).gains
    if gains is None:
        raise TypeError(f"got a {type(model).__name__}, expected a type of model whose kit has `gains` between sizes")
    return gains.measure(model, data, size, estimate, key, trial)


def effort(chain: Chain, trial: int) -> Effort:
    """Return the work of annealing a chain once more: temperatures, particle groups and particles.

    Larger data get fewer particles. In the cheapest annealing one particle draws about `FIRST_DRAWS` latent variables,
    with at least `FIRST_STEPS` and at most `MOST_FIRST_STEPS` temperatures, unless the chain says otherwise.

    trial: how often this size was annealed before, from 0. Each further annealing has three times as many temperatures.
    """
    elements, kit = chain.elements, chain_kit(chain).annealing
    default = min(max(FIRST_STEPS, FIRST_DRAWS // max(1, elements)), MOST_FIRST_STEPS)
    steps = kit.first_steps(chain, default) * GROWTH**trial
    if elements <= 1_000 and kit.along_data(chain):
        return Effort(steps, 2, ISLAND * min(MOST_ALONG_DATA, max(1, 1_000 // elements)))
    if elements <= 20_000:
        return Effort(steps, max(2, chain.efficient_particles // ISLAND), ISLAND)
    return Effort(steps, 2, 4) if elements <= MANY_LATENTS else Effort(steps, 1, 1)


def draws_in_one_direction(chain: Chain, trial: int) -> int:
    """Return how many latent variables one annealing of a chain draws in each direction.

    trial: the number of the annealing, from 0, which decides its length (`effort`).
    """
    work = effort(chain, trial)
    return chain.elements * work.steps * HALVES * work.islands * work.particles


def temperature_profile(chain: Chain, key: Key[Array, ""], work: Effort) -> Profile:
    """Return the profile by which `anneal` spaces its temperatures: the one that a pilot run measures.

    If particles are too few to tell how weights spread, or the path adds the units one after another instead of raising
    a temperature, no pilot runs. The profile then spaces temperatures evenly.

    work: the particle groups and particles of the annealing; the pilot has as many.
    """
    if work.islands * work.particles < FEWEST_FOR_PILOT or chain_kit(chain).annealing.along_data(chain):
        return Profile(np.array([0.0, 1.0]), np.zeros(2), np.zeros(2))
    with _on_device_of(chain):
        compilation = chain_kit(chain).annealing.compilation
        return pilot(chain, key, islands=work.islands, particles=work.particles, compilation=compilation)


def anneal(chain: Chain, key: Key[Array, ""], work: Effort, profile: Profile) -> tuple[TwoSided, ...]:
    """Anneal forward and backward, and return one or two pairs of estimates of log p(data | size).

    If both directions of a path from a prior end far apart, a second pair follows on a path from where the first one
    ended (`anchored_chain`). If the pilot shows this beforehand, the first path runs forward only, to find that
    beginning.

    work: numbers of temperatures and particles.
    profile: how to space the temperatures, from `temperature_profile`.
    """
    with _on_device_of(chain):
        key_first, key_anchors, key_second = split_key(key, 3)
        if len(profile.temperature) > HOPELESS * work.steps and not _is_around_labelling(chain):
            temperatures = schedule(profile, work.steps)
            there = _forward(chain, key_first, temperatures, work)
            second = _from_an_anchor(chain, key_anchors, key_second, work, (there.state,))
            if second is not None:
                return (second,)
        first, states = both_ways(chain, key_first, work, profile)
        apart = float(np.mean(first.backward) - np.mean(first.forward))
        if (
            first.anchor_error is not None
            or apart <= NEAR
            or apart * work.steps <= chain_kit(chain).annealing.second_path_beyond
        ):
            return (first,)
        second = _from_an_anchor(chain, key_anchors, key_second, work, states)
        return (first,) if second is None else (first, second)


def _forward(chain: Chain, key: Array, temperatures: Float64[np.ndarray, " step"], work: Effort) -> Annealed:
    """Anneal forward from draws of q, by programs compiled as the chain's kit says. work: the particles."""
    compilation = chain_kit(chain).annealing.compilation
    return forward(chain, key, temperatures, islands=work.islands, particles=work.particles, compilation=compilation)


def _on_device_of(chain: Chain) -> AbstractContextManager[object]:
    """Return the context of the device that a chain's programs run on: the CPU if it goes in small steps, else JAX's
    default.
    """
    return one_after_another() if chain_kit(chain).annealing.in_small_steps else nullcontext()


def _is_around_labelling(chain: Chain) -> bool:
    """Return True if the chain's path begins in a q around one numbering of the components.

    False: q does not change when components are renumbered.
    """
    return jax.eval_shape(lambda key: chain.label_scores(chain.init(key, 1)), jax.random.key(0)) is not None


def _from_an_anchor(
    chain: Chain, key_anchors: Array, key_paths: Array, work: Effort, states: Sequence[State]
) -> TwoSided | None:
    """Anneal both ways on the path from a q around the best of some particles; None for chains without such a path.

    key_anchors, key_paths: the keys for finding q and for the annealing.
    work: numbers of temperatures and particles.
    states: where the first path's forward annealing ended: particles of each of its two independent halves, or of the
        one run if it ran forward only.
    """
    key_anchor, key_pilot = split_key(key_anchors)
    anchor = anchored_chain(chain, key_anchor, states)
    if anchor is None:
        return None
    work = work._replace(particles=min(work.particles, ISLAND))
    found, _ = both_ways(anchor.chain, key_paths, work, temperature_profile(anchor.chain, key_pilot, work))
    return found._replace(anchor_error=anchor.error)


def both_ways(
    chain: Chain, key: Key[Array, ""], work: Effort, profile: Profile, truth: State | None = None
) -> tuple[TwoSided, Sequence[State]]:
    """Anneal forward and backward, in two independent halves that run side by side, and return both estimates.

    work: numbers of temperatures, and of particle groups and particles in each half.
    profile: how to space the temperatures, from `temperature_profile`.
    truth: draws of the posterior to begin the backward paths with, where they are known. With None the backward paths
        begin where the forward ones ended.

    Returns: (the estimates of both directions, the states in which the forward paths of each half ended).
    """
    temperatures = schedule(profile, work.steps)
    devices = devices_at_work()

    # a device of its own for each half, if there are several
    def half(number: int) -> tuple[TwoSided, State]:
        """Run half number `number`, on its own device if there are several; return its estimates and its last forward
        state.
        """
        if not devices:
            with _on_device_of(chain):  # a thread does not inherit its caller's device
                return one_half(number)
        with jax.default_device(devices[number % len(devices)]):
            ends, state = one_half(number)
            return ends, jax.tree.map(np.asarray, state)

    def one_half(number: int) -> tuple[TwoSided, State]:
        """Anneal one of the two independent halves both ways on the current device.

        number: the number of the half, from which its random keys are made.

        Returns: (the estimates of both directions, the state in which the forward path ended).
        """
        kit = chain_kit(chain).annealing
        key_forward, key_backward = split_key(fold_in(key, number))
        if kit.along_data(chain):
            return _along_data(chain, key_forward, key_backward, work, truth)
        there = _forward(chain, key_forward, temperatures, work)
        begin = there.state if truth is None else truth
        back = backward(chain, key_backward, begin, temperatures, islands=work.islands, compilation=kit.compilation)
        moved = there.moved and (back.moved or bool(there.profile.deviation[0] <= CONSTANT))
        return TwoSided(there.log_evidence, back.log_evidence, 0.0 if there.labelled else None, moved), there.state

    ends, states = zip(*in_processes(half, HALVES), strict=True)
    there, back = (np.concatenate([end[way] for end in ends]) for way in (0, 1))
    return TwoSided(there, back, ends[0].anchor_error, all(end.moved for end in ends)), states


def _along_data(
    chain: Chain, key_forward: Array, key_backward: Array, work: Effort, truth: State | None
) -> tuple[TwoSided, State]:
    """Run one half of `both_ways` on a path along the data, with units in the place of temperatures.

    work: numbers of temperatures and particles; the temperatures are translated into sweeps over all units.
    truth: draws of the posterior for the backward path to begin with; None: where the forward path ended.

    Returns: (the estimates of both directions, the state in which the forward path ended).
    """
    sampler = sequential(chain, fold_in(key_forward, ORDER))
    assert sampler is not None  # kits say `along_data` where units can come one by one
    sweeps = -(-work.steps // TEMPERATURES_A_SWEEP)
    there = grow(sampler, key_forward, sweeps, islands=work.islands, particles=work.particles)
    back = shrink(sampler, key_backward, there.state if truth is None else truth, sweeps, islands=work.islands)
    return TwoSided(there.log_evidence[-1], back.log_evidence, None, there.moved and back.moved), there.state
