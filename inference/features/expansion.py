"""Children of many nodes at once: which assignments of the next row are tried, and a bound on those that are not.

A *node* of the search is a matrix of features of the rows placed so far. Its *children* are the matrices with one more
row. A feature is *opened* once some placed row has it. An assignment says which opened features the next row has. An
*upper score* is a number that log p(X, features) of no completion of a matrix exceeds.

Let u(j) be an upper score of every child that opens j features:

  u(j) = log p(rows so far) + row_bound(j) + [best completion of the prior with j new] + remaining_bound.

Here row_bound never rises with j, and the best completion is concave in j. So u falls from the j on where the
completion's increment is negative. If u(J + 1) then lies below a score already reached, no number of new features above
J can matter. That is the proved cap: every j up to J is tried, and u(J + 1) bounds the rest.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from lvsearch.inference.features.contract import (
    BoundLikelihood,
    CandidateBits,
    CandidateScores,
    NewNumbers,
    NodeBits,
    NodeRows,
    State,
)
from lvsearch.inference.features.prior import Columns, Gains, best_completion_gains, class_gains

Expansion = Literal["complete", "paper", "column"]
"""The names of the three ways to choose which assignments of the next row are tried."""

MOST_ASSIGNMENTS = 1 << 16
"""The most assignments of one row of one node: 16 features with distinct histories."""


class Setting(NamedTuple):
    """The settings that stay fixed during a search.

    | field | meaning |
    |---|---|
    | `likelihood` | the likelihood with its data |
    | `order` | the rows in the order in which they are placed |
    | `alpha` | the mean number of features of a row |
    | `expansion`, `width` | which assignments are tried; how many are kept by the expansion "column" |
    | `most_features` | the most features that a matrix may have |
    | `completed_rank` | True: rank nodes by their upper score; False: by log P of the rows so far, plus `outlook` |
    | `remaining`, `outlook` | what the rows from each depth on add to the upper score, and to the rank, nats |

    A node is a matrix of features of the rows placed so far; its depth is the number of these rows.
    """

    likelihood: BoundLikelihood
    order: Int64[np.ndarray, " row"]
    alpha: float
    expansion: Expansion
    width: int
    most_features: int
    completed_rank: bool
    remaining: Float64[np.ndarray, " depth"]
    outlook: Float64[np.ndarray, " depth"]


class Nodes(NamedTuple):
    """Nodes of the search to be extended. A node is a matrix of features of the rows placed so far.

    state: what the rows so far say about the loadings.
    columns: how many rows have each feature, and which columns are equal.
    depth: how many rows are placed.
    log_likelihood: log p(these rows | their features), nats.
    """

    state: State
    columns: Columns
    depth: NodeRows
    log_likelihood: Float64[np.ndarray, " node"]

    def select(self, index) -> "Nodes":
        """Return some of the nodes, by a NumPy index on the node axis.

        A node is a matrix of features of the rows placed so far.
        """
        return Nodes(
            select_nodes(self.state, index),
            select_nodes(self.columns, index),
            self.depth[index],
            self.log_likelihood[index],
        )


def root_node(likelihood: BoundLikelihood) -> Nodes:
    """Return the node without rows, with which a search begins.

    A node is a matrix of features of the rows placed so far.
    """
    nothing = Columns(np.zeros((1, 1), np.int64), np.zeros((1, 1), bool))
    return Nodes(likelihood.empty(1), nothing, np.zeros(1, np.int64), np.zeros(1))


def select_nodes(arrays: Any, index):
    """Return some nodes of a state, or of any other NamedTuple of arrays with a leading node axis.

    index: a NumPy index.
    """
    return type(arrays)(*(array[index] for array in arrays))


def with_new_features(bits: NodeBits, columns: Columns, new: NodeRows, capacity: int):
    """Return the features of each node's next row with `new` further columns set, (node, capacity).

    A node is a matrix of features of the rows placed so far.

    bits: which opened features (that an earlier row has) the row has.
    columns: the opened columns of each node.
    new: how many new features the row has.
    capacity: the number of columns returned, enough for all.
    """
    position = np.arange(capacity) - columns.count[:, None]
    wide = np.pad(bits, ((0, 0), (0, capacity - bits.shape[1])))
    return wide | ((position >= 0) & (position < new[:, None]))


def place_row(
    likelihood: BoundLikelihood, order: np.ndarray, parents: Nodes, bits, new, log_likelihood
) -> tuple[Nodes, Any]:
    """Return the nodes with one more row each, and that row's features, (node, feature).

    A node is a matrix of features of the rows placed so far.

    order: the rows in the order in which they are placed.
    parents: the nodes before.
    bits: which opened features (that an earlier row has) the next row has, (node, feature).
    new: how many new features the next row has, (node,).
    log_likelihood: log p(rows, the new one included | their features) of each node, nats.
    """
    capacity = max(parents.columns.ones.shape[1], int((parents.columns.count + new).max()))
    row = with_new_features(bits, parents.columns, new, capacity)
    columns = parents.columns.resize(capacity)
    state = likelihood.extend(likelihood.resize(parents.state, capacity), order[parents.depth], row)
    return Nodes(state, columns.after(row), parents.depth + 1, log_likelihood), row


class Children(NamedTuple):
    """The scores of the children of nodes: per node, candidate assignment of the next row, and number of new features.

    A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.

    | field | meaning |
    |---|---|
    | `bits`, `new` | which opened features each candidate has; the numbers of new features |
    | `log_likelihood` | log p(rows so far and the next one), nats |
    | `rank` | the score by which nodes are ranked, nats; −inf for candidates that do not exist |
    | `upper` | upper bound on log p(X, features) of every completion, nats |
    | `left_out` | the highest such upper bound of the children that are not among these |
    """

    bits: CandidateBits
    new: NewNumbers
    log_likelihood: CandidateScores
    rank: CandidateScores
    upper: CandidateScores
    left_out: Float64[np.ndarray, " node"]


@lru_cache(maxsize=256)
def assignments(groups: tuple[int, ...]) -> Bool[np.ndarray, "candidate feature"]:
    """Return all different assignments of a row to features, (candidate, feature), for groups of equal columns.

    Of a group of g equal columns a row takes its first 0 … g. So there are Π(g + 1) candidates.

    groups: the size g of each group.

    Raises ValueError if there are more than `MOST_ASSIGNMENTS`.
    """
    total = int(np.prod([g + 1 for g in groups], dtype=float))
    if total > MOST_ASSIGNMENTS:
        raise ValueError(
            f"got {sum(groups)} features with {total:.3g} assignments of one row; expected at most {MOST_ASSIGNMENTS}: "
            f'use expansion="column", which tries features one at a time, or a lower max_features'
        )
    table = np.zeros((1, 0), bool)
    for size in groups:
        choice = np.tril(np.ones((size + 1, size), bool), -1)
        table = np.concatenate([np.repeat(table, size + 1, axis=0), np.tile(choice, (len(table), 1))], axis=1)
    table.flags.writeable = False  # shared by all callers
    return table


def _list_assignments(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """List all assignments of the next row of every node.

    A node is a matrix of features of the rows placed so far.

    Returns bits (node, candidate, feature), and which candidates are no padding (node, candidate).
    """
    tables = []
    for count, same in zip(columns.count, columns.same, strict=True):
        first = np.flatnonzero(~same[:count])
        tables.append(assignments(tuple(np.diff(np.append(first, count)).tolist())))
    longest = max(len(table) for table in tables)
    bits = np.zeros((len(tables), longest, columns.ones.shape[1]), bool)
    there = np.zeros(bits.shape[:2], bool)
    for node, table in enumerate(tables):
        bits[node, : len(table), : table.shape[1]] = table
        there[node, : len(table)] = True
    return bits, there


def best_by_column(score, columns: Columns, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Build assignments of a row one feature at a time, keeping at most `width` of each node after each feature.

    A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.

    Features that are not yet decided count as absent.

    score: a function from bits (node, candidate, feature) to scores (node, candidate).
    columns: the opened columns of each node.

    Returns bits (node, candidate, feature), which candidates exist (node, candidate), and whether a node lost any
    (node,).
    """
    nodes, capacity = columns.ones.shape
    bits = np.zeros((nodes, 1, capacity), bool)
    value = score(bits)
    cut = np.zeros(nodes, bool)
    for k in np.flatnonzero(columns.opened.any(axis=0)):
        flipped = bits.copy()
        flipped[:, :, k] = True
        allowed = np.isfinite(value) & columns.opened[:, None, k]
        if k:
            allowed &= ~columns.same[:, None, k] | bits[:, :, k - 1]
        bits = np.concatenate([bits, flipped], axis=1)
        value = np.concatenate([value, np.where(allowed, score(flipped), -np.inf)], axis=1)
        if bits.shape[1] > width:
            cut |= np.isfinite(value).sum(axis=1) > width
            kept = np.argsort(-value, axis=1, kind="stable")[:, :width]
            bits = np.take_along_axis(bits, kept[:, :, None], axis=1)
            value = np.take_along_axis(value, kept, axis=1)
    return bits, np.isfinite(value), cut


