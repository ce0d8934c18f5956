"""Rows of a real matrix in groups: pupils of schools, cells of patients, visits of customers.

The rows themselves are `Points`, with their names, masks and checks. A group may be empty. Models of groups ignore the
order of rows within a group. To hidden Markov models the order is time.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int

from lvsearch.data.base import Data, Nouns, refuse_other_kind
from lvsearch.data.matrix_inputs import common_width
from lvsearch.data.points import Points
from lvsearch.files.string_arrays import has_strings, pack_strings, unpack_strings
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import groups_of_rows
from lvsearch.models.plain_arguments import as_list, as_names
from lvsearch.models.units import GroupOfRows
from lvsearch.tables.frames import aligned_frames, as_frame, is_table, require_distinct


@dataclass(frozen=True, eq=False, repr=False)
class Groups(Data):
    """Rows of a matrix that belong to groups. Build one with `from_arrays` or `from_frame`.

    The constructor copies its arguments and checks them. Two are equal if their fingerprints are.

    Attributes:
        rows: all rows, those of one group next to each other, in the groups' order.
        sizes: (groups,) the number of rows in each group, 0 for none; read-only.
        names: the name of each group for people, distinct, or None.
        notes: notes on what was kept or selected, in the order in which it happened.

    Raises:
        ValueError: sizes that do not add up to the number of rows; names of the wrong length, or one twice.
    """

    unit_type: ClassVar[type] = GroupOfRows
    nouns: ClassVar[Nouns] = Nouns("groups", "group", "groups", "cell", "cells")
    accepted: ClassVar[str] = "Groups or a list with a matrix of numbers for every group"

    rows: Points
    sizes: Int[np.ndarray, " groups"]
    names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = np.array(self.sizes, dtype=np.int64)
        if sizes.ndim != 1 or sizes.min(initial=0) < 0 or sizes.sum() != len(self.rows):
            raise ValueError(
                f"got group sizes that add up to {sizes.sum():,} for {len(self.rows):,} rows; expected how many rows "
                "each group has, none negative"
            )
        names = _name_strings(self.names)
        if names is not None and len(names) != len(sizes):
            raise ValueError(f"got {len(names):,} names, expected {len(sizes):,}: one for each group")
        require_distinct("group name", names or ())
        sizes.setflags(write=False)
        for field, value in (("sizes", sizes), ("names", names), ("notes", tuple(self.notes))):
            object.__setattr__(self, field, value)

    # -- from data ----------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        groups: Iterable[Any],
        *,
        missing: str | None = None,
        columns: Iterable[Any] | None = None,
        names: Iterable[Any] | None = None,
    ) -> "Groups":
        """Make groups from one matrix for every group.

        Args:
            groups: for every group its rows, (rows, columns) real numbers; an empty list for a group without rows.
                Columns of data frames are matched by name, and name the columns; those of matrices by place.
            missing: "nan" if NaN marks a missing cell. By default NaN is an error.
            columns: a name for each column. Default: those of data frames, or "column0", "column1"….
            names: one per group.

        Raises:
            ValueError: see `Groups` and `Points.from_array`; also groups with different columns, data frames beside
                matrices, or no row in any group.
        """
        if isinstance(groups, np.ndarray) and groups.ndim != 3:
            raise ValueError(
                f"got one array of shape {groups.shape}; expected a list with a matrix (rows, columns) for every group"
            )
        listed = as_list("groups", groups)
        frames = aligned_frames("group", listed)
        if frames is not None:
            rows = _rows_of_frames(frames, missing)
            rows = rows if columns is None else replace(rows, columns=tuple(str(name) for name in columns))
            return cls(rows, np.array([len(frame) for frame in frames], np.int64), _name_strings(names))._with_notes()
        matrices = [
            group if isinstance(group, np.ma.MaskedArray) else np.asarray(group)  # masked cells are missing
            for group in listed
        ]
        common_width(matrices, "group", "row", "column")
        every = np.ma.concatenate([matrix for matrix in matrices if matrix.size])
        rows = Points.from_array(every, missing=missing, columns=columns)
        sizes = np.array([len(matrix) if matrix.size else 0 for matrix in matrices], np.int64)
        return cls(rows, sizes, _name_strings(names))._with_notes()

    @classmethod
    def from_frame(cls, frame: Any, group: str, *, missing: str | None = None) -> "Groups":
        """Make groups of a data frame (pandas, Polars or Arrow) with a column that names the group of each row.

        Groups are in the order in which they first occur, and their rows follow one another. Where that changes the
        order of the rows a note says so, and the frame's index names them.

        frame: the data frame; all other columns hold numbers.
        group: the name of the column of groups.
        missing: "nan" if NaN marks a missing cell. By default NaN is an error.

        Raises ValueError if there is no such column, or two, if a row has no group, for columns without numbers, and
        for the reasons of `Points.from_frame`.
        """
        frame = as_frame(frame)
        if not isinstance(group, Hashable) or group not in frame.columns:
            raise ValueError(f"got columns {', '.join(map(str, frame.columns))}; expected one named {group!r}")
        owner = frame[group]
        if isinstance(owner, pd.DataFrame):
            raise ValueError(f"got the column {group!r} twice; expected distinct names")
        nameless = int(owner.isna().to_numpy().sum())
        if nameless:
            raise ValueError(f"got {nameless:,} rows without a group in the column {group!r}; leave them out")
        codes, names = pd.factorize(owner)
        order = np.argsort(codes, kind="stable")
        rows = Points.from_frame(frame.drop(columns=group).iloc[order], missing=missing)
        is_moved = bool((np.diff(order) < 0).any())
        notes = (
            ("rows were put together by group; their names are those of the data frame's index",) if is_moved else ()
        )
        sizes = np.bincount(codes, minlength=len(names))
        return cls(rows, sizes, tuple(str(name) for name in names), notes)._with_notes()

    @classmethod
    def from_any(cls, data: Any) -> "Groups":
        """Return groups as they are, or make them from a list of matrices by `from_arrays`.

        Raises ValueError for anything else.
        """
        if isinstance(data, Groups):
            return data
        if is_table(data):
            raise ValueError("got a data frame; say which column names the group: lv.Groups.from_frame(frame, group=…)")
        if isinstance(data, Data | str) or not isinstance(data, Iterable):
            raise ValueError(f"got {type(data).__name__}, expected {cls.accepted}")
        return cls.from_arrays(data)

    def like_this(self, data: Any) -> "Groups":
        """Return new groups of rows over the columns of this object, the training data.

        data: `Groups` or a list of data frames with these column names, or a list of matrices.

        Raises ValueError for another number of columns, other names, or these names in another order.
        """
        refuse_other_kind(data, Groups, "Groups over the columns of the training data")
        data = list(data) if isinstance(data, Iterator) else data
        groups = Groups.from_any(data)
        brings_names = isinstance(data, Groups) or any(map(is_table, data))
        like = self.rows.like_this(groups.rows if brings_names else groups.rows.filled)
        return replace(groups, rows=replace(groups.rows, columns=like.columns))

    # -- as data ------------------------------------------------------------------------------------------------

    def dataset(self) -> Dataset:
        """Return the groups in padded batches, the form in which `lvsearch.inference` reads them."""
        return groups_of_rows(self.rows.filled, self.rows.observed, self.sizes)

    @property
    def n_units(self) -> int:
        """The number of groups."""
        return len(self.sizes)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.rows.columns

    @property
    def observations_per_unit(self) -> Int[np.ndarray, " groups"]:
        """The number of observed cells in each group, shape (groups,), int64."""
        cells = np.concatenate([[0], np.cumsum(self.rows.observations_per_unit)])
        ends = np.cumsum(self.sizes)
        return cells[ends] - cells[ends - self.sizes]

    @property
    def entries(self) -> Mapping[str, tuple[str, ...]]:
        """The column names, as {"dim": names}: the names of the entries of a model's axis "dim"."""
        return self.rows.entries

    @property
    def owners(self) -> Int[np.ndarray, " rows"]:
        """The number of the group of each row in `rows`, shape (rows,)."""
        return np.repeat(np.arange(self.n_units), self.sizes)

    def group(self, number: int) -> Points:
        """Return the rows of the group with this number, from 0. Raises ValueError for an empty group."""
        chosen = np.flatnonzero(self.owners == number)
        if not chosen.size:
            raise ValueError(f"got group {number}, which has no rows")
        return self.rows.part(chosen, f"group {number}")

    def part(self, rows: Int[np.ndarray, " chosen"], note: str) -> "Groups":
        """Return some of the groups as new data, in the given order, with a note that says so.

        rows: numbers of groups, from 0. A group that occurs again gets " (2)" … behind its name, since names are
            distinct.
        note: the note to add.

        Raises ValueError if no group has a row.
        """
        ends = np.cumsum(self.sizes).tolist()
        kept = np.concatenate([np.arange(ends[row] - int(self.sizes[row]), ends[row]) for row in rows])
        if not kept.size:
            raise ValueError(f"got {len(rows):,} groups that are all empty; expected a row in some of them")
        names = None if self.names is None else _distinct_names([self.names[row] for row in rows])
        points = replace(self.rows.part(kept, note), notes=self.rows.notes)
        return replace(self, rows=points, sizes=self.sizes[rows], names=names, notes=(*self.notes, note))

    # -- identity, storage and looks ----------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 hash, in hexadecimal, of rows, group sizes and names (not of notes)."""
        digest = hashlib.sha256(b"lvsearch groups 1")
        digest.update(np.asarray(self.sizes, dtype="<i8").tobytes())
        digest.update(json.dumps((self.rows.fingerprint, self.names)).encode())
        return digest.hexdigest()

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the groups as (settings that JSON can store, {name: array})."""
        settings, arrays = self.rows.to_storage()
        own = {"group_sizes": self.sizes} | pack_strings("group_notes", self.notes)
        if self.names is not None:
            own |= pack_strings("group_names", self.names)
        return settings, arrays | own

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Groups":
        """Return the groups that `to_storage` encoded as `settings` and `arrays`."""
        names = unpack_strings("group_names", arrays) if has_strings("group_names", arrays) else None
        notes = unpack_strings("group_notes", arrays)
        return cls(Points.from_storage(settings, arrays), arrays["group_sizes"], names, notes)

    def describe(self) -> str:
        """Return the sizes in one line, such as "12 groups, 600 rows × 4 columns, all 2,400 cells observed"."""
        return f"{self.n_units:,} groups, {self.rows.describe()}"

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return (name, value) pairs: the numbers of groups, rows, columns and cells."""
        spread = f"{int(self.sizes.min()):,} to {int(self.sizes.max()):,} rows each"
        return (("groups", f"{self.n_units:,}, {spread}"), *self.rows.facts())

    def _with_notes(self) -> "Groups":
        """Return these groups, which were just read, with the rows' notes and a note on groups without rows."""
        empty = int((self.sizes == 0).sum())
        note = (f"{empty:,} of {self.n_units:,} groups have no rows; kept in place",) if empty else ()
        return replace(self, notes=(*self.notes, *self.rows.notes, *note))


def _rows_of_frames(frames: Sequence[pd.DataFrame], missing: str | None) -> Points:
    """Return the rows of data frames with the same columns, one frame after the other.

    Their indexes name the rows, unless all are default ones. Raises ValueError as `Points.from_frame` does.
    """
    numbered = all(frame.index.equals(pd.RangeIndex(len(frame))) for frame in frames)
    return Points.from_frame(
        pd.concat([frame for frame in frames if len(frame)], ignore_index=numbered), missing=missing
    )


def _distinct_names(names: list[str]) -> tuple[str, ...]:
    """Return the names with " (2)", " (3)", … behind those that occur again, so that all are distinct."""
    used, given = set(names), []
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        own = name
        while seen[name] > 1 and own in used:
            own = f"{name} ({seen[name]})"
            seen[name] += own in used
        used.add(own)
        given.append(own)
    return tuple(given)


def _name_strings(names: Iterable[Any] | None) -> tuple[str, ...] | None:
    """Return names as a tuple of strings; None stays None. Raises ValueError for a single string, a set or a dict."""
    if isinstance(names, str):
        raise ValueError(f"got the string {names[:40]!r} as names; expected a list with one for each group")
    return None if names is None else tuple(str(name) for name in as_names("names", names))
