"""The quantities that are recorded of a chain's states: each has a name, a shape, and named axes."""

from abc import abstractmethod
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.chains import Sampler
from lvsearch.inference.data.dataset import Dataset


class Quantity(NamedTuple):
    """A number, or an array of numbers, that is recorded of every draw of every chain.

    | field | meaning |
    |---|---|
    | `name` | its name, such as "occupied" |
    | `axes` | names of its own axes, which follow chain and draw; () for a number |
    | `shape` | the lengths of these axes without padding; None for an axis whose length varies between draws |
    | `labelled` | True if it changes when components are renamed, so that neither draws nor chains need agree on it |

    Along an axis of length None, draws are padded with 0 to the longest one.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int | None, ...]
    labelled: bool

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return True if a draw of this shape can be a draw of the quantity."""
        pairs = zip(shape, self.shape, strict=True) if len(shape) == len(self.shape) else [(0, 1)]
        return all(expected in (None, length) for length, expected in pairs)


class Recorder(eqx.Module):
    """The base of recorders: which quantities are recorded of the states of one type of chain.

    It is a pytree whose `quantities` are static.
    """

    quantities: eqx.AbstractVar[tuple[Quantity, ...]]

    @abstractmethod
    def values(self, chain: Any, state: Any) -> tuple[Array | np.ndarray, ...]:
        """Return the values of each quantity in the states of `chain`, in the order of `quantities`.

        Returns: for each quantity an array (particles, …), whose axes are at least as long as the quantity's. The rest
            is cut off.
        """


class Nothing(Recorder):
    """A recorder of nothing. The loop records the log density all the same."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True, default=())

    def values(self, chain: Any, state: Any) -> tuple[Array, ...]:
        """Return ()."""
        return ()


@singledispatch
def recorder(chain: Sampler, data: Dataset, *, units: bool) -> Recorder:
    """Return the recorder for a chain on `data`; by default it records nothing but the log density.

    units: True to record what belongs to each unit too, such as a document's topics, (chain, draw, unit, …), which may
        be large.
    """
    return Nothing()


def rows_of_units(data: Dataset) -> Int[np.ndarray, " units"]:
    """Return the number of each unit's row among the rows of all batches, padding included, (units,)."""
    ids = np.concatenate([np.asarray(each) for each in data.unit_ids])
    rows = np.zeros(data.n_units, np.int64)
    rows[ids[ids >= 0]] = np.flatnonzero(ids >= 0)
    return rows
