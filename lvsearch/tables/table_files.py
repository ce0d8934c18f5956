"""Read files that hold a table with a text in every row: delimited, JSON, Excel, Stata, SPSS, Parquet and Arrow.

Tables for people are written as .csv and .xlsx (`write_table`).
"""

import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from lvsearch.files.packed_files import open_unpacked, read_text
from lvsearch.files.plain_text import one_line, spreadsheet
from lvsearch.files.storage import write_bytes, write_text
from lvsearch.files.untrusted_files import require_ordinary
from lvsearch.models.plain_arguments import as_path
from lvsearch.tables.delimited import (
    check_header,
    dialect_of,
    every_value_named,
    fill_empty_texts,
    line_end_notes,
    lines_of,
    marks_notes,
    opened_text,
    read_options,
    tidy_table,
)
from lvsearch.tables.frames import columns_in_words, frame_of_arrow, has_column

ARROW = (".parquet", ".feather", ".arrow")
"""The endings of tables that pyarrow reads."""
EXCEL = (".xlsx", ".xlsm")
STATA, SPSS = ".dta", ".sav"
"""The endings of data sets of two statistics programs, whose numbers may have labels."""
BINARY = (*EXCEL, STATA, SPSS)
"""The endings of tables of office and statistics programs."""
DELIMITED = (".csv", ".tsv")
JSON_LINES = (".jsonl", ".ndjson")
"""The endings of files with a JSON object on every line."""
JSON = ".json"
TABLES = (*DELIMITED, *JSON_LINES, JSON)
"""The endings of tables in text files."""


class TableFile(NamedTuple):
    """A table from a file, and notes on how it was read."""

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()


def read_table(path: str | os.PathLike[str], ending: str, text: Any, id: Any, label: Any, encoding: str) -> TableFile:
    """Read a table from a file, by the reader for its ending.

    path: the file
    ending: one of `TABLES`, `BINARY` or `ARROW`
    text: the column of texts
    id, label: the columns of names and classes, or None
    encoding: the encoding of text files

    Raises ValueError for a file of another form, and for columns that do not exist.
    """
    if ending == ".parquet":
        return TableFile(read_parquet(path, text, id))
    if ending in ARROW:
        return TableFile(read_arrow(path, text, id))
    if ending in EXCEL:
        return read_excel(path, text, id)
    if ending in (STATA, SPSS):
        return read_labelled(path, ending, text, id)
    table = table_in(read_text(path, encoding), path, ending, text, id, label)
    ends = line_end_notes(path, encoding, len(table.frame.columns)) if ending in DELIMITED else ()
    return table._replace(notes=(*table.notes, *ends))


def table_in(content: str, name: Any, ending: str, text: Any, id: Any, label: Any) -> TableFile:
    """Read a table from a string, by the reader for an ending.

    content: the string, in the form of files with this ending
    name: the file, for messages
    ending: one of `TABLES`
    text: the column of texts
    id, label: the columns of names and classes, or None

    Raises ValueError for content of another form, and for columns that do not exist.
    """
    if ending in DELIMITED:
        return read_delimited(content, name, ending, text, id, label)
    if ending == JSON:
        return TableFile(read_json(content, name, text, id))
    return TableFile(read_json_lines(content, name, text, id))


def require_columns(columns: pd.Index, name: Any, text: Any, id: Any) -> None:
    """Raise ValueError if a table lacks the column of texts or the column of their names.

    columns: the columns that the table has
    name: the file, for messages
    text: the column of texts; None raises too, since a person has to say which it is
    id: the column of names, or None if there is none
    """
    if text is None:
        raise ValueError(
            f"{name}: got a table with the columns {columns_in_words(columns)}; expected to know which of them holds "
            "the texts: say text= (on the command line --text-column)"
        )
    for option, column in (("text", text), ("id", id)):
        if column is not None and not has_column(columns, column):
            raise ValueError(
                f"{name}: got {option}={column!r} (--{option}-column), expected one of its columns: "
                f"{columns_in_words(columns)}"
            )


