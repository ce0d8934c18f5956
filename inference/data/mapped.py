"""Counts in files: the rows of a matrix too large for memory, read one run at a time.

The three arrays of compressed sparse rows lie in one file each. As memory maps they form a `csr_array` like any other
(`MappedCounts`). Code that passes over all rows reads runs of documents from the files instead (`CountFiles.rows`). The
memory it needs then depends on the length of a run, and not on the number of documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy.sparse import csr_array

STARTS_AT_ONCE = 1 << 16
"""The number of row starts that are read at once."""
PAIRS_AT_ONCE = 1 << 20
"""The most (document, word) pairs of a run, unless a single document has more."""


class FileArray(NamedTuple):
    """A one-dimensional array of plain numbers in a file without a header."""

    path: Path
    dtype: np.dtype
    length: int

    @property
    def n_bytes(self) -> int:
        """The size of the file in bytes."""
        return self.length * self.dtype.itemsize

    def read(self, first: int, last: int) -> np.ndarray:
        """Return entries first, …, last − 1, (entries,).

        Raises ValueError where there are no such entries, or the file is shorter than it should be.
        """
        if not 0 <= first <= last <= self.length:  # asked of another, damaged file; NumPy would make room for them
            raise ValueError(
                f"{self.path}: got a request for entries {first:,} to {last:,} of {self.length:,}: the folder is "
                "damaged; restore it from a copy, or convert the documents again"
            )
        found = np.fromfile(self.path, self.dtype, last - first, offset=first * self.dtype.itemsize)
        if len(found) != last - first:
            raise ValueError(
                f"{self.path}: got {first + len(found):,} numbers, expected {self.length:,}: the file was cut off; "
                "restore it from a copy, or convert the documents again"
            )
        return found

    def mapped(self) -> np.ndarray:
        """Return all entries as a read-only memory map, (entries,)."""
        if not self.length:  # nothing cannot be mapped
            return np.zeros(0, self.dtype)
        return np.memmap(self.path, self.dtype, "r", shape=(self.length,))


@dataclass(frozen=True)
class CountFiles:
    """Counts (documents, words) as compressed sparse rows in files.

    | field | meaning |
    |---|---|
    | `starts` | document d has the entries `starts[d]`, …, `starts[d + 1]` − 1 of `words` and `counts` |
    | `words` | word ids, ascending in each document |
    | `counts` | how often each word occurs, 1 or more |
    | `n_words` | the number of words of the vocabulary |
    | `n_tokens` | the sum of all counts |
    """

    starts: FileArray
    words: FileArray
    counts: FileArray
    n_words: int
    n_tokens: int

    @property
    def folder(self) -> Path:
        """The folder that holds the files."""
        return self.starts.path.parent

    @property
    def n_documents(self) -> int:
        """The number of documents."""
        return self.starts.length - 1

    @property
    def n_pairs(self) -> int:
        """The number of stored counts: pairs of a document and a distinct word of it."""
        return self.words.length

    def lengths(self) -> Iterator[Int[np.ndarray, " document"]]:
        """Yield the numbers of distinct words of consecutive documents, (document,), `STARTS_AT_ONCE` documents at a
        time.
        """
        for first in range(0, self.n_documents, STARTS_AT_ONCE):
            last = min(first + STARTS_AT_ONCE, self.n_documents)
            yield np.diff(self.row_starts(first, last))

    def runs(self, most_pairs: int = PAIRS_AT_ONCE) -> Iterator[tuple[int, int]]:
        """Yield (first, last + 1) of runs of consecutive documents that hold at most `most_pairs` stored counts
        together.

        A stored count is a pair of a document and a distinct word. A document with more of them is a run of its own.
        """
        first = 0
        while first < self.n_documents:
            starts = self.row_starts(first, min(first + STARTS_AT_ONCE, self.n_documents))
            fitting = int(np.searchsorted(starts, starts[0] + most_pairs, side="right")) - 1
            last = first + max(fitting, 1)
            yield first, last
            first = last

    def rows(self, first: int, last: int) -> csr_array:
        """Return documents first, …, last − 1 as sparse counts (documents, words), int32.

        Raises ValueError, naming the file, if its entries are no such counts.
        """
        starts = self.row_starts(first, last)
        words = self.words.read(int(starts[0]), int(starts[-1]))
        counts = self.counts.read(int(starts[0]), int(starts[-1]))
        if len(words):
            if words.min() < 0 or words.max() >= self.n_words:
                _raise_damaged(
                    self.words, f"word ids from {words.min()} to {words.max()}", f"0 to {self.n_words - 1}", first
                )
            if counts.min() < 1:
                _raise_damaged(self.counts, f"a count of {counts.min()}", "1 or more", first)
            falls = np.flatnonzero(np.diff(words) <= 0) + 1 + starts[0]
            if len(falls) and not np.isin(falls, starts).all():
                _raise_damaged(self.words, "word ids that do not ascend in a document", "ascending ones", first)
        return csr_array((counts, words, (starts - starts[0]).astype(np.int32)), shape=(last - first, self.n_words))

    def check(self) -> None:
        """Read all entries once and raise ValueError, naming the file, if they are not those of such a matrix.

        Counts that add up to another number of tokens than `n_tokens`, which was recorded when they were written, are
        an error too. SciPy by itself would follow word ids and row starts wherever they point.
        """
        first = int(self.starts.read(0, 1)[0])
        if first != 0 or int(self.starts.read(self.n_documents, self.n_documents + 1)[0]) != self.n_pairs:
            _raise_damaged(self.starts, f"row starts from {first:,}", f"starts from 0 to {self.n_pairs:,}", 0)
        n_tokens = sum(int(self.rows(*run).data.sum(dtype=np.int64)) for run in self.runs())
        if n_tokens != self.n_tokens:
            raise ValueError(
                f"{self.counts.path}: got counts of {n_tokens:,} tokens, expected {self.n_tokens:,}: the file is "
                "damaged; restore it from a copy, or convert the documents again"
            )

    def row_totals(self) -> Int[np.ndarray, " document"]:
        """Return the number of tokens of each document, (document,), int64."""
        return np.concatenate([self.rows(*run).sum(axis=1, dtype=np.int64) for run in self.runs()])

    def word_totals(self) -> Int[np.ndarray, " word"]:
        """Return the number of tokens of each word of the vocabulary, (word,), int64."""
        totals = np.zeros(self.n_words, np.int64)
        for run in self.runs():
            totals += self.rows(*run).sum(axis=0, dtype=np.int64)
        return totals

    def row_starts(self, first: int, last: int) -> Int[np.ndarray, " start"]:
        """Return where the stored counts of documents first, …, last − 1 begin, and where the last of them ends, int64.

        The result is (last − first + 1,). Raises ValueError, naming the file, if the numbers do not ascend.
        """
        starts = self.starts.read(first, last + 1).astype(np.int64)
        if starts[0] < 0 or starts[-1] > self.n_pairs or (np.diff(starts) < 0).any():
            _raise_damaged(
                self.starts, "row starts that do not ascend", f"ascending ones from 0 to {self.n_pairs:,}", first
            )
        return starts


class MappedCounts(csr_array):
    """Counts (documents, words) whose arrays are memory maps of the files of `source`.

    Matrices that are computed from them lie in memory and have no source.
    """

    source: CountFiles | None = None

    @classmethod
    def from_files(cls, source: CountFiles) -> "MappedCounts":
        """Return the counts in these files as memory maps. They are not checked: `CountFiles.check` does that."""
        counts = cls((source.n_documents, source.n_words), dtype=np.int32)
        counts.data, counts.indices, counts.indptr = (
            each.mapped() for each in (source.counts, source.words, source.starts)
        )
        counts.has_sorted_indices = counts.has_canonical_format = True
        counts.source = source
        return counts


def runs_of(counts: csr_array, most_pairs: int = PAIRS_AT_ONCE) -> Iterator[csr_array]:
    """Yield counts (documents, words), in memory or in files, in runs of consecutive documents.

    most_pairs: about how many (document, word) pairs a run has.
    """
    files = files_of(counts)
    if files is not None:
        yield from (files.rows(*run) for run in files.runs(most_pairs))
        return
    first, starts = 0, counts.indptr
    while first < counts.shape[0]:
        last = int(np.searchsorted(starts, int(starts[first]) + most_pairs, side="right")) - 1
        last = min(max(last, first + 1), counts.shape[0])
        yield counts[first:last]
        first = last


def files_of(counts: csr_array) -> CountFiles | None:
    """Return the files that hold the counts, or None if they are in memory."""
    return counts.source if isinstance(counts, MappedCounts) else None


def _raise_damaged(array: FileArray, got: str, expected: str, first: int) -> None:
    """Raise ValueError that names a damaged file, what was found in it and what was expected.

    array: the array in the file. got: what was found, in words. first: the number of the document before the damage.
    """
    raise ValueError(
        f"{array.path}: got {got} after document {first:,}, expected {expected}: the file is damaged; restore it "
        "from a copy, or convert the documents again"
    )
