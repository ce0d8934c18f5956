"""The project's replacement for `jax.jit`: it sets the precision of matrix products and the effort of compilation.

Precision. An accelerator rounds the factors of a product of float32 matrices: to 10 bits (TF32) on NVIDIA's GPUs, to 7
(bfloat16) on TPUs. A sum of sufficient statistics is then off by more than a coordinate step gains. A Gaussian's
log-density is off by tenths of nats where clusters are narrow. Code that compares such numbers would act on noise. So
every program that we compile asks for all bits: `kernel` is our `jax.jit`, and there is no other. On a CPU nothing
changes.

Effort. On little data compiling takes nearly all of the time, and nearly all of that is LLVM's optimiser. The ascent of
a mixture of 60 rows compiles in 0.4 s without the optimiser and in 1.5 s with it. It runs in 0.8 ms both ways, since
most of that is XLA's own overhead between operations. At 4,000 rows of 10 columns it runs in 9 ms without and 4 ms with
it. So on a CPU, and only there, programs marked `brief` or `short` are compiled with less effort where their arguments
have few elements, and programs marked `once` whatever their arguments are. Programs marked `serial` take many small
steps: on a CPU they run in one thread, and a GPU gets all of their steps at once (`KernelByDevice`).

Programs marked `kept` are not even traced again by a later process, where compiled programs are kept (`kept_traces`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, update_wrapper, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from lvsearch.models.kept_traces import KeptTraces, Unkept

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

FEW_ELEMENTS = 1 << 13
"""The largest total number of elements of the arguments for which a brief program is compiled with little effort."""
LITTLE_EFFORT: tuple[Mapping[str, Any], ...] = (
    {
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    },
    {"xla_backend_optimization_level": 0},
    {},
)
"""Sets of options of XLA's CPU compiler for little effort, the best first. The first that this version accepts is used.
"""
ONE_THREAD: Mapping[str, Any] = {"xla_disable_hlo_passes": "cpu-parallel-task-assigner"}
"""Options of XLA's CPU compiler that leave every operation to the thread that calls the program.

Otherwise operations on large arrays are shared among all threads. That is a loss where they read a few rows of a large
array at each of many steps. A sweep over 116,000 tokens and 128 topics took 1.7 microseconds of all cores a token so,
and .84 in one thread.
"""

ONE_LAUNCH: Mapping[str, Any] = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
}
"""Options of XLA's GPU compiler that record a whole program, its loops too, as one graph, which is launched at once.

By default XLA records a loop's body alone. The host then starts two things in every step, the graph of the body and the
loop's condition, and waits for the condition. Needs CUDA 12.3; an older one ignores `WHILE`.
"""

SOME_EFFORT: tuple[Mapping[str, Any], ...] = (
    {
        "xla_backend_optimization_level": 2,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
        "xla_cpu_enable_concurrency_optimized_scheduler": False,
        **ONE_THREAD,
    },
    {},
)
"""Sets of options of XLA's CPU compiler for some effort, the best first, for samplers run for some dozens of sweeps.

