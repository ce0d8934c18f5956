"""Chooses the device for programs that are loops over many small steps, each of which depends on the last.

An accelerator needs some microseconds to start each step, and such a step is only a few hundred additions. A sampler
that goes token by token, or row by row, is therefore slower on an accelerator than on one CPU core. Such loops run on
the CPU whatever devices there are, and their results lie in the host's memory.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax


def device_of_loops() -> Any:
    """Return the CPU device for programs of many small steps, if JAX would use another device by default.

    Returns None if programs go to the CPU anyway, or if JAX was set up without a CPU.
    """
    if jax.default_backend() == "cpu":
        return None
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def one_after_another() -> AbstractContextManager[object]:
    """Return a context in which compiled programs run on the CPU (`device_of_loops`), wherever their arguments lie.

    Arguments that were explicitly committed to a device stay on it.
    """
    device = device_of_loops()
    return nullcontext() if device is None else jax.default_device(device)
