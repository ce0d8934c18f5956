"""How often each kernel was compiled: a promise of this library, so it is counted and shown.

Counted are traces, one per combination of shapes and static arguments, whether or not the compiled program then comes
from a persistent cache.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_traces: Counter[str] = Counter()


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
