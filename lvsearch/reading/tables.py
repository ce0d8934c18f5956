"""Tables as people have them: files and data frames with a row per document, or wide ones with a column per term."""

import csv
import io
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lvsearch.reading.readers import checked_texts
from lvsearch.reading.vocabulary import first_repeated, read_text

SHOWN = 12
"""Names of columns that a message lists."""
MISSING = ["", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "null", "NULL", "None"]
"""Cells that hold nothing, in columns that are not texts."""


class Documents(NamedTuple):
    """Texts and what is known of each: name, class, and a row of `metadata`, a data frame; None where nothing is."""

    texts: list[str]
    names: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    metadata: pd.DataFrame | None = None


def columns_in_words(columns: Iterable[Any]) -> str:
    """Such as "'id', 'body', 'year'"; the first dozen."""
    names = [repr(name) for name in columns]
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")


def as_frame(table: Any) -> pd.DataFrame:
    """A data frame as it is, or made by the table's own `to_pandas` (Hugging Face datasets, Polars, Arrow).

    Raises ValueError for anything else.
    """
    if isinstance(table, pd.DataFrame):
        return table
    if hasattr(table, "to_pandas"):
        frame = table.to_pandas()
        if isinstance(frame, pd.DataFrame):
            return frame
    if isinstance(table, dict) and all(hasattr(part, "to_pandas") for part in table.values()):
        raise ValueError(
            f"got several data sets ({columns_in_words(table)}); expected one of them, such as data['train']"
        )
    raise ValueError(f"got {type(table).__name__}; expected a pandas DataFrame, or a table with to_pandas()")


def frame_documents(
    frame: pd.DataFrame, text: Any, id: Any = None, label: Any = None, keep: Iterable[Any] | None = None
) -> Documents:
    """The texts of a column, named by another (by default by the index), the other columns as metadata.

    text, id, label: names of columns; keep: those of the metadata, by default all but the texts.

    Raises:
        ValueError: no such column; several levels of names; a missing text, id or label; values that are not strings.
    """
    if isinstance(frame.index, pd.MultiIndex) or isinstance(frame.columns, pd.MultiIndex):
        raise ValueError("got several levels of names; expected one: frame.reset_index(), or join them")
    if isinstance(keep, str):
        raise ValueError(f"got keep={keep!r}; expected a list of columns: keep=[{keep!r}]")
    kept = None if keep is None else list(keep)
    for what, name in (("text", text), ("id", id), ("label", label), *(("keep", name) for name in kept or ())):
        if name not in frame.columns and not (name is None and what in ("id", "label")):
            raise ValueError(
                f"got {what}={name!r}, expected one of the columns {columns_in_words(frame.columns)}"
                f"{'; text= names the one that holds the texts' if what == 'text' else ''}"
            )
    texts = _whole(frame, text, "the documents without text, frame.fillna({…: ''}) keeps them as empty ones")
    named = frame if id is None else frame.set_index(_whole(frame, id, "a name for every document"))
    labels = (
        None if label is None else tuple(str(value) for value in _whole(frame, label, "a class for every document"))
    )
    others = [name for name in frame.columns if name not in (text, id)] if kept is None else kept
    names = tuple(str(name) for name in named.index)
    return Documents(checked_texts(texts.tolist()), names, labels, named.loc[:, others])


def index_names(texts: Any) -> tuple[str, ...] | None:
    """What names the elements of a pandas Series; None for other things, and for its default index."""
    if not isinstance(texts, pd.Series) or texts.index.equals(pd.RangeIndex(len(texts))):
        return None
    return tuple(str(name) for name in texts.index)


def holds_texts(data: Any) -> bool:
    """Whether the elements of a list, a Series or a one-dimensional array are strings, by the first."""
    if isinstance(data, list | tuple):
        return bool(data) and isinstance(data[0], str)
    flat = isinstance(data, pd.Series) or (isinstance(data, np.ndarray) and data.ndim == 1)
    return flat and len(data) > 0 and isinstance(data[0] if isinstance(data, np.ndarray) else data.iloc[0], str)


