"""Samplers of the number of occupied parts of a two-level process: under q of a fit, and by direct assignment.

A part is a topic or a component, and a member a token or a row. A part is occupied if it has some member. Chains have
starts that are far apart. A chain begins with all members in one part, with many
parts, or in between. With many parts, documents are dealt to topics with all their words, and rows go to the nearest of
a few chosen rows.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.hdp.gibbs import groups_of, words_of
from lvsearch.inference.hdp.kernel import log_weights_of, stick_logs
from lvsearch.inference.hdp.sampler import (
    FranchiseRecorder,
    FranchiseSampler,
    Members,
    run_all_sweeps,
    states_of_partitions,
)
from lvsearch.inference.hdp.units import contents_of, seat_units
from lvsearch.inference.mixtures.partitions import OccupiedCounts
from lvsearch.inference.mixtures.starts import nearest_rows, start_groups
from lvsearch.inference.processes import LogPrior, OccupiedSampler
from lvsearch.models.hdp import HDP, HDPMixture
from lvsearch.models.hierarchical_process import HierarchicalProcess

SEATING_SWEEPS = 10
"""Coordinate steps of every unit before tables are drawn."""
CERTAIN = 30.0
"""A part counts as certainly occupied if its expected number of units exceeds this number.

That number is Σ over units of 1 − e^−(its expected members). Units are independent under q. The sum is over units and
not over members, because a pointer moves all members of its table together.
"""
NEGLIGIBLE = 1e-7
"""A unit with fewer expected members in the doubtful parts than this is left out of the draws."""


def occupied_parts(
    model: HierarchicalProcess, estimate: Estimate, data: Dataset, *, draws: int, rng: np.random.Generator
) -> OccupiedCounts:
    """Return the distribution of the number of occupied parts (topics or components), from draws from q.

    Members are tokens or rows.

    A unit is a document or a group. Its members sit at tables, and each table has a pointer to a part. Pointers and
    tables are drawn `draws` times. Units' tables are first updated at q of the shared variables. Parts that many units
    use count as occupied. Only units with some chance of a doubtful part are drawn.

    rng: the generator of random numbers.
    """
    packed, contents, seating, seen = seat_units(model, estimate, data, SEATING_SWEEPS)
    documents = packed.documents
    pointers, hits, passes = (documents.gather(leaf) for leaf in seating)
    n_parts = estimate.size[0]
    at_table = hits - 1
    expected = np.einsum("dt,dtk->dk", at_table, pointers)[:, :n_parts]
    certain = (1 - np.exp(-expected)).sum(0) > CERTAIN
    doubtful = np.flatnonzero(~certain)
    relevant = np.flatnonzero(expected[:, doubtful].sum(1) > NEGLIGIBLE) if len(doubtful) else np.zeros(0, np.int64)
    found = np.zeros((draws, n_parts), bool)
    found[:, certain] = True
    log_value, log_left = (np.asarray(x) for x in stick_logs(hits, passes))
    prior = np.asarray(log_weights_of(log_value, log_left))
    counts = contents.counts
    for unit in relevant:  # draw the unit's tables of members and pointers of tables, for all draws at once
        span = slice(counts.indptr[unit], counts.indptr[unit + 1])
        members = counts.indices[span]
        scores = seen.log_topics[members] @ pointers[unit].T + prior[unit]
        table = np.exp(scores - scores.max(1, keepdims=True))
        table = np.repeat(table / table.sum(1, keepdims=True), counts.data[span].astype(np.int64), axis=0)
        seats = (rng.random((draws, len(table), 1)) > np.cumsum(table, axis=1)[None, :, :-1]).sum(-1)
        cumulative = np.cumsum(pointers[unit][:, :n_parts], axis=1)
        pointed = (rng.random((draws, model.tables, 1)) > (cumulative / cumulative[:, -1:])[None, :, :-1]).sum(-1)
        np.put_along_axis(found, np.take_along_axis(pointed, seats, axis=1), True, axis=1)
    n_occupied = found.sum(1)
    sizes = np.unique(n_occupied)
    probability = (n_occupied[:, None] == sizes).mean(0)
    return OccupiedCounts(sizes, probability, np.sqrt(probability * (1 - probability) / draws))


# ── chains ────────────────────────────────────────────────────────────────────────────────────────────────────────────


Deal = Callable[[Array, int], Int[np.ndarray, " member"]]
"""A function (key, number of parts) -> the part of each member (token or row) to begin with, (member,)."""


def occupied_topics(model: HDP, data: Dataset) -> OccupiedSampler:
    """Return the sampler of the number of occupied topics: those that have some token.

    Raises ValueError for counts that are not whole numbers.
    """
    return _make_occupied_sampler("occupied topics", model, *_topic_members(model, data))


def occupied_shared_components(model: HDPMixture, data: Dataset) -> OccupiedSampler:
    """Return the sampler of the number of occupied components: those that have some row.

    Raises ValueError for rows without a density.
    """
    return _make_occupied_sampler("occupied components", model, *_component_members(model, data))


def topic_franchise(
    model: HDP, data: Dataset, key: Array, *, chains: int, units: bool
) -> tuple[FranchiseSampler, FranchiseRecorder]:
    """Return the sampler and recorder of topics by direct assignment, with chains side by side from distant starts.

    units: True to record the topic of every token.
    """
    return _make_sampler(model, *_topic_members(model, data), key, chains, units)


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
