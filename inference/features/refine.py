"""Hill climbing from a complete feature matrix, which finds what a beam missed because it never goes back to a row.

Rows are reseated one at a time. Row n is taken out of the state and given its best features z in view of all others:

  log p(x_n | z, other rows) + Σ_k z_k log m_−nk / (N − m_−nk) + j log α/N − log j!,      j new features,

where m_−nk counts the other rows with feature k, N all rows, and α is the mean number of features of a row. If that
changes nothing, every column is dropped, or joined with, freed from or flipped by another column, and the best of these
matrices is taken. If that changes nothing either, each column in turn is dropped and all rows are reseated without it,
which separates features that only make sense together. Each step is kept only if it raises log p(X, [Z]).
"""

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.special import gammaln

from lvsearch.inference.features.contract import BoundLikelihood
from lvsearch.inference.features.expansion import best_by_column
from lvsearch.inference.features.prior import Columns, left_ordered, log_prior

MOST_NEW = 3
"""The most new features tried for a row that is reseated. The next sweep can add more."""

AT_ONCE = 256
"""The number of matrices scored together."""

LEAST_GAIN = 1e-9
"""A gain of fewer nats than this is rounding."""

Features = Int64[np.ndarray, "row feature"]
"""A binary feature matrix."""
Other = Int64[np.ndarray, "row other"]
"""A binary feature matrix of the same rows, perhaps with another number of features."""


def refine(likelihood: BoundLikelihood, Z: Features, alpha: float, sweeps: int, width: int, most: int) -> Other:
    """Return a feature matrix found by hill climbing from Z, with log p(X, features) no lower than that of Z.

    Z: the matrix to begin with.
    alpha: the mean number of features of a row.
    sweeps: the most steps.
    width: how many assignments are kept per row where rows are reseated.
    most: the most features.

    Raises ValueError if Z has more features than that.
    """
    if Z.shape[1] > most:
        raise ValueError(f"got a matrix of {Z.shape[1]} features, expected at most {most}: drop some, or raise `most`")
    steps = (
        lambda now: _reseat_rows(likelihood, now, alpha, width, most),
        lambda now: _change_one_column(likelihood, now, alpha),
        lambda now: _drop_column_and_reseat(likelihood, now, alpha, width, most),
    )
    score = float(log_joints(likelihood, [Z], alpha)[0])
    for _ in range(sweeps):
        for step in steps:
            candidate = step(Z)
            value = float(log_joints(likelihood, [candidate], alpha)[0])
            if value > score + LEAST_GAIN:
                Z, score = candidate, value
                break
        else:
            break
    return Z


def log_joints(likelihood: BoundLikelihood, matrices: list[np.ndarray], alpha: float) -> Float64[np.ndarray, " matrix"]:
    """Return log p(X, features) of each of the matrices (row, feature), loadings integrated out, nats.

    alpha: the mean number of features of a row.
    """
    priors = np.array([log_prior(Z, alpha) for Z in matrices])
    capacity = max(1, *(Z.shape[1] for Z in matrices))
    values = np.zeros(len(matrices))
    for start in range(0, len(matrices), AT_ONCE):
        some = matrices[start : start + AT_ONCE]
        bits = np.zeros((len(some), likelihood.n_rows, capacity), bool)
        for which, Z in enumerate(some):
            bits[which, :, : Z.shape[1]] = Z
        values[start : start + AT_ONCE] = likelihood.log_likelihoods(bits)
    return priors + values


