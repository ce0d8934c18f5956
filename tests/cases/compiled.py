"""Methods compiled whole, for tests that call them by themselves.

Called eagerly, every operation is a program of its own, and compiling these is what such tests wait for.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax


class Compiled:
    """`Compiled(family).mean(natural)` is `family.mean(natural)`: one program for each method, shape and dtype.

    owner: a pytree. Arguments are traced.
    """

    def __init__(self, owner: Any):
        self._owner = owner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(_method(name), self._owner)


@cache
def _method(name: str) -> Callable[..., Any]:
    @jax.jit
    def call(owner: Any, *arguments: Any) -> Any:
        return getattr(owner, name)(*arguments)

    return call
