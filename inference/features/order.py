"""The three heuristics: in which order rows are placed, and what is expected of those still to come.

admissible    rows as given; nodes ranked by an upper score of their best completion: a proof, and a slow one
inadmissible  rows by increasing marginal likelihood; each row still to come is expected to open one feature of its own
clustered     a few rows that stand for clusters come first; the others are expected to share their features

The last two rank by log P(rows so far, their class) plus that expectation, and do not depend on how many rows follow.
(Rai & Daumé §4. An expectation that is the same for all nodes of a depth moves a best-first queue, not a beam: there
the heuristics differ by the order of rows and by the prior, completed or so far.)
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from lvsearch.inference.features.beam import Beam, beam_search
from lvsearch.inference.features.contract import BoundLikelihood
from lvsearch.inference.features.expansion import Setting, root, take
from lvsearch.inference.features.prior import harmonic

Heuristic = Literal["admissible", "inadmissible", "clustered"]


class Plan(NamedTuple):
    """order: rows as they are placed. completed_rank: by upper score. outlook: expected of the rows from a depth on."""

    order: Int64[np.ndarray, " row"]
    completed_rank: bool
    outlook: Float64[np.ndarray, " depth"]


def alone(likelihood: BoundLikelihood) -> Float64[np.ndarray, "row two"]:
    """log p(x_n) of every row by itself: without features, and with one that is its own."""
    rows = np.arange(likelihood.n_rows)
    state = take(likelihood.empty(1), np.zeros_like(rows))
    new = np.tile([0, 1], (len(rows), 1))
    return likelihood.log_predictive(likelihood.prepare(state, rows), np.zeros((len(rows), 1, 1), bool), new)[:, 0]


def reachable(by_itself: Float64[np.ndarray, "row two"], alpha: float, most_features: int) -> float:
    """A log joint that some matrix has: no features at all, or one of its own for every row."""
    n_rows = len(by_itself)
    empty, own = by_itself.sum(axis=0) - alpha * harmonic(n_rows)
    return float(max(empty, own + n_rows * np.log(alpha / n_rows)) if n_rows <= most_features else empty)


def _outlook(expected: Float64[np.ndarray, " row"]) -> Float64[np.ndarray, " depth"]:
    """Sums over the rows from each depth on."""
    return np.append(np.cumsum(expected[::-1])[::-1], 0.0)


def admissible(likelihood: BoundLikelihood, alpha: float, order: np.ndarray | None) -> Plan:
    """Ranked by the best completion's prior and a bound on the likelihood of the rest."""
    order = np.arange(likelihood.n_rows) if order is None else order
    return Plan(order, True, likelihood.remaining_bound(order))


def inadmissible(likelihood: BoundLikelihood, alpha: float, order: np.ndarray | None) -> Plan:
    """Each row to come is expected to open one feature of its own."""
    own = alone(likelihood)[:, 1]
    order = np.argsort(own, kind="stable") if order is None else order
    position = np.arange(1, len(order) + 1)
    return Plan(order, False, _outlook(own[order] + np.log(alpha / position) - alpha / position))


def clustered(likelihood: BoundLikelihood, alpha: float, order: np.ndarray | None) -> Plan:
    """A small search over the representatives gives each its features; a row is expected to have those of its own."""
    representatives, member_of = farthest_first(likelihood.points, likelihood.observed)
    limit = likelihood.most_features or UNLIMITED
    remaining = likelihood.remaining_bound(representatives)
    setting = Setting(likelihood, representatives, alpha, "column", COARSE_WIDTH, limit, True, remaining, remaining)
    known = reachable(alone(likelihood)[representatives], alpha, limit)
    coarse = beam_search(setting, Beam(root(likelihood), (), -np.inf), COARSE_BEAM, known)
    features = coarse.features(0)
    rows = np.arange(likelihood.n_rows)
    bits = np.zeros((len(rows), 1, coarse.nodes.columns.ones.shape[1]), bool)
    bits[:, 0, : features.shape[1]] = features[member_of]
    terms = likelihood.prepare(take(coarse.nodes.state, np.zeros_like(rows)), rows)
    expected = likelihood.log_predictive(terms, bits, np.zeros((len(rows), 1), np.int64))[:, 0, 0]
    if order is None:
        others = np.setdiff1d(np.argsort(alone(likelihood)[:, 1], kind="stable"), representatives, assume_unique=True)
        order = np.concatenate([representatives, others])
    return Plan(order, False, _outlook(expected[order]))


UNLIMITED = 1 << 30
"""Where neither the caller nor the likelihood limits the number of features."""

COARSE_BEAM, COARSE_WIDTH = 5, 16


def farthest_first(points: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """√N rows, each the farthest from those before it, the first nearest to the mean; and whose cluster each row is in.

    Distance: mean square over the cells that both rows know.
    """
    seen = observed.astype(np.float64)
    mean = points.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)

    def distance(centre: np.ndarray, known: np.ndarray) -> np.ndarray:
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
    "admissible": admissible,
    "inadmissible": inadmissible,
    "clustered": clustered,
}
