"""Bag-of-words documents: their counts, and batches of them padded, bucketed by length and dealt."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse

from lvsearch.inference.data.dataset import Batch, Cut, Dataset
from lvsearch.inference.data.mapped import CountFiles, files_of
from lvsearch.models.units import BagOfWords

SHORTEST = 16
"""Documents with fewer distinct words are padded to this many."""
MOST_SHAPES = 3
"""Distinct shapes of batches: each is compiled once per capacity, and compiling is what small searches wait for."""
TOKENS_PER_BATCH = 8192
"""Distinct words, padding included, in one batch: small enough for memoized updates to be frequent."""


@dataclass(frozen=True)
class RaggedDocuments:
    """Sparse counts (D, V), sorted ids, no zeros; `tokens_per_batch`: how large batches are cut."""

    counts: scipy.sparse.csr_array
    tokens_per_batch: int = TOKENS_PER_BATCH

    @property
    def extents(self) -> Mapping[str, int]:
        return {"word": self.counts.shape[1]}

    @property
    def n_units(self) -> int:
        return self.counts.shape[0]

    @cached_property
    def whole(self) -> scipy.sparse.csr_array:
        """The counts as int32."""
        return scipy.sparse.csr_array(self.counts, dtype=np.int32)

    def cut(self) -> Cut:
        """Batches of `BagOfWords`, bucketed by padded number of distinct words.

        Lengths are padded to 16, 32, 48, 64, 96, 128, 192, …, joined into at most `MOST_SHAPES` buckets where that adds
        least padding, and batches of one bucket to one number of documents: a corpus has few shapes, and one that fits
        in a batch has one where that is at most twice as much to go over. Documents are dealt to batches round-robin,
        so that each batch is a sample of the whole corpus whatever order it came in.
        """
        lengths = [_padded_length(n) for n in np.diff(self.counts.indptr).tolist()]
        most = 1 if self._are_few(lengths) else MOST_SHAPES
        padded = _merge_buckets(np.array(lengths, dtype=np.int64), most)
        batches, unit_ids = [], []
        for length in np.unique(padded).tolist():
            ids = np.flatnonzero(padded == length)
            n_batches = max(1, round(len(ids) * length / self.tokens_per_batch))
            rows = -(-len(ids) // n_batches)
            for offset in range(n_batches):
                members = np.full(rows, -1, np.int64)
                dealt = ids[offset::n_batches]
                members[: len(dealt)] = dealt
                batches.append(_padded_batch(self.counts, members, length))
                unit_ids.append(members)
        return Cut(tuple(batches), tuple(unit_ids))

    def _are_few(self, lengths: list[int]) -> bool:
        together = len(lengths) * max(lengths, default=0)
        return together <= min(self.tokens_per_batch, 2 * sum(lengths))


@dataclass(frozen=True)
class StoredDocuments(RaggedDocuments):
    """The same in files: `counts` are memory maps of them, and `parts` are read a run at a time."""

    @property
    def files(self) -> CountFiles:
        """Where the counts lie."""
        files = files_of(self.counts)
        assert files is not None
        return files

    def parts(self) -> Iterator[RaggedDocuments]:
        """The documents in runs of about a million (document, word) pairs."""
        for first, last in self.files.runs():
            yield RaggedDocuments(self.files.rows(first, last), self.tokens_per_batch)


def documents(counts: scipy.sparse.csr_array, *, tokens_per_batch: int = TOKENS_PER_BATCH) -> Dataset:
    """The documents of bag-of-words counts (D, V)."""
    if files_of(counts) is not None:
        return Dataset(StoredDocuments(counts, tokens_per_batch))
    counts = scipy.sparse.csr_array(counts)
    if not counts.has_canonical_format or not np.all(counts.data):
        counts = counts.copy()
        counts.sum_duplicates()
        counts.eliminate_zeros()
    return Dataset(RaggedDocuments(counts, tokens_per_batch))


def counts_of(data: Dataset) -> scipy.sparse.csr_array:
    """Sparse counts (D, V) of a data set of documents, int32, sorted ids. To be read, not to be changed."""
    if isinstance(data.original, RaggedDocuments):
        return data.original.whole
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


def _padded_length(n: int) -> int:
    length = SHORTEST
    while length < n:
        length = length * 3 // 2 if length & (length - 1) == 0 and length > SHORTEST else -(-length * 4 // 3 // 16) * 16
    return length


def _merge_buckets(padded: np.ndarray, most: int) -> np.ndarray:
    """Join buckets with their next longer neighbour, the cheapest in added padding first, until `most` are left."""
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
    words = np.zeros((len(members), length), np.int32)
    values = np.zeros((len(members), length), np.float32)
    lengths = np.where(members >= 0, np.diff(counts.indptr)[members], 0)
    here = np.arange(length) < lengths[:, None]
    at = (counts.indptr[members][:, None] + np.arange(length))[here]
    words[here], values[here] = counts.indices[at], counts.data[at]
    return Batch(BagOfWords(words, values), (members >= 0).astype(np.float32))
