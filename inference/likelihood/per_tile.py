"""The loop of a sampling estimator over tiles (groups of documents of one padded length), in float32 where that is
safe.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import sparse

from lvsearch.inference.likelihood.documents import DocumentTile, TopicSet, impossible_documents, map_tiles, tiles
from lvsearch.inference.likelihood.result import LikelihoodEstimate

TileEstimate = Callable[[DocumentTile, Float[Array, "word topic"], Float[Array, " topic"]], LikelihoodEstimate]
"""A function that estimates log p of the documents of one tile, padding included.

It takes the tile, p(word | topic) as (word, topic), and the Dirichlet parameters (topic,).
"""


def estimate_tiles(
    topics: TopicSet,
    counts: sparse.csr_array,
    one_tile: TileEstimate,
    *,
    tokens: bool,
    height_of: Callable[[int], int],
) -> LikelihoodEstimate:
    """Run an estimator on tiles of documents (groups of one padded length), and return estimates for every document.

    Words are rescaled before they become float32, and the logs of the divisors are added back in float64. So nothing
    underflows, and most of log p never passes through float32.

    one_tile: the estimator for one tile.
    tokens: True if a slot of a tile is one token, False if it is a distinct word with its count.
    height_of: the wanted number of documents of a tile, for a padded length.

    Returns −inf ± 0 for a document with an impossible word, and 0 ± 0 for an empty document.
    """
    topics = topics.active()
    scaled, log_divisor = topics.rescaled()
    word_topic, alpha = jnp.asarray(scaled), jnp.asarray(topics.alpha)  # float32, or the caller's enable_x64

    impossible = impossible_documents(topics, counts)
    log_likelihood = counts @ log_divisor
    log_likelihood[impossible] = -np.inf
    error, effective = np.zeros(counts.shape[0]), np.full(counts.shape[0], np.nan)

    def work(tile: DocumentTile) -> tuple[DocumentTile, LikelihoodEstimate]:
        return tile, one_tile(tile, word_topic, alpha)

    rows = np.flatnonzero(~impossible & (np.diff(counts.indptr) > 0))
    pieces = tiles(counts, rows, tokens=tokens, height_of=height_of)
    for tile, estimate in map_tiles(work, pieces):
        real = len(tile.rows)
        log_likelihood[tile.rows] += estimate.log_likelihood[:real]
        error[tile.rows] = estimate.standard_error[:real]
        effective[tile.rows] = estimate.effective_sample_size[:real]
    return LikelihoodEstimate(log_likelihood, error, effective)
