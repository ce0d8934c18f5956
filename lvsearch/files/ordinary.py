"""Open ordinary files only, and refuse pipes and devices, from which reading might never end."""

import os
import stat
from typing import BinaryIO

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
