"""Lets several processes run one search together: which they are, and how they reach the same decisions.

Processes of `jax.distributed` run the same program on the same data. The devices of a mesh may belong to several of
them. Each then computes its share of the units, and waits for the others at every sum over units. So all of them must
take the same way through the program. Whatever could differ between them is decided by process 0 and sent to all by
`broadcast_from_first`: a clock, Ctrl-C, the memory of a machine, rounding on another processor.

Values go between processes as messages (`encode`, `decode`), which hold data and no programs.

Unpickling runs whatever code the sender of a pickle likes. The messages here hold only JSON and the numbers of arrays.
A record (a dataclass, a NamedTuple, or a module of Equinox) is sent as the values of its fields. The receiver builds
the record again from a class that it knows already: a class of lvsearch, or the class of its own value. Values that are
no data, such as functions, are not sent, and the receiver keeps its own.

A message is the length of its JSON (8 bytes, little-endian), the JSON, and the arrays' numbers one after another.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather
from jax.sharding import AbstractMesh, Mesh

OURS = "lvsearch."
HEAD = 8
PLAIN = (bool, int, float, str, type(None))
KINDS_OF_NUMBERS = "biuf"


class MessageError(ValueError):
    """An error about bytes that are no message, or a message that this process cannot turn into a value."""


def encode(value: Any) -> bytes:
    """Return the message of a value as bytes.

    value: plain data, arrays, and records, tuples, lists and dicts of them.
    """
    arrays: list[bytes] = []
    text = json.dumps(_encode(value, arrays)).encode()
    return b"".join([len(text).to_bytes(HEAD, "little"), text, *arrays])


def decode(message: bytes, own: Any = None) -> Any:
    """Return the value of a message.

    message: bytes that `encode` returned.
    own: the value of the same structure that this process has itself, if it has one. Its classes may be used for
        records, and its parts take the place of parts that were no data.

    Raises `MessageError` for bytes that are no message, and for classes that this process does not know.
    """
    end = HEAD + int.from_bytes(message[:HEAD], "little")
    try:
        value, used = _Decoder(message, end).value(json.loads(message[HEAD:end]), own)
    except MessageError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise MessageError(f"got bytes that are no message of lvsearch ({error!r})") from error
    if used != len(message):
        raise MessageError(f"got a message of {len(message):,} bytes, expected {used:,}")
    return value


def _encode(value: Any, arrays: list[bytes]) -> list[Any]:
    """Return a value as JSON-ready lists, and append the bytes of its arrays to `arrays`.

    Each list begins with the kind of the value, such as "plain", "array", "record", or "own" for a value that is not
    sent.
    """
    if type(value) in PLAIN:
        return ["plain", value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        content = np.asarray(value)
        if content.dtype.kind in KINDS_OF_NUMBERS:
            arrays.append(np.ascontiguousarray(content).tobytes())
            kind = "jax" if isinstance(value, jax.Array) else "scalar" if isinstance(value, np.generic) else "array"
            return [kind, content.dtype.str, content.shape]
    if type(value) in (tuple, list):
        return [type(value).__name__, [_encode(each, arrays) for each in cast(list, value)]]
    if type(value) is dict:
        return ["dict", [[_encode(key, arrays), _encode(each, arrays)] for key, each in cast(dict, value).items()]]
    names = _field_names(type(value))
    if names is not None:
        kind = type(value)
        return ["record", kind.__module__, kind.__qualname__, [_encode(getattr(value, name), arrays) for name in names]]
    return ["own"]


class _Decoder:
    """A reader of one message, which makes values from its JSON and takes the numbers of arrays from the bytes behind
    it.

    Array bytes are read in the order in which they were written.
    """

    def __init__(self, message: bytes, place: int):
        """Keep the message, and the position in bytes at which the numbers of its arrays begin, `place`."""
        self.message, self.place = message, place

    def value(self, node: Sequence[Any], own: Any) -> tuple[Any, int]:
        """Return (the value of a JSON node, how many bytes of the message have been read).

        node: JSON that `_encode` made. own: this process's own value of the same structure, or None.
        """
        return self._value(node, own), self.place

    def _value(self, node: Sequence[Any], own: Any) -> Any:
        """Return the value of one JSON node, by the kind that the node begins with."""
        makers: Mapping[str, Callable[..., Any]] = {
            "plain": self._plain,
            "array": self._array,
            "scalar": lambda own, *rest: self._array(own, *rest)[()],
            "jax": lambda own, *rest: jax.numpy.asarray(self._array(own, *rest)),
            "tuple": lambda own, entries: tuple(self._entries(entries, own)),
            "list": lambda own, entries: self._entries(entries, own),
            "dict": self._dict,
            "record": self._record,
            "own": self._own_value,
        }
        return makers[node[0]](own, *node[1:])

    def _plain(self, own: Any, value: Any) -> Any:
        """Return a number, a text, a truth value or None as it is. Raises `MessageError` for anything else."""
        if type(value) not in PLAIN:
            raise MessageError(f"got {str(value)[:40]!r} in a message, expected a number, a text or nothing")
        return value

    def _array(self, own: Any, dtype: str, shape: Sequence[int]) -> np.ndarray:
        """Return the next array of the message, read from its bytes.

        dtype: the array's NumPy type as text. shape: the lengths of its axes.

        Raises `MessageError` for a type that holds no numbers, and if the message is too short.
        """
        kind = np.dtype(dtype)
        if kind.kind not in KINDS_OF_NUMBERS or any(type(n) is not int or n < 0 for n in shape):
            raise MessageError(f"got an array of type {dtype!r} and shape {shape} in a message, expected numbers")
        first, self.place = self.place, self.place + kind.itemsize * int(np.prod(shape, dtype=object))
        if self.place > len(self.message):
            raise MessageError(f"got a message of {len(self.message):,} bytes, expected at least {self.place:,}")
        return np.frombuffer(self.message[first : self.place], kind).reshape(shape).copy()

    def _entries(self, entries: Sequence[Any], own: Any) -> list[Any]:
        """Decode several JSON nodes and return their values, as a list.

        entries: the nodes.
        own: this process's own counterpart of the sequence. Its n-th entry stands in for values of the n-th node that
            are not sent. Where it is no tuple or list, or is too short, nothing stands in.
        """
        theirs = list(own) if isinstance(own, tuple | list) else []
        return [self._value(each, theirs[n] if n < len(theirs) else None) for n, each in enumerate(entries)]

    def _dict(self, own: Any, entries: Sequence[Any]) -> dict[Any, Any]:
        """Return the dictionary made from pairs of nodes (key, value).

        entries: the pairs of nodes.
        own: this process's own counterpart. Its value of an equal key stands in for values that are not sent.
        """
        found = {}
        for key_node, node in entries:
            key = self._value(key_node, None)
            found[key] = self._value(node, own.get(key) if isinstance(own, dict) else None)
        return found

    def _record(self, own: Any, module: str, name: str, entries: Sequence[Any]) -> Any:
        """Return a record of the named class with the fields of the message. No code of the class is run.

        module, name: the class, by its module and qualified name. entries: one node for each field.

        Raises `MessageError` for an unknown class or a wrong number of fields.
        """
        kind = type(own) if (type(own).__module__, type(own).__qualname__) == (module, name) else _known(module, name)
        names = _field_names(kind)
        if names is None or len(names) != len(entries):
            raise MessageError(f"got {len(entries)} fields of {module}.{name} in a message, expected {names}")
        values = [self._value(node, getattr(own, field, None)) for field, node in zip(names, entries, strict=True)]
        if issubclass(kind, tuple):
            return kind(*values)
        made = object.__new__(kind)  # as it was: nothing of the class is run
        for field, value in zip(names, values, strict=True):
            object.__setattr__(made, field, value)
        return made

    def _own_value(self, own: Any) -> Any:
        """Return this process's own value in place of one that was not sent. Raises `MessageError` if it has none."""
        if own is None:
            raise MessageError("got a value in a message that is no data, and have none of my own for it")
        return own


def _field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a NamedTuple class, a dataclass or an Equinox module; None for any other
    class.
    """
    names: tuple[str, ...] | None = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and names is not None:
        return names
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def _known(module: str, name: str) -> type:
    """Return the class of lvsearch with this module and qualified name, if it is imported already.

    Raises `MessageError` for any other class.
    """
    found = sys.modules.get(module) if isinstance(module, str) and module.startswith(OURS) else None
    for part in str(name).split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or found.__module__ != module:
        raise MessageError(f"got the class {module}.{name} in a message, expected one of lvsearch")
    return found


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
    (`lvsearch.inference.several_processes`).

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
