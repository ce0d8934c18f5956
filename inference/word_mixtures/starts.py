"""Starting values of topics: each topic begins with a few documents (Blei 2004, §3.6)."""

import numpy as np
from jaxtyping import Float64
from scipy.sparse import csr_array

DOCUMENTS_PER_TOPIC = 5
"""The number of documents that a topic begins with, as in §3.6."""


def seeded_counts(
    counts: csr_array, n_topics: int, tokens: float, random: np.random.Generator
) -> Float64[np.ndarray, "topic word"]:
    """Return pseudo-counts for topics to start from, (topic, word): each topic has the words of a few documents.

    These words are scaled to `tokens` tokens in all. One more token is spread unevenly over the vocabulary, so that no
    two topics are alike. No document is used twice before all were used. If there are many topics, each gets fewer
    documents.

    counts: the count of each word in each document, (document, word).
    n_topics: the number of topics.
    tokens: how many tokens of its documents a topic gets.
    """
    n_docs, n_words = counts.shape[0], counts.shape[1]
    few = int(np.clip(n_docs // max(n_topics, 1), 1, DOCUMENTS_PER_TOPIC))
    deals = -(-n_topics * few // n_docs)
    dealt = np.concatenate([random.permutation(n_docs) for _ in range(deals)] or [np.zeros(0, int)])
    out = np.empty((n_topics, n_words))
    for topic in range(n_topics):
        words = np.asarray(counts[dealt[topic * few : (topic + 1) * few]].sum(0), np.float64)
        spread = random.uniform(0.5, 1.5, n_words)
        out[topic] = tokens * words / max(words.sum(), 1.0) + spread / spread.sum()
    return out
