"""Functions that processes of a pool find by their names."""

import multiprocessing
import os
from pathlib import Path


def calm(size: tuple[int, ...]) -> float:
    return -10.0 * (size[0] - 5.0) ** 2


def coins(size: int, data: object) -> None:
    """A NumPyro model that nobody runs."""


def dies_once(size: tuple[int, ...]) -> float:
    """The process of a pool that is asked for size 4 first ends at once, and leaves the file that DIES_ONCE names."""
    flag = Path(os.environ["DIES_ONCE"])
    if size == (4,) and multiprocessing.parent_process() is not None and not flag.exists():
        flag.touch()
        os._exit(1)
    return calm(size)
