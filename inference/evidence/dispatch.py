"""Annealed evidence of any model at one size: which path, how long, how many particles."""

from concurrent.futures import ThreadPoolExecutor
from functools import singledispatch
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float64, Key

from lvsearch.inference.chains import Chain
from lvsearch.inference.data import Dataset
from lvsearch.inference.estimator import Estimate, capacity_of
from lvsearch.inference.evidence.annealing import backward, forward, pilot, schedule
from lvsearch.inference.evidence.generic import flat_chain
from lvsearch.models.contract import Model

FIRST_STEPS, FIRST_DRAWS = 24, 48_000
"""Temperatures of the cheapest annealing, and latents drawn in it by one particle, if that is more; every further
annealing of a size has twice as many."""
MOST_FIRST_STEPS = 192
FEWEST_FOR_PILOT = 8
HALVES = 2
"""Groups of islands that run side by side, each in a thread of its own: results do not depend on the timing."""


class Effort(NamedTuple):
    """How hard to try: temperatures, and in each half the islands and the particles of each."""

    steps: int
    islands: int
    particles: int


class TwoSided(NamedTuple):
    """log p(data | size) annealed from q and back again, nats, per island."""

    forward: Float64[np.ndarray, " island"]
    backward: Float64[np.ndarray, " island"]


@singledispatch
def evidence_chain(model: Model, data: Dataset, size: tuple[int, ...], estimate: Estimate | None) -> Chain:
    """The best path known to the posterior of this type of model; `estimate`: a fit to begin from, where one helps.

    Raises ValueError for models whose evidence cannot be annealed, saying why.
    """
    return flat_chain(model, data, size, capacity_of(size))


def effort(elements: int, trial: int) -> Effort:
    """The `trial`-th annealing of a size: twice the steps of the one before, fewer particles where data are large."""
    first = min(max(FIRST_STEPS, FIRST_DRAWS // max(1, elements)), MOST_FIRST_STEPS)
    particles = 16 if elements <= 20_000 else 4 if elements <= 60_000 else 1
    return Effort(first << trial, 2 if elements <= 60_000 else 1, particles)


def anneal(chain: Chain, key: Key[Array, ""], work: Effort) -> TwoSided:
    """Forward and backward paths along temperatures that a pilot chose; evenly spaced where particles are too few to
    tell how weights spread."""
    key_pilot, key_paths = jax.random.split(key)
    shape = {"islands": work.islands, "particles": work.particles}
    if work.islands * work.particles >= FEWEST_FOR_PILOT:
        temperatures = schedule(pilot(chain, key_pilot, **shape), work.steps)
    else:
        temperatures = np.linspace(0.0, 1.0, work.steps + 1)[1:]

    def half(number: int) -> TwoSided:
        key_forward, key_backward = jax.random.split(jax.random.fold_in(key_paths, number))
        there = forward(chain, key_forward, temperatures, **shape)
        back = backward(chain, key_backward, there.state, temperatures, islands=work.islands)
        return TwoSided(there.log_evidence, back.log_evidence)

    with ThreadPoolExecutor(HALVES) as pool:
        halves = list(pool.map(half, range(HALVES)))
    return TwoSided(*(np.concatenate(each) for each in zip(*halves, strict=True)))
