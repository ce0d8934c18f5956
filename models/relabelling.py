"""The number of distinct ways to relabel the exchangeable components of a fit."""

import numpy as np


def log_relabellings(rows: np.ndarray) -> float:
    """Return log(K! / Π_j m_j!) in nats: the log number of distinct ways to relabel K components.

    m_j are the sizes of the groups of equal components; exchanging equal components gives no new relabelling.

    rows: one component in each row, shape (K, numbers). Components are equal if their numbers agree within 1e-3,
        relative or absolute.
    """
    return float(_log_factorial(len(rows)) - sum(_log_factorial(m) for m in _group_sizes(rows)))


def _log_factorial(n: int) -> float:
    """Return log n! in nats."""
    return float(np.log(np.arange(1, n + 1)).sum())


def _group_sizes(rows: np.ndarray) -> list[int]:
    """Return the sizes of the groups of equal rows; a row belongs to the first group whose first row it equals.

    rows: shape (row, numbers). Numbers are equal if they agree within 1e-3, relative or absolute.
    """
    left, sizes = rows, []
    while len(left):
        same = np.isclose(left, left[0], rtol=1e-3, atol=1e-3).all(-1)
        sizes.append(int(same.sum()))
        left = left[~same]
    return sizes
