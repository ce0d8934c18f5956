"""A likelihood of binary data: every feature that a row has and a column listens to may switch the cell on.

Source: Wood, Griffiths & Ghahramani (2006). Feature k, row n with features z_n, column d with y_kd = 1 if it listens to
    feature k:

  y_kd ~ Bernoulli(p),   P(x_nd = 1 | z_n, y_d) = 1 − (1 − ε) (1 − λ)^{z_n · y_d}

λ is the chance that one shared feature switches a cell on, ε the chance that a cell is on for no reason, and p the
chance that a column listens to a feature. y is summed out exactly. A state holds, per node (a matrix of features of the
rows so far) and column, log p(y_d | rows so far) over all 2^K patterns of K features, so K is limited. The next row
needs, for every assignment z of the K features and j new ones,

  P(x_nd = 0 | z, rows so far, j new) = (1 − ε) (1 − λp)^j Σ_y p(y | rows so far) (1 − λ)^{z·y}.

Since (1 − λ)^{z·y} is a product over features, the sum for all z at once is K passes over the table.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.special import logsumexp

from lvsearch.inference.features.contract import (
    CandidateBits,
    CandidateScores,
    Loadings,
    NewNumbers,
    NodeBits,
    NodeRows,
)
from lvsearch.inference.features.marginal import read_points

MOST_FEATURES = 12
"""The most features of a matrix: 4,096 patterns per column, so that ten matrices of 100 columns hold 33 MB."""


class PatternState(NamedTuple):
    """Log probability of each pattern of features to which a column listens, given the rows so far, nats.

    Bit k of the pattern's number is 1 if the column listens to feature k.
    """

    log_weight: Float64[np.ndarray, "node column pattern"]


class RowTerms(NamedTuple):
    """The terms from which the next row of each node is scored.

    A node is a matrix of features of the rows placed so far.

    silent: probability of a cell to stay off, without background and new features, for every assignment of the row, by
        its number (bit k is feature k).
    on: the row's cells.
    known: which cells were observed.
    """

    silent: Float64[np.ndarray, "node column assignment"]
    on: Bool[np.ndarray, "node column"]
    known: Bool[np.ndarray, "node column"]


@dataclass(frozen=True)
class NoisyOr:
    """The noisy-OR likelihood of binary data. All three numbers lie strictly between 0 and 1.

    strength: the chance that one feature that a row has, and a column listens to, switches the cell on.
    background: the chance that a cell is on for no reason.
    density: the chance that a column listens to a feature.
    """

    strength: float = 0.9
    background: float = 0.01
    density: float = 0.1

    def __post_init__(self) -> None:
        for name, value in (("strength", self.strength), ("background", self.background), ("density", self.density)):
            if not 0 < value < 1:
                raise ValueError(f"got {name}={value}; expected a probability strictly between 0 and 1")

    def bind(self, X, observed=None) -> "BoundNoisyOr":
        """Return the likelihood bound to data.

        X: zeros and ones, (row, column).
        observed: booleans of the shape of X, True where a cell is known; None if all are.

        Raises ValueError for other values.
        """
        points, mask = read_points(X, observed)
        if not np.isin(points, (0.0, 1.0)).all():
            raise ValueError("got X with values other than 0 and 1; expected binary data for NoisyOr: pass (X > 0)")
        return BoundNoisyOr(self, points, mask)


@dataclass(frozen=True)
class BoundNoisyOr:
    """The noisy-OR likelihood with its data."""

    model: NoisyOr
    points: Float64[np.ndarray, "row column"]
    observed: Bool[np.ndarray, "row column"]

    @property
    def n_rows(self) -> int:
        """The number of rows of the data."""
        return len(self.points)

    @property
    def most_features(self) -> int | None:
        """The most features that the likelihood can hold: `MOST_FEATURES`."""
        return MOST_FEATURES

    def empty(self, capacity: int) -> PatternState:
        """Return the state of one node before any row: the prior of the patterns of `capacity` features.

        A node is a matrix of features of the rows placed so far.
        """
        return self.resize(PatternState(np.zeros((1, self.points.shape[1], 1))), capacity)

    def resize(self, state: PatternState, capacity: int) -> PatternState:
        """Return the state with room for `capacity` features; the new ones have their prior.

        Raises ValueError for more than `MOST_FEATURES`.
        """
        if capacity > MOST_FEATURES:
            raise ValueError(
                f"got {capacity} features; expected at most {MOST_FEATURES}: NoisyOr sums over 2^K patterns"
            )
        log_weight = state.log_weight
        while log_weight.shape[-1] < 1 << capacity:
            deaf, listening = np.log1p(-self.model.density), np.log(self.model.density)
            log_weight = np.concatenate([log_weight + deaf, log_weight + listening], axis=-1)
        return PatternState(log_weight)

    def extend(self, state: PatternState, rows: NodeRows, bits: NodeBits) -> PatternState:
        """Return what each node's rows say about its patterns (the state) after it takes one more row.

        A node is a matrix of features of the rows placed so far. A pattern says to which features a column listens.

        rows: the index of the new row of each node.
        bits: the new row's features.
        """
        return self._multiply_by_row(state, rows, bits, 1.0)

    def remove(self, state: PatternState, rows: NodeRows, bits: NodeBits) -> PatternState:
        """Return what each node's rows say about its patterns (the state) without a row that it has taken.

        A node is a matrix of features of the rows placed so far. A pattern says to which features a column listens.

        rows: the index of the row of each node.
        bits: the features with which the row was taken.
        """
        return self._multiply_by_row(state, rows, bits, -1.0)

    def _multiply_by_row(self, state: PatternState, rows: np.ndarray, bits: np.ndarray, sign: float) -> PatternState:
        """Multiply each node's pattern probabilities by the row's likelihood (sign 1), or divide by it (−1), and
        normalise.

        A node is a matrix of features of the rows placed so far.

        rows: the index of the row of each node, (node,).
        bits: the row's features, (node, feature).
        """
        shared = np.zeros((len(bits), 1))  # z · y for every pattern y
        for k in range(bits.shape[1]):
            shared = np.concatenate([shared, shared + bits[:, k, None]], axis=1)
        log_off = np.log1p(-self.model.background) + shared * np.log1p(-self.model.strength)
        log_on = np.log(-np.expm1(log_off))
        cell = np.where((self.points[rows] > 0)[:, :, None], log_on[:, None], log_off[:, None])
        log_weight = state.log_weight + sign * np.where(self.observed[rows][:, :, None], cell, 0.0)
        return PatternState(log_weight - np.asarray(logsumexp(log_weight, axis=-1, keepdims=True)))

    def prepare(self, state: PatternState, rows: NodeRows) -> RowTerms:
        # the sum over y for all z at once: one pass for each feature, bit k of y turned into bit k of z
        """Return the terms from which every assignment of each node's next row is scored.

        A node is a matrix of features of the rows placed so far.
        """
        silent = np.exp(state.log_weight)
        leading, patterns = silent.shape[:2], silent.shape[2]
        for k in range(patterns.bit_length() - 1):
            deaf, listening = np.moveaxis(silent.reshape(*leading, -1, 2, 1 << k), -2, 0)
            both = np.stack([deaf + listening, deaf + (1 - self.model.strength) * listening], axis=-2)
            silent = both.reshape(*leading, patterns)
        return RowTerms(silent, self.points[rows] > 0, self.observed[rows])

    def log_predictive(self, terms: RowTerms, bits: CandidateBits, new: NewNumbers) -> CandidateScores:
        """Return log p(next row | the node's rows, the row's features) for every candidate and number of new
        features, nats.

        A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.

        terms: from `prepare`.
        bits: which opened features each candidate has.
        new: the numbers of new features to combine with each candidate.
        """
        number = bits @ (1 << np.arange(bits.shape[2]))
        silent = np.take_along_axis(terms.silent, number[:, None], axis=2)  # node, column, candidate
        unheard = (1 - self.model.background) * (1 - self.model.strength * self.model.density) ** new
        off = silent[..., None] * unheard[:, None, None]
        cell = np.log(np.where(terms.on[:, :, None, None], 1.0 - off, off))
        return np.einsum("ndcj,nd->ncj", cell, terms.known.astype(np.float64))

    def row_bound(self, rows: NodeRows, new: Int64[np.ndarray, " count"]) -> np.ndarray:
        """Return an upper bound on each row's log probability with `new` new features, (row, count), nats.

        A cell that is off has probability at most (1 − background)(1 − strength · density)^new, and one that is on at
        most 1.
        """
        off = (self.observed[rows] & (self.points[rows] == 0)).sum(axis=1)
        per_cell = np.log1p(-self.model.background) + new * np.log1p(-self.model.strength * self.model.density)
        return off[:, None] * per_cell

    def remaining_bound(self, order: Int64[np.ndarray, " row"]) -> Float64[np.ndarray, " depth"]:
        """Return an upper bound on the log probability of the rows from each depth on, (number of rows + 1,), nats.

        order: the rows in the order in which they are placed.
        """
        row = self.row_bound(order, np.zeros(1, np.int64))[:, 0]
        return np.append(np.cumsum(row[::-1])[::-1], 0.0)

    def log_likelihoods(self, features: Bool[np.ndarray, "matrix row feature"]) -> Float64[np.ndarray, " matrix"]:
        """Return log p(data | features) of whole feature matrices, nats."""
        matrices, n_rows, capacity = features.shape
        state = PatternState(np.repeat(self.empty(capacity).log_weight, matrices, axis=0))
        total, none_new = np.zeros(matrices), np.zeros((matrices, 1), np.int64)
        for row in range(n_rows):
            rows = np.full(matrices, row)
            terms = self.prepare(state, rows)
            total += self.log_predictive(terms, features[:, row, None], none_new)[:, 0, 0]
            state = self.extend(state, rows, features[:, row])
        return total

    def loadings(self, Z: Int64[np.ndarray, "row feature"]) -> Loadings:
        """Return the probability that each column listens to each feature, and its standard deviation, given all
        rows.
        """
        state = self.empty(Z.shape[1])
        for row, z in enumerate(Z):
            state = self.extend(state, np.array([row]), z[None] > 0)
        weight = np.exp(state.log_weight[0])
        listens = (np.arange(weight.shape[1]) >> np.arange(Z.shape[1])[:, None]) & 1
        mean = np.minimum(listens.astype(np.float64) @ weight.T, 1.0)  # sums of probabilities, rounded
        return Loadings(mean, np.sqrt(mean * (1.0 - mean)))

    def with_rows(self, X, observed=None) -> "BoundNoisyOr":
        """Return the same likelihood bound to further rows below the present ones.

        Raises ValueError for another number of columns.
        """
        further = self.model.bind(X, observed)
        if further.points.shape[1] != self.points.shape[1]:
            raise ValueError(
                f"got rows of {further.points.shape[1]} columns; expected {self.points.shape[1]}, as before"
            )
        return type(self)(
            self.model,
            np.concatenate([self.points, further.points]),
            np.concatenate([self.observed, further.observed]),
        )

    def adopt(self, state: PatternState, before: "BoundNoisyOr") -> PatternState:
        """Return the state unchanged, because its layout does not depend on the rows."""
        return state
