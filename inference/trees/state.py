"""A tree of topics and its documents as arrays of fixed shapes, for compiled sweeps.

Nodes live in array slots, called places. Each level has a contiguous range of places (`Layout`). A place that no
document passes is free. A layout is part of the compile key, and ranges grow by doubling, so a chain compiles O(log
nodes) times.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Array, Int

from lvsearch.inference.trees.density import Allocation

Layout = tuple[int, ...]
"""The first place (array slot) of each level, and the number of all places: (0, 1, 17, 81) has levels of 1, 16 and
64.
"""
SMALLEST = 16
"""The fewest places (array slots) of a level below the root."""


class TreeTokens(NamedTuple):
    """A corpus, token by token. The `cell` of a token is the nonzero (document, word) count that it belongs to.

    | field | shape | meaning |
    |---|---|---|
    | `cell_word` | (cells,) | word of each cell |
    | `doc_cells` | (docs + 1,) | first cell of each document |
    | `word`, `cell` | (tokens,) | word and cell of each token |
    | `doc_tokens` | (docs + 1,) | first token of each document |
    """

    cell_word: Int[np.ndarray, " cells"] | Array
    doc_cells: Int[np.ndarray, " docs_and_one"] | Array
    word: Int[np.ndarray, " tokens"] | Array
    cell: Int[np.ndarray, " tokens"] | Array
    doc_tokens: Int[np.ndarray, " docs_and_one"] | Array


class TreeState(NamedTuple):
    """The arrays that a sweep changes. A place is an array slot that a node can take.

    | field | shape | meaning |
    |---|---|---|
    | `levels` | (tokens,) | level of each token, 0 = root |
    | `paths` | (docs, level) | place of the node of each level on the document's path |
    | `node_word` | (V, place) | tokens of each word at each place |
    | `node_tokens` | (place,) | tokens at each place |
    | `documents` | (place,) | documents through each place; 0 = free |
    | `parent` | (place,) | place of the parent; anything if the place is free |
    """

    levels: Int[np.ndarray, " tokens"] | Array
    paths: Int[np.ndarray, "docs level"] | Array
    node_word: Int[np.ndarray, "word place"] | Array
    node_tokens: Int[np.ndarray, " place"] | Array
    documents: Int[np.ndarray, " place"] | Array
    parent: Int[np.ndarray, " place"] | Array


def tokens_of(counts: scipy.sparse.csr_array) -> TreeTokens:
    """Return the tokens of a corpus, in the order of the nonzero (document, word) counts."""
    copies = np.asarray(counts.data, np.int64)
    cell = np.repeat(np.arange(len(copies)), copies)
    return TreeTokens(
        counts.indices.astype(np.int32),
        counts.indptr.astype(np.int32),
        counts.indices[cell].astype(np.int32),
        cell.astype(np.int32),
        np.concatenate([[0], np.cumsum(copies)])[counts.indptr].astype(np.int32),
    )


def state_of(
    tokens: TreeTokens,
    n_words: int,
    levels: Int[np.ndarray, " tokens"],
    paths: Int[np.ndarray, "docs level"],
    least: Layout | None = None,
) -> tuple[TreeState, Layout]:
    """Return the arrays of a state from levels and paths, and the layout of their array slots.

    tokens: the corpus.
    n_words: the number of words in the vocabulary.
    levels: the level of each token.
    paths: the node of each level on each document's path, with any labels.
    least: a layout whose ranges are kept at levels that leave a slot free.
    """
    depth, places, layout = paths.shape[1], [], [0]
    for level in range(depth):
        labels, place = np.unique(paths[:, level], return_inverse=True)
        wanted = places_for(len(labels), level)
        if least is not None and (level == 0 or len(labels) < _length(least, level)):
            wanted = _length(least, level)
        places.append(layout[-1] + place)
        layout.append(layout[-1] + wanted)
    at = np.stack(places, axis=1).astype(np.int32)
    n_places = layout[-1]
    parent = np.zeros(n_places, np.int32)
    for level in range(1, depth):
        parent[at[:, level]] = at[:, level - 1]
    document = np.repeat(np.arange(len(paths)), np.diff(tokens.doc_tokens))
    node_word = np.zeros((n_words, n_places), np.int32)
    np.add.at(node_word, (tokens.word, at[document, levels]), 1)
    state = TreeState(
        np.asarray(levels, np.int32),
        at,
        node_word,
        node_word.sum(0, dtype=np.int32),
        np.bincount(at.ravel(), minlength=n_places).astype(np.int32),
        parent,
    )
    return state, tuple(layout)


def places_for(n_nodes: int, level: int) -> int:
    """Return how many array slots a level gets for `n_nodes` nodes: a power of two, at least a fifth of them free."""
    return 1 if level == 0 else max(SMALLEST, 1 << (n_nodes + n_nodes // 4 + 3).bit_length())


def _length(layout: Layout, level: int) -> int:
    """Return how many array slots a level has in a layout."""
    return layout[level + 1] - layout[level]


def allocation_of(tokens: TreeTokens, state: TreeState) -> Allocation:
    """Return paths and level counts of a state, in the form that `log_joint` takes."""
    paths = np.asarray(state.paths)
    level_counts = np.zeros((len(tokens.cell_word), paths.shape[1]), np.int64)
    np.add.at(level_counts, (np.asarray(tokens.cell), np.asarray(state.levels)), 1)
    return Allocation(paths.astype(np.int64), level_counts)


def levels_of(counts: scipy.sparse.csr_array, level_counts: Int[np.ndarray, "nonzeros level"]) -> np.ndarray:
    """Return the level of each token, (token,), from how many tokens of each cell are at each level.

    A cell is a nonzero (document, word) count; its tokens are given levels from the root down.
    """
    depth = level_counts.shape[1]
    return np.repeat(np.tile(np.arange(depth), len(counts.data)), level_counts.ravel()).astype(np.int32)
