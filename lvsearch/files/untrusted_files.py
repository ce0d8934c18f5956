"""Read what may be damaged or come from a stranger: open ordinary files only, and check arrays and JSON data.

- `open_ordinary` and `read_ordinary` refuse pipes and devices, from which reading might never end.
- `read_arrays` returns the arrays of an .npz file or raises one readable error. Nothing is unpickled or decompressed.
- `as_declared` checks that objects made from JSON, which may hold anything, have fields of the types that their classes
  declare.
"""

import io
import os
import re
import stat
import tokenize
import types
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, Union, get_args, get_origin, get_type_hints

import numpy as np

from lvsearch.files.plain_text import one_line
from lvsearch.models.plain_arguments import as_path

READ_AT_ONCE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags for opening a file. Without O_NONBLOCK, opening a pipe would wait for a writer; Windows has neither."""
KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
"""Pairs (test of a file's mode, what passes it in words), for messages."""


def open_ordinary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading bytes.

    Raises OSError where it cannot be opened, ValueError where it is a folder, a pipe, a device or a socket.
    """
    handle = os.open(as_path("path", path), READ_AT_ONCE)
    try:
        require_ordinary(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_ordinary(path: str | os.PathLike[str]) -> bytes:
    """Return all bytes of a file. Raises OSError if it cannot be opened, ValueError if it is no ordinary file."""
    with open_ordinary(path) as file:
        return file.read()


def require_ordinary(path: str | os.PathLike[str], mode: int | None = None) -> None:
    """Raise ValueError if `path` is a folder, a pipe, a device or a socket, and no ordinary file.

    mode: the file's mode as `os.stat` returns it; None to look it up
    """
    mode = as_path("path", path).stat().st_mode if mode is None else mode
    if not stat.S_ISREG(mode):
        kind = next((name for holds, name in KINDS if holds(mode)), "a device")
        raise ValueError(
            f"{path}: got {kind}, expected an ordinary file: what a program writes into a pipe has to be written to a "
            "file first"
        )


UNREADABLE = (
    *(ValueError, OSError, EOFError, KeyError, RuntimeError, SyntaxError, OverflowError, MemoryError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""The exceptions of NumPy and the zip reader for bytes that are no archive of arrays: damaged, encrypted, pickled, or
of a shape beyond all memory."""


def reason(error: BaseException) -> str:
    """Return the message of an exception in one line, without the memory addresses of Python's objects."""
    return re.sub(r"<[^<>]* object at 0x[0-9a-f]+>", "…", one_line(error))


def read_arrays(content: bytes, name: str | Path) -> dict[str, np.ndarray]:
    """Return every array of an .npz file, as {name: array}. Nothing is unpickled, and nothing is decompressed.

    Files whose arrays are larger than the file itself are refused, so that a small file cannot fill the memory.

    content: the bytes of the file
    name: the name of the file, for messages

    Raises ValueError for anything but an undamaged archive of arrays.
    """
    try:
        if not content.startswith((b"PK", b"\x93NUMPY")):  # NumPy would take it for a pickle
            raise ValueError("its first bytes are not those of an archive")
        _refuse_swelling(content)
        archive = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("one array, not an archive of several")
        return {key: archive[key] for key in archive.files}
    except UNREADABLE as error:
        raise ValueError(
            f"{name}: got no readable archive of arrays ({reason(error)}); expected an .npz file as "
            "numpy.savez writes it, of numbers and texts: texts of dtype object as numpy.array(words, dtype=str)"
        ) from error


def _refuse_swelling(content: bytes) -> None:
    """Raise ValueError for a zip archive with compressed members, or with members larger than the archive itself.

    A compressed megabyte may become a terabyte, and `numpy.savez` writes neither kind. Bytes that are no zip archive
    pass; NumPy refuses them later.

    content: the bytes of the archive
    """
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
    packed = [member.filename for member in members if member.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise ValueError(f"compressed members, such as {packed[0][:40]!r}: numpy.savez writes none")
    together = sum(member.file_size for member in members)
    if together > len(content):
        raise ValueError(f"members of {together:,} bytes in an archive of {len(content):,}")


def as_declared(value: Any) -> Any:
    """Return `value`, a dataclass or NamedTuple, if its fields have the types that its class declares.

    Numbers, texts, truth values, and tuples, dictionaries and dataclasses of these are checked, at any depth. Other
    fields, such as lists and arrays, are not. Raises TypeError
    naming the first field of another type.
    """
    hints = get_type_hints(type(value))
    names = getattr(value, "_fields", None) or [entry.name for entry in fields(value)]
    for name in names:
        held = getattr(value, name)
        if not conforms(held, hints[name]):
            raise TypeError(f"{type(value).__name__}.{name} is {str(held)[:40]!r}, of type {type(held).__name__}")
    return value


def conforms(value: Any, hint: Any) -> bool:
    """Return True if a value is of a declared type.

    value: any object
    hint: the type as annotated, such as `tuple[int, ...]` or `str | None`. An int is accepted for a float; a bool is
        accepted for neither. Types that are not checked, such as arrays, accept everything
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(conforms(value, each) for each in inner)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return isinstance(value, tuple) and all(conforms(each, inner[0]) for each in value)
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(conforms, value, inner))
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            conforms(key, inner[0]) and conforms(each, inner[1]) for key, each in value.items()
        )
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        if not isinstance(value, hint):
            return False
        as_declared(value)
    return True
