"""Read texts or counts from files one block of documents at a time, for files larger than memory.

Texts come with their metadata. Of files of counts, LDA-C and SVMlight have a line for every document. Matrix Market and
UCI's bags of words have a line for every entry, in any order. Their entries are counted, then written to a temporary
file in the order of the documents, and then read from it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from lvsearch.files.packed_files import open_text
from lvsearch.files.plain_text import one_line
from lvsearch.inference.data.streaming import ScratchArray
from lvsearch.reading.counts import (
    COLUMNS,
    ROWS,
    canonical_counts,
    ldac_counts,
    ldac_row,
    matrix_market_head,
    parse_svmlight,
    svmlight_first_id,
    svmlight_labels,
    uci_head,
)
from lvsearch.reading.opening import (
    LINES,
    MATRIX_MARKET,
    SVMLIGHT,
    TEXTS,
    documents_in_file,
    ending_of,
    holds_text_files,
    refuse_columns,
    text_files,
    unknown_ending,
)
from lvsearch.tables.delimited import (
    check_header,
    dialect_of,
    every_value_named,
    fill_empty_texts,
    line_end_notes,
    lines_of,
    marks_notes,
    read_options,
    tidy_table,
)
from lvsearch.tables.frames import Documents, frame_documents, frame_of_arrow
from lvsearch.tables.table_files import (
    ARROW,
    DELIMITED,
    JSON_LINES,
    arrow_batches,
    json_frame,
    json_record,
    not_delimited,
    require_columns,
)

DOCUMENTS = 1024
"""The number of documents in a block."""


class TextSource(NamedTuple):
    """A file or folder of texts, and how to read it.

    path: the file or folder
    text, id, label: columns of a table with the texts, their names and their classes; None if there is none
    keep: the columns of a table that become metadata; None for all others
    encoding: the encoding of text files
    """

    path: Path
    text: Any = None
    id: Any = None
    label: Any = None
    keep: tuple[Any, ...] | None = None
    encoding: str = "utf-8"

    def blocks(self, as_text: Iterable[str] = ()) -> Iterator[Documents]:
        """Yield all documents in order, in blocks. Call it again to read them again.

        JSON arrays and Excel files are one block. The notes of the last block cover all blocks.

        as_text: columns of a delimited table that are read as text, without conversion to numbers

        Raises ValueError for a file of another form, and for columns that do not exist.
        """
        columns = (self.text, self.id, self.label, self.keep)
        if holds_text_files(self.path):
            refuse_columns(self.path, "a folder of texts", columns)
            yield from _folder(self.path, self.encoding)
            return
        ending = ending_of(self.path)
        if ending == LINES:
            refuse_columns(self.path, "a document per line", columns)
            yield from _lines(self.path, self.encoding)
        elif ending in DELIMITED:
            yield from _delimited(self, ending, frozenset(as_text))
        elif ending in ARROW or ending in JSON_LINES:
            for frame in _arrow_frames(self) if ending in ARROW else _json_frames(self):
                yield frame_documents(frame, *columns)
        elif ending in TEXTS:
            yield documents_in_file(self.path, *columns, self.encoding)
        else:
            raise ValueError(unknown_ending(self.path, ending))


def _lines(path: Path, encoding: str) -> Iterator[Documents]:
    """Yield the documents of a text file with a document per line, in blocks."""
    with open_text(path, encoding) as file:
        while block := [line.removesuffix("\n") for line in islice(file, DOCUMENTS)]:
            yield Documents(block)


def _folder(path: Path, encoding: str) -> Iterator[Documents]:
    """Yield the documents of a folder, or of a .zip, with a document in each .txt file, in blocks."""
    files = text_files(path)
    for first in range(0, len(files.names), DOCUMENTS):
        block = slice(first, first + DOCUMENTS)
        labels = None if files.labels is None else files.labels[block]
        yield Documents(files.texts(block, encoding), files.names[block], labels, notes=files.notes)


def _delimited(source: TextSource, ending: str, as_text: frozenset[str]) -> Iterator[Documents]:
    """Yield the documents of a delimited table, in blocks.

    source: the file and its columns
    ending: ".csv" or ".tsv"
    as_text: columns that are read as text, without conversion to numbers
    """
    path, texts = source.path, [column for column in (source.text, source.id) if column is not None]
    dialect = dialect_of(lambda: open_text(path, source.encoding), path, ending)
    with open_text(path, source.encoding) as file:
        check_header(file, path, dialect, nameless="")
    lines = lines_of(lambda: open_text(path, source.encoding), dialect)
    ends = line_end_notes(path, source.encoding, lines.width)
    marks: Counter[str] = Counter()
    try:
        with open_text(path, source.encoding) as file:
            columns = pd.read_csv(file, nrows=0, **dialect.pandas()).columns
        require_columns(columns, path, source.text, source.id)
        options = read_options(columns, texts) | lines.pandas()
        with every_value_named(path), open_text(path, source.encoding) as file:
            for read in pd.read_csv(file, **dialect.pandas(), **options, chunksize=DOCUMENTS):
                frame, found = tidy_table(read, texts, source.label, as_text)
                marks += found
                documents = frame_documents(frame, source.text, source.id, source.label, source.keep)
                yield documents._replace(notes=(*dialect.notes, *lines.notes(), *marks_notes(marks), *ends))
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise not_delimited(path, error) from error


def _json_frames(source: TextSource) -> Iterator[pd.DataFrame]:
    """Yield the records of a file of JSON lines as data frames, in blocks.

    A first reading finds the columns of all records; every frame has all of them.
    """
    columns: dict[str, None] = {}
    with open_text(source.path, source.encoding) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                columns |= dict.fromkeys(json_record(line, source.path, number))
    require_columns(pd.Index(list(columns)), source.path, source.text, source.id)

    first = 0
    with open_text(source.path, source.encoding) as file:
        records = (json.loads(line) for line in file if line.strip())
        while block := list(islice(records, DOCUMENTS)):
            index = pd.RangeIndex(first, first + len(block))
            yield fill_empty_texts(json_frame(block, list(columns), index), source.text)
            first += len(block)


def _arrow_frames(source: TextSource) -> Iterator[pd.DataFrame]:
    """Yield the rows of an Arrow or Parquet file as data frames, in blocks.

    Rows are numbered through all blocks unless the file names them.
    """
    empty, batches = arrow_batches(source.path, DOCUMENTS)
    require_columns(empty.columns, source.path, source.text, source.id)
    first = 0
    for batch in batches:
        for start in range(0, batch.num_rows, DOCUMENTS):
            frame = frame_of_arrow(batch.slice(start, DOCUMENTS))
            if isinstance(frame.index, pd.RangeIndex):
                frame = frame.set_axis(pd.RangeIndex(first, first + len(frame)))
            yield fill_empty_texts(frame, source.text)
            first += len(frame)


LINES_AT_ONCE, ENTRIES_AT_ONCE = 1 << 12, 1 << 19
"""The number of lines (documents) and of entries that are read at once."""
ENTRY = np.dtype([("word", np.int64), ("count", np.float64)])


class CountBlock(NamedTuple):
    """A block of consecutive documents of a file of counts.

    counts: (documents, terms) in canonical form; without a vocabulary, terms up to the largest id of the block
    labels: a class for each document, or None
    notes: what was assumed when the file was read
    """

    counts: csr_array
    labels: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


class CountSource(NamedTuple):
    """A file of counts, and how to read it.

    path: the file
    n_terms: the size of the vocabulary; None if the file says it
    documents: `ROWS` or `COLUMNS` of a matrix
    first_id: the id of the first word in SVMlight files, as for `svmlight_first_id`
    """

    path: Path
    n_terms: int | None
    documents: str = ROWS
    first_id: int | None = None

    def blocks(self) -> Iterator[CountBlock]:
        """Yield all documents of the file in order, in blocks. Raises ValueError for a file of another form."""
        ending = ending_of(self.path)
        if ending in SVMLIGHT:
            return _svmlight(self)
        if ending in MATRIX_MARKET:
            return _blocks_by_document(_matrix_market(self.path, self.documents == COLUMNS))
        return _blocks_by_document(_uci(self.path)) if ending == ".uci" else _ldac(self.path, self.n_terms)


# ── a line for every document ───────────────────────────────────────────────────────────────────────────────────────


def _ldac(path: Path, n_terms: int | None) -> Iterator[CountBlock]:
    """Yield the documents of an LDA-C file in blocks. n_terms: the size of the vocabulary, or None.

    Raises ValueError, with the number of the line, for a line of another form.
    """
    first = 0
    with open_text(path) as file:
        lines = enumerate(_without_empty_end(file), start=1)
        while rows := [ldac_row(line, path, number, n_terms) for number, line in islice(lines, LINES_AT_ONCE)]:
            yield CountBlock(canonical_counts(ldac_counts(rows, n_terms), first=first))
            first += len(rows)
    if not first:
        raise ValueError(f"{path}: got no documents; expected a line `N id:count …` per document")


def _without_empty_end(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without their line feeds, and without empty lines at the end."""
    empty: list[str] = []
    for line in lines:
        if line.strip(" \t\n"):
            yield from (*empty, line.removesuffix("\n"))
            empty = []
        else:
            empty.append(line.removesuffix("\n"))


