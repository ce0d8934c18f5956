"""What is written down of a state: quantities with a name, a shape, and axes with names."""

from abc import abstractmethod
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.chains import Sampler
from lvsearch.inference.data.dataset import Dataset


class Quantity(NamedTuple):
    """One of the numbers, or arrays of numbers, that are recorded of every draw of every chain.

    | field | meaning |
    |---|---|
    | `name` | such as "occupied" |
    | `axes` | names of its own axes, those that follow chain and draw; () for a number |
    | `shape` | their lengths, padding left out; None: that of the longest draw, to which others are padded with 0 |
    | `labelled` | whether it changes when components are renamed, so that neither draws nor chains need agree on it |
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int | None, ...]
    labelled: bool

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a draw of this shape is one of the quantity."""
        pairs = zip(shape, self.shape, strict=True) if len(shape) == len(self.shape) else [(0, 1)]
        return all(expected in (None, length) for length, expected in pairs)


class Recorder(eqx.Module):
    """What is recorded of the states of one type of chain. A pytree, its `quantities` static."""

    quantities: eqx.AbstractVar[tuple[Quantity, ...]]

    @abstractmethod
    def values(self, chain: Any, state: Any) -> tuple[Array | np.ndarray, ...]:
        """An array (particles, …) for each quantity of the states of `chain`, each axis at least as long as the
        quantity's: what is beyond is cut off."""


class Nothing(Recorder):
    """Records no more than the loop itself does, the log density."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True, default=())

    def values(self, chain: Any, state: Any) -> tuple[Array, ...]:
        """()"""
        return ()


@singledispatch
def recorder(chain: Sampler, data: Dataset, *, units: bool) -> Recorder:
    """What is worth recording of the states of a chain on `data`.

    units: also what belongs to each unit, such as a document's topics: (chain, draw, unit, …), which may be large.
    """
    return Nothing()


def rows_of_units(data: Dataset) -> Int[np.ndarray, " units"]:
    """Where each unit stands among the rows of all batches, padding included, one batch after another."""
    ids = np.concatenate([np.asarray(each) for each in data.unit_ids])
    rows = np.zeros(data.n_units, np.int64)
    rows[ids[ids >= 0]] = np.flatnonzero(ids >= 0)
    return rows
