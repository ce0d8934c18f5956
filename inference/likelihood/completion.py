"""Document completion: fit a document's topic proportions on part of its words, and predict each of the rest.

  score_d = Σ_{w held out} n_w log Σ_k E_q[θ_k | observed] β_kw,   q(θ) = Dir(γ) by mean field

θ are the topic proportions of document d, n_w its held-out tokens of word w, and β_kw the probability of word w in
topic k. With another distribution of proportions than a Dirichlet (`proportions.py`), E[θ | observed] is that
distribution's.

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

from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.likelihood.bounds import distinct_word_tiles, gamma_tile
from lvsearch.inference.likelihood.documents import DocumentTile, TopicSet, map_tiles, read_counts, read_topics, row_of
from lvsearch.inference.likelihood.proportions import Proportions


@dataclass(frozen=True)
class DocumentCompletion:
    """The scores of held-out words, document by document.

    `log_score`: log probability of the held-out tokens of each document, summed, nats; −inf if a word is impossible.
        `n_tokens`: how many held-out tokens were scored.
    """

    log_score: Float64[np.ndarray, " document"]
    n_tokens: Int64[np.ndarray, " document"]

    @property
    def perplexity(self) -> float:
        """exp(−total score / held-out tokens), over all documents; lower is better."""
        return float(np.exp(-self.log_score.sum() / self.n_tokens.sum()))


def split_documents(docs: Any, observed_fraction: float, seed: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split every document's tokens at random into an observed and a held-out part, counts (document, word) each.

    The observed number of tokens is the document's length times `observed_fraction`, rounded. Tokens of one word are
    split without replacement.

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
    """Score held-out words given observed words of the same documents, row by row.

    A document with nothing observed is predicted by the prior mean alpha / sum(alpha). Observed words that are
    impossible under every topic carry no information and are left out. If all observed words together are impossible,
    the score is −inf.

    topics: p(word | topic), (topic, word), rows sum to 1.
    alpha: Dirichlet parameters of the topic proportions, (topic,), or a `Proportions` such as `FoldedIn()`.
    observed, held_out: word counts, (document, word).

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
    document = row_of_each_nonzero(rest)
    probability = np.einsum("ek,ek->e", theta[document], word_topic[rest.indices])
    with np.errstate(divide="ignore"):
        terms = rest.data * np.log(np.where(np.isnan(probability), 0.0, probability))
    score = np.bincount(document, weights=terms, minlength=rest.shape[0]).astype(np.float64)
    return DocumentCompletion(score, np.asarray(rest.sum(axis=1)).astype(np.int64))


def expected_proportions(topics: Any, alpha: Any, observed: Any) -> Float64[np.ndarray, "document topic"]:
    """Return the expected topic proportions of each document given its observed words.

    Rows sum to 1, and are NaN if the observed words cannot occur together.

    topics: p(word | topic), (topic, word), rows sum to 1.
    alpha: Dirichlet parameters of the topic proportions, (topic,), or a `Proportions` such as `FoldedIn()`.
    observed: word counts, (document, word).
    """
    topic_set = _topic_set(topics, alpha)
    seen = _possible(topic_set, read_counts(observed, topic_set.word_topic.shape[0]))
    if isinstance(alpha, Proportions):
        return alpha.expected(topic_set.word_topic.T, seen)
    gamma = _posterior(topic_set, seen)
    return gamma / gamma.sum(axis=1, keepdims=True)


def dirichlet_posterior(topics: Any, alpha: Any, observed: Any) -> Float64[np.ndarray, "document topic"]:
    """Return the Dirichlet parameters of the mean-field posterior of each document's topic proportions.

    topics: p(word | topic), (topic, word), rows sum to 1.
    alpha: Dirichlet parameters of the prior, (topic,).
    observed: word counts, (document, word).
    """
    topic_set = read_topics(topics, alpha)
    return _posterior(topic_set, _possible(topic_set, read_counts(observed, topic_set.word_topic.shape[0])))


def proportion_draws(
    topics: Any, alpha: Any, observed: Any, draws: int, random: np.random.Generator
) -> Float64[np.ndarray, "draw topic"]:
    """Draw the topic proportions of ONE document given its observed words.

    Under a Dirichlet the draws are from its mean-field posterior; under discrete distributions they are exact. With
    `FoldedIn` every draw is the refitted point.

    topics: p(word | topic), (topic, word), rows sum to 1.
    alpha: Dirichlet parameters of the topic proportions, (topic,), or a `Proportions` such as `FoldedIn()`.
    observed: word counts, (1, word).
    draws: the number of draws.
    random: the NumPy generator to draw with.
    """
    if isinstance(alpha, Proportions):
        topic_set = _topic_set(topics, alpha)
        seen = _possible(topic_set, read_counts(observed, topic_set.word_topic.shape[0]))
        return alpha.sample(topic_set.word_topic.T, seen, draws, random)
    return random.dirichlet(dirichlet_posterior(topics, alpha, observed)[0], draws)


def _topic_set(topics: Any, alpha: Any) -> TopicSet:
    """Return the checked topics. With a `Proportions` in the place of alpha, their Dirichlet parameters are 1 and
    unused.
    """
    return read_topics(topics, np.ones(np.shape(topics)[0]) if isinstance(alpha, Proportions) else alpha)


def _possible(topic_set: TopicSet, seen: sparse.csr_array) -> sparse.csr_array:
    """Return the counts without the words that no topic can produce. It changes `seen` in place."""
    seen.data[topic_set.word_topic.max(axis=1)[seen.indices] == 0] = 0
    seen.eliminate_zeros()
    return seen


def _posterior(topic_set: TopicSet, seen: sparse.csr_array) -> Float64[np.ndarray, "document topic"]:
    """Return the Dirichlet parameters of each document's mean-field posterior; the prior's for a document without
    words.
    """
    gamma = np.tile(topic_set.alpha, (seen.shape[0], 1))
    single = jnp.asarray(topic_set.rescaled()[0], jnp.float32), jnp.asarray(topic_set.alpha, jnp.float32)

    def work(tile: DocumentTile):
        """Return the tile and the Dirichlet parameters of its documents.

        A tile is a group of documents of one padded length.
        """
        return tile, np.asarray(gamma_tile(*single, tile.words, tile.counts), np.float64)

    rows = np.flatnonzero(np.diff(seen.indptr) > 0)
    for tile, found in map_tiles(work, distinct_word_tiles(seen, rows, len(topic_set.alpha))):
        gamma[tile.rows] = found[: len(tile.rows)]
    return gamma
