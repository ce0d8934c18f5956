"""Read texts and their metadata from files one block of documents at a time, for files larger than memory."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from lvsearch.files.packed_files import open_text
from lvsearch.reading.folders import LINES, holds_text_files, text_files
from lvsearch.reading.opening import TEXTS, documents_in_file, ending_of, refuse_columns, unknown_ending
from lvsearch.tables.delimited import (
    check_header,
    dialect_of,
    every_value_named,
    fill_empty_texts,
    marks_notes,
    read_options,
    tidy_table,
)
from lvsearch.tables.frames import Documents, frame_documents
from lvsearch.tables.table_files import (
    ARROW,
    DELIMITED,
    JSON_LINES,
    arrow_batches,
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
        block: list[str] = []
        for line in file:
            block.append(line.removesuffix("\n"))
            if len(block) == DOCUMENTS:
                yield Documents(block)
                block = []
        if block:
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
    marks: Counter[str] = Counter()
    try:
        with open_text(path, source.encoding) as file:
            columns = pd.read_csv(file, nrows=0, **dialect.pandas()).columns
        require_columns(columns, path, source.text, source.id)
        options = read_options(columns, texts, source.label)
        options["dtype"] |= dict.fromkeys(as_text, str)
        with every_value_named(path), open_text(path, source.encoding) as file:
            for read in pd.read_csv(file, **dialect.pandas(), **options, chunksize=DOCUMENTS):
                frame, found = tidy_table(read, texts, source.label, as_text)
                marks += found
                documents = frame_documents(frame, source.text, source.id, source.label, source.keep)
                yield documents._replace(notes=(*dialect.notes, *marks_notes(marks)))
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

    def framed(records: list[dict[str, Any]], first: int) -> pd.DataFrame:
        """Return records as a data frame whose rows are numbered from `first`."""
        index = pd.RangeIndex(first, first + len(records))
        return fill_empty_texts(pd.DataFrame.from_records(records, columns=list(columns), index=index), source.text)

    with open_text(source.path, source.encoding) as file:
        block: list[dict[str, Any]] = []
        first = 0
        for line in file:
            if not line.strip():
                continue
            block.append(json.loads(line))
            if len(block) == DOCUMENTS:
                yield framed(block, first)
                first, block = first + DOCUMENTS, []
        if block:
            yield framed(block, first)


def _arrow_frames(source: TextSource) -> Iterator[pd.DataFrame]:
    """Yield the rows of an Arrow or Parquet file as data frames, in blocks.

    Rows are numbered through all blocks unless the file names them.
    """
    empty, batches = arrow_batches(source.path, DOCUMENTS)
    require_columns(empty.columns, source.path, source.text, source.id)
    first = 0
    for batch in batches:
        for start in range(0, batch.num_rows, DOCUMENTS):
            frame = batch.slice(start, DOCUMENTS).to_pandas()
            if isinstance(frame.index, pd.RangeIndex):
                frame = frame.set_axis(pd.RangeIndex(first, first + len(frame)))
            yield fill_empty_texts(frame, source.text)
            first += len(frame)
