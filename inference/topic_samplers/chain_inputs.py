"""Inputs of the LDA chains: log factors of a path's start, hyper-parameters of single particles, padded array
lengths.

They also divide tokens into groups of which no two share a document or a word, so that all tokens of a group can be
drawn at once. If a group has at most W tokens, documents and words are each divided among W lanes, evenly by their
numbers of tokens. There are W rounds. In round s, lane i holds the tokens of its own documents with the words of lane i
+ s. So no two lanes share a document or a word. A round has as many groups as its longest lane has tokens.
"""

import heapq
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int
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


# ── groups of tokens ──────────────────────────────────────────────────────────────────────────────────────────────────


WIDEST = 64
"""The largest number of tokens in a group.

On one core with 64 topics, groups of 16, 32 and 64 take .25, .23 and .26 microseconds per token of Cora. With eleven
times its vocabulary, groups of 32 and 64 take .35 and .33.
"""
TOKENS_OF_A_CELL = 40
"""The least mean number of tokens of a lane in a round. From there on the longest lane has few more than the others."""


def group_width(document: Int[np.ndarray, " token"], word: Int[np.ndarray, " token"]) -> int:
    """Return how many tokens a group may have without many empty slots: a power of two.

    It is 1 for few tokens, and if one document or word has most of them.

    document, word: the document and the word of each token.
    """
    if not len(document):
        return 1
    most = max(int(np.bincount(each).max()) for each in (document, word))
    widest = min(WIDEST, len(document) / most, np.sqrt(len(document) / TOKENS_OF_A_CELL))
    return 1 << int(np.log2(max(widest, 1)))


def grouped(
    document: Int[np.ndarray, " token"], word: Int[np.ndarray, " token"], width: int
) -> Int[np.ndarray, "group place"]:
    """Return groups of tokens that share neither document nor word, (group, slot): the number of a token, or −1.

    document, word: the document and the word of each token.
    width: how many slots for tokens a group has.
    """
    lane, other = (_lanes(each, width)[each] for each in (document, word))
    cell = (other - lane) % width * width + lane  # number of the round, then of the lane
    order = np.argsort(cell, kind="stable")
    held = np.bincount(cell, minlength=width * width)
    rank = np.arange(len(cell)) - np.repeat(np.cumsum(held) - held, held)
    longest = held.reshape(width, width).max(1)
    first = np.cumsum(longest) - longest
    groups = np.full((int(longest.sum()), width), -1, np.int64)
    groups[first[cell[order] // width] + rank, lane[order]] = order
    return groups


def _lanes(member: Int[np.ndarray, " token"], width: int) -> Int[np.ndarray, " member"]:
    """Return which of `width` lanes each document (or word) is assigned to, so that lanes have about equally many
    tokens.

    Documents with most tokens come first, each to the emptiest lane.

    member: the document (or word) of each token.
    """
    tokens = np.bincount(member)
    lanes, load = np.zeros(len(tokens), np.int64), [(0, lane) for lane in range(width)]
    for each in np.argsort(-tokens, kind="stable").tolist():
        least, lane = load[0]
        lanes[each] = lane
        heapq.heapreplace(load, (least + int(tokens[each]), lane))
    return lanes
