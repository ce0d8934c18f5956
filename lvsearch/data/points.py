"""Rows of a real matrix, with cells that may be missing: the data of mixtures and feature models.

A missing cell is never guessed from the data. It is missing because the caller said so, with a mask or by saying what
NaN means. Nothing is dropped or rescaled. `Points.notes` says what a person should know.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from lvsearch.data.base import Data, Nouns, refuse_other_kind
from lvsearch.data.matrix_inputs import cell_mask, indicators, name_strings, real_matrix, refuse_magnitudes, refuse_nan
from lvsearch.files.string_arrays import has_strings, pack_strings, unpack_strings
from lvsearch.files.untrusted_files import UNREADABLE, read_ordinary, reason
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import rows
from lvsearch.models.plain_arguments import as_list, yes_or_no
from lvsearch.models.units import Row
from lvsearch.tables.frames import as_frame, columns_in_words, is_table, refuse_levels, require_distinct
from lvsearch.tables.number_tables import NumberStyle, columns_without_numbers, read_numbers, refuse_text

ROW_KINDS = ("text", "whole", "number", "time", "date", "duration", "period[…]")
"""The kinds of names of rows: text; whole numbers; numbers; times; dates (`datetime.date`); lengths of time; periods,
with their frequency, such as "period[M]" for months."""


PERIOD = "period["
"""The beginning of the kind of row names that are periods; their frequency follows."""


@dataclass(frozen=True, eq=False, repr=False)
class Points(Data):
    """The rows of a matrix, each row one unit (observation). Build one with `from_array`, `from_frame`, `from_csv` or
    `from_npy`.

    ```python
    points = lv.Points.from_array([[1.0, 2.0], [3.0, float("nan")]], missing="nan", columns=["height", "width"])
    ```

    The constructor copies its arguments and checks them. Two are equal if their fingerprints are.

    Attributes:
        values: (rows, columns) float64, finite, NaN where not observed, read-only.
        observed: (rows, columns) True where a cell is known, read-only.
        columns: a name for each column, distinct.
        row_names: the name of each row for people, or None.
        notes: notes on what was kept or selected, in the order in which it happened.
        row_kind: one of `ROW_KINDS`, the kind of the data frame's index from which row names came. Tables of results
            have an index of this kind. It is no part of the fingerprint. It is "whole" for the default index too.
        row_zone: the time zone of that index, such as "Europe/Paris", or None. It is no part of the fingerprint.
        index_name: the name of that index, which tables of results have too, or None. It is no part of the fingerprint.

    Raises:
        ValueError: not two axes; no rows or no columns; a NaN or infinite value in an observed cell, or one beyond
            ±1e15, or a column all within 1e-15 of 0; a mask of another shape; wrong names; an unknown kind of row
            names, row names that are not of their kind, or a zone for other names than times.
    """

    unit_type: ClassVar[type] = Row
    nouns: ClassVar[Nouns] = Nouns("points", "row", "rows", "cell", "cells")
    accepted: ClassVar[str] = "Points or a matrix of numbers"

    values: Float[np.ndarray, "row column"]
    observed: Bool[np.ndarray, "row column"]
    columns: tuple[str, ...]
    row_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    row_kind: str = "text"
    row_zone: str | None = None
    index_name: str | None = None

    def __post_init__(self) -> None:
        n_rows, n_columns = np.shape(self.values)
        if not n_rows or not n_columns:
            raise ValueError(f"got {n_rows} rows and {n_columns} columns; expected at least one of each")
        if np.shape(self.observed) != np.shape(self.values):
            raise ValueError(
                f"got observed of shape {np.shape(self.observed)} for values of shape {np.shape(self.values)}; "
                "expected one True or False for each cell"
            )
        columns = name_strings("columns", self.columns, n_columns) or ()
        require_distinct("column name", columns)
        observed = np.array(self.observed, dtype=bool)
        values = np.where(observed, np.asarray(self.values, dtype=np.float64), 0.0) + 0.0  # no −0: it prints as 0
        refuse_nan(values, columns)
        refuse_magnitudes(values, columns)
        values[~observed] = np.nan  # a 0 would be taken for a value by whoever reads them: means, scales, pictures
        for array in (values, observed):
            array.setflags(write=False)
        for field, value in (
            ("values", values),
            ("observed", observed),
            ("columns", columns),
            ("row_names", name_strings("row_names", self.row_names, n_rows)),
            ("notes", tuple(self.notes)),
        ):
            object.__setattr__(self, field, value)
        if self.row_kind not in ROW_KINDS and not self.row_kind.startswith(PERIOD):
            raise ValueError(f"got row_kind={self.row_kind!r}; expected one of {', '.join(ROW_KINDS)}")
        if self.row_zone is not None and self.row_kind != "time":
            raise ValueError(f"got row_zone={self.row_zone!r} for row names of kind {self.row_kind!r}; expected times")
        if self.row_kind != "text":
            row_index(self)  # raises for names of another kind

    # -- from data ----------------------------------------------------------------------------------------------

    @classmethod
    def from_array(
        cls,
        X: Any,
        observed: Any = None,
        *,
        missing: str | None = None,
        columns: Iterable[Any] | None = None,
        row_names: Iterable[Any] | None = None,
    ) -> "Points":
        """Make points from a matrix with a row for each unit (observation).

        Args:
            X: (rows, columns) real numbers: a NumPy or JAX array, or nested lists. Masked cells of a masked array are
                missing.
            observed: (rows, columns) True for known cells; the others may hold anything. By default all are known.
            missing: "nan" if NaN marks a missing cell. By default NaN is an error.
            columns: a name for each column. Default: "column0", "column1"….
            row_names: one per row.

        Raises:
            ValueError: see `Points`; also text, complex numbers, a sparse matrix, a data frame; nothing observed.
        """
        if is_table(X):
            raise ValueError("got a data frame; use lv.Points.from_frame, which keeps the names of its columns")
        if isinstance(X, np.ma.MaskedArray):
            known = ~np.ma.getmaskarray(X)
            observed = known if observed is None else cell_mask(observed, known.shape) & known
            X = X.data
        values = real_matrix(X)
        known = np.ones(values.shape, dtype=bool) if observed is None else cell_mask(observed, values.shape)
        if missing is not None and not (isinstance(missing, str) and missing == "nan"):
            raise ValueError(
                f'got missing={missing!r}; expected "nan" or None; where another value marks missing cells, pass '
                "observed=(X != value)"
            )
        if missing == "nan":
            known = known & ~np.isnan(values)
        names = [f"column{number}" for number in range(values.shape[1])] if columns is None else columns
        names = name_strings("columns", names, values.shape[1]) or ()
        refuse_nan(np.where(known, values, 0.0), names)
        points = cls(np.where(known, values, 0.0), known, names, name_strings("row_names", row_names, values.shape[0]))
        if not points.n_observations:
            raise ValueError(f"got {len(points):,} rows without a single observed cell; expected some that are known")
        return replace(points, notes=points._notes_on_missing())

    @classmethod
    def from_frame(cls, frame: Any, observed: Any = None, *, missing: str | None = None) -> "Points":
        """Make points from a data frame of numbers (pandas, Polars or Arrow).

        Its columns name the columns. Its index, unless the default one, names the rows.

        frame: the data frame.
        observed: (rows, columns) True for known cells. By default all are known. Columns of a data frame are matched by
            name.
        missing: "nan" if NaN (or pandas' NA) marks a missing cell. By default it is an error.

        Raises ValueError for columns without numbers, for `observed` with other columns or another index, and for the
        reasons of `from_array`.
        """
        if not is_table(frame):
            raise ValueError(f"got {type(frame).__name__}; expected a data frame: lv.Points.from_array takes matrices")
        frame = as_frame(frame)
        refuse_text(frame)
        if not_numbers := [str(frame.columns[place]) for place in columns_without_numbers(frame)]:
            first = not_numbers[0]
            raise ValueError(
                f"got {len(not_numbers)} column(s) without numbers, the first {first!r}, whose cells are numbers kept "
                f"as text or objects; expected a column of numbers: "
                f"frame[{first!r}] = pandas.to_numeric(frame[{first!r}])"
            )
        refuse_levels(frame)
        if is_table(observed):
            observed = _mask_of_frame(as_frame(observed), frame)
        names = None if _is_default_index(frame.index) else frame.index
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
        points = cls.from_array(values, observed, missing=missing, columns=frame.columns, row_names=names)
        return with_index_of(points, frame)

    @classmethod
    def from_categories(cls, frame: Any, *, numbers: Sequence[str] = (), missing: str | None = None) -> "Points":
        """Make points of a data frame of answers: every category of a column becomes a column of 0 and 1,
        "name=category".

        Use it with `lv.models.CategoricalComponents.from_columns(points)`, the latent class model.

        frame: a data frame with a column for each question. Its index, unless the default one, names the rows. The
            categories are those of a pandas Categorical, in its order, else the values that occur, sorted. So new data
            need a Categorical unless every category occurs in them.
        numbers: columns that stay as they are, for `lv.models.MixedComponents`.
        missing: "nan" if an empty cell is an unknown answer. By default it is an error.

        Raises ValueError for other input than a data frame, empty cells without `missing`, columns of one category, and
        for the reasons of `from_array`.
        """
        if not is_table(frame) or not len(as_frame(frame).columns):
            raise ValueError(f"got {type(frame).__name__}; expected a data frame with a column for each question")
        frame = as_frame(frame)
        values, observed, names = indicators(frame, missing, numbers)
        rows = None if _is_default_index(frame.index) else frame.index
        points = cls.from_array(values, observed, columns=names, row_names=rows)
        return with_index_of(points, frame)

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike[str],
        *,
        header: bool = True,
        row_names: str | int | None = None,
        missing: str | None = None,
        encoding: str = "utf-8",
        separator: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        missing_marks: Iterable[Any] = (),
    ) -> "Points":
        """Read a file of numbers separated by commas, semicolons or tabs; `notes` say what was assumed about its
        format.

        Args:
            path: the file.
            header: True if the first line names the columns.
            row_names: the column that names the rows: its name, or without a header its number from 0.
            missing: "nan" if empty cells, NA and NaN are missing. By default they are an error.
            encoding: the encoding of the file.
            separator, decimal, thousands: the signs between values, for the decimal point and between thousands, such
                as ";", "," and ".". By default they are inferred if the file leaves no doubt.
            missing_marks: other marks of a missing cell, such as "?" or -9.

        Raises:
            ValueError: bytes of another encoding; a column of text, with the first row that is no number; commas that
                may be decimal signs or stand between thousands; signs between thousands that do not stand before three
                digits; a header of numbers; lines of different lengths; see
                also `from_array`.
        """
        header = yes_or_no("header", header)
        style = NumberStyle(separator, decimal, thousands, tuple(map(str, as_list("missing_marks", missing_marks))))
        table = read_numbers(path, header, row_names, encoding, style)
        points = cls.from_frame(table.frame, missing=missing)
        return replace(points, notes=(*table.notes, *points.notes))

    @classmethod
    def from_npy(cls, path: str | os.PathLike[str], *, missing: str | None = None) -> "Points":
        """Read an .npy file with a matrix (rows, columns).

        missing: "nan" if NaN marks a missing cell. By default NaN is an error.

        Raises ValueError for a file of another form, and for the reasons of `from_array`.
        """
        content = read_ordinary(path)
        try:
            values = np.load(io.BytesIO(content), allow_pickle=False)
        except UNREADABLE as error:
            raise ValueError(f"{path}: {reason(error)}; expected a matrix written by numpy.save") from error
        if not isinstance(values, np.ndarray):
            raise ValueError(f"{path}: got an archive of several arrays; expected one matrix written by numpy.save")
        return cls.from_array(values, missing=missing)

    @classmethod
    def from_any(cls, data: Any) -> "Points":
        """Return points as they are, or make them from a data frame or a matrix.

        Raises ValueError for anything else, and for NaN.
        """
        if isinstance(data, Points):
            return data
        return cls.from_frame(data) if is_table(data) else cls.from_array(data)

    def like_this(self, data: Any) -> "Points":
        """Return new rows over the columns of this object, the training data.

        data: points or a data frame with these column names, or a matrix of as many columns.

        Raises:
            ValueError: another number of columns, other names, or these names in another order.
        """
        refuse_other_kind(data, Points, "Points over the columns of the training data")
        points = Points.from_any(data)
        if len(points.columns) != len(self.columns):
            raise ValueError(
                f"got rows of {len(points.columns)} columns, expected the {len(self.columns)} of the training data"
            )
        if not isinstance(data, Points) and not is_table(data):
            return replace(points, columns=self.columns)
        if points.columns != self.columns:
            place = next(i for i, pair in enumerate(zip(points.columns, self.columns, strict=True)) if len({*pair}) > 1)
            same = "in another order" if set(points.columns) == set(self.columns) else "of other names"
            raise ValueError(
                f"got columns {same}: column {place} is {points.columns[place]!r}, expected {self.columns[place]!r}; "
                "bring them into the order of training.columns, or name them alike (columns=training.columns)"
            )
        return points

    def joined(self, other: Any) -> "Points":
        """Return the rows of these points followed by other rows over the same columns.

        If only one of the two has names of rows, rows of the other are named by their numbers. If the names are of two
        kinds, such as dates and text, all are text.

        other: points or a data frame with these column names, or a matrix of as many columns.

        Raises ValueError for the reasons of `like_this`.
        """
        more = self.like_this(other)
        names = None
        if self.row_names is not None or more.row_names is not None:
            names = (*_names_or_numbers(self, 0), *_names_or_numbers(more, self.n_units))
        is_alike = (self.row_kind, self.row_zone) == (more.row_kind, more.row_zone)
        return replace(
            self,
            values=np.concatenate([self.values, more.values]),
            observed=np.concatenate([self.observed, more.observed]),
            row_names=names,
            notes=(*self.notes, f"joined {more.n_units:,} rows to {self.n_units:,}", *more.notes),
            row_kind=self.row_kind if is_alike else "text",
            row_zone=self.row_zone if is_alike else None,
        )

    # -- as data ------------------------------------------------------------------------------------------------

    def dataset(self) -> Dataset:
        """Return the rows in padded batches, the form in which `lvsearch.inference` reads them."""
        return rows(self.filled, self.observed)

    @property
    def filled(self) -> Float[np.ndarray, "row column"]:
        """The values with 0 in cells that are not observed, shape (row, column), for arithmetic that masks them, and
        for files.
        """
        return np.where(self.observed, self.values, 0.0)

    @property
    def n_units(self) -> int:
        """The number of rows."""
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns, as (rows, columns)."""
        return (len(self.values), len(self.columns))

    @property
    def observations_per_unit(self) -> Int[np.ndarray, " rows"]:
        """The number of observed cells in each row, shape (rows,), int64."""
        return self.observed.sum(axis=1, dtype=np.int64)

    @property
    def entries(self) -> Mapping[str, tuple[str, ...]]:
        """The column names, as {"dim": names}: the names of the entries of a model's axis "dim"."""
        return {"dim": self.columns}

    def part(self, rows: Int[np.ndarray, " chosen"], note: str) -> "Points":
        """Return some of the rows as new points, in the given order, with a note that says so.

        Rows of a data frame with the default index are named by their numbers, so that results align with that frame.

        rows: numbers of rows, from 0. note: the note to add.
        """
        names = None if self.row_names is None else tuple(self.row_names[row] for row in rows)
        if names is None and self.row_kind == "whole":
            names = tuple(str(row) for row in rows)
        return replace(
            self, values=self.values[rows], observed=self.observed[rows], row_names=names, notes=(*self.notes, note)
        )

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 hash, in hexadecimal, of values, mask and names (not of notes)."""
        digest = hashlib.sha256(b"lvsearch points 1")
        digest.update(np.asarray(self.filled, dtype="<f8").tobytes())
        digest.update(self.observed.tobytes())
        digest.update(json.dumps((self.shape, self.columns, self.row_names)).encode())
        return digest.hexdigest()

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the points as (settings, which hold what is known of the data frame's index, and {name: array})."""
        arrays = {"values": self.filled, "observed": self.observed}
        arrays |= pack_strings("columns", self.columns) | pack_strings("notes", self.notes)
        index = {"row_kind": self.row_kind, "row_zone": self.row_zone, "index_name": self.index_name}
        settings = {name: value for name, value in index.items() if value not in (None, "text")}
        return settings, arrays if self.row_names is None else arrays | pack_strings("row_names", self.row_names)

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Points":
        """Return the points that `to_storage` encoded as `settings` and `arrays`."""
        names = unpack_strings("row_names", arrays) if has_strings("row_names", arrays) else None
        columns, notes = (unpack_strings(name, arrays) for name in ("columns", "notes"))
        return cls(
            arrays["values"],
            arrays["observed"],
            columns,
            names,
            notes,
            settings.get("row_kind", "text"),
            settings.get("row_zone"),
            settings.get("index_name"),
        )

    def describe(self) -> str:
        """Return the sizes in one line, such as "600 rows × 4 columns, 2,310 of 2,400 cells observed"."""
        rows, columns = self.n_units, len(self.columns)
        sides = f"{rows:,} row{'s' * (rows != 1)} × {columns:,} column{'s' * (columns != 1)}"
        return f"{sides}, {self._cells()} observed"

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return (name, value) pairs: the numbers of rows, columns and observed cells."""
        named = ", ".join(self.columns[:6]) + (", …" if len(self.columns) > 6 else "")
        return (
            ("rows", f"{self.n_units:,}"),
            ("columns", f"{len(self.columns):,}: {named}"),
            ("observed", self._cells()),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the values as a data frame, NaN where not observed, with the names of rows and columns."""
        return pd.DataFrame(self.values.copy(), index=row_index(self), columns=list(self.columns))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values for `np.asarray(points)`, (rows, columns), NaN where not observed.

        So points can be given wherever an array of numbers can, for example to `DiagonalComponents.weak`.
        """
        return np.array(self.values, dtype, copy=copy is not False)

    def _cells(self) -> str:
        """Return the number of observed cells in words, such as "2,310 of 2,400 cells"."""
        every = self.observed.size
        return f"all {every:,} cells" if self.observed.all() else f"{self.n_observations:,} of {every:,} cells"

    def _notes_on_missing(self) -> tuple[str, ...]:
        """Return notes in words on rows and on columns without any observed cell; () if there are none."""
        empty = int((~self.observed.any(axis=1)).sum())
        notes = (f"{empty:,} of {self.n_units:,} rows have no observed cell; kept in place",) if empty else ()
        unseen = int((~self.observed.any(axis=0)).sum())
        if unseen:
            notes += (f"{unseen:,} of {len(self.columns):,} columns have no observed cell; kept in place",)
        return notes


def _names_or_numbers(points: Points, first: int) -> tuple[str, ...]:
    """Return the names of the rows, or their numbers from `first` on if they have no names."""
    return tuple(map(str, range(first, first + points.n_units))) if points.row_names is None else points.row_names


def _mask_of_frame(mask: pd.DataFrame, frame: pd.DataFrame) -> Bool[np.ndarray, "row column"]:
    """Return a mask of known cells with its columns in the order of the data frame, shape (row, column).

    Raises ValueError for a mask with other columns than the data frame, or with another index.
    """
    if len(mask.columns) != len(frame.columns) or set(mask.columns) != set(frame.columns):
        raise ValueError(
            f"got observed with the columns {columns_in_words(mask.columns)}; expected those of the data frame, "
            f"{columns_in_words(frame.columns)}"
        )
    if not mask.index.equals(frame.index):
        raise ValueError(
            "got observed with another index than the data frame; expected the same rows in the same order: "
            "observed.loc[frame.index], or observed.to_numpy() where rows are in this order"
        )
    return mask.loc[:, list(frame.columns)].to_numpy()


def row_index(points: Points) -> pd.Index:
    """Return the names of the rows as an index (rows,), or their numbers if they have no names.

    The index has the kind, the time zone and the name of the index of the data frame from which the points came, so
    that results align with that data frame.

    Raises ValueError for names that are not of this kind, or an unknown time zone.
    """
    names, name = points.row_names, points.index_name
    if names is None:
        return pd.RangeIndex(points.n_units, name=name)
    if points.row_kind == "whole":
        return pd.Index([int(each) for each in names], name=name)
    if points.row_kind == "number":
        return pd.Index([float(each) for each in names], name=name)
    if points.row_kind == "date":
        return pd.Index([date.fromisoformat(each) for each in names], dtype=object, name=name)
    if points.row_kind == "duration":
        return pd.TimedeltaIndex(pd.to_timedelta(list(names)), name=name)
    if points.row_kind.startswith(PERIOD):
        frequency = points.row_kind.removeprefix(PERIOD).removesuffix("]")
        return pd.PeriodIndex(list(names), dtype=pd.PeriodDtype(frequency), name=name)
    if points.row_kind == "text":
        return pd.Index(names, name=name)
    times = pd.DatetimeIndex(pd.to_datetime(list(names), format="ISO8601", utc=points.row_zone is not None), name=name)
    try:
        return times if points.row_zone is None else times.tz_convert(points.row_zone)
    except (KeyError, OSError) as error:  # of the package of time zones
        raise ValueError(f"got row_zone={points.row_zone!r}; expected a time zone, such as 'Europe/Paris'") from error


def with_index_of(points: Points, frame: pd.DataFrame) -> Points:
    """Return points of which tables of results have an index like that of the data frame from which the points came."""
    index = frame.index
    index = pd.Index(index.to_numpy(), name=index.name) if isinstance(index, pd.CategoricalIndex) else index
    index = index.infer_objects()
    named = replace(points, index_name=None if index.name is None else str(index.name))
    zone = _zone_of(index) if isinstance(index, pd.DatetimeIndex) else None
    try:
        return replace(named, row_kind=_kind_of_index(index), row_zone=zone)
    except ValueError:  # times whose text cannot be read as a time, such as local times of the year 1850 with seconds
        return named


def _kind_of_index(index: pd.Index) -> str:
    """Return the kind of `ROW_KINDS` of a data frame's index. Indexes with missing names are text."""
    if index.hasnans:
        return "text"
    if pd.api.types.is_integer_dtype(index.dtype):
        return "whole"
    if pd.api.types.is_float_dtype(index.dtype):
        return "number"
    if isinstance(index, pd.DatetimeIndex):
        return "time"
    if isinstance(index, pd.TimedeltaIndex):
        return "duration"
    if isinstance(index, pd.PeriodIndex):
        return str(index.dtype)
    return "date" if index.inferred_type == "date" else "text"


def _zone_of(index: pd.DatetimeIndex) -> str | None:
    """Return the name of the time zone of an index; None if there is none. A zone without a usual name becomes UTC."""
    if index.tz is None:
        return None
    name = str(index.tz)
    try:
        is_known = index.tz_convert(name).tz_localize(None).equals(index.tz_localize(None))
    except (KeyError, ValueError, OSError):
        return "UTC"
    return name if is_known else "UTC"


def _is_default_index(index: pd.Index) -> bool:
    """Return True if an index is 0, 1, 2, …, which names nothing."""
    return bool(index.equals(pd.RangeIndex(len(index))))
