"""Chains of two-level processes by direct assignment, from starts that are far apart.

A part is a topic or a component, and a member a token or a row. A chain begins with all members in one part, with many
parts, or in between. With many parts, documents are dealt to topics with all their words, and rows go to the nearest of
a few chosen rows.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.hdp.contents import contents_of
from lvsearch.inference.hdp.gibbs import words_of
from lvsearch.inference.hdp.group_gibbs import groups_of
from lvsearch.inference.hdp.sampler import (
    FranchiseRecorder,
    FranchiseSampler,
    Members,
    run_all_sweeps,
    states_of_partitions,
)
from lvsearch.inference.mixtures.starts import nearest_rows, start_groups
from lvsearch.inference.processes import LogPrior, OccupiedSampler, occupied_sampler, process_sampler
from lvsearch.models.hdp import HDP
from lvsearch.models.hdp_mixture import HDPMixture
from lvsearch.models.hierarchical_process import HierarchicalProcess

Deal = Callable[[Array, int], Int[np.ndarray, " member"]]
"""A function (key, number of parts) -> the part of each member (token or row) to begin with, (member,)."""


@occupied_sampler.register
def occupied_topics(model: HDP, data: Dataset) -> OccupiedSampler:
    """Return the sampler of the number of occupied topics: those that have some token.

    Raises ValueError for counts that are not whole numbers.
    """
    return _make_occupied_sampler("occupied topics", model, *_topic_members(model, data))


@occupied_sampler.register
def occupied_shared_components(model: HDPMixture, data: Dataset) -> OccupiedSampler:
    """Return the sampler of the number of occupied components: those that have some row.

    Raises ValueError for rows without a density.
    """
    return _make_occupied_sampler("occupied components", model, *_component_members(model, data))


@process_sampler.register
def topic_franchise(
    model: HDP, data: Dataset, key: Array, *, chains: int, units: bool
) -> tuple[FranchiseSampler, FranchiseRecorder]:
    """Return the sampler and recorder of topics by direct assignment, with chains side by side from distant starts.

    units: True to record the topic of every token.
    """
    return _make_sampler(model, *_topic_members(model, data), key, chains, units)


@process_sampler.register
def component_franchise(
    model: HDPMixture, data: Dataset, key: Array, *, chains: int, units: bool
) -> tuple[FranchiseSampler, FranchiseRecorder]:
    """Return the sampler and recorder of components by direct assignment, with chains side by side from distant starts.

    units: True to record the component of every row.
    """
    return _make_sampler(model, *_component_members(model, data), key, chains, units)


def _topic_members(model: HDP, data: Dataset) -> tuple[Members, Deal]:
    """Return the tokens as members of topics, and the function that deals them to topics at first."""
    members = words_of(model, data)

    def deal_documents(key: Array, parts: int) -> Int[np.ndarray, " member"]:
        """Return a topic for every token, the same for all tokens of a document."""
        return np.asarray(jax.random.permutation(key, data.n_units))[members.unit_of] % parts

    return members, deal_documents


def _component_members(model: HDPMixture, data: Dataset) -> tuple[Members, Deal]:
    """Return the rows as members of components, and the function that deals them to components at first."""
    _, rows = contents_of(model, data)

    def deal_rows(key: Array, parts: int) -> Int[np.ndarray, " member"]:
        """Return a component for every row: the nearest of `parts` rows chosen at random."""
        return nearest_rows(key, rows.coordinates, rows.observed, parts)

    return groups_of(model, data)[1], deal_rows


def _make_occupied_sampler(name: str, model: HierarchicalProcess, members: Members, deal: Deal) -> OccupiedSampler:
    """Return the sampler of the number of occupied parts (topics or components).

    Members are tokens or rows.

    name: the name under which the number is reported.
    deal: the function that deals members to parts at first.
    """

    def chain(key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
        """Run chain number `number` and return the number of occupied parts after each sweep, (sweep, 1).

        Parts are topics or components.
        """
        key_start, key_sweeps = jax.random.split(key)
        labels = deal(key_start, start_groups(number, len(members.unit_of)))
        begin = states_of_partitions(model, labels[None])
        return run_all_sweeps(model, members, begin, key_sweeps, sweeps=sweeps, units=False)["occupied"][0][:, None]

    return OccupiedSampler((name,), chain, _no_log_prior)


def _make_sampler(
    model: HierarchicalProcess, members: Members, deal: Deal, key: Array, chains: int, units: bool
) -> tuple[FranchiseSampler, FranchiseRecorder]:
    """Return the sampler and recorder of several chains side by side, from starts that are far apart.

    Members are tokens or rows; parts are topics or components.

    deal: the function that deals members to parts at first.
    units: True to record the part of every member.
    """
    n_members = len(members.unit_of)
    labels = [deal(jax.random.fold_in(key, i), start_groups(i, n_members)) for i in range(chains)]
    sampler = FranchiseSampler.from_members(model, members, states_of_partitions(model, np.stack(labels)))
    return sampler, FranchiseRecorder.for_model(model, n_members, units=units)


def _no_log_prior(most: int) -> tuple[LogPrior, ...]:
    """Return (None,): the prior of the number of parts has no closed form in a process of two levels.

    Parts are topics or components.
    """
    return (None,)
