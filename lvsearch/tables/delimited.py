"""Find out how a table in a text file is written: its separator, its quotes, and its marks of missing values."""

import csv
import io
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from lvsearch.files.packed_files import has_mixed_line_ends
from lvsearch.tables.frames import require_distinct

MISSING = ("NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "null", "NULL", "None")
"""Cells that count as missing, as an empty one does, in columns that are not texts, names or classes."""
FLAGS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
"""Cells that are truth values, in columns of nothing else, and their values."""
ZERO_BEFORE_DIGIT = re.compile(r"\s*[+-]?0\d")
"""Matches the beginning of a number whose first zero says nothing of its size; in zip codes and names it does count."""
LARGE_WHOLE_NUMBER = re.compile(r"\s*[+-]?\d{16,}\s*")
"""Matches whole numbers with so many digits that float64 may round them."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The separators that are tried, with their names."""
EXCEL_SEPARATOR = re.compile(r"\ufeff?sep=.?[,;\t|]*", re.IGNORECASE)
"""Matches a first line by which Excel is told the separator; whatever else writes it fills it up with separators."""
MIXED_LINE_ENDS = (
    "some lines end in a carriage return alone and others in a line feed: outside of quotes each ends a row; where one "
    "stands inside a text, put the text in quotes"
)
LINES_LOOKED_AT = 1000
"""The number of lines from which the separator is inferred."""
Opened = Callable[[], AbstractContextManager[IO[str]]]
"""A function that opens a text at its beginning, as often as it is called."""


class UnnamedValuesError(ValueError):
    """Raised if lines of a file have more values than its header has names."""


MORE_VALUES = "{}: got lines with more values than the header has names; name every column"


class Dialect(NamedTuple):
    """The way in which a table is written.

    separator: the character between values
    quoted: True if values may be enclosed in quotes; False if a quote is an ordinary character
    notes: what was assumed, if it was not certain
    """

    separator: str
    quoted: bool
    notes: tuple[str, ...]

    def reader(self, file: Iterable[str]) -> Iterator[list[str]]:
        """Yield the rows of a table as lists of cells. file: the lines of the table."""
        quoting = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
        return csv.reader(file, delimiter=self.separator, quoting=quoting)

    def pandas(self) -> dict[str, Any]:
        """Return the arguments of `pandas.read_csv` for this dialect."""
        return {"sep": self.separator, "quoting": csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE}


class TableLines(NamedTuple):
    """The rows of a table as its lines have them, with the first row that is not blank as the first.

    width: the number of values in the first row
    lines_before: the number of blank lines before the first row
    n_rows: the number of rows up to the last one that is not blank, with the first one and with blank ones
    n_short: the number of rows, blank ones apart, with fewer values than the first
    first_short: (line, number of values) of the first of these; (0, 0) if there is none
    """

    width: int
    lines_before: int
    n_rows: int
    n_short: int
    first_short: tuple[int, int]

    def pandas(self, header: bool = True) -> dict[str, Any]:
        """Return the arguments of `pandas.read_csv` with which a blank line is a row where a table has one column.

        pandas leaves blank lines out. In a table of one column an empty cell is written so.

        header: True if the first row names the columns
        """
        if self.width != 1:
            return {}
        return {"skip_blank_lines": False, "skiprows": self.lines_before, "nrows": self.n_rows - header}

    def short_rows(self) -> str:
        """Return what the rows with too few values are, in words; "" if there are none."""
        if not self.n_short:
            return ""
        line, n_values = self.first_short
        return f"{self.n_short:,} rows with fewer than {self.width} values, the first in line {line} with {n_values}"

    def notes(self) -> tuple[str, ...]:
        """Return one note on rows with too few values; none if there are no such rows."""
        return (f"{self.short_rows()}: the values at their end are taken as missing",) * bool(self.n_short)


def lines_of(opened: Opened, dialect: Dialect) -> TableLines:
    """Return how many rows and values the lines of a table have.

    opened: a function that opens the table at its beginning
    dialect: how the table is written
    """
    width = lines_before = n_rows = n_seen = n_short = n_read = 0
    first_short, line = (0, 0), 1

    def counted(file: Iterable[str]) -> Iterator[str]:
        """Yield the lines of the table, and count them in `n_read`."""
        nonlocal n_read
        for n_read, each in enumerate(file, start=1):  # noqa: B007 — counted for the outer function
            yield each

    with long_fields(), opened() as file:
        for row in dialect.reader(counted(file)):
            first_line, line = line, n_read + 1  # a row in quotes may have several lines
            is_blank = not row or (len(row) == 1 and row[0].isspace())
            if is_blank and not width:
                lines_before += 1
                continue
            n_seen += 1
            if is_blank:
                continue
            n_rows, width = n_seen, width or len(row)
            if len(row) < width:
                n_short, first_short = n_short + 1, first_short if n_short else (first_line, len(row))
    return TableLines(width, lines_before, n_rows, n_short, first_short)


def opened_text(content: str) -> Opened:
    """Return a function that opens a string for reading at its beginning, as often as it is called."""
    return lambda: nullcontext(io.StringIO(content))


def dialect_of(opened: Opened, name: Any, ending: str) -> Dialect:
    """Return how a table is written: its separator, and whether quotes enclose values.

    Quotes enclose values if every value that begins with a quote ends with one. Otherwise they are part of the text.
    They are also part of the text if a quoted value would swallow lines that are each a row by themselves.

    opened: a function that opens the table at its beginning
    name: the file, for messages
    ending: the ending of the file; ".tsv" has tabs

    Raises:
        ValueError: a quote that fits neither reading, with the number of its line; a first line such as "sep=;".
    """
    with opened() as file:
        first = next(iter(file), "").strip().strip('"')
    if EXCEL_SEPARATOR.fullmatch(first):
        raise ValueError(
            f"{name}, line 1: got {first!r}, a line for Excel alone; expected the names of the columns: delete that "
            "line"
        )
    with long_fields():
        separator = "\t" if ending == ".tsv" else _separator(opened)
        notes = () if separator == "\t" or separator == "," else (f"values are separated by {SEPARATORS[separator]}",)
        with opened() as file:
            quotes = _quotes(file, separator)
        if not quotes.any or (quotes.bad_line is None and not quotes.spanning):
            return Dialect(separator, True, notes)
        with opened() as file:
            is_plain = _every_line_is_a_row(file, separator)
        if is_plain:
            line = quotes.bad_line or quotes.spanning
            return Dialect(
                separator,
                False,
                (*notes, f"quotes are part of the texts: the one in line {line} does not enclose a value"),
            )
        if quotes.bad_line is None:
            return Dialect(separator, True, notes)
    raise ValueError(
        f"{name}, line {quotes.bad_line}: got a quote that does not enclose a value, in a table where others do; "
        'expected values in quotes to begin and end with one, and quotes inside them twice ("")'
    )


class _Quotes(NamedTuple):
    """The quotes in a table.

    any: True if there are quotes
    bad_line: the first line where a quote does not enclose a value, or None
    spanning: the first line of a quoted value with line breaks; 0 if there is none
    """

    any: bool
    bad_line: int | None
    spanning: int


def _quotes(file: Iterable[str], separator: str) -> _Quotes:
    """Return whether a table has quotes, and the first line where they do not enclose a value.

    file: the lines of the table
    separator: the character between values
    """
    found, spanning, before = False, 0, 0

    def watched() -> Iterator[str]:
        """Yield the lines of the table, and set `found` if one has a quote."""
        nonlocal found
        for line in file:
            found = found or '"' in line
            yield line

    reader = csv.reader(watched(), delimiter=separator, strict=True)
    try:
        for _ in reader:
            if reader.line_num > before + 1 and not spanning:
                spanning = before + 1
            before = reader.line_num
    except csv.Error:
        return _Quotes(True, before + 1, spanning)
    return _Quotes(found, None, spanning)


def _every_line_is_a_row(file: Iterable[str], separator: str) -> bool:
    """Return True if every line has the same number of values, two or more, with quotes read as ordinary characters."""
    widths = {len(row) for row in csv.reader(file, delimiter=separator, quoting=csv.QUOTE_NONE) if row}
    return len(widths) == 1 and widths.pop() > 1


def _separator(opened: Opened) -> str:
    """Return the separator with which all lines have equally many values, two or more; commas are preferred."""
    with opened() as file:
        lines = [line for _, line in zip(range(LINES_LOOKED_AT), file, strict=False)]
    uniform = {}
    for separator in SEPARATORS:
        rows = [row for row in _rows(lines, separator) if any(cell.strip() for cell in row)]
        widths = Counter(len(row) for row in (rows[:-1] if len(lines) == LINES_LOOKED_AT else rows))
        if rows and len(rows[0]) > 1:
            uniform[separator] = len(widths) == 1
    return next((separator for separator, same in uniform.items() if same), next(iter(uniform), ","))


def _rows(lines: list[str], separator: str) -> list[list[str]]:
    """Return lines as lists of cells; an empty list if they cannot be read with this separator."""
    try:
        return list(csv.reader(lines, delimiter=separator))
    except csv.Error:
        return []


@contextmanager
def long_fields() -> Iterator[None]:
    """Let Python's csv module read values of any length inside this context, also above 131,072 characters."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


@contextmanager
def every_value_named(path: Any) -> Iterator[None]:
    """Make pandas refuse lines with more values than the header has names, inside this context.

    Otherwise pandas would silently take the first values as row names. `pandas.read_csv` must be called with
    index_col=False. Raises `UnnamedValuesError`.

    path: the file, for messages
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except pd.errors.ParserWarning as error:
        raise UnnamedValuesError(MORE_VALUES.format(path)) from error


def check_header(
    lines: Iterable[str], name: Any, dialect: Dialect | None = None, nameless: str | int | None = None
) -> None:
    """Raise ValueError for a header that names a column twice or not at all, or with too few names for the next line.

    pandas would invent names, or leave out a last value that is empty. The header is the first line that is not blank.

    lines: the lines of the table
    name: the file, for messages
    dialect: how the table is written; by default with commas
    nameless: the column that may have no name: "" for any, its number from 0, or None for none
    """
    reader = (Dialect(",", True, ()) if dialect is None else dialect).reader(lines)
    rows = (row for row in reader if "".join(row).strip())
    try:
        header, values = [column.strip() for column in next(rows, [])], next(rows, [])
    except csv.Error:  # Python cannot read this header; pandas will raise a better error
        return
    require_distinct("column name", (column for column in header if column), f"{name}: ")
    empty = [place for place, column in enumerate(header) if not column and nameless not in ("", place)]
    if empty:
        raise ValueError(
            f"{name}: got no name for column {empty[0] + 1} of the header; name every column. Where the first one "
            "names the rows, as in a file that pandas wrote with its index, say row_names=0 or write index=False"
        )
    if len(values) > len(header):
        raise UnnamedValuesError(MORE_VALUES.format(name))


def read_options(columns: Iterable[Any], texts: Iterable[Any]) -> dict[str, Any]:
    """Return the arguments of `pandas.read_csv` with which all cells of a table come as they are written.

    columns: all columns of the table
    texts: columns in which an empty cell is an empty text; in all others it is missing

    `tidy_table` finds the types of the columns. pandas would round whole numbers, and leave out zeros before them.
    """
    texts = set(texts)
    return {
        "dtype": str,
        "na_values": {column: [""] for column in columns if column not in texts},
        "keep_default_na": False,
        "low_memory": False,
        "index_col": False,
    }


def tidy_table(
    frame: pd.DataFrame, texts: Iterable[Any], label: Any, as_text: Iterable[Any] = ()
) -> tuple[pd.DataFrame, Counter[str]]:
    """Return a table with the types of its columns inferred, and how often marks such as "NA" were read as missing.

    Empty texts become "". Columns of numbers, with or without marks, become numbers (`numbers_in`). Columns of True and
    False become truth values. The column `label` becomes numbers only if they are written as Python writes them.

    frame: a table that was read with `read_options`
    texts: columns that are kept as they are ("NA" is a word, "007" is no number)
    label: the column of classes, or None; "NA" is a class
    as_text: columns that become neither numbers nor truth values

    Returns (table, {such as "'NA' in the column 'code'": how often}).
    """
    texts, as_text = set(texts), set(as_text)
    frame, marks = fill_empty_texts(frame, *texts), Counter[str]()
    for name in frame.columns:
        if name in texts:
            continue
        column = cast(pd.Series, frame[name])
        marked = column.isin(MISSING) & (name != label)
        for mark, times in cast(pd.Series, column[marked]).value_counts().items():
            marks[f"{mark!r} in the column {str(name)!r}"] = int(times)
        cells = column.where(~marked)
        if name in as_text:
            frame[name] = cells
            continue
        numbers = numbers_in(cells)
        if name == label:
            frame[name] = numbers if numbers is not None and bool((numbers.astype(str) == cells).all()) else cells
        elif numbers is None and bool(cells.isin(list(FLAGS)).all()):
            frame[name] = cells.map(FLAGS).astype(bool)
        else:
            frame[name] = cells if numbers is None else numbers
    return frame, marks


def numbers_in(cells: pd.Series) -> pd.Series | None:
    """Return cells as int64, or as float64 with NaN where missing, (rows,); None where something would be lost.

    Something is lost where a cell is no number, where a zero stands before another digit, as in "007", and where
    neither int64 nor float64 holds all whole numbers exactly. Decimal fractions are rounded to float64.

    cells: the cells as they are written, (rows,), NaN where missing
    """
    known = cells.dropna().astype(object)
    numbers = cast(pd.Series, pd.to_numeric(known, errors="coerce"))
    if bool(numbers.isna().any()) or any(map(ZERO_BEFORE_DIGIT.match, known)):
        return None
    if len(known) == len(cells) and numbers.dtype == np.int64:
        return numbers
    large = filter(LARGE_WHOLE_NUMBER.fullmatch, known)
    if any(Decimal(cell) != Decimal(float(cell)) for cell in large):
        return None
    return numbers.astype(np.float64).reindex(cells.index)


def fill_empty_texts(frame: pd.DataFrame, *columns: Any) -> pd.DataFrame:
    """Return a copy of a table with "" for missing values in these columns."""
    filled = frame.copy()
    for name in columns:
        filled[name] = frame[name].astype(object).where(frame[name].notna(), "")
    return filled


def line_end_notes(path: str | os.PathLike[str], encoding: str, n_columns: int) -> tuple[str, ...]:
    """Return one note if the lines of a table of one column end in two ways; none if they end in one way.

    In a table of several columns a value that such a line end divides leaves rows with too few values.

    path: the file of the table
    encoding: its encoding
    n_columns: the number of its columns

    Raises ValueError for a file that is no text in this encoding.
    """
    return (MIXED_LINE_ENDS,) * (n_columns == 1 and has_mixed_line_ends(path, encoding))


def marks_notes(marks: Counter[str]) -> tuple[str, ...]:
    """Return one note on the cells that were read as missing; none if there are no such cells.

    marks: {such as "'NA' in the column 'code'": how often}
    """
    if not marks:
        return ()
    listed = ", ".join(f"{what} ({times:,})" for what, times in sorted(marks.items()))
    return (f"cells taken as missing: {listed}",)
