"""Seeds: whole numbers that NumPy's generators and JAX's keys both take as they are."""

import operator
from typing import Any

LARGEST_SEED = 2**32 - 1
"""JAX keeps 32 bits of a seed: beyond them two seeds would silently be one."""


def checked_seed(seed: Any) -> int:
    """The seed as an int. Raises ValueError for what is no whole number from 0 to 2³² − 1."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if isinstance(seed, bool) or not 0 <= number <= LARGEST_SEED:
        raise ValueError(f"got seed={seed!r}, expected a whole number from 0 to {LARGEST_SEED}")
    return number