A sweep over the blocks of 60 × 3 cells compiles in 2.6 instead of 4.8 s, and runs in 4.4 instead of 2.7 ms. All of a
step runs in one thread, one operation after another. Where threads shared the operations, 16 chains over the partitions
of 82 rows took 9.0 ms of both cores a step, and 4.5 ms of one core so, with the same time by the clock.
"""

_OUTSIDE = get_opaque_trace_state()  # JAX's state outside of all programs, where nothing is being traced


def platform_now() -> str:
    """Return where programs called now run, "cpu", "gpu" or "tpu": by the context's device or, without one, JAX's
    default.
    """
    config: Any = jax.config  # its attributes are made when JAX is imported
    device = config.jax_default_device
    platform = jax.default_backend() if device is None else getattr(device, "platform", device)
    return "gpu" if platform in ("cuda", "rocm") else platform


def goes_to_cpu() -> bool:
    """Return True if programs called now run on a CPU (`platform_now`)."""
    return platform_now() == "cpu"


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with matrix products that keep all bits of their factors, and mixed dtypes as JAX's standard.

    Both products that are traced for compilation and products that are computed immediately keep all bits. Dtypes of
    mixed operands are promoted also where the caller has set `jax_numpy_dtype_promotion` to "strict".
    """

    @wraps(function)
    def precise(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_matmul_precision("highest"), jax.numpy_dtype_promotion("standard"):
            return function(*args, **kwargs)

    return precise


def copied_arrays(tree: T) -> T:
    """Return a pytree with JAX arrays in place of its NumPy arrays, in the session's precision; other leaves stay.

    JAX 0.10 remembers, by the identity of a NumPy array, the JAX array it made of it for a `scan`, `while_loop` or
    `cond` that runs outside of compiled programs. Later, in another precision, it passes the same one, and the program
    fails ("expected parameter of size 8 (f64[]) but got buffer of size 4 (f32[])"). So a model would keep the precision
    in which it was first used. The arrays here are made of copies, whose identities nothing else has.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf, tree)


def copies_arrays(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with arguments passed through `copied_arrays`, for functions that run outside of programs."""

    @wraps(function)
    def on_copies(*args: P.args, **kwargs: P.kwargs) -> R:
        args, kwargs = copied_arrays((args, kwargs))
        return function(*args, **kwargs)

    return on_copies


def kernel(
    *,
    static_argnames: str | Sequence[str] = (),
    donate_argnames: str | Sequence[str] = (),
    brief: bool = False,
    once: bool = False,
    short: bool = False,
    serial: bool = False,
    kept: bool = False,
    few: Callable[..., bool] | None = None,
) -> Any:
    """Return a decorator that compiles like `jax.jit`, in full precision. The argument names are those of `jax.jit`.

    brief: compile with little effort, on a CPU, where the arguments have at most `FEW_ELEMENTS` elements. Use it for
        programs that go over their arguments some hundred times at most, not for samplers. The same shapes give the
        same bits.
    once: compile with little effort on any CPU and for any arguments. Use it for programs that go over their arguments
        once in a fit that does so a hundred times.
    short: compile with some effort where arguments have few elements, and with `once` for any arguments. Use it for
        samplers that a fit runs for some dozens of sweeps.
    serial: on a CPU, run in the calling thread alone; on a GPU, be launched as one graph. Use it for samplers that take
        many small steps, of which callers run several in threads of their own.
    kept: keep the traced program on disk wherever it is compiled with less effort on a CPU. Static arguments must be
        passed by name. Use it for programs of the first answers of a process, whose tracing takes a tenth of a second
        or more.
    few: a function of the program's arguments that returns True where `brief` and `short` hold; None: where the
        arguments have at most `FEW_ELEMENTS` elements.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        precise = full_precision(function)

        def program(**options: Any) -> Any:
            names = {"static_argnames": static_argnames or None, "donate_argnames": donate_argnames or None}
            return jax.jit(precise, **names, **options)

        if not (brief or once or short or serial):
            return program()
        choices = (ONE_THREAD, {}) if serial else SOME_EFFORT if short else LITTLE_EFFORT
        of_platform = {"cpu": choices, "gpu": (ONE_LAUNCH, {})} if serial else {"cpu": choices}
        names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
        traces = KeptTraces(precise, names) if kept else None
        is_few = _always if once or serial else few or _have_few_elements
        return KernelByDevice(precise, program, of_platform, is_few, traces)

    return compiled


class KernelByDevice:
    """A compiled function with the interface of `jax.jit`'s, compiled with special options on some kinds of devices.

    function: the function to compile. program: compiles it, with the keyword arguments of `jax.jit`.
    choices: by platform ("cpu", "gpu"), sets of options of XLA's compiler. The first set that the installed version
        accepts is used. On other platforms there are no options.
    few: a function of the arguments that returns True where the options are used.
    traces: the function's traced programs on disk; None where they are not kept. They are used where the options are.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        program: Callable[..., Any],
        choices: Mapping[str, Sequence[Mapping[str, Any]]],
        few: Callable[..., bool],
        traces: KeptTraces | None = None,
    ) -> None:
        update_wrapper(self, function)
        self._choices, self._few, self._traces = choices, few, traces
        self._optimised = program()
        self._program = program
        self._with_options: dict[str, Any] = {}
        self._options: dict[str, Mapping[str, Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # inside another program nothing is compiled separately, JAX rejects compiler options, lengths may be symbols
        if get_opaque_trace_state() != _OUTSIDE:
            return self._optimised(*args, **kwargs)
        platform = platform_now()
        if platform not in self._choices or not self._few(*args, **kwargs):
            return self._optimised(*args, **kwargs)
        if platform not in self._with_options:
            self._options[platform] = _first_known(self._choices[platform])
            self._with_options[platform] = self._program(compiler_options=self._options[platform])
        if self._traces is not None:
            with suppress(Unkept):
                return self._traces.call(platform, self._options[platform], args, kwargs)
        return self._with_options[platform](*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Return the optimised program traced for these arguments, like the method of `jax.jit`."""
        return self._optimised.trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return the optimised program lowered for these arguments, like the method of `jax.jit`."""
        return self._optimised.lower(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes and dtypes of the result, like the method of `jax.jit`."""
        return self._optimised.eval_shape(*args, **kwargs)

    def _cache_size(self) -> int:
        """Return how many programs have been compiled, like the method of `jax.jit`."""
        return self._optimised._cache_size() + sum(each._cache_size() for each in self._with_options.values())


def _always(*args: Any, **kwargs: Any) -> bool:
    """Return True for any arguments of a program."""
    return True


def _have_few_elements(*args: Any, **kwargs: Any) -> bool:
    """Return True if the arguments of a program have at most `FEW_ELEMENTS` elements."""
    return sum(getattr(leaf, "size", 1) for leaf in jax.tree.leaves((args, kwargs))) <= FEW_ELEMENTS


def _first_known(choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first set of compiler options that the installed version of XLA accepts; the last one is not
    tested.
    """
    for options in choices[:-1]:
        if _is_known(tuple(options.items())):
            return dict(options)
    return dict(choices[-1])


@cache
def _is_known(options: tuple[tuple[str, Any], ...]) -> bool:
    """Return True if the installed version of XLA accepts all of these compiler options, given as (name, value)
    pairs.
    """
    try:
        jax.jit(lambda x: x, compiler_options=dict(options))(0.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True
