"""Keep the metadata of documents in a table: a row per document, and columns of plain types that files can hold.

A pandas frame can be changed, and can hold any object. These tables are frozen, compare by content, and come back from
a folder exactly as they were.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from jaxtyping import Int

from lvsearch.files.string_arrays import StoredStrings, json_list, pack_strings, unpack_strings
from lvsearch.tables.frames import refuse_levels, require_distinct

KINDS = ("flag", "whole", "number", "time", "text")
"""The kinds of columns: bool; int64; float64, NaN where missing; datetime64[ns], NaT where missing; text, None where
missing.
"""
TIMES_IN_FILES = (pd.Timestamp.min, pd.Timestamp.max)
"""The first and the last time, in 1677 and 2262, that 64-bit nanoseconds can count."""
PREFIX = "metadata"
"""The first part of the names under which columns are stored: "metadata.0", "metadata.1", …."""


@dataclass(frozen=True, eq=False)
class TableColumn:
    """One column of the metadata.

    name: its name
    kind: one of `KINDS`
    values: a value for each document, (documents,), read-only. For a corpus in a folder they are a memory map, or texts
        that are read when needed
    """

    name: str
    kind: str
    values: np.ndarray | StoredStrings

    def series(self) -> pd.Series:
        """Return the column as a pandas Series, (documents,); pandas chooses the type of texts."""
        return pd.Series(self.values.tolist() if self.kind == "text" else np.array(self.values), name=self.name)

    def digest(self) -> bytes:
        """Return the SHA-256 hash of name, kind and content, which is the same on every machine."""
        digest = hashlib.sha256(json.dumps((self.name, self.kind)).encode())
        if self.kind == "text":
            for piece in json_list(self.values):
                digest.update(piece.encode())
        else:
            plain = np.asarray(self.values).astype("<f8" if self.kind == "number" else "<i8")
            digest.update(np.where(plain == plain, plain, np.nan).tobytes())  # one NaN for all
        return digest.digest()


@dataclass(frozen=True, eq=False)
class DocumentTable:
    """A read-only table with a row for every document.

    columns: the columns
    index: the column that names the rows; None if rows are numbered
    n_rows: the number of rows
    """

    columns: tuple[TableColumn, ...]
    index: TableColumn | None
    n_rows: int

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, strict: bool) -> tuple["DocumentTable", list[str]]:
        """Return (the table of a data frame, names of columns that were left out).

        Columns that files cannot keep are left out: those of lists, pictures and the like. Whole numbers, numbers,
        truth values, times (with a zone: in UTC) and text keep their kind. Whole numbers of which some are missing
        become float64. Where neither int64 nor float64 holds all whole numbers exactly they become text, as do
        categories, times before 1677 or after 2262, and other values with a text form.

        frame: a row per document
        strict: True raises ValueError for a column that cannot be kept, instead of leaving it out

        Raises:
            ValueError: several levels of names; a column name twice; with `strict` a column that cannot be kept.
        """
        refuse_levels(frame)
        names = [str(name) for name in frame.columns]
        require_distinct("column", names)
        columns, left_out = [], []
        for place, name in enumerate(names):
            column = column_of(name, frame.iloc[:, place])
            if column is not None:
                columns.append(column)
            elif strict:
                raise ValueError(
                    f"got the column {name!r}, whose values are of type {_first_type(frame.iloc[:, place])}; expected "
                    "numbers, yes or no, times or text: files keep no other"
                )
            else:
                left_out.append(name)
        default = frame.index.equals(pd.RangeIndex(len(frame)))
        label = "" if frame.index.name is None else str(frame.index.name)
        index = None if default else column_of(label, pd.Series(frame.index))
        return cls(tuple(columns), index, len(frame)), left_out

    def to_frame(self, names: Sequence[str] | None) -> pd.DataFrame:
        """Return a new data frame with a row per document.

        names: the names of the rows if the table has no index; None to number them
        """
        frame = pd.DataFrame(
            {column.name: column.series() for column in self.columns}, index=pd.RangeIndex(self.n_rows)
        )
        if self.index is not None:
            frame.index = pd.Index(self.index.series()).rename(self.index.name or None)
        elif names is not None:
            frame.index = pd.Index(list(names))
        return frame

    def part(self, rows: Int[np.ndarray, " chosen"]) -> "DocumentTable":
        """Return the table of the rows with these numbers, in this order, under the names or numbers that they had."""
        numbers = TableColumn("", "whole", np.arange(self.n_rows)) if self.index is None else self.index
        chosen = tuple(TableColumn(c.name, c.kind, _read_only_copy(c.values[rows])) for c in (numbers, *self.columns))
        return DocumentTable(chosen[1:], chosen[0], len(rows))

    def digest(self) -> bytes:
        """Return the SHA-256 hash of the content, which is the same on every machine."""
        index = b"" if self.index is None else self.index.digest()
        return hashlib.sha256(b"".join([index, *(column.digest() for column in self.columns)])).digest()

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the table as (names and kinds of columns for JSON, {name: array of values}), for `from_storage`."""
        stored = (*self.columns, *(() if self.index is None else (self.index,)))
        arrays: dict[str, np.ndarray] = {}
        for place, column in enumerate(stored):
            name = f"{PREFIX}.{place}"
            if column.kind == "text":
                known = np.array([value is not None for value in column.values])
                arrays |= pack_strings(name, [value or "" for value in column.values]) | {f"{name}.known": known}
            else:
                values = np.asarray(column.values)
                arrays[name] = values.view(np.int64) if column.kind == "time" else values
        listed = [[column.name, column.kind] for column in stored]
        return {"columns": listed, "indexed": self.index is not None, "rows": self.n_rows}, arrays

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "DocumentTable":
        """Return the table that `to_storage` encoded.

        settings: the JSON part
        arrays: the values, by name

        Raises ValueError for columns of other lengths or kinds, KeyError for missing arrays.
        """
        columns = []
        for place, (name, kind) in enumerate(settings["columns"]):
            if kind not in KINDS:
                raise ValueError(f"got metadata of kind {kind!r}, expected one of {', '.join(KINDS)}")
            values = _stored_values(f"{PREFIX}.{place}", kind, arrays)
            if values.shape != (settings["rows"],):
                raise ValueError(f"got {len(values):,} values of {name!r}, expected {settings['rows']:,}")
            columns.append(TableColumn(str(name), kind, _read_only_copy(values)))
        index = columns.pop() if settings["indexed"] else None
        return cls(tuple(columns), index, settings["rows"])


