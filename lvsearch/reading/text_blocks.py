"""Documents out of files a block at a time: texts with what is known of each, for files larger than memory."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from lvsearch.files.packed_files import opened
from lvsearch.reading.folders import LINES, holds_text_files, text_files
from lvsearch.reading.opening import TEXTS, ending_of, refuse_columns, texts_in, unknown_ending
from lvsearch.tables.delimited import (
    check_header,
    dialect_of,
    every_value_named,
    filled,
    marks_notes,
    read_options,
    tidied,
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
"""In a block."""


class TextSource(NamedTuple):
    """A file or folder of texts, and which columns of a table are what; fields as the options of `Corpus.open`."""

    path: Path
    text: Any = None
    id: Any = None
    label: Any = None
    keep: tuple[Any, ...] | None = None
    encoding: str = "utf-8"

    def blocks(self, as_text: Iterable[str] = ()) -> Iterator[Documents]:
        """All documents in their order, a block after the other; any number of times. JSON arrays and Excel files are
        one block. The last block has the notes.

        as_text: columns that are to be read as they stand. Raises ValueError as `Corpus.open` does.
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
            yield texts_in(self.path, *columns, self.encoding)
        else:
            raise ValueError(unknown_ending(self.path, ending))


def _lines(path: Path, encoding: str) -> Iterator[Documents]:
    with opened(path, encoding) as file:
        block: list[str] = []
        for line in file:
            block.append(line.removesuffix("\n"))
            if len(block) == DOCUMENTS:
                yield Documents(block)
                block = []
        if block:
            yield Documents(block)


def _folder(path: Path, encoding: str) -> Iterator[Documents]:
    files = text_files(path)
    for first in range(0, len(files.names), DOCUMENTS):
        block = slice(first, first + DOCUMENTS)
        labels = None if files.labels is None else files.labels[block]
        yield Documents(files.texts(block, encoding), files.names[block], labels, notes=files.notes)


def _delimited(source: TextSource, ending: str, as_text: frozenset[str]) -> Iterator[Documents]:
    path, texts = source.path, [column for column in (source.text, source.id) if column is not None]
    dialect = dialect_of(lambda: opened(path, source.encoding), path, ending)
    with opened(path, source.encoding) as file:
        check_header(file, path, dialect, nameless="")
    marks: Counter[str] = Counter()
    try:
        with opened(path, source.encoding) as file:
            columns = pd.read_csv(file, nrows=0, **dialect.pandas()).columns
        require_columns(columns, path, source.text, source.id)
        options = read_options(columns, texts, source.label)
        options["dtype"] |= dict.fromkeys(as_text, str)
        with every_value_named(path), opened(path, source.encoding) as file:
            for read in pd.read_csv(file, **dialect.pandas(), **options, chunksize=DOCUMENTS):
                frame, found = tidied(read, texts, source.label, as_text)
                marks += found
                documents = frame_documents(frame, source.text, source.id, source.label, source.keep)
                yield documents._replace(notes=(*dialect.notes, *marks_notes(marks)))
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise not_delimited(path, error) from error


def _json_frames(source: TextSource) -> Iterator[pd.DataFrame]:
    """Every block has the columns of all lines: of a first look at them."""
    columns: dict[str, None] = {}
    with opened(source.path, source.encoding) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                columns |= dict.fromkeys(json_record(line, source.path, number))
    require_columns(pd.Index(list(columns)), source.path, source.text, source.id)

    def framed(records: list[dict[str, Any]], first: int) -> pd.DataFrame:
        index = pd.RangeIndex(first, first + len(records))
        return filled(pd.DataFrame.from_records(records, columns=list(columns), index=index), source.text)

    with opened(source.path, source.encoding) as file:
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
    """Row batches, numbered through unless something names them."""
    empty, batches = arrow_batches(source.path, DOCUMENTS)
    require_columns(empty.columns, source.path, source.text, source.id)
    first = 0
    for batch in batches:
        for start in range(0, batch.num_rows, DOCUMENTS):
            frame = batch.slice(start, DOCUMENTS).to_pandas()
            if isinstance(frame.index, pd.RangeIndex):
                frame = frame.set_axis(pd.RangeIndex(first, first + len(frame)))
            yield filled(frame, source.text)
            first += len(frame)
