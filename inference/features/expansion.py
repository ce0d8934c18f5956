"""Children of many nodes at once: which assignments of the next row are tried, and a bound on those that are not.

With u(j) an upper score of every child that opens j features,

  u(j) = log p(rows so far) + row_bound(j) + [best completion of the prior with j new] + remaining_bound,

row_bound never rises with j and the best completion is concave in j. So from the j on where the completion's increment
is negative, u falls: if u(J + 1) lies below a score already reached, no number of new features above J can matter. That
is the proved cap: every j up to J is tried, and u(J + 1) bounds the rest.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from lvsearch.inference.features.contract import BoundLikelihood, State
from lvsearch.inference.features.gains import Columns, Gains, best_completion_gains, class_gains

Expansion = Literal["complete", "paper", "column"]

MOST_ASSIGNMENTS = 1 << 16
"""Of one row of one node. 16 features with distinct histories."""


class Setting(NamedTuple):
    """What stays fixed during a search.

    completed_rank: nodes are ranked by their upper score; else by log P of the rows so far, their class, and outlook.
    remaining, outlook: what the rows from each depth on add to upper score and rank. width: of expansion "column".
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
    """Nodes to be expanded: their rows so far, as a state, and log p(those rows)."""

    state: State
    columns: Columns
    depth: Int64[np.ndarray, " node"]
    log_likelihood: Float64[np.ndarray, " node"]

    def at(self, index) -> "Nodes":
        """Some of the nodes."""
        return Nodes(take(self.state, index), take(self.columns, index), self.depth[index], self.log_likelihood[index])


def root(likelihood: BoundLikelihood) -> Nodes:
    """One node without rows."""
    nothing = Columns(np.zeros((1, 1), np.int64), np.zeros((1, 1), bool))
    return Nodes(likelihood.empty(1), nothing, np.zeros(1, np.int64), np.zeros(1))


def take(arrays: Any, index):
    """Some nodes of a state, or of anything else that is a NamedTuple of arrays with a leading node axis."""
    return type(arrays)(*(array[index] for array in arrays))


def opened(bits: Bool[np.ndarray, "node feature"], columns: Columns, new: Int64[np.ndarray, " node"], capacity: int):
    """bits with the next `new` columns set, at a capacity that holds them: (node, capacity)."""
    place = np.arange(capacity) - columns.count[:, None]
    wide = np.pad(bits, ((0, 0), (0, capacity - bits.shape[1])))
    return wide | ((place >= 0) & (place < new[:, None]))


def place(
    likelihood: BoundLikelihood, order: np.ndarray, parents: Nodes, bits, new, log_likelihood
) -> tuple[Nodes, Any]:
    """The nodes that follow when each parent's next row has `bits` and `new` further features; and the whole row."""
    capacity = max(parents.columns.ones.shape[1], int((parents.columns.count + new).max()))
    row = opened(bits, parents.columns, new, capacity)
    columns = parents.columns.resize(capacity)
    state = likelihood.extend(likelihood.resize(parents.state, capacity), order[parents.depth], row)
    return Nodes(state, columns.after(row), parents.depth + 1, log_likelihood), row


class Children(NamedTuple):
    """Per node, candidate and number of new features: log p(rows so far and this one), rank, upper score.

    Candidates that are not there have rank −inf. left_out: upper score of every child that is not among them.
    """

    bits: Bool[np.ndarray, "node candidate feature"]
    new: Int64[np.ndarray, "node count"]
    log_likelihood: Float64[np.ndarray, "node candidate count"]
    rank: Float64[np.ndarray, "node candidate count"]
    upper: Float64[np.ndarray, "node candidate count"]
    left_out: Float64[np.ndarray, " node"]


@lru_cache(maxsize=256)
def assignments(groups: tuple[int, ...]) -> Bool[np.ndarray, "candidate feature"]:
    """All choices of 0 … g from each group of g equal columns, its first ones first: (Π(g + 1), Σg)."""
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


