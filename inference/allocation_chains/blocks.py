r"""Markov chains over partitions of the rows and of the columns of a matrix, under a block model of unknown sizes.

A block model has K row clusters and L column clusters, and a density for the cells of each block, which is a pair of
one of each (`models.block_model`). Here a part is the set of rows of one row cluster, or of columns of one column
cluster. Let t parts hold n_1 … n_t of the N rows, and u parts hold m_1 … m_u of the D columns. Weights and the
parameters of the blocks are integrated out, and labels of clusters are exchangeable. Then, with the concentrations a
and b of the weights,

    p(rows' partition | K) = K! / (K − t)! · Γ(K a) / Γ(K a + N) · Π_i Γ(n_i + a) / Γ(a),         t ≤ K
    p(columns' partition | L) = L! / (L − u)! · Γ(L b) / Γ(L b + D) · Π_j Γ(m_j + b) / Γ(b),      u ≤ L
    log p(cells | both) = Σ_ij [A(λ + S_ij) − A(λ)] + Σ log h(x),

where S_ij is the sum of the cells' statistics over the block of parts i and j, λ are the natural parameters of a
block's prior, A is its log-normaliser, and h(x) the factor of a cell's density without parameters. K and L enter
through the first two factors of each line alone. With f_K(t) and g_L(u) these two factors, and any prior p(K, L),

    p(both partitions) = V(t, u) Π_i Γ(n_i + a) / Γ(a) Π_j Γ(m_j + b) / Γ(b),    V(t, u) = Σ_KL p(K, L) f_K(t) g_L(u)
    p(K, L | both partitions, cells) = p(K, L) f_K(t) g_L(u) / V(t, u).

So p(K, L | cells) is the average of the last line over draws of both partitions (`run`). The two partitions depend on
each other through V too, unless the prior makes K and L independent.

Given the columns' partition, the rows are a mixture: the cells of a row in one part of the columns are independent
draws from one block, so that the row has the statistics Σ of its cells in each part. A step therefore makes the moves
of `partitions` for the rows, with V(·, u) as the prior weight of their parts. Then it makes them for the columns given
the rows, with V(t, ·). Rows and columns for jumps are drawn by the order of the main directions of the matrix
(`main_orders`).
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lvsearch.inference.allocation_chains.contract import AllocationState, state_on_host
from lvsearch.inference.allocation_chains.partitions import PartitionChain
from lvsearch.inference.allocation_chains.seating import SeatPrior, log_part_weights
from lvsearch.inference.block_models.chain import layout_of, packed_cells
from lvsearch.inference.data.statistic_layout import StatisticLayout
from lvsearch.inference.evidence.mixtures import CollapsedMixtureChain
from lvsearch.inference.generators import generator
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.components import Component
from lvsearch.models.units import Row

DIRECTIONS = 8
"""The largest number of directions of a matrix by which rows, and columns, are ordered for split-merge jumps."""


class BlockPartitionChain(eqx.Module):
    """Markov chains over the partitions of the rows and of the columns of a matrix.

    Labels are those of the rows and then of the columns, (row + column, particle). The rows of padding have −1.

    | field | meaning | shape |
    |---|---|---|
    | `component` | the kind of component of the cells of a block | |
    | `concentrations` | a and b, of the weights of row clusters and of column clusters | two of (1,) |
    | `increments` | s(x_nd), the statistics of each cell, packed | (row, column, statistic) |
    | `weight` | 0 for rows of padding, else 1 | (row,) |
    | `log_weights` | log V(t, u), the prior weight of t and u parts, nats | (row parts, column parts) |
    | `size_given_parts` | p(K, L given t and u parts) | (row parts, column parts, K, L) |
    | `in_order` | numbers of rows, and of columns, in the order of directions (`main_orders`) | (direction, each) |
    | `n_places` | the number of array slots (places) for parts on each side; a side may need fewer | |
    | `places` | the number of places on each side | |
    """

    component: Component
    concentrations: tuple[Float[np.ndarray | Array, "one"], Float[np.ndarray | Array, "one"]]
    increments: Float[np.ndarray | Array, "row column statistic"]
    weight: Float[np.ndarray | Array, " row"]
    log_weights: Float[np.ndarray | Array, "row_parts column_parts"]
    size_given_parts: Float[np.ndarray | Array, "row_parts column_parts row_size column_size"]
    in_order: tuple[
        Int[np.ndarray | Array, "directions_of_rows row"], Int[np.ndarray | Array, "directions_of_columns column"]
    ]
    n_places: int = eqx.field(static=True)
    places: tuple[int, int] = eqx.field(static=True)

    @classmethod
    def from_data(
        cls,
        model: LatentBlockModel,
        units: Row,
        weight: Float[np.ndarray, " row"],
        log_prior: Float[np.ndarray, "row_size column_size"],
        places: int,
    ) -> "BlockPartitionChain":
        """Return chains over both partitions of a matrix.

        model: the block model. units: the rows, with padding. weight: 0 for rows of padding, else 1.
        log_prior: log p(K, L) of K = 1, 2, … row clusters and L = 1, 2, … column clusters, nats; −∞ for excluded pairs.
        places: the number of places wanted on each side. A side has no more than it has rows or columns, or sizes.

        Raises ValueError for cells without a density.
        """
        model.component.check(units)
        numbers = int(np.sum(weight > 0)), np.shape(units.value)[1]
        own = [min(places, number, size) for number, size in zip(numbers, log_prior.shape, strict=True)]
        concentrations = [
            np.atleast_1d(np.asarray(each, np.float64))
            for each in (model.row_concentration, model.column_concentration)
        ]
        of_rows, of_columns = (
            log_part_weights(np.zeros(size), np.repeat(each, size), number, most)
            for size, each, number, most in zip(log_prior.shape, concentrations, numbers, own, strict=True)
        )
        log_joint = log_prior + of_rows[:, None, :, None] + of_columns[:, None]
        log_weights = np.logaddexp.reduce(log_joint.reshape(*log_joint.shape[:2], -1), axis=2)
        possible = np.isfinite(log_weights)[..., None, None]
        given = np.exp(np.where(possible, log_joint - np.where(possible, log_weights[..., None, None], 0.0), -np.inf))
        with jax.enable_x64(True):
            increments = np.asarray(packed_cells(model, units)[0])
        return cls(
            model.component,
            (concentrations[0], concentrations[1]),
            increments,
            weight,
            log_weights,
            given,
            main_orders(increments, weight),
            places,
            (own[0], own[1]),
        )

    def most_places(self) -> tuple[int, int]:
        """Return the number of places that is enough for the rows, and for the columns."""
        n_rows, n_columns = int(np.sum(np.asarray(self.weight) > 0)), self.increments.shape[1]
        row_size, column_size = self.size_given_parts.shape[2:]
        return min(n_rows, row_size), min(n_columns, column_size)

    @property
    def has_warm_up(self) -> bool:
        """False: split-merge jumps are enough."""
        return False

    def init(self, key: Key[Array, ""], particles: int) -> AllocationState:
        """Return states to begin with that are far apart from each other.

        In half of the particles no row is in a part yet, so that the first sweep allocates the rows one after another,
        given columns that are in parts drawn from all places. In a quarter all rows are in one part, and all columns.
        In a quarter each row and each column is in a part drawn from a quarter of the places.

        particles: the number of chains.
        """
        draws, kind, labels = generator(key), np.arange(particles) % 4, []
        for number, places in zip((len(self.weight), self.increments.shape[1]), self.places, strict=True):
            scattered = draws.integers(0, np.where(kind < 2, places, max(1, places // 4)), (number, particles))
            labels.append(np.where(kind == 2, 0, scattered))
        labels[0] = np.where((kind < 2) | (np.asarray(self.weight)[:, None] == 0), -1, labels[0])
        return state_on_host(np.concatenate(labels).astype(np.int32), {})

    def resume(
        self, labels: np.ndarray, log_hyper: Mapping[str, np.ndarray], cells: np.ndarray | None = None
    ) -> AllocationState:
        """Return states with these labels, (row + column, particle). log_hyper, cells: not used; there are none."""
        return state_on_host(labels, {})

    def warm_up(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after a step: there are no other moves."""
        return self.step(key, state)

    def end_warm_up(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states as they are."""
        return state

    def step(self, key: Key[Array, ""], state: AllocationState) -> AllocationState:
        """Return the states after a sweep and some split-merge jumps of the rows, and then of the columns."""
        key_rows, key_columns = jax.random.split(key)
        rows, columns = self._sides(state.labels)
        rows = self.rows_given_columns(columns).step(key_rows, state._replace(labels=rows)).labels
        moved = self.columns_given_rows(rows).step(key_columns, state._replace(labels=columns))
        return moved._replace(labels=jnp.concatenate([rows, moved.labels]))

    def part_counts(self, labels: Int[Array, "element particle"]) -> Int[Array, "side particle"]:
        """Return the number of parts of the rows and of the columns, (side, particle)."""
        sides = zip(self._sides(labels), self.places, strict=True)
        return jnp.stack([_are_in_use(each, places).sum(0, dtype=jnp.int32) for each, places in sides])

    def groups(self, labels: Int[Array, "element particle"]) -> Int[Array, "row particle"]:
        """Return the number of the part that each row is in, (row, particle); −1 for padding."""
        return self._sides(labels)[0]

    def log_sizes(self, state: AllocationState) -> Float[Array, "row_size column_size particle"]:
        """Return log p(K, L | both partitions), (K, L, particle), nats."""
        rows, columns = self.part_counts(state.labels)
        return jnp.moveaxis(jnp.log(jnp.asarray(self.size_given_parts))[rows, columns], 0, -1)

    # ── one side given the other ────────────────────────────────────────────────────────────────────────────────────

    def rows_given_columns(self, columns: Int[Array, "column particle"]) -> PartitionChain:
        """Return the chain over partitions of the rows, given those of the columns. columns: labels of the columns."""
        log_weights = jnp.asarray(self.log_weights)[:, _are_in_use(columns, self.places[1]).sum(0)]
        return self._side(0, jnp.asarray(self.increments), jnp.asarray(self.weight), columns, log_weights)

    def columns_given_rows(self, rows: Int[Array, "row particle"]) -> PartitionChain:
        """Return the chain over partitions of the columns, given those of the rows. rows: labels of the rows."""
        log_weights = jnp.asarray(self.log_weights)[_are_in_use(rows, self.places[0]).sum(0)].T
        cells = jnp.swapaxes(jnp.asarray(self.increments), 0, 1)
        return self._side(1, cells, jnp.ones(len(cells), cells.dtype), rows, log_weights)

    def _side(
        self,
        side: int,
        cells: Float[Array, "row column statistic"],
        weight: Float[Array, " row"],
        others: Int[Array, "column particle"],
        log_weights: Float[Array, "parts particle"],
    ) -> PartitionChain:
        """Return the chain over partitions of one side, given the partition of the other; names are those for the rows.

        side: 0 for rows, 1 for columns. cells: statistics of the cells. weight: 0 for padding, else 1.
        others: labels of the columns.
        log_weights: log V of t = 0, 1, … parts of the rows beside the parts that the columns have, nats.
        """
        places, concentration = self.places[side], jnp.asarray(self.concentrations[side])
        in_part = (others[:, None] == jnp.arange(self.places[1 - side])[:, None]).astype(cells.dtype)
        sums = jnp.einsum("nds,dlp->nlps", cells, in_part)  # of each row's cells in each part of the columns
        by_part = layout_of(self.component).unpack(jnp.swapaxes(sums, 1, 2))  # (row, particle, part, …)
        prior = self.component.prior(self.places[1 - side])
        layout = StatisticLayout.of(prior)
        mixture = CollapsedMixtureChain(
            self.component,
            concentration[0],
            np.asarray(places),
            jnp.swapaxes(layout.pack(by_part), 1, 2)[:, None],
            jnp.zeros(len(cells)),
            jnp.zeros((len(cells), 1)),
            weight,
            layout.pack(prior),
            None,
            places,
            layout,
        )
        seating = SeatPrior(jnp.broadcast_to(concentration, others.shape[1]), log_weights, None, None)
        return PartitionChain(mixture, None, seating, self.in_order[side])

    def _sides(self, labels: Int[Array, "element particle"]) -> tuple[Array, Array]:
        """Return (labels of the rows, labels of the columns)."""
        return labels[: len(self.weight)], labels[len(self.weight) :]


def _are_in_use(labels: Int[Array, "row particle"], places: int) -> Array:
    """Return True for the places that some row's label names, (place, particle)."""
    return (labels[:, None] == jnp.arange(places, dtype=labels.dtype)[:, None]).any(0)


def main_orders(
    increments: Float[np.ndarray, "row column statistic"], weight: Float[np.ndarray, " row"]
) -> tuple[Int[np.ndarray, "directions_of_rows row"], Int[np.ndarray, "directions_of_columns column"]]:
    """Return the numbers of the rows, and of the columns, in the order of the main directions of a matrix.

    Directions are the singular vectors of the cells' statistics, each about its mean, with the largest singular values.
    Rows of one cluster are mostly near each other in some of them. Padding comes last.

    increments: statistics of each cell, 0 for missing cells and padding. weight: 0 for rows of padding, else 1.

    Returns: (numbers of the rows, (direction, row), numbers of the columns, (direction, column)).
    """
    centred = (increments - increments[weight > 0].mean((0, 1))) * weight[:, None, None]
    orders = []
    for side, own in ((centred, weight), (np.swapaxes(centred, 0, 1), np.ones(increments.shape[1]))):
        left, values, _ = np.linalg.svd(side.reshape(len(side), -1), full_matrices=False)
        # rounding errors have no direction; their order is that of the rows
        scores = np.where(values > 1e-9 * values.max(), left, 0.0)[:, :DIRECTIONS]
        orders.append(np.argsort(np.where(own[:, None] > 0, scores, np.inf), axis=0, kind="stable").T.astype(np.int32))
    return orders[0], orders[1]
