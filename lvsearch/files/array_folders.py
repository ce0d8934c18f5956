"""Folders of arrays too large for memory: written a piece at a time, opened as memory maps.

Each array is a file of its plain numbers, little-endian, without a header; `manifest.json` names them with type, length
and SHA-256. A folder is written beside its place under a name of its own and then moved there in one rename, so that
what stands there is whole.

Opening one checks the manifest's own checksum, and that every file is there and as long as it was written: that is
cheap, and finds what was cut off or left out. `verify_arrays` reads everything and compares checksums; who opens a
folder decides when that is worth it.
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

from lvsearch.files.ordinary import read_ordinary
from lvsearch.files.storage import MANIFEST, CorruptFolderError, refuse_existing, write_text
from lvsearch.inference.data.mapped import FileArray

FORMAT = "lvsearch arrays, version 1"
ENDING = ".bin"
BYTES_AT_ONCE = 1 << 24


class ArrayWriter:
    """One array that grows at its end."""

    def __init__(self, path: Path, dtype: Any):
        self.path, self.dtype, self.length = path, np.dtype(dtype).newbyteorder("<"), 0
        self._digest = hashlib.sha256()
        self._file: BinaryIO = path.open("wb")

    def append(self, values: np.ndarray) -> None:
        """Values (entries,) behind those that there are. Raises OSError where the disk is full."""
        content = np.ascontiguousarray(values, self.dtype).view(np.uint8).data
        self._digest.update(content)
        self._file.write(content)
        self.length += len(values)

    def finished(self) -> dict[str, Any]:
        """What the manifest says of it; nothing can be appended any more."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"dtype": self.dtype.str, "length": self.length, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Give it up."""
        self._file.close()


class FolderWriter:
    """A folder of arrays that is being written; see `new_array_folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._writers: dict[str, ArrayWriter] = {}
        self._entries: dict[str, dict[str, Any]] = {}

    def append(self, name: str, values: np.ndarray, dtype: Any = None) -> None:
        """Values (entries,) behind those of the array of this name, whose type is that of its first ones or `dtype`."""
        if name not in self._writers:
            path = self.folder / f"{name}{ENDING}"
            self._writers[name] = ArrayWriter(path, values.dtype if dtype is None else dtype)
        self._writers[name].append(values)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the arrays, in the order in which they were begun."""
        return tuple(self._writers)

    def length(self, name: str) -> int:
        """Entries of an array so far."""
        return self._writers[name].length

    def finished(self, name: str) -> FileArray:
        """An array to which nothing is appended any more, to be read."""
        writer = self._writers[name]
        self._entries[name] = writer.finished()
        return FileArray(writer.path, writer.dtype, writer.length)

    def drop(self, name: str) -> None:
        """Leave out an array that was only of use while others were written."""
        writer = self._writers.pop(name)
        del self._entries[name]
        writer.path.unlink()

    def finish(self, body: Any) -> None:
        """Write the manifest, with `body` (JSON-able); every array is `finished`."""
        content = {"arrays": self._entries, "body": body}
        text = json.dumps(content, indent=1, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        manifest = {"format": FORMAT, "sha256": digest, **content}
        write_text(self.folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))

    def close(self) -> None:
        """Let go of the files."""
        for writer in self._writers.values():
            writer.close()


@contextmanager
def new_array_folder(folder: Path) -> Iterator[FolderWriter]:
    """A writer whose folder appears under its name when the block ends, or not at all.

    Raises FileExistsError where something is there already.
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
    """Whether there is a folder with a manifest."""
    return (folder / MANIFEST).is_file()


def open_arrays(folder: Path) -> tuple[Any, dict[str, FileArray]]:
    """The body of a folder and its arrays, unread.

    Raises FileNotFoundError where there is none, `CorruptFolderError`, which names the file, for one that is damaged or
    that something else wrote.
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
    """Read all files of a folder and compare their SHA-256. Raises `CorruptFolderError`, naming one that differs."""
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
    """The body, and of each array type, length and checksum."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(read_ordinary(path).decode())
        content = {key: manifest[key] for key in ("arrays", "body")}
        if manifest["format"] != FORMAT:
            raise CorruptFolderError(
                f"{path} has format {manifest['format']!r}, expected {FORMAT!r}: a folder that a search or fit.save "
                "wrote is read by lv.load or lv.load_fit, one of another version with that version"
            )
        text = json.dumps(content, indent=1, sort_keys=True)
        if hashlib.sha256(text.encode()).hexdigest() != manifest["sha256"]:
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
    if any(set(name) & set("/\\:\0") or dtype.hasobject for name, (dtype, _, _) in entries.items()):
        raise CorruptFolderError(f"{path} names arrays that are not ours; restore it from a copy")
    return content["body"], entries