def _stored_values(name: str, kind: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the values of a stored column, (documents,).

    name: the name of its arrays
    kind: one of `KINDS`
    arrays: {name: array} of the whole table
    """
    if kind == "text":
        known = arrays[f"{name}.known"].tolist()
        texts = [text if there else None for text, there in zip(unpack_strings(name, arrays), known, strict=True)]
        return np.array(texts, dtype=object)
    if kind == "time":
        return np.asarray(arrays[name], np.int64).view("datetime64[ns]")
    return np.asarray(arrays[name], {"flag": bool, "whole": np.int64, "number": np.float64}[kind])


def column_of(name: str, values: pd.Series) -> TableColumn | None:
    """Return values as a column of the first of `KINDS` that can hold them; None if none can.

    Times before 1677 or after 2262, which nanoseconds cannot count, become text.

    So do numbers if neither int64 nor float64 holds all whole numbers among them exactly.

    name: the name of the column
    values: a value for each document, (documents,)
    """
    kinds = pd.api.types
    if isinstance(values.dtype, pd.SparseDtype):
        values = values.sparse.to_dense()
    given, values, missing = values, values.infer_objects(), values.isna().to_numpy()
    if kinds.is_bool_dtype(values.dtype):
        if not missing.any():
            return TableColumn(name, "flag", _read_only_copy(values.to_numpy(bool)))
    elif kinds.is_integer_dtype(values.dtype) and not missing.any() and values.max() <= np.iinfo(np.int64).max:
        return TableColumn(name, "whole", _read_only_copy(values.to_numpy(np.int64)))
    elif _are_real_numbers(known := cast(pd.Series, given[~missing])) and floats_hold(known):
        return TableColumn(name, "number", _read_only_copy(given.to_numpy(np.float64, na_value=np.nan)))
    if kinds.is_datetime64_any_dtype(values.dtype):
        plain = values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz is not None else values
        present = cast(pd.Series, plain[~missing])
        if present.between(*TIMES_IN_FILES).all():  # other years would wrap around into these in silence
            return TableColumn(name, "time", _read_only_copy(plain.to_numpy("datetime64[ns]")))
    if not all(isinstance(value, str) or kinds.is_scalar(value) for value in given[~missing]):
        return None
    texts = np.array([None if gone else str(value) for value, gone in zip(given, missing, strict=True)], dtype=object)
    return TableColumn(name, "text", _read_only_copy(texts))


def _are_real_numbers(known: pd.Series) -> bool:
    """Return True if values are of a type of real numbers, or objects that are integers and floats, at least one.

    known: the values of a column that are not missing, (known,)
    """
    if known.dtype == object:
        is_number = (isinstance(value, int | float | np.integer | np.floating) for value in known)
        return len(known) > 0 and all(is_number) and not any(isinstance(value, bool) for value in known)
    return pd.api.types.is_numeric_dtype(known.dtype) and not pd.api.types.is_complex_dtype(known.dtype)


def floats_hold(known: pd.Series) -> bool:
    """Return True if float64 holds every whole number exactly; beyond 2**53 it holds only some.

    known: numbers, (known,), none of them missing
    """
    kinds = pd.api.types
    if kinds.is_float_dtype(known.dtype) or not len(known):
        return True
    if kinds.is_integer_dtype(known.dtype) and max(-int(known.min()), int(known.max())) <= 2**53:
        return True
    wholes = [int(value) for value in known if isinstance(value, int | np.integer)]
    try:
        return all(float(whole) == whole for whole in wholes)
    except OverflowError:
        return False


def _first_type(values: pd.Series) -> str:
    """Return the name of the type of the first value that is not missing."""
    return type(values.dropna().iloc[0]).__name__


def _read_only_copy(values: np.ndarray) -> np.ndarray:
    """Return a copy of an array that cannot be written to."""
    copy = values.copy()
    copy.setflags(write=False)
    return copy


class BlockKind(NamedTuple):
    """The kind of a block of rows of a column, when a table is read block by block.

    kind: the first of `KINDS` that can hold the values; None if none can
    known: True if at least one value is not missing
    is_exact_as_float: False if the values are whole numbers that float64 would round
    """

    kind: str | None
    known: bool
    is_exact_as_float: bool = True


def block_kind(name: str, values: pd.Series) -> BlockKind:
    """Return the kind of the values of a block of rows. name: the name of the column."""
    column = column_of(name, values)
    is_exact = column is None or column.kind != "whole" or floats_hold(pd.Series(column.values))
    return BlockKind(None if column is None else column.kind, not values.isna().all(), is_exact)


def joined_kind(blocks: Sequence[BlockKind]) -> str | None:
    """Return the kind of `KINDS` that can hold all blocks of a column, as `column_of` chooses it for the whole column.

    Returns None if files cannot keep the column.
    """
    kinds = {block.kind for block in blocks if block.known}
    missing = any(not block.known for block in blocks)
    if None in kinds:
        return None
    if not kinds:
        return "number" if all(block.kind == "number" for block in blocks) else "text"
    if kinds <= {"whole", "number"}:
        if not missing and kinds == {"whole"}:
            return "whole"
        return "number" if all(block.is_exact_as_float for block in blocks) else "text"
    return "text" if len(kinds) > 1 or (missing and "flag" in kinds) else kinds.pop()


def as_kind(name: str, values: pd.Series, kind: str) -> TableColumn:
    """Return a block of a column, converted to the kind that `joined_kind` found for the whole column.

    name: the name of the column
    values: the values of the block, (rows,)
    kind: one of `KINDS`
    """
    column = column_of(name, values)
    if column is not None and column.kind == kind:
        return column
    if kind == "number":
        return TableColumn(name, kind, _read_only_copy(values.to_numpy(np.float64, na_value=np.nan)))
    if kind == "time":
        return TableColumn(name, kind, _read_only_copy(np.full(len(values), "NaT", "datetime64[ns]")))
    texts = [None if gone else str(value) for value, gone in zip(values, values.isna(), strict=True)]
    return TableColumn(name, "text", _read_only_copy(np.array(texts, dtype=object)))
