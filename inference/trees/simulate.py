"""Draws of documents from the prior of hierarchical LDA, on which samplers are tested."""

import numpy as np
import scipy.sparse

from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.trees.chain import draw_paths
from lvsearch.inference.trees.density import Allocation, DirichletLevels, TreeHyper


def draw_corpus(
    rng: np.random.Generator, hyper: TreeHyper, lengths: np.ndarray, n_words: int
) -> tuple[scipy.sparse.csr_array, Allocation]:
    """Draw documents from the prior of hierarchical LDA; return (counts (document, word), the true allocation).

    The order is that of the generative story (Blei 2004, §6.2): paths, proportions, levels, words. A topic is drawn
    when it is first needed.

    lengths: the number of tokens of each document, (docs,).
    n_words: the number of words in the vocabulary.
    """
    paths = draw_paths(rng, len(lengths), hyper.depth, hyper.branching)
    per_level = [rng.multinomial(length, _proportions(rng, hyper)) for length in np.asarray(lengths).tolist()]
    return draw_words(rng, hyper, paths, np.array(per_level), n_words)


def draw_words(
    rng: np.random.Generator, hyper: TreeHyper, paths: np.ndarray, per_level: np.ndarray, n_words: int
) -> tuple[scipy.sparse.csr_array, Allocation]:
    """Draw the words of documents whose paths are given; return (counts (document, word), the allocation).

    paths: the node of each level on each document's path, (docs, level).
    per_level: the number of tokens of each document at each level, (docs, level).
    n_words: the number of words in the vocabulary.
    """
    topics: dict[int, np.ndarray] = {}
    counts = np.zeros((len(paths), n_words, hyper.depth), np.int64)
    for d, path in enumerate(paths.tolist()):
        for level, node in enumerate(path):
            if node not in topics:
                topics[node] = _sparse_dirichlet(rng, hyper.topics[level], n_words)
            counts[d, :, level] = rng.multinomial(per_level[d, level], topics[node])
    matrix = scipy.sparse.csr_array(counts.sum(-1))
    matrix.sort_indices()
    document = row_of_each_nonzero(matrix)
    return matrix, Allocation(paths, counts[document, matrix.indices])


def _proportions(rng: np.random.Generator, hyper: TreeHyper) -> np.ndarray:
    """Draw the level proportions of one document from their prior, (level,)."""
    if isinstance(hyper.levels, DirichletLevels):
        return rng.dirichlet(hyper.levels.alpha)
    share = rng.beta(*hyper.levels.sticks(), size=hyper.depth)
    share[-1] = 1.0
    return share * np.concatenate([[1.0], np.cumprod(1 - share[:-1])])


def _sparse_dirichlet(rng: np.random.Generator, eta: float, n: int) -> np.ndarray:
    """Draw a distribution over `n` words from a symmetric Dirichlet(η), (word,).

    Computation is on the log scale: at η = 0.005 most Gamma draws would underflow.
    """
    log_gamma = np.log(rng.gamma(eta + 1, size=n)) + np.log1p(-rng.random(n)) / eta
    weights = np.exp(log_gamma - log_gamma.max())
    return weights / weights.sum()
