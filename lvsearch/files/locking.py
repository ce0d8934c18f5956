"""Make sure that only one process at a time writes to a folder.

The operating system holds the lock on the open file `.lock`, and releases it however the process ends. So nothing has
to be removed by hand after a kill. The file itself stays, and says which process had the lock last.
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
"""The name of the lock file in a folder."""
_BEYOND_THE_TEXT = 1 << 20
"""The byte that is locked on Windows, behind the text, since locked bytes cannot be read by others."""
_AS_IT_STANDS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for opening the lock. A link is refused, because the file it leads to would be emptied. A pipe is not
waited for.
"""
_NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}
"""The error numbers by which a file system says that it has no locks."""


class FolderInUseError(OSError):
    """Raised if another process, or another search of this process, writes to the folder."""


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder inside this context.

    File systems without locks are written to without one. Raises `FolderInUseError` at once if somebody else holds the
    lock. Raises ValueError if a pipe or a device is in its place, and OSError for a folder that cannot be written to or
    a lock that is a link.
    """
    place = folder.absolute()
    handle = _open_lock(folder)
    _held[place] = handle
    try:
        yield
    finally:
        os.close(_held.pop(place))


def hold_again(folder: Path) -> None:
    """Take the lock of a folder again if somebody removed and remade the folder while this process held the lock.

    Otherwise it does nothing.

    Raises `FolderInUseError` if somebody else holds the lock meanwhile, ValueError if a pipe or a device is in its
    place, and OSError if it cannot be opened.
    """
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
    before, _held[place] = _held[place], _open_lock(folder)
    os.close(before)


_held: dict[Path, int] = {}
"""The open lock file of every folder that this process holds."""


def _open_lock(folder: Path) -> int:
    """Open the lock file of a folder, take the lock, and return the handle of the file, a number.

    Raises `FolderInUseError` if somebody else holds the lock, ValueError if a pipe or a device is in its place, and
    OSError if it cannot be opened.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | _AS_IT_STANDS, 0o666)
    try:
        require_ordinary(folder / LOCK, os.fstat(handle).st_mode)
        if not _try_lock(handle):
            raise FolderInUseError(
                f"{folder} is in use by {_holder(folder)}: wait until it is done or stop it, or choose another folder"
            )
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except BaseException:
        os.close(handle)
        raise
    return handle


def _try_lock(handle: int) -> bool:
    """Try to take the lock, and return True if this process has it now, or if the file system has no locks."""
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
    """Return who last held the lock of a folder, such as "process 4711 on server", as a hint for messages."""
    text = (folder / LOCK).read_text(encoding="utf-8", errors="replace").strip()
    return text if text.isprintable() and text else "another process"
