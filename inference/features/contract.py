"""What the search asks of a likelihood, and all that it knows of one.

A likelihood is bound to data once (`bind`). A *state* is what the rows placed so far say about the loadings, one per
node of the search along a leading axis, at some capacity of features: a feature nobody has taken is in its prior state,
so opening one, or raising the capacity, changes no number. Logs are nats; rows are indices into the bound data.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64

State = Any
"""A NamedTuple of arrays with a leading node axis."""


class Loadings(NamedTuple):
    """Posterior of the loadings given Z and X: mean and standard deviation of a_kd (of the probability p(y_kd = 1))."""

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
        """The most features it can hold; None: any number."""
        ...

    def empty(self, capacity: int) -> State:
        """The state of one node before any row."""
        ...

    def resize(self, state: State, capacity: int) -> State:
        """The same state with room for `capacity` features, never fewer than it has."""
        ...

    def extend(self, state: State, rows: Int64[np.ndarray, " node"], bits: Bool[np.ndarray, "node feature"]) -> State:
        """Each node's state after it takes a row with the features `bits`, newly opened ones included."""
        ...

    def remove(self, state: State, rows: Int64[np.ndarray, " node"], bits: Bool[np.ndarray, "node feature"]) -> State:
        """`extend` undone, whenever the row was placed."""
        ...

    def prepare(self, state: State, rows: Int64[np.ndarray, " node"]) -> Any:
        """What `log_predictive` needs of each node to score assignments of its next row."""
        ...

    def log_predictive(
        self, terms: Any, bits: Bool[np.ndarray, "node candidate feature"], new: Int64[np.ndarray, "node count"]
    ) -> Float64[np.ndarray, "node candidate count"]:
        """log p(x_row | the node's rows, opened features `bits` and `new` further ones)."""
        ...

    def row_bound(self, rows: Int64[np.ndarray, " node"], new: Int64[np.ndarray, " count"]) -> np.ndarray:
        """(node, count): ≥ log p(x_row | any other rows, any assignment that opens `new`); never rises with `new`."""
        ...

    def remaining_bound(self, order: Int64[np.ndarray, " row"]) -> Float64[np.ndarray, " depth"]:
        """(len(order) + 1,): ≥ log p(the rows order[n:] | the rows order[:n]) for every Z."""
        ...

    def log_likelihoods(self, features: Bool[np.ndarray, "matrix row feature"]) -> Float64[np.ndarray, " matrix"]:
        """log p(X | Z) of whole matrices."""
        ...

    def loadings(self, Z: Int64[np.ndarray, "row feature"]) -> Loadings:
        """The posterior of the loadings given the features of all rows."""
        ...

    def with_rows(self, X: Any, observed: Any) -> "BoundLikelihood":
        """The same likelihood bound to further rows below the present ones."""
        ...

    def adopt(self, state: State, before: Any) -> State:
        """A state made when fewer rows were bound, as `before` made it, in this one's layout."""
        ...


@runtime_checkable
class Likelihood(Protocol):
    """A likelihood with its hyper-parameters and without data."""

    def bind(self, X: Any, observed: Any) -> BoundLikelihood:
        """X (N, D); observed: None or booleans (N, D). ValueError for data that it cannot describe."""
        ...
