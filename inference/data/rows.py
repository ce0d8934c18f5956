"""The rows of a matrix: as a whole matrix, in which they came, and as padded batches."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from lvsearch.inference.data.dataset import Batch, Dataset, UnitBatches
from lvsearch.models.units import Row

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
