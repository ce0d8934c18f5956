"""Store a corpus in a folder: counts, words, names, classes and metadata as arrays that are mapped or read when needed.

| array | content |
|---|---|
| `row_starts`, `word_ids`, `counts` | compressed rows: document d has those from row_starts[d] to row_starts[d + 1] |
| `vocabulary`, `names`, `labels` | texts: `.text`, in UTF-8, and where each ends, `.ends` |
| `metadata.0`, `metadata.1`, … | columns; texts also with `.known`; times as whole nanoseconds |

The manifest (`files.array_folders`) has the checksum of each array, how texts were cut into words, notes, and the
fingerprint of the corpus. The fingerprint is a hash of all content, the same whether the corpus is in memory or in
files.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from lvsearch.files.array_folders import FolderWriter, open_arrays, verify_arrays
from lvsearch.files.storage import CorruptFolderError
from lvsearch.files.string_arrays import ENDS, KNOWN, TEXT, StoredStrings, json_list, pack_strings
from lvsearch.files.untrusted_files import conforms
from lvsearch.inference.data.mapped import CountFiles, FileArray, MappedCounts, files_of, runs_of
from lvsearch.reading.document_table import KINDS, PREFIX, DocumentTable, TableColumn
from lvsearch.texts.analyzer import Analyzer

HASHED_AT_ONCE = 1 << 20
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
            yield from (array[first : first + HASHED_AT_ONCE] for first in range(0, len(array), HASHED_AT_ONCE))
        return
    for array in (files.starts, files.words, files.counts):
        for first in range(0, array.length, HASHED_AT_ONCE):
            yield array.read(first, min(first + HASHED_AT_ONCE, array.length))


KIND = "corpus"
STARTS, WORDS, COUNTS, VOCABULARY, NAMES, LABELS = "row_starts", "word_ids", "counts", "vocabulary", "names", "labels"
"""The names of the arrays of a corpus in its folder."""
LENGTHS = "row_lengths"
"""The name of an array that exists only while a corpus is written: the number of entries of each row."""
VERIFIED_BYTES = 1 << 30
"""Folders of at most this many bytes are compared with their checksums whenever they are opened, which takes a
second.
"""
AT_ONCE = 1 << 16
"""The number of words or rows that are handled at once."""
MOST_INT32 = int(np.iinfo(np.int32).max)


class StoredParts(NamedTuple):
    """The parts of a corpus in a folder.

    counts: (documents, terms), in the files
    vocabulary: a word for each column
    names, labels: a name and a class for each document, or None
    notes: sentences on how the corpus was made
    analyzer: cut the texts into words; None if the corpus was made from counts
    table: the metadata, a row per document, or None
    """

    counts: csr_array
    vocabulary: tuple[str, ...]
    names: tuple[str, ...] | StoredStrings | None
    labels: tuple[str, ...] | StoredStrings | None
    notes: tuple[str, ...]
    analyzer: Analyzer | None
    table: DocumentTable | None


class CorpusWriter:
    """Writes a corpus to a new folder, some documents at a time: call `add` for each block, and `finish` at the end.

    writer: writes the arrays of the folder
    """

    def __init__(self, writer: FolderWriter):
        self._writer = writer
        self._ends: dict[str, int] = {}
        self.n_documents, self.n_tokens, self.n_empty = 0, 0, 0
        self._used = np.zeros(0, bool)
        for name, dtype in ((LENGTHS, np.int64), (WORDS, np.int32), (COUNTS, np.int32)):
            writer.append(name, np.zeros(0, dtype))

    def add(
        self,
        counts: csr_array,
        names: Iterable[str] | None = None,
        labels: Iterable[str] | None = None,
        columns: Sequence[TableColumn] = (),
    ) -> None:
        """Write a block of documents behind those already written.

        counts: (documents, terms) in canonical form
        names, labels: a name and a class for each document, or None
        columns: the metadata of these documents; the last column is its index if it has one
        """
        lengths = np.diff(counts.indptr)
        self._writer.append(LENGTHS, lengths)
        self._writer.append(WORDS, counts.indices)
        self._writer.append(COUNTS, counts.data)
        self.n_documents += len(lengths)
        self.n_tokens += int(counts.data.sum(dtype=np.int64))
        self.n_empty += int((lengths == 0).sum())
        self._used = np.pad(self._used, (0, max(counts.shape[1] - len(self._used), 0)))
        self._used[counts.indices] = True
        for name, strings in ((NAMES, names), (LABELS, labels)):
            if strings is not None:
                self._add_strings(name, strings)
        for place, column in enumerate(columns):
            name = f"{PREFIX}.{place}"
            if column.kind == "text":
                texts = list(column.values)
                self._add_strings(name, [text or "" for text in texts])
                self._writer.append(name + KNOWN, np.array([text is not None for text in texts], bool))
            else:
                values = np.asarray(column.values)
                self._writer.append(name, values.view(np.int64) if column.kind == "time" else values)

    @property
    def width(self) -> int:
        """The number of columns of the widest block of counts written so far."""
        return len(self._used)

    def n_unused(self, n_terms: int) -> int:
        """Return how many terms are in no document so far. n_terms: the size of the vocabulary."""
        return n_terms - int(self._used.sum())

    def finish(
        self,
        vocabulary: Iterable[str],
        notes: Sequence[str] = (),
        analyzer: Analyzer | None = None,
        columns: Sequence[tuple[str, str]] | None = None,
        indexed: bool = False,
    ) -> None:
        """Write the vocabulary and the manifest, which completes the folder.

        vocabulary: one word per column
        notes: sentences on how the corpus was made
        analyzer: cut the texts into words; None for a corpus made from counts
        columns: names and kinds of the metadata's columns; None without metadata
        indexed: True if the last column is the index of the metadata
        """
        waiting = iter(vocabulary)
        while words := list(islice(waiting, AT_ONCE)):
            self._add_strings(VOCABULARY, words)
        self._write_starts()
        arrays = {name: self._writer.finish_array(name) for name in self._writer.names}
        body: dict[str, Any] = {
            "kind": KIND,
            "tokens": self.n_tokens,
            "notes": list(notes),
            "analyzer": None if analyzer is None else analyzer.to_json(),
            "columns": None if columns is None else [list(column) for column in columns],
            "indexed": indexed,
            "versions": {name: version(name) for name in ("lvsearch", "numpy")},
        }
        body["fingerprint"] = _fingerprint(_parts_from_files(body, arrays))
        self._writer.finish(body)

    def _add_strings(self, name: str, strings: Iterable[str]) -> None:
        """Append strings to the array of strings of this name."""
        arrays, before = pack_strings(name, strings), self._ends.get(name, 0)
        ends = arrays[name + ENDS] + before
        self._writer.append(name + TEXT, arrays[name + TEXT])
        self._writer.append(name + ENDS, ends)
        self._ends[name] = int(ends[-1]) if len(ends) else before

    def _write_starts(self) -> None:
        """Write the array of row starts from the lengths of the rows.

        Its type is that of the word ids if it is wide enough, since SciPy wants one type for both.
        """
        lengths = self._writer.finish_array(LENGTHS)
        n_pairs = self._writer.length(WORDS)
        dtype = np.int32 if n_pairs <= MOST_INT32 else np.int64
        self._writer.append(STARTS, np.zeros(1, dtype))
        before = 0
        for first in range(0, lengths.length, AT_ONCE):
            ends = before + np.cumsum(lengths.read(first, min(first + AT_ONCE, lengths.length)))
            self._writer.append(STARTS, ends.astype(dtype))
            before = int(ends[-1])
        self._writer.drop(LENGTHS)


def write_stored(writer: FolderWriter, parts: StoredParts) -> None:
    """Write a corpus to a folder, one block of documents at a time.

    writer: writes the arrays of the new folder
    parts: the corpus
    """
    into, table, first = CorpusWriter(writer), parts.table, 0
    stored = () if table is None else (*table.columns, *(() if table.index is None else (table.index,)))
    for run in runs_of(parts.counts):
        rows = slice(first, first + run.shape[0])
        columns = [TableColumn(column.name, column.kind, _rows_of_column(column.values, rows)) for column in stored]
        names, labels = (None if each is None else each[rows] for each in (parts.names, parts.labels))
        into.add(run, names, labels, columns)
        first = rows.stop
    kinds = None if table is None else [(column.name, column.kind) for column in stored]
    indexed = table is not None and table.index is not None
    into.finish(parts.vocabulary, parts.notes, parts.analyzer, kinds, indexed)


def open_stored(folder: Path, verify: bool | None = None) -> StoredParts:
    """Open the corpus in a folder; its large arrays stay in the files.

    Row starts, word ids and counts are read once, to check that they form a matrix with the stated number of tokens.

    folder: the folder
    verify: True also compares the checksums of all files; None does so if they hold at most `VERIFIED_BYTES` together

    Raises FileNotFoundError if there is no such folder, and `CorruptFolderError`, naming the file, if it is damaged or
    holds something else.
    """
    body, arrays = open_arrays(folder)
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise CorruptFolderError(f"{folder} holds no corpus; expected a folder that Corpus.save or `convert` wrote")
    if verify or (verify is None and sum(array.n_bytes for array in arrays.values()) <= VERIFIED_BYTES):
        verify_arrays(folder)
    try:
        if not conforms(body["tokens"], int):
            raise TypeError(f"a number of tokens that is {body['tokens']!r}")
        parts = _parts_from_files(body, arrays)
        _count_files(parts.counts).check()
        return parts
    except CorruptFolderError:
        raise
    except ValueError as error:
        raise CorruptFolderError(f"{error}" if str(folder) in str(error) else f"{folder}: {error}") from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise CorruptFolderError(f"{folder} lacks what a corpus needs ({error!r}); restore it from a copy") from error


def _parts_from_files(body: Mapping[str, Any], arrays: Mapping[str, FileArray]) -> StoredParts:
    """Return the parts of a corpus in a folder.

    body: the JSON data of the manifest
    arrays: {name: array in its file}

    Raises `CorruptFolderError` if the arrays form no matrix.
    """
    starts, words, counts = (arrays[name] for name in (STARTS, WORDS, COUNTS))
    vocabulary = StoredStrings(arrays[VOCABULARY + TEXT], arrays[VOCABULARY + ENDS])
    # the three arrays must be whole numbers and form a matrix of compressed rows
    for array in (starts, words, counts):
        if array.dtype.kind != "i":
            raise CorruptFolderError(
                f"{array.path}: got numbers of type {array.dtype}, expected whole ones; restore the folder from a copy"
            )
    if (
        starts.length < 2
        or words.length != counts.length
        or int(starts.read(starts.length - 1, starts.length)[0]) != words.length
    ):
        raise CorruptFolderError(
            f"{starts.path}: got {starts.length:,} row starts for {words.length:,} word ids and {counts.length:,} "
            "counts, which form no matrix; restore the folder from a copy"
        )
    files = CountFiles(starts, words, counts, len(vocabulary), body["tokens"])
    notes, analyzer = tuple(body["notes"]), body["analyzer"]
    table = _metadata_table(body, arrays, files.n_documents)
    return StoredParts(
        MappedCounts.from_files(files),
        tuple(vocabulary),
        _stored_strings(NAMES, arrays),
        _stored_strings(LABELS, arrays),
        notes,
        None if analyzer is None else Analyzer.from_json(analyzer),
        table,
    )


def _count_files(counts: csr_array) -> CountFiles:
    """Return the files in which the counts (documents, terms) of an opened corpus lie."""
    files = files_of(counts)
    assert files is not None  # counts of a folder are always in files
    return files


def written_fingerprint(folder: Path) -> str | None:
    """Return the fingerprint that a folder's manifest states for its corpus; None for folders of older versions.

    It says what should be in the folder, not what is there now.

    Raises FileNotFoundError if there is no such folder, and `CorruptFolderError` if its manifest is damaged.
    """
    return open_arrays(folder)[0].get("fingerprint")


def _metadata_table(body: Mapping[str, Any], arrays: Mapping[str, FileArray], n_documents: int) -> DocumentTable | None:
    """Return the metadata of a corpus in a folder, or None if it has none.

    body: the JSON data of the manifest
    arrays: {name: array in its file}
    n_documents: the number of documents

    Raises `CorruptFolderError` for a column of an unknown kind or another length.
    """
    if body["columns"] is None:
        return None
    columns = []
    for place, (name, kind) in enumerate(body["columns"]):
        if kind not in KINDS:
            raise CorruptFolderError(f"got metadata of kind {kind!r}, expected one of {', '.join(KINDS)}")
        stored = f"{PREFIX}.{place}"
        if kind == "text":
            values = StoredStrings(arrays[stored + TEXT], arrays[stored + ENDS], arrays[stored + KNOWN])
        else:
            values = arrays[stored].mapped()
            values = values.view("datetime64[ns]") if kind == "time" else values
        if len(values) != n_documents:
            raise CorruptFolderError(f"got {len(values):,} values of {name!r}, expected {n_documents:,}")
        columns.append(TableColumn(name, kind, values))
    index = columns.pop() if body["indexed"] else None
    return DocumentTable(tuple(columns), index, n_documents)


def _rows_of_column(values: np.ndarray | StoredStrings, rows: slice) -> np.ndarray:
    """Return some rows of a column as an array, (rows,). values: the column, in memory or in files."""
    return values[rows] if isinstance(values, np.ndarray) else np.array(values[rows], dtype=object)


def _stored_strings(name: str, arrays: Mapping[str, FileArray]) -> StoredStrings | None:
    """Return the names or the labels of documents, read when they are used; None if the folder has none.

    name: `NAMES` or `LABELS`
    arrays: {name: array in its file}
    """
    return StoredStrings(arrays[name + TEXT], arrays[name + ENDS]) if name + ENDS in arrays else None


def _fingerprint(parts: StoredParts) -> str:
    """Return the SHA-256 fingerprint of a corpus, in hexadecimal."""
    return corpus_fingerprint(parts.counts, parts.vocabulary, parts.names, parts.labels, parts.table)
