"""Beam search: rows are placed one at a time, and the best few matrices of features are kept.

A *node* is a matrix of features of the rows placed so far. An *upper score* of a node is a number that log p(X,
features) of no completion exceeds. All nodes on the beam have the same number of rows. (Rai & Daumé cut one queue over
all depths, where a matrix with few rows, scored by a generous bound, pushes out a longer one that is better.) The upper
scores of dropped nodes are remembered. Nothing outside the beam can exceed their maximum, which makes the reported gap
honest.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from lvsearch.inference.features.expansion import Children, Nodes, Setting, expand, place_row, select_nodes

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
