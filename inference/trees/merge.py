"""Hill climbing over trees by merging siblings, which moving one document at a time takes very long to do.

Gibbs sampling moves one document at a time, and two nodes with the same topic persist as long as neither loses all its
documents. A merge lets the documents of one node pass the other from then on, and their children become siblings. With
levels kept, it changes log p(words, levels, paths) by closed forms. For siblings a and b at level ℓ with n_a and n_b
documents, concentration γ, and f the log Dirichlet-multinomial of a node's word counts (also called n here), they are

    words   f(n_a + n_b) − f(n_a) − f(n_b)

    paths   log Γ(n_a + n_b) − log Γ(n_a) − log Γ(n_b) − log γ, and for inner nodes
            log Γ(γ + n_a) + log Γ(γ + n_b) − log Γ(γ + n_a + n_b) − log Γ(γ)

The best merge is made as long as one gains. This finds modes: it is no step of a chain that samples a posterior.
"""

from itertools import combinations

import numpy as np
import scipy.sparse
from scipy.special import gammaln

from lvsearch.inference.trees.density import Allocation
from lvsearch.inference.trees.hyper import TreeHyper


def merge_siblings(counts: scipy.sparse.csr_array, allocation: Allocation, hyper: TreeHyper) -> Allocation:
    """Return the allocation after all merges of siblings that raise log p(words, levels, paths).

    Merges are made level by level from the root down. The levels of tokens are kept.

    counts: (docs, V) whole numbers, sorted indices, no stored zeros.
    allocation: paths and level counts to start from.
    hyper: the hyper-parameters.
    """
    paths = allocation.paths.copy()
    document = np.repeat(np.arange(len(paths)), np.diff(counts.indptr))
    for level in range(1, hyper.depth):
        labels, at = np.unique(paths[:, level], return_inverse=True)
        table = np.zeros((len(labels), counts.shape[1]))
        np.add.at(table, (at[document], counts.indices), allocation.level_counts[:, level])
        words = dict(zip(labels.tolist(), table, strict=True))
        for parent in np.unique(paths[:, level - 1]).tolist():
            members = paths[:, level - 1] == parent
            _merge_children(paths, members, level, words, hyper)
    return allocation._replace(paths=paths)


def _merge_children(
    paths: np.ndarray, members: np.ndarray, level: int, words: dict[int, np.ndarray], hyper: TreeHyper
) -> None:
    """Merge children of one parent as long as that gains, the best pair first; changes `paths` and `words` in place.

    members: True for documents that pass the parent.
    level: the level of the children.
    words: the word counts of each child.
    """
    children, sizes = np.unique(paths[members, level], return_counts=True)
    size = dict(zip(children.tolist(), sizes.tolist(), strict=True))
    single = {child: _log_words(words[child], hyper.topics[level]) for child in size}
    gains = {pair: _gain(*pair, level, size, words, single, hyper) for pair in combinations(sorted(size), 2)}
    while gains:
        (kept, gone), gain = max(gains.items(), key=lambda item: item[1])
        if gain <= 0:
            return
        paths[members & (paths[:, level] == gone), level] = kept
        words[kept] = words[kept] + words.pop(gone)
        size[kept] += size.pop(gone)
        single[kept] = _log_words(words[kept], hyper.topics[level])
        gains = {pair: g for pair, g in gains.items() if gone not in pair and kept not in pair}
        for other in size:
            if other != kept:
                pair = (min(kept, other), max(kept, other))
                gains[pair] = _gain(*pair, level, size, words, single, hyper)


def _gain(
    a: int,
    b: int,
    level: int,
    size: dict[int, int],
    words: dict[int, np.ndarray],
    single: dict[int, float],
    hyper: TreeHyper,
) -> float:
    """Return the change of log p(words, levels, paths) if nodes a and b of a level are merged, in nats.

    size: documents of each node. words: word counts of each node. single: log probability of each node's words, nats.
    """
    gamma, n_a, n_b = hyper.branching, size[a], size[b]
    gain = _log_words(words[a] + words[b], hyper.topics[level]) - single[a] - single[b]
    gain += gammaln(n_a + n_b) - gammaln(n_a) - gammaln(n_b) - np.log(gamma)
    if level < hyper.depth - 1:
        gain += gammaln(gamma + n_a) + gammaln(gamma + n_b) - gammaln(gamma + n_a + n_b) - gammaln(gamma)
    return float(gain)


def _log_words(n: np.ndarray, eta: float) -> float:
    """Return the log probability of a node's words in order, in nats, with its topic integrated out.

    n: how often each word occurs. eta: the concentration of the topic's prior.
    """
    some = n[n > 0]
    mass = len(n) * eta
    return float((gammaln(some + eta) - gammaln(eta)).sum() + gammaln(mass) - gammaln(n.sum() + mass))
