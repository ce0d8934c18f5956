"""What is compiled, and in what precision its matrix products are.

An accelerator rounds the factors of a product of float32 matrices: to 10 bits (TF32) on NVIDIA's GPUs, to 7 (bfloat16)
on TPUs. A sum of sufficient statistics is then off by more than a coordinate step gains, a Gaussian's log-density by
tenths of nats where clusters are narrow, and whatever looks at the two acts on noise. So every program that we compile
says that it wants all bits: `kernel` is our `jax.jit`, and there is no other. On a CPU nothing changes.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """The function; matrix products that it traces, or computes at once, keep all bits of their factors."""

    @wraps(function)
    def precise(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return precise


def kernel(*, static_argnames: str | Sequence[str] = (), donate_argnames: str | Sequence[str] = ()) -> Any:
    """`jax.jit` in full precision, as a decorator; the settings are those of `jax.jit`."""

    def compiled(function: Callable[..., Any]) -> Any:
        return jax.jit(
            full_precision(function), static_argnames=static_argnames or None, donate_argnames=donate_argnames or None
        )

    return compiled
