"""The latent variables of block models as arrays of many particles, and the factors of a q about one labelling."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int


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
