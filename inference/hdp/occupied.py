"""The distribution under q of how many parts (topics or components) are occupied, that is, have some member."""

import numpy as np

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.hdp.kernel import log_weights_of, stick_logs
from lvsearch.inference.hdp.units import seat_units
from lvsearch.inference.mixtures.occupied import OccupiedCounts
from lvsearch.inference.occupied import occupied_counts
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


@occupied_counts.register
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
