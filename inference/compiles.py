"""Compiled programs: how often each kernel was compiled, when a process lets go of them, and how a folder keeps them.

The library promises few compilations, so they are counted and shown. A count is one trace: one combination of shapes
and static arguments, whether or not the compiled program then comes from a persistent cache.

JAX keeps every program that a process has compiled. A search of a corpus of another shape takes some 40 MB and 500
memory maps more. Linux gives a process 65,530 memory maps, and XLA ends the process when it asks for one more. So
`bound_programs` now and then lets go of all programs, between calls.

A search of little data is mostly compiling. So `keep_programs` switches on JAX's persistent compilation cache where
nobody has: the next process reads programs instead of compiling them. The cache serves the whole process, so programs
of other libraries are kept too. It is left alone if JAX already has a folder, or if the environment variable
LVSEARCH_CACHE says "off". Any other value of LVSEARCH_CACHE is the folder.

Programs for CPUs hold instructions of the machine that made them. Several kinds of machines may share one home folder,
so each kind has a folder of its own.
"""

import gc
import hashlib
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from lvsearch.models.kept_traces import keep_traces_in

OFF = "off"
"""The value of LVSEARCH_CACHE that switches the cache off."""
LEAST_SECONDS = 0.05
"""Programs that compile faster than this are not kept: reading them would not be faster."""
MOST_BYTES = 2 * 2**30
"""The most bytes in one folder. When a process begins to use the folder, the programs not read for longest are removed.
"""

_decided = False
_place: Path | None = None


class ProgramsKept(NamedTuple):
    """The decision of a process about where it keeps compiled programs.

    | field | meaning |
    |---|---|
    | `decided` | whether a decision was made at all |
    | `place` | the folder that programs are kept in; None for no folder |
    """

    decided: bool
    place: Path | None


def decision() -> ProgramsKept:
    """Return where this process keeps compiled programs, to be handed to `adopt` in a process that it starts."""
    return ProgramsKept(_decided, _place)


def adopt(kept: ProgramsKept) -> None:
    """Keep compiled programs where the process that started this one keeps them.

    kept: the decision of the other process, from `decision`.
    """
    global _decided
    _decided = kept.decided
    if kept.place is not None:
        _set_cache_folder(kept.place)


def keep_programs() -> None:
    """Keep compiled programs on disk from now on, in the user's folder or in that of LVSEARCH_CACHE.

    Nothing changes if it was decided before, by this function or by whoever set up JAX, or if LVSEARCH_CACHE is "off".
    """
    if not _decided:
        given = os.environ.get("LVSEARCH_CACHE", "")
        keep_programs_in(None if given.lower() == OFF or _jax_cache_folder() else _user_folder(given))


def keep_programs_in(folder: Path | None) -> None:
    """Keep compiled programs in a subfolder of `folder` for this kind of machine. None leaves JAX as it was set up.

    A line on standard error says so when the folder is created. If it cannot be created, programs are not kept.
    """
    global _decided
    _decided = True
    if folder is None:
        return
    place = folder / _kind_of_machine()
    try:
        new = not folder.exists()
        place.mkdir(parents=True, exist_ok=True)
        remove_oldest_files(place, MOST_BYTES)
    except OSError:
        return
    if new:
        print(f"lvsearch keeps compiled programs in {folder} (LVSEARCH_CACHE=off turns that off)", file=sys.stderr)
    _set_cache_folder(place)


def _set_cache_folder(place: Path) -> None:
    """Tell JAX to keep compiled programs in the folder `place`."""
    global _place
    _place = place
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    reset_cache()  # JAX decides at its first program whether there is a cache, which may have been before
    keep_traces_in(place, _count_read_trace)


def remove_oldest_files(folder: Path, most_bytes: int) -> None:
    """Remove files from a folder, those not used for longest first, until it holds at most `most_bytes` bytes."""
    files = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    total = sum(stat.st_size for _, stat in files)
    for path, stat in sorted(files, key=lambda each: max(each[1].st_atime, each[1].st_mtime)):
        if total <= most_bytes:
            return
        path.unlink(missing_ok=True)  # another process may sweep too
        total -= stat.st_size


def _jax_cache_folder() -> str | None:
    """Return the cache folder that JAX was set up with, or None."""
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]


def _user_folder(given: str) -> Path:
    """Return the folder to keep programs in: the one that `given` names, or by default `lvsearch` in the user's cache
    folder.

    given: the value of the environment variable LVSEARCH_CACHE; empty if it is not set.
    """
    return Path(given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lvsearch")


def _kind_of_machine() -> str:
    """Return a name for the processor's kind: its architecture, and a hash of the instruction sets it supports."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    able = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    return f"{platform.machine()}-{hashlib.sha256(able.encode()).hexdigest()[:12]}"


P = ParamSpec("P")
R = TypeVar("R")

_traces: Counter[str] = Counter()
_counted: set[tuple[str, str]] = set()
_traces_when_released = 0

MOST_TRACES = 100
"""All programs are let go after this many traces of counted kernels: about 15 to 20 corpora of different shapes.

A program that is still needed is compiled again, so no process compiles more than twice what it would otherwise.
"""
MOST_MAPS = 20_000
"""All programs are also let go above this many memory maps. It covers uncounted kernels and other people's programs."""
_MAPS = Path("/proc/self/maps")


def counted(kernel: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a counter: every time JAX traces it, the count under its name rises by one.

    Apply it inside `jax.jit`, where Python code runs only while a program is traced. `compiles` returns the counts.
    Programs whose trace is read from disk are counted as well (`models.kept_traces`).
    """
    _counted.add((kernel.__module__, kernel.__qualname__))

    @wraps(kernel)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        _traces[kernel.__name__] += 1
        return kernel(*args, **kwargs)

    return traced


def _count_read_trace(kernel: Callable[..., object]) -> None:
    """Count a program whose trace was read from disk, if its kernel is a counted one."""
    if (kernel.__module__, kernel.__qualname__) in _counted:
        _traces[kernel.__name__] += 1


def compiles() -> Mapping[str, int]:
    """Return how often each counted kernel was compiled since the process began, as {name of the kernel: count}."""
    return dict(_traces)


def compiles_since(before: Mapping[str, int]) -> dict[str, int]:
    """Return how often each counted kernel was compiled since an earlier time, as {name: count}. Kernels that were not
    compiled are left out.

    before: what `compiles()` returned at the earlier time.
    """
    return {name: n - before.get(name, 0) for name, n in _traces.items() if n > before.get(name, 0)}


def prepare_programs() -> None:
    """Prepare JAX's cache of compiled programs at the beginning of a search, a fit or a sampling.

    If the process holds many compiled programs, they are let go. New ones are kept in the user's folder
    (`keep_programs`).
    """
    bound_programs()
    keep_programs()


def bound_programs() -> bool:
    """Let go of all compiled programs of this process if there are many, and return True if that was done.

    Programs of other libraries are let go too. Do not call this while a search, a fit or a sampling is under way.
    """
    global _traces_when_released
    if _traces.total() - _traces_when_released < MOST_TRACES and _n_maps() < MOST_MAPS:
        return False
    jax.clear_caches()
    gc.collect()
    _traces_when_released = _traces.total()
    return True


def _n_maps() -> int:
    """Return the number of memory maps of this process, or 0 where the operating system does not say."""
    return _MAPS.read_bytes().count(b"\n") if _MAPS.exists() else 0
