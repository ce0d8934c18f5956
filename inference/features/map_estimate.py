"""`map_features`: search for the most probable feature matrix, and bound how much more probable the best one can be."""

from dataclasses import dataclass, field
from typing import cast, get_args

import numpy as np
from jaxtyping import Int64

from lvsearch.inference.features.contract import BoundLikelihood, Likelihood, Loadings
from lvsearch.inference.features.expansion import Expansion, Setting, root_node
from lvsearch.inference.features.linear_gaussian import LinearGaussian
from lvsearch.inference.features.marginal import check_positive
from lvsearch.inference.features.order import (
    HEURISTICS,
    UNLIMITED,
    Heuristic,
    reachable_log_joint,
    single_row_likelihoods,
)
from lvsearch.inference.features.prior import left_ordered, log_prior
from lvsearch.inference.features.refine import log_joints
from lvsearch.inference.features.refine import refine as climb
from lvsearch.inference.features.searches import Beam, Progress, beam_search, best_first, place_next_row
from lvsearch.models.plain_arguments import one_of

FIRST_BEAM, FIRST_WIDTH = 10, 32
"""Matrices kept, and assignments kept per row, by the quick beam search that gives A* a matrix to beat."""


@dataclass(frozen=True)
class Online:
    """The state of a beam search that can go on with further rows.

    likelihood: the likelihood with its data so far.
    beam: the matrices kept.
    order: the rows in the order in which they were placed.
    alpha: the mean number of features of a row.
    width: how many matrices are kept after each row.
    expansion, expansion_width: which assignments of a row are tried, and how many are kept by "column".
    max_features: the most features of a matrix.
    """

    likelihood: BoundLikelihood
    beam: Beam
    order: Int64[np.ndarray, " row"]
    alpha: float
    width: int
    expansion: Expansion
    expansion_width: int
    max_features: int


@dataclass(frozen=True)
class MapFeatures:
    """A binary feature matrix found by search, and how good it is. Logs are in nats.

    | field | meaning |
    |---|---|
    | `features` | Z, (row, feature), columns in left order, rows as in X |
    | `log_joint` | log p(X, [Z]), loadings integrated out; all orders of the columns count as one matrix |
    | `gap` | no matrix exceeds log_joint + gap; 0 when the matrix is proved best |
    | `loadings` | posterior mean and standard deviation given Z and X, each (feature, column) |
    | `order` | rows in the order in which the search placed them |
    | `expanded` | how many partial matrices were extended by a row |
    | `at_cap` | whether Z has `max_features` features, so that more might be better |
    | `online` | what `extend` needs to go on; None after a search with beam=None |
    """

    features: Int64[np.ndarray, "row feature"]
    log_joint: float
    gap: float
    loadings: Loadings
    order: Int64[np.ndarray, " row"]
    expanded: int
    at_cap: bool
    online: Online | None = field(repr=False, default=None)

    def extend(self, X, observed=None) -> "MapFeatures":
        """Go on with the beam over further rows, one at a time in their order. Earlier rows keep their assignments.

        Matrices are ranked by log p(rows so far, their features), which needs no knowledge of rows to come. Placing
        rows in two calls therefore gives what one call gives.

        X: the further rows, (row, column).
        observed: booleans of the shape of X, True where a cell is known; None if all are.

        Raises ValueError after a search with beam=None, which keeps no beam, and for rows that do not fit.
        """
        if self.online is None:
            raise ValueError("got a result of beam=None, which keeps no beam; search with beam=10, or another number")
        return _extend(self.online, X, observed)


MOST_ALPHA = 1e4
"""The largest mean number of features of a row (α). Every plausible number of features is tried for every row."""


