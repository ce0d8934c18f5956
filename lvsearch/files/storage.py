"""Write folders atomically, with checksums and without pickle, by one process at a time.

A folder holds a manifest, `manifest.json`, and the arrays that it names. Arrays are written first, under names with
their checksums. Then the manifest replaces the old one in a single rename. So a process that is killed leaves either
the old state or the new one, never a mixture.

A folder that this module did not write is refused, and foreign files in a folder are left alone. Only one process
writes to a folder at a time: `new_folder` and `known_folder` hold its lock. The operating system holds the lock on the
open file `.lock`, and releases it however the process ends. So nothing has to be removed by hand after a kill. The file
itself stays, and says which process had the lock last.

`versions` returns the versions of the packages, which are recorded with results.
"""

import errno
import hashlib
import importlib.metadata
import io
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lvsearch.files.untrusted_files import read_arrays, read_ordinary, require_ordinary

PACKAGES = ("lvsearch", "jax", "jaxlib", "equinox", "numpyro", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide the numbers, and the device, as {name: text}."""
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {"device": jax.devices()[0].device_kind}


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


FORMAT = "lvsearch folder, version 1"
MANIFEST = "manifest.json"
OURS = re.compile(r".+-[0-9a-f]{16}\.npz|\..+-[0-9a-f]{16}\.npz-\w+\.tmp|\.manifest\.json-\w+\.tmp")
"""Matches names of array files, and of temporary files that a killed process leaves."""
TEMPORARY = re.compile(r"\..+\.(?:json|npz|md|csv|png|html)-\w{8}\.tmp")
"""Matches names of the temporary files of `write_bytes`, for any kind of file."""


class CorruptFolderError(ValueError):
    """Raised if a folder was not written by lvsearch, or was damaged since."""


def write_folder(folder: Path, body: Any, arrays: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write JSON data and groups of arrays to a folder, in place of what an earlier call wrote there.

    A process that is killed meanwhile leaves the earlier content complete.

    folder: made if missing
    body: any JSON-able data, kept in the manifest
    arrays: {group name: {array name: array}}; unchanged groups are not written again
    """
    folder.mkdir(parents=True, exist_ok=True)
    hold_again(folder)
    files = {}
    for group, content in arrays.items():
        data = _npz(content)
        digest = digest_of(data)
        name = _file_name(group, digest)
        if not (folder / name).exists():
            write_bytes(folder / name, data)
        files[group] = {"file": name, "sha256": digest}
    manifest = {"format": FORMAT, "sha256": digest_of(ordered_json(body)), "files": files, "body": body}
    write_bytes(folder / MANIFEST, ordered_json(manifest))
    named = {entry["file"] for entry in files.values()}
    for stale in folder.iterdir():
        if stale.name not in named and OURS.fullmatch(stale.name):
            stale.unlink()


def read_folder(folder: Path) -> tuple[Any, dict[str, dict[str, np.ndarray]]]:
    """Return what `write_folder` wrote: (JSON data, {group name: {array name: array}}).

    It works even while a search is writing to the folder.

    Raises FileNotFoundError if there is no such folder, and `CorruptFolderError` if it is foreign or damaged.
    """
    while True:
        manifest = _manifest(folder)
        try:
            return _read(folder, manifest)
        except CorruptFolderError:
            if _manifest(folder) == manifest:  # else the files were replaced while they were read
                raise


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a new folder and hold its lock inside this context, so that no other process writes to it.

    Raises FileExistsError if something is there already, and `FolderInUseError` if another process is just making it.
    """
    refuse_existing(folder)  # before a lock is put into somebody's folder
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder):
        refuse_existing(folder)  # and again: until now another process may have filled it
        yield


@contextmanager
def known_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder that `write_folder` wrote, and remove temporary files that killed processes left in it.

    Raises FileNotFoundError if there is no such folder, `CorruptFolderError` if another program wrote it, and
    `FolderInUseError` if another process writes to it.
    """
    _manifest(folder)  # before a lock is put into somebody's folder
    with hold_lock(folder):
        for path in (*folder.iterdir(), *folder.glob("*/.*.tmp")):  # reports lie one level below
            if TEMPORARY.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)
        yield