def _all_assignments(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """bits (node, candidate, feature) and which of them are there, padded to the longest list."""
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
    """Assignments one feature at a time: at most `width` are kept after each, those undecided counting as skipped.

    score: bits (node, candidate, feature) → (node, candidate). Also returns whether a node lost any.
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


def expand(setting: Setting, nodes: Nodes, reached: Callable[[Children], tuple[float, float]]) -> Children:
    """Score the children of nodes.

    reached: the children so far → the (rank, upper score) that a further child must exceed to be of use; more new
    features are tried until no child left out can exceed both.
    """
    scored = _Scorer(setting, nodes)
    if setting.expansion == "paper":
        count = np.maximum(1, np.floor(setting.alpha / (nodes.depth + 1))).astype(np.int64)
        return scored.children(np.stack([np.zeros_like(count), count], axis=1), 2 * int(count.max()))
    most = 1 + int(setting.alpha / (nodes.depth.min() + 1))
    while True:
        children = scored.children(np.tile(np.arange(most + 1), (len(nodes.depth), 1)), most)
        rank, upper = reached(children)
        if not scored.useful_beyond(most, rank, upper):
            return children
        most *= 2


class _Scorer:
    """The assignments of opened features, once, and their scores with any numbers of new ones."""

    def __init__(self, setting: Setting, nodes: Nodes):
        self.setting, self.nodes = setting, nodes
        self.rows = setting.order[nodes.depth]
        self.terms = setting.likelihood.prepare(nodes.state, self.rows)
        self.room = setting.most_features - nodes.columns.count
        bit = self._gains(1)[1].bit
        if setting.expansion == "column":

            def score(bits: np.ndarray) -> np.ndarray:
                none = np.zeros((len(bits), 1), np.int64)
                return setting.likelihood.log_predictive(self.terms, bits, none)[:, :, 0] + _dot(bits, bit)

            self.bits, self.there, self.cut = best_by_column(score, nodes.columns, setting.width)
        else:
            (self.bits, self.there), self.cut = _all_assignments(nodes.columns), np.zeros(len(nodes.depth), bool)

    def _gains(self, most: int) -> tuple[Gains, Gains]:
        """Of the best completion, and those that rank; new features 0 … at least most + 1, falling at the end."""
        nodes, setting = self.nodes, self.setting
        n_rows = len(setting.order)
        while True:
            best = best_completion_gains(nodes.columns, nodes.depth, n_rows, setting.alpha, most + 1)
            rank = best if setting.completed_rank else class_gains(nodes.columns, nodes.depth, setting.alpha, most + 1)
            if np.all(best.new[:, -1] <= best.new[:, -2]) and np.all(rank.new[:, -1] <= rank.new[:, -2]):
                return best, rank
            most *= 2

    def _bounds(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """(node, j): at least the upper score and at least the rank of any child with j new; both fall at the end."""
        best, rank = self._gains(most)
        count = np.arange(best.new.shape[1])
        row = self.setting.likelihood.row_bound(self.rows, count) + self.nodes.log_likelihood[:, None]
        after = self.nodes.depth + 1

        def bound(gains: Gains, rest: np.ndarray) -> np.ndarray:
            return row + (gains.base + np.maximum(gains.bit, 0.0).sum(axis=1) + rest[after])[:, None] + gains.new

        return bound(best, self.setting.remaining), bound(rank, self.setting.outlook)

    def useful_beyond(self, most: int, rank: float, upper: float) -> bool:
        """Whether a child with more than `most` new features might exceed both."""
        upper_bound, rank_bound = self._bounds(most)
        within = (np.arange(upper_bound.shape[1]) > most) & (self.room[:, None] > most)
        return bool(np.any(within & (upper_bound > upper) & (rank_bound > rank)))

    def children(self, new: Int64[np.ndarray, "node count"], most: int) -> Children:
        """new: at most `most` each."""
        setting, nodes, after = self.setting, self.nodes, self.nodes.depth + 1
        predictive = setting.likelihood.log_predictive(self.terms, self.bits, new)
        log_likelihood = nodes.log_likelihood[:, None, None] + predictive
        there = self.there[:, :, None] & (new <= self.room[:, None])[:, None, :]

        def score(gains: Gains, rest: np.ndarray) -> np.ndarray:
            prior = (gains.base + rest[after])[:, None] + _dot(self.bits, gains.bit)
            opened = np.take_along_axis(gains.new, new, axis=1)
            return np.where(there, log_likelihood + prior[:, :, None] + opened[:, None, :], -np.inf)

        best, ranking = self._gains(most)
        upper = score(best, setting.remaining)
        rank = upper if setting.completed_rank else score(ranking, setting.outlook)
        bound = self._bounds(most)[0]
        tried = (np.arange(bound.shape[1]) == new[:, :, None]).any(axis=1) & ~self.cut[:, None]
        tried &= np.arange(bound.shape[1]) <= self.room[:, None]
        return Children(self.bits, new, log_likelihood, rank, upper, np.where(tried, -np.inf, bound).max(axis=1))


def _dot(bits: Bool[np.ndarray, "node candidate feature"], gain: Float64[np.ndarray, "node feature"]) -> np.ndarray:
    return np.matmul(bits.astype(np.float64), gain[:, :, None])[:, :, 0]