# -- delimited ----------------------------------------------------------------------------------------------------


def read_delimited(content: str, name: Any, ending: str, text: Any, id: Any = None, label: Any = None) -> TableFile:
    """Read a table with commas, tabs or semicolons between values, whose first line names the columns.

    content: the table as a string
    name: the file, for messages
    ending: ".tsv" for tabs; for another ending the separator is inferred
    text, id, label: columns whose cells are kept as they are ("NA" is a word, "007" is no number); an empty cell of the
        first two is an empty text

    Raises:
        ValueError: there is no such column (the existing ones are named); lines with more values than the first; a
            quote that neither encloses a value nor is part of a text.
    """
    opened, texts = opened_text(content), [column for column in (text, id) if column is not None]
    dialect = dialect_of(opened, name, ending)
    check_header(io.StringIO(content), name, dialect, nameless="")
    lines = lines_of(opened, dialect)
    try:
        columns = pd.read_csv(io.StringIO(content), nrows=0, **dialect.pandas()).columns
        require_columns(columns, name, text, id)
        with every_value_named(name):
            options = read_options(columns, texts) | lines.pandas()
            frame, marks = tidy_table(pd.read_csv(io.StringIO(content), **dialect.pandas(), **options), texts, label)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise not_delimited(name, error) from error
    return TableFile(frame, (*dialect.notes, *lines.notes(), *marks_notes(marks)))


def not_delimited(name: Any, error: Exception) -> ValueError:
    """Return the error to raise if pandas cannot read a table. name: the file; error: the error of pandas."""
    return ValueError(f"{name}: {one_line(error)}; expected a table whose first line names its columns")


# -- JSON ---------------------------------------------------------------------------------------------------------


def json_strings(content: str) -> list[str] | None:
    """Return the strings of a JSON array of strings; None for any other content. content: the JSON text."""
    if not content.lstrip().startswith("["):
        return None
    try:
        values = json.loads(content)
    except (json.JSONDecodeError, RecursionError):
        return None  # the reader of records says what is wrong
    return values if values and all(isinstance(value, str) for value in values) else None


