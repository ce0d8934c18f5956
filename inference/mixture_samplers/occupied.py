"""Samplers of Dirichlet-process mixtures for `lvsearch.occupied` and `lvsearch.sample`, by collapsed Gibbs sampling.

A component is occupied if it has rows. Chains start far apart: one in a single component, one in many, others between.
"""

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.mixture_samplers.chain import log_occupancy
from lvsearch.inference.mixture_samplers.sampler import PartitionRecorder, PartitionSampler, partition_sampler
from lvsearch.inference.mixture_samplers.sweeps import collapsed_gibbs, collapsed_sweep
from lvsearch.inference.mixtures.partitions import by_appearance, log_block_count_prior
from lvsearch.inference.mixtures.rows import coordinates_and_carriers
from lvsearch.inference.mixtures.starts import nearest_rows, start_groups
from lvsearch.inference.processes import LogPrior, OccupiedSampler, occupied_sampler, process_sampler
from lvsearch.models.dp_mixture import DPMixture


@occupied_sampler.register
def occupied_components(model: DPMixture, data: Dataset) -> OccupiedSampler:
    """Return the sampler of the number of occupied components, which are those that have rows.

    Chain 0 begins with all rows in one component, chain 1 in many (up to 30), chains 2 and 3 with numbers in between.

    Raises ValueError for rows without a density.
    """
    return OccupiedSampler(("occupied components",), partial(_chain, model, data), partial(_log_prior, model, data))


@process_sampler.register
def partitions(
    model: DPMixture, data: Dataset, key: Array, *, chains: int, units: bool
) -> tuple[PartitionSampler, PartitionRecorder]:
    """Return a collapsed Gibbs sampler of partitions with all chains side by side, and the recorder of its draws.

    Chain 0 begins with all rows in one component, chain 1 in many (up to 30), chains 2 and 3 with numbers in between.

    key: the random key of the starting partitions.
    chains: how many chains run.
    units: True to record the component of each row too.
    """
    starts = np.stack([_start(model, data, jax.random.fold_in(key, number), number) for number in range(chains)])
    sampler = partition_sampler(collapsed_sweep, log_occupancy, model, data, starts, None, one_by_one=True)
    return sampler, PartitionRecorder.for_model(model, data.n_units, units=units)


def _start(model: DPMixture, data: Dataset, key: Array, number: int) -> Int[np.ndarray, " row"]:
    """Return the labels that a chain begins with, (row,): each row joins the nearest of a few rows drawn at random.

    key: the random key of the rows drawn.
    number: the number of the chain; it decides how many rows are drawn (`start_groups`).
    """
    units, _ = rows_of(data)
    coordinates, _ = coordinates_and_carriers(model.components, units)
    near = nearest_rows(key, np.asarray(coordinates), np.asarray(units.observed), start_groups(number, data.n_units))
    return by_appearance(near)


def _chain(model: DPMixture, data: Dataset, key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
    """Run one collapsed Gibbs chain and return how many components have rows after each sweep, (sweep, 1).

    number: the number of the chain, which decides how many components it begins with.
    sweeps: how many sweeps to make.
    """
    key_start, key_sweeps = jax.random.split(key)
    start = _start(model, data, key_start, number)
    return collapsed_gibbs(model, data, key=key_sweeps, sweeps=sweeps, keep=0, start=start).occupied[:, None]


def _log_prior(model: DPMixture, data: Dataset, most: int) -> tuple[LogPrior, ...]:
    """Return ([log p(1 component has rows), …, log p(`most` components have rows)],) before any data, in nats."""
    return (log_block_count_prior(data.n_units, model.concentration, most),)
