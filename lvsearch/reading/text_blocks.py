"""Documents out of files a block at a time: texts with what is known of each, for files larger than memory."""

import codecs
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pandas as pd

from lvsearch.files.ordinary import require_ordinary
from lvsearch.reading.opening import LINES, TEXTS, ending_of, folder_documents, refuse_columns, unknown_ending
from lvsearch.reading.tables import (
    ARROW,
    MISSING,
    TABLES,
    Documents,
    arrow_batches,
    check_header,
    every_value_named,
    filled,
    frame_documents,
    json_record,
    require_columns,
)
from lvsearch.reading.vocabulary import read_text

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
        """All documents in their order, a block after the other; any number of times.

        as_text: columns that are to be read as they stand. Raises ValueError as `Corpus.open` does.
        """
        ending = ending_of(self.path)
        if self.path.is_dir() or ending == LINES:
            what = "a folder of texts" if self.path.is_dir() else "a document per line"
            refuse_columns(self.path, what, (self.text, self.id, self.label, self.keep))
            yield from _folder(self.path, self.encoding) if self.path.is_dir() else _lines(self.path, self.encoding)
            return
        if ending not in TEXTS:
            raise ValueError(unknown_ending(self.path, ending))
        for frame in self._frames(ending, frozenset(as_text)):
            yield frame_documents(frame, self.text, self.id, self.label, self.keep)

    def _frames(self, ending: str, as_text: frozenset[str]) -> Iterator[pd.DataFrame]:
        """Blocks of a table; the rows are numbered through."""
        if ending in ARROW:
            yield from _arrow_frames(self)
        elif TABLES[ending] is None:
            yield from _json_frames(self)
        else:
            yield from _delimited_frames(self, str(TABLES[ending]), as_text)


@contextmanager
def opened(path: str | os.PathLike[str], encoding: str = "utf-8") -> Iterator[TextIO]:
    """A text file whose lines all end in line feeds, unpacked if it ends in .gz, to be read piece by piece.

    Raises ValueError, also out of the block that reads, as `read_text` does.
    """
    try:
        codec = codecs.lookup(encoding).name
    except LookupError as error:
        raise ValueError(
            f"got encoding={encoding!r}, which Python does not know; expected one such as utf-8, latin-1 or cp1252"
        ) from error
    name = "utf-8-sig" if codec == "utf-8" else codec
    try:
        require_ordinary(path)
        if Path(path).suffix.lower() == ".gz":
            with gzip.open(path, "rt", encoding=name) as file:
                yield file
        else:
            with Path(path).open(encoding=name) as file:
                yield file
    except UnicodeDecodeError as error:
        got = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end])
        raise ValueError(
            f"{path}: got bytes that are not {encoding.upper()}: {got}; expected {encoding.upper()} text: say what the "
            "file is in (encoding='latin-1' or 'cp1252' are common; on the command line --encoding)"
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: {error}; expected a file written by gzip, as its name says") from error


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
    files, names, labels = folder_documents(path)
    for first in range(0, len(files), DOCUMENTS):
        block = slice(first, first + DOCUMENTS)
        texts = [read_text(file, encoding) for file in files[block]]
        yield Documents(texts, names[block], None if labels is None else labels[block])


def _delimited_frames(source: TextSource, separator: str, as_text: frozenset[str]) -> Iterator[pd.DataFrame]:
    path, plain = source.path, [column for column in (source.text, source.id) if column is not None]
    with opened(path, source.encoding) as file:
        check_header(file, path, separator, nameless="")
    try:
        with opened(path, source.encoding) as file:
            columns = pd.read_csv(file, sep=separator, nrows=0).columns
        require_columns(columns, path, source.text, source.id)
        with every_value_named(path), opened(path, source.encoding) as file:
            yield from (
                filled(frame, *plain)
                for frame in pd.read_csv(
                    file,
                    sep=separator,
                    dtype=dict.fromkeys((*plain, *as_text), str),
                    na_values={column: MISSING for column in columns if column not in plain},
                    keep_default_na=False,
                    low_memory=False,
                    index_col=False,
                    chunksize=DOCUMENTS,
                )
            )
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: {reason}; expected a table whose first line names its columns") from error


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
