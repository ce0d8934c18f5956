"""Two starts of tree chains that no chain finds by itself: a dendrogram of the documents, and hill climbing.

**A dendrogram** (`agglomerated_start`), without sampling: documents clustered by their words, clusters nested, words
put at their level. The one dendrogram has average linkage of cosines between square-rooted counts, weighted by inverse
document frequency. It is cut into k_2 ≤ k_3 ≤ … clusters, one number for each level of the tree. A word begins at the
level nearest the root at whose node most documents have it, else at the leaf. A few passes of expectation and
maximisation then optimise the levels, and a document's copies of a word go to their most probable level. The numbers of
clusters are those with the highest log p(words, levels, paths), found on a coarse grid and then refined one by one.

**Hill climbing** (`climb`) to the most probable tree, paths and levels together:

1. Documents enter an empty tree one by one, in random order, each at its best path and levels together. Blocks of
   levels are optimised after each (`relevel`). The best of several orders is continued.
2. Every document leaves and enters again at its best path and levels.
3. The tree is rearranged, levels are optimised anew, and what gains is kept; then step 2 follows again.

A rearrangement puts a node with all below it under another parent, or merges it with a node of its level. Or it splits
a leaf by a word that some of its documents have.

Nothing is accepted that lowers log p(words, levels, paths). A round of step 3 tries about nodes² trees, so it is for
some hundred documents and some dozen nodes. It finds modes and does not sample the posterior.
"""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
import scipy.sparse
from jaxtyping import Array

from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.generators import generator
from lvsearch.inference.trees.allocated_tree import (
    LEAST_GAIN,
    AllocatedTree,
    Options,
    levels_by_share,
    relevel,
    relevel_anew,
)
from lvsearch.inference.trees.corpus import canonical
from lvsearch.inference.trees.density import Allocation, TreeHyper, log_joint

MOST_CUTS = 80
"""The most combinations of numbers of clusters that are tried on the coarse grid."""
MOST_DOCUMENTS = 4000
"""The most documents for which callers start a chain here. The distances take 8 bytes × documents²."""
PASSES = 12
"""The number of passes of expectation and maximisation over the levels."""


