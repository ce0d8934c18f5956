"""What is compiled: in which precision its matrix products are, and with how much effort.

An accelerator rounds the factors of a product of float32 matrices: to 10 bits (TF32) on NVIDIA's GPUs, to 7 (bfloat16)
on TPUs. A sum of sufficient statistics is then off by more than a coordinate step gains, a Gaussian's log-density by
tenths of nats where clusters are narrow, and whatever looks at the two acts on noise. So every program that we compile
says that it wants all bits: `kernel` is our `jax.jit`, and there is no other. On a CPU nothing changes.

On little data compiling is nearly all of the time, and nearly all of that is LLVM's optimiser: the ascent of a mixture
of 60 rows compiles in 0.4 s without and 1.5 s with it, and runs in 0.8 ms both ways, since XLA's own overhead from one
operation to the next is most of it. At 4,000 rows of 10 columns it runs in 9 ms without and 4 ms with it. So programs
for which `brief` was said are compiled without where their arguments have few elements, and those for which `once` was
said whatever their arguments are.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, update_wrapper, wraps
from typing import Any, ParamSpec, TypeVar

import jax
from jax.extend.core import get_opaque_trace_state

P = ParamSpec("P")
R = TypeVar("R")

FEW_ELEMENTS = 1 << 13
"""Of the arguments together, up to which a brief program is not optimised."""
LITTLE_EFFORT: tuple[Mapping[str, Any], ...] = (
    {
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    },
    {"xla_backend_optimization_level": 0},
    {},
)
"""Options of XLA's compiler for CPUs, the best first; which of them a version knows is tried."""
SOME_EFFORT: tuple[Mapping[str, Any], ...] = (
    {
        "xla_backend_optimization_level": 2,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    },
    {},
)
"""The same for samplers that a fit runs for some dozens of sweeps: a sweep of 60 × 3 cells in blocks compiles in 2.6
instead of 4.8 s, and runs in 4.4 instead of 2.7 ms."""

_OUTSIDE = get_opaque_trace_state()  # of all programs: nothing is being traced


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """The function; matrix products that it traces, or computes at once, keep all bits of their factors."""

    @wraps(function)
    def precise(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return precise


def kernel(
    *,
    static_argnames: str | Sequence[str] = (),
    donate_argnames: str | Sequence[str] = (),
    brief: bool = False,
    once: bool = False,
    short: bool = False,
) -> Any:
    """`jax.jit` in full precision, as a decorator; the names are those of `jax.jit`.

    brief: compiled with little effort where its arguments have at most `FEW_ELEMENTS` elements, on a CPU: for programs
    that go over their arguments some hundred times at most, and not for samplers. The same shapes give the same bits.
    once: compiled so on any CPU, for programs that go over their arguments once in a fit that does so a hundred times.
    short: compiled with some effort where arguments are few, for samplers of so few sweeps that a fit has.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        precise = full_precision(function)

        def program(**options: Any) -> Any:
            names = {"static_argnames": static_argnames or None, "donate_argnames": donate_argnames or None}
            return jax.jit(precise, **names, **options)

        if not (brief or once or short):
            return program()
        return BriefKernel(precise, program, short=short, always=once)

    return compiled


class BriefKernel:
    """As what `jax.jit` returns, and compiled with less effort where there is little data, or `always`."""

    def __init__(self, function: Callable[..., Any], program: Callable[..., Any], *, short: bool, always: bool) -> None:
        update_wrapper(self, function)
        self._short, self._always = short, always
        self._optimised = program()
        self._program = program
        self._quick: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        few = self._always or sum(getattr(leaf, "size", 1) for leaf in leaves) <= FEW_ELEMENTS
        # inside another program there is nothing to compile, and options are an error
        if few and get_opaque_trace_state() == _OUTSIDE and jax.default_backend() == "cpu":
            if self._quick is None:
                self._quick = self._program(compiler_options=dict(_known_options(short=self._short)))
            return self._quick(*args, **kwargs)
        return self._optimised(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As that of `jax.jit`."""
        return self._optimised.trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As that of `jax.jit`."""
        return self._optimised.lower(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As that of `jax.jit`."""
        return self._optimised.eval_shape(*args, **kwargs)

    def _cache_size(self) -> int:
        return self._optimised._cache_size() + (0 if self._quick is None else self._quick._cache_size())


@cache
def _known_options(*, short: bool) -> Mapping[str, Any]:
    efforts = SOME_EFFORT if short else LITTLE_EFFORT
    for options in efforts[:-1]:
        try:
            jax.jit(lambda x: x, compiler_options=dict(options))(0.0)
        except jax.errors.JaxRuntimeError:  # an option that this version does not have
            continue
        return options
    return efforts[-1]
