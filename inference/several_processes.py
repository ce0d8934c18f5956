"""Lets several processes run one search together: which they are, and how they reach the same decisions.

Processes of `jax.distributed` run the same program on the same data. The devices of a mesh may belong to several of
them. Each then computes its share of the units, and waits for the others at every sum over units. So all of them must
take the same way through the program. Whatever could differ between them is decided by process 0 and sent to all by
`broadcast_from_first`: a clock, Ctrl-C, the memory of a machine, rounding on another processor.
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

from lvsearch.inference.messages import decode, encode

T = TypeVar("T")

LEAST_BYTES = 1 << 10
"""Messages are padded to a power of two, at least this one, so that few programs are compiled."""
LOST = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination service", "Connection closed")
"""Words in error messages that mean another process did not answer: from CPU and GPU collectives and JAX's coordinator.
"""


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
    """Another process of the search is gone. What process 0 had written is still there to resume from."""


def spans_processes(mesh: Mesh | AbstractMesh | None) -> bool:
    """Return True if the devices of the mesh belong to several processes."""
    return isinstance(mesh, Mesh) and len(_processes_of(mesh)) > 1


def is_writing_process(mesh: Mesh | None) -> bool:
    """Return True if this process is the one that writes files, prints and draws: process 0, or the only one."""
    return not spans_processes(mesh) or jax.process_index() == 0


def check_all_take_part(mesh: Mesh) -> None:
    """Raise ValueError unless the mesh has devices of this process alone, or of all processes.

    Some of several processes would wait for the others for ever.
    """
    found = _processes_of(mesh)
    if found != {jax.process_index()} and found != set(range(jax.process_count())):
        raise ValueError(
            f"got a mesh with devices of processes {sorted(found)} in process {jax.process_index()} of "
            f"{jax.process_count()}, expected devices of this process alone (jax.local_devices()) or of all "
            "(jax.devices())"
        )


def broadcast_from(process: int, value: T) -> T:
    """Return, in every process, the value that process number `process` passed to this call.

    Every process must make the call, and continues once all of them have. Data and no programs go between processes
    (`lvsearch.inference.messages`).

    process: the number of the process whose value is sent.
    value: the value. In the other processes it serves as pattern: its classes and its parts that are no data are used.

    Raises `MessageError` for a value that cannot be sent.
    """
    ours = jax.process_index() == process
    said = np.frombuffer(encode(value), np.uint8) if ours else np.zeros(0, np.uint8)
    length = int(broadcast_one_to_all(np.asarray(said.size, np.int32), is_source=ours))
    filled = np.zeros(max(LEAST_BYTES, 1 << (length - 1).bit_length()), np.uint8)
    filled[: said.size] = said
    return decode(np.asarray(broadcast_one_to_all(filled, is_source=ours))[:length].tobytes(), value)


def broadcast_from_first(value: T) -> T:
    """Return, in every process, the value that process 0 passed to this call. Every process must make the call."""
    return broadcast_from(0, value)


def wait_for_all(mesh: Mesh | None) -> None:
    """Wait until every process of the mesh has made this call."""
    if spans_processes(mesh):
        broadcast_from_first(None)


def check_in_first_process(mesh: Mesh | None, check: Callable[[], object]) -> None:
    """Run a check in process 0 alone, and raise the error that it raises there in all processes.

    The other processes raise the nearest class in `ERRORS`, with the words of the error of process 0.

    check: a function without arguments that raises ValueError, OSError or MemoryError if the check fails.
    """
    if not spans_processes(mesh):
        check()
        return
    caught = None
    if jax.process_index() == 0:
        try:
            check()
        except (ValueError, OSError, MemoryError) as error:
            caught = error
    said = broadcast_from_first(None if caught is None else (_nearest(caught), str(caught)))
    if caught is not None:
        raise caught
    if said is not None:
        name, words = said
        raise ERRORS[name](words)


def _nearest(error: Exception) -> str:
    """Return the name in `ERRORS` of the nearest class that an error is an instance of."""
    return next(kind.__name__ for kind in type(error).__mro__ if ERRORS.get(kind.__name__) is kind)


def check_same(mesh: Mesh | None, what: str, digest: Callable[[], str]) -> None:
    """Raise ValueError in every process of the mesh unless `digest` gives the same text in all of them.

    what: the name of the compared thing, for the message.
    digest: a function without arguments that returns a text, such as a hash of the data.
    """
    if spans_processes(mesh):
        ours = digest()
        same = process_allgather(np.asarray(ours == broadcast_from_first(ours)))
        if not same.all():
            raise ValueError(
                f"got another {what} in process {np.flatnonzero(~same).tolist()} than in process 0, expected the same "
                "in all: each reads all of the data, and units are dealt to the devices afterwards"
            )


@contextmanager
def reporting_lost_processes(mesh: Mesh | None) -> Iterator[None]:
    """Return a context in which a lost process is reported as `ProcessLostError`, whose message says what to do.

    Operations over several processes raise JAX's errors when a process does not answer; these are replaced. Other
    errors stay as they are.
    """
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
    """Return the numbers of the processes that the mesh's devices belong to."""
    return {device.process_index for device in mesh.devices.ravel()}
