"""The interface of a likelihood, which is all that the search knows of it.

A likelihood is bound to data once (`bind`). A *state* is what the rows placed so far say about the loadings. States of
several nodes of the search lie along a leading axis, at some capacity of features. A feature that no row has is in its
prior state, so neither opening one nor raising the capacity changes any number. Logs are in nats. Rows are indices into
the bound data.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64

State = Any
"""A NamedTuple of arrays with a leading node axis."""


class Loadings(NamedTuple):
    """The posterior of the loadings given Z and X: mean and standard deviation of a_kd (or of the probability p(y_kd =
    1)).
    """

    mean: Float64[np.ndarray, "feature column"]
    sd: Float64[np.ndarray, "feature column"]


@runtime_checkable
class BoundLikelihood(Protocol):
    """p(x_n | z_n, the rows before) with the loadings integrated out, for many nodes and assignments at once."""

    @property
    def n_rows(self) -> int: ...

    @property
    def points(self) -> Float64[np.ndarray, "row column"]:
        """The data, 0 where not observed."""
        ...

    @property
    def observed(self) -> Bool[np.ndarray, "row column"]: ...

    @property
    def most_features(self) -> int | None:
        """The most features that the likelihood can hold; None for any number."""
        ...

    def empty(self, capacity: int) -> State:
        """Return the state of one node before any row."""
        ...

    def resize(self, state: State, capacity: int) -> State:
        """Return the same state with room for `capacity` features, never fewer than it has."""
        ...

    def extend(self, state: State, rows: Int64[np.ndarray, " node"], bits: Bool[np.ndarray, "node feature"]) -> State:
        """Return each node's state after it takes a row with the features `bits`, newly opened ones included."""
        ...

    def remove(self, state: State, rows: Int64[np.ndarray, " node"], bits: Bool[np.ndarray, "node feature"]) -> State:
        """Return each node's state without a row that it has taken. It need not be the last one."""
        ...

    def prepare(self, state: State, rows: Int64[np.ndarray, " node"]) -> Any:
        """Return whatever `log_predictive` needs of each node to score assignments of its next row."""
        ...

    def log_predictive(
        self, terms: Any, bits: Bool[np.ndarray, "node candidate feature"], new: Int64[np.ndarray, "node count"]
    ) -> Float64[np.ndarray, "node candidate count"]:
        """Return log p(x_row | the node's rows, opened features `bits` and `new` further ones), nats."""
        ...

    def row_bound(self, rows: Int64[np.ndarray, " node"], new: Int64[np.ndarray, " count"]) -> np.ndarray:
        """Return an upper bound (node, count) on log p(x_row | other rows, an assignment that opens `new` features),
        nats.

        It holds for any other rows and assignments, and never rises with `new`.
        """
        ...

    def remaining_bound(self, order: Int64[np.ndarray, " row"]) -> Float64[np.ndarray, " depth"]:
        """Return an upper bound (len(order) + 1,) on log p(rows order[n:] | rows order[:n]) that holds for every Z,
        nats.
        """
        ...

    def log_likelihoods(self, features: Bool[np.ndarray, "matrix row feature"]) -> Float64[np.ndarray, " matrix"]:
        """Return log p(X | Z) of whole matrices, nats."""
        ...

    def loadings(self, Z: Int64[np.ndarray, "row feature"]) -> Loadings:
        """Return the posterior of the loadings given the features of all rows."""
        ...

    def with_rows(self, X: Any, observed: Any) -> "BoundLikelihood":
        """Return the same likelihood bound to further rows below the present ones."""
        ...

    def adopt(self, state: State, before: Any) -> State:
        """Convert a state made by `before`, when fewer rows were bound, to this likelihood's layout."""
        ...


@runtime_checkable
class Likelihood(Protocol):
    """A likelihood with its hyper-parameters, but without data."""

    def bind(self, X: Any, observed: Any) -> BoundLikelihood:
        """Return the likelihood bound to data. Raises ValueError for data that it cannot describe.

        X: (N, D).
        observed: None or booleans (N, D).
        """
        ...
