"""Random numbers on the host, from the keys that the device uses."""

import jax
import numpy as np
from jaxtyping import Array


def generator(key: Array) -> np.random.Generator:
    """NumPy's generator seeded by the bits of a JAX key: the same key, the same numbers."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
