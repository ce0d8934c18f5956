"""The two searches over feature matrices: a beam, which keeps the best few matrices, and A*, which extends the best one
first.

A *node* is a matrix of features of the rows placed so far. An *upper score* of a node is a number that log p(X,
features) of no completion exceeds.

**Beam search.** Rows are placed one at a time, and all nodes on the beam have the same number of rows. (Rai & Daumé cut
one queue over all depths, where a matrix with few rows, scored by a generous bound, pushes out a longer one that is
better.) The upper scores of dropped nodes are remembered. Nothing outside the beam can exceed their maximum, which
makes the reported gap honest.

**Best first (A*).** Nodes of different numbers of rows stand on one queue. With the admissible score (rank = upper
score), the first complete matrix to leave the queue is the best of all. With another score the search stops there too,
but that proves nothing. It then reports the gap that the upper scores left on the queue allow.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from lvsearch.inference.features.expansion import (
    MOST_ASSIGNMENTS,
    Children,
    Nodes,
    Setting,
    expand,
    place_row,
    select_nodes,
    with_new_features,
)
from lvsearch.inference.features.prior import Columns

CHUNK = 1 << 21
"""The most numbers per array of scores, which decides how many nodes (partial matrices) are extended at a time."""

Progress = Callable[[int, int], None]
"""A function that is called with (rows placed, rows) as the search goes on."""


class BeamStep(NamedTuple):
    """The step that led to the nodes (partial matrices) of one depth.

    parent: the position of each node's parent on the beam before.
    row: the features of the row that was placed.
    """

    parent: Int64[np.ndarray, " node"]
    row: Bool[np.ndarray, "node feature"]


class Beam(NamedTuple):
    """The nodes (partial matrices) kept by a beam search, best first.

    nodes: the nodes.
    steps: how each row was placed, from the first on.
    dropped: the highest upper bound on log p(X, features) of everything that was dropped, nats.
    """

    nodes: Nodes
    steps: tuple[BeamStep, ...]
    dropped: float

    def features(self, which: int) -> Int64[np.ndarray, "row feature"]:
        """Return the features (row, feature) of node number `which`, with rows in the order of the search.

        A node is a matrix of features of the rows placed so far.
        """
        Z = np.zeros((len(self.steps), self.nodes.columns.ones.shape[1]), np.int64)
        for depth in range(len(self.steps) - 1, -1, -1):
            row = self.steps[depth].row[which]
            Z[depth, : len(row)] = row
            which = int(self.steps[depth].parent[which])
        return Z[:, Z.any(axis=0)]


def beam_search(setting: Setting, beam: Beam, width: int, known: float, progress: Progress | None = None) -> Beam:
    """Place all remaining rows and return the final beam.

    width: how many nodes (partial matrices) are kept after each row.
    known: a log p(X, features) that some matrix is known to reach, nats.
    progress: called with (rows placed, rows) after each row.
    """
    steps, dropped, nodes = list(beam.steps), beam.dropped, beam.nodes
    n_rows = len(setting.order)
    for depth in range(int(nodes.depth[0]), n_rows):
        nodes, step, left_out = place_next_row(setting, nodes, width, known)
        steps.append(step)
        dropped = max(dropped, left_out)
        if progress is not None:
            progress(depth + 1, n_rows)
    return Beam(nodes, tuple(steps), dropped)


class Shortlist(NamedTuple):
    """Children (nodes with one more row) that may stay on the beam: their parent, their row and their scores.

    A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.

    parent: the position of the parent on the beam.
    bits, new: which opened features the row has, and how many new ones.
    log_likelihood: log p(rows | features), nats.
    rank: the score by which the beam is cut, nats.
    upper: a bound that log p(X, features) of no completion exceeds, nats.
    """

    parent: Int64[np.ndarray, " child"]
    bits: Bool[np.ndarray, "child feature"]
    new: Int64[np.ndarray, " child"]
    log_likelihood: Float64[np.ndarray, " child"]
    rank: Float64[np.ndarray, " child"]
    upper: Float64[np.ndarray, " child"]


def place_next_row(setting: Setting, nodes: Nodes, width: int, known: float) -> tuple[Nodes, BeamStep, float]:
    """Place the next row on all nodes (partial matrices) of the beam, and keep the best.

    width: how many nodes are kept.
    known: a log p(X, features) that some matrix is known to reach, nats.

    Returns the best `width` nodes with the new row, how they came about, and the highest upper bound on log p(X,
    features) of all others.
    """

    def scores_to_exceed(children: Children) -> tuple[float, float]:
        """Return the rank and the upper score that a further child must exceed to be of use."""
        ranks = children.rank.ravel()
        return float(np.partition(ranks, -width)[-width]) if len(ranks) >= width else -np.inf, known

    left_out, shortlists = -np.inf, []
    for start, stop in _chunks(setting, nodes):
        children = expand(setting, nodes.select(slice(start, stop)), scores_to_exceed)
        kept, rest = _select_best(children.rank.ravel(), children.upper.ravel(), width)
        node, candidate, count = np.unravel_index(kept, children.rank.shape)
        left_out = max(left_out, rest, float(children.left_out.max()))
        shortlists.append(
            Shortlist(
                start + node,
                children.bits[node, candidate],
                children.new[node, count],
                children.log_likelihood[node, candidate, count],
                children.rank[node, candidate, count],
                children.upper[node, candidate, count],
            )
        )
    # the best of each chunk's best
    listed = Shortlist(*(np.concatenate(column) for column in zip(*shortlists, strict=True)))
    kept, rest = _select_best(listed.rank, listed.upper, width)
    listed = select_nodes(listed, kept)
    parents = nodes.select(listed.parent)
    following, row = place_row(
        setting.likelihood, setting.order, parents, listed.bits, listed.new, listed.log_likelihood
    )
    return following, BeamStep(listed.parent, row), max(left_out, rest)


def _select_best(rank: np.ndarray, upper: np.ndarray, width: int) -> tuple[np.ndarray, float]:
    """Return the positions of the `width` highest finite ranks, best first, and the highest upper score elsewhere.

    rank: the score by which children (partial feature matrices) are ranked, (child,), nats.
    upper: an upper bound on log p(X, features) of every completion, (child,), nats.
    """
    if len(rank) > 4 * width:
        floor = np.partition(rank, -width)[-width]
        positions = np.flatnonzero(rank >= floor)
    else:
        positions = np.arange(len(rank))
    kept = positions[np.argsort(-rank[positions], kind="stable")[:width]]
    kept = kept[rank[kept] > -np.inf]
    others = upper.copy()
    others[kept] = -np.inf
    return kept, float(others.max())


def _chunks(setting: Setting, nodes: Nodes) -> list[tuple[int, int]]:
    """Return (start, stop) of runs of nodes whose candidates fit in `CHUNK` numbers.

    A node is a matrix of features of the rows placed so far.
    """
    count = nodes.columns.count
    candidates = setting.width if setting.expansion == "column" else 2.0 ** count.max()
    size = max(1, int(CHUNK / (candidates * (count.max() + 8))))
    return [(start, min(start + size, len(count))) for start in range(0, len(count), size)]


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