def _reseat_rows(likelihood: BoundLikelihood, Z: Features, alpha: float, width: int, most: int) -> Other:
    """Return the matrix after the rows, one at a time, were each given their best features in view of all others.

    A column that no row has any more is a feature in its prior state, and serves as the next new one. The columns of
    the result are in left order, without empty ones.

    alpha: the mean number of features of a row.
    width: how many assignments are kept per row.
    most: the most features.
    """
    n_rows = len(Z)
    capacity = max(1, min(Z.shape[1] + MOST_NEW, most))
    bits = np.zeros((n_rows, capacity), bool)
    bits[:, : Z.shape[1]] = Z
    state = likelihood.empty(capacity)
    for row in range(n_rows):
        state = likelihood.extend(state, np.array([row]), bits[[row]])
    ones = bits.sum(axis=0)
    for row in range(n_rows):
        row_index = np.array([row])
        state, ones = likelihood.remove(state, row_index, bits[[row]]), ones - bits[row]
        chosen, new = _best_row(likelihood, state, row_index, ones, n_rows, alpha, width, most)
        if new > np.sum(ones == 0):
            state = likelihood.resize(state, len(ones) + new)
            ones, bits, chosen = np.pad(ones, (0, new)), np.pad(bits, ((0, 0), (0, new))), np.pad(chosen, (0, new))
        chosen[np.flatnonzero(ones == 0)[:new]] = True
        bits[row] = chosen
        state, ones = likelihood.extend(state, row_index, bits[[row]]), ones + chosen
    return left_ordered(bits)


def _drop_column_and_reseat(likelihood: BoundLikelihood, Z: Features, alpha: float, width: int, most: int) -> Other:
    """Drop each column in turn and give every row its best features without it. Returns the best of these matrices.

    alpha: the mean number of features of a row.
    width: how many assignments are kept per row.
    most: the most features.
    """
    if not Z.shape[1]:
        return Z
    tried = [_reseat_rows(likelihood, np.delete(Z, k, axis=1), alpha, width, most) for k in range(Z.shape[1])]
    return tried[int(np.argmax(log_joints(likelihood, tried, alpha)))]


def _best_row(
    likelihood, state, row_index, ones, n_rows, alpha, width, most
) -> tuple[Bool[np.ndarray, " feature"], int]:
    """Return the best features of one row given all others, (feature,), and its best number of new features.

    state: the likelihood's state of all other rows.
    row_index: the index of the row, (1,).
    ones: how many other rows have each feature, (feature,).
    n_rows: the number of all rows.
    alpha: the mean number of features of a row.
    width: how many assignments are kept.
    most: the most features.
    """
    opened = ones > 0
    terms = likelihood.prepare(state, row_index)
    odds = np.where(opened, np.log(np.maximum(ones, 1) / (n_rows - ones)), 0.0)
    none = np.zeros((1, 1), np.int64)
    columns = Columns(ones[None], np.zeros((1, len(ones)), bool))

    def score(candidates: np.ndarray) -> np.ndarray:
        """Return log p(row) plus the prior log odds of every candidate without new features, (1, candidate), nats."""
        return likelihood.log_predictive(terms, candidates, none)[:, :, 0] + candidates @ odds

    candidates, _, _ = best_by_column(score, columns, width)
    count = np.arange(min(MOST_NEW, most - int(opened.sum())) + 1)
    total = likelihood.log_predictive(terms, candidates, count[None])[0] + (candidates[0] @ odds)[:, None]
    total = total + count * np.log(alpha / n_rows) - gammaln(count + 1)
    which, new = np.unravel_index(int(total.argmax()), total.shape)
    return candidates[0, which].copy(), int(new)


def _change_one_column(likelihood: BoundLikelihood, Z: Features, alpha: float) -> Other:
    """Return the best matrix that differs in one column: without it, or with it joined, freed or flipped by another.

    It has no more features than Z, so that no limit on features is needed. alpha: the mean number of features of a row.
    """
    columns = list(Z.T)
    changed = [np.delete(Z, k, axis=1) for k in range(len(columns))]
    for k, one in enumerate(columns):
        for other in (*columns[:k], *columns[k + 1 :]):
            for column in (one | other, one & (1 - other), one ^ other):
                changed.append(Z.copy())
                changed[-1][:, k] = column
    if not changed:
        return Z
    return left_ordered(changed[int(np.argmax(log_joints(likelihood, changed, alpha)))])
