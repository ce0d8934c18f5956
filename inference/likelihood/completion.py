"""Document completion: fit a document's topic weights on part of its words, predict each of the rest.

  score_d = Σ_{w held out} n_w log Σ_k E_q[θ_k | observed] β_kw,   q(θ) = Dir(γ) by mean field

A proper score of the prediction from the observed part alone (every held-out word is predicted without the others); not
log p(held out | observed), which would let them inform each other. Deterministic, float64 where it is summed.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, Int64
from scipy import sparse

from lvsearch.inference.likelihood.bounds import distinct_word_tiles, gamma_tile
from lvsearch.inference.likelihood.documents import DocumentTile, map_tiles, read_counts, read_topics, row_of


@dataclass(frozen=True)
class DocumentCompletion:
    """log_score: per document, nats, −inf where a held-out word is impossible; n_tokens: held-out tokens scored."""

    log_score: Float64[np.ndarray, " document"]
    n_tokens: Int64[np.ndarray, " document"]

    @property
    def perplexity(self) -> float:
        """exp(−total score / held-out tokens)."""
        return float(np.exp(-self.log_score.sum() / self.n_tokens.sum()))


def split_documents(docs: Any, observed_fraction: float, seed: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split every document's tokens at random into an observed and a held-out part, (D, V) each.

    ⌊observed_fraction · N⌉ tokens of each document are observed; tokens of one word are split without replacement.
    """
    if not 0 < observed_fraction < 1:
        raise ValueError(f"got observed_fraction={observed_fraction}; expected a number strictly between 0 and 1")
    matrix = getattr(docs, "counts", docs)
    counts = read_counts(matrix, matrix.shape[1])
    observed = counts.copy()
    for row in range(counts.shape[0]):
        amount = row_of(counts, row)[1]
        # one generator per row: a document's split does not depend on the documents before it
        generator = np.random.default_rng([seed, row])
        keep = round(observed_fraction * int(amount.sum()))
        drawn = generator.multivariate_hypergeometric(amount, keep) if keep else np.zeros_like(amount)
        observed.data[observed.indptr[row] : observed.indptr[row + 1]] = drawn
    held_out = sparse.csr_array(counts - observed)
    observed.eliminate_zeros()
    held_out.eliminate_zeros()
    return observed, held_out


def document_completion(topics: Any, alpha: Any, observed: Any, held_out: Any) -> DocumentCompletion:
    """Score `held_out` counts (D, V) given `observed` counts (D, V) of the same documents, row by row.

    A document with nothing observed is predicted by the prior mean α / Σα; observed words that are impossible under
    every topic carry no information and are left out. Raises ValueError for malformed input, as `document_likelihood`.
    """
    topic_set = read_topics(topics, alpha)
    n_words = topic_set.word_topic.shape[0]
    seen, rest = read_counts(observed, n_words), read_counts(held_out, n_words)
    if seen.shape != rest.shape:
        raise ValueError(
            f"got observed {seen.shape} and held-out {rest.shape}; expected the same documents, row by row"
        )
    seen.data[topic_set.word_topic.max(axis=1)[seen.indices] == 0] = 0
    seen.eliminate_zeros()
    gamma = np.tile(topic_set.alpha, (seen.shape[0], 1))
    single = jnp.asarray(topic_set.rescaled()[0], jnp.float32), jnp.asarray(topic_set.alpha, jnp.float32)

    def work(tile: DocumentTile):
        return tile, np.asarray(gamma_tile(*single, tile.words, tile.counts), np.float64)

    rows = np.flatnonzero(np.diff(seen.indptr) > 0)
    for tile, found in map_tiles(work, distinct_word_tiles(seen, rows, len(topic_set.alpha))):
        gamma[tile.rows] = found[: len(tile.rows)]
    theta = gamma / gamma.sum(axis=1, keepdims=True)
    row_of = np.repeat(np.arange(rest.shape[0]), np.diff(rest.indptr))
    probability = np.einsum("ek,ek->e", theta[row_of], topic_set.word_topic[rest.indices])
    with np.errstate(divide="ignore"):
        terms = rest.data * np.log(probability)
    score = np.bincount(row_of, weights=terms, minlength=rest.shape[0]).astype(np.float64)
    return DocumentCompletion(score, np.asarray(rest.sum(axis=1)).astype(np.int64))
