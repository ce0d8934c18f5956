"""Starts of HDP topics from another truncation's topics, merged if they are too many, and new ones from documents."""

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import csr_array

from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.topics.merging import merge_topics

DOCUMENTS_PER_TOPIC = 20
"""The number of documents that a new topic begins with, as for LDA.

Blei (2004, §3.6) has five; with 20 fits end higher.
"""
START_WEIGHT = 0.5
"""The total of the pseudo-counts of new topics, as a share of the tokens of the corpus."""


def start_counts(
    counts: csr_array, n_topics: int, capacity: int, key: Array, start: Estimate | None, smoothing: float
) -> Float[np.ndarray, "word topic"]:
    """Return pseudo-counts of words in topics to start from, (word, topic), with zeros for topics up to the capacity.

    No two topics are alike, because equal topics would stay equal.

    counts: (document, word).
    n_topics: the number of topics.
    capacity: the number of topics that arrays have room for.
    start: a fit of another truncation whose topics are kept, or None.
    smoothing: the Dirichlet concentration of each word in a topic.
    """
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    n_documents, n_words = counts.shape[0], counts.shape[1]
    pseudo_counts = np.zeros((n_words, capacity), np.float32)
    kept = 0
    if start is not None:
        expected = np.maximum(start.natural["topic_word"] + 1.0 - smoothing, 0.0)
        merged = merge_topics(expected, n_topics)
        kept = len(merged)
        pseudo_counts[:, :kept] = merged.T
    new = n_topics - kept
    few = int(np.clip(n_documents // max(new, 1), 1, DOCUMENTS_PER_TOPIC))
    deals = -(-new * few // n_documents)  # where topics are more than documents, some share one
    dealt = np.concatenate([random.permutation(n_documents) for _ in range(deals)] or [np.zeros(0, int)])
    for topic in range(kept, n_topics):
        chosen = dealt[(topic - kept) * few : (topic - kept + 1) * few]
        words = np.asarray(counts[chosen].sum(0), np.float64) + smoothing
        words *= random.uniform(0.5, 1.5, n_words)
        pseudo_counts[:, topic] = START_WEIGHT * counts.sum() / n_topics * words / words.sum()
    return pseudo_counts
