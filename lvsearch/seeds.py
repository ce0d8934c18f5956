"""Check seeds: whole numbers that NumPy's generators and JAX's keys can both take."""

from typing import Any

from lvsearch.models.plain_arguments import whole_number

LARGEST_SEED = 2**32 - 1
"""The largest seed. JAX keeps 32 bits of a seed, so beyond it two seeds would silently be the same."""


def checked_seed(seed: Any) -> int:
    """Return the seed as an int. Raises ValueError unless it is a whole number from 0 to 2³² − 1."""
    return whole_number("seed", seed, least=0, most=LARGEST_SEED)
