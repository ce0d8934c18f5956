"""What a chain of LDA is given: what q says of tokens where the path does not begin in the prior, hyper-parameters that
are a particle's own, and how long arrays of a corpus are."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import csr_array
from scipy.special import logsumexp

PAIRS = 1 << 16
"""Pairs of a document and a word whose normalisers are taken together."""
LENGTHS = (64, 1.25)
"""Tokens, documents and words are padded to a geometric ladder, so that corpora of like size share a program."""


class GivenFactors(NamedTuple):
    """Of a token in document d of word w, q_i(k) ∝ exp(documents[d, k] + words[w, k]). documents: None where
    proportions are not given, but p(z_i | z_¬i, α)."""

    documents: Float[np.ndarray, "document topic"] | None
    words: Float[np.ndarray, "word topic"]

    def padded_to(self, capacity: int) -> "GivenFactors":
        """As a chain keeps them: float32, 0 at padding."""

        def factor(table: np.ndarray) -> np.ndarray:
            more = padded(len(table)) - len(table), capacity - table.shape[1]
            return np.pad(np.asarray(table, np.float32), [(0, each) for each in more])

        return GivenFactors(None if self.documents is None else factor(self.documents), factor(self.words))

    def log_normaliser(self, counts: csr_array) -> float:
        """Σ_i log Σ_k exp of both factors, in the precision that a chain keeps them in, nats."""
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
    """Hyper-parameters of each particle in the place of the chain's own; None: the chain's own.

    | field | letter | shape |
    |---|---|---|
    | `alpha` | α | (topic, particle), 0 for topics that do not exist |
    | `eta` | η | (particle,) |
    """

    alpha: Float[Array, "topic particle"] | None = None
    eta: Float[Array, " particle"] | None = None


OWN = Concentrations()


def padded(length: int) -> int:
    """The next length of the geometric ladder."""
    least, ratio = LENGTHS
    size = least
    while size < length:
        size = int(np.ceil(size * ratio / 8)) * 8
    return size
