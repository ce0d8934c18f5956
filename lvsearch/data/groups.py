"""Rows of a real matrix in groups: pupils of schools, cells of patients, visits of customers.

The rows themselves are `Points`, with their names, masks and refusals. A group may be empty. To
models of groups the order of rows within one means nothing; to hidden Markov models it is time.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int

from lvsearch.data.base import Data, Nouns
from lvsearch.data.points import Points
from lvsearch.files.string_arrays import holds, packed, unpacked
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.groups import groups_of_rows
from lvsearch.models.plain_arguments import listed
from lvsearch.models.units import GroupOfRows
from lvsearch.tables.frames import as_frame, first_repeated, is_table


@dataclass(frozen=True, eq=False, repr=False)
class Groups(Data):
    """Groups of rows. Build one with `from_arrays` or `from_frame`.

    The constructor itself trusts nothing either: it copies and checks what it is given. Equality and hash go by
    `fingerprint`.

    Attributes:
        rows: all rows, those of one group next to each other, in the groups' order.
        sizes: (groups,) how many rows each group has, 0 for none; read-only.
        names: what a person calls each group, distinct, or None.
        notes: what was kept or selected, in the order in which it happened.

    Raises:
        ValueError: sizes that do not add up to the rows; names of the wrong length, or one twice.
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
        names = _strings(self.names)
        if names is not None and len(names) != len(sizes):
            raise ValueError(f"got {len(names):,} names, expected {len(sizes):,}: one for each group")
        twice = first_repeated(names or ())
        if twice is not None:
            raise ValueError(f"got the group name {twice!r} twice; expected distinct names")
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
        """One matrix for every group.

        Args:
            groups: for every group its rows, (rows, columns) real numbers; an empty list for none.
            missing: "nan" where NaN marks a missing cell. Default: NaN is an error.
            columns: a name for each column. Default: "column0", "column1"….
            names: one per group.

        Raises:
            ValueError: see `Groups` and `Points.from_array`; groups with different columns, or no row in any.
        """
        if isinstance(groups, np.ndarray) and groups.ndim != 3:
            raise ValueError(
                f"got one array of shape {groups.shape}; expected a list with a matrix (rows, columns) for every group"
            )
        matrices = [
            group if isinstance(group, np.ma.MaskedArray) else np.asarray(group)  # masked cells are missing
            for group in listed("groups", groups)
        ]
        some = [number for number, matrix in enumerate(matrices) if matrix.size]
        flat = next((number for number in some if matrices[number].ndim != 2), None)
        widths = {matrices[number].shape[1] for number in some if flat is None}
        if flat is not None or len(widths) > 1:
            what = f"group {flat} of shape {matrices[flat].shape}" if flat is not None else f"{sorted(widths)} columns"
            raise ValueError(f"got {what}; expected (rows, columns) for every group, with the same columns throughout")
        if not some:
            raise ValueError(f"got {len(matrices):,} groups without a single row; expected some")
        every = np.ma.concatenate([matrices[number] for number in some])
        rows = Points.from_array(every, missing=missing, columns=columns)
        sizes = np.array([len(matrix) if matrix.size else 0 for matrix in matrices], np.int64)
        return cls(rows, sizes, _strings(names))._reported()

    @classmethod
    def from_frame(cls, frame: Any, group: str, *, missing: str | None = None) -> "Groups":
        """A data frame, of pandas, Polars or Arrow, with a row per row, and a column that names the group of each.

        Groups are in the order in which they first occur. group: the name of that column; all others hold numbers.
        missing: as for `from_arrays`. Raises ValueError for no such column, a row without a group, columns that hold no
        numbers, and as `Points.from_frame`.
        """
        frame = as_frame(frame)
        if not isinstance(group, Hashable) or group not in frame.columns:
            raise ValueError(f"got columns {', '.join(map(str, frame.columns))}; expected one named {group!r}")
        owner = frame[group]
        nameless = int(owner.isna().to_numpy().sum())
        if nameless:
            raise ValueError(f"got {nameless:,} rows without a group in the column {group!r}; leave them out")
        codes, names = pd.factorize(owner)
        order = np.argsort(codes, kind="stable")
        rows = Points.from_frame(frame.drop(columns=group).iloc[order].reset_index(drop=True), missing=missing)
        return cls(rows, np.bincount(codes, minlength=len(names)), tuple(str(name) for name in names))._reported()

    @classmethod
    def of(cls, data: Any) -> "Groups":
        """As it is, or made of a list of matrices as `from_arrays` takes it. ValueError for anything else."""
        if isinstance(data, Groups):
            return data
        if is_table(data):
            raise ValueError("got a data frame; say which column names the group: lv.Groups.from_frame(frame, group=…)")
        if isinstance(data, Data | str) or not isinstance(data, Iterable):
            raise ValueError(f"got {type(data).__name__}, expected {cls.accepted}")
        return cls.from_arrays(data)

    def like_this(self, data: Any) -> "Groups":
        """New groups of rows over these columns: `Groups` with these names of columns, or a list of matrices.

        Raises ValueError for another number of columns; other names, or these in another order.
        """
        if isinstance(data, Data) and not isinstance(data, Groups):
            raise ValueError(
                f"got {type(data).__name__} ({data.describe()}), expected Groups over the columns of the training data"
            )
        groups = Groups.of(data)
        like = self.rows.like_this(groups.rows if isinstance(data, Groups) else groups.rows.filled)
        return replace(groups, rows=replace(groups.rows, columns=like.columns))

    # -- as data ------------------------------------------------------------------------------------------------

    def dataset(self) -> Dataset:
        """The groups in padded batches."""
        return groups_of_rows(self.rows.filled, self.rows.observed, self.sizes)

    @property
    def n_units(self) -> int:
        """Groups."""
        return len(self.sizes)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.rows.columns

    @property
    def observations_per_unit(self) -> Int[np.ndarray, " groups"]:
        """Observed cells of each group."""
        cells = np.concatenate([[0], np.cumsum(self.rows.observations_per_unit)])
        ends = np.cumsum(self.sizes)
        return cells[ends] - cells[ends - self.sizes]

    @property
    def entries(self) -> Mapping[str, tuple[str, ...]]:
        """The axis of dimensions is named by the columns."""
        return self.rows.entries

    @property
    def unit_labels(self) -> None:
        """Groups have no classes."""
        return

    @property
    def owners(self) -> Int[np.ndarray, " rows"]:
        """Which group each row of `rows` is in."""
        return np.repeat(np.arange(self.n_units), self.sizes)

    def group(self, number: int) -> Points:
        """The rows of one group. Raises ValueError for an empty one."""
        chosen = np.flatnonzero(self.owners == number)
        if not chosen.size:
            raise ValueError(f"got group {number}, which has no rows")
        return self.rows.part(chosen, f"group {number}")

    def part(self, rows: Int[np.ndarray, " chosen"], note: str) -> "Groups":
        """The groups with these numbers, in this order, and a note saying so; one taken again has "(2)" … behind its
        name, which would not be distinct. ValueError where none has a row."""
        ends = np.cumsum(self.sizes).tolist()
        kept = np.concatenate([np.arange(ends[row] - int(self.sizes[row]), ends[row]) for row in rows])
        if not kept.size:
            raise ValueError(f"got {len(rows):,} groups that are all empty; expected a row in some of them")
        names = None if self.names is None else _told_apart([self.names[row] for row in rows])
        points = replace(self.rows.part(kept, note), notes=self.rows.notes)
        return replace(self, rows=points, sizes=self.sizes[rows], names=names, notes=(*self.notes, note))

    # -- identity, storage and looks ----------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the content: rows, how they are grouped, and names (not notes)."""
        digest = hashlib.sha256(b"lvsearch groups 1")
        digest.update(np.asarray(self.sizes, dtype="<i8").tobytes())
        digest.update(json.dumps((self.rows.fingerprint, self.names)).encode())
        return digest.hexdigest()

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The rows' settings; their arrays, sizes, names and notes."""
        settings, arrays = self.rows.to_storage()
        own = {"group_sizes": self.sizes} | packed("group_notes", self.notes)
        if self.names is not None:
            own |= packed("group_names", self.names)
        return settings, arrays | own

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Groups":
        """The inverse of `to_storage`."""
        names = unpacked("group_names", arrays) if holds("group_names", arrays) else None
        notes = unpacked("group_notes", arrays)
        return cls(Points.from_storage(settings, arrays), arrays["group_sizes"], names, notes)

    def describe(self) -> str:
        """Such as "12 groups, 600 rows × 4 columns, all 2,400 cells observed"."""
        return f"{self.n_units:,} groups, {self.rows.describe()}"

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Groups, rows, columns and cells, a line each."""
        spread = f"{int(self.sizes.min()):,} to {int(self.sizes.max()):,} rows each"
        return (("groups", f"{self.n_units:,}, {spread}"), *self.rows.facts())

    def __repr__(self) -> str:
        return f"Groups({self.describe()})"

    def _reported(self) -> "Groups":
        """Fresh from elsewhere, with what a person should know in the notes."""
        empty = int((self.sizes == 0).sum())
        note = (f"{empty:,} of {self.n_units:,} groups have no rows; kept in place",) if empty else ()
        return replace(self, notes=(*self.notes, *self.rows.notes, *note))


def _told_apart(names: list[str]) -> tuple[str, ...]:
    """Distinct names of groups of which one may stand there several times."""
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


def _strings(names: Iterable[Any] | None) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise ValueError(f"got the string {names[:40]!r} as names; expected a list with one for each group")
    return None if names is None else tuple(str(name) for name in listed("names", names))
