"""The latent variables of block models as arrays of many particles, and the factors of a q about one labelling."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int


class BlockState(NamedTuple):
    """All latent variables, with particles side by side on the last axis.

    Clusters that do not exist hold anything finite.

    | field | letter | shape |
    |---|---|---|
    | `rows` | z | (row, particle) |
    | `columns` | w | (dim, particle) |
    | `row_weights` | log π | (row_cluster, particle), −inf where there is none |
    | `column_weights` | log ρ | (column_cluster, particle), −inf where there is none |
    | `blocks` | T, packed | (row_cluster, column_cluster, number, particle) |
    | `log_likelihood` | log p(x \\| all of these), nats | (particle,) |
    """

    rows: Int[Array, "row particle"]
    columns: Int[Array, "dim particle"]
    row_weights: Float[Array, "row_cluster particle"]
    column_weights: Float[Array, "column_cluster particle"]
    blocks: Float[Array, "row_cluster column_cluster number particle"]
    log_likelihood: Float[Array, " particle"]


class BlockStart(NamedTuple):
    """A q about one labelling, with independent factors. Its log-probabilities sum to 1 over the clusters that exist.

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
