"""The memory that a fit takes: the estimate before it starts, and the chunks that keep it within a budget.

An estimator states a `MemoryPlan` for every size, and works in chunks of the data that `Chunks` controls. There are so
many chunks that the plan stays within a budget. Their size is halved once more each time the device runs out of memory
all the same. Chunks depend only on the data, the size and `Chunks`, so a search resumed with the same `Chunks` gives
the same bits.
"""

import os
import sys
from dataclasses import dataclass
from typing import NamedTuple

import jax
from jax.errors import JaxRuntimeError

KIB, MIB, GIB = 2**10, 2**20, 2**30
HOST_SHARE, DEVICE_SHARE = 0.5, 0.8
"""The share of a machine's memory that fits may take.

A host also holds other things, and a device keeps room for the compiler.
"""


class Part(NamedTuple):
    """The bytes of one kind of array at the worst moment of a fit, all its copies together. `name` says which kind."""

    name: str
    n_bytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a fit of one size needs at its worst moment, beside the data set itself.

    | field | meaning |
    |---|---|
    | `parts` | bytes by kind of array at the moment that needs most |
    | `n_batches` | batches whose expected counts are kept between passes; 0 where none are |
    | `bytes_per_batch` | bytes that one such batch keeps |
    """

    parts: tuple[Part, ...]
    n_batches: int = 0
    bytes_per_batch: int = 0

    @property
    def peak_bytes(self) -> int:
        """The bytes that the fit needs at its worst moment: the sum over kinds of arrays."""
        return sum(part.n_bytes for part in self.parts)

    @property
    def kept_bytes(self) -> int:
        """The bytes that all batches together keep between passes."""
        return self.n_batches * self.bytes_per_batch

    def describe(self, size: str) -> str:
        """Return the plan as one line for people.

        size: the size in words, such as "64 topics".
        """
        text = f"at most about {in_words(self.peak_bytes)} at {size}"
        if self.n_batches:
            several = f"{self.n_batches} batches keep" if self.n_batches > 1 else "one batch keeps"
            text += f" ({several} {in_words(self.kept_bytes)} of counts)"
        return text


class Chunks(NamedTuple):
    """The memory that decides how large the chunks of data are in which a fit works.

    budget_bytes: the most that a memory plan may come to, in bytes.
    halvings: how often memory ran out; each time the chunks are halved.
    """

    budget_bytes: int
    halvings: int = 0

    def halved(self) -> "Chunks":
        """Return chunks half as large, after memory ran out."""
        return self._replace(halvings=self.halvings + 1)


def machine_chunks() -> Chunks:
    """Return chunks whose budget is the memory that this machine has for fits.

    The budget is 0.8 of the device's memory if the device says how much that is, else half of the host's memory.
    """
    stats = jax.local_devices()[0].memory_stats()
    if stats is not None and "bytes_limit" in stats:
        return Chunks(int(DEVICE_SHARE * stats["bytes_limit"]))
    if not hasattr(os, "sysconf"):  # Windows does not say without a further package
        return Chunks(sys.maxsize)
    return Chunks(int(HOST_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))


def out_of_memory(error: BaseException) -> bool:
    """Return True if an error says that memory ran out, on the host or on the device."""
    return isinstance(error, MemoryError) or (isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error))


def in_words(n_bytes: int) -> str:
    """Return a number of bytes in words, such as "1.2 GiB", "48 MiB" or "3 KiB"."""
    if n_bytes >= 0.995 * GIB:
        return f"{n_bytes / GIB:,.1f} GiB"
    return f"{n_bytes / MIB:,.0f} MiB" if n_bytes >= 0.995 * MIB else f"{n_bytes / KIB:,.0f} KiB"
