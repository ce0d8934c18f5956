"""Hill climbing over trees with the levels optimised anew for every tree that is tried.

Two siblings that share a topic often keep it at different levels, so that merging them gains only after their tokens
have been allocated again. A trial here is a merge followed by `settle_levels`; it is kept if log p(w, z, c) rose.
Gibbs sweeps between rounds move single documents. This finds modes; it draws from no posterior.
"""

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array

from lvsearch.inference.trees.chain import TreeSampler, canonical, settle_levels
from lvsearch.inference.trees.density import Allocation, log_joint
from lvsearch.inference.trees.hyper import TreeHyper

SWEEPS = 10


def climb(
    counts: scipy.sparse.csr_array,
    hyper: TreeHyper,
    allocation: Allocation,
    key: Array,
    *,
    rounds: int = 3,
    candidates: int = 8,
) -> Allocation:
    """The best allocation found from `allocation` by merging siblings and moving documents, levels optimised.

    rounds: of merges until none of the `candidates` most alike pairs gains, then sweeps. log p(w, z, c) never falls.
    """
    counts = canonical(counts)
    numbers = iter(range(1 << 30))

    def settled(trial: Allocation) -> tuple[float, Allocation]:
        after = settle_levels(counts, hyper, trial, jax.random.fold_in(key, next(numbers)), passes=1)
        return log_joint(counts, after, hyper).total, after

    best = max((log_joint(counts, allocation, hyper).total, allocation), settled(allocation), key=_score)
    for _ in range(rounds):
        current = best
        while True:
            trials = (settled(merged) for merged in _merges(counts, current[1], hyper.depth, candidates))
            better = next((trial for trial in trials if trial[0] > current[0]), None)
            if better is None:
                break
            current = better
        best = max(best, current, key=_score)
        sampler = TreeSampler(counts, hyper, best[1])
        for _ in range(SWEEPS):
            sampler.step(jax.random.fold_in(key, next(numbers)))
        moved = settled(sampler.allocation)
        if moved[0] <= best[0] and current is not best:
            break
        best = max(best, moved, key=_score)
    return best[1]


def _score(scored: tuple[float, Allocation]) -> float:
    return scored[0]


def _merges(counts: scipy.sparse.csr_array, allocation: Allocation, depth: int, candidates: int) -> list[Allocation]:
    """The allocation with two siblings merged, for the most alike pairs, most alike first.

    Alike: the cosine between the words of their documents, root's tokens left out.
    """
    paths = allocation.paths
    document = np.repeat(np.arange(len(paths)), np.diff(counts.indptr))
    below_root = allocation.level_counts[:, 1:].sum(1)
    pairs = []
    for level in range(1, depth):
        labels, first, at = np.unique(paths[:, level], return_index=True, return_inverse=True)
        words = np.zeros((len(labels), counts.shape[1]))
        np.add.at(words, (at[document], counts.indices), below_root)
        words /= np.maximum(np.linalg.norm(words, axis=1, keepdims=True), 1e-12)
        alike = words @ words.T
        parent = paths[first, level - 1]
        for i, j in zip(*np.triu_indices(len(labels), 1), strict=True):
            if parent[i] == parent[j]:
                pairs.append((float(alike[i, j]), level, int(labels[i]), int(labels[j])))
    out = []
    for _, level, kept, gone in sorted(pairs, reverse=True)[:candidates]:
        merged = paths.copy()
        merged[merged[:, level] == gone, level] = kept
        out.append(allocation._replace(paths=merged))
    return out
