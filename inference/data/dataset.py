"""Data as the engines see it: batches of padded units with a weight each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from lvsearch.models.contract import Unit
from lvsearch.models.units import Row


class Batch(NamedTuple):
    """Units stacked on a leading axis, and the weight of each: 0 = padding, 1, or N / |batch| for a minibatch."""

    units: Unit
    weight: Float[Array, " _"] | np.ndarray  # batches of one data set differ in length


@dataclass(frozen=True)
class Dataset:
    """All units of a data set, in batches of few distinct shapes.

    | field | meaning |
    |---|---|
    | `batches` | NumPy leaves; batches of one shape stand together |
    | `unit_ids` | for each batch, which unit of the data set each row is; −1 for padding |
    | `extents` | lengths of the axes of the globals that the data decides, such as {"word": V} |
    | `n_units` | units, padding not counted |
    """

    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]
    extents: Mapping[str, int]
    n_units: int

    @property
    def shapes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The distinct shapes of the batches: each is compiled once per capacity."""
        distinct = {tuple(leaf.shape for leaf in jax.tree.leaves(batch.units)) for batch in self.batches}
        return tuple(sorted(distinct))

    def gather(self, per_batch: Sequence[np.ndarray]) -> np.ndarray:
        """Put per-unit results, one array (units, …) per batch, back into the order of the data set."""
        out = np.zeros((self.n_units, *np.shape(per_batch[0])[1:]), np.asarray(per_batch[0]).dtype)
        for ids, values in zip(self.unit_ids, per_batch, strict=True):
            real = ids >= 0
            out[ids[real]] = np.asarray(values)[real]
        return out


ROWS_PER_BATCH = 4096
"""Rows in one batch, padding included: most data sets are one, since generic sweeps trace every batch anew."""
ROWS_STEP = 8
"""Batches are padded to a multiple of this many rows, so that folds whose sizes differ by one share their programs."""


def rows(values: Float[np.ndarray, "row dim"], observed: Bool[np.ndarray, "row dim"]) -> Dataset:
    """The rows of a matrix as batches of `Row`, float64; engines cast to their own precision.

    Every batch has the same number of rows, the last rows of some being padding (value 0, nothing observed). Rows are
    dealt to batches round-robin, so that each batch is a sample of the whole matrix whatever order it came in.
    """
    n_rows, n_dims = values.shape
    n_batches = max(1, -(-n_rows // ROWS_PER_BATCH))
    length = -(-n_rows // n_batches)
    length = -(-length // ROWS_STEP) * ROWS_STEP
    batches, unit_ids = [], []
    for offset in range(n_batches):
        members = np.full(length, -1, np.int64)
        dealt = np.arange(offset, n_rows, n_batches)
        members[: len(dealt)] = dealt
        real = (members >= 0)[:, None]
        units = Row(np.where(real, values[members], 0.0), observed[members] & real)
        batches.append(Batch(units, real[:, 0].astype(np.float32)))
        unit_ids.append(members)
    return Dataset(tuple(batches), tuple(unit_ids), {"dim": n_dims}, n_rows)
