"""The interface of chains over allocations, `AllocationChain`, and the states of such chains.

An allocation says which rows are together: in a mixture of rows, which rows are in the same component (a partition);
in a feature model, which rows have each feature; in a block model, which rows are in the same row cluster, and which
columns in the same column cluster (two partitions). The rows of one component, or those that have one feature, are
called a part. A part occupies one array slot, called a place.

A model has a side for each of its size variables, and each side has parts of its own. Mixtures and feature models have
one side. A block model has two, its rows and its columns. Tables over sizes K, or over numbers of parts, have one axis
for each side, written *size and *number.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Int, Key


class AllocationState(NamedTuple):
    """Allocations of the rows with the hyper-parameters, one per particle (chain), particles on the last axis.

    | field | meaning |
    |---|---|
    | `labels` | of partitions, (row, particle): k V + v for a row in place k and variant v of V; −1: in no part |
    | | of features, (row, place, particle): 1 if the row has the feature in this place, else 0 |
    | | of two partitions, (row + column, particle): those of the rows and then those of the columns |
    | `log_hyper` | logarithm of each hyper-parameter by name, (number, particle); no entry if it has no prior |
    | `log_rows` | log p(rows given allocation and hyper-parameters), nats, (particle,); 0 before the first sweep |
    | `cells` | cells of rows of which some are missing, where these are latent, (partial, dim, particle); else None |

    A hyper-parameter is one number, or one for each column of the data.
    A component may let its rows arise in one of V variants, such as several precisions; V is 1 for most components.
    `log_rows` leaves out the variants' probabilities, and the factors of the rows that depend neither on the allocation
    nor on parameters (carriers).
    """

    labels: Int[Array, "row *place particle"]
    log_hyper: dict[str, Float[Array, "number particle"]]
    log_rows: Float[Array, " particle"]
    cells: Float[Array, "partial dim particle"] | None = None


def state_on_host(labels: np.ndarray, log_hyper: Mapping[str, Any], cells: np.ndarray | None = None) -> AllocationState:
    """Return a state of NumPy arrays, to begin or to go on with. Arrays of JAX would each take a program to make.

    labels, log_hyper, cells: the fields of the state; `log_rows` is 0.
    """
    arrays: Any = labels, dict(log_hyper), np.zeros(labels.shape[-1]), cells
    return AllocationState(*arrays)


@runtime_checkable
class AllocationChain(Protocol):
    """Markov chains over allocations of rows, side by side, at most one part in each of `n_places` places of a side.

    Chains are pytrees. Their methods are pure, and are traced by JAX inside `jax.enable_x64`, except `init` and
    `resume`.
    """

    @property
    def n_places(self) -> int:
        """The number of array slots (places) that parts of one side can take."""
        ...

    def most_places(self) -> tuple[int, ...]:
        """Return the number of places on each side that is enough for every allocation."""
        ...

    @property
    def has_warm_up(self) -> bool:
        """True if `warm_up` makes other moves than `step`."""
        ...

    @property
    def size_given_parts(self) -> Float[Array | np.ndarray, "*number_and_size"] | None:
        """The table p(K given the number of parts on each side), (*number, *size); None if p(K | allocation) depends on
        more than these numbers. In that case `log_sizes` is called.
        """
        ...

    def init(self, key: Key[Array, ""], particles: int) -> AllocationState:
        """Return the states that chains begin with; each class says how they differ. particles: how many chains."""
        ...

    def resume(
        self, labels: np.ndarray, log_hyper: Mapping[str, np.ndarray], cells: np.ndarray | None = None
    ) -> AllocationState:
        """Return states with these labels, which may come from a chain with fewer places, hyper-parameters and cells
        (`AllocationState`).
        """
        ...

    def warm_up(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after moves towards probable states. They need not leave the posterior unchanged, so that
        the draws are not kept.
        """
        ...

    def end_warm_up(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after the last block of `warm_up`; some chains may go on from the state of another."""
        ...

    def step(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after moves that leave the posterior unchanged."""
        ...

    def part_counts(self, labels: Array) -> Int[Array, "side particle"]:
        """Return the number of parts on each side, (side, particle)."""
        ...

    def groups(self, labels: Array) -> Int[Array, "row particle"]:
        """Return the number of the part that each row is in, (row, particle), −1 for padding; (0, particle) if a row
        may be in several.
        """
        ...

    def log_sizes(self, state: AllocationState) -> Float[Array, "*size particle"]:
        """Return log p(K given the allocation and hyper-parameters) of the sizes K = 1, 2, … of each side, (*size,
        particle), nats.
        """
        ...