def text_columns(frame: pd.DataFrame) -> list[Any]:
    """The columns whose values, where there are any, are strings."""
    found = []
    for place, name in enumerate(frame.columns):
        known = frame.iloc[:, place].dropna()
        if len(known) and isinstance(known.iloc[0], str):
            found.append(name)
    return found


def _whole(frame: pd.DataFrame, name: Any, expected: str) -> pd.Series:
    """A column without missing values."""
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"got the column {name!r} twice; expected distinct names")
    missing = column.isna().to_numpy()
    if missing.any():
        first = int(missing.argmax())
        row = frame.index[first] if isinstance(frame.index, pd.RangeIndex) else first  # of a block: counted through
        raise ValueError(
            f"got {missing.sum():,} missing values of {len(frame):,} in the column {name!r}, the first in row "
            f"{row}; expected {expected}: leave such rows out, frame.dropna(subset=[{name!r}])"
        )
    return column


def frame_counts(frame: pd.DataFrame) -> tuple[Any, list[str], list[str] | None]:
    """A wide table as (counts, terms, document names): a row per document, the columns are the vocabulary.

    The names are the table's index, or None where that is pandas' default 0, 1, 2….

    Raises:
        ValueError: a column that does not hold numbers.
    """
    for column, dtype in frame.dtypes.items():
        if not pd.api.types.is_numeric_dtype(dtype):
            raise ValueError(
                f"got a column {column!r} of type {dtype}; expected a wide table of counts, a column per term; from a "
                "long one: .pivot_table(index='document', columns='word', values='count', aggfunc='sum', fill_value=0)"
                "; where a column holds texts: lv.Corpus.from_frame(frame, text=…)"
            )
    default = frame.index.equals(pd.RangeIndex(len(frame)))
    names = None if default else [str(name) for name in frame.index]
    terms = [str(column) for column in frame.columns]
    if len(terms) and all(isinstance(dtype, pd.SparseDtype) and dtype.fill_value == 0 for dtype in frame.dtypes):
        return frame.sparse.to_coo(), terms, names
    return frame.to_numpy(dtype=np.float64, na_value=np.nan), terms, names


# -- files ------------------------------------------------------------------------------------------------------


class UnnamedValuesError(ValueError):
    """Lines of a file have more values than its header has names."""


MORE_VALUES = "{}: got lines with more values than the header has names; name every column"


