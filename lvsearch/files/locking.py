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

LOCK = ".lock"
_BEYOND_THE_TEXT = 1 << 20
"""Windows locks bytes, which nobody else can then read: this one is none of the text's."""
_NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}


class FolderInUseError(OSError):
    """Another process, or another search of this one, writes to the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder.

    File systems without locks are written to as they are. Raises `FolderInUseError` where somebody else holds the lock,
    at once, and OSError for a folder that cannot be written to.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _taken(handle):
            raise FolderInUseError(
                f"{folder} is in use by {_holder(folder)}: wait until it is done or stop it, or choose another folder"
            )
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        os.close(handle)


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
