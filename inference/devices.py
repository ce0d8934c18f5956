"""On which device a program runs that is a loop over small steps, each given all before it.

An accelerator starts every step anew, for some microseconds, where the step itself is a few hundred additions: a
sampler that goes token by token, or row by row, is slower there than on one core of the host. So such loops run on the
CPU whatever there is, and what they return lies there.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax


def device_of_loops() -> Any:
    """The CPU, where programs would go elsewhere; None where they go there anyhow, or JAX was told of no CPU."""
    if jax.default_backend() == "cpu":
        return None
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def one_after_another() -> AbstractContextManager[object]:
    """Inside: programs run on `device_of_loops`, wherever their arguments lie, unless these were put there by name."""
    device = device_of_loops()
    return nullcontext() if device is None else jax.default_device(device)
