"""Groups of rows (such as sequences, or pupils in schools): in the form in which they came, and as padded batches."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from lvsearch.inference.data.dataset import Batch, Dataset, UnitBatches
from lvsearch.models.units import GroupOfRows, Row

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
