"""Files that hold a table with a text in every row: delimited, JSON, Excel, Parquet and Arrow."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from lvsearch.files.ordinary import require_ordinary
from lvsearch.files.packed_files import read_text, unpacked
from lvsearch.tables.delimited import (
    check_header,
    dialect_of,
    every_value_named,
    filled,
    marks_notes,
    opened_text,
    read_options,
    tidied,
)
from lvsearch.tables.frames import columns_in_words

ARROW = (".parquet", ".feather", ".arrow")
"""Endings of tables that pyarrow reads."""
EXCEL = (".xlsx", ".xlsm")
DELIMITED = (".csv", ".tsv")
JSON_LINES = (".jsonl", ".ndjson")
JSON = ".json"
TABLES = (*DELIMITED, *JSON_LINES, JSON)
"""Endings of tables in text files."""


class TableFile(NamedTuple):
    """A table out of a file, and how it was read."""

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()


def read_table(path: str | os.PathLike[str], ending: str, text: Any, id: Any, label: Any, encoding: str) -> TableFile:
    """A table in a file of this ending (`TABLES`, `EXCEL` or `ARROW`). Errors as for the readers below."""
    if ending == ".parquet":
        return TableFile(read_parquet(path, text, id))
    if ending in ARROW:
        return TableFile(read_arrow(path, text, id))
    if ending in EXCEL:
        return read_excel(path, text, id)
    return table_in(read_text(path, encoding), path, ending, text, id, label)


def table_in(content: str, name: Any, ending: str, text: Any, id: Any, label: Any) -> TableFile:
    """A table in a text, in the form that files of this ending have (`TABLES`). Errors as for the readers below."""
    if ending in DELIMITED:
        return read_delimited(content, name, ending, text, id, label)
    if ending == JSON:
        return TableFile(read_json(content, name, text, id))
    return TableFile(read_json_lines(content, name, text, id))


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


# -- delimited ----------------------------------------------------------------------------------------------------


def read_delimited(content: str, name: Any, ending: str, text: Any, id: Any = None, label: Any = None) -> TableFile:
    """A table of values with commas, tabs or semicolons between, whose first line names the columns.

    name: what messages call it. text, id, label: names of columns whose cells are taken as they stand ("NA" is a word,
    "007" no number); an empty cell of the first two is an empty text.

    Raises:
        ValueError: no such columns, naming those that there are; lines with more values than the first; quotes that
            fit no reading.
    """
    opened, texts = opened_text(content), [column for column in (text, id) if column is not None]
    dialect = dialect_of(opened, name, ending)
    check_header(io.StringIO(content), name, dialect, nameless="")
    try:
        columns = pd.read_csv(io.StringIO(content), nrows=0, **dialect.pandas()).columns
        require_columns(columns, name, text, id)
        with every_value_named(name):
            options = read_options(columns, texts, label)
            frame, marks = tidied(pd.read_csv(io.StringIO(content), **dialect.pandas(), **options), texts, label)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise not_delimited(name, error) from error
    return TableFile(frame, (*dialect.notes, *marks_notes(marks)))


def not_delimited(name: Any, error: Exception) -> ValueError:
    """The error to raise where pandas cannot read a table."""
    reason = " ".join(str(error).split())
    return ValueError(f"{name}: {reason}; expected a table whose first line names its columns")


# -- JSON ---------------------------------------------------------------------------------------------------------


def json_strings(content: str) -> list[str] | None:
    """The strings of a JSON array that holds nothing else; None where it is another thing."""
    if not content.lstrip().startswith("["):
        return None
    try:
        values = json.loads(content)
    except (json.JSONDecodeError, RecursionError):
        return None  # the reader of records says what is wrong
    return values if values and all(isinstance(value, str) for value in values) else None


def read_json(content: str, name: Any, text: Any, id: Any = None) -> pd.DataFrame:
    """An array of JSON objects, whose keys are columns; or an object of arrays, a column each; or an object per line.

    Raises:
        ValueError: another form of JSON, or none; no such columns, naming those that there are.
    """
    try:
        value = json.loads(content)
    except (json.JSONDecodeError, RecursionError) as error:
        if content.lstrip().startswith("{"):
            return read_json_lines(content, name, text, id)
        raise ValueError(f"{name}: {error}; expected a JSON array of objects, [{{…}}, {{…}}]") from error
    if isinstance(value, list) and all(isinstance(record, dict) for record in value):
        frame = pd.DataFrame.from_records(value)
    elif isinstance(value, dict) and value and all(isinstance(column, list) for column in value.values()):
        lengths = {key: len(column) for key, column in value.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{name}: got arrays of different lengths ({lengths}); expected a value for each row")
        frame = pd.DataFrame(value)
    elif isinstance(value, dict):
        return read_json_lines(json.dumps(value), name, text, id)
    else:
        raise ValueError(
            f"{name}: got a JSON {type(value).__name__} of other things than objects; expected an array of objects, "
            "[{…}, {…}], or of strings alone"
        )
    require_columns(frame.columns, name, text, id)
    return filled(frame, text)


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
        array = ": an array over several lines is read from files that end in .json" if line.strip() == "[" else ""
        raise ValueError(f"{name}, line {number}: {error}; expected a JSON object on every line{array}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{name}, line {number}: got a {type(record).__name__}; expected a JSON object, {{…}}")
    return record


# -- Excel, Parquet, Arrow ----------------------------------------------------------------------------------------


def read_excel(path: str | os.PathLike[str], text: Any, id: Any = None) -> TableFile:
    """The first sheet of an Excel file whose first row names the columns; needs openpyxl. A missing text is empty.

    Raises:
        ValueError: no such columns, naming those that there are; a file that is none; openpyxl is not installed.
    """
    try:
        with unpacked(path) as file:
            sheets = pd.read_excel(io.BytesIO(file.read()), sheet_name=None, keep_default_na=False, na_values=[""])
    except ImportError as error:
        raise ValueError(
            f"{path}: Excel files need openpyxl: pip install 'lvsearch[excel]', or save it as .csv"
        ) from error
    except Exception as error:  # openpyxl raises KeyError, BadZipFile and others of its own for files that are none
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path}: {' '.join(str(error).split())}; expected an Excel file (.xlsx)") from error
    used, *others = sheets
    frame = sheets[used]
    require_columns(frame.columns, path, text, id)
    notes = (f"the first sheet, {used!r}, was read, and left out {columns_in_words(others)}",) if others else ()
    for column in (text, id):
        if column is not None:
            frame[column] = ["" if pd.isna(cell) else str(cell) for cell in frame[column]]
    return TableFile(frame, notes)


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
    require_ordinary(path)
    with arrow_readable(path):
        frame = pd.read_parquet(Path(path))
    require_columns(frame.columns, path, text, id)
    return filled(frame, text)
