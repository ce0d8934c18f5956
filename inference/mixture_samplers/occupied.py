"""The number of occupied components of a Dirichlet-process mixture, and draws, by collapsed Gibbs sampling.

Chains start far apart.
"""

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixture_samplers.chain import log_occupancy
from lvsearch.inference.mixture_samplers.collapsed import collapsed_gibbs, collapsed_sweep
from lvsearch.inference.mixture_samplers.sampler import PartitionRecorder, PartitionSampler, partition_sampler
from lvsearch.inference.mixtures.partitions import by_appearance, log_block_count_prior
from lvsearch.inference.mixtures.rows import coordinates_and_carriers
from lvsearch.inference.mixtures.starts import nearest_rows, start_groups
from lvsearch.inference.processes import LogPrior, OccupiedSampler, occupied_sampler, process_sampler
from lvsearch.models.dp_mixture import DPMixture


@occupied_sampler.register
def occupied_components(model: DPMixture, data: Dataset) -> OccupiedSampler:
    """Return a sampler of the number of occupied components. Its chains begin in one component, in many, and in
    between.

    Raises ValueError for rows without a density.
    """
    return OccupiedSampler(("occupied components",), partial(_chain, model, data), partial(_log_prior, model, data))


@process_sampler.register
def partitions(
    model: DPMixture, data: Dataset, key: Array, *, chains: int, units: bool
) -> tuple[PartitionSampler, PartitionRecorder]:
    """Return a sampler of partitions by collapsed Gibbs sampling, with chains side by side, and the recorder of its
    states.

    Its chains start as those of `occupied_components`. units: record each row's component too.
    """
    starts = np.stack([_start(model, data, jax.random.fold_in(key, number), number) for number in range(chains)])
    sampler = partition_sampler(collapsed_sweep, log_occupancy, model, data, starts, None, one_by_one=True)
    return sampler, PartitionRecorder.for_model(model, data.n_units, units=units)


def _start(model: DPMixture, data: Dataset, key: Array, number: int) -> Int[np.ndarray, " row"]:
    """Return the labels that chain `number` begins with, in order of appearance."""
    units, _ = rows_of(data)
    coordinates, _ = coordinates_and_carriers(model.components, units)
    near = nearest_rows(key, np.asarray(coordinates), np.asarray(units.observed), start_groups(number, data.n_units))
    return by_appearance(near)


def _chain(model: DPMixture, data: Dataset, key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
    """Run chain `number` and return how many components are occupied after each sweep, (sweep, 1)."""
    key_start, key_sweeps = jax.random.split(key)
    start = _start(model, data, key_start, number)
    return collapsed_gibbs(model, data, key=key_sweeps, sweeps=sweeps, keep=0, start=start).occupied[:, None]


def _log_prior(model: DPMixture, data: Dataset, most: int) -> tuple[LogPrior, ...]:
    """Return the log prior probability of each number of occupied components up to `most`, nats."""
    return (log_block_count_prior(data.n_units, model.concentration, most),)