def read_json(content: str, name: Any, text: Any, id: Any = None) -> pd.DataFrame:
    """Read a table from JSON; a missing text is an empty one.

    The JSON is an array of objects whose keys are columns, an object of arrays, each a column, or an object per line.

    content: the JSON text
    name: the file, for messages
    text, id: the columns of texts and of their names

    Raises:
        ValueError: another form of JSON, or no JSON; no such columns (the existing ones are named).
    """
    try:
        value = json.loads(content)
    except (json.JSONDecodeError, RecursionError) as error:
        if content.lstrip().startswith("{"):
            return read_json_lines(content, name, text, id)
        raise ValueError(f"{name}: {error}; expected a JSON array of objects, [{{…}}, {{…}}]") from error
    if isinstance(value, list) and all(isinstance(record, dict) for record in value):
        frame = json_frame(value)
    elif isinstance(value, dict) and value and all(isinstance(column, list) for column in value.values()):
        lengths = {key: len(column) for key, column in value.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{name}: got arrays of different lengths ({lengths}); expected a value for each row")
        frame = pd.DataFrame(value, dtype=object)
    elif isinstance(value, dict):
        return read_json_lines(json.dumps(value), name, text, id)
    else:
        raise ValueError(
            f"{name}: got a JSON {type(value).__name__} of other things than objects; expected an array of objects, "
            "[{…}, {…}], or of strings alone"
        )
    require_columns(frame.columns, name, text, id)
    return fill_empty_texts(frame, text)


def read_json_lines(content: str, name: Any, text: Any, id: Any = None) -> pd.DataFrame:
    """Read a table from lines that are each a JSON object; keys are columns. A missing or null text is an empty one.

    content: the lines
    name: the file, for messages
    text, id: the columns of texts and of their names

    Raises:
        ValueError: a line that is no JSON object, with its number; no such columns (the existing ones are named).
    """
    lines = enumerate(content.split("\n"), start=1)
    records = [json_record(line, name, number) for number, line in lines if line.strip()]
    frame = json_frame(records)
    require_columns(frame.columns, name, text, id)
    return fill_empty_texts(frame, text)


def json_frame(
    records: list[dict[str, Any]], columns: list[str] | None = None, index: pd.RangeIndex | None = None
) -> pd.DataFrame:
    """Return JSON objects as a data frame of the values as JSON has them; missing ones are NaN.

    pandas would round whole numbers beside missing ones.

    records: the objects, a row each
    columns: the keys; by default those of all objects
    index: the numbers of the rows; by default from 0
    """
    return pd.DataFrame(records, columns=columns, index=index, dtype=object)


def json_record(line: str, name: Any, number: int) -> dict[str, Any]:
    """Return the JSON object on a line. Raises ValueError for anything else.

    line: the line
    name, number: the file and the number of the line, for messages
    """
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        array = ": an array over several lines is read from files that end in .json" if line.strip() == "[" else ""
        raise ValueError(f"{name}, line {number}: {error}; expected a JSON object on every line{array}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{name}, line {number}: got a {type(record).__name__}; expected a JSON object, {{…}}")
    return record


# -- Excel, Stata, SPSS, Parquet, Arrow ---------------------------------------------------------------------------


def read_excel(path: str | os.PathLike[str], text: Any, id: Any = None) -> TableFile:
    """Read the first sheet of an Excel file, whose first row names the columns. A missing text is an empty one.

    Cells that are text in the file stay text, also where they look like numbers.

    path: the file
    text, id: the columns of texts and of their names

    Raises:
        ValueError: no such columns (the existing ones are named); no Excel file; openpyxl is not installed.
    """
    try:
        with open_unpacked(path) as file:
            content = io.BytesIO(file.read())
        sheets = pd.read_excel(content, sheet_name=None, dtype=object, keep_default_na=False, na_values=[""])
    except ImportError as error:
        raise ValueError(
            f"{path}: Excel files need openpyxl: pip install 'lvsearch[excel]', or save it as .csv"
        ) from error
    except Exception as error:  # openpyxl raises KeyError, BadZipFile and others of its own for files that are none
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path}: {one_line(error)}; expected an Excel file (.xlsx)") from error
    used, *others = sheets
    frame = sheets[used]
    require_columns(frame.columns, path, text, id)
    notes = (f"the first sheet, {used!r}, was read, and left out {columns_in_words(others)}",) if others else ()
    for column in (text, id):
        if column is not None:
            frame[column] = ["" if pd.isna(cell) else str(cell) for cell in frame[column]]
    return TableFile(frame, notes)


def write_table(path: str | os.PathLike[str], table: pd.DataFrame) -> None:
    """Write a table without its index to a .csv or .xlsx file, which appears complete or not at all.

    Text that a spreadsheet would run as a formula gets an apostrophe before it.

    Raises ValueError for another ending, and for an Excel file without openpyxl.
    """
    path = as_path("path", path)
    ending, safe = path.suffix.lower(), spreadsheet(table)
    if ending == ".csv":
        return write_text(path, safe.to_csv(index=False))
    if ending != ".xlsx":
        raise ValueError(f"got {path.name!r}, expected a name that ends in .csv or .xlsx")
    content = io.BytesIO()
    try:
        safe.to_excel(content, index=False, engine="openpyxl")
    except ImportError as error:
        raise ValueError(
            f"{path}: Excel files need openpyxl: pip install 'lvsearch[excel]', or name it .csv"
        ) from error
    return write_bytes(path, content.getvalue())


