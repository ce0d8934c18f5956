"""The arrays of an .npz file, or one readable error: such files come from other people, and from damaged disks."""

import io
import re
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

UNREADABLE = (
    *(ValueError, OSError, EOFError, KeyError, RuntimeError, SyntaxError, OverflowError, MemoryError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What NumPy and the zip reader raise on bytes that are no archive of arrays, damaged, encrypted or pickled, or of a
shape beyond all memory."""


def reason(error: BaseException) -> str:
    """What such an error says, in one line, without the addresses of Python's objects."""
    return re.sub(r"<[^<>]* object at 0x[0-9a-f]+>", "…", " ".join(str(error).split()))


def read_arrays(content: bytes, name: str | Path) -> dict[str, np.ndarray]:
    """Every array of an archive; `name` is what messages call it. Nothing is unpickled, and nothing unpacked: an
    archive may not hold more than its own bytes.

    Raises ValueError for anything else than an undamaged archive of arrays.
    """
    try:
        _refuse_swelling(content)
        archive = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("one array, not an archive of several")
        return {key: archive[key] for key in archive.files}
    except UNREADABLE as error:
        raise ValueError(
            f"{name}: got no readable archive of arrays ({reason(error)}); expected an .npz file as "
            "numpy.savez writes it"
        ) from error


def _refuse_swelling(content: bytes) -> None:
    """Raise ValueError for members that are compressed, or hold more than the archive: a megabyte may become a
    terabyte, and `numpy.savez` writes neither. What is no archive is left to NumPy."""
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
