"""How many parts of a process the data occupy: the common face of the exact samplers of processes.

A process has no size (`Model.process`). What a person means by its size is how many of its parts — components, topics,
nodes of a tree — hold some part of the data, a number whose posterior a sampler of the process visits. A sampler
registers itself with `occupied_sampler.register(ModelType)`.
"""

from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.inference.chains import Sampler
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.sampling.recording import Recorder
from lvsearch.models.contract import Model

LogPrior = Float[np.ndarray, " count"] | None


class OccupiedSampler(NamedTuple):
    """The exact sampler of one model on one data set, seen by its counts alone.

    | field | meaning |
    |---|---|
    | `names` | what each number counts, in the plural: "occupied components"; "nodes at level 1", "nodes at level 2" |
    | `chain` | (key, number of the chain, sweeps) -> counts (sweep, name), one row after each sweep |
    | `log_prior` | most -> for each name log p(count) of 1, …, most before any data, nats; None if unknown |

    The number of a chain decides where it starts: one in few parts, one in many, others in between, so that chains
    which agree have come from far apart.
    """

    names: tuple[str, ...]
    chain: Callable[[Array, int, int], Int[np.ndarray, "sweep name"]]
    log_prior: Callable[[int], tuple[LogPrior, ...]]


@singledispatch
def occupied_sampler(model: Model, data: Dataset) -> OccupiedSampler:
    """The sampler registered for the model's type.

    Raises ValueError for data that the sampler cannot take, NotImplementedError for a type without a sampler.
    """
    raise NotImplementedError(
        f"no sampler of occupied parts is registered for {type(model).__name__}: "
        "register one with lvsearch.inference.processes.occupied_sampler"
    )


@singledispatch
def process_sampler(model: Model, data: Dataset, key: Array, *, chains: int, units: bool) -> tuple[Sampler, Recorder]:
    """What the one run loop draws from a process with, and what it records.

    key: of the starts, which are far apart. units: record what belongs to each unit too. A sampler registers itself
    with `process_sampler.register(ModelType)`. Raises ValueError for data that the sampler cannot take,
    NotImplementedError for a type without a sampler.
    """
    raise NotImplementedError(
        f"no sampler is registered for {type(model).__name__}: "
        "register one with lvsearch.inference.processes.process_sampler"
    )


def occupied_chains(
    sampler: OccupiedSampler,
    key: Array,
    *,
    chains: int,
    sweeps: int,
    done: Callable[[], object] = lambda: None,
) -> Int[np.ndarray, "chain sweep name"]:
    """Counts after every sweep of independent chains, keys folded with their numbers. done: called after each chain."""
    visited = []
    for number in range(chains):
        visited.append(sampler.chain(jax.random.fold_in(key, number), number, sweeps))
        done()
    return np.stack(visited)
