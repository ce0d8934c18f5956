"""Levels optimised a block at a time: all copies of a word, in all documents below a node, from one level to another.

A single token seldom leaves a level: with η small, the first copy of a word at a node costs log η, which only the
copies that follow pay back. A block pays once. For documents below x and levels a, b the change of log p(w, z, c) is

    Σ_d   log p(m_d − k_d e_a + k_d e_b) − log p(m_d)                                      k_d: copies at a, in d
    Σ_nodes at a, b   log Γ(n_w ± K + η) − log Γ(n_w + η) − log Γ(n ± K + Vη) + log Γ(n + Vη)   K = Σ_d k_d there

computed for all words and nodes x of a level in one pass; a block is moved if it still gains when its turn comes.
"""

from itertools import permutations, product

import numpy as np
import scipy.sparse

from lvsearch.inference.trees.books import TreeBooks
from lvsearch.inference.trees.density import Allocation

LEAST_GAIN = 1e-7
SHARE = 0.5
"""A word is a node's where at least this share of its documents have it."""


def relevel(books: TreeBooks) -> None:
    """Move blocks, in place, until none gains; paths stay. Documents that are out take no part."""
    depth = books.hyper.depth
    kinds = list(product(range(depth), permutations(range(depth), 2)))
    kind, idle = 0, 0
    while idle < len(kinds):
        below, (begin, end) = kinds[kind]
        idle = 0 if _move_blocks(books, below, begin, end) else idle + 1
        kind = (kind + 1) % len(kinds)


def relevel_anew(books: TreeBooks) -> None:
    """`relevel` from the levels as they are and from `levels_by_share`; the better of the two. All documents are in."""
    relevel(books)
    kept, score = books.allocation, books.score()
    books.load(levels_by_share(books.counts, books.paths))
    relevel(books)
    if books.score() <= score:
        books.load(kept)


def _move_blocks(books: TreeBooks, below: int, begin: int, end: int) -> bool:
    inside = books.paths[books.document, 0] >= 0
    cells = np.flatnonzero((books.level_counts[:, begin] > 0) & inside)
    if not len(cells):
        return False
    block, gains = _gains(books, cells, below, begin, end)
    promising = np.flatnonzero(gains > LEAST_GAIN)
    if not len(promising):
        return False
    order = np.argsort(block, kind="stable")
    first = np.searchsorted(block[order], np.arange(len(gains) + 1))
    moved = False
    for at in promising[np.argsort(-gains[promising], kind="stable")]:
        members = cells[order[first[at] : first[at + 1]]]
        # blocks moved before it changed the masses
        if _gains(books, members, below, begin, end)[1][0] > LEAST_GAIN:
            _move(books, members, begin, end)
            moved = True
    return moved


def _gains(books: TreeBooks, cells: np.ndarray, below: int, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """(cell,) the block that each cell is in; (block,) the change of log p were it moved."""
    n_words = books.counts.shape[1]
    documents, words, copies = books.document[cells], books.counts.indices[cells], books.level_counts[cells, begin]
    _, block = np.unique(books.paths[documents, below] * n_words + words, return_inverse=True)
    m = books.per_document[documents]
    after = m.copy()
    after[:, begin] -= copies
    after[:, end] += copies
    levels = books.hyper.levels
    gains = np.bincount(block, levels.log_evidence(after) - levels.log_evidence(m))
    for level, sign in ((begin, -1), (end, 1)):
        # a block's documents may pass several nodes of a level deeper than its own
        finest = books.paths[documents, max(level, below)]
        _, first, part = np.unique(finest * n_words + words, return_index=True, return_inverse=True)
        change = sign * np.bincount(part, copies).astype(np.int64)
        node, word = books.paths[documents[first], level], words[first]
        of_part = books.word_ratio(level, books.table[node, word], change)
        of_part = of_part + books.mass_ratio(level, books.totals[node], change)
        gains += np.bincount(block[first], of_part, minlength=len(gains))
    return block, gains


def _move(books: TreeBooks, cells: np.ndarray, begin: int, end: int) -> None:
    documents, words, copies = books.document[cells], books.counts.indices[cells], books.level_counts[cells, begin]
    for level, change in ((begin, -copies), (end, copies)):
        node = books.paths[documents, level]
        np.add.at(books.table, (node, words), change)
        np.add.at(books.totals, node, change)
        np.add.at(books.per_document, (documents, level), change)  # pyright: ignore
        books.level_counts[cells, level] += change


def levels_by_share(counts: scipy.sparse.csr_array, paths: np.ndarray) -> Allocation:
    """These paths, each word at the level nearest the root at whose node most documents have it, else at the leaf."""
    document = np.repeat(np.arange(len(paths)), np.diff(counts.indptr))
    depth = paths.shape[1]
    level = np.full(len(counts.data), depth - 1)
    for at in range(depth - 2, -1, -1):
        nodes, node = np.unique(paths[:, at], return_inverse=True)
        has = np.zeros((len(nodes), counts.shape[1]))
        np.add.at(has, (node[document], counts.indices), 1.0)
        share = has / np.bincount(node)[:, None]
        below = [len(np.unique(paths[node == i, at + 1])) for i in range(len(nodes))]
        branches = np.array(below)[node[document]] > 1  # a node with one child leaves its words to neither
        level = np.where((share[node[document], counts.indices] >= SHARE) & (branches | (at == 0)), at, level)
    level_counts = np.zeros((len(counts.data), depth), np.int64)
    level_counts[np.arange(len(level)), level] = counts.data
    return Allocation(paths, level_counts)
