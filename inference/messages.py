"""Turns values into bytes and back, for processes that exchange data and no programs.

Unpickling runs whatever code the sender of a pickle likes. The messages here hold only JSON and the numbers of arrays.
A record (a dataclass, a NamedTuple, or a module of Equinox) is sent as the values of its fields. The receiver builds
the record again from a class that it knows already: a class of lvsearch, or the class of its own value. Values that are
no data, such as functions, are not sent, and the receiver keeps its own.

A message is the length of its JSON (8 bytes, little-endian), the JSON, and the arrays' numbers one after another.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import jax
import numpy as np

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
