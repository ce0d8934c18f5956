"""Annealed evidence of any model at one size: which path, how long, how many particles."""

from collections.abc import Sequence
from functools import singledispatch
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float64, Key

from lvsearch.inference.annealing.between_sizes import Gain
from lvsearch.inference.annealing.generic import flat_chain
from lvsearch.inference.annealing.particles import CONSTANT, Profile, backward, forward, pilot, schedule
from lvsearch.inference.annealing.prefixes import grow, sequential, shrink
from lvsearch.inference.chains import Chain, State
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate, capacity_of
from lvsearch.inference.generators import folded, split_key
from lvsearch.inference.sharding import devices_at_work, in_processes
from lvsearch.models.contract import Model

FIRST_STEPS, FIRST_DRAWS = 24, 48_000
"""Temperatures of the cheapest annealing, and latents drawn in it by one particle, if that is more."""
MOST_FIRST_STEPS = 96
GROWTH = 3
"""Every further annealing of a size has this many times the temperatures."""
ISLAND = 16
"""Particles that resample among themselves, where data are small."""
MOST_ALONG_DATA = 4
"""Times `ISLAND` on a path along few data: the first units weigh most, and many particles have them right."""
TEMPERATURES_A_SWEEP = 12
"""Temperatures of a path whose work, along the data, is one sweep over all units. 300 rows in three clusters, 2, 4
and 6 components: ends of 288 temperatures are 13, 7 and 3 nats apart, of 8 sweeps half a nat (`along_rows.py`)."""
MANY_LATENTS = 60_000
"""Latents from which on a path has one particle in each half."""
FEWEST_FOR_PILOT = 8
ORDER = 0x0DE2
"""What sets the key of the order of units apart from that of the path along them."""
HALVES = 2
"""Groups of islands that run side by side, each in a thread of its own and on a mesh on a device of its own, of
another process where there are several: results do not depend on the timing."""
NEAR, FAR = 10.0, 4000.0
"""Nats between the two directions, and nats times temperatures, beyond both of which a second path is taken, from where
the first one ended. On a smooth path the distance falls as one over the temperatures: more of them will do. Their
product was 2,000 to 2,600 on corpora that leave the number of topics open, 14,000 on such as settle it."""

HOPELESS = 3
"""Steps of a pilot, in each of which weights spread by a nat, for each temperature of a path, beyond which its two ends
are bound to lie too far apart: hundreds of nats on corpora that settle the number of topics, in 24 temperatures."""


class Effort(NamedTuple):
    """How hard to try: temperatures, and in each half the islands and the particles of each."""

    steps: int
    islands: int
    particles: int


class Anchor(NamedTuple):
    """A path from a q that knows one labelling and one mode, and the standard error of q's own evidence, nats."""

    chain: Chain
    error: float


class TwoSided(NamedTuple):
    """log p(data | size) annealed from q and back again, nats, per island; anchor_error: see `Anchor`, None where q
    knows no labelling; moved: whether all paths did (`Annealed.moved`): where not, the numbers say nothing."""

    forward: Float64[np.ndarray, " island"]
    backward: Float64[np.ndarray, " island"]
    anchor_error: float | None
    moved: bool = True


