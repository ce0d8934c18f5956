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
    """Units stacked on a leading axis, with a weight for each.

    A weight is 0 for padding, 1 for a unit, or N / |batch| where the batch is a random minibatch.
    """

    units: Unit
    weight: Float[Array, " _"] | np.ndarray  # batches of one data set differ in length


class UnitBatches(NamedTuple):
    """The units of a data set divided into batches.

    | field | meaning |
    |---|---|
    | `batches` | NumPy leaves; batches of one shape stand together |
    | `unit_ids` | for each batch, which unit of the data set each row is; −1 for padding |
    """

    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]


@runtime_checkable
class Original(Protocol):
    """Units as they came, ragged. Kernels with a layout of their own read them, and batches are made from them.

    `extents` holds the lengths of those axes of the global parameters that the data decide, such as {"word": V}.
    `n_units` is the number of units.
    """

    @property
    def extents(self) -> Mapping[str, int]: ...

    @property
    def n_units(self) -> int: ...

    def to_batches(self) -> UnitBatches:
        """Divide the units into batches of few distinct shapes."""
        ...


@runtime_checkable
class InParts(Original, Protocol):
    """Units that are too many for memory, and can be read one part at a time."""

    def parts(self) -> Iterator[Original]:
        """Yield all units in order, one part at a time."""
        ...


@dataclass(frozen=True)
class PaddedUnits:
    """Units that are batches already: drawn, weighted, or batched in another way."""

    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]
    extents: Mapping[str, int]
    n_units: int

    def to_batches(self) -> UnitBatches:
        return UnitBatches(self.batches, self.unit_ids)


@dataclass(frozen=True)
class Dataset:
    """All units of a data set: the `original`, and batches of few distinct shapes.

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

        The arguments are the fields of `UnitBatches` and `Original`.
        """
        return cls(PaddedUnits(batches, unit_ids, extents, n_units))

    @cached_property
    def _batched(self) -> UnitBatches:
        return self.original.to_batches()

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches, with NumPy leaves. Batches of one shape stand together."""
        return self._batched.batches

    @property
    def unit_ids(self) -> tuple[Int[np.ndarray, " _"], ...]:
        """The unit of the data set that each row of each batch is; −1 for padding."""
        return self._batched.unit_ids

    @property
    def extents(self) -> Mapping[str, int]:
        """The lengths of those axes of the global parameters that the data decide, such as {"word": V}."""
        return self.original.extents

    @property
    def n_units(self) -> int:
        """The number of units, padding not counted."""
        return self.original.n_units

    def in_turn(self) -> Iterator["Dataset"]:
        """Yield the data set part by part, for code that passes over it once.

        A data set that is not `InParts` is yielded whole.
        """
        if not isinstance(self.original, InParts):
            yield self
        else:
            yield from map(Dataset, self.original.parts())

    @property
    def shapes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The distinct shapes of the batches. Each shape is compiled once per capacity."""
        distinct = {tuple(leaf.shape for leaf in jax.tree.leaves(batch.units)) for batch in self.batches}
        return tuple(sorted(distinct))

    def gather(self, per_batch: Sequence[np.ndarray]) -> np.ndarray:
        """Return per-unit results in the order of the data set.

        per_batch: one array (units, …) per batch; results of padding are dropped.
        """
        out = np.zeros((self.n_units, *np.shape(per_batch[0])[1:]), np.asarray(per_batch[0]).dtype)
        for ids, values in zip(self.unit_ids, per_batch, strict=True):
            real = ids >= 0
            out[ids[real]] = np.asarray(values)[real]
        return out
