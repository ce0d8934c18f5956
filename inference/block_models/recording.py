"""The recorder of a block model's states, and the states that hold the latent variables of simulated data.

Recorded are how many clusters are occupied, their sizes, and labels. The path of a block model may begin at the latent
variables that simulated data were drawn with.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.block_models.chain import BlockChain
from lvsearch.inference.block_models.state import BlockState, layout_of
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.engine.gibbs import GibbsState
from lvsearch.inference.evidence.simulation import Simulated, true_state
from lvsearch.inference.sampling.parameters import LabelReader, latents_reader, one_hot, places_in_batches
from lvsearch.inference.sampling.trace import Quantity, Recorder, recorder, rows_of_units
from lvsearch.models.block_model import COLUMN, ROW
from lvsearch.models.contract import Model
from lvsearch.models.kernels import kernel

_completed = kernel(brief=True)(lambda chain, *latents: chain.completed(*latents))


@true_state.register
def _true_state_of_blocks(chain: BlockChain, simulated: Simulated, particles: int) -> BlockState:
    """Return states that hold the true clusters of rows and columns, their weights and the blocks, one for each
    particle.

    simulated: data with the latent variables that they were drawn with.
    """
    g, (more_rows, more_columns) = simulated.globals, np.subtract(chain.capacity, simulated.size).tolist()

    def copies(leaf: Any, *more: int, padding: float = 0.0) -> Array:
        """Return an array repeated for every particle on a new last axis.

        more: how many empty array slots, of value `padding`, are added at the end of each of the first axes.
        """
        array = np.asarray(leaf)
        ends = [(0, n) for n in (*more, *[0] * (array.ndim - len(more)))]
        padded = np.pad(array, ends, constant_values=padding) if more else array
        return jnp.asarray(np.repeat(padded[..., None], particles, axis=-1))

    labels = (np.argmax(each, axis=-1).astype(np.int32) for each in (simulated.locals[ROW], g[COLUMN]))
    blocks = layout_of(chain.model.component).pack(g["blocks"])
    return _completed(
        chain,
        *map(copies, labels),
        copies(g["row_weights"], more_rows, padding=-np.inf),
        copies(g["column_weights"], more_columns, padding=-np.inf),
        copies(blocks, more_rows, more_columns),
    )


class BlockRecorder(Recorder):
    """A recorder of the number of occupied clusters on each side, of the rows and columns in each cluster, and on
    request of the cluster of each row and column.
    """

    order: Int[np.ndarray, " units"] | None

    def values(self, chain: BlockChain, state: BlockState) -> tuple[Array, ...]:
        """Return (occupied row clusters (particle,), occupied column clusters (particle,), rows (particle, row
        cluster), columns (particle, column cluster), cluster of each row (particle, unit) and column (particle, dim)).

        The last two are there on request only. Rows of padding are in no cluster.
        """
        n_row_clusters, n_column_clusters = chain.capacity
        weight = jnp.asarray(chain.weight)[:, None, None] > 0
        rows = ((state.rows[..., None] == jnp.arange(n_row_clusters)) & weight).sum(0, dtype=jnp.int32)
        columns = (state.columns[..., None] == jnp.arange(n_column_clusters)).sum(0, dtype=jnp.int32)
        used = ((each > 0).sum(-1, dtype=jnp.int32) for each in (rows, columns))
        labels = () if self.order is None else (state.rows[self.order].T, state.columns.T)
        return (*used, rows, columns, *labels)


@recorder.register
def _recorder_of_blocks(chain: BlockChain, data: Dataset, *, units: bool) -> BlockRecorder:
    """Return the recorder of a block model.

    data: the data set that the chain was made of.
    units: whether the clusters of each row and column are recorded too.
    """
    n_row_clusters, n_column_clusters = (int(n) for n in chain.size)
    counted = (
        Quantity("occupied_row_clusters", (), (), False),
        Quantity("occupied_column_clusters", (), (), False),
        Quantity("rows", ("row_cluster",), (n_row_clusters,), True),
        Quantity("columns", ("column_cluster",), (n_column_clusters,), True),
    )
    if not units:
        return BlockRecorder(counted, None)
    labels = (
        Quantity("row_cluster_of_unit", ("unit",), (data.n_units,), True, "row_cluster"),
        Quantity("column_cluster_of_dim", ("dim",), (chain.increments.shape[1],), True, "column_cluster"),
    )
    return BlockRecorder((*counted, *labels), rows_of_units(data))


class BlockReader(LabelReader):
    """The reader of the clusters of rows and columns."""

    def known(self, state: BlockState) -> GibbsState:
        """Return the cluster of each row and of each column, one-hot."""
        rows = tuple({ROW: one_hot(state.rows[places].T, self.capacity[0])} for places in self.places)
        return GibbsState({COLUMN: one_hot(state.columns.T, self.capacity[1])}, rows)


@latents_reader.register
def _reader_of_blocks(chain: BlockChain, model: Model, data: Dataset) -> BlockReader:
    """Return the reader of a block model's clusters. Given these, weights and blocks are independent of each other."""
    return BlockReader(model, chain.size, chain.capacity, 1, places_in_batches(data))
