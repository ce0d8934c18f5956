"""Counts of the occupied components of a nonparametric process: one interface for all exact samplers.

A process has no size (`Model.process`). What a person means by its size is the number of components that hold some of
the data. Components are clusters, topics or the nodes of a tree. A sampler of the process visits each number of
occupied components with its posterior probability. Each type of process has its samplers in its kit
(`ModelKit.process`).

Under a fit, a component is occupied if at least one element of the data, such as a token, is in it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.inference.chains import Sampler
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.kits import model_kit
from lvsearch.inference.mixtures.partitions import OccupiedCounts
from lvsearch.inference.sampling.trace import Recorder
from lvsearch.models.contract import Model

LogPrior = Float[np.ndarray, " count"] | None
"""log p(count) of the number of occupied components, for counts 1, 2, …, before any data, (count,), nats; None if
unknown.
"""


class OccupiedSampler(NamedTuple):
    """The exact sampler of one model on one data set, reduced to its counts of occupied components.

    | field | meaning |
    |---|---|
    | `names` | what each number counts, in the plural: "occupied components"; "nodes at level 1", "nodes at level 2" |
    | `chain` | (key, number of the chain, sweeps) -> counts (sweep, name), one row after each sweep |
    | `log_prior` | (largest count m) -> for each name log p(count) of 1, …, m before any data, nats; None if unknown |

    The number of a chain decides where it starts: one chain in few components, one in many, others in between. Chains
    that agree have then come from far apart.
    """

    names: tuple[str, ...]
    chain: Callable[[Array, int, int], Int[np.ndarray, "sweep name"]]
    log_prior: Callable[[int], tuple[LogPrior, ...]]


def occupied_sampler(model: Model, data: Dataset) -> OccupiedSampler:
    """Return the sampler of the number of occupied components of this type of process.

    Raises ValueError for data that the sampler cannot take, NotImplementedError for a type without a sampler.
    """
    return _samplers_of(model).occupied(model, data)


def process_sampler(model: Model, data: Dataset, key: Array, *, chains: int, units: bool) -> tuple[Sampler, Recorder]:
    """Return (the MCMC sampler of a nonparametric process, the recorder of its draws). Processes are `DPMixture`,
    `HDP`, ….

    model: the process.
    data: the units that it is sampled given.
    key: the key of the starting states: chain 0 begins with few components, chain 1 with many, others in between.
    chains: the number of chains.
    units: whether the labels of each unit (its component, topic or path) are recorded too.

    Raises ValueError for data that the sampler cannot take, NotImplementedError for a type without a sampler.
    """
    return _samplers_of(model).sampler(model, data, key, chains=chains, units=units)


def _samplers_of(model: Model) -> Any:
    """Return the samplers of a type of process (`ModelKit.process`); raise NotImplementedError for a type without."""
    process = model_kit(model).process
    if process is None:
        raise NotImplementedError(
            f"got a {type(model).__name__}, expected a type of process whose kit has samplers: give it a kit with a "
            "`process` (lvsearch.inference.register_kit)"
        )
    return process


def occupied_chains(
    sampler: OccupiedSampler,
    key: Array,
    *,
    chains: int,
    sweeps: int,
    done: Callable[[], object] = lambda: None,
) -> Int[np.ndarray, "chain sweep name"]:
    """Run independent chains and return the counts of occupied components after every sweep, (chain, sweep, name).

    sampler: the sampler, whose `names` say what each number counts.
    key: the random key; it is folded with the number of each chain.
    chains: the number of chains.
    sweeps: the number of sweeps of each chain.
    done: called after each chain, for example to show progress.
    """
    visited = []
    for number in range(chains):
        visited.append(sampler.chain(jax.random.fold_in(key, number), number, sweeps))
        done()
    return np.stack(visited)


# ── under a fit ───────────────────────────────────────────────────────────────────────────────────────────────────────


def occupied_counts(
    model: Model, estimate: Estimate, data: Dataset, *, draws: int, rng: np.random.Generator
) -> OccupiedCounts | None:
    """Return the distribution under q of the number of occupied components, estimated from draws of all local latent
    variables.

    A component is occupied if it holds an element of some unit. It is None for models where every unit is in one
    component, and for models of which nothing is known.

    model: the fitted model, `estimate.model`.
    estimate: the fit, which has q of the parameters.
    data: the units whose elements occupy components.
    draws: how many times all local variables are drawn.
    rng: the source of the random numbers.
    """
    return model_kit(model).occupied_counts(model, estimate, data, draws=draws, rng=rng)


def responsibilities_suffice(
    model: Model, estimate: Estimate, data: Dataset, *, draws: int, rng: np.random.Generator
) -> None:
    """Return None: where a unit is in one component, its responsibilities say how many components are occupied."""
