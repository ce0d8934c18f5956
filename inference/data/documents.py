"""Bag-of-words documents: their counts, and padded batches of documents of similar length."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
from jaxtyping import Int

from lvsearch.inference.data.dataset import Batch, Dataset, UnitBatches
from lvsearch.inference.data.mapped import CountFiles, files_of
from lvsearch.models.units import BagOfWords

SHORTEST = 16
"""Documents with fewer distinct words are padded to this many."""
MOST_SHAPES = 3
"""The most distinct shapes of batches. Each shape is compiled once per capacity (number of topic slots), and small
searches mostly compile.
"""
TOKENS_PER_BATCH = 8192
"""The number of distinct words in one batch, padding included. Small batches let memoized updates be frequent."""


@dataclass(frozen=True)
class RaggedDocuments:
    """Documents as sparse counts of words, each with as many entries as it has distinct words.

    counts: (documents, words), word ids ascending in each document, no zeros.
    tokens_per_batch: how many distinct words, summed over documents, a batch holds, about.
    """

    counts: scipy.sparse.csr_array
    tokens_per_batch: int = TOKENS_PER_BATCH

    @property
    def extents(self) -> Mapping[str, int]:
        """The number of words of the vocabulary, as {"word": number}."""
        return {"word": self.counts.shape[1]}

    @property
    def n_units(self) -> int:
        """The number of documents."""
        return self.counts.shape[0]

    @cached_property
    def int32_counts(self) -> scipy.sparse.csr_array:
        """The counts as int32, (documents, words)."""
        return scipy.sparse.csr_array(self.counts, dtype=np.int32)

    def to_batches(self) -> UnitBatches:
        """Divide the documents into batches of `BagOfWords` with similar numbers of distinct words.

        Lengths are first padded to 16, 32, 48, 64, 96, 128, 192, …. These are joined into at most `MOST_SHAPES`
        lengths, where joining adds the least padding. All batches of one length have one number of documents, so a
        corpus has few shapes. A corpus that fits in one batch gets a single shape, if that makes at most twice as much
        to go over.

        Documents are dealt to batches round-robin. Each batch is then a sample of the whole corpus, however that was
        sorted.
        """
        lengths = [_padded_length(n) for n in np.diff(self.counts.indptr).tolist()]
        most = 1 if self._fit_one_batch(lengths) else MOST_SHAPES
        padded = _merge_buckets(np.array(lengths, dtype=np.int64), most)
        batches, unit_ids = [], []
        for length in np.unique(padded).tolist():
            ids = np.flatnonzero(padded == length)
            n_batches = max(1, round(len(ids) * length / self.tokens_per_batch))
            rows = -(-len(ids) // n_batches)  # rounded up: the last rows of some batches are padding
            for offset in range(n_batches):
                members = np.full(rows, -1, np.int64)
                dealt = ids[offset::n_batches]
                members[: len(dealt)] = dealt
                batches.append(_padded_batch(self.counts, members, length))
                unit_ids.append(members)
        return UnitBatches(tuple(batches), tuple(unit_ids))

    def _fit_one_batch(self, lengths: list[int]) -> bool:
        """Return True if all documents, padded to the longest, fit in one batch at most twice as large as the
        documents.

        lengths: the padded number of distinct words of each document.
        """
        together = len(lengths) * max(lengths, default=0)  # the size of one batch padded to the longest document
        return together <= min(self.tokens_per_batch, 2 * sum(lengths))


@dataclass(frozen=True)
class StoredDocuments(RaggedDocuments):
    """Documents whose counts are memory maps of files. `parts` reads them one run of consecutive documents at a
    time.
    """

    @property
    def files(self) -> CountFiles:
        """The files that hold the counts."""
        files = files_of(self.counts)
        assert files is not None
        return files

    def parts(self) -> Iterator[RaggedDocuments]:
        """Yield the documents in runs of consecutive ones, each with about a million (document, word) pairs."""
        for first, last in self.files.runs():
            yield RaggedDocuments(self.files.rows(first, last), self.tokens_per_batch)


def documents(counts: scipy.sparse.csr_array, *, tokens_per_batch: int = TOKENS_PER_BATCH) -> Dataset:
    """Return the data set of documents given as counts of words (documents, words).

    Repeated entries are added up and zeros dropped. Counts in files stay there.

    tokens_per_batch: how many distinct words, summed over documents, a batch holds, about.
    """
    if files_of(counts) is not None:
        return Dataset(StoredDocuments(counts, tokens_per_batch))
    counts = scipy.sparse.csr_array(counts)
    if not counts.has_canonical_format or not np.all(counts.data):
        counts = counts.copy()
        counts.sum_duplicates()
        counts.eliminate_zeros()
    return Dataset(RaggedDocuments(counts, tokens_per_batch))


def counts_of(data: Dataset) -> scipy.sparse.csr_array:
    """Return the sparse counts (documents, words) of a data set of documents, int32, word ids ascending. Do not change
    them.
    """
    if isinstance(data.original, RaggedDocuments):
        return data.original.int32_counts
    # units that came as batches: collect the cells of all batches, then sort them into one matrix
    document_ids, words, values = [], [], []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        document, slot = np.nonzero(np.asarray(batch.units.counts))
        document_ids.append(ids[document])
        words.append(np.asarray(batch.units.words)[document, slot])
        values.append(np.asarray(batch.units.counts)[document, slot])
    cells = np.concatenate(values).astype(np.int32), (np.concatenate(document_ids), np.concatenate(words))
    counts = scipy.sparse.csr_array(cells, shape=(data.n_units, data.extents["word"]))
    counts.sort_indices()
    return counts


def row_of_each_nonzero(counts: scipy.sparse.csr_array) -> Int[np.ndarray, " nonzero"]:
    """Return the row of each stored entry of a sparse matrix, such as the document of each count of a word."""
    return np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))


def deal_documents(
    n_documents: int, n_topics: int, most: int, random: np.random.Generator
) -> list[Int[np.ndarray, " few"]]:
    """Return for each topic the numbers of the few random documents that it begins with.

    No document is used twice before all were used. Where topics are more than documents, some share one.

    n_documents: the number of documents of the corpus.
    n_topics: the number of topics that documents are dealt to.
    most: the most documents of a topic. If there are many topics, each gets fewer.
    """
    few = int(np.clip(n_documents // max(n_topics, 1), 1, most))
    deals = -(-n_topics * few // n_documents)
    dealt = np.concatenate([random.permutation(n_documents) for _ in range(deals)] or [np.zeros(0, int)])
    return [dealt[topic * few : (topic + 1) * few] for topic in range(n_topics)]


def _padded_length(n: int) -> int:
    """Return the padded length of a document with `n` distinct words: the next of 16, 32, 48, 64, 96, 128, …."""
    length = SHORTEST
    while length < n:
        length = length * 3 // 2 if length & (length - 1) == 0 and length > SHORTEST else -(-length * 4 // 3 // 16) * 16
    return length


def _merge_buckets(padded: np.ndarray, most: int) -> np.ndarray:
    """Return the padded length of each document, joined until at most `most` distinct lengths are left, (document,).

    A length is joined with the next longer one. The pair that adds the least padding goes first.

    padded: the padded length of each document before.
    """
    lengths, documents_in = np.unique(padded, return_counts=True)
    kept, members = list(lengths), list(documents_in)
    target = {length: length for length in lengths}
    while len(kept) > most:
        added = [n * (longer - length) for n, length, longer in zip(members[:-1], kept[:-1], kept[1:], strict=True)]
        cheapest = int(np.argmin(added))
        target = {k: kept[cheapest + 1] if v == kept[cheapest] else v for k, v in target.items()}
        members[cheapest + 1] += members[cheapest]
        del kept[cheapest], members[cheapest]
    return np.array([target[length] for length in padded])


def _padded_batch(counts: scipy.sparse.csr_array, members: np.ndarray, length: int) -> Batch:
    """Return some documents as a batch, padded to `length` distinct words each, with weight 0 for padding.

    counts: (documents, words), sparse.
    members: the numbers of the documents in the batch, −1 for padding.
    """
    words = np.zeros((len(members), length), np.int32)
    values = np.zeros((len(members), length), np.float32)
    lengths = np.where(members >= 0, np.diff(counts.indptr)[members], 0)
    here = np.arange(length) < lengths[:, None]
    at = (counts.indptr[members][:, None] + np.arange(length))[here]
    words[here], values[here] = counts.indices[at], counts.data[at]
    return Batch(BagOfWords(words, values), (members >= 0).astype(np.float32))
