"""Several processes that run one search together: which they are, and how they come to the same decisions.

Processes of `jax.distributed` run the same program on the same data. Where the devices of a mesh belong to several of
them, each computes its share of the units, and all of them come to every sum over units at the same time, or wait for
each other there. So they must take the same way through the program: whatever could differ between them (a clock,
Ctrl-C, the memory of a machine, rounding on another processor) is said by process 0, `from_first`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather
from jax.sharding import AbstractMesh, Mesh

from lvsearch.inference.messages import decoded, encoded

T = TypeVar("T")

LEAST_BYTES = 1 << 10
"""Messages are filled up to a power of two, at least this one, so that few programs are compiled."""
LOST = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination service", "Connection closed")
"""What errors say where another process did not answer: of collectives on CPUs, on GPUs, of JAX's coordinator."""


ERRORS = {
    kind.__name__: kind
    for kind in (
        ValueError,
        FileExistsError,
        FileNotFoundError,
        NotADirectoryError,
        PermissionError,
        OSError,
        MemoryError,
    )
}
"""What a check may raise in all processes, by name: errors go between them as a name and words."""


class ProcessLostError(RuntimeError):
    """Another process of the search is gone; what process 0 had written is there to go on from."""


def spans_processes(mesh: Mesh | AbstractMesh | None) -> bool:
    """Whether its devices belong to several processes."""
    return isinstance(mesh, Mesh) and len(_processes_of(mesh)) > 1


def writes(mesh: Mesh | None) -> bool:
    """Whether this process is the one that writes files, prints and draws."""
    return not spans_processes(mesh) or jax.process_index() == 0


def check_all_take_part(mesh: Mesh) -> None:
    """Raises ValueError for a mesh of other processes, or of some of them only: those would wait for the others."""
    found = _processes_of(mesh)
    if found != {jax.process_index()} and found != set(range(jax.process_count())):
        raise ValueError(
            f"got a mesh with devices of processes {sorted(found)} in process {jax.process_index()} of "
            f"{jax.process_count()}, expected devices of this process alone (jax.local_devices()) or of all "
            "(jax.devices())"
        )


def said_by(process: int, value: T) -> T:
    """What this process calls it with: every process has to, and goes on once all of them have.

    Data and no programs go between processes: see `lvsearch.inference.messages`, whose errors it raises.
    """
    ours = jax.process_index() == process
    said = np.frombuffer(encoded(value), np.uint8) if ours else np.zeros(0, np.uint8)
    length = int(broadcast_one_to_all(np.asarray(said.size, np.int32), is_source=ours))
    filled = np.zeros(max(LEAST_BYTES, 1 << (length - 1).bit_length()), np.uint8)
    filled[: said.size] = said
    return decoded(np.asarray(broadcast_one_to_all(filled, is_source=ours))[:length].tobytes(), value)


def from_first(value: T) -> T:
    """What process 0 has: see `said_by`."""
    return said_by(0, value)


def all_are_here(mesh: Mesh | None) -> None:
    """Go on once every process of the mesh has come here."""
    if spans_processes(mesh):
        from_first(None)


def checked_by_first(mesh: Mesh | None, check: Callable[[], object]) -> None:
    """Call it, of a mesh of several processes in process 0 alone: what it raises there all of them raise, the others as
    the nearest of `ERRORS`, with its words."""
    if not spans_processes(mesh):
        check()
        return
    caught = None
    if jax.process_index() == 0:
        try:
            check()
        except (ValueError, OSError, MemoryError) as error:
            caught = error
    said = from_first(None if caught is None else (_nearest(caught), str(caught)))
    if caught is not None:
        raise caught
    if said is not None:
        name, words = said
        raise ERRORS[name](words)


def _nearest(error: Exception) -> str:
    """The name in `ERRORS` of the first class of an error that is there."""
    return next(kind.__name__ for kind in type(error).__mro__ if ERRORS.get(kind.__name__) is kind)


def check_same(mesh: Mesh | None, what: str, digest: Callable[[], str]) -> None:
    """Raises ValueError, in every process of the mesh, where they have not all the same."""
    if spans_processes(mesh):
        ours = digest()
        same = process_allgather(np.asarray(ours == from_first(ours)))
        if not same.all():
            raise ValueError(
                f"got another {what} in process {np.flatnonzero(~same).tolist()} than in process 0, expected the same "
                "in all: each reads all of the data, and units are dealt to the devices afterwards"
            )


@contextmanager
def noticing_loss(mesh: Mesh | None) -> Iterator[None]:
    """Inside: errors of collectives are `ProcessLostError`, which says what to do."""
    try:
        yield
    except JaxRuntimeError as error:
        if not (spans_processes(mesh) and any(words in str(error) for words in LOST)):
            raise
        message = (
            f"process {jax.process_index()} of {jax.process_count()} got no answer from another one, which was killed, "
            "failed or cannot be reached. Start all of them again: lv.resume(folder), or lvsearch resume, goes on with "
            "a search that had out="
        )
        print(f"lvsearch: {message}", file=sys.stderr, flush=True)  # JAX may end this process before Python can say so
        raise ProcessLostError(message) from error


def _processes_of(mesh: Mesh) -> set[int]:
    return {device.process_index for device in mesh.devices.ravel()}
