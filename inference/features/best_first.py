"""A* search over feature matrices: the most promising one is extended first, until no other can be better.

A *node* is a matrix of features of the rows placed so far. Nodes of different numbers of rows stand on one queue. An
*upper score* of a node is a number that log p(X, features) of no completion exceeds. With the admissible score (rank =
upper score), the first complete matrix to leave the queue is the best of all. With another score the search stops there
too, but that proves nothing. It then reports the gap that the upper scores left on the queue allow.
"""

import heapq
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from lvsearch.inference.features.beam import Progress
from lvsearch.inference.features.expansion import (
    MOST_ASSIGNMENTS,
    Children,
    Nodes,
    Setting,
    expand,
    place_row,
    with_new_features,
)
from lvsearch.inference.features.gains import Columns

AT_ONCE = 32
"""The number of nodes (partial matrices) extended together, so that the device scores batches.

A node extended earlier than needed costs time, but never correctness.
"""


class Expanded(NamedTuple):
    """A node (partial matrix) whose children, the matrices with one more row, are on the queue.

    A feature is opened if a placed row has it.

    nodes: the node itself.
    parent: the node with one row less; None at the root.
    row: the features of the node's last row.
    bits, new: candidate assignments of the next row to opened features, and numbers of new features.
    log_likelihood: log p(rows and the next one | features) of every child, nats.
    """

    nodes: Nodes
    parent: "Expanded | None"
    row: Bool[np.ndarray, " feature"]
    bits: Bool[np.ndarray, "candidate feature"]
    new: Int64[np.ndarray, " count"]
    log_likelihood: Float64[np.ndarray, "candidate count"]


class Queued(NamedTuple):
    """A child on the queue, ordered by rank, then by age.

    A node is a matrix of features of the rows placed so far.

    minus_rank: the negative rank, nats.
    age: how many children were queued before.
    upper: a bound that log p(X, features) of no completion exceeds, nats.
    parent: the node that the child extends by a row.
    candidate, count: which candidate assignment, and which number of new features, make the child's row.
    """

    minus_rank: float
    age: int
    upper: float
    parent: Expanded
    candidate: int
    count: int


TIED = 1e-12
"""A partial matrix stays on the queue when its upper score equals the best found within this many nats."""


class Outcome(NamedTuple):
    """The result of an A* search over feature matrices.

    | field | meaning |
    |---|---|
    | `features` | the best complete matrix found, rows in search order; None if none exceeds what was known |
    | `log_joint` | log p(X, features) of the best matrix found, or the known one, nats |
    | `open` | no matrix that was not found exceeds this log p(X, features), nats |
    | `expanded` | how many partial matrices were extended by a row |
    | `finished` | False if the limit on extended matrices ended the search |
    """

    features: Int64[np.ndarray, "row feature"] | None
    log_joint: float
    open: float
    expanded: int
    finished: bool


def best_first(setting: Setting, start: Nodes, known: float, limit: int, progress: Progress | None = None) -> Outcome:
    """Search for the best feature matrix from one node without rows.

    known: log p(X, features) of some matrix, nats. Only better ones are looked for.
    limit: the most partial matrices that are extended.
    progress: called with (most rows placed so far, rows) after each batch.
    """
    n_rows = len(setting.order)
    queue: list[Queued] = []
    best_score, best, left_out, age, expanded, deepest = known, None, -np.inf, 0, 0, 0
    nodes, origins = start, [(None, np.zeros(0, bool))]
    while True:
        # score the children of the batch, remember the best complete one, and queue those that may still be better
        children = expand(setting, nodes, lambda _, score=best_score: (-np.inf, score))
        expanded += len(nodes.depth)
        left_out = max(left_out, float(children.left_out.max()))
        entries = [_expanded_node(nodes, children, which, *origin) for which, origin in enumerate(origins)]
        complete = np.where((nodes.depth + 1 == n_rows)[:, None, None], children.upper, -np.inf)
        if complete.max() > best_score:
            which, candidate, count = np.unravel_index(int(complete.argmax()), complete.shape)
            best_score, best = float(complete.max()), (entries[which], int(candidate), int(count))
        for which, candidate, count in np.argwhere(children.upper > best_score - TIED).tolist():
            rank, upper = children.rank[which, candidate, count], children.upper[which, candidate, count]
            heapq.heappush(queue, Queued(-float(rank), age, float(upper), entries[which], candidate, count))
            age += 1
        deepest = max(deepest, int(nodes.depth.max()) + 1)
        if progress is not None:
            progress(deepest, n_rows)
        batch, ended = _pop_batch(queue, n_rows, best_score)
        if ended or not batch or expanded >= limit:
            finished = ended or not batch
            break
        nodes, origins = _materialise(setting, batch)
    features = None if best is None else _trace_features(*best)
    rest = max((entry.upper for entry in [*queue, *batch]), default=-np.inf)
    return Outcome(features, best_score, max(left_out, rest), expanded, finished)


