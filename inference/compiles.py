"""Counts how often each kernel was compiled, and lets go of compiled programs when a process holds too many.

The library promises few compilations, so they are counted and shown. A count is one trace: one combination of shapes
and static arguments, whether or not the compiled program then comes from a persistent cache.

JAX keeps every program that a process has compiled. A search of a corpus of another shape takes some 40 MB and 500
memory maps more. Linux gives a process 65,530 memory maps, and XLA ends the process when it asks for one more. So
`bound_programs` now and then lets go of all programs, between calls.
"""

import gc
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import jax

from lvsearch.inference.program_cache import keep_programs

P = ParamSpec("P")
R = TypeVar("R")

_traces: Counter[str] = Counter()
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
    """

    @wraps(kernel)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        _traces[kernel.__name__] += 1
        return kernel(*args, **kwargs)

    return traced


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
    (`program_cache`).
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