def _manifest(folder: Path) -> bytes:
    """Return the bytes of a folder's manifest.

    Raises FileNotFoundError if the folder is missing or just being begun, and `CorruptFolderError` if it was written by
    another program.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: expected one written by a search (out=…) or by result.save(…)")
    path = folder / MANIFEST
    if not path.is_file():
        if _is_being_begun(folder):
            raise FileNotFoundError(
                f"{folder} holds nothing to read yet: a process is just beginning to write it, or was killed before "
                "its first state was there. Wait a moment; if nothing comes, remove the folder and begin again"
            )
        raise CorruptFolderError(
            f"{folder} holds no {MANIFEST}: got a folder that lvsearch did not write; expected one written by a search "
            "(out=…) or by result.save(…)"
        )
    return read_ordinary(path)


def _is_being_begun(folder: Path) -> bool:
    """Return True if a folder holds only its lock and files of arrays, since the first manifest is still to come."""
    names = [path.name for path in folder.iterdir()]
    return LOCK in names and all(name == LOCK or OURS.fullmatch(name) for name in names)


def _read(folder: Path, content: bytes) -> tuple[Any, dict[str, dict[str, np.ndarray]]]:
    """Return (JSON data, {group name: {array name: array}}) of a folder.

    folder: the folder
    content: the bytes of its manifest, which names the files to read

    Raises `CorruptFolderError` if a file is missing, damaged, or not written by this module.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(content.decode())
        form = manifest["format"]
        if not isinstance(form, str):
            raise TypeError(f"format {form!r}")
        if form != FORMAT:  # before the other entries, which another format does not have
            raise CorruptFolderError(
                f"{path} has format {form!r}, expected {FORMAT!r}: a corpus that lvsearch convert or corpus.save wrote "
                "is read by lvsearch search --corpus or lv.Corpus.open; a folder of another version: read it with the "
                "version that wrote it"
            )
        expected, body = manifest["sha256"], manifest["body"]
        files = {group: (entry["file"], entry["sha256"]) for group, entry in manifest["files"].items()}
        found = digest_of(ordered_json(body))
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFolderError(f"{path} is damaged or foreign ({error!r}); restore it from a copy") from error
    if found != expected:
        raise CorruptFolderError(f"{path} was changed after it was written (checksum differs); restore it from a copy")
    for group, (name, digest) in files.items():
        if name != _file_name(group, digest) or not is_plain(name):
            raise CorruptFolderError(f"{path} names {name!r} for {group!r}, which is not ours; restore it from a copy")
    return body, {group: _read_group(folder / name, digest) for group, (name, digest) in files.items()}


def refuse_existing(folder: Path) -> None:
    """Raise FileExistsError if a path is a file or a folder that holds something besides a lock.

    Raises NotADirectoryError if it is to lie in what is a file.

    Call it before writing, so that nobody's files are overwritten.
    """
    if folder.is_file():
        raise FileExistsError(f"{folder} is a file and is left alone: choose another folder")
    if over := next((above for above in folder.parents if above.is_file()), None):
        raise NotADirectoryError(f"{over} is a file, so that there can be no {folder} in it: choose another folder")
    if folder.is_dir() and any(path.name != LOCK for path in folder.iterdir()):
        raise FileExistsError(
            f"{folder} exists and is not empty: choose another folder, remove this one, or go on with a search saved "
            "there by lv.resume (command line: lvsearch resume)"
        )


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 atomically: it appears complete or not at all. Its folder is made if missing."""
    write_bytes(path, text.encode())


def _read_group(path: Path, expected: str) -> dict[str, np.ndarray]:
    """Return the arrays of one .npz file of a folder, as {array name: array}.

    expected: the SHA-256 checksum that the file should have, in hexadecimal

    Raises `CorruptFolderError` if the file is missing or its checksum differs.
    """
    try:
        data = read_ordinary(path)
    except FileNotFoundError as error:
        raise CorruptFolderError(f"{path} is missing: the folder is incomplete; restore it from a copy") from error
    except ValueError as error:
        raise CorruptFolderError(f"{error}; restore the folder from a copy") from error
    if digest_of(data) != expected:
        raise CorruptFolderError(f"{path} is truncated or damaged (checksum differs); restore it from a copy")
    try:
        return read_arrays(data, path)
    except ValueError as error:
        raise CorruptFolderError(f"{error}; restore it from a copy") from error


def _npz(content: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of an .npz file with these arrays. content: {array name: array}."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: np.asarray(array) for name, array in content.items()})
    return buffer.getvalue()


def is_plain(name: str) -> bool:
    """Return True if a file name cannot lead out of its folder, on any system."""
    return not set(name) & set("/\\:\0")


def _file_name(group: str, digest: str) -> str:
    """Return the name of the file of a group of arrays: "<group>-<first 16 digits of the checksum>.npz"."""
    return f"{group}-{digest[:16]}.npz"


def digest_of(data: bytes) -> str:
    """Return the SHA-256 checksum of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def ordered_json(value: Any) -> bytes:
    """Return JSON data in the form in which manifests are written and their checksums computed: with sorted keys."""
    return json.dumps(value, indent=1, sort_keys=True).encode()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically: it appears complete or not at all. Its folder is made if missing.

    It is written under a temporary name in the same folder, and gets its own when it is complete.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_ordinary_mode())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _ordinary_mode() -> int:
    """Return the permissions that `open` would give a new file, since `tempfile.mkstemp` makes its files private."""
    umask = os.umask(0o077)  # the umask can only be read by setting it
    os.umask(umask)
    return 0o666 & ~umask
