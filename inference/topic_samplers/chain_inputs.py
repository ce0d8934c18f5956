"""Inputs of the LDA chains: log factors of a path's start, hyper-parameters of single particles, padded array
lengths.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import csr_array
from scipy.special import logsumexp

PAIRS = 1 << 16
"""The number of (document, word) pairs whose normalisers are computed together."""
LENGTHS = (64, 1.25)
"""The first length and the ratio of the geometric ladder of padded lengths.

Tokens, documents and words are padded to it, so that corpora of similar size share a compiled program.
"""


class GivenFactors(NamedTuple):
    """The log factors of q, the distribution at the start of an annealing path of LDA.

    A token of word w in document d is in topic k with probability q_i(k) ∝ exp(documents[d, k] + words[w, k]).
    `documents` is None if only topics are given; then the prior of the document's topics takes its place.
    """

    documents: Float[np.ndarray, "document topic"] | None
    words: Float[np.ndarray, "word topic"]

    def padded_to(self, capacity: int) -> "GivenFactors":
        """Return the factors in the form that a chain stores: float32, padded with 0 to `capacity` topics and padded
        lengths.
        """

        def factor(table: np.ndarray) -> np.ndarray:
            """Pad one table and convert it to float32."""
            more = padded(len(table)) - len(table), capacity - table.shape[1]
            return np.pad(np.asarray(table, np.float32), [(0, each) for each in more])

        return GivenFactors(None if self.documents is None else factor(self.documents), factor(self.words))

    def log_normaliser(self, counts: csr_array) -> float:
        """Return Σ over all tokens of log Σ_k exp of both factors, in nats, from factors rounded to float32 as the
        chain's are.

        counts: word counts, (document, word).
        """
        documents, words = (np.asarray(each, np.float32).astype(np.float64) for each in self if each is not None)
        of_pair = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)), counts.indices
        total = 0.0
        for first in range(0, len(counts.indices), PAIRS):
            here = slice(first, first + PAIRS)
            document, word = (each[here] for each in of_pair)
            each = np.asarray(logsumexp(documents[document] + words[word], axis=1))
            total += float(counts.data[here] @ each)
        return total


class Concentrations(NamedTuple):
    """Hyper-parameters of each particle that replace the chain's own; None keeps the chain's own.

    | field | letter | shape |
    |---|---|---|
    | `alpha` | α, the proportions' concentration | (topic, particle), 0 for topics that do not exist |
    | `eta` | η, the concentration of the topics' prior | (particle,) |
    """

    alpha: Float[Array, "topic particle"] | None = None
    eta: Float[Array, " particle"] | None = None


OWN = Concentrations()


def padded(length: int) -> int:
    """Return the smallest length of a geometric ladder (64, 80, 104, …) that is at least `length`.

    Arrays are padded to these lengths, so that corpora of similar size share a compiled program.
    """
    least, ratio = LENGTHS
    size = least
    while size < length:
        size = int(np.ceil(size * ratio / 8)) * 8
    return size
