"""Read the arrays of an .npz file, which may be damaged or come from a stranger, or raise one readable error."""

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
"""The exceptions of NumPy and the zip reader for bytes that are no archive of arrays: damaged, encrypted, pickled, or
of a shape beyond all memory."""


def reason(error: BaseException) -> str:
    """Return the message of an exception in one line, without the memory addresses of Python's objects."""
    return re.sub(r"<[^<>]* object at 0x[0-9a-f]+>", "…", " ".join(str(error).split()))


def read_arrays(content: bytes, name: str | Path) -> dict[str, np.ndarray]:
    """Return every array of an .npz file, as {name: array}. Nothing is unpickled, and nothing is decompressed.

    Files whose arrays are larger than the file itself are refused, so that a small file cannot fill the memory.

    content: the bytes of the file
    name: the name of the file, for messages

    Raises ValueError for anything but an undamaged archive of arrays.
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
