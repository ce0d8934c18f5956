"""log p(words, levels, paths) of hierarchical LDA, with topics and proportions integrated out, for any tree.

Let w be the words, z the levels of all tokens, c the paths of all documents, γ, α and η the hyper-parameters of
branching, levels and topics. A restaurant is a node, its tables are its children, n_table the documents through a child
and n those through the node (m tables in all). A node's topic has n tokens, n_w of word w, among V words.

Source: Blei (2004), §6.2, as corrected here: the levels' prior is α_ℓ, and the words' Gamma ratio counts the document.

    log p(c)       = Σ_restaurants [ m log γ + Σ_tables log Γ(n_table) + log Γ(γ) − log Γ(γ + n) ]     (§6.1)

    log p(z)       = Σ_d log of the level prior's integral

    log p(w | c,z) = Σ_nodes [ log Γ(Vη) − log Γ(n + Vη) + Σ_w log Γ(n_w + η) − log Γ(η) ]

It is a density of the *partition* of documents by paths (node labels mean nothing) and of the ordered tokens of each
document. So it depends on a word's copies only through how many are at each level: `level_counts`. The state of any
sampler can be scored if it gives paths and level counts.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int
from scipy.special import gammaln

from lvsearch.inference.trees.hyper import TreeHyper


class Allocation(NamedTuple):
    """The state of a topic tree: the path of every document and the level of every token.

    | field | shape | meaning |
    |---|---|---|
    | `paths` | (docs, level) | node of each level on the document's path; any labels, distinct across levels |
    | `level_counts` | (nonzeros, level) | how many tokens of each nonzero (document, word) count are at each level |
    """

    paths: Int[np.ndarray, "docs level"]
    level_counts: Int[np.ndarray, "nonzeros level"]


class LogJoint(NamedTuple):
    """The terms of log p(words, levels, paths) in nats: those of the paths, the levels, and the words."""

    paths: float
    levels: float
    words: float

    @property
    def total(self) -> float:
        """The sum of the three terms, in nats."""
        return self.paths + self.levels + self.words


def log_joint(counts: scipy.sparse.csr_array, allocation: Allocation, hyper: TreeHyper) -> LogJoint:
    """Return log p(paths), log p(levels) and log p(words | paths, levels) of one allocation, in nats, float64.

    counts: (docs, V) whole numbers, sorted indices, no stored zeros.
    allocation: paths, and level counts for the stored cells of the counts, in order.
    hyper: the hyper-parameters.

    Raises ValueError if the allocation does not fit the counts or its paths are no tree.
    """
    check_allocation(counts, allocation, hyper.depth)
    document = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    per_document = np.zeros((counts.shape[0], hyper.depth))
    np.add.at(per_document, document, allocation.level_counts)
    levels = float(hyper.levels.log_evidence(per_document).sum())
    return LogJoint(log_paths(allocation.paths, hyper.branching), levels, log_words(counts, allocation, hyper.topics))


def log_paths(paths: Int[np.ndarray, "docs level"], branching: float) -> float:
    """Return log p(paths of all documents) under the nested Chinese restaurant process, in nats.

    paths: the node of each level on each document's path.
    branching: γ, the concentration.
    """
    total = 0.0
    for level in range(paths.shape[1] - 1):
        parents, at = np.unique(paths[:, level], return_inverse=True)
        tables, sizes = np.unique(paths[:, level + 1], return_counts=True)
        customers = np.bincount(at, minlength=len(parents))
        total += len(tables) * np.log(branching) + gammaln(sizes).sum()
        total += (gammaln(branching) - gammaln(branching + customers)).sum()
    return float(total)


def log_words(counts: scipy.sparse.csr_array, allocation: Allocation, topics: Float[np.ndarray, " level"]) -> float:
    """Return log p(words | paths, levels) in nats, with topics integrated out.

    topics: η, the concentration of the topics' prior at each level.
    """
    n_docs, n_words = counts.shape[0], counts.shape[1]
    document = np.repeat(np.arange(n_docs), np.diff(counts.indptr))
    total = 0.0
    for level, eta in enumerate(topics.tolist()):
        _, node = np.unique(allocation.paths[:, level], return_inverse=True)
        cells = scipy.sparse.coo_array(
            (allocation.level_counts[:, level].astype(np.float64), (node[document], counts.indices)),
            shape=(max(int(node.max(initial=-1)) + 1, 1), n_words),
        ).tocsr()
        cells.sum_duplicates()
        total += (gammaln(cells.data + eta) - gammaln(eta)).sum()
        total += (gammaln(n_words * eta) - gammaln(cells.sum(1) + n_words * eta)).sum()
    return float(total)


def check_allocation(counts: scipy.sparse.csr_array, allocation: Allocation, depth: int) -> None:
    """Raise ValueError if paths or level counts do not fit the counts, or the paths are no tree.

    Paths are a tree if all start at one root, no node of a level has two parents and no label is of two levels.
    """
    paths, level_counts = allocation
    if paths.shape != (counts.shape[0], depth):
        raise ValueError(f"got paths of shape {paths.shape}, expected {(counts.shape[0], depth)}: a node per level")
    if level_counts.shape != (len(counts.data), depth):
        raise ValueError(f"got level_counts of shape {level_counts.shape}, expected {(len(counts.data), depth)}")
    if np.any(level_counts < 0) or np.any(level_counts.sum(1) != counts.data):
        raise ValueError("level_counts must be ≥ 0 and add up to the counts, cell by cell")
    if len(set(paths[:, 0].tolist())) > 1:
        raise ValueError("every path starts at the one root: the first column of paths must be constant")
    for level in range(1, depth):
        pairs = np.unique(paths[:, level - 1 : level + 1], axis=0)
        if len(pairs) != len(np.unique(pairs[:, 1])):
            raise ValueError(f"a node of level {level + 1} has two parents: the paths are no tree")
    labels, levels = np.unique(np.concatenate([np.unique(column) for column in paths.T]), return_counts=True)
    if np.any(levels > 1):
        raise ValueError(
            f"got node {labels[levels > 1][0]} at two levels, expected labels that are distinct across levels"
        )