def _expanded_node(
    nodes: Nodes, children: Children, which: int, parent: "Expanded | None", row: np.ndarray
) -> Expanded:
    """Return node number `which` of a batch with its children's scores.

    A node is a matrix of features of the rows placed so far.

    parent: the node with one row less; None at the root.
    row: the features of the node's last row.
    """
    return Expanded(
        nodes.select([which]), parent, row, children.bits[which], children.new[which], children.log_likelihood[which]
    )


def _pop_batch(queue: list[Queued], n_rows: int, best_score: float) -> tuple[list[Queued], bool]:
    """Take the next nodes to extend from the queue, and drop those that cannot improve on `best_score`.

    A node is a matrix of features of the rows placed so far.

    n_rows: the number of rows of a complete matrix.
    best_score: log p(X, features) of the best complete matrix so far, nats.

    Returns the nodes, and True if a complete matrix comes first, which ends the search.
    """
    batch: list[Queued] = []
    widest = 0
    while queue and len(batch) < AT_ONCE:
        entry = queue[0]
        if entry.parent.nodes.depth[0] + 1 == n_rows:
            return batch, not batch
        if entry.upper <= best_score:
            heapq.heappop(queue)
            continue
        features = int(entry.parent.nodes.columns.count[0] + entry.parent.new[entry.count])
        widest = max(widest, features)
        if batch and (len(batch) + 1) * 2.0**widest > MOST_ASSIGNMENTS:
            break
        batch.append(heapq.heappop(queue))
    return batch, False


def _materialise(setting: Setting, batch: list[Queued]) -> tuple[Nodes, list[tuple[Expanded, np.ndarray]]]:
    """Make the nodes that queue entries stand for, with room for the same number of features.

    A node is a matrix of features of the rows placed so far.

    Returns the nodes, and each node's parent and the features of its last row.
    """
    likelihood = setting.likelihood
    capacity = max(entry.parent.nodes.columns.ones.shape[1] for entry in batch)
    states = [likelihood.resize(entry.parent.nodes.state, capacity) for entry in batch]
    columns = [entry.parent.nodes.columns.resize(capacity) for entry in batch]
    parents = Nodes(
        type(states[0])(*(np.concatenate(arrays) for arrays in zip(*states, strict=True))),
        Columns(*(np.concatenate(arrays) for arrays in zip(*columns, strict=True))),
        np.concatenate([entry.parent.nodes.depth for entry in batch]),
        np.concatenate([entry.parent.nodes.log_likelihood for entry in batch]),
    )
    bits = np.zeros((len(batch), capacity), bool)
    for which, entry in enumerate(batch):
        chosen = entry.parent.bits[entry.candidate]
        bits[which, : len(chosen)] = chosen
    new = np.array([entry.parent.new[entry.count] for entry in batch])
    log_likelihood = np.array([entry.parent.log_likelihood[entry.candidate, entry.count] for entry in batch])
    nodes, rows = place_row(likelihood, setting.order, parents, bits, new, log_likelihood)
    return nodes, [(entry.parent, row) for entry, row in zip(batch, rows, strict=True)]


def _trace_features(leaf: Expanded, candidate: int, count: int) -> Int64[np.ndarray, "row feature"]:
    """Return the features (row, feature) of a complete matrix, collected from its last row up.

    A node is a matrix of features of the rows placed so far.

    leaf: the node that the last row extends.
    candidate, count: which candidate assignment, and which number of new features, make the last row.
    """
    capacity = leaf.bits.shape[1] + int(leaf.new[count])
    last = with_new_features(leaf.bits[[candidate]], leaf.nodes.columns, leaf.new[[count]], capacity)[0]
    rows, node = [last], leaf
    while node.parent is not None:
        rows.append(node.row)
        node = node.parent
    Z = np.zeros((len(rows), capacity), np.int64)
    for depth, row in enumerate(reversed(rows)):
        Z[depth, : len(row)] = row
    return Z[:, Z.any(axis=0)]
