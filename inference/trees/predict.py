"""New documents on a fitted tree: posterior over paths, level proportions, and log p(document) with a standard error.

Topics come from one state of the sampler. They are at their posterior means, β̂_c = (n_cw + η) / (n_c + Vη) for node c
with n_cw tokens of word w among V words, and a new node's topic is at its prior mean. Paths are all those of the nested
Chinese restaurant process: every leaf and, below every inner node, one path that is new from there on. Then, with level
proportions θ ~ their prior and word counts n_w,

    p(w | path) = E_θ Π_w (θᵀβ̂_path,w)^n_w,       p(w) = Σ_path p(path) p(w | path).

The expectation is estimated by importance sampling, with θ from a mixture of the mean-field posterior (9 draws in 10)
and the prior (1 in 10). Its weights are bounded, so that the standard error can be trusted. A document without known
words has p(w) = 1, and the prior over paths as its posterior.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int
from scipy.special import digamma, gammaln

from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.generators import generator
from lvsearch.inference.trees.corpus import canonical
from lvsearch.inference.trees.density import Allocation, DirichletLevels, TreeHyper

NEW = -1
"""The label of a node that no training document passes."""
FIT_STEPS = 30
"""The number of coordinate steps of the mean-field posterior of the level proportions."""
PRIOR_SHARE = 0.1
"""The share of draws of the level proportions that come from the prior."""


class TreeTopics(NamedTuple):
    """A fitted tree in the form that describing new documents needs: paths, their prior probabilities, and topics.

    | field | shape | meaning |
    |---|---|---|
    | `paths` | (path, level) | labels of the nodes of each path; `NEW` from where the path leaves the tree |
    | `log_prior` | (path,) | log p(path of the next document), nats |
    | `nodes` | (node,) | labels of the nodes, the root first, level by level |
    | `topics` | (node + level, V) | word probabilities of each node, then those of a new node at each level |
    | `rows` | (path, level) | row of `topics` of each node of each path |
    """

    paths: Int[np.ndarray, "path level"]
    log_prior: Float[np.ndarray, " path"]
    nodes: Int[np.ndarray, " node"]
    topics: Float[np.ndarray, "row word"]
    rows: Int[np.ndarray, "path level"]


class DocumentPaths(NamedTuple):
    """Predictions of a tree about documents; logarithms in nats.

    | field | shape | meaning |
    |---|---|---|
    | `log_likelihood` | (docs,) | log p(document), estimated |
    | `standard_error` | (docs,) | of the log-likelihood, from the sampling alone |
    | `posterior` | (docs, path) | p(path | document) over `TreeTopics.paths` |
    | `levels` | (docs, level) | expected level proportions given the document, averaged over paths |
    """

    log_likelihood: Float[np.ndarray, " docs"]
    standard_error: Float[np.ndarray, " docs"]
    posterior: Float[np.ndarray, "docs path"]
    levels: Float[np.ndarray, "docs level"]


def tree_topics(counts: scipy.sparse.csr_array, allocation: Allocation, hyper: TreeHyper) -> TreeTopics:
    """Return posterior means of the topics and the prior over the next document's path, from a state of the sampler.

    counts: the count of each word in each training document, (document, word).
    allocation: paths and levels of the training documents.
    hyper: the hyper-parameters.
    """
    counts = canonical(counts)
    n_words, document = counts.shape[1], row_of_each_nonzero(counts)
    # the topics of each level's nodes at their posterior means, then those of new nodes
    labels, topics, row = [], [], {}
    for level, eta in enumerate(hyper.topics.tolist()):
        of_level, at = np.unique(allocation.paths[:, level], return_inverse=True)
        table = np.zeros((len(of_level), n_words))
        np.add.at(table, (at[document], counts.indices), allocation.level_counts[:, level])
        topics.append((table + eta) / (table.sum(1, keepdims=True) + n_words * eta))
        row |= {(level, label): len(labels) + i for i, label in enumerate(of_level.tolist())}
        labels.extend(of_level.tolist())
    n_nodes = len(labels)
    topics.append(np.full((hyper.depth, n_words), 1 / n_words))
    # every existing path, and below every inner node one that is new from there on, with Chinese-restaurant weights
    paths, log_prior = [], []
    distinct, first = np.unique(allocation.paths, axis=0, return_index=True)
    seen: set[tuple[int, ...]] = set()
    for path in distinct[np.argsort(first)].tolist():
        log_p = 0.0
        for level in range(hyper.depth):
            n_here = int((allocation.paths[:, level] == path[level]).sum())
            begun = tuple(path[: level + 1])
            if level == hyper.depth - 1:
                paths.append(path)
                log_prior.append(log_p)
                break
            log_seats = np.log(n_here + hyper.branching)
            if begun not in seen:
                seen.add(begun)
                paths.append([*begun, *(NEW,) * (hyper.depth - level - 1)])
                log_prior.append(log_p + np.log(hyper.branching) - log_seats)
            log_p += np.log((allocation.paths[:, level + 1] == path[level + 1]).sum()) - log_seats
    rows = [[n_nodes + i if node == NEW else row[i, node] for i, node in enumerate(path)] for path in paths]
    return TreeTopics(
        np.array(paths), np.array(log_prior), np.array(labels), np.concatenate(topics), np.array(rows, np.int64)
    )


def describe_documents(
    tree: TreeTopics, hyper: TreeHyper, counts: scipy.sparse.csr_array, key: Array, *, samples: int = 200
) -> DocumentPaths:
    """Return path probabilities, level proportions and log-likelihood of new documents on a fitted tree.

    A document's draws depend on the key and its number alone.

    tree: the fitted tree.
    hyper: its hyper-parameters.
    counts: the count of each word in each new document, (document, word), words as in training.
    key: the random key of the draws.
    samples: draws of the level proportions for each path of a document.

    Raises ValueError for another vocabulary and for fewer than 2 samples.
    """
    counts = canonical(counts)
    if counts.shape[1] != tree.topics.shape[1]:
        raise ValueError(f"got documents over {counts.shape[1]} words, expected the {tree.topics.shape[1]} of training")
    if samples < 2:
        raise ValueError(f"got samples={samples}, expected at least 2 for a standard error")
    seeds = generator(key).integers(2**63, size=counts.shape[0])
    each = []
    for d in range(counts.shape[0]):
        cells = slice(counts.indptr[d], counts.indptr[d + 1])
        beta = tree.topics[tree.rows][:, :, counts.indices[cells]] if counts.indptr[d] < counts.indptr[d + 1] else None
        each.append(_describe_one(tree, hyper, beta, counts.data[cells], np.random.default_rng(int(seeds[d])), samples))
    columns = [np.array(column) for column in zip(*each, strict=True)]
    return DocumentPaths(*columns)


def _describe_one(
    tree: TreeTopics, hyper: TreeHyper, beta: np.ndarray | None, n: np.ndarray, rng: np.random.Generator, samples: int
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Return log p, its standard error, path probabilities (path,) and expected level proportions (level,) of one
    document.

    beta: topics at the document's distinct words, (path, level, word); None if it has none.
    n: how often each of these words occurs, (word,).
    samples: draws of the level proportions for each path.
    """
    if beta is None:
        return (
            0.0,
            0.0,
            np.exp(tree.log_prior),
            hyper.levels.mean(np.zeros((1, hyper.depth)))[0],
        )
    # draws from the mixture, and their importance weights p(w | θ) p(θ) / q(θ)
    n_prior = max(1, round(PRIOR_SHARE * samples))
    expected = _expected_levels(hyper, beta, n)
    theta = np.concatenate(
        [
            _draw_proportions(hyper, expected, rng, samples - n_prior),
            _draw_proportions(hyper, 0 * expected, rng, n_prior),
        ]
    )  # (sample, path, level)
    log_prior = _log_density(hyper, 0 * expected, theta)
    share = n_prior / samples
    log_proposal = np.logaddexp(np.log1p(-share) + _log_density(hyper, expected, theta), np.log(share) + log_prior)
    log_words = np.log(np.einsum("spl,plw->spw", theta, beta)) @ n
    log_weights = log_words + log_prior - log_proposal
    log_path = np.logaddexp.reduce(log_weights, axis=0) - np.log(samples)
    log_each = tree.log_prior + log_path
    log_p = float(np.logaddexp.reduce(log_each))
    posterior = np.exp(log_each - log_p)
    relative = np.exp(log_weights - log_path)
    error = np.sqrt((posterior**2 * relative.var(0, ddof=1) / samples).sum())  # of p(w) over p(w): the delta method
    inside = relative / relative.sum(0)
    return log_p, float(error), posterior, np.einsum("sp,spl,p->l", inside, theta, posterior)


