"""Document completion: fit a document's topic proportions on part of its words, and predict each of the rest.

  score_d = Σ_{w held out} n_w log Σ_k E_q[θ_k | observed] β_kw,   q(θ) = Dir(γ) by mean field

With another distribution of proportions than a Dirichlet (`proportions.py`), E[θ | observed] is that distribution's.

It is a proper score of the prediction from the observed part alone: each held-out word is predicted without the others.
It is not log p(held out | observed), in which held-out words inform each other. It is deterministic, and summed in
float64.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, Int64
from scipy import sparse

from lvsearch.inference.likelihood.bounds import distinct_word_tiles, gamma_tile
from lvsearch.inference.likelihood.documents import DocumentTile, TopicSet, map_tiles, read_counts, read_topics, row_of
from lvsearch.inference.likelihood.proportions import Proportions


@dataclass(frozen=True)
class DocumentCompletion:
    """The scores of held-out words, document by document.

    `log_score`: of each document, nats, −inf if a held-out word is impossible. `n_tokens`: how many held-out tokens
        were scored.
    """

    log_score: Float64[np.ndarray, " document"]
    n_tokens: Int64[np.ndarray, " document"]

    @property
    def perplexity(self) -> float:
        """exp(−total score / held-out tokens)."""
        return float(np.exp(-self.log_score.sum() / self.n_tokens.sum()))


def split_documents(docs: Any, observed_fraction: float, seed: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split every document's tokens at random into an observed and a held-out part, (D, V) each.

    ⌊observed_fraction · N⌉ tokens of each document are observed. Tokens of one word are split without replacement.

    Raises ValueError for a fraction that is not between 0 and 1.
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

    A document with nothing observed is predicted by the prior mean α / Σα. Observed words that are impossible under
    every topic carry no information and are left out. If all observed words together are impossible, the score is −inf.

    topics: (K, V), rows sum to 1.
    alpha: Dirichlet parameters (K,), or a `Proportions` such as `FoldedIn()`.

    Raises ValueError for malformed input, as `document_likelihood` does.
    """
    n_words = np.shape(topics)[1]
    seen, rest = read_counts(observed, n_words), read_counts(held_out, n_words)
    if seen.shape != rest.shape:
        raise ValueError(
            f"got observed {seen.shape} and held-out {rest.shape}; expected the same documents, row by row"
        )
    theta = expected_proportions(topics, alpha, seen)
    word_topic = _topic_set(topics, alpha).word_topic
    row_of = np.repeat(np.arange(rest.shape[0]), np.diff(rest.indptr))
    probability = np.einsum("ek,ek->e", theta[row_of], word_topic[rest.indices])
    with np.errstate(divide="ignore"):
        terms = rest.data * np.log(np.where(np.isnan(probability), 0.0, probability))
    score = np.bincount(row_of, weights=terms, minlength=rest.shape[0]).astype(np.float64)
    return DocumentCompletion(score, np.asarray(rest.sum(axis=1)).astype(np.int64))


def expected_proportions(topics: Any, alpha: Any, observed: Any) -> Float64[np.ndarray, "document topic"]:
    """Return E[θ | observed] of each document, with rows that sum to 1, and NaN if its words cannot occur together.

    The arguments are those of `document_completion`.
    """
    topic_set = _topic_set(topics, alpha)
    seen = _possible(topic_set, read_counts(observed, topic_set.word_topic.shape[0]))
    if isinstance(alpha, Proportions):
        return alpha.expected(topic_set.word_topic.T, seen)
    gamma = _posterior(topic_set, seen)
    return gamma / gamma.sum(axis=1, keepdims=True)


def dirichlet_posterior(topics: Any, alpha: Any, observed: Any) -> Float64[np.ndarray, "document topic"]:
    """Return γ of q(θ) = Dirichlet(γ), the mean-field posterior of each document's proportions, (document, topic).

    The arguments are those of `document_completion`, with alpha an array.
    """
    topic_set = read_topics(topics, alpha)
    return _posterior(topic_set, _possible(topic_set, read_counts(observed, topic_set.word_topic.shape[0])))


def proportion_draws(
    topics: Any, alpha: Any, observed: Any, draws: int, random: np.random.Generator
) -> Float64[np.ndarray, "draw topic"]:
    """Draw the proportions of ONE document given its observed words, (1, V).

    Under a Dirichlet the draws are from its mean-field posterior; under discrete distributions they are exact. With
    `FoldedIn` every draw is θ̂. The other arguments are those of `document_completion`.
    """
    if isinstance(alpha, Proportions):
        topic_set = _topic_set(topics, alpha)
        seen = _possible(topic_set, read_counts(observed, topic_set.word_topic.shape[0]))
        return alpha.sample(topic_set.word_topic.T, seen, draws, random)
    return random.dirichlet(dirichlet_posterior(topics, alpha, observed)[0], draws)


def _topic_set(topics: Any, alpha: Any) -> TopicSet:
    """Return the checked topics; with a `Proportions`, their α is 1 and means nothing."""
    return read_topics(topics, np.ones(np.shape(topics)[0]) if isinstance(alpha, Proportions) else alpha)


def _possible(topic_set: TopicSet, seen: sparse.csr_array) -> sparse.csr_array:
    """Return the counts without the words that no topic can produce. It changes `seen` in place."""
    seen.data[topic_set.word_topic.max(axis=1)[seen.indices] == 0] = 0
    seen.eliminate_zeros()
    return seen


def _posterior(topic_set: TopicSet, seen: sparse.csr_array) -> Float64[np.ndarray, "document topic"]:
    """Return γ of each document, (document, topic), which is α for a document without words."""
    gamma = np.tile(topic_set.alpha, (seen.shape[0], 1))
    single = jnp.asarray(topic_set.rescaled()[0], jnp.float32), jnp.asarray(topic_set.alpha, jnp.float32)

    def work(tile: DocumentTile):
        return tile, np.asarray(gamma_tile(*single, tile.words, tile.counts), np.float64)

    rows = np.flatnonzero(np.diff(seen.indptr) > 0)
    for tile, found in map_tiles(work, distinct_word_tiles(seen, rows, len(topic_set.alpha))):
        gamma[tile.rows] = found[: len(tile.rows)]
    return gamma
