"""Read tables of numbers from text files: infer separators and decimal signs, and name cells that are no numbers."""

import io
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import pandas as pd

from lvsearch.files.packed_files import read_text, unpacked_name
from lvsearch.files.plain_text import one_line
from lvsearch.tables.delimited import (
    MISSING,
    Dialect,
    TableLines,
    UnnamedValuesError,
    check_header,
    dialect_of,
    every_value_named,
    line_end_notes,
    lines_of,
    marks_notes,
    opened_text,
)

DECIMAL_COMMA = re.compile(r"(?=.*\d)[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)?(?:,\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
"""Matches a number whose decimal sign is a comma, with or without points between thousands."""
THOUSANDS_COMMA = re.compile(r"[+-]?(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
"""Matches a number whose decimal sign is a point, with or without commas between thousands."""
PERCENT = re.compile(r"[+-]?[\d.,]+\s*%")
"""Matches a percentage. It and the patterns below are for advice in messages."""
MONEY = re.compile(r"[$€£¥]\s*[\d.,]+|[\d.,]+\s*[$€£¥]")
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[ T]\d.*)?")
TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?")
NO_LETTERS = re.compile(r"\W+")
BETWEEN_THOUSANDS = re.compile(r"(?<=\d)[\s'\u2019_](?=\d)")
"""Matches blanks, apostrophes and underscores between digits. Pandas takes none of them for a part of a number."""


class NumberTable(NamedTuple):
    """The numbers of a file.

    frame: the numbers, with the names of the rows as index
    notes: sentences on what was assumed about their format
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]


class NumberStyle(NamedTuple):
    """The way in which numbers are written; fields are None if they are to be inferred from the file.

    separator: the character between values
    decimal: the decimal sign
    thousands: the sign between thousands
    missing_marks: cells that are missing, beside empty ones and those of `delimited.MISSING`
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    missing_marks: tuple[str, ...] = ()


def read_numbers(
    path: str | os.PathLike[str], header: bool, row_names: str | int | None, encoding: str, style: NumberStyle
) -> NumberTable:
    """Read a table of numbers from a text file, and infer how numbers are written where the style leaves it open.

    path: the file
    header: True if the first line names the columns
    row_names: the column with the names of the rows, by name or number; None if there is none
    encoding: the encoding of the file
    style: how numbers are written, as far as a person said so

    Raises ValueError for cells that are no numbers, lines of different lengths, commas that may have two meanings, and
    signs between thousands that do not stand before three digits.
    """
    content = read_text(path, encoding)
    ending = ".tsv" if unpacked_name(path).endswith(".tsv") else ".csv"
    if style.separator is not None and len(style.separator) != 1:
        raise ValueError(
            f"got separator={style.separator!r}; expected one character, such as ',', ';', ' ' or a tab: read other "
            "files by pandas.read_csv and lv.Points.from_frame"
        )
    dialect = Dialect(style.separator, True, ()) if style.separator else dialect_of(opened_text(content), path, ending)
    if header:
        check_header(io.StringIO(content), path, dialect, nameless=row_names)
    lines = lines_of(opened_text(content), dialect)
    if lines.n_short:
        raise ValueError(
            f"{path}: got {lines.short_rows()}; expected as many on every line: write empty cells where a value is "
            "missing"
        )
    read = partial(_read_in_style, content, path, dialect, lines, header, row_names)
    frame, assumed, notes = read(style), style, (*dialect.notes, *line_end_notes(path, encoding, lines.width))
    if not len(frame):
        raise ValueError(f"{path}: got the names of the columns and no row; expected at least one row of numbers")
    texts = _text_columns(frame)
    if texts and style.decimal is None and style.thousands is None:
        assumed = _style_of(frame, texts, dialect, style, path)
        if assumed != style:
            frame = read(assumed)
            notes += _style_notes(assumed)
    if assumed.thousands:
        _check_thousands(_plain_cells(content, dialect, lines, header), frame, path, header, assumed)
    _check_numbers(frame, path, header, assumed)
    if header and len(frame.columns) and all(_is_number(str(name)) for name in frame.columns):
        raise ValueError(
            f"{path}: got only numbers on the first line, expected the names of the columns: say header=False "
            "where the data begin there"
        )
    if bool(frame.isna().to_numpy().any()):
        notes += _missing_notes(_plain_cells(content, dialect, lines, header), style, frame)
    frame.columns = [name if header else f"column{number}" for number, name in enumerate(frame.columns)]
    return NumberTable(frame, notes)


def _read_in_style(
    content: str,
    path: Any,
    dialect: Dialect,
    lines: TableLines,
    header: bool,
    row_names: str | int | None,
    style: NumberStyle,
) -> pd.DataFrame:
    """Return a table as pandas reads it in one style of numbers; the column of row names is kept as text.

    content: the text of the file
    path: the file, for messages
    dialect: how the table is written
    lines: the rows of the table, as `lines_of` returns them
    header: True if the first line names the columns
    row_names: the column with the names of the rows, by name or number, or None
    style: how numbers are written

    Raises ValueError for lines of different lengths, and if there is no such column.
    """
    first = 0 if header else None
    try:
        with every_value_named(path):
            columns = pd.read_csv(
                io.StringIO(content), header=first, nrows=0 if header else 1, **dialect.pandas()
            ).columns
            index = columns[row_names] if isinstance(row_names, int) and header else row_names
            if index is not None and index not in columns:
                raise ValueError(f"got row_names={row_names!r}, which is no column")
            missing = ["", *MISSING, *style.missing_marks]
            frame = pd.read_csv(
                io.StringIO(content),
                header=first,
                index_col=False,
                dtype={} if index is None else {index: str},
                na_values={column: missing for column in columns if column != index},
                keep_default_na=False,
                low_memory=False,
                decimal=style.decimal or ".",
                thousands=style.thousands,
                **dialect.pandas(),
                **lines.pandas(header),
            )
    except UnnamedValuesError:
        raise
    except (ValueError, IndexError) as error:  # among them lines of different lengths, no such column
        named = {",": "comma", ";": "semicolon", "\t": "tab"}.get(dialect.separator, repr(dialect.separator))
        raise ValueError(
            f"{path}: {one_line(error)}; expected {named}-separated numbers, as many on every line"
        ) from error
    return frame if index is None else frame.set_index(index)


def _text_columns(frame: pd.DataFrame) -> list[Any]:
    """Return the columns that do not hold numbers."""
    return [name for name, dtype in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(dtype)]


def _style_of(
    frame: pd.DataFrame, texts: Sequence[Any], dialect: Dialect, style: NumberStyle, path: Any
) -> NumberStyle:
    """Return the style of numbers with decimal and thousands signs inferred from columns that pandas read as text.

    If these columns do hold text, the style is returned unchanged.

    frame: the table as read so far
    texts: the columns that were read as text
    dialect: how the table is written
    style: the style in which it was read
    path: the file, for messages

    Raises ValueError if a comma may be either sign.
    """
    cells = sorted({str(cell).strip() for name in texts for cell in frame[name].dropna()})
    is_decimal = all(map(DECIMAL_COMMA.fullmatch, cells))
    is_thousands = all(map(THOUSANDS_COMMA.fullmatch, cells))
    if is_decimal and is_thousands and dialect.separator != ";":
        name = next(name for name in texts if bool(cast(pd.Series, frame[name]).notna().any()))
        raise ValueError(
            f"{path}: got {cells[0]!r} in the column {name!r}, which is a decimal comma or one between thousands; "
            "expected to know which: say decimal=',' or thousands=','"
        )
    if is_decimal:
        points = any("." in cell for cell in cells)
        return style._replace(decimal=",", thousands="." if points else None)
    return style._replace(thousands=",") if is_thousands else style


def _style_notes(style: NumberStyle) -> tuple[str, ...]:
    """Return one note that says which decimal and thousands signs were inferred for a file of numbers."""
    decimal = "the decimal sign is a comma" if style.decimal == "," else ""
    thousands = f"{style.thousands!r} stands between thousands" if style.thousands else ""
    return (" and ".join(part for part in (decimal, thousands) if part),)


def _check_thousands(cells: pd.DataFrame, frame: pd.DataFrame, path: Any, header: bool, style: NumberStyle) -> None:
    """Raise ValueError for the first cell in which the sign between thousands does not stand before three digits.

    pandas deletes this sign wherever it stands, so that 52.5200 would become 525200.

    cells: all columns of the file as text
    frame: the table of numbers, whose columns are checked
    path: the file, for messages
    header: True if the first line names the columns
    style: how numbers are written, with a sign between thousands
    """
    sign, decimal = str(style.thousands), style.decimal or "."
    grouped = re.compile(
        rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(sign)}\d{{3}})+(?:{re.escape(decimal)}\d*)?(?:[eE][+-]?\d+)?", re.ASCII
    )
    missing = {*MISSING, *style.missing_marks}
    for name in frame.columns:
        for row, cell in enumerate(cells[name].str.strip()):
            if sign in cell and cell not in missing and not grouped.fullmatch(cell):
                raise ValueError(
                    f"{path}: got {cell!r} in the column {name!r}, row {row} (line {row + 1 + header}), in a file with "
                    f"{sign!r} between thousands; expected three digits behind each of these signs, as in "
                    f"1{sign}234{decimal}5: write all numbers of a file alike, or say decimal= and thousands="
                )


