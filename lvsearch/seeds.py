"""Seeds: whole numbers that NumPy's generators and JAX's keys both take as they are."""

from typing import Any

from lvsearch.models.plain_arguments import whole_number

LARGEST_SEED = 2**32 - 1
"""JAX keeps 32 bits of a seed: beyond them two seeds would silently be one."""


def checked_seed(seed: Any) -> int:
    """The seed as an int. Raises ValueError for what is no whole number from 0 to 2³² − 1."""
    return whole_number("seed", seed, least=0, most=LARGEST_SEED)
