"""Data as the engines see it: batches of padded units with a weight each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from lvsearch.models.contract import Unit
from lvsearch.models.lda import BagOfWords


class Batch(NamedTuple):
    """Units stacked on a leading axis, and the weight of each: 0 = padding, 1, or N / |batch| for a minibatch."""

    units: Unit
    weight: Float[Array, " _"] | np.ndarray  # batches of one data set differ in length


@dataclass(frozen=True)
class Dataset:
    """All units of a data set, in batches of few distinct shapes.

    | field | meaning |
    |---|---|
    | `batches` | NumPy leaves; batches of one shape stand together |
    | `unit_ids` | for each batch, which unit of the data set each row is; −1 for padding |
    | `extents` | lengths of the axes of the globals that the data decides, such as {"word": V} |
    | `n_units` | units, padding not counted |
    """

    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]
    extents: Mapping[str, int]
    n_units: int

    @property
    def shapes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The distinct shapes of the batches: each is compiled once per capacity."""
        distinct = {tuple(leaf.shape for leaf in jax.tree.leaves(batch.units)) for batch in self.batches}
        return tuple(sorted(distinct))

    def gather(self, per_batch: Sequence[np.ndarray]) -> np.ndarray:
        """Put per-unit results, one array (units, …) per batch, back into the order of the data set."""
        out = np.zeros((self.n_units, *np.shape(per_batch[0])[1:]), np.asarray(per_batch[0]).dtype)
        for ids, values in zip(self.unit_ids, per_batch, strict=True):
            real = ids >= 0
            out[ids[real]] = np.asarray(values)[real]
        return out


SHORTEST = 16
"""Documents with fewer distinct words are padded to this many."""
MOST_SHAPES = 3
"""Distinct shapes of batches: each is compiled once per capacity, and compiling is what small searches wait for."""
TOKENS_PER_BATCH = 8192
"""Distinct words, padding included, in one batch: small enough for memoized updates to be frequent."""


def documents(counts: scipy.sparse.csr_array, *, tokens_per_batch: int = TOKENS_PER_BATCH) -> Dataset:
    """Bag-of-words counts (D, V) as batches of `BagOfWords`, bucketed by padded number of distinct words.

    Lengths are padded to 16, 32, 48, 64, 96, 128, 192, …, joined into at most `MOST_SHAPES` buckets where that adds
    least padding, and batches of one bucket to one number of documents: a corpus has few shapes. Documents are dealt to
    batches round-robin, so that each batch is a sample of the whole corpus whatever order it came in.
    """
    counts = scipy.sparse.csr_array(counts)
    per_document = np.diff(counts.indptr)
    padded = _merge_buckets(np.array([_padded_length(n) for n in per_document.tolist()], dtype=np.int64), MOST_SHAPES)
    batches, unit_ids = [], []
    for length in np.unique(padded):
        ids = np.flatnonzero(padded == length)
        n_batches = max(1, round(len(ids) * length / tokens_per_batch))
        rows = -(-len(ids) // n_batches)
        for offset in range(n_batches):
            members = np.full(rows, -1, np.int64)
            dealt = ids[offset::n_batches]
            members[: len(dealt)] = dealt
            batches.append(_padded_batch(counts, members, int(length)))
            unit_ids.append(members)
    return Dataset(tuple(batches), tuple(unit_ids), {"word": counts.shape[1]}, counts.shape[0])


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
    for row, document in enumerate(members):
        if document >= 0:
            start, stop = counts.indptr[document], counts.indptr[document + 1]
            words[row, : stop - start] = counts.indices[start:stop]
            values[row, : stop - start] = counts.data[start:stop]
    return Batch(BagOfWords(words, values), (members >= 0).astype(np.float32))