def _check_numbers(frame: pd.DataFrame, path: Any, header: bool, style: NumberStyle) -> None:
    """Raise ValueError for the first column with a cell that is no number; the message has its row and advice.

    frame: the table
    path: the file, for messages
    header: True if the first line names the columns
    style: how numbers are written
    """
    texts = _text_columns(frame)
    if not texts:
        return
    found = first_text(cast(pd.Series, frame[texts[0]]), style.decimal or ".")
    if found is None:
        return
    row, cell = found
    more = f" (and {len(texts) - 1} more columns with text)" if len(texts) > 1 else ""
    parts = str(cell).split()
    is_blank_separated = (
        len(frame.columns) == 1
        and len(parts) > 1
        and all(map(_is_number, parts))
        and (not header or len(str(texts[0]).split()) == len(parts))
    )
    what_to_do = "say separator=' ' where blanks separate the values" if is_blank_separated else advice(cell)
    raise ValueError(
        f"{path}: got {cell!r} in the column {texts[0]!r}, row {row} (line {row + 1 + header}){more}; expected numbers "
        f"throughout: {what_to_do}"
    )


def first_text(column: pd.Series, decimal: str = ".") -> tuple[int, Any] | None:
    """Return (row from 0, value) of the first cell that is neither missing nor a number; None if there is none.

    decimal: the decimal sign; with a sign other than a point, a cell with a point is no number
    """
    for row, cell in enumerate(column):
        text = str(cell) if decimal == "." else str(cell).replace(".", "?").replace(decimal, ".")
        if not pd.isna(cell) and not _is_number(text):
            return row, cell
    return None


