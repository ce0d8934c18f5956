"""Occupied parts, and draws, of a two-level process, by direct assignment from starts far apart.

A chain begins with all members in one part, in many (documents dealt to topics with all their words, rows to the
nearest of a few of them), or in between.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.hdp.contents import contents_of
from lvsearch.inference.hdp.gibbs import words_of
from lvsearch.inference.hdp.group_gibbs import groups_of
from lvsearch.inference.hdp.sampler import FranchiseRecorder, FranchiseSampler, Members, grouped, whole_run
from lvsearch.inference.mixtures.starts import nearest_rows, start_groups
from lvsearch.inference.processes import LogPrior, OccupiedSampler, occupied_sampler, process_sampler
from lvsearch.models.hdp import HDP
from lvsearch.models.hdp_mixture import HDPMixture
from lvsearch.models.hierarchical_process import HierarchicalProcess

Deal = Callable[[Array, int], Int[np.ndarray, " member"]]
"""(key, parts) -> a grouping of the members to begin with."""


@occupied_sampler.register
def occupied_topics(model: HDP, data: Dataset) -> OccupiedSampler:
    """Raises ValueError for counts that are not whole numbers."""
    return _occupied("occupied topics", model, *_topics(model, data))


@occupied_sampler.register
def occupied_shared_components(model: HDPMixture, data: Dataset) -> OccupiedSampler:
    """Raises ValueError for rows without a density."""
    return _occupied("occupied components", model, *_components(model, data))


@process_sampler.register
def topic_franchise(
    model: HDP, data: Dataset, key: Array, *, chains: int, units: bool
) -> tuple[FranchiseSampler, FranchiseRecorder]:
    """Direct assignment, its chains side by side, from the same starts."""
    return _side_by_side(model, *_topics(model, data), key, chains, units)


@process_sampler.register
def component_franchise(
    model: HDPMixture, data: Dataset, key: Array, *, chains: int, units: bool
) -> tuple[FranchiseSampler, FranchiseRecorder]:
    """Direct assignment, its chains side by side, from the same starts."""
    return _side_by_side(model, *_components(model, data), key, chains, units)


def _topics(model: HDP, data: Dataset) -> tuple[Members, Deal]:
    members = words_of(model, data)

    def dealt(key: Array, parts: int) -> Int[np.ndarray, " member"]:
        return np.asarray(jax.random.permutation(key, data.n_units))[members.unit_of] % parts

    return members, dealt


def _components(model: HDPMixture, data: Dataset) -> tuple[Members, Deal]:
    _, rows = contents_of(model, data)

    def near(key: Array, parts: int) -> Int[np.ndarray, " member"]:
        return nearest_rows(key, rows.coordinates, rows.observed, parts)

    return groups_of(model, data)[1], near


def _occupied(name: str, model: HierarchicalProcess, members: Members, deal: Deal) -> OccupiedSampler:
    def chain(key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
        key_start, key_sweeps = jax.random.split(key)
        labels = deal(key_start, start_groups(number, len(members.unit_of)))
        begin = grouped(model, labels[None])
        return whole_run(model, members, begin, key_sweeps, sweeps=sweeps, units=False)["occupied"][0][:, None]

    return OccupiedSampler((name,), chain, _unknown)


def _side_by_side(
    model: HierarchicalProcess, members: Members, deal: Deal, key: Array, chains: int, units: bool
) -> tuple[FranchiseSampler, FranchiseRecorder]:
    n_members = len(members.unit_of)
    labels = [deal(jax.random.fold_in(key, i), start_groups(i, n_members)) for i in range(chains)]
    sampler = FranchiseSampler.of(model, members, grouped(model, np.stack(labels)))
    return sampler, FranchiseRecorder.of(model, n_members, units=units)


def _unknown(most: int) -> tuple[LogPrior, ...]:
    """No closed form: two levels of seatings."""
    return (None,)
