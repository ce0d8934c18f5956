"""How often each kernel was compiled: a promise of this library, so it is counted and shown.

Counted are traces, one per combination of shapes and static arguments, whether or not the compiled program then comes
from a persistent cache.

JAX keeps every program that a process has compiled. A search of a corpus of another shape takes some 40 MB and 500
memory maps more; Linux gives a process 65,530 of these, and XLA ends it at the next. So programs are let go now and
then, between calls: `bound_programs`.
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
"""Of counted kernels, until all programs are let go: those of 15 to 20 corpora of different shapes. Whatever of them
is still wanted is compiled again, so that no process compiles more than twice what it would."""
MOST_MAPS = 20_000
"""The same, of memory maps: kernels that are not counted, other people's programs."""
_MAPS = Path("/proc/self/maps")


def counted(kernel: Callable[P, R]) -> Callable[P, R]:
    """The kernel, its traces counted under its name; goes inside `jax.jit`, where Python runs only to trace."""

    @wraps(kernel)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        _traces[kernel.__name__] += 1
        return kernel(*args, **kwargs)

    return traced


def compiles() -> Mapping[str, int]:
    """Kernel -> times compiled since the process began."""
    return dict(_traces)


def compiles_since(before: Mapping[str, int]) -> dict[str, int]:
    """Kernel -> times compiled since `before = compiles()`; kernels that were not compiled are left out."""
    return {name: n - before.get(name, 0) for name, n in _traces.items() if n > before.get(name, 0)}


def prepare_programs() -> None:
    """Called where a search, a fit or a sampling begins: those compiled before are let go where there are many, those
    to come are kept in the user's folder (`program_cache`)."""
    bound_programs()
    keep_programs()


def bound_programs() -> bool:
    """Let go of all compiled programs of this process, those of other libraries too, where there are many; whether so.

    Not to be called while a search, a fit or a sampling is under way.
    """
    global _traces_when_released
    if _traces.total() - _traces_when_released < MOST_TRACES and _n_maps() < MOST_MAPS:
        return False
    jax.clear_caches()
    gc.collect()
    _traces_when_released = _traces.total()
    return True


def _n_maps() -> int:
    """Memory maps of this process; 0 where the system does not say."""
    return _MAPS.read_bytes().count(b"\n") if _MAPS.exists() else 0
