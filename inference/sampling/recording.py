"""Which quantities of a chain's states are recorded: each has a name, a shape, and named axes."""

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
    | `axes` | names of its own axes, which come after the axes chain and draw; () for a number |
    | `shape` | the lengths of these axes without padding; None for an axis whose length varies between draws |
    | `labelled` | True if its values change when components are renamed (label switching) |

    Neither draws nor chains need to agree on a labelled quantity. Along an axis of length None, draws are padded with 0
    to the longest one.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int | None, ...]
    labelled: bool

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return True if an array of this shape can be one draw of the quantity."""
        pairs = zip(shape, self.shape, strict=True) if len(shape) == len(self.shape) else [(0, 1)]
        return all(expected in (None, length) for length, expected in pairs)


class Recorder(eqx.Module):
    """The base of recorders, which say what is recorded of the states of one type of chain.

    A subclass has `quantities`, what it records (a tuple of `Quantity`: name, axes, shape), and `values`, which returns
    their values in the present states. It is a pytree whose `quantities` are static.
    """

    quantities: eqx.AbstractVar[tuple[Quantity, ...]]

    @abstractmethod
    def values(self, chain: Any, state: Any) -> tuple[Array | np.ndarray, ...]:
        """Return the values of all quantities in the present states of a chain, in the order of `quantities`.

        chain: the sampler.
        state: its states, one for each particle (chain).

        Returns: for each quantity an array (particle, …), whose axes are at least as long as the quantity's. What is
            longer is cut off.
        """


class Nothing(Recorder):
    """A recorder of no quantities. The run loop records the log density all the same."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True, default=())

    def values(self, chain: Any, state: Any) -> tuple[Array, ...]:
        """Return (), since nothing is recorded."""
        return ()


@singledispatch
def recorder(chain: Sampler, data: Dataset, *, units: bool) -> Recorder:
    """Return the recorder for a sampler of some data. Every type of sampler registers its own.

    chain: the sampler.
    data: the data that it runs on.
    units: True to record what belongs to each unit (document, row) too, such as a document's topics. These arrays are
        (chain, draw, unit, …) and may be large.

    Raises TypeError for a sampler that has none: its draws would hold nothing but the log density.
    """
    raise TypeError(f"got a chain of type {type(chain).__name__}, expected one with a recorder: register it")


def rows_of_units(data: Dataset) -> Int[np.ndarray, " units"]:
    """Return where each unit (document, row) stands in the batches put end to end, padding included, (unit,)."""
    ids = np.concatenate([np.asarray(each) for each in data.unit_ids])
    rows = np.zeros(data.n_units, np.int64)
    rows[ids[ids >= 0]] = np.flatnonzero(ids >= 0)
    return rows
