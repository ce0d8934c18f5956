"""Data as the engines see it: the units as they came, and batches of padded units with a weight each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from lvsearch.models.contract import Unit


class Batch(NamedTuple):
    """Units stacked on a leading axis, and the weight of each: 0 = padding, 1, or N / |batch| for a minibatch."""

    units: Unit
    weight: Float[Array, " _"] | np.ndarray  # batches of one data set differ in length


class Cut(NamedTuple):
    """Units cut into batches.

    | field | meaning |
    |---|---|
    | `batches` | NumPy leaves; batches of one shape stand together |
    | `unit_ids` | for each batch, which unit of the data set each row is; −1 for padding |
    """

    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]


@runtime_checkable
class Original(Protocol):
    """Units as they came, ragged: what a kernel with a layout of its own takes, and what batches are cut from.

    `extents`: lengths of the axes of the globals that the data decide, such as {"word": V}; `n_units`: how many.
    """

    @property
    def extents(self) -> Mapping[str, int]: ...

    @property
    def n_units(self) -> int: ...

    def cut(self) -> Cut:
        """Batches of few distinct shapes."""
        ...


@runtime_checkable
class InParts(Original, Protocol):
    """Units too many for memory, which can be had a part at a time."""

    def parts(self) -> Iterator[Original]:
        """All units, in their order."""
        ...


@dataclass(frozen=True)
class PaddedUnits:
    """Units that are batches already: drawn, weighted, or cut otherwise."""

    batches: tuple[Batch, ...]
    unit_ids: tuple[Int[np.ndarray, " _"], ...]
    extents: Mapping[str, int]
    n_units: int

    def cut(self) -> Cut:
        return Cut(self.batches, self.unit_ids)


@dataclass(frozen=True)
class Dataset:
    """All units of a data set: the `original`, and batches of few distinct shapes, which are cut when an engine first
    asks for them."""

    original: Original

    @classmethod
    def of_batches(
        cls,
        batches: tuple[Batch, ...],
        unit_ids: tuple[Int[np.ndarray, " _"], ...],
        extents: Mapping[str, int],
        n_units: int,
    ) -> "Dataset":
        """Of units that are batches already; fields as of `Cut` and `Original`."""
        return cls(PaddedUnits(batches, unit_ids, extents, n_units))

    @cached_property
    def _cut(self) -> Cut:
        return self.original.cut()

    @property
    def batches(self) -> tuple[Batch, ...]:
        """NumPy leaves; batches of one shape stand together."""
        return self._cut.batches

    @property
    def unit_ids(self) -> tuple[Int[np.ndarray, " _"], ...]:
        """For each batch, which unit of the data set each row is; −1 for padding."""
        return self._cut.unit_ids

    @property
    def extents(self) -> Mapping[str, int]:
        """Lengths of the axes of the globals that the data decide, such as {"word": V}."""
        return self.original.extents

    @property
    def n_units(self) -> int:
        """Units, padding not counted."""
        return self.original.n_units

    def in_turn(self) -> Iterator["Dataset"]:
        """The data set part by part, for what passes over it once: itself, unless its units are `InParts`."""
        if not isinstance(self.original, InParts):
            yield self
        else:
            yield from map(Dataset, self.original.parts())

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
