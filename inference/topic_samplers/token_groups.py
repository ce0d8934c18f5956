"""Groups of tokens of which no two share a document or a word, so that all tokens of a group can be drawn at once.

If a group has at most W tokens, documents and words are each divided among W lanes, evenly by their numbers of tokens.
There are W rounds. In round s, lane i holds the tokens of its own documents with the words of lane i + s. So no two
lanes share a document or a word. A round has as many groups as its longest lane has tokens.
"""

import heapq

import numpy as np
from jaxtyping import Int

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
