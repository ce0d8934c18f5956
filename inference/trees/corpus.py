"""A corpus at hand for sweeps: its tokens, padded to lengths that similar corpora share; and one sweep over them."""

from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array, Int

from lvsearch.inference.devices import one_after_another
from lvsearch.inference.trees.density import Allocation
from lvsearch.inference.trees.hyper import TreeHyper
from lvsearch.inference.trees.state import TreeTokens, levels_of, state_of, tokens_of
from lvsearch.inference.trees.sweep import SweepTables, tables_of, tree_sweep

CELLS_STEP = 1024


class TreeCorpus(NamedTuple):
    """Whole counts (docs, V), their tokens, these with cells to spare, and at least the most copies of one word in the
    corpus, distinct words in a document, and tokens in one."""

    counts: scipy.sparse.csr_array
    tokens: TreeTokens
    padded: TreeTokens
    word_total: int
    longest: int
    most_tokens: int

    @classmethod
    def of(cls, counts: scipy.sparse.csr_array) -> "TreeCorpus":
        """Raises ValueError as `canonical` does."""
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
            _padded(np.diff(counts.indptr)),
            _padded(np.diff(tokens.doc_tokens)),
        )

    def levels(self, allocation: Allocation) -> Int[np.ndarray, " token"]:
        """Level of each token, copies of one cell from the root down."""
        return levels_of(self.counts, allocation.level_counts)

    def tables(self, hyper: TreeHyper, inverse_temperature: float = 1.0) -> SweepTables:
        """What a sweep looks up; 1 draws from the posterior, less flattens both conditionals."""
        n_docs, n_words = self.counts.shape[0], self.counts.shape[1]
        return tables_of(hyper, n_words, n_docs, self.word_total, len(self.tokens.word), inverse_temperature)

    def allocation(self, levels: Int[np.ndarray, " token"], paths: Int[np.ndarray, "doc level"]) -> Allocation:
        """As `log_joint` takes it."""
        level_counts = np.zeros((len(self.tokens.cell_word), paths.shape[1]), np.int64)
        np.add.at(level_counts, (np.asarray(self.tokens.cell), levels), 1)
        return Allocation(np.asarray(paths, np.int64), level_counts)


def swept(
    corpus: TreeCorpus,
    levels: Int[np.ndarray, " token"],
    paths: Int[np.ndarray, "doc level"],
    tables: SweepTables,
    key: Array,
    *,
    sticks: bool,
    paths_fixed: bool = False,
) -> tuple[Int[np.ndarray, " token"], Int[np.ndarray, "doc level"]]:
    """(levels, paths) after one sweep over all documents (of their levels alone, if so). Nodes are given places
    afresh, with room to spare at each level; where places run out, the sweep goes on with more. sticks: levels are
    `GEMLevels`."""
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


def _padded(lengths: np.ndarray) -> int:
    return max(16, -(-int(lengths.max(initial=0)) // 16) * 16)


def canonical(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Counts as every function here reads them: sorted indices, no stored zeros, whole numbers ≥ 0."""
    matrix = scipy.sparse.csr_array(scipy.sparse.csr_array(counts).astype(np.int64))
    if matrix.shape[0] < 1 or matrix.shape[1] < 1:
        raise ValueError(f"got counts of shape {matrix.shape}, expected at least one document and one word")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if np.any(matrix.data < 0):
        raise ValueError("got negative counts, expected whole numbers ≥ 0")
    matrix.sort_indices()
    return matrix
