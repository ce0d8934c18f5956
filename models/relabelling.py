"""How many distinct relabellings a fit of exchangeable components has."""

import numpy as np


def log_relabellings(rows: np.ndarray) -> float:
    """log(K! / Π m_j!) in nats for K components, one a row (K, numbers), m_j the sizes of groups of equal rows.

    Equal means within 1e-3, relative or absolute: equal components give no new relabelling.
    """
    return float(_log_factorial(len(rows)) - sum(_log_factorial(m) for m in _group_sizes(rows)))


def _log_factorial(n: int) -> float:
    return float(np.log(np.arange(1, n + 1)).sum())


def _group_sizes(rows: np.ndarray) -> list[int]:
    """Sizes of the groups of rows that equal the first of their group."""
    left, sizes = rows, []
    while len(left):
        same = np.isclose(left, left[0], rtol=1e-3, atol=1e-3).all(-1)
        sizes.append(int(same.sum()))
        left = left[~same]
    return sizes