def expand(setting: Setting, nodes: Nodes, scores_to_exceed: Callable[[Children], tuple[float, float]]) -> Children:
    """Score the children of nodes: the possible next rows of each.

    A node is a matrix of features of the rows placed so far.

    More and more new features are tried, until no child left out can exceed both scores.

    scores_to_exceed: a function from the children so far to the rank and the upper score that a further child must
        exceed to be of use.
    """
    scored = _Scorer(setting, nodes)
    if setting.expansion == "paper":
        count = np.maximum(1, np.floor(setting.alpha / (nodes.depth + 1))).astype(np.int64)
        return scored.children(np.stack([np.zeros_like(count), count], axis=1), 2 * int(count.max()))
    most = 1 + int(setting.alpha / (nodes.depth.min() + 1))
    while True:
        children = scored.children(np.tile(np.arange(most + 1), (len(nodes.depth), 1)), most)
        rank, upper = scores_to_exceed(children)
        if not scored.useful_beyond(most, rank, upper):
            return children
        most *= 2


class _Scorer:
    """Scores the assignments of opened features of each node's next row once, and combines them with numbers of new
    ones.

    A node is a matrix of features of the rows placed so far.

    A feature is opened if a placed row has it.
    """

    def __init__(self, setting: Setting, nodes: Nodes):
        self.setting, self.nodes = setting, nodes
        self.rows = setting.order[nodes.depth]
        self.terms = setting.likelihood.prepare(nodes.state, self.rows)
        self.room = setting.most_features - nodes.columns.count
        bit = self._gains(1)[1].bit
        if setting.expansion == "column":

            def score(bits: np.ndarray) -> np.ndarray:
                """Return log p(row) plus the prior's gain of every candidate without new features, (node,
                candidate), nats.

                A node is a matrix of features of the rows placed so far.
                """
                none = np.zeros((len(bits), 1), np.int64)
                return setting.likelihood.log_predictive(self.terms, bits, none)[:, :, 0] + _sum_gains(bits, bit)

            self.bits, self.there, self.cut = best_by_column(score, nodes.columns, setting.width)
        else:
            (self.bits, self.there), self.cut = _list_assignments(nodes.columns), np.zeros(len(nodes.depth), bool)

    def _gains(self, most: int) -> tuple[Gains, Gains]:
        """Return what the prior gains by each node's next row, for the upper score and for the rank, nats.

        An upper score is a bound on log p(X, features) of every completion; the rank orders nodes (partial feature
        matrices). Gains are listed for 0, 1, … new features, at least one more than `most`, up to where they fall.
        """
        nodes, setting = self.nodes, self.setting
        n_rows = len(setting.order)
        while True:
            best = best_completion_gains(nodes.columns, nodes.depth, n_rows, setting.alpha, most + 1)
            rank = best if setting.completed_rank else class_gains(nodes.columns, nodes.depth, setting.alpha, most + 1)
            if np.all(best.new[:, -1] <= best.new[:, -2]) and np.all(rank.new[:, -1] <= rank.new[:, -2]):
                return best, rank
            most *= 2

    def _bounds(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on the upper score and on the rank of any child with j new features, each (node, j), nats.

        A node is a matrix of features of the rows placed so far, and a child has one more row. An upper score is a
        bound on log p(X, features) of every completion. Both results fall at the end.
        """
        best, rank = self._gains(most)
        count = np.arange(best.new.shape[1])
        row = self.setting.likelihood.row_bound(self.rows, count) + self.nodes.log_likelihood[:, None]
        after = self.nodes.depth + 1

        def bound(gains: Gains, rest: np.ndarray) -> np.ndarray:
            """Return the bound (node, j) from the prior's gains and from what the rows after each depth add.

            A node is a matrix of features of the rows placed so far.
            """
            return row + (gains.base + np.maximum(gains.bit, 0.0).sum(axis=1) + rest[after])[:, None] + gains.new

        return bound(best, self.setting.remaining), bound(rank, self.setting.outlook)

    def useful_beyond(self, most: int, rank: float, upper: float) -> bool:
        """Return whether a child with more than `most` new features might exceed both scores.

        rank: the score by which nodes (partial feature matrices) are ranked, nats.
        upper: an upper bound on log p(X, features) of every completion, nats.
        """
        upper_bound, rank_bound = self._bounds(most)
        within = (np.arange(upper_bound.shape[1]) > most) & (self.room[:, None] > most)
        return bool(np.any(within & (upper_bound > upper) & (rank_bound > rank)))

    def children(self, new: NewNumbers, most: int) -> Children:
        """Return all children with the given numbers of new features, with their scores.

        A node is a matrix of features of the rows placed so far.

        new: numbers of new features to combine with every assignment, for each node.
        most: the largest of these numbers.
        """
        setting, nodes, after = self.setting, self.nodes, self.nodes.depth + 1
        predictive = setting.likelihood.log_predictive(self.terms, self.bits, new)
        log_likelihood = nodes.log_likelihood[:, None, None] + predictive
        there = self.there[:, :, None] & (new <= self.room[:, None])[:, None, :]

        def score(gains: Gains, rest: np.ndarray) -> np.ndarray:
            """Return the scores (node, candidate, count) from the prior's gains and from what the rows after each
            depth add, nats.

            A node is a matrix of features of the rows placed so far.
            """
            prior = (gains.base + rest[after])[:, None] + _sum_gains(self.bits, gains.bit)
            with_new_features = np.take_along_axis(gains.new, new, axis=1)
            return np.where(there, log_likelihood + prior[:, :, None] + with_new_features[:, None, :], -np.inf)

        best, ranking = self._gains(most)
        upper = score(best, setting.remaining)
        rank = upper if setting.completed_rank else score(ranking, setting.outlook)
        bound = self._bounds(most)[0]
        tried = (np.arange(bound.shape[1]) == new[:, :, None]).any(axis=1) & ~self.cut[:, None]
        tried &= np.arange(bound.shape[1]) <= self.room[:, None]
        return Children(self.bits, new, log_likelihood, rank, upper, np.where(tried, -np.inf, bound).max(axis=1))


def _sum_gains(bits: CandidateBits, gain: Float64[np.ndarray, "node feature"]) -> np.ndarray:
    """Return the sum of the gains of the features in each assignment, (node, candidate).

    A node is a matrix of features of the rows placed so far.
    """
    return np.matmul(bits.astype(np.float64), gain[:, :, None])[:, :, 0]
