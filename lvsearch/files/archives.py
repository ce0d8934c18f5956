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
    """Every array of an archive; `name` is what messages call it. Nothing is unpickled.

    Raises ValueError for anything else than an undamaged archive of arrays.
    """
    try:
        archive = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("one array, not an archive of several")
        return {key: archive[key] for key in archive.files}
    except UNREADABLE as error:
        raise ValueError(
            f"{name}: got no readable archive of arrays ({reason(error)}); expected an .npz file as "
            "numpy.savez writes it"
        ) from error
