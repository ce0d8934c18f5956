"""A start of tree chains without sampling: documents clustered by their words, clusters nested, words put at their
level.

There is one dendrogram of the documents: average linkage of cosines between square-rooted counts, weighted by inverse
document frequency. It is cut into k_2 ≤ k_3 ≤ … clusters, one number for each level of the tree. A word begins at the
level nearest the root at whose node most documents have it, else at the leaf. A few passes of expectation and
maximisation then optimise the levels, and a document's copies of a word go to their most probable level. The numbers of
clusters are those with the highest log p(words, levels, paths), found on a coarse grid and then refined one by one.
"""

from itertools import combinations_with_replacement

import numpy as np
import scipy.sparse

from lvsearch.inference.trees.corpus import canonical
from lvsearch.inference.trees.density import Allocation, log_joint
from lvsearch.inference.trees.hyper import TreeHyper
from lvsearch.inference.trees.relevel import levels_by_share

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
    document = np.repeat(np.arange(n_docs), np.diff(counts.indptr))
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
