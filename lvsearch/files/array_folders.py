"""Write arrays that are too large for memory to a folder piece by piece, and open them as memory maps.

Each array is a file of plain numbers, little-endian, without a header. `manifest.json` holds their types, lengths and
SHA-256 checksums. A folder is written under a temporary name and then renamed, so that it is complete when it appears.

Opening a folder checks the manifest's own checksum, and that every file is there with its full length. This is cheap,
and finds files that were cut off or left out. `verify_arrays` reads everything and compares checksums. The caller
decides when to do that.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lvsearch.files.storage import (
    MANIFEST,
    CorruptFolderError,
    digest_of,
    is_plain,
    ordered_json,
    refuse_existing,
    write_bytes,
)
from lvsearch.files.untrusted_files import read_ordinary
from lvsearch.inference.data.mapped import FileArray

FORMAT = "lvsearch arrays, version 1"
ENDING = ".bin"
"""The ending of the file of each array."""
BYTES_AT_ONCE = 1 << 24
"""The number of bytes that are read at once to compute a checksum."""


class ArrayWriter:
    """A file of one array, to which values can be appended.

    path: the file
    dtype: the NumPy type of the values; they are written little-endian
    """

    def __init__(self, path: Path, dtype: Any):
        self.path, self.dtype, self.length = path, np.dtype(dtype).newbyteorder("<"), 0
        self._digest = hashlib.sha256()
        self._file: BinaryIO = path.open("wb")

    def append(self, values: np.ndarray) -> None:
        """Append values, shape (entries,), to the array. Raises OSError if the disk is full."""
        content = np.ascontiguousarray(values, self.dtype).view(np.uint8).data
        self._digest.update(content)
        self._file.write(content)
        self.length += len(values)

    def finish_array(self) -> dict[str, Any]:
        """Close the array for good, and return its entry in the manifest: {"dtype", "length", "sha256"}."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"dtype": self.dtype.str, "length": self.length, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Close the file without completing the array, after an error."""
        self._file.close()


class FolderWriter:
    """Writes a folder of arrays. Use the context manager `new_array_folder`, which yields one.

    folder: an existing, empty folder
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._writers: dict[str, ArrayWriter] = {}
        self._entries: dict[str, dict[str, Any]] = {}

    def append(self, name: str, values: np.ndarray, dtype: Any = None) -> None:
        """Append values, shape (entries,), to the array of this name, which is begun if it does not exist.

        dtype: the NumPy type of a new array; None for the type of its first values
        """
        if name not in self._writers:
            path = self.folder / f"{name}{ENDING}"
            self._writers[name] = ArrayWriter(path, values.dtype if dtype is None else dtype)
        self._writers[name].append(values)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays, in the order in which they were begun."""
        return tuple(self._writers)

    def length(self, name: str) -> int:
        """Return the number of entries of an array so far."""
        return self._writers[name].length

    def finish_array(self, name: str) -> FileArray:
        """Close the array of this name for good, and return it for reading."""
        writer = self._writers[name]
        self._entries[name] = writer.finish_array()
        return FileArray(writer.path, writer.dtype, writer.length)

    def drop(self, name: str) -> None:
        """Remove an array that was only needed while others were written."""
        writer = self._writers.pop(name)
        del self._entries[name]
        writer.path.unlink()

    def finish(self, body: Any) -> None:
        """Write the manifest, which completes the folder. Every array must have been closed with `finish_array`.

        body: any JSON-able data, which `open_arrays` returns again
        """
        content = {"arrays": self._entries, "body": body}
        manifest = {"format": FORMAT, "sha256": digest_of(ordered_json(content)), **content}
        write_bytes(self.folder / MANIFEST, ordered_json(manifest))

    def close(self) -> None:
        """Close the files of all arrays, complete or not."""
        for writer in self._writers.values():
            writer.close()


@contextmanager
def new_array_folder(folder: Path) -> Iterator[FolderWriter]:
    """Yield a writer of arrays to a new folder. The folder appears when the `with` block ends without an error.

    After an error nothing is left of it. Raises FileExistsError if something is there already.
    """
    refuse_existing(folder)
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}.tmp")
    unfinished.mkdir()
    writer = FolderWriter(unfinished)
    try:
        yield writer
        refuse_existing(folder)  # again: it may have been filled meanwhile
        if folder.is_dir():
            folder.rmdir()
        unfinished.rename(folder)
    finally:
        writer.close()
        shutil.rmtree(unfinished, ignore_errors=True)


def is_array_folder(folder: Path) -> bool:
    """Return True if a folder holds a manifest, as this module and a search write it."""
    return (folder / MANIFEST).is_file()


def open_arrays(folder: Path) -> tuple[Any, dict[str, FileArray]]:
    """Return (JSON data of the manifest, {name: array in its file}) of a folder. No array is read yet.

    Raises FileNotFoundError if there is no manifest, and `CorruptFolderError`, which names the file, if the folder is
    damaged or was not written by this module.
    """
    body, entries = _manifest(folder)
    arrays = {}
    for name, (dtype, length, _) in entries.items():
        path = folder / f"{name}{ENDING}"
        if not path.is_file():
            raise CorruptFolderError(f"{path} is missing: the folder is incomplete; restore it from a copy")
        size, expected = path.stat().st_size, length * dtype.itemsize
        if size != expected:
            raise CorruptFolderError(
                f"{path}: got {size:,} bytes, expected {expected:,}: it was cut off or changed; restore it from a copy"
            )
        arrays[name] = FileArray(path, dtype, length)
    return body, arrays


def verify_arrays(folder: Path) -> None:
    """Read all files of a folder and compare their checksums with the manifest.

    Raises `CorruptFolderError`, which names the first file that differs.
    """
    _, arrays = open_arrays(folder)
    _, entries = _manifest(folder)
    for name, array in arrays.items():
        digest = hashlib.sha256()
        with array.path.open("rb") as file:
            while content := file.read(BYTES_AT_ONCE):
                digest.update(content)
        if digest.hexdigest() != entries[name][2]:
            raise CorruptFolderError(f"{array.path} was damaged or changed (checksum differs); restore it from a copy")


def _manifest(folder: Path) -> tuple[Any, Mapping[str, tuple[np.dtype, int, str]]]:
    """Read the manifest of a folder. Return its JSON data, and {name of an array: (type, length, checksum)}.

    Raises `CorruptFolderError` if the manifest is damaged or was not written by this module.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(read_ordinary(path).decode())
        if manifest["format"] != FORMAT:  # before the other entries, which another format does not have
            raise CorruptFolderError(
                f"{path} has format {manifest['format']!r}, expected {FORMAT!r}: a folder that a search or fit.save "
                "wrote is read by lv.load or lv.load_fit, one of another version with that version"
            )
        content = {key: manifest[key] for key in ("arrays", "body")}
        if digest_of(ordered_json(content)) != manifest["sha256"]:
            raise CorruptFolderError(
                f"{path} was changed after it was written (checksum differs); restore it from a copy"
            )
        entries = {
            str(name): (np.dtype(entry["dtype"]), int(entry["length"]), str(entry["sha256"]))
            for name, entry in manifest["arrays"].items()
        }
    except CorruptFolderError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFolderError(f"{path} is damaged or foreign ({error!r}); restore it from a copy") from error
    if any(not is_plain(name) or dtype.hasobject for name, (dtype, _, _) in entries.items()):
        raise CorruptFolderError(f"{path} names arrays that are not ours; restore it from a copy")
    return content["body"], entries
