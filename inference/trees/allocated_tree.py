"""A tree of topics with its counts: documents leave and enter at their best path; blocks of tokens change levels.

Peaked topics tie a document's path to its levels: with the levels held, every other path has next to no probability. A
sampler that moves one of the two at a time stands still. Here a document is placed with both at once. All copies of a
word in a document are at one level. This loses nothing near a mode, because log p(words, levels, paths) is convex in
how copies are split, apart from the total count of a topic.

Levels of tokens are also optimised one block at a time (`relevel`): all copies of a word in all documents below a node
move to another level. A single token seldom leaves a level. With the topics' concentration η small, the first copy of a
word at a node costs log η, which only the copies that follow pay back. A block pays once. Let k_d be the copies of the
word at level a in document d, m_d the document's tokens at each level, e_a a unit vector. For documents below node x
and levels a, b, log p(words, levels, paths) changes by

    Σ_d   log p(m_d − k_d e_a + k_d e_b) − log p(m_d)

    Σ_nodes at a, b   log Γ(n_w ± K + η) − log Γ(n_w + η) − log Γ(n ± K + Vη) + log Γ(n + Vη)   K = Σ_d k_d there

with n_w and n the tokens of the word, and of all V words, at the node. All words and all nodes x of a level are
computed in one pass. A block is moved if it still gains when its turn comes.
"""

from itertools import permutations, product
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import gammaln

from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.trees.density import Allocation, TreeHyper, log_joint

NEW = -1
"""The number of a node that is yet to be opened. It also indexes the last row of the tables, which stays empty."""
FEWEST_PLACES = 32
"""The number of array slots (places) for nodes at first."""
PASSES = 4
"""The most passes over a document's words when its levels are optimised."""


class Options(NamedTuple):
    """The paths that a document can take, and their prior probabilities.

    `paths`: (option, level), numbers of nodes; `NEW` beyond the existing nodes.
    `log_prior`: log p(path | the other documents' paths), (option,), nats.
    """

    paths: np.ndarray
    log_prior: np.ndarray