@singledispatch
def evidence_chain(model: Model, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> Chain:
    """The best path known to the posterior of this type of model; `estimate`: a fit to begin from, where one helps.

    Raises ValueError for models whose evidence cannot be annealed, saying why.
    """
    return flat_chain(model, data, size, capacity_of(size))


@singledispatch
def sampled_chain(model: Model, data: Dataset, size: tuple[int, ...]) -> Chain:
    """The chain whose draws are recorded for people: by default the one that is annealed. A model has another where the
    annealed one integrates out what people ask for.

    Raises ValueError as `evidence_chain`.
    """
    return evidence_chain(model, data, size, None)


@singledispatch
def path_needs_fit(model: Model, data: Dataset) -> bool:
    """Whether `evidence_chain` makes a better path of a fit than of None."""
    return False


@singledispatch
def anchored_chain(chain: Chain, key: Key[Array, ""], states: Sequence[State]) -> Anchor | None:
    """A path to the same posterior from a q around the best of all these particles: shorter, but in one labelling and
    one mode. None for chains that have none."""
    return None


@singledispatch
def along_data(chain: Chain) -> bool:
    """Whether the path from the prior leads along the data (`prefixes`), and not along temperatures."""
    return False


@singledispatch
def patience(chain: Chain) -> float:
    """Nats between the two directions, times temperatures, up to which more temperatures on the path from the prior are
    expected to do, and a second path is not worth its time. 0 for chains whose second path is cheap and exact."""
    return FAR


@singledispatch
def first_steps(chain: Chain) -> int:
    """Temperatures of the cheapest annealing: by default so many that one particle draws `FIRST_DRAWS` latents, within
    limits."""
    return min(max(FIRST_STEPS, FIRST_DRAWS // max(1, chain.elements)), MOST_FIRST_STEPS)


@singledispatch
def bytes_while_annealed(model: Model, data: Dataset) -> int:
    """Return about how many bytes annealing holds beside what a fit does; 0 where that is less than the fit itself."""
    return 0


@singledispatch
def measures_gains(model: Model, data: Dataset) -> bool:
    """Return whether sizes of this model are compared on these data by what one part more gains (`gain_of_last_part`),
    and not by the evidence of each size: where data are many, two paths from a fit or the prior end too far apart."""
    return False


@singledispatch
def gain_of_last_part(
    model: Model, data: Dataset, size: tuple[int, ...], estimate: Estimate, key: Key[Array, ""], trial: int
) -> Gain:
    """Measure log p(data | size) − log p(data | size − 1), nats, in the mode that `estimate`, a fit of this size, is
    in.

    trial: how often it was measured before; later trials may take longer. Raises TypeError for models without such a
    path.
    """
    raise TypeError(f"no path between two sizes is registered for {type(model).__name__}")


def effort(chain: Chain, trial: int) -> Effort:
    """The `trial`-th annealing of a size: longer than the one before, fewer particles where data are large."""
    elements = chain.elements
    steps = first_steps(chain) * GROWTH**trial
    if elements <= 1_000 and along_data(chain):
        return Effort(steps, 2, ISLAND * min(MOST_ALONG_DATA, max(1, 1_000 // elements)))
    if elements <= 20_000:
        return Effort(steps, max(2, chain.lanes // ISLAND), ISLAND)
    return Effort(steps, 2, 4) if elements <= MANY_LATENTS else Effort(steps, 1, 1)


def pace(chain: Chain, key: Key[Array, ""], work: Effort) -> Profile:
    """What `anneal` spaces its temperatures by: a pilot; evenly where particles are too few to tell how weights
    spread, and where there are no temperatures."""
    if work.islands * work.particles < FEWEST_FOR_PILOT or along_data(chain):
        return Profile(np.array([0.0, 1.0]), np.zeros(2), np.zeros(2))
    return pilot(chain, key, islands=work.islands, particles=work.particles)


def anneal(chain: Chain, key: Key[Array, ""], work: Effort, profile: Profile) -> tuple[TwoSided, ...]:
    """Forward and backward paths; where those from a prior end far apart, a second pair on the path that begins with
    where the first one ended. Where that is sure beforehand, the first is gone one way only, to find that beginning."""
    key_first, key_anchors, key_second = split_key(key, 3)
    if len(profile.temperature) > HOPELESS * work.steps and not _labelled(chain):
        temperatures = schedule(profile, work.steps)
        there = forward(chain, key_first, temperatures, islands=work.islands, particles=work.particles)
        second = _from_an_anchor(chain, key_anchors, key_second, work, (there.state,))
        if second is not None:
            return (second,)
    first, states = both_ways(chain, key_first, work, profile)
    apart = float(np.mean(first.backward) - np.mean(first.forward))
    if first.anchor_error is not None or apart <= NEAR or apart * work.steps <= patience(chain):
        return (first,)
    second = _from_an_anchor(chain, key_anchors, key_second, work, states)
    return (first,) if second is None else (first, second)


def _labelled(chain: Chain) -> bool:
    """Whether q knows one labelling."""
    return jax.eval_shape(lambda key: chain.label_scores(chain.init(key, 1)), jax.random.key(0)) is not None


def _from_an_anchor(
    chain: Chain, key_anchors: Array, key_paths: Array, work: Effort, states: Sequence[State]
) -> TwoSided | None:
    """Both ways on the path from a q around the best of these particles; None where there is no such path."""
    key_anchor, key_pilot = split_key(key_anchors)
    anchor = anchored_chain(chain, key_anchor, states)
    if anchor is None:
        return None
    work = work._replace(particles=min(work.particles, ISLAND))
    found, _ = both_ways(anchor.chain, key_paths, work, pace(anchor.chain, key_pilot, work))
    return found._replace(anchor_error=anchor.error)


def both_ways(
    chain: Chain, key: Key[Array, ""], work: Effort, profile: Profile, truth: State | None = None
) -> tuple[TwoSided, Sequence[State]]:
    """Forward and backward paths, and where the forward ones ended, for each half.

    truth: draws of the posterior, where these are known, for the backward paths to begin with; None: they begin where
    the forward ones ended.
    """
    temperatures = schedule(profile, work.steps)
    devices = devices_at_work()

    def half(number: int) -> tuple[TwoSided, State]:
        if not devices:
            return one_half(number)
        with jax.default_device(devices[number % len(devices)]):
            ends, state = one_half(number)
            return ends, jax.tree.map(np.asarray, state)

    def one_half(number: int) -> tuple[TwoSided, State]:
        key_forward, key_backward = split_key(folded(key, number))
        if along_data(chain):
            return _along_data(chain, key_forward, key_backward, work, truth)
        there = forward(chain, key_forward, temperatures, islands=work.islands, particles=work.particles)
        back = backward(
            chain, key_backward, there.state if truth is None else truth, temperatures, islands=work.islands
        )
        moved = there.moved and (back.moved or bool(there.profile.deviation[0] <= CONSTANT))
        return TwoSided(there.log_evidence, back.log_evidence, 0.0 if there.labelled else None, moved), there.state

    ends, states = zip(*in_processes(half, HALVES), strict=True)
    there, back = (np.concatenate([end[way] for end in ends]) for way in (0, 1))
    return TwoSided(there, back, ends[0].anchor_error, all(end.moved for end in ends)), states


def _along_data(
    chain: Chain, key_forward: Array, key_backward: Array, work: Effort, truth: State | None
) -> tuple[TwoSided, State]:
    """One half of `both_ways`, units in the place of temperatures."""
    sampler = sequential(chain, folded(key_forward, ORDER))
    assert sampler is not None  # `along_data` is registered for chains that have one
    sweeps = -(-work.steps // TEMPERATURES_A_SWEEP)
    there = grow(sampler, key_forward, sweeps, islands=work.islands, particles=work.particles)
    back = shrink(sampler, key_backward, there.state if truth is None else truth, sweeps, islands=work.islands)
    return TwoSided(there.log_evidence[-1], back.log_evidence, None, there.moved and back.moved), there.state
