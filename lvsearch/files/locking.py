"""One writer at a time in a folder.

The system holds the lock, on the open file `.lock`, and lets it go however the process ends: after a kill nothing has
to be removed by hand. The file itself stays, and says which process had it last.
"""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lvsearch.files.ordinary import require_ordinary

LOCK = ".lock"
_BEYOND_THE_TEXT = 1 << 20
"""Windows locks bytes, which nobody else can then read: this one is none of the text's."""
_AS_IT_STANDS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""The lock is emptied when it is taken: a link there would have another file emptied. A pipe is not waited for."""
_NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}


class FolderInUseError(OSError):
    """Another process, or another search of this one, writes to the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder.

    File systems without locks are written to as they are. Raises `FolderInUseError` where somebody else holds the lock,
    at once, ValueError where a pipe or a device stands in its place, and OSError for a folder that cannot be written to
    and for a lock that is a link.
    """
    place = folder.absolute()
    handle = _take(folder)
    _held[place] = handle
    try:
        yield
    finally:
        os.close(_held.pop(place))


def hold_again(folder: Path) -> None:
    """Take the lock anew of a folder that this process holds, and that somebody has removed meanwhile and who writes
    made again; else nothing. Raises as `locked` does."""
    place = folder.absolute()
    if place not in _held:
        return
    ours = os.fstat(_held[place])
    try:
        there = (folder / LOCK).stat(follow_symlinks=False)
        if os.path.samestat(ours, there):
            return
    except FileNotFoundError:
        pass
    before, _held[place] = _held[place], _take(folder)
    os.close(before)


_held: dict[Path, int] = {}
"""The open lock of every folder that this process holds."""


def _take(folder: Path) -> int:
    """The open file of the lock, which is ours now. Errors as for `locked`."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | _AS_IT_STANDS, 0o666)
    try:
        require_ordinary(folder / LOCK, os.fstat(handle).st_mode)
        if not _taken(handle):
            raise FolderInUseError(
                f"{folder} is in use by {_holder(folder)}: wait until it is done or stop it, or choose another folder"
            )
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except BaseException:
        os.close(handle)
        raise
    return handle


def _taken(handle: int) -> bool:
    """Whether the lock is ours now."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(handle, _BEYOND_THE_TEXT, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS_HERE
    return True


def _holder(folder: Path) -> str:
    """Who wrote last into the lock, which is no more than a hint."""
    text = (folder / LOCK).read_text(encoding="utf-8", errors="replace").strip()
    return text if text.isprintable() and text else "another process"
