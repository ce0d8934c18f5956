"""Compute the fingerprint of a corpus, a hash of all its content, whether it is in memory or in files."""

import hashlib
import json
from collections.abc import Iterable, Iterator

import numpy as np
from scipy.sparse import csr_array

from lvsearch.files.string_arrays import json_list
from lvsearch.inference.data.mapped import files_of
from lvsearch.reading.document_table import DocumentTable

AT_ONCE = 1 << 20
"""The number of entries that are hashed at once."""


def corpus_fingerprint(
    counts: csr_array,
    vocabulary: Iterable[str],
    names: Iterable[str] | None,
    labels: Iterable[str] | None,
    table: DocumentTable | None,
) -> str:
    """Return the SHA-256 hash of the content of a corpus, in hexadecimal. Files are read piece by piece.

    counts: (documents, words)
    vocabulary: a word for each column
    names, labels: a name and a class for each document, or None
    table: the metadata, or None
    """
    digest = hashlib.sha256(b"lvsearch corpus 1")
    for piece in _number_pieces(counts):
        digest.update(np.asarray(piece, dtype="<i8").tobytes())
    digest.update(f"[{json.dumps(counts.shape)}".encode())
    for strings in (vocabulary, names, labels):
        digest.update(b", ")
        for piece in ("null",) if strings is None else json_list(strings):
            digest.update(piece.encode())
    digest.update(b"]")
    if table is not None:
        digest.update(table.digest())
    return digest.hexdigest()


def _number_pieces(counts: csr_array) -> Iterator[np.ndarray]:
    """Yield the arrays of a sparse matrix in pieces: all row starts, then all column ids, then all counts."""
    files = files_of(counts)
    if files is None:
        for array in (counts.indptr, counts.indices, counts.data):
            yield from (array[first : first + AT_ONCE] for first in range(0, len(array), AT_ONCE))
        return
    for array in (files.starts, files.words, files.counts):
        for first in range(0, array.length, AT_ONCE):
            yield array.read(first, min(first + AT_ONCE, array.length))
