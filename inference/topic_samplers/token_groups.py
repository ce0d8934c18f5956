"""Tokens in groups of which no two share a document or a word, so that all of a group can be drawn at once.

Documents and words are dealt to as many lanes as a group has tokens, evenly by their numbers of tokens. In the s-th of
as many rounds lane i holds the tokens of its own documents with the words of lane i + s: no two lanes share any. A
round has as many groups as its longest lane has tokens.
"""

import heapq

import numpy as np
from jaxtyping import Int

WIDEST = 64
"""Tokens of a group, on one core with 64 topics: 16, 32 and 64 together take .25, .23 and .26 microseconds a token of
Cora, 32 and 64 .35 and .33 with eleven times its vocabulary."""
TOKENS_OF_A_CELL = 40
"""Tokens that a lane has in a round, at least: from there on its longest lane has few more than the others."""


def group_width(document: Int[np.ndarray, " token"], word: Int[np.ndarray, " token"]) -> int:
    """How many tokens a group may have without many places left empty: a power of two, 1 for few tokens, and where one
    document or word has most."""
    if not len(document):
        return 1
    most = max(int(np.bincount(each).max()) for each in (document, word))
    widest = min(WIDEST, len(document) / most, np.sqrt(len(document) / TOKENS_OF_A_CELL))
    return 1 << int(np.log2(max(widest, 1)))


def grouped(
    document: Int[np.ndarray, " token"], word: Int[np.ndarray, " token"], width: int
) -> Int[np.ndarray, "group place"]:
    """The number of the token at each place of each group; −1 where there is none."""
    lane, other = (_lanes(each, width)[each] for each in (document, word))
    cell = (other - lane) % width * width + lane  # rounds, and lanes within
    order = np.argsort(cell, kind="stable")
    held = np.bincount(cell, minlength=width * width)
    rank = np.arange(len(cell)) - np.repeat(np.cumsum(held) - held, held)
    longest = held.reshape(width, width).max(1)
    first = np.cumsum(longest) - longest
    groups = np.full((int(longest.sum()), width), -1, np.int64)
    groups[first[cell[order] // width] + rank, lane[order]] = order
    return groups


def _lanes(member: Int[np.ndarray, " token"], width: int) -> Int[np.ndarray, " member"]:
    """The lane of each member, the longest first to the lane that has least."""
    tokens = np.bincount(member)
    lanes, load = np.zeros(len(tokens), np.int64), [(0, lane) for lane in range(width)]
    for each in np.argsort(-tokens, kind="stable").tolist():
        least, lane = load[0]
        lanes[each] = lane
        heapq.heapreplace(load, (least + int(tokens[each]), lane))
    return lanes