def _expected_levels(hyper: TreeHyper, beta: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return the expected tokens of a document at each level of each path, (path, level), by mean-field coordinate
    ascent.

    beta: topics at the document's distinct words, (path, level, word).
    n: how often each of these words occurs, (word,).
    """
    expected = n.sum() * hyper.levels.mean(np.zeros((1, hyper.depth))) * np.ones((len(beta), 1))
    for _ in range(FIT_STEPS):
        weights = np.exp(_expected_log_proportions(hyper, expected))[:, :, None] * beta
        expected = (weights / weights.sum(1, keepdims=True)) @ n
    return expected


def _expected_log_proportions(hyper: TreeHyper, expected: np.ndarray) -> np.ndarray:
    """Return E[log θ] of the level proportions θ given expected tokens at each level, (path, level)."""
    if isinstance(hyper.levels, DirichletLevels):
        alpha = hyper.levels.alpha + expected
        return digamma(alpha) - digamma(alpha.sum(1, keepdims=True))
    a, b = hyper.levels.posterior_sticks(expected)
    take, leave = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    nothing = np.zeros((len(expected), 1))
    return np.concatenate([take, nothing], 1) + np.concatenate([nothing, leave.cumsum(1)], 1)


def _draw_proportions(hyper: TreeHyper, expected: np.ndarray, rng: np.random.Generator, samples: int) -> np.ndarray:
    """Draw level proportions given expected tokens at each level, (sample, path, level). Entries are positive."""
    if isinstance(hyper.levels, DirichletLevels):
        gamma = rng.gamma(hyper.levels.alpha + expected, size=(samples, *expected.shape)) + 1e-300
        return gamma / gamma.sum(-1, keepdims=True)
    a, b = hyper.levels.posterior_sticks(expected)
    take = np.clip(rng.beta(a, b, size=(samples, *a.shape)), 1e-15, 1 - 1e-15)
    ones = np.ones((*take.shape[:-1], 1))
    return np.concatenate([take, ones], -1) * np.concatenate([ones, np.cumprod(1 - take, -1)], -1)


def _log_density(hyper: TreeHyper, expected: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return the log density of level proportions given expected tokens at each level, (sample, path), in nats.

    For GEM levels it is the density of the sticks.

    expected: expected tokens at each level of each path. theta: the proportions, (sample, path, level).
    """
    if isinstance(hyper.levels, DirichletLevels):
        alpha = hyper.levels.alpha + expected
        return ((alpha - 1) * np.log(theta)).sum(-1) + gammaln(alpha.sum(-1)) - gammaln(alpha).sum(-1)
    a, b = hyper.levels.posterior_sticks(expected)
    left = theta[..., ::-1].cumsum(-1)[..., ::-1]
    take, leave = np.log(theta[..., :-1] / left[..., :-1]), np.log(left[..., 1:] / left[..., :-1])
    return ((a - 1) * take + (b - 1) * leave + gammaln(a + b) - gammaln(a) - gammaln(b)).sum(-1)
