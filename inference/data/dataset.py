"""Data sets as the inference engines see them: the units as they came, and batches of padded units with weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.models.contract import Unit


class Batch(NamedTuple):
    """Units (such as documents or rows) stacked on a leading axis, with a weight for each.

    A weight is 0 for padding and 1 for a unit. In a random minibatch it is the number of all units over the number in
    the batch.
    """

    units: Unit
    weight: Float[Array, " _"] | np.ndarray  # batches of one data set differ in length


class UnitBatches(NamedTuple):
    """The units of a data set divided into batches.

    | field | meaning |
    |---|---|
    | `batches` | units as NumPy arrays, with weights; batches of one shape stand together |
    | `unit_ids` | for each batch, the number in the data set of the unit in each row; −1 for padding |
    """

    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]


@runtime_checkable
class Original(Protocol):
    """Units in the form in which they came, such as ragged documents. Kernels with a layout of their own read them.

    Batches are made from them. `extents` holds the lengths of those axes of the global parameters that the data decide,
    such as {"word": number of words}. `n_units` is the number of units.
    """

    @property
    def extents(self) -> Mapping[str, int]:
        """The lengths of those axes of the global parameters that the data decide, as {axis: length}."""
        ...

    @property
    def n_units(self) -> int:
        """The number of units."""
        ...

    def to_batches(self) -> UnitBatches:
        """Return the units divided into batches of few distinct shapes."""
        ...


@runtime_checkable
class InParts(Original, Protocol):
    """Units that are too many for memory, and can be read one part at a time."""

    def parts(self) -> Iterator[Original]:
        """Yield all units in order, one part at a time, each part as units that fit in memory."""
        ...


@dataclass(frozen=True)
class PaddedUnits:
    """Units that are batches already, because they were drawn, weighted, or batched in another way. The fields are as
    in `UnitBatches` and `Original`.
    """

    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]
    extents: Mapping[str, int]
    n_units: int

    def to_batches(self) -> UnitBatches:
        """Return the batches as they are."""
        return UnitBatches(self.batches, self.unit_ids)


@dataclass(frozen=True)
class Dataset:
    """All units of a data set: in the form in which they came (`original`), and as batches of few distinct shapes.

    The batches are made when an engine first asks for them.
    """

    original: Original

    @classmethod
    def of_batches(
        cls,
        batches: tuple[Batch, ...],
        unit_ids: tuple[Int[np.ndarray, " _"], ...],
        extents: Mapping[str, int],
        n_units: int,
    ) -> "Dataset":
        """Return the data set of units that are batches already.

        batches: units with weights.
        unit_ids: for each batch, the number of the unit in each row, (row,); −1 for padding.
        extents: lengths of the axes of the global parameters that the data decide, such as {"word": number of words}.
        n_units: the number of units, padding not counted.
        """
        return cls(PaddedUnits(batches, unit_ids, extents, n_units))

    @cached_property
    def _batched(self) -> UnitBatches:
        """The units divided into batches, made once."""
        return self.original.to_batches()

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches, with NumPy leaves. Batches of one shape stand together."""
        return self._batched.batches

    @property
    def unit_ids(self) -> tuple[Int[np.ndarray, " _"], ...]:
        """The number in the data set of the unit in each row of each batch, (row,); −1 for padding."""
        return self._batched.unit_ids

    @property
    def extents(self) -> Mapping[str, int]:
        """The lengths of those axes of the global parameters that the data decide, such as {"word": number of
        words}.
        """
        return self.original.extents

    @property
    def n_units(self) -> int:
        """The number of units, padding not counted."""
        return self.original.n_units

    def iter_parts(self) -> Iterator["Dataset"]:
        """Yield the data set part by part, each part as a `Dataset`, for code that passes over all units once.

        A data set that is not `InParts` is yielded whole.
        """
        if not isinstance(self.original, InParts):
            yield self
        else:
            yield from map(Dataset, self.original.parts())

    @property
    def shapes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The distinct shapes of the arrays of a batch's units. Each shape is compiled once per capacity (number of
        component slots).
        """
        distinct = {tuple(leaf.shape for leaf in jax.tree.leaves(batch.units)) for batch in self.batches}
        return tuple(sorted(distinct))

    def units_in_order(self) -> Unit:
        """Return all units stacked on a leading axis, in the order of the data set, as NumPy arrays.

        Units that differ in length are padded with zeros to the longest.
        """
        places = np.concatenate(self.unit_ids)
        order = np.argsort(places, kind="stable")[np.count_nonzero(places < 0) :]
        return jax.tree.map(lambda *leaves: _end_to_end(leaves)[order], *(batch.units for batch in self.batches))

    def gather(self, per_batch: Sequence[np.ndarray]) -> np.ndarray:
        """Return results per unit in the order of the data set, (units, …).

        per_batch: one array (row, …) per batch; results of padding are dropped.
        """
        out = np.zeros((self.n_units, *np.shape(per_batch[0])[1:]), np.asarray(per_batch[0]).dtype)
        for ids, values in zip(self.unit_ids, per_batch, strict=True):
            real = ids >= 0
            out[ids[real]] = np.asarray(values)[real]
        return out


def _end_to_end(leaves: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return arrays one after another on the leading axis; other axes are padded with zeros to the longest."""
    longest = np.max([np.shape(leaf)[1:] for leaf in leaves], axis=0)
    padded = [
        np.pad(leaf, [(0, 0), *((0, int(to) - have) for have, to in zip(np.shape(leaf)[1:], longest, strict=True))])
        for leaf in leaves
    ]
    return np.concatenate(padded)
