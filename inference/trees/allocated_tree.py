"""A tree of topics with its counts, which documents can leave and enter at their best path and levels.

Peaked topics tie a document's path to its levels: with the levels held, every other path has next to no probability. A
sampler that moves one of the two at a time stands still. Here a document is placed with both at once. All copies of a
word in a document are at one level. This loses nothing near a mode, because log p(words, levels, paths) is convex in
how copies are split, apart from the total count of a topic.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import gammaln

from lvsearch.inference.trees.density import Allocation, log_joint
from lvsearch.inference.trees.hyper import TreeHyper

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
        self.document = np.repeat(np.arange(n_docs), np.diff(counts.indptr))
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
        for place in [0, *np.flatnonzero(self.documents[1:] > 0)[np.argsort(self._live_levels(), kind="stable")] + 1]:
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

    def _live_levels(self) -> np.ndarray:
        """Return the level of each array slot that holds a node, the root left out."""
        return self.level[1:][self.documents[1:] > 0]

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
