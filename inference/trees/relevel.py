"""Levels of tokens optimised one block at a time: all copies of a word in all documents below a node move to another
level.

A single token seldom leaves a level. With the topics' concentration η small, the first copy of a word at a node costs
log η, which only the copies that follow pay back. A block pays once. Let k_d be the copies of the word at level a in
document d, m_d the document's tokens at each level, e_a a unit vector. For documents below node x and levels a, b, log
p(words, levels, paths) changes by

    Σ_d   log p(m_d − k_d e_a + k_d e_b) − log p(m_d)

    Σ_nodes at a, b   log Γ(n_w ± K + η) − log Γ(n_w + η) − log Γ(n ± K + Vη) + log Γ(n + Vη)   K = Σ_d k_d there

with n_w and n the tokens of the word, and of all V words, at the node. All words and all nodes x of a level are
computed in one pass. A block is moved if it still gains when its turn comes.
"""

from itertools import permutations, product

import numpy as np
import scipy.sparse

from lvsearch.inference.trees.allocated_tree import AllocatedTree
from lvsearch.inference.trees.density import Allocation

LEAST_GAIN = 1e-7
"""A gain of fewer nats than this is rounding."""
SHARE = 0.5
"""A word belongs to a node if at least this share of its documents have it."""


def relevel(tree: AllocatedTree) -> None:
    """Move blocks of tokens between levels until none gains; this changes the tree.

    Paths stay, and documents that are out of the tree take no part.
    """
    depth = tree.hyper.depth
    kinds = list(product(range(depth), permutations(range(depth), 2)))
    kind, idle = 0, 0
    while idle < len(kinds):
        below, (begin, end) = kinds[kind]
        idle = 0 if _move_blocks(tree, below, begin, end) else idle + 1
        kind = (kind + 1) % len(kinds)


def relevel_anew(tree: AllocatedTree) -> None:
    """Optimise levels from the present ones and from `levels_by_share`, and keep the better result; this changes the
    tree.

    All documents must be in the tree.
    """
    relevel(tree)
    kept, score = tree.allocation, tree.score()
    tree.load(levels_by_share(tree.counts, tree.paths))
    relevel(tree)
    if tree.score() <= score:
        tree.load(kept)


def _move_blocks(tree: AllocatedTree, below: int, begin: int, end: int) -> bool:
    """Move the blocks of one kind that gain; return True if any was moved.

    below: the level of the nodes that the blocks' documents share.
    begin, end: the levels that a block moves from and to.
    """
    inside = tree.paths[tree.document, 0] >= 0
    cells = np.flatnonzero((tree.level_counts[:, begin] > 0) & inside)
    if not len(cells):
        return False
    block, gains = _gains(tree, cells, below, begin, end)
    promising = np.flatnonzero(gains > LEAST_GAIN)
    if not len(promising):
        return False
    order = np.argsort(block, kind="stable")
    first = np.searchsorted(block[order], np.arange(len(gains) + 1))
    moved = False
    for at in promising[np.argsort(-gains[promising], kind="stable")]:
        members = cells[order[first[at] : first[at + 1]]]
        # blocks moved before it changed the masses
        if _gains(tree, members, below, begin, end)[1][0] > LEAST_GAIN:
            _move_cells(tree, members, begin, end)
            moved = True
    return moved


def _gains(tree: AllocatedTree, cells: np.ndarray, below: int, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each cell's block, (cell,), and the change of log p(words, levels, paths) if a block is moved, (block,),
    nats.

    cells: numbers of nonzero (document, word) counts with tokens at level `begin`.
    below: the level of the node that the documents of a block share.
    begin, end: the levels that a block moves from and to.
    """
    n_words = tree.counts.shape[1]
    documents, words, copies = tree.document[cells], tree.counts.indices[cells], tree.level_counts[cells, begin]
    _, block = np.unique(tree.paths[documents, below] * n_words + words, return_inverse=True)
    m = tree.per_document[documents]
    after = m.copy()
    after[:, begin] -= copies
    after[:, end] += copies
    levels = tree.hyper.levels
    gains = np.bincount(block, levels.log_evidence(after) - levels.log_evidence(m))
    for level, sign in ((begin, -1), (end, 1)):
        # a block's documents may pass several nodes of a level deeper than its own
        finest = tree.paths[documents, max(level, below)]
        _, first, part = np.unique(finest * n_words + words, return_index=True, return_inverse=True)
        change = sign * np.bincount(part, copies).astype(np.int64)
        node, word = tree.paths[documents[first], level], words[first]
        of_part = tree.word_ratio(level, tree.table[node, word], change)
        of_part = of_part + tree.mass_ratio(level, tree.totals[node], change)
        gains += np.bincount(block[first], of_part, minlength=len(gains))
    return block, gains


def _move_cells(tree: AllocatedTree, cells: np.ndarray, begin: int, end: int) -> None:
    """Move the tokens of some cells (nonzero document-word counts) from level `begin` to `end`; this changes the
    tree.
    """
    documents, words, copies = tree.document[cells], tree.counts.indices[cells], tree.level_counts[cells, begin]
    for level, change in ((begin, -copies), (end, copies)):
        node = tree.paths[documents, level]
        np.add.at(tree.table, (node, words), change)
        np.add.at(tree.totals, node, change)
        np.add.at(tree.per_document, (documents, level), change)  # pyright: ignore
        tree.level_counts[cells, level] += change


def levels_by_share(counts: scipy.sparse.csr_array, paths: np.ndarray) -> Allocation:
    """Return an allocation with given paths, and each word at the level nearest the root at whose node most documents
    have it.

    A word that most documents have at no inner node is at the leaf.

    counts: the count of each word in each document, (document, word).
    paths: the nodes of each document's path, (document, level).
    """
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
