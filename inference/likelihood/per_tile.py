"""Run a sampling estimator over tiles of documents, in float32 where that is safe."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import sparse

from lvsearch.inference.likelihood.documents import DocumentTile, TopicSet, impossible_documents, map_tiles, tiles
from lvsearch.inference.likelihood.result import LikelihoodEstimate

TileEstimate = Callable[[DocumentTile, Float[Array, "word topic"], Float[Array, " topic"]], LikelihoodEstimate]


def estimate_tiles(
    topics: TopicSet,
    counts: sparse.csr_array,
    one_tile: TileEstimate,
    *,
    tokens: bool,
    height_of: Callable[[int], int],
) -> LikelihoodEstimate:
    """Estimates for every document: −inf ± 0 where a word is impossible, 0 ± 0 for an empty document.

    tokens, height_of: how documents are laid out, see `tiles`.

    Words are rescaled before they become float32 and the logs of the divisors added back in float64: no underflow,
    and the bulk of log p never passes through float32.
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