def map_features(
    X,
    *,
    alpha: float,
    sigma_x: float | None = None,
    sigma_a: float | None = None,
    beam: int | None = 10,
    heuristic: str = "admissible",
    expansion: str = "complete",
    likelihood: Likelihood | None = None,
    observed=None,
    max_features: int | None = None,
    order=None,
    width: int = 32,
    refine: int = 0,
    limit: int = 200_000,
    progress: Progress | None = None,
) -> MapFeatures:
    """Find the most probable matrix Z of binary features under the Indian buffet process prior.

    It maximises log p(X, [Z]), where [Z] is the class of all matrices that differ in the order of columns only.

    X: the data, N rows and D columns.
    alpha: the mean number of features per row.
    sigma_x, sigma_a: standard deviations of noise and loadings of the linear-Gaussian model x_n ~ N(z_nᵀA, σ_x²),
        a ~ N(0, σ_a²). Row n has data x_n and features z_n; A holds what each feature adds to each column.
    likelihood: another likelihood instead of these scales, such as `NoisyOr(…)` for binary X.
    observed: booleans (N, D), True where a cell is known. Without it every cell must be finite.

    | argument | value | meaning |
    |---|---|---|
    | `beam` | n | the n best matrices are kept after each row |
    |  | None | A*, which proves its answer best; for few rows |
    | `heuristic` | "admissible" | ranks by an upper score of the best completion, rows as given; a proof if beam=None |
    |  | "inadmissible" | ranks by the rows so far; unlikely rows first |
    |  | "clustered" | ranks by the rows so far; representatives of √N clusters first |
    | `expansion` | "complete" | all assignments of opened features, times every number of new ones up to a proved cap |
    |  | "paper" | the same times 0 or max(1, ⌊α/n⌋) new ones (Rai & Daumé) |
    |  | "column" | opened features one at a time, `width` assignments kept; for more than 16 features |
    | `order` | | row indices in the order to place them, instead of the heuristic's; np.arange(N) for a stream |
    | `max_features` | | no matrix with more features is made; the gap counts what was not tried |
    | `refine` | | sweeps of hill climbing from the matrix found, until nothing improves |
    | `limit` | | nodes that beam=None may expand before it returns the best found so far, with its gap |
    | `progress` | | called with (rows placed, N) |

    The gap is honest in every mode: it comes from upper scores of everything that was dropped, cut or not tried. The
    result is deterministic.

    Raises ValueError for data that the likelihood cannot describe, settings out of range, or a complete expansion of
    more than 65,536 assignments of one row.
    """
    # check the settings
    alpha = check_positive("alpha", alpha, MOST_ALPHA)
    heuristic = cast(Heuristic, one_of("heuristic", heuristic, get_args(Heuristic)))
    tried = cast(Expansion, one_of("expansion", expansion, get_args(Expansion)))
    for name, value in (("beam", beam), ("max_features", max_features), ("width", width), ("limit", limit)):
        if value is not None and not (isinstance(value, int | np.integer) and value >= 1):
            raise ValueError(f"got {name}={value!r}; expected a whole number of at least 1")
    if not (isinstance(refine, int) and refine >= 0):
        raise ValueError(f"got refine={refine!r}; expected a whole number of sweeps, 0 for none")
    bound = _choose_likelihood(likelihood, sigma_x, sigma_a).bind(X, observed)
    if bound.n_rows == 0:
        raise ValueError("got X without rows; expected at least one")
    most = _most_features(bound, max_features)
    plan = HEURISTICS[heuristic](bound, alpha, None if order is None else _check_order(order, bound.n_rows))
    setting = Setting(
        bound,
        plan.order,
        alpha,
        tried,
        width,
        most,
        plan.completed_rank,
        bound.remaining_bound(plan.order),
        plan.outlook,
    )
    # a score that some matrix is known to reach: nothing below it needs to be tried
    known = reachable_log_joint(single_row_likelihoods(bound), alpha, most)
    nothing = Beam(root_node(bound), (), -np.inf)
    if beam is not None:
        found = beam_search(setting, nothing, beam, known, progress)
        return _beam_result(Online(bound, found, plan.order, alpha, beam, tried, width, most), refine)
    return _best_first_result(setting, known, refine, limit, progress)


def _best_first_result(
    setting: Setting, known: float, sweeps: int, limit: int, progress: Progress | None
) -> MapFeatures:
    """Run A* with a quick beam search's matrix to beat, refine the best matrix if asked for, and return the result.

    known: a log p(X, [Z]) that some matrix is known to reach, nats.
    sweeps: the most sweeps of hill climbing; 0 for none.
    limit: the most partial matrices that A* extends.
    """
    bound, alpha, most = setting.likelihood, setting.alpha, setting.most_features
    quick = setting._replace(expansion="column", width=FIRST_WIDTH, completed_rank=False)
    first = beam_search(quick, Beam(root_node(bound), (), -np.inf), FIRST_BEAM, known)
    features = first.features(0)
    log_joint = float(first.nodes.log_likelihood[0]) + log_prior(features, alpha)
    outcome = best_first(setting, root_node(bound), log_joint, limit, progress)
    if outcome.features is not None:
        features, log_joint = outcome.features, outcome.log_joint
    Z = _restore_row_order(features, setting.order)
    Z, log_joint = _refine_if_asked(bound, Z, log_joint, alpha, sweeps, setting.width, most)
    gap = _gap(outcome.open, log_joint)
    return _make_result(bound, Z, log_joint, gap, setting.order, outcome.expanded, most, None)


def _restore_row_order(features: np.ndarray, order: np.ndarray) -> Int64[np.ndarray, "row feature"]:
    """Return the features with rows in the order of X.

    order: the row of X at each position of `features`.
    """
    Z = np.empty_like(features)
    Z[order] = features
    return Z


def _refine_if_asked(likelihood, Z, log_joint, alpha, sweeps, width, most) -> tuple[np.ndarray, float]:
    """Improve a feature matrix Z by hill climbing if `sweeps` is above 0. Returns the matrix and its score.

    The score is log p(X, features), nats; `log_joint` is that of Z.

    sweeps: the most sweeps; 0 for none.
    width: how many assignments are kept per row.
    most: the most features.
    """
    if not sweeps:
        return Z, log_joint
    better = climb(likelihood, Z, alpha, sweeps, width, most)
    return better, max(log_joint, float(log_joints(likelihood, [better], alpha)[0]))


