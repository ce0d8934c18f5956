"""The interface of a likelihood of binary features, which is all that the search knows of it.

A likelihood is bound to data once (`bind`). The search's *nodes* are matrices of features of the rows placed so far. A
*state* is what these rows say about the loadings, what each feature adds to a row. States of several nodes lie along a
leading axis, with room for some number of features (the capacity). A feature that no row has is in its prior state, so
neither opening one nor raising the capacity changes any number. Logs are in nats. Rows are indices into the bound data.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64

State = Any
"""A NamedTuple of arrays with a leading node axis: what each node's rows say about the loadings."""


class Loadings(NamedTuple):
    """The posterior of the loadings given data and features: mean and standard deviation.

    A loading is what a feature adds to a column, or the probability that the column listens to it (`NoisyOr`).
    """

    mean: Float64[np.ndarray, "feature column"]
    sd: Float64[np.ndarray, "feature column"]


NodeRows = Int64[np.ndarray, " node"]
"""The index of a row of the data for each node."""
NodeBits = Bool[np.ndarray, "node feature"]
"""The features of one row of each node."""
CandidateBits = Bool[np.ndarray, "node candidate feature"]
"""The features of each candidate assignment of each node's next row."""
NewNumbers = Int64[np.ndarray, "node count"]
"""Numbers of new features of each node's next row."""
CandidateScores = Float64[np.ndarray, "node candidate count"]
"""Log probabilities of each candidate with each number of new features, nats."""


@runtime_checkable
class BoundLikelihood(Protocol):
    """A likelihood with its data: p(next row | its features, the rows before), with the loadings integrated out.

    It scores many nodes (matrices of features of the rows placed so far) and many assignments of the next row at once.
    """

    @property
    def n_rows(self) -> int:
        """The number of rows of the data."""
        ...

    @property
    def points(self) -> Float64[np.ndarray, "row column"]:
        """The data, 0 where not observed."""
        ...

    @property
    def observed(self) -> Bool[np.ndarray, "row column"]:
        """The mask of observed cells of the data."""
        ...

    @property
    def most_features(self) -> int | None:
        """The most features that the likelihood can hold; None for any number."""
        ...

    def empty(self, capacity: int) -> State:
        """Return the state of one node before any row, with room for `capacity` features.

        A node is a matrix of features of the rows placed so far, and its state is what they say about the loadings.
        """
        ...

    def resize(self, state: State, capacity: int) -> State:
        """Return the same state with room for `capacity` features, never fewer than it has."""
        ...

    def extend(self, state: State, rows: NodeRows, bits: NodeBits) -> State:
        """Return what each node's rows say about the loadings (the state) after it takes one more row.

        A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.

        rows: the index of the row of each node.
        bits: the row's features, newly opened ones included.
        """
        ...

    def remove(self, state: State, rows: NodeRows, bits: NodeBits) -> State:
        """Return what each node's rows say about the loadings (the state) without a row that it has taken.

        A node is a matrix of features of the rows placed so far. The row need not be the last one.

        rows: the index of the row of each node.
        bits: the features with which the row was taken.
        """
        ...

    def prepare(self, state: State, rows: NodeRows) -> Any:
        """Return the terms that `log_predictive` needs to score assignments of each node's next row.

        A node is a matrix of features of the rows placed so far.

        rows: the index of the next row of each node.
        """
        ...

    def log_predictive(self, terms: Any, bits: CandidateBits, new: NewNumbers) -> CandidateScores:
        """Return log p(next row | the node's rows, the row's features) for every candidate and number of new
        features, nats.

        A node is a matrix of features of the rows placed so far; a feature is opened if a placed row has it.

        terms: from `prepare`.
        bits: which opened features each candidate has.
        new: the numbers of new features to combine with each candidate.
        """
        ...

    def row_bound(self, rows: NodeRows, new: Int64[np.ndarray, " count"]) -> np.ndarray:
        """Return an upper bound on log p(row | other rows, features of all), of which `new` are new, (row, count),
        nats.

        It holds for any other rows and assignments, and never rises with `new`.

        rows: indices of rows.
        new: numbers of new features.
        """
        ...

    def remaining_bound(self, order: Int64[np.ndarray, " row"]) -> Float64[np.ndarray, " depth"]:
        """Return an upper bound on log p(rows from each depth on | rows before), for every choice of features, nats.

        Its entry n, from 0 to the number of rows, is for order[n:] given order[:n].

        order: the rows in the order in which they are placed.
        """
        ...

    def log_likelihoods(self, features: Bool[np.ndarray, "matrix row feature"]) -> Float64[np.ndarray, " matrix"]:
        """Return log p(data | features) of whole feature matrices, nats."""
        ...

    def loadings(self, Z: Int64[np.ndarray, "row feature"]) -> Loadings:
        """Return the posterior of the loadings given the features of all rows."""
        ...

    def with_rows(self, X: Any, observed: Any) -> "BoundLikelihood":
        """Return the same likelihood bound to further rows below the present ones.

        X: the further rows, (row, column).
        observed: booleans of the shape of X; None if all cells are observed.
        """
        ...

    def adopt(self, state: State, before: Any) -> State:
        """Return a state made by `before`, when fewer rows were bound, in this likelihood's layout."""
        ...


@runtime_checkable
class Likelihood(Protocol):
    """A likelihood with its hyper-parameters, but without data."""

    def bind(self, X: Any, observed: Any) -> BoundLikelihood:
        """Return the likelihood bound to data.

        X: the data, (row, column).
        observed: booleans of the shape of X; None if all cells are observed.

        Raises ValueError for data that the likelihood cannot describe.
        """
        ...
