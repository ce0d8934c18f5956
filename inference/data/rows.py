"""Rows of a matrix, and groups of rows (such as sequences, or pupils in schools): as given, and as padded batches."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Int64

from lvsearch.inference.data.dataset import Batch, Dataset, UnitBatches
from lvsearch.models.units import GroupOfRows, Row

ROWS_PER_BATCH = 4096
"""The most rows in one batch, padding included.

Most data sets are one batch, since generic sweeps trace every batch anew.
"""
ROWS_STEP = 8
"""Batches are padded to a multiple of this many rows, so that folds whose sizes differ by one share their programs."""


@dataclass(frozen=True)
class RowMatrix:
    """All rows of a matrix, float64, and which of their cells were observed."""

    values: Float[np.ndarray, "row dim"]
    observed: Bool[np.ndarray, "row dim"]

    @property
    def extents(self) -> Mapping[str, int]:
        """The number of columns, as {"dim": number}."""
        return {"dim": self.values.shape[1]}

    @property
    def n_units(self) -> int:
        """The number of rows."""
        return len(self.values)

    def to_batches(self) -> UnitBatches:
        """Divide the rows into batches with equally many rows each.

        The last rows of some batches are padding, with value 0 and nothing observed. Rows are dealt to batches
        round-robin. Each batch is then a sample of the whole matrix, however that was sorted.
        """
        n_rows = len(self.values)
        n_batches = max(1, -(-n_rows // ROWS_PER_BATCH))
        length = -(-n_rows // n_batches)
        length = -(-length // ROWS_STEP) * ROWS_STEP
        batches, unit_ids = [], []
        for offset in range(n_batches):
            members = np.full(length, -1, np.int64)
            dealt = np.arange(offset, n_rows, n_batches)
            members[: len(dealt)] = dealt
            real = (members >= 0)[:, None]
            units = Row(np.where(real, self.values[members], 0.0), self.observed[members] & real)
            batches.append(Batch(units, real[:, 0].astype(np.float32)))
            unit_ids.append(members)
        return UnitBatches(tuple(batches), tuple(unit_ids))


def rows(values: Float[np.ndarray, "row dim"], observed: Bool[np.ndarray, "row dim"]) -> Dataset:
    """Return the data set of the rows of a matrix, float64. Engines cast to their own precision.

    values: (row, dim). observed: (row, dim), which cells were observed.
    """
    return Dataset(RowMatrix(np.asarray(values, np.float64), observed))


def rows_of(data: Dataset) -> tuple[Row, Float[np.ndarray, " row"]]:
    """Return (rows, the weight of each row (row,)) of a data set, in the order of the data set and without padding."""
    if isinstance(data.original, RowMatrix):
        return Row(data.original.values, data.original.observed), np.ones(data.n_units)
    value = data.gather([batch.units.value for batch in data.batches])
    observed = data.gather([batch.units.observed for batch in data.batches])
    weight = data.gather([np.asarray(batch.weight) for batch in data.batches])
    return Row(value, observed), weight.astype(np.float64)


def padded_rows(data: Dataset) -> tuple[Row, Float[np.ndarray, " row"]]:
    """Return (rows, the weight of each row (row,)) of all batches one after another, padding included.

    Padding has weight 0 and nothing observed. It is kept so that data sets of one padded length share their programs.

    Raises ValueError for rows with a weight other than 0 or 1.
    """
    value = np.concatenate([np.asarray(batch.units.value, np.float64) for batch in data.batches])
    weight = np.concatenate([np.asarray(batch.weight, np.float64) for batch in data.batches])
    if not np.all((weight == 0) | (weight == 1)):
        raise ValueError("got rows of a weight that is neither 0 nor 1, expected each row once")
    observed = np.concatenate([np.asarray(batch.units.observed) for batch in data.batches])
    return Row(value, observed & (weight > 0)[:, None]), weight


GROUPS_STEP = 8
"""Batches are padded to a multiple of this many groups: folds whose sizes differ by one share their programs."""


@dataclass(frozen=True)
class RowGroups:
    """All rows of all groups, one below the other. Rows of one group stand next to each other.

    values: (row, dim), float64, 0 where not observed.
    observed: (row, dim), which cells were observed.
    sizes: (group,), how many rows each group has; may be 0.
    """

    values: Float[np.ndarray, "row dim"]
    observed: Bool[np.ndarray, "row dim"]
    sizes: Int[np.ndarray, " group"]

    @property
    def extents(self) -> Mapping[str, int]:
        """The number of columns, as {"dim": number}."""
        return {"dim": self.values.shape[1]}

    @property
    def n_units(self) -> int:
        """The number of groups."""
        return len(self.sizes)

    def to_batches(self) -> UnitBatches:
        """Divide the groups into batches of `GroupOfRows`, each padded to a power of two of rows so that few lengths
        are compiled.
        """
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        lengths = 2 ** np.ceil(np.log2(np.maximum(self.sizes, 1))).astype(np.int64)
        batches, unit_ids = [], []
        for length in np.unique(lengths).tolist():
            chosen = np.flatnonzero(lengths == length)
            ids = np.pad(chosen, (0, -len(chosen) % GROUPS_STEP), constant_values=-1)
            real = np.where(ids >= 0, self.sizes[ids], 0)
            present = np.arange(length) < real[:, None]
            at = np.where(present, starts[ids][:, None] + np.arange(length), 0)
            known = self.observed[at] & present[..., None]
            units = GroupOfRows(np.where(known, self.values[at], 0.0), known, present)
            batches.append(Batch(units, (ids >= 0).astype(np.float32)))
            unit_ids.append(ids)
        return UnitBatches(tuple(batches), tuple(unit_ids))


def groups_of_rows(
    values: Float[np.ndarray, "row dim"], observed: Bool[np.ndarray, "row dim"], sizes: Int[np.ndarray, " group"]
) -> Dataset:
    """Return the data set of groups of rows, float64. Engines cast to their own precision.

    values: (row, dim); rows of one group stand next to each other.
    observed: (row, dim), which cells were observed.
    sizes: (group,), how many rows each group has.
    """
    return Dataset(RowGroups(np.where(observed, values, 0.0), observed, sizes))


def rows_of_groups(data: Dataset) -> tuple[Row, Int[np.ndarray, " group"]]:
    """Return (all rows in the order of the groups, how many rows each group has (group,))."""
    if isinstance(data.original, RowGroups):
        return Row(data.original.values, data.original.observed), data.original.sizes
    values, observed, owners = [], [], []
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        present = np.asarray(batch.units.present) & (ids >= 0)[:, None]
        values.append(np.asarray(batch.units.value)[present])
        observed.append(np.asarray(batch.units.observed)[present])
        owners.append(np.broadcast_to(ids[:, None], present.shape)[present])
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    rows = Row(np.concatenate(values)[order], np.concatenate(observed)[order])
    return rows, np.bincount(owner, minlength=data.n_units)


def column_patterns(observed: Bool[np.ndarray, "row column"]) -> tuple[np.ndarray, Int64[np.ndarray, " column"]]:
    """Return the distinct columns of the mask, (row, pattern), and the number of each column's pattern, (column,).

    Columns observed in the same rows share a pattern, and so the covariance of their loadings. With nothing missing
    there is one pattern.
    """
    if observed.all():
        return np.ones((len(observed), 1), bool), np.zeros(observed.shape[1], np.int64)
    distinct, pattern = np.unique(observed, axis=1, return_inverse=True)
    return distinct, pattern.reshape(-1).astype(np.int64)
