"""Compiled programs kept in a folder of the user's: the next process that wants one reads it instead of compiling it.

It is JAX's persistent cache, put to use where nobody has: a search of little data is mostly compiling. It is the cache
of the whole process, so that other people's programs are kept too. It is left alone where JAX has a folder already, and
where the environment variable LVSEARCH_CACHE says "off"; otherwise that variable names the folder.

Programs for CPUs hold instructions of the machine that made them: a home that several kinds of machines share gets a
folder for each kind.
"""

import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

OFF = "off"
LEAST_SECONDS = 0.05
"""Programs that compile faster are not kept: reading is not faster."""
MOST_BYTES = 2 * 2**30
"""Of a folder; the programs not read for longest go first, when a process begins to use it."""

_decided = False
_place: Path | None = None


class ProgramsKept(NamedTuple):
    """What was decided in a process: whether anything was, and the folder of its machine that it keeps programs in."""

    decided: bool
    place: Path | None


def decision() -> ProgramsKept:
    """For `adopt` in a process that this one begins."""
    return ProgramsKept(_decided, _place)


def adopt(kept: ProgramsKept) -> None:
    """Keep programs as the process that began this one does; where nothing was decided there, nothing is here."""
    global _decided
    _decided = kept.decided
    if kept.place is not None:
        _use(kept.place)


def keep_programs() -> None:
    """Keep compiled programs from now on, unless it has been decided before, here or by whoever set up JAX."""
    if not _decided:
        given = os.environ.get("LVSEARCH_CACHE", "")
        keep_programs_in(None if given.lower() == OFF or _folder_of_jax() else _user_folder(given))


def keep_programs_in(folder: Path | None) -> None:
    """Keep compiled programs in this folder; None: as JAX was set up, and nowhere if it was not.

    Says so in a line on standard error where it makes the folder. A folder that cannot be made is done without.
    """
    global _decided
    _decided = True
    if folder is None:
        return
    place = folder / _kind_of_machine()
    try:
        new = not folder.exists()
        place.mkdir(parents=True, exist_ok=True)
        sweep(place, MOST_BYTES)
    except OSError:
        return
    if new:
        print(f"lvsearch keeps compiled programs in {folder} (LVSEARCH_CACHE=off turns that off)", file=sys.stderr)
    _use(place)


def _use(place: Path) -> None:
    global _place
    _place = place
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    reset_cache()  # JAX decides at its first program whether there is a cache, which may have been before


def sweep(folder: Path, most_bytes: int) -> None:
    """Remove files of a folder, those not used for longest first, until it holds at most so many bytes."""
    files = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    total = sum(stat.st_size for _, stat in files)
    for path, stat in sorted(files, key=lambda each: max(each[1].st_atime, each[1].st_mtime)):
        if total <= most_bytes:
            return
        path.unlink(missing_ok=True)  # another process may sweep too
        total -= stat.st_size


def _folder_of_jax() -> str | None:
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]


def _user_folder(given: str) -> Path:
    return Path(given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lvsearch")


def _kind_of_machine() -> str:
    """A name for what this processor can do."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    able = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    return f"{platform.machine()}-{hashlib.sha256(able.encode()).hexdigest()[:12]}"