def columns_without_numbers(frame: pd.DataFrame) -> list[int]:
    """Return the places of the columns of a data frame whose kind is not that of real numbers."""
    kinds = pd.api.types
    return [
        place
        for place, kind in enumerate(frame.dtypes)
        if not kinds.is_numeric_dtype(kind) or kinds.is_complex_dtype(kind)
    ]


def refuse_text(frame: pd.DataFrame) -> None:
    """Raise ValueError if a cell of a data frame is neither missing nor a number, saying what to do with its column.

    Numbers that are kept as text or objects are passed over.
    """
    places = columns_without_numbers(frame)
    for place in places:
        found = first_text(frame.iloc[:, place])
        if found is not None:
            row, cell = found
            raise ValueError(
                f"got {len(places)} column(s) without numbers, the first {str(frame.columns[place])!r} (row {row}: "
                f"{str(cell)!r}); expected numbers throughout: {advice(cell)}"
            )


def advice(cell: Any) -> str:
    """Return advice for messages: what to do with a column that has this cell among its numbers."""
    text = str(cell).strip()
    if PERCENT.fullmatch(text):
        return "write percentages without their sign: frame[…].str.rstrip('%').astype(float)"
    if MONEY.fullmatch(text):
        return "write amounts without the sign of their currency"
    if hasattr(cell, "year") or DATE.fullmatch(text):
        return (
            "write dates as numbers, for instance as days since the first one, (day - day.min()).dt.days of "
            "pandas.to_datetime(frame[…]), or leave the column out"
        )
    if hasattr(cell, "total_seconds") or TIME.fullmatch(text):
        return "write times as numbers, for instance as hours; seconds of a time difference are .dt.total_seconds()"
    if _is_number(text):
        return "write all numbers of a file with one decimal sign: others here have a comma"
    if THOUSANDS_COMMA.fullmatch(text) or DECIMAL_COMMA.fullmatch(text):
        return "say what the comma is, decimal=',' or thousands=',' of lv.Points.from_csv or pandas.read_csv"
    plain = BETWEEN_THOUSANDS.sub("", unicodedata.normalize("NFKC", text).replace("\N{MINUS SIGN}", "-"))
    if any(map(str.isdecimal, plain)) and (_reads_as_float(plain) or DECIMAL_COMMA.fullmatch(plain)):
        return (
            "write numbers with the digits 0 to 9 and a hyphen as minus sign, and nothing but point or comma between "
            "digits"
        )
    if NO_LETTERS.fullmatch(text):
        return f"where {text!r} stands for a missing cell say so: missing='nan', missing_marks=[{text!r}]"
    return (
        'leave the column out (frame.select_dtypes("number")), make a column of names the index (row_names= of files), '
        "or use from_categories"
    )