class AllocatedTree:
    """A tree of documents: each document's path and levels, and each node's word counts.

    Nodes have array slots (places) in the tables, the root the first one. The tree starts empty, or with `allocation`.

    counts: the count of each word in each document, (document, word), in the form that `canonical` returns.
    hyper: the hyper-parameters.
    allocation: paths and levels of all documents, or None.
    """

    def __init__(self, counts: scipy.sparse.csr_array, hyper: TreeHyper, allocation: Allocation | None = None):
        """Make an empty tree for these documents, or the tree of `allocation`."""
        n_docs, n_words = counts.shape  # pyright: ignore
        self.counts, self.hyper = counts, hyper
        self.document = row_of_each_nonzero(counts)
        copies = np.arange(int(counts.sum()) + 1)
        self._word = gammaln(copies + hyper.topics[:, None])
        self._total = gammaln(copies + n_words * hyper.topics[:, None])
        self._each_level = np.arange(hyper.depth)
        self._make_tables(FEWEST_PLACES)
        self.paths = np.full((n_docs, hyper.depth), NEW)
        self.level_counts = np.zeros((len(counts.data), hyper.depth), np.int64)
        self.per_document = np.zeros((n_docs, hyper.depth), np.int64)
        if allocation is not None:
            self.load(allocation)

    def load(self, allocation: Allocation) -> None:
        """Put every document back on the path and levels that `allocation` has for it, and recount words by node."""
        nodes = [np.unique(column, return_inverse=True)[1] for column in allocation.paths.T]
        begin = np.cumsum([0, *(int(node.max()) + 1 for node in nodes)])
        self._make_tables(max(len(self.documents), int(begin[-1]) + 2))
        self.paths = np.stack(nodes, axis=1) + begin[:-1]
        self.level_counts = np.array(allocation.level_counts, np.int64)
        self.per_document[:] = 0
        np.add.at(self.per_document, self.document, self.level_counts)
        for level in range(self.hyper.depth):
            at = self.paths[:, level]
            np.add.at(self.table, (at[self.document], self.counts.indices), self.level_counts[:, level])
            np.add.at(self.documents, at, 1)
            self.level[at], self.parent[at] = level, self.paths[:, max(level - 1, 0)]
        self.totals = self.table.sum(1)

    def _make_tables(self, n_places: int) -> None:
        """Make empty tables with room for `n_places` nodes."""
        self.table = np.zeros((n_places, self.counts.shape[1]), np.int64)
        self.totals, self.documents = np.zeros(n_places, np.int64), np.zeros(n_places, np.int64)
        self.parent, self.level = np.zeros(n_places, np.int64), np.zeros(n_places, np.int64)

    @property
    def allocation(self) -> Allocation:
        """A copy of the documents' paths and levels."""
        return Allocation(self.paths.copy(), self.level_counts.copy())

    def score(self) -> float:
        """Return log p(words, levels, paths) in nats. All documents must be in the tree."""
        return log_joint(self.counts, Allocation(self.paths, self.level_counts), self.hyper).total

    # ── one document ────────────────────────────────────────────────────────────────────────────────────────────────

    def cells(self, d: int) -> slice:
        """Return which stored cells of the counts belong to document `d`, as a slice."""
        return slice(self.counts.indptr[d], self.counts.indptr[d + 1])

    def remove(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Take document `d` out of the tree.

        Returns: (its path (level,), with `NEW` for nodes that no other document passes; its level counts (cell,
            level)).
        """
        path, cells = self.paths[d].copy(), self.cells(d)
        self._count_document(d, path, -1)
        self.paths[d] = NEW
        self.per_document[d] = 0
        return np.where((self.documents[path] > 0) | (path == 0), path, NEW), self.level_counts[cells].copy()

    def insert(self, d: int, path: np.ndarray, level_counts: np.ndarray) -> None:
        """Put document `d` on a path, which may have `NEW` nodes.

        path: the node of each level.
        level_counts: how many tokens of each of the document's words are at each level, (cell, level).
        """
        path = np.array(path)
        for level in range(self.hyper.depth):
            if path[level] == NEW:
                path[level] = self._free_place()
                self.level[path[level]], self.parent[path[level]] = level, path[level - 1]
            self.documents[path[level]] += 1
        self.documents[path] -= 1
        self.level_counts[self.cells(d)] = level_counts
        self.paths[d], self.per_document[d] = path, level_counts.sum(0)
        self._count_document(d, path, 1)

    def _count_document(self, d: int, path: np.ndarray, sign: int) -> None:
        """Add the words and tokens of document `d` to the tables of its path's nodes (sign 1), or subtract them
        (−1).
        """
        cells = self.cells(d)
        self.table[path[:, None], self.counts.indices[cells]] += sign * self.level_counts[cells].T
        self.totals[path] += sign * self.per_document[d]
        self.documents[path] += sign

    def _free_place(self) -> int:
        """Return a free array slot for a node; the tables are doubled if there is none."""
        free = np.flatnonzero(self.documents[1:-1] == 0)
        if len(free):
            return int(free[0]) + 1
        more = len(self.documents)
        for name in ("table", "totals", "documents", "parent", "level"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros((more, *array.shape[1:]), np.int64)]))
        return more - 1

    def options(self) -> Options:
        """Return the paths that the next document can take: every existing path, and new ones.

        Below every inner node there is one path that is new from there on.
        """
        depth, gamma = self.hyper.depth, self.hyper.branching
        paths, log_prior = [], []
        begun = {0: ((0,), 0.0)}
        nodes = 1 + np.flatnonzero(self.documents[1:] > 0)
        for place in [0, *nodes[np.argsort(self.level[nodes], kind="stable")]]:
            n, level = self.documents[place], int(self.level[place])
            if place > 0:
                above, log_p = begun[self.parent[place]]  # pyright: ignore
                log_p += np.log(n) - np.log(self.documents[self.parent[place]] + gamma)
                begun[place] = ((*above, int(place)), log_p)  # pyright: ignore
            path, log_p = begun[place]
            opened = 0.0 if level == depth - 1 else np.log(gamma) - np.log(n + gamma)
            paths.append((*path, *(NEW,) * (depth - 1 - level)))
            log_prior.append(log_p + opened)
        return Options(np.array(paths), np.array(log_prior))

    def best_levels(self, d: int, options: Options) -> tuple[np.ndarray, np.ndarray]:
        """Find the best levels of the words of a document, which is out of the tree, on every path.

        Levels begin as if proportions and the tokens per level were at their prior means. They are then optimised word
        by word, frequent ones first, until none changes its level, in at most `PASSES` passes.

        d: the number of the document.
        options: the paths.

        Returns: (log p of the document on each path at these levels, (option,), nats; the level of each word, (option,
            cell)).
        """
        depth, cells = self.hyper.depth, self.cells(d)
        copies, levels = self.counts.data[cells], self.hyper.levels
        n_options = len(options.paths)
        here = self.table[options.paths][:, :, self.counts.indices[cells]]  # (option, level, cell)
        others = self.totals[options.paths]
        rows = self._each_level[:, None]
        ratio = self.word_ratio(rows, here, copies)
        share = levels.mean(np.zeros((1, depth)))[0]
        mass = others + copies.sum() * share + self.counts.shape[1] * self.hyper.topics
        # the first levels, and the document's tokens m at each level
        at = (ratio + copies * (np.log(share) - np.log(mass))[:, :, None]).argmax(1)
        m = ((at[:, None] == rows) * copies).sum(-1)
        every = np.arange(n_options)
        for _ in range(PASSES):
            changed = False
            for cell in np.argsort(-copies, kind="stable"):  # pyright: ignore
                # take the cell out, score it at every level of every path, put it at its best one
                n = copies[cell : cell + 1]
                m[every, at[:, cell]] -= n
                gain = ratio[:, :, cell] + self.mass_ratio(self._each_level, others + m, n)
                gain += levels.log_evidence((m[:, None] + n * np.eye(depth)).reshape(-1, depth)).reshape(-1, depth)
                best = gain.argmax(1)
                changed |= bool((best != at[:, cell]).any())
                at[:, cell] = best
                m[every, best] += n
            if not changed:
                break
        words = np.take_along_axis(ratio, at[:, None], 1)[:, 0].sum(-1)
        score = options.log_prior + words + self.mass_ratio(self._each_level, others, m).sum(1) + levels.log_evidence(m)
        return score, at

    def score_document(self, d: int, path: np.ndarray, level_counts: np.ndarray, log_prior: float) -> float:
        """Return log p of a document on one path at given levels, in nats, comparable to the scores of `best_levels`.

        d: the number of the document, which is out of the tree.
        path: the node of each level.
        level_counts: (cell, level).
        log_prior: log p(path), nats.
        """
        m, here = level_counts.sum(0), self.table[path[:, None], self.counts.indices[self.cells(d)]]
        words = self.word_ratio(self._each_level[:, None], here, level_counts.T).sum()
        masses = self.mass_ratio(self._each_level, self.totals[path], m).sum()
        return float(log_prior + words + masses + self.hyper.levels.log_evidence(m[None])[0])

    def counts_at_levels(self, d: int, at: np.ndarray) -> np.ndarray:
        """Return level counts (cell, level) of a document in which all copies of a word are at one level.

        at: the level of each of the document's words, (cell,).
        """
        return self.counts.data[self.cells(d)][:, None] * (at[:, None] == self._each_level)

    # ── ratios of a topic's integral, arrays broadcast ───────────────────────────────────────────────────────────────

    def word_ratio(self, level: int | np.ndarray, here: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Return log Γ(n_w + change + η) − log Γ(n_w + η), in nats, the factor of one word in a topic's integral.

        η is the topics' concentration at the level. Arrays broadcast.

        here: n_w, tokens of the word at the node. change: how many are added.
        """
        return self._word[level, here + change] - self._word[level, here]

    def mass_ratio(self, level: int | np.ndarray, here: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Return log Γ(n + Vη) − log Γ(n + change + Vη), in nats, the factor of all words in a topic's integral.

        V is the number of words and η the topics' concentration at the level. Arrays broadcast.

        here: n, tokens at the node. change: how many are added.
        """
        return self._total[level, here] - self._total[level, here + change]


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
    document = row_of_each_nonzero(counts)
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