def agglomerated_start(counts: scipy.sparse.csr_array, hyper: TreeHyper, *, cuts: int = MOST_CUTS) -> Allocation:
    """Return a tree and its levels from one dendrogram of the documents. Every call gives the same result.

    counts: the count of each word in each document, (document, word).
    hyper: the hyper-parameters.
    cuts: about the most combinations of numbers of clusters that are tried on a coarse grid, which takes most of the
        time. With fewer than the default, numbers of clusters are not refined one by one either.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # imported here: the import takes a tenth of a second

    counts = canonical(counts)
    n_docs = counts.shape[0]
    if n_docs == 1 or hyper.depth == 1:
        return levels_by_share(counts, np.tile(np.arange(hyper.depth), (n_docs, 1)))  # one node a level
    # squared distances between documents: 2 − 2 cosine of the weighted, normalised rows
    has = counts.astype(bool).astype(np.float64)
    frequency = np.asarray(has.sum(0)).ravel()
    weighted = np.sqrt(counts.toarray()) * np.log((1 + n_docs) / (1 + frequency))
    weighted /= np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), 1e-12)
    distances = np.clip(2 - 2 * weighted @ weighted.T, 0, None)
    tree = linkage(distances[np.triu_indices(n_docs, 1)], method="average")

    tried: dict[tuple[int, ...], tuple[float, Allocation]] = {}

    def attempt(cut: tuple[int, ...]) -> float:
        """Return log p(words, levels, paths) of the tree with the given number of clusters at each level, in nats."""
        if cut not in tried:
            clusters = [np.zeros(n_docs, np.int64), *(fcluster(tree, k, criterion="maxclust") for k in cut)]
            allocation = _optimise_levels(
                counts, levels_by_share(counts, _label_paths(np.stack(clusters, axis=1))), hyper
            )
            tried[cut] = log_joint(counts, allocation, hyper).total, allocation
        return tried[cut][0]

    best = max(_grid(n_docs, hyper.depth - 1, cuts), key=attempt)
    while cuts >= MOST_CUTS:
        near = [
            (*best[:level], best[level] + step, *best[level + 1 :]) for level in range(len(best)) for step in (-1, 1, 2)
        ]
        allowed = [cut for cut in near if cut[0] >= 1 and cut[-1] <= n_docs and list(cut) == sorted(cut)]
        better = max(allowed, key=attempt, default=best)
        if attempt(better) <= attempt(best):
            break
        best = better
    return tried[best][1]


def _grid(n_docs: int, levels: int, cuts: int) -> list[tuple[int, ...]]:
    """Return combinations of non-decreasing numbers of clusters, one number for each level below the root.

    cuts: about the most combinations.
    """
    n_values = 12
    while n_values > 2 and len(list(combinations_with_replacement(range(n_values), levels))) > cuts:
        n_values -= 1
    values = np.unique(np.geomspace(1, max(n_docs // 2, 1), n_values).round().astype(int)).tolist()
    return list(combinations_with_replacement(values, levels))


def _label_paths(clusters: np.ndarray) -> np.ndarray:
    """Return paths (document, level) from the cluster of each document at each level.

    Every distinct beginning of a path gets a node label of its own.
    """
    paths, labels = np.zeros_like(clusters), {}
    for d, row in enumerate(clusters.tolist()):
        for level in range(len(row)):
            paths[d, level] = labels.setdefault(tuple(row[: level + 1]), len(labels))
    return paths


def _optimise_levels(counts: scipy.sparse.csr_array, begin: Allocation, hyper: TreeHyper) -> Allocation:
    """Optimise levels at fixed paths by EM with Dirichlet pseudo-counts, and return the allocation.

    In the end all copies of a word in a document are at their most probable level.
    """
    (n_docs, depth), n_words = begin.paths.shape, counts.shape[1]
    document = row_of_each_nonzero(counts)
    nodes = [np.unique(begin.paths[:, level], return_inverse=True)[1][document] for level in range(depth)]
    # (node, word) pairs that occur, a number each: topics are needed there alone
    pairs = [np.unique(node * n_words + counts.indices, return_inverse=True)[1] for node in nodes]
    expected = begin.level_counts.astype(np.float64)
    for _ in range(PASSES):
        per_document = np.stack([np.bincount(document, column, minlength=n_docs) for column in expected.T], axis=1)
        weights = hyper.levels.mean(per_document)[document]
        for level, (node, pair) in enumerate(zip(nodes, pairs, strict=True)):
            eta, here = hyper.topics[level], expected[:, level]
            mass = np.bincount(node, here)[node] + n_words * eta
            weights[:, level] *= (np.bincount(pair, here)[pair] + eta) / mass
        expected = counts.data[:, None] * weights / weights.sum(1, keepdims=True)
    level_counts = np.zeros(expected.shape, np.int64)
    level_counts[np.arange(len(expected)), expected.argmax(1)] = counts.data
    return Allocation(begin.paths, level_counts)


ROUNDS = 4
"""The most rounds in which every document is moved, between two rearrangements."""


def climb(
    counts: scipy.sparse.csr_array,
    hyper: TreeHyper,
    key: Array,
    *,
    orders: int = 10,
    start: Allocation | None = None,
) -> Allocation:
    """Return the most probable allocation found by hill climbing over trees, from several starts.

    counts: the count of each word in each document, (document, word).
    hyper: the hyper-parameters.
    key: the random key of the orders.
    orders: how many random orders of the documents to start from.
    start: an allocation to start from too, or None.

    Raises ValueError if there are neither orders nor a start.
    """
    if orders < 0 or (orders == 0 and start is None):
        raise ValueError(f"got orders={orders}, expected at least 1, or a start")
    counts, rng = canonical(counts), generator(key)
    tree, begins = AllocatedTree(counts, hyper), []
    if start is not None:
        tree.load(start)
        _improve(tree, rng)
        begins.append((tree.score(), tree.allocation))
    for order in rng.spawn(orders):
        tree = _insert_all(counts, hyper, order)
        _improve(tree, rng)
        begins.append((tree.score(), tree.allocation))
    tree.load(max(begins, key=lambda scored: scored[0])[1])
    while _rearrange(tree, rng):
        _improve(tree, rng)
    return tree.allocation


def _insert_all(counts: scipy.sparse.csr_array, hyper: TreeHyper, rng: np.random.Generator) -> AllocatedTree:
    """Return a tree that all documents have entered in random order, each at its best path and levels."""
    tree = AllocatedTree(counts, hyper)
    for d in rng.permutation(counts.shape[0]).tolist():
        _insert_best(tree, d)
        relevel(tree)
    return tree


def _insert_best(tree: AllocatedTree, d: int) -> None:
    """Insert document `d` at its best path and levels; this changes the tree."""
    options = tree.options()
    scores, at = tree.best_levels(d, options)
    best = int(scores.argmax())
    tree.insert(d, options.paths[best], tree.counts_at_levels(d, at[best]))


def _improve(tree: AllocatedTree, rng: np.random.Generator) -> None:
    """Optimise levels, and move one document at a time, until none changes its path or `ROUNDS` rounds are over.

    This changes the tree.
    """
    relevel_anew(tree)
    for _ in range(ROUNDS):
        moved = _move_each_document(tree, rng)
        relevel(tree)
        if not moved:
            return


def _move_each_document(tree: AllocatedTree, rng: np.random.Generator) -> int:
    """Move every document to its best path and levels, if that gains; return how many changed their path."""
    moved = 0
    for d in rng.permutation(len(tree.paths)).tolist():
        path, level_counts = tree.remove(d)
        options = tree.options()
        scores, at = tree.best_levels(d, options)
        best = int(scores.argmax())
        own = int(np.flatnonzero((options.paths == path).all(1))[0])
        if scores[best] > tree.score_document(d, path, level_counts, options.log_prior[own]) + LEAST_GAIN:
            tree.insert(d, options.paths[best], tree.counts_at_levels(d, at[best]))
            moved += best != own
        else:
            tree.insert(d, path, level_counts)
    return moved


def _rearrange(tree: AllocatedTree, rng: np.random.Generator) -> bool:
    """Make the first rearrangement that gains, tried in random order; return False if none does."""
    before, score = tree.allocation, tree.score()
    ideas = list(_rearrangements(tree))
    for number in rng.permutation(len(ideas)).tolist():
        members, paths = ideas[number]
        for again in (False, True):
            tree.load(before._replace(paths=paths))
            if again:
                _reinsert(tree, rng.permutation(members))
            relevel(tree)
            if tree.score() > score + LEAST_GAIN:
                return True
    tree.load(before)
    return False


def _reinsert(tree: AllocatedTree, members: np.ndarray) -> None:
    """Take documents out of the tree, then put them back one by one on their old paths, at their best levels.

    The best levels are those given the documents that are in the tree already. This changes the tree.

    members: the numbers of the documents.
    """
    on = tree.paths.copy()
    for d in members.tolist():
        tree.remove(d)
    for d in members.tolist():
        path = on[d]
        _, at = tree.best_levels(d, Options(path[None], np.zeros(1)))
        tree.insert(d, path, tree.counts_at_levels(d, at[0]))


def _rearrangements(tree: AllocatedTree) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield every tree that is one rearrangement away, as (numbers of the documents moved, paths of all documents)."""
    paths, depth = tree.paths, tree.hyper.depth
    fresh = int(paths.max()) + 1
    for level in range(1, depth):
        nodes, first = np.unique(paths[:, level], return_index=True)
        beginnings = paths[first]
        for node, beginning in zip(nodes.tolist(), beginnings, strict=True):
            members = np.flatnonzero(paths[:, level] == node)

            def move_branch(onto: np.ndarray, members: np.ndarray = members) -> tuple[np.ndarray, np.ndarray]:
                """Return (members, paths of all documents), with the paths of the members beginning with the nodes
                `onto`.
                """
                after = paths.copy()
                after[members, : len(onto)] = onto
                return members, after

            # the branch under another parent, under new nodes from some level on, and merged with a node of its level
            for parent in np.unique(paths[:, level - 1]):
                if parent != beginning[level - 1]:
                    yield move_branch(paths[paths[:, level - 1] == parent][0, :level])
            for opened in range(1, level):
                if (paths[:, opened] == beginning[opened]).sum() > len(members):
                    yield move_branch(np.append(beginning[:opened], fresh + np.arange(level - opened)))
            for other in beginnings[nodes != node]:
                yield move_branch(other[: level + 1])
    # leaves split by a word that some of their documents have
    for node in np.unique(paths[:, -1]) if depth > 1 else ():
        members = np.flatnonzero(paths[:, -1] == node)
        has = tree.counts[members].toarray() > 0
        splits = {tuple(column) for column in has.T[(has.any(0) & ~has.all(0))].tolist()}
        for split in sorted(splits):
            after = paths.copy()
            after[members[np.array(split)], -1] = fresh
            yield members, after
