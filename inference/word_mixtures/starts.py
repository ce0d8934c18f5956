"""Where topics begin: each from a few documents (Blei 2004, §3.6)."""

import numpy as np
from jaxtyping import Float64
from scipy.sparse import csr_array

DOCUMENTS_PER_TOPIC = 5
"""The thesis' number."""


def seeded_counts(
    counts: csr_array, n_topics: int, tokens: float, random: np.random.Generator
) -> Float64[np.ndarray, "topic word"]:
    """Pseudo-counts: for each topic the words of a few documents, reduced to `tokens` in all, and one more token spread
    over the vocabulary unevenly, so that no two topics are alike.

    No document is dealt twice before all were; where topics are many, each has fewer of them.
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