def _make_result(likelihood, features, log_joint, gap, order, expanded, most, online) -> MapFeatures:
    """Collect the results of a search into a `MapFeatures`, with the columns of the features in left order.

    log_joint, gap: log p(X, features) of the matrix, and by how much another may exceed it, nats.
    order: the rows in the order in which they were placed.
    expanded: how many partial matrices were extended by a row.
    most: the most features allowed.
    online: what is needed to go on with further rows; None for none.
    """
    Z = left_ordered(features)
    return MapFeatures(Z, log_joint, gap, likelihood.loadings(Z), order, expanded, Z.shape[1] >= most, online)


ROUNDING = 1e-9
"""A gap below this many nats is the rounding of two sums of the same numbers, and counts as 0."""


def _gap(upper: float, found: float) -> float:
    """Return by how much the bound `upper` exceeds the log p(X, features) found, nats; 0 if that is rounding."""
    return upper - found if upper - found > ROUNDING else 0.0


def _beam_result(online: Online, sweeps: int = 0) -> MapFeatures:
    """Return the best matrix on a beam as a result, refined by `sweeps` sweeps of hill climbing."""
    beam = online.beam
    scores = [
        float(log_likelihood) + log_prior(beam.features(which), online.alpha)
        for which, log_likelihood in enumerate(beam.nodes.log_likelihood)
    ]
    best = int(np.argmax(scores))
    expanded = 1 + sum(len(step.parent) for step in beam.steps[:-1])
    Z, most = _restore_row_order(beam.features(best), online.order), online.max_features
    width = online.expansion_width
    Z, log_joint = _refine_if_asked(online.likelihood, Z, scores[best], online.alpha, sweeps, width, most)
    gap = _gap(beam.dropped, log_joint)
    return _make_result(online.likelihood, Z, log_joint, gap, online.order, expanded, most, online)


def _extend(online: Online, X, observed) -> MapFeatures:
    """Place further rows on a beam search's matrices, and return the best matrix as a result."""
    before, beam = online.likelihood, online.beam
    likelihood = before.with_rows(X, observed)
    order = np.concatenate([online.order, np.arange(before.n_rows, likelihood.n_rows)])
    nodes = beam.nodes._replace(state=likelihood.adopt(beam.nodes.state, before))
    by_itself = single_row_likelihoods(likelihood)[order]
    steps, dropped = list(beam.steps), beam.dropped
    for depth in range(before.n_rows, likelihood.n_rows):
        so_far, nothing = order[: depth + 1], np.zeros(depth + 2)
        setting = Setting(
            likelihood,
            so_far,
            online.alpha,
            online.expansion,
            online.expansion_width,
            online.max_features,
            True,
            nothing,
            nothing,
        )
        known = reachable_log_joint(by_itself[: depth + 1], online.alpha, online.max_features)
        nodes, step, left_out = place_next_row(setting, nodes, online.width, known)
        steps.append(step)
        # a further row multiplies the joint of what was dropped by at most its own bound: its prior factor is below 1
        row = float(likelihood.row_bound(so_far[-1:], np.zeros(1, np.int64))[0, 0])
        dropped = max(dropped + row, left_out)
    return _beam_result(
        Online(
            likelihood,
            Beam(nodes, tuple(steps), dropped),
            order,
            online.alpha,
            online.width,
            online.expansion,
            online.expansion_width,
            online.max_features,
        )
    )


def _choose_likelihood(likelihood: Likelihood | None, sigma_x, sigma_a) -> Likelihood:
    """Return the likelihood that the arguments name: the given one, or the linear-Gaussian one with these scales.

    Raises ValueError if the arguments name none, or two.
    """
    if likelihood is not None:
        if sigma_x is not None or sigma_a is not None:
            raise ValueError("got likelihood= and sigma_x or sigma_a; expected one or the other: scales belong to it")
        return likelihood
    if sigma_x is None or sigma_a is None:
        raise ValueError(
            "got no likelihood; expected sigma_x= and sigma_a= (linear-Gaussian), or likelihood=NoisyOr(…)"
        )
    return LinearGaussian(check_positive("sigma_x", sigma_x), check_positive("sigma_a", sigma_a))


def _most_features(likelihood: BoundLikelihood, max_features: int | None) -> int:
    """Return the most features a matrix may have: `max_features`, or the likelihood's limit if it is None.

    Raises ValueError if `max_features` is more than the likelihood can hold.
    """
    most = UNLIMITED if likelihood.most_features is None else likelihood.most_features
    if max_features is not None and max_features > most:
        raise ValueError(f"got max_features={max_features}; expected at most {most}, all that this likelihood can hold")
    return most if max_features is None else int(max_features)


def _check_order(order, n_rows: int) -> Int64[np.ndarray, " row"]:
    """Return the order as an integer array. Raises ValueError unless it is a permutation of the rows."""
    rows = np.asarray(order)
    if rows.shape != (n_rows,) or not np.array_equal(np.sort(rows), np.arange(n_rows)):
        raise ValueError(
            f"got an order that is not a permutation; expected the row indices 0 … {n_rows - 1}, each once"
        )
    return rows.astype(np.int64)