def _missing_notes(plain: pd.DataFrame, style: NumberStyle, frame: pd.DataFrame) -> tuple[str, ...]:
    """Return one note on marks such as "NA" that were read as missing; none if only empty cells are missing.

    plain: all cells of the file as text
    style: how numbers are written, which lists further marks
    frame: the table as it was read
    """
    lacking = [place for place, name in enumerate(frame.columns) if bool(cast(pd.Series, frame[name]).isna().any())]
    marks: Counter[str] = Counter()
    for place in lacking:
        cells = cast(pd.Series, plain[frame.columns[place]])
        marked = cast(pd.Series, cells[cells.isin([*MISSING, *style.missing_marks])])
        for mark, times in marked.value_counts().items():
            marks[f"{mark!r} in the column {str(frame.columns[place])!r}"] = int(times)
    return marks_notes(marks)


def _plain_cells(content: str, dialect: Dialect, lines: TableLines, header: bool) -> pd.DataFrame:
    """Return all cells of a table as text, empty where nothing is written.

    content: the text of the file
    dialect: how the table is written
    lines: the rows of the table, as `lines_of` returns them
    header: True if the first line names the columns
    """
    return pd.read_csv(
        io.StringIO(content),
        header=0 if header else None,
        index_col=False,
        dtype=str,
        keep_default_na=False,
        **dialect.pandas(),
        **lines.pandas(header),
    ).fillna("")


def _is_number(text: str) -> bool:
    """Return True if a text is a number as pandas reads it: in the digits 0 to 9, without underscores."""
    return text.isascii() and "_" not in text and _reads_as_float(text)


def _reads_as_float(text: str) -> bool:
    """Return True if Python's `float` accepts a text; it takes the digits of all scripts."""
    try:
        float(text)
    except ValueError:
        return False
    return True
