"""The three heuristics: in which order rows are placed, and what is expected of those still to come.

A *node* of the search is a matrix of features of the rows placed so far. An *upper score* of a node is a number that
log p(X, features) of no completion exceeds.

| heuristic | what it does |
|---|---|
| admissible | takes rows as given, and ranks nodes by an upper score of their best completion: a proof, but slow |
| inadmissible | takes unlikely rows first, and expects each row still to come to open one feature of its own |
| clustered | takes representatives of clusters first, and expects the other rows to share their features |

The last two rank by log P(rows so far, their class) plus that expectation, and do not depend on how many rows follow.
(Rai & Daumé §4. An expectation that is the same for all nodes of a depth changes a best-first queue, but not a beam. In
a beam the heuristics differ by the order of rows, and by whether the prior is completed.)
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from lvsearch.inference.features.contract import BoundLikelihood
from lvsearch.inference.features.expansion import Setting, root_node, select_nodes
from lvsearch.inference.features.prior import harmonic
from lvsearch.inference.features.searches import Beam, beam_search

Heuristic = Literal["admissible", "inadmissible", "clustered"]


class Plan(NamedTuple):
    """The plan of a search over the rows.

    order: rows in the order in which they are placed.
    completed_rank: whether partial matrices are ranked by an upper bound on log p(X, features) of their completions.
    outlook: the log probability expected of the rows from each depth (number of rows placed) on, nats.
    """

    order: Int64[np.ndarray, " row"]
    completed_rank: bool
    outlook: Float64[np.ndarray, " depth"]


def single_row_likelihoods(likelihood: BoundLikelihood) -> Float64[np.ndarray, "row two"]:
    """Return log p(row) of every row by itself, nats: without features, and with one feature of its own."""
    rows = np.arange(likelihood.n_rows)
    state = select_nodes(likelihood.empty(1), np.zeros_like(rows))
    new = np.tile([0, 1], (len(rows), 1))
    return likelihood.log_predictive(likelihood.prepare(state, rows), np.zeros((len(rows), 1, 1), bool), new)[:, 0]


def reachable_log_joint(by_itself: Float64[np.ndarray, "row two"], alpha: float, most_features: int) -> float:
    """Return a log p(X, features) that some matrix has, nats: the matrix without features, or with one for every row.

    by_itself: log p(row) of every row by itself, without and with one feature of its own.
    alpha: the mean number of features of a row.
    most_features: the most features of a matrix.
    """
    n_rows = len(by_itself)
    empty, own = by_itself.sum(axis=0) - alpha * harmonic(n_rows)
    return float(max(empty, own + n_rows * np.log(alpha / n_rows)) if n_rows <= most_features else empty)


def _sum_from_each_depth(expected: Float64[np.ndarray, " row"]) -> Float64[np.ndarray, " depth"]:
    """Return the sums of `expected` over the rows from each position on; the last entry is 0."""
    return np.append(np.cumsum(expected[::-1])[::-1], 0.0)


def plan_admissible(likelihood: BoundLikelihood, alpha: float, order: np.ndarray | None) -> Plan:
    """Return a plan whose scores bound the best completion: its prior, and a bound on the likelihood of remaining rows.

    order: the order of rows; None keeps the data's.
    """
    order = np.arange(likelihood.n_rows) if order is None else order
    return Plan(order, True, likelihood.remaining_bound(order))


def plan_inadmissible(likelihood: BoundLikelihood, alpha: float, order: np.ndarray | None) -> Plan:
    """Return a plan whose outlook assumes that each row to come opens one feature of its own.

    The outlook sums log p(row | its own feature) and the prior of such features over the rows still to come.

    alpha: the mean number of features of a row.
    order: the order of rows; None takes the least likely rows first.
    """
    own = single_row_likelihoods(likelihood)[:, 1]
    order = np.argsort(own, kind="stable") if order is None else order
    position = np.arange(1, len(order) + 1)
    return Plan(order, False, _sum_from_each_depth(own[order] + np.log(alpha / position) - alpha / position))


def plan_clustered(likelihood: BoundLikelihood, alpha: float, order: np.ndarray | None) -> Plan:
    """Return a plan whose outlook assumes that each row to come has the features of its cluster's representative.

    Rows are clustered around representatives that are chosen farthest first. A small search over the representatives
    alone gives each its features. The outlook sums log p(row | those features) over the rows still to come.

    alpha: the mean number of features of a row.
    order: the order of rows; None takes the representatives first, then the least likely rows.
    """
    representatives, member_of = farthest_first(likelihood.points, likelihood.observed)
    limit = likelihood.most_features or UNLIMITED
    remaining = likelihood.remaining_bound(representatives)
    setting = Setting(likelihood, representatives, alpha, "column", COARSE_WIDTH, limit, True, remaining, remaining)
    known = reachable_log_joint(single_row_likelihoods(likelihood)[representatives], alpha, limit)
    coarse = beam_search(setting, Beam(root_node(likelihood), (), -np.inf), COARSE_BEAM, known)
    features = coarse.features(0)
    rows = np.arange(likelihood.n_rows)
    bits = np.zeros((len(rows), 1, coarse.nodes.columns.ones.shape[1]), bool)
    bits[:, 0, : features.shape[1]] = features[member_of]
    terms = likelihood.prepare(select_nodes(coarse.nodes.state, np.zeros_like(rows)), rows)
    expected = likelihood.log_predictive(terms, bits, np.zeros((len(rows), 1), np.int64))[:, 0, 0]
    if order is None:
        others = np.setdiff1d(
            np.argsort(single_row_likelihoods(likelihood)[:, 1], kind="stable"), representatives, assume_unique=True
        )
        order = np.concatenate([representatives, others])
    return Plan(order, False, _sum_from_each_depth(expected[order]))


UNLIMITED = 1 << 30
"""The number of features allowed if neither the caller nor the likelihood limits it."""

COARSE_BEAM, COARSE_WIDTH = 5, 16
"""Matrices kept, and assignments kept per row, by the small search over representatives."""


def farthest_first(points: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose √(number of rows) representative rows. Returns their indices, and which of them each row is nearest to.

    The first one is nearest to the mean, and each other one farthest from those before it. Distance is the mean square
    over the cells that both rows know.

    points: the data, (row, column). observed: which cells are known.
    """
    seen = observed.astype(np.float64)
    mean = points.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)

    def distance(centre: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Return the mean square distance of every row from `centre`, (row,), over the cells that both know."""
        both = seen * known
        return (both * (points - centre) ** 2).sum(axis=1) / np.maximum(both.sum(axis=1), 1)

    chosen = [int(distance(mean, np.ones(points.shape[1])).argmin())]
    nearest, member_of = distance(points[chosen[0]], seen[chosen[0]]), np.zeros(len(points), np.int64)
    while len(chosen) < int(np.ceil(np.sqrt(len(points)))):
        new = int(np.where(np.isin(np.arange(len(points)), chosen), -np.inf, nearest).argmax())
        away = distance(points[new], seen[new])
        member_of[away < nearest] = len(chosen)
        nearest = np.minimum(nearest, away)
        chosen.append(new)
    member_of[chosen] = np.arange(len(chosen))
    return np.array(chosen), member_of


HEURISTICS: dict[str, Callable[[BoundLikelihood, float, np.ndarray | None], Plan]] = {
    "admissible": plan_admissible,
    "inadmissible": plan_inadmissible,
    "clustered": plan_clustered,
}
"""The functions that make a search's plan, by the name of the heuristic."""
