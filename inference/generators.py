"""Random numbers on the host, from the keys that the device uses."""

import jax
import numpy as np
from jaxtyping import Array

from lvsearch.models.kernels import kernel


def generator(key: Array) -> np.random.Generator:
    """NumPy's generator seeded by the bits of a JAX key: the same key, the same numbers."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def generators(key: Array, number: int) -> list[np.random.Generator]:
    """So many that are independent: those of `jax.random.split`."""
    return [np.random.default_rng(data.ravel().tolist()) for data in np.asarray(_split_data(key, number=number))]


@kernel(static_argnames=("number",), brief=True)
def _split_data(key: Array, *, number: int) -> Array:
    return jax.random.key_data(jax.random.split(key, number))