@contextmanager
def every_value_named(path: Any) -> Iterator[None]:
    """Inside: pandas reads comma-separated lines with index_col=False, and none that are longer than the header.

    Left to itself it takes the first values for names of rows, where these count up without a trace. Raises
    `UnnamedValuesError`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except pd.errors.ParserWarning as error:
        raise UnnamedValuesError(MORE_VALUES.format(path)) from error


def check_header(lines: Iterable[str], name: Any, separator: str = ",", nameless: str | int | None = None) -> None:
    """ValueError where the header of a table, its first line with anything on it, names a column twice or not at all,
    or has fewer names than the next line has values: pandas invents names, and leaves out a last value that is empty.

    nameless: the column that may lack a name: "", or its number from 0; None: none may.
    """
    rows = (row for row in csv.reader(lines, delimiter=separator) if "".join(row).strip())
    try:
        header, values = [column.strip() for column in next(rows, [])], next(rows, [])
    except csv.Error:  # no header that Python can read: pandas says what is wrong
        return
    twice = first_repeated(column for column in header if column)
    if twice is not None:
        raise ValueError(f"{name}: got the column name {twice!r} twice; expected distinct names")
    empty = [place for place, column in enumerate(header) if not column and nameless not in ("", place)]
    if empty:
        raise ValueError(
            f"{name}: got no name for column {empty[0] + 1} of the header; name every column. Where the first one "
            "names the rows, as in a file that pandas wrote with its index, say row_names=0 or write index=False"
        )
    if len(values) > len(header):
        raise UnnamedValuesError(MORE_VALUES.format(name))


def read_delimited(content: str, name: Any, separator: str, text: Any, id: Any = None) -> pd.DataFrame:
    """A table of comma- or tab-separated values whose first line names the columns.

    name: what messages call it. text, id: names of columns whose cells are taken as they stand ("NA" is a word, "007"
    no number); an empty cell there is an empty text.

    Raises:
        ValueError: no such columns, naming those that there are; lines with more values than the first.
    """
    plain = {column: str for column in (text, id) if column is not None}
    check_header(io.StringIO(content), name, separator, nameless="")
    try:
        columns = pd.read_csv(io.StringIO(content), sep=separator, nrows=0).columns
        require_columns(columns, name, text, id)
        missing = {column: MISSING for column in columns if column not in plain}
        whole = io.StringIO(content)
        with every_value_named(name):
            frame = pd.read_csv(
                whole,
                sep=separator,
                dtype=plain,
                na_values=missing,
                keep_default_na=False,
                low_memory=False,
                index_col=False,
            )
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name}: {reason}; expected a table whose first line names its columns") from error
    return filled(frame, *plain)


def read_json_lines(content: str, name: Any, text: Any, id: Any = None) -> pd.DataFrame:
    """A JSON object on every line, whose keys are columns; a text that is missing or null is an empty one.

    Raises:
        ValueError: with its number, a line that is no JSON object; no such columns, naming those that there are.
    """
    lines = enumerate(content.split("\n"), start=1)
    records = [json_record(line, name, number) for number, line in lines if line.strip()]
    frame = pd.DataFrame.from_records(records)
    require_columns(frame.columns, name, text, id)
    return filled(frame, text)


def json_record(line: str, name: Any, number: int) -> dict[str, Any]:
    """The object on a line. ValueError, with the line's number, for anything else."""
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{name}, line {number}: {error}; expected a JSON object on every line") from error
    if not isinstance(record, dict):
        raise ValueError(f"{name}, line {number}: got a {type(record).__name__}; expected a JSON object, {{…}}")
    return record


