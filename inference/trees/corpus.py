"""A corpus prepared for sweeps of tree samplers, its tokens padded to lengths that similar corpora share; and one
sweep.
"""

import warnings
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array, Int

from lvsearch.inference.sharding import one_after_another
from lvsearch.inference.trees.density import Allocation, TreeHyper
from lvsearch.inference.trees.sweep import (
    SweepTables,
    TreeTokens,
    levels_of,
    state_of,
    tables_of,
    tokens_of,
    tree_sweep,
)

CELLS_STEP = 1024
"""The number of stored cells is padded to a multiple of this."""


class TreeCorpus(NamedTuple):
    """A corpus prepared for sweeps of tree samplers.

    | field | meaning |
    |---|---|
    | `counts` | the count of each word in each document, (docs, V), whole numbers |
    | `tokens`, `padded` | their tokens; the same with room for more (document, word) pairs |
    | `word_total` | at least the most copies of one word in the corpus |
    | `longest` | at least the most distinct words in a document |
    | `most_tokens` | at least the most tokens in a document |
    """

    counts: scipy.sparse.csr_array
    tokens: TreeTokens
    padded: TreeTokens
    word_total: int
    longest: int
    most_tokens: int

    @classmethod
    def from_counts(cls, counts: scipy.sparse.csr_array) -> "TreeCorpus":
        """Return the corpus of some word counts (document, word).

        Raises ValueError for negative counts, and for no documents or no words.
        """
        counts = canonical(counts)
        tokens = tokens_of(counts)
        # lengths that the corpus decides are rounded up, so that similar corpora share a program
        spare = -len(tokens.cell_word) % CELLS_STEP
        most_copies = int(np.bincount(tokens.word, minlength=1).max())
        return cls(
            counts,
            tokens,
            tokens._replace(cell_word=np.pad(tokens.cell_word, (0, spare))),
            1 << most_copies.bit_length(),
            _round_up(np.diff(counts.indptr)),
            _round_up(np.diff(tokens.doc_tokens)),
        )

    @classmethod
    def of(cls, counts: scipy.sparse.csr_array) -> "TreeCorpus":
        """Return the corpus of some word counts. Deprecated name of `from_counts`: it warns."""
        warnings.warn("TreeCorpus.of is called TreeCorpus.from_counts now", DeprecationWarning, stacklevel=2)
        return cls.from_counts(counts)

    def levels(self, allocation: Allocation) -> Int[np.ndarray, " token"]:
        """Return the level of each token, (token,); copies of a word in a document are given levels from the root
        down.
        """
        return levels_of(self.counts, allocation.level_counts)

    def tables(self, hyper: TreeHyper, inverse_temperature: float = 1.0) -> SweepTables:
        """Return the tables in which a sweep looks up numbers, at given hyper-parameters.

        inverse_temperature: 1 draws from the posterior, less flattens both conditionals.
        """
        n_docs, n_words = self.counts.shape[0], self.counts.shape[1]
        return tables_of(hyper, n_words, n_docs, self.word_total, len(self.tokens.word), inverse_temperature)

    def allocation(self, levels: Int[np.ndarray, " token"], paths: Int[np.ndarray, "doc level"]) -> Allocation:
        """Return the levels of all tokens and the paths of all documents as an `Allocation`."""
        level_counts = np.zeros((len(self.tokens.cell_word), paths.shape[1]), np.int64)
        np.add.at(level_counts, (np.asarray(self.tokens.cell), levels), 1)
        return Allocation(np.asarray(paths, np.int64), level_counts)


def sweep_documents(
    corpus: TreeCorpus,
    levels: Int[np.ndarray, " token"],
    paths: Int[np.ndarray, "doc level"],
    tables: SweepTables,
    key: Array,
    *,
    sticks: bool,
    paths_fixed: bool = False,
) -> tuple[Int[np.ndarray, " token"], Int[np.ndarray, "doc level"]]:
    """Make one sweep over all documents and return the new (levels, paths).

    Nodes are given array slots anew, with room to spare at each level. If slots run out, the sweep goes on with more.

    corpus: the documents.
    levels: the level of each token, (token,).
    paths: the nodes of each document's path, (doc, level).
    tables: numbers that depend on the hyper-parameters.
    key: the random key of the sweep.
    sticks: True if the level prior is `GEMLevels`.
    paths_fixed: True to draw levels only.
    """
    first, n_docs, n_words = 0, corpus.counts.shape[0], corpus.counts.shape[1]
    state, layout = state_of(corpus.tokens, n_words, levels, paths)
    with jax.enable_x64(True), one_after_another():
        while True:
            state, stopped = tree_sweep(
                key,
                corpus.padded,
                state,
                tables,
                np.int32(first),
                layout=layout,
                longest=corpus.longest,
                most_tokens=corpus.most_tokens,
                sticks=sticks,
                tempered=bool(tables.inverse_temperature != 1.0),
                paths_fixed=paths_fixed,
            )
            first, levels, paths = int(stopped), np.asarray(state.levels), np.asarray(state.paths)
            if first == n_docs:
                return levels, paths
            state, layout = state_of(corpus.tokens, n_words, levels, paths, least=layout)


def _round_up(lengths: np.ndarray) -> int:
    """Return the longest length, rounded up to a multiple of 16, and at least 16."""
    return max(16, -(-int(lengths.max(initial=0)) // 16) * 16)


def canonical(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return word counts in the form that all functions on trees read: sorted indices, no stored zeros, int64.

    counts: (document, word), whole numbers ≥ 0.

    Raises ValueError for negative counts, and for no documents or no words.
    """
    matrix = scipy.sparse.csr_array(scipy.sparse.csr_array(counts).astype(np.int64))
    if matrix.shape[0] < 1 or matrix.shape[1] < 1:
        raise ValueError(f"got counts of shape {matrix.shape}, expected at least one document and one word")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if np.any(matrix.data < 0):
        raise ValueError("got negative counts, expected whole numbers ≥ 0")
    matrix.sort_indices()
    return matrix
