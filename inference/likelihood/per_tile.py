"""Run a sampling estimator over tiles of documents on every core, in float32 where it is safe to."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32
from scipy import sparse

from lvsearch.inference.likelihood.documents import Tile, TopicSet, impossible_documents, tiles
from lvsearch.inference.likelihood.result import Estimate

TileEstimate = Callable[[Tile, Float32[Array, "word topic"], Float32[Array, "topic"]], Estimate]


def estimate_tiles(topics: TopicSet, counts: sparse.csr_array, one_tile: TileEstimate, documents_per_tile: int) -> Estimate:
    """Estimate for every document: −inf ± 0 where a word is impossible, 0 ± 0 for an empty document.

    Each word's probabilities are divided by their largest over topics before they become float32, and the logs of those
    divisors are added back in float64: no underflow, and the bulk of log p never passes through float32.
    """
    topics = topics.active()
    largest = topics.word_topic.max(axis=1)
    reachable = largest > 0
    scaled = topics.word_topic / np.where(reachable, largest, 1.0)[:, None]
    word_topic, alpha = jnp.asarray(scaled, jnp.float32), jnp.asarray(topics.alpha, jnp.float32)

    impossible = impossible_documents(topics, counts)
    log_likelihood = counts @ np.log(np.where(reachable, largest, 1.0))
    log_likelihood[impossible] = -np.inf
    error, effective = np.zeros(counts.shape[0]), np.full(counts.shape[0], np.nan)

    def work(tile: Tile) -> tuple[Tile, Estimate]:
        return tile, one_tile(tile, word_topic, alpha)

    rows = np.flatnonzero(~impossible & (np.diff(counts.indptr) > 0))
    # XLA runs small kernels on one core: on CPU tiles go to as many threads as there are cores. A tile's result
    # depends on nothing but the tile, so neither threads nor order change a bit.
    threads = (os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
    with ThreadPoolExecutor(threads) as pool:
        for tile, estimate in pool.map(work, tiles(counts, rows, tokens=True, height_of=lambda _: documents_per_tile)):
            real = len(tile.rows)
            log_likelihood[tile.rows] += estimate.log_likelihood[:real]
            error[tile.rows] = estimate.standard_error[:real]
            effective[tile.rows] = estimate.effective_sample_size[:real]
    return Estimate(log_likelihood, error, effective)
