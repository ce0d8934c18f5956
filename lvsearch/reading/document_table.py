"""What is known of documents beside their words: a row a document, columns of a few plain types that files can keep.

pandas' own frames can be written to, and hold any object; these are frozen, compare by content, and come back from a
folder as they went in.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from lvsearch.files.string_arrays import StoredStrings, json_list, packed, unpacked
from lvsearch.tables.frames import first_repeated

KINDS = ("flag", "whole", "number", "time", "text")
"""bool; int64; float64, NaN where missing; datetime64[ns], NaT where missing; text, None where missing."""
PREFIX = "metadata"


@dataclass(frozen=True, eq=False)
class TableColumn:
    """One column: its name, one of `KINDS`, and a value for each document, shape (documents,), read-only; of a corpus
    in a folder as memory maps and, texts, as they are read."""

    name: str
    kind: str
    values: np.ndarray | StoredStrings

    def series(self) -> pd.Series:
        """As pandas has it; text by pandas' own choice of type."""
        return pd.Series(self.values.tolist() if self.kind == "text" else np.array(self.values), name=self.name)

    def digest(self) -> bytes:
        """SHA-256 of name, kind and content, the same on every machine."""
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
    """Columns with a value for every document, and what names the rows (None: their numbers)."""

    columns: tuple[TableColumn, ...]
    index: TableColumn | None
    n_rows: int

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, strict: bool) -> tuple["DocumentTable", list[str]]:
        """The table, and the names of columns left out because a file could not keep them (lists, pictures, …).

        frame: a row per document. Whole numbers, numbers, yes or no, times (with a zone: in UTC) and text stay what
        they are; categories, and what else has a text for each value, become text. keep: columns that must be kept.

        Raises:
            ValueError: several levels of names; a column name twice; with `strict` a column that
                cannot be kept.
        """
        if isinstance(frame.index, pd.MultiIndex) or isinstance(frame.columns, pd.MultiIndex):
            raise ValueError("got several levels of names; expected one: frame.reset_index(), or join them")
        names = [str(name) for name in frame.columns]
        twice = first_repeated(names)
        if twice is not None:
            raise ValueError(f"got the column {twice!r} twice; expected distinct names")
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
        """A new data frame, a row per document; the rows are named by the index, else by `names`, else numbered."""
        frame = pd.DataFrame(
            {column.name: column.series() for column in self.columns}, index=pd.RangeIndex(self.n_rows)
        )
        if self.index is not None:
            frame.index = pd.Index(self.index.series()).rename(self.index.name or None)
        elif names is not None:
            frame.index = pd.Index(list(names))
        return frame

    def part(self, rows: Int[np.ndarray, " chosen"]) -> "DocumentTable":
        """The rows with these numbers, in this order, under the names that they had."""
        numbers = TableColumn("", "whole", np.arange(self.n_rows)) if self.index is None else self.index
        chosen = tuple(TableColumn(c.name, c.kind, _frozen(c.values[rows])) for c in (numbers, *self.columns))
        return DocumentTable(chosen[1:], chosen[0], len(rows))

    def digest(self) -> bytes:
        """SHA-256 of the content."""
        index = b"" if self.index is None else self.index.digest()
        return hashlib.sha256(b"".join([index, *(column.digest() for column in self.columns)])).digest()

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Names and kinds as settings, values as arrays."""
        stored = (*self.columns, *(() if self.index is None else (self.index,)))
        arrays: dict[str, np.ndarray] = {}
        for place, column in enumerate(stored):
            name = f"{PREFIX}.{place}"
            if column.kind == "text":
                known = np.array([value is not None for value in column.values])
                arrays |= packed(name, [value or "" for value in column.values]) | {f"{name}.known": known}
            else:
                values = np.asarray(column.values)
                arrays[name] = values.view(np.int64) if column.kind == "time" else values
        listed = [[column.name, column.kind] for column in stored]
        return {"columns": listed, "indexed": self.index is not None, "rows": self.n_rows}, arrays

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "DocumentTable":
        """The inverse of `to_storage`. Raises ValueError for columns of other lengths or kinds, KeyError for none."""
        columns = []
        for place, (name, kind) in enumerate(settings["columns"]):
            if kind not in KINDS:
                raise ValueError(f"got metadata of kind {kind!r}, expected one of {', '.join(KINDS)}")
            values = _stored(f"{PREFIX}.{place}", kind, arrays)
            if values.shape != (settings["rows"],):
                raise ValueError(f"got {len(values):,} values of {name!r}, expected {settings['rows']:,}")
            columns.append(TableColumn(str(name), kind, _frozen(values)))
        index = columns.pop() if settings["indexed"] else None
        return cls(tuple(columns), index, settings["rows"])


def _stored(name: str, kind: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    if kind == "text":
        known = arrays[f"{name}.known"].tolist()
        texts = [text if there else None for text, there in zip(unpacked(name, arrays), known, strict=True)]
        return np.array(texts, dtype=object)
    if kind == "time":
        return np.asarray(arrays[name], np.int64).view("datetime64[ns]")
    return np.asarray(arrays[name], {"flag": bool, "whole": np.int64, "number": np.float64}[kind])


def column_of(name: str, values: pd.Series) -> TableColumn | None:
    """A column in the first of `KINDS` that holds it; None where none does."""
    kinds = pd.api.types
    values = values.infer_objects()
    missing = values.isna().to_numpy()
    if isinstance(values.dtype, pd.SparseDtype):
        values = values.sparse.to_dense()
    if kinds.is_bool_dtype(values.dtype) and not missing.any():
        return TableColumn(name, "flag", _frozen(values.to_numpy(bool)))
    if kinds.is_integer_dtype(values.dtype) and not missing.any() and values.max() <= np.iinfo(np.int64).max:
        return TableColumn(name, "whole", _frozen(values.to_numpy(np.int64)))
    if kinds.is_numeric_dtype(values.dtype) and not kinds.is_complex_dtype(values.dtype):
        return TableColumn(name, "number", _frozen(values.to_numpy(np.float64, na_value=np.nan)))
    if kinds.is_datetime64_any_dtype(values.dtype):
        plain = values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz is not None else values
        return TableColumn(name, "time", _frozen(plain.to_numpy("datetime64[ns]")))
    known = values[~missing]
    if not all(isinstance(value, str) or kinds.is_scalar(value) for value in known):
        return None
    texts = np.array([None if gone else str(value) for value, gone in zip(values, missing, strict=True)], dtype=object)
    return TableColumn(name, "text", _frozen(texts))


def _first_type(values: pd.Series) -> str:
    return type(values.dropna().iloc[0]).__name__


def _frozen(values: np.ndarray) -> np.ndarray:
    copy = values.copy()
    copy.setflags(write=False)
    return copy


class BlockKind(NamedTuple):
    """Of some values of a column: the first of `KINDS` that holds them, None where none does; whether any is known."""

    kind: str | None
    known: bool


def block_kind(name: str, values: pd.Series) -> BlockKind:
    """The kind of some values of a column."""
    column = column_of(name, values)
    return BlockKind(None if column is None else column.kind, not values.isna().all())


def joined_kind(blocks: Sequence[BlockKind]) -> str | None:
    """The kind that holds all blocks of a column, as pandas has it of the whole; None where files cannot keep it."""
    kinds = {block.kind for block in blocks if block.known}
    missing = any(not block.known for block in blocks)
    if None in kinds:
        return None
    if not kinds:
        return "number" if all(block.kind == "number" for block in blocks) else "text"
    if kinds <= {"whole", "number"}:
        return "number" if missing or "number" in kinds else "whole"
    return "text" if len(kinds) > 1 or (missing and "flag" in kinds) else kinds.pop()


def as_kind(name: str, values: pd.Series, kind: str) -> TableColumn:
    """A block of a column of this kind, which `joined_kind` found."""
    column = column_of(name, values)
    if column is not None and column.kind == kind:
        return column
    if kind == "number":
        return TableColumn(name, kind, _frozen(values.to_numpy(np.float64, na_value=np.nan)))
    if kind == "time":
        return TableColumn(name, kind, _frozen(np.full(len(values), "NaT", "datetime64[ns]")))
    texts = [None if gone else str(value) for value, gone in zip(values, values.isna(), strict=True)]
    return TableColumn(name, "text", _frozen(np.array(texts, dtype=object)))