@contextmanager
def arrow_readable(path: Any) -> Iterator[None]:
    """Inside: pyarrow opens a file. Raises ValueError where it is not installed, and for a file that is none of its."""
    try:
        yield
    except ImportError as error:
        raise ValueError(f"{path}: Parquet files need pyarrow: pip install 'lvsearch[parquet]'") from error
    except (ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        kind = "Parquet" if Path(path).suffix.lower() == ".parquet" else "Arrow"
        raise ValueError(f"{path}: {' '.join(str(error).split())}; expected a {kind} file") from error


def arrow_batches(path: str | os.PathLike[str], n_rows: int) -> tuple[pd.DataFrame, Iterator[Any]]:
    """An empty frame with the columns of a Parquet or Arrow file, and its record batches, of about so many rows.

    Arrow's files (Feather) and its streams, as Hugging Face's data sets are kept, both. Errors as `arrow_readable`.
    """
    with arrow_readable(path):
        import pyarrow as pa  # pyright: ignore[reportMissingImports] — an extra
        import pyarrow.parquet as pq  # pyright: ignore[reportMissingImports]

        if Path(path).suffix.lower() == ".parquet":
            file = pq.ParquetFile(path)
            return file.schema_arrow.empty_table().to_pandas(), file.iter_batches(batch_size=n_rows)
        source = pa.memory_map(str(path))
        try:
            reader = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            stream = pa.ipc.open_stream(source)
            return stream.schema.empty_table().to_pandas(), iter(stream)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        return reader.schema.empty_table().to_pandas(), batches


def read_arrow(path: str | os.PathLike[str], text: Any, id: Any = None) -> pd.DataFrame:
    """A file of Arrow's. A missing text is an empty one. Raises ValueError as `read_parquet` does."""
    empty, batches = arrow_batches(path, 0)
    require_columns(empty.columns, path, text, id)
    frames = [batch.to_pandas() for batch in batches]
    whole = pd.concat(frames or [empty], ignore_index=all(isinstance(each.index, pd.RangeIndex) for each in frames))
    return filled(whole, text)


def read_parquet(path: str | os.PathLike[str], text: Any, id: Any = None) -> pd.DataFrame:
    """A Parquet file; needs pyarrow. A missing text is an empty one.

    Raises:
        ValueError: no such columns, naming those that there are; a file that is none; pyarrow is not installed.
    """
    with arrow_readable(path):
        frame = pd.read_parquet(Path(path))
    require_columns(frame.columns, path, text, id)
    return filled(frame, text)


def read_numbers(
    path: str | os.PathLike[str], header: bool, row_names: str | int | None, encoding: str
) -> pd.DataFrame:
    """A comma-separated file of numbers, as `Points.from_csv` takes it; its errors are said there."""
    content = io.StringIO(read_text(path, encoding))
    if header:
        check_header(content, path, nameless=row_names)
        content.seek(0)
    try:
        with every_value_named(path):
            index = False if row_names is None else row_names
            frame = pd.read_csv(content, header=0 if header else None, index_col=index)
    except UnnamedValuesError:
        raise
    except ValueError as error:  # among them lines of different lengths, no such column
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: {reason}; expected comma-separated numbers, as many on every line") from error
    if header and len(frame.columns) and all(_is_number(str(name)) for name in frame.columns):
        raise ValueError(
            f"{path}: got only numbers on the first line, expected the names of the columns: say header=False "
            "where the data begin there"
        )
    frame.columns = [name if header else f"column{number}" for number, name in enumerate(frame.columns)]
    return frame


ARROW = (".parquet", ".feather", ".arrow")
"""Endings of tables that pyarrow reads."""
TABLES = {".csv": ",", ".tsv": "\t", ".jsonl": None, ".ndjson": None}
"""Endings of tables in text files, and what separates values."""


def read_table(path: str | os.PathLike[str], ending: str, text: Any, id: Any, encoding: str) -> pd.DataFrame:
    """A table in a file of this ending (`TABLES` or `ARROW`). Errors as for the readers above and `read_text`."""
    if ending == ".parquet":
        return read_parquet(path, text, id)
    if ending in ARROW:
        return read_arrow(path, text, id)
    return table_in(read_text(path, encoding), path, ending, text, id)


def table_in(content: str, name: Any, ending: str, text: Any, id: Any) -> pd.DataFrame:
    """A table in a text, in the form that files of this ending have (`TABLES`). Errors as for the readers above."""
    separator = TABLES[ending]
    if separator is None:
        return read_json_lines(content, name, text, id)
    return read_delimited(content, name, separator, text, id)


def require_columns(columns: pd.Index, name: Any, text: Any, id: Any) -> None:
    """ValueError where a table of these columns, by this name, has none for the texts or their names."""
    if text is None:
        raise ValueError(
            f"{name}: got a table with the columns {columns_in_words(columns)}; expected to know which of them holds "
            "the texts: say text= (on the command line --text-column)"
        )
    for option, column in (("text", text), ("id", id)):
        if column is not None and column not in columns:
            raise ValueError(
                f"{name}: got {option}={column!r} (--{option}-column), expected one of its columns: "
                f"{columns_in_words(columns)}"
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def filled(frame: pd.DataFrame, *columns: Any) -> pd.DataFrame:
    """The table with empty texts where these columns hold nothing."""
    filled = frame.copy()
    for name in columns:
        filled[name] = frame[name].astype(object).where(frame[name].notna(), "")
    return filled
