"""The hyper-parameters of hierarchical LDA, and log p(words, levels, paths) given them, for any tree.

The hyper-parameters say how trees branch, how documents use levels, and how sharp topics are.

| field | letter | shape | meaning |
|---|---|---|---|
| `branching` | γ | () | concentration of the nested Chinese restaurant process: large values open new branches |
| `levels` | α, or (m, π) | | prior of a document's level proportions: `DirichletLevels` or `GEMLevels` |
| `topics` | η_ℓ | (level,) | symmetric Dirichlet of the topics at each level |

Level proportions with a Dirichlet prior are those of Blei (2004), §6.2. With a GEM prior they are θ_ℓ = V_ℓ Π_{j<ℓ} (1
− V_j), where V_ℓ ~ Beta(mπ, (1 − m)π) and the last level takes what is left (Blei, Griffiths & Jordan 2010, §4).

In the density, topics and proportions are integrated out. Let w be the words, z the levels of all tokens, c the paths
of all documents, γ, α and η the hyper-parameters of branching, levels and topics. A restaurant is a node, its tables
are its children, n_table the documents through a child and n those through the node (m tables in all). A node's topic
has n tokens, n_w of word w, among V words.

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
from scipy.special import betaln, gammaln

from lvsearch.inference.data.documents import row_of_each_nonzero

Levels = Float[np.ndarray, " level"]


class DirichletLevels(NamedTuple):
    """The Dirichlet prior of a document's proportions over levels.

    `alpha`: (level,), the concentration on each level from the root down.
    """

    alpha: Levels

    def log_evidence(self, counts: np.ndarray) -> Float[np.ndarray, " docs"]:
        """Return log p(levels of each document's tokens), (docs,), in nats, with proportions integrated out.

        counts: tokens of each document at each level, (docs, level).
        """
        total = self.alpha.sum()
        per_level = gammaln(counts + self.alpha) - gammaln(self.alpha)
        return per_level.sum(-1) + gammaln(total) - gammaln(counts.sum(-1) + total)

    def mean(self, counts: np.ndarray) -> np.ndarray:
        """Return the expected level proportions of each document given its levels, (docs, level).

        counts: tokens of each document at each level, (docs, level).
        """
        posterior = counts + self.alpha
        return posterior / posterior.sum(-1, keepdims=True)


class GEMLevels(NamedTuple):
    """The GEM(m, π) prior of a document's proportions over levels, by stick breaking, cut at the depth of the tree.

    mean_share: m in (0, 1), the mean share that a level takes of what the levels above leave.
    scale: π > 0; the larger, the less the share varies between documents.
    depth: the number of levels.
    """

    mean_share: float
    scale: float
    depth: int

    def sticks(self) -> tuple[float, float]:
        """Return the two parameters (mπ, (1 − m)π) of the Beta distribution of each stick."""
        return self.mean_share * self.scale, (1 - self.mean_share) * self.scale

    def posterior_sticks(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the two parameters of the Beta distribution of each document's sticks given its levels.

        The last level has no stick, since it takes what is left.

        counts: tokens of each document at each level, or their expectations, (docs, level).

        Returns: two arrays (docs, level − 1).
        """
        a, b = self.sticks()
        return a + counts[:, :-1], b + _tokens_below(counts)[:, :-1]

    def log_evidence(self, counts: np.ndarray) -> Float[np.ndarray, " docs"]:
        """Return log p(levels of each document's tokens), (docs,), in nats, with proportions integrated out.

        counts: tokens of each document at each level, (docs, level).
        """
        return (betaln(*self.posterior_sticks(counts)) - betaln(*self.sticks())).sum(-1)

    def mean(self, counts: np.ndarray) -> np.ndarray:
        """Return the expected level proportions of each document given its levels, (docs, level).

        counts: tokens of each document at each level, (docs, level).
        """
        a, b = self.sticks()
        share = (a + counts) / (a + b + counts + _tokens_below(counts))
        share[:, -1] = 1.0
        left = np.concatenate([np.ones((len(counts), 1)), np.cumprod(1 - share[:, :-1], axis=1)], axis=1)
        return share * left


def _tokens_below(counts: np.ndarray) -> np.ndarray:
    """Return how many tokens of each document lie below each level, (docs, level).

    counts: tokens of each document at each level, (docs, level).
    """
    return counts[:, ::-1].cumsum(1)[:, ::-1] - counts


class TreeHyper(NamedTuple):
    """The hyper-parameters of hierarchical LDA.

    `branching`: γ, the concentration of the nested Chinese restaurant process; large values open new branches.
    `levels`: the prior of a document's proportions over levels.
    `topics`: η, the concentration of the topics' Dirichlet prior at each level, (level,).
    """

    branching: float
    levels: DirichletLevels | GEMLevels
    topics: Levels

    @property
    def depth(self) -> int:
        """The number of levels of the tree, the root's included."""
        return len(self.topics)


def tree_hyper(
    depth: int = 3,
    branching: float | int = 1.0,
    levels: object = 10.0,
    topics: object = 0.1,
) -> TreeHyper:
    """Return checked hyper-parameters of a tree of `depth` levels.

    branching: γ, the concentration of branching.
    levels: the concentration α of level proportions, one number for all levels or one per level; or a `GEMLevels`.
    topics: η, the concentration of topics, one for all levels or one per level.

    Raises ValueError for a depth below 1, and for anything that is not positive and finite.
    """
    if depth < 1:
        raise ValueError(f"got depth={depth}, expected at least 1 level: the root")
    eta = _per_level("topics", topics, depth)
    if isinstance(levels, GEMLevels):
        if levels.depth != depth or not 0 < levels.mean_share < 1 or not 0 < levels.scale < np.inf:
            raise ValueError(f"got {levels}, expected 0 < mean_share < 1, scale > 0 and depth {depth}")
        prior: DirichletLevels | GEMLevels = levels
    else:
        prior = DirichletLevels(_per_level("levels", levels, depth))
    gamma = float(branching)
    if not 0 < gamma < np.inf:
        raise ValueError(f"got branching={branching!r}, expected a positive number; near 0 all documents share a path")
    return TreeHyper(gamma, prior, eta)


def _per_level(name: str, value: object, depth: int) -> np.ndarray:
    """Return a hyper-parameter as one positive number per level, (level,). Raises ValueError if it cannot be that."""
    array = np.asarray(value, np.float64)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != depth):
        raise ValueError(f"got {name} of shape {array.shape}, expected one number or one for each of {depth} levels")
    array = np.broadcast_to(array, (depth,)).copy()
    if not np.all((array > 0) & np.isfinite(array)):
        raise ValueError(f"got {name}={value!r}, expected positive finite numbers")
    return array


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
    levels = float(hyper.levels.log_evidence(tokens_by_level(counts, allocation)).sum())
    return LogJoint(log_paths(allocation.paths, hyper.branching), levels, log_words(counts, allocation, hyper.topics))


def tokens_by_level(counts: scipy.sparse.csr_array, allocation: Allocation) -> Float[np.ndarray, "docs level"]:
    """Return how many tokens each document has at each level, (docs, level)."""
    tokens = np.zeros((counts.shape[0], allocation.level_counts.shape[1]))
    np.add.at(tokens, row_of_each_nonzero(counts), allocation.level_counts)
    return tokens


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
    n_words, document = counts.shape[1], row_of_each_nonzero(counts)
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