def read_labelled(path: str | os.PathLike[str], ending: str, text: Any, id: Any = None) -> TableFile:
    """Read a data set of Stata or SPSS. Where numbers of a column have labels, its cells are these. A missing text is
    an empty one.

    path: the file
    ending: `STATA` or `SPSS`
    text, id: the columns of texts and of their names

    Raises:
        ValueError: no such columns (the existing ones are named); no such data set; pyreadstat, which reads SPSS, is
            not installed.
    """
    with open_unpacked(path) as file:
        content = file.read()
    try:
        if ending == STATA:
            frame = cast(pd.DataFrame, pd.read_stata(io.BytesIO(content)))
        else:
            with tempfile.TemporaryDirectory() as folder:  # pyreadstat reads files alone
                copy = Path(folder) / f"copy{SPSS}"
                copy.write_bytes(content)
                frame = pd.read_spss(str(copy))
    except ImportError as error:
        raise ValueError(
            f"{path}: SPSS files need pyreadstat: pip install 'lvsearch[spss]', or save it as .csv"
        ) from error
    except Exception as error:  # pyreadstat and pandas raise errors of many kinds for files that are none
        program = "Stata" if ending == STATA else "SPSS"
        raise ValueError(f"{path}: {one_line(error)}; expected a data set of {program} ({ending})") from error
    require_columns(frame.columns, path, text, id)
    labelled = [name for name in frame.columns if isinstance(frame[name].dtype, pd.CategoricalDtype)]
    # SPSS has no whole numbers, and data frames of Stata none that are missing: the name of row 7 is "7", not "7.0".
    whole = [name for name, column in frame.items() if _is_whole(column)]
    frame = frame.astype(dict.fromkeys(labelled, object) | dict.fromkeys(whole, "Int64"))
    notes = (f"cells are the labels of their numbers: {columns_in_words(labelled)}",) if labelled else ()
    return TableFile(fill_empty_texts(frame, text), notes)


def _is_whole(column: pd.Series) -> bool:
    """Return True for a column of floating-point numbers that are whole, and exact, where they are not missing."""
    if not pd.api.types.is_float_dtype(column.dtype):
        return False
    known = column.dropna().to_numpy(np.float64)
    return known.size > 0 and bool(np.all((known % 1 == 0) & (np.abs(known) < 2**53)))


@contextmanager
def arrow_readable(path: Any) -> Iterator[None]:
    """Turn errors of pyarrow inside this context into ValueError with advice, naming the file.

    They are raised if pyarrow is not installed or cannot read the file. A missing file raises FileNotFoundError.
    """
    try:
        yield
    except ImportError as error:
        raise ValueError(f"{path}: Parquet files need pyarrow: pip install 'lvsearch[parquet]'") from error
    except (ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        kind = "Parquet" if Path(path).suffix.lower() == ".parquet" else "Arrow"
        raise ValueError(f"{path}: {one_line(error)}; expected a {kind} file") from error


def arrow_batches(path: str | os.PathLike[str], n_rows: int) -> tuple[pd.DataFrame, Iterator[Any]]:
    """Return an empty frame with the columns of a Parquet or Arrow file, and its record batches of about `n_rows` rows.

    Arrow files (Feather) and Arrow streams, as Hugging Face keeps data sets, are both read. Raises ValueError
    if pyarrow is not installed or cannot read the file.
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
    """Read an Arrow file (Feather, or an Arrow stream). A missing text is an empty one.

    path: the file
    text, id: the columns of texts and of their names

    Raises ValueError for columns that do not exist, for another form of file, and if pyarrow is not installed.
    """
    empty, batches = arrow_batches(path, 0)
    require_columns(empty.columns, path, text, id)
    frames = [frame_of_arrow(batch) for batch in batches]
    whole = pd.concat(frames or [empty], ignore_index=all(isinstance(each.index, pd.RangeIndex) for each in frames))
    return fill_empty_texts(whole, text)


def read_parquet(path: str | os.PathLike[str], text: Any, id: Any = None) -> pd.DataFrame:
    """Read a Parquet file. A missing text is an empty one.

    path: the file
    text, id: the columns of texts and of their names

    Raises:
        ValueError: no such columns (the existing ones are named); no Parquet file; pyarrow is not installed.
    """
    require_ordinary(path)
    with arrow_readable(path):
        import pyarrow.parquet as pq  # pyright: ignore[reportMissingImports] — an extra

        frame = frame_of_arrow(pq.read_table(Path(path)))
    require_columns(frame.columns, path, text, id)
    return fill_empty_texts(frame, text)
