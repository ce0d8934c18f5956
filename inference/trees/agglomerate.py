"""A start found without sampling: documents clustered by their words, clusters nested, words put at their level.

One dendrogram (average linkage of cosines between square-rooted counts, weighted by inverse document frequency) is cut
into k_2 ≤ k_3 ≤ … clusters, a level of the tree each. A word begins at the level nearest the root at whose node
most documents have it, else at the leaf; a few passes of expectation and maximisation settle levels, and a document's
copies of a word go to the likeliest. The numbers of clusters are those of the highest
log p(w, z, c), from a coarse grid and then one by one.
"""

from itertools import combinations_with_replacement

import numpy as np
import scipy.sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from lvsearch.inference.trees.chain import canonical
from lvsearch.inference.trees.density import Allocation, log_joint
from lvsearch.inference.trees.hyper import TreeHyper
from lvsearch.inference.trees.relevel import levels_by_share

MOST_CUTS = 80
PASSES = 12


def agglomerated_start(counts: scipy.sparse.csr_array, hyper: TreeHyper) -> Allocation:
    """A tree and its levels from one dendrogram of the documents; the same for every call."""
    counts = canonical(counts)
    n_docs = counts.shape[0]
    if n_docs == 1 or hyper.depth == 1:
        return levels_by_share(counts, np.zeros((n_docs, hyper.depth), np.int64))
    has = counts.astype(bool).astype(np.float64)
    frequency = np.asarray(has.sum(0)).ravel()
    weighted = np.sqrt(counts.toarray()) * np.log((1 + n_docs) / (1 + frequency))
    weighted /= np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), 1e-12)
    tree = linkage(pdist(weighted, "sqeuclidean"), method="average")

    tried: dict[tuple[int, ...], tuple[float, Allocation]] = {}

    def attempt(cuts: tuple[int, ...]) -> float:
        if cuts not in tried:
            clusters = [np.zeros(n_docs, np.int64), *(fcluster(tree, k, criterion="maxclust") for k in cuts)]
            allocation = _settled(counts, levels_by_share(counts, _nested(np.stack(clusters, axis=1))), hyper)
            tried[cuts] = log_joint(counts, allocation, hyper).total, allocation
        return tried[cuts][0]

    best = max(_grid(n_docs, hyper.depth - 1), key=attempt)
    while True:
        near = [
            (*best[:level], best[level] + step, *best[level + 1 :]) for level in range(len(best)) for step in (-1, 1, 2)
        ]
        allowed = [cuts for cuts in near if cuts[0] >= 1 and cuts[-1] <= n_docs and list(cuts) == sorted(cuts)]
        better = max(allowed, key=attempt, default=best)
        if attempt(better) <= attempt(best):
            return tried[best][1]
        best = better


def _grid(n_docs: int, levels: int) -> list[tuple[int, ...]]:
    """Non-decreasing numbers of clusters, about `MOST_CUTS` of them."""
    n_values = 12
    while n_values > 2 and len(list(combinations_with_replacement(range(n_values), levels))) > MOST_CUTS:
        n_values -= 1
    values = np.unique(np.geomspace(1, max(n_docs // 2, 1), n_values).round().astype(int)).tolist()
    return list(combinations_with_replacement(values, levels))


def _nested(clusters: np.ndarray) -> np.ndarray:
    """Cluster numbers (docs, level) as nodes: one label for every distinct beginning of a path."""
    paths, labels = np.zeros_like(clusters), {}
    for d, row in enumerate(clusters.tolist()):
        for level in range(len(row)):
            paths[d, level] = labels.setdefault(tuple(row[: level + 1]), len(labels))
    return paths


def _settled(counts: scipy.sparse.csr_array, begin: Allocation, hyper: TreeHyper) -> Allocation:
    """Levels by EM with Dirichlet pseudo-counts, then the likeliest level of every cell."""
    n_docs, depth = begin.paths.shape
    document = np.repeat(np.arange(n_docs), np.diff(counts.indptr))
    nodes = [np.unique(begin.paths[:, level], return_inverse=True)[1] for level in range(depth)]
    expected = begin.level_counts.astype(np.float64)
    for _ in range(PASSES):
        per_document = np.zeros((n_docs, depth))
        np.add.at(per_document, document, expected)
        weights = hyper.levels.mean(per_document)[document]
        for level, node in enumerate(nodes):
            table = np.zeros((node.max() + 1, counts.shape[1]))
            np.add.at(table, (node[document], counts.indices), expected[:, level])
            topics = (table + hyper.topics[level]) / (
                table.sum(1, keepdims=True) + counts.shape[1] * hyper.topics[level]
            )
            weights[:, level] *= topics[node[document], counts.indices]
        expected = counts.data[:, None] * weights / weights.sum(1, keepdims=True)
    level_counts = np.zeros(expected.shape, np.int64)
    level_counts[np.arange(len(expected)), expected.argmax(1)] = counts.data
    return Allocation(begin.paths, level_counts)
