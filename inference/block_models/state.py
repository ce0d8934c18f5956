"""The arrays that the chain of block models reads and moves: packed statistics of cells, states, and q of a labelling.

The statistics of one cell are packed on one axis (`StatisticLayout`), so that blocks of every kind of component are one
array. The latent variables of many particles lie side by side (`BlockState`). `BlockStart` holds the factors of a q
about one labelling.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.inference.data.statistic_layout import StatisticLayout
from lvsearch.models.block_model import LatentBlockModel
from lvsearch.models.components import Component
from lvsearch.models.kernels import kernel
from lvsearch.models.units import Row


def layout_of(component: Component) -> StatisticLayout:
    """Return the layout of a component whose cells have statistics of their own (`Component.cellwise`)."""
    return StatisticLayout.of(jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], component.prior(1))))


@kernel(brief=True)
def packed_cells(
    model: LatentBlockModel, rows: Row
) -> tuple[Float[Array, "row dim number"], Float[Array, ""], Float[Array, " number"]]:
    """Return the statistics of all cells, packed, with their carriers and the prior of the blocks.

    Returns: (s(x_nd), the statistics of each cell (row, dim, number); Σ over observed cells of log h(x) in nats; λ, the
        natural parameters of a block's prior (number,)).
    """
    layout = layout_of(model.component)
    cells, carriers = jax.vmap(model.increments)(rows), jax.vmap(model.log_carrier)(rows)
    return layout.pack(cells), carriers.sum(), layout.pack(model.block_prior())


class BlockState(NamedTuple):
    r"""All latent variables of a block model, with particles side by side on the last axis.

    Clusters that do not exist hold anything finite.

    | field | meaning | shape |
    |---|---|---|
    | `rows` | z, the cluster of each row | (row, particle) |
    | `columns` | w, the cluster of each column | (dim, particle) |
    | `row_weights` | log π, weights of row clusters | (row_cluster, particle), −inf where there is none |
    | `column_weights` | log ρ, weights of column clusters | (column_cluster, particle), −inf where there is none |
    | `blocks` | T, statistics of the blocks' parameters, packed | (row_cluster, column_cluster, number, particle) |
    | `log_likelihood` | log p(cells \\| all of these), nats | (particle,) |
    """

    rows: Int[Array, "row particle"]
    columns: Int[Array, "dim particle"]
    row_weights: Float[Array, "row_cluster particle"]
    column_weights: Float[Array, "column_cluster particle"]
    blocks: Float[Array, "row_cluster column_cluster number particle"]
    log_likelihood: Float[Array, " particle"]


class BlockStart(NamedTuple):
    """A distribution q about one labelling of rows and columns, with independent factors.

    The probabilities of each label sum to 1 over the clusters that exist.

    | field | shape |
    |---|---|
    | `rows`, `columns` | log q of each label: (row, row_cluster), (dim, column_cluster) |
    | `row_weights`, `column_weights` | concentrations: (row_cluster,), (column_cluster,) |
    | `blocks` | natural parameters, packed: (row_cluster, column_cluster, number) |
    """

    rows: Float[np.ndarray | Array, "row row_cluster"]
    columns: Float[np.ndarray | Array, "dim column_cluster"]
    row_weights: Float[np.ndarray | Array, " row_cluster"]
    column_weights: Float[np.ndarray | Array, " column_cluster"]
    blocks: Float[np.ndarray | Array, "row_cluster column_cluster number"]