def _svmlight(source: CountSource) -> Iterator[CountBlock]:
    """Yield the documents of an SVMlight file in blocks. A first reading finds whether ids begin at 0 or 1.

    Raises ValueError for a file of another form, and for ids outside the vocabulary.
    """
    path, n_terms = source.path, source.n_terms
    lowest, highest = 1 << 30, 0
    for counts, _ in _svmlight_blocks(path):
        lowest, highest = int(counts.indices.min(initial=lowest)), int(counts.indices.max(initial=highest))
    shift, notes = svmlight_first_id(lowest, highest, n_terms, source.first_id, path)
    first = 0
    for counts, labels in _svmlight_blocks(path):
        ids = counts.indices - shift
        width = int(ids.max(initial=-1)) + 1
        if n_terms is not None and width > n_terms:
            raise ValueError(f"{path}: got id {width - 1 + shift} with a vocabulary of {n_terms:,} terms")
        shape = (counts.shape[0], n_terms if n_terms is not None else max(width, 1))
        shifted = csr_array((counts.data, ids, counts.indptr), shape=shape)
        yield CountBlock(canonical_counts(shifted, first=first), svmlight_labels(labels), notes)
        first += counts.shape[0]


def _svmlight_blocks(path: Path) -> Iterator[tuple[csr_array, np.ndarray]]:
    """Yield (counts, labels) of the documents of an SVMlight file in blocks, as `parse_svmlight` returns them."""
    with open_text(path) as file:
        while lines := "".join(islice(file, LINES_AT_ONCE)):
            yield parse_svmlight(lines.encode(), path)


# ── a line for every entry ──────────────────────────────────────────────────────────────────────────────────────────


class _Entries(NamedTuple):
    """A file with one count per line, and how to read it.

    The usual line is an entry `document word count`, with ids from 1.

    path: the file
    n_documents, n_words, n_entries: the numbers that its head states
    lines_before: the number of lines before the first entry
    dense: the file has one count per line and no ids, column after column
    ones: entries have no count; each counts 1
    integral: counts must be whole numbers
    transposed: entries are `word document count`
    symmetric: an entry also stands for the one with document and word exchanged; of a dense file's columns only the
        part from the diagonal downwards is there
    """

    path: Path
    n_documents: int
    n_words: int
    n_entries: int
    lines_before: int
    dense: bool = False  # every count in turn, a word after the other
    ones: bool = False  # without counts: each is 1
    integral: bool = False
    transposed: bool = False  # a word before its document
    symmetric: bool = False

    def read(self) -> Iterator[np.ndarray]:
        """Yield arrays (entries, 3) in the order of the file, with columns document from 0, word from 0, count.

        Raises ValueError for ids out of range, another number of entries than stated, and lines of another form.
        """
        n_columns, before = 1 if self.dense else 2 if self.ones else 3, 0
        try:
            with open_text(self.path, "latin-1") as file:  # comments may be in any encoding, all else is ASCII
                for _ in range(self.lines_before):
                    next(file)
                options = {"sep": r"\s+", "header": None, "chunksize": ENTRIES_AT_ONCE}
                options |= {"skip_blank_lines": not self.integral}  # UCI's files have none; Matrix Market allows them
                dtype = np.int64 if self.integral else np.float64
                for chunk in pd.read_csv(file, dtype=dtype, comment=None, **options):
                    table = chunk.to_numpy()
                    if table.shape[1] != n_columns:
                        raise ValueError(f"lines of {table.shape[1]} numbers")
                    entries = self._without_bad_ids(table, before)
                    if self.symmetric:
                        off_diagonal = entries[entries[:, 0] != entries[:, 1]]
                        entries = np.concatenate([entries, off_diagonal[:, [1, 0, 2]]])
                    yield entries
                    before += len(table)
        except pd.errors.EmptyDataError:
            pass
        except (ValueError, OverflowError, StopIteration) as error:
            raise ValueError(
                f"{self.path}: {one_line(error)}; expected {n_columns} numbers on every line after line "
                f"{self.lines_before}"
            ) from error
        if before != self.n_entries:
            raise ValueError(
                f"{self.path}: got {before:,} entries, expected {self.n_entries:,}, as its head says: is the file cut "
                "off?"
            )

    def _without_bad_ids(self, table: np.ndarray, before: int) -> np.ndarray:
        """Return a block of lines as entries (entries, 3), with columns document from 0, word from 0, count.

        table: the numbers on each line, (entries, 1 to 3)
        before: the number of entries before this block

        Raises ValueError for ids out of range.
        """
        if self.dense:
            places = np.arange(before, before + len(table))
            if self.symmetric:
                lengths = np.arange(self.n_words, 0, -1)  # of the columns, from the diagonal downwards
                ends = np.cumsum(lengths)
                columns = np.searchsorted(ends, places, side="right")
                return np.column_stack([self.n_words + places - ends[columns], columns, table[:, 0]])
            inner = self.n_words if self.transposed else self.n_documents
            where = [places % inner, places // inner]
            return np.column_stack([*(reversed(where) if self.transposed else where), table[:, 0]])
        table = table[:, [1, 0, *range(2, table.shape[1])]] if self.transposed else table
        counts = np.ones(len(table)) if self.ones else table[:, 2]
        bad = ~((table[:, :2] >= 1) & (table[:, :2] <= (self.n_documents, self.n_words)))  # NaN is neither
        bad |= (self.integral & (counts < 1))[:, None]
        if bad.any():
            entry = int(bad.any(axis=1).argmax())
            raise ValueError(
                f"line {before + entry + self.lines_before + 1}: got {' '.join(f'{x:g}' for x in table[entry])}; "
                f"expected a document from 1 to {self.n_documents:,}, a word from 1 to {self.n_words:,}"
                f"{' and a count of 1 or more' if self.integral else ''}"
            )
        return np.column_stack([table[:, 0] - 1, table[:, 1] - 1, counts])


def _uci(path: Path) -> _Entries:
    """Read the three head lines of a UCI file, and return how to read its entries."""
    with open_text(path) as file:
        return _Entries(path, *uci_head(list(islice(file, 3)), path), lines_before=3, integral=True)


def _matrix_market(path: Path, transposed: bool) -> _Entries:
    """Read the head of a Matrix Market file, and return how to read its entries.

    transposed: True if columns are the documents
    """
    head = matrix_market_head(path)
    n_documents, n_words = (head.n_columns, head.n_rows) if transposed else (head.n_rows, head.n_columns)
    return _Entries(
        path,
        n_documents,
        n_words,
        head.n_stored,
        head.n_lines,
        head.dense,
        head.ones,
        transposed=transposed,
        symmetric=head.symmetric,
    )


def _blocks_by_document(entries: _Entries) -> Iterator[CountBlock]:
    """Yield the documents of a file of entries in order, in blocks, whatever the order of the entries.

    Entries are first counted per document, and then written to their places in a temporary file. A few bytes per
    document stay in memory.
    """
    if not entries.n_documents:
        raise ValueError(f"{entries.path}: got no documents; expected at least one")
    lengths = np.zeros(entries.n_documents, np.int64)
    for block in entries.read():
        lengths += np.bincount(block[:, 0].astype(np.int64), minlength=len(lengths))
    ends = np.cumsum(lengths)
    free, sorted_entries = ends - lengths, ScratchArray(int(ends[-1]), ENTRY)
    for block in entries.read():
        _write_entries(block, free, sorted_entries)
    first = 0
    while first < len(lengths):
        begin = int(ends[first] - lengths[first])
        fitting = int(np.searchsorted(ends, begin + ENTRIES_AT_ONCE, side="right"))
        last = min(max(fitting, first + 1), first + (1 << 16), len(lengths))
        found = sorted_entries.read(begin, int(ends[last - 1]))
        starts = np.concatenate([[0], ends[first:last] - begin])
        counts = csr_array((found["count"], found["word"], starts), shape=(last - first, entries.n_words))
        yield CountBlock(canonical_counts(counts, first=first))
        first = last


def _write_entries(block: np.ndarray, free: np.ndarray, into: ScratchArray) -> None:
    """Write a block of entries to the positions of their documents in a temporary file, and move `free` past them.

    block: entries (entries, 3), with columns document, word, count
    free: the next free position of each document, (documents,), changed in place
    into: the temporary file
    """
    documents = block[:, 0].astype(np.int64)
    order = np.argsort(documents, kind="stable")
    ids, begins, amounts = np.unique(documents[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(begins, amounts)
    places = np.repeat(free[ids], amounts) + rank
    free[ids] += amounts
    records = np.empty(len(order), ENTRY)
    records["word"], records["count"] = block[order, 1], block[order, 2]
    cuts = np.flatnonzero(np.diff(places) != 1) + 1  # neighbouring places are written together
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(places)], strict=True):
        into.write(int(places[begin]), records[begin:end])
