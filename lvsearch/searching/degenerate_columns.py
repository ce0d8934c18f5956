"""Find the columns of a table that make a fit fail. People are told them when a fit is not a number."""

import numpy as np
from jaxtyping import Bool, Float

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import RowMatrix

REPEATED_SHARE, FEWEST_REPEATED = 0.25, 3
"""Equal cells that can make a component without any width in a column: this share of its cells, and at least so
many.
"""
FAR = 1e6
"""A cell this many times as far from the median as the median cell makes all other cells look like one value."""
PROPORTIONAL = 1e-10
"""Largest distance from 1 of the correlation of two columns that count as proportional."""
MOST_COMPARED = 500
"""Number of columns that are compared with each other."""


def degenerate_columns(data: Dataset) -> str:
    """Name the columns of a table that leave a component without width, and say why; "" where none is found.

    A component that holds only rows equal in one column, or rows whose columns are proportional, has no width in that
    direction. Where the prior lets widths shrink to 0, its density grows without bound and the fit is not a number.
    """
    if not isinstance(data.original, RowMatrix):
        return ""
    values, observed = data.original.values, data.original.observed
    found = [_fault_of_column(column, values[:, column], observed[:, column]) for column in range(values.shape[1])]
    return "; ".join(fault for fault in [*found, _find_proportional(values, observed)] if fault)


def _fault_of_column(number: int, cells: Float[np.ndarray, " row"], observed: Bool[np.ndarray, " row"]) -> str:
    """Return in words why one column by itself leaves a component without width; "" if it does not."""
    known = cells[observed]
    if not known.size:
        return ""
    distinct, counts = np.unique(known, return_counts=True)
    most = int(counts.max())
    if most >= max(FEWEST_REPEATED, REPEATED_SHARE * known.size):
        return f"column {number} is {distinct[counts.argmax()]:g} in {most} of {known.size} rows"
    away = np.abs(known - np.median(known))
    if away.max() > FAR * np.median(away):
        return f"column {number} has a cell of {known[away.argmax()]:g}, beside which all others look equal"
    return ""


def _find_proportional(values: Float[np.ndarray, "row dim"], observed: Bool[np.ndarray, "row dim"]) -> str:
    """Return in words the first two columns of which one is a multiple of the other; "" for none.

    Only rows without missing cells are compared.
    """
    whole = values[observed.all(1), :MOST_COMPARED]
    spread = whole.std(0) if len(whole) > 2 else np.zeros(0)
    varying = np.flatnonzero(spread > 0)
    if len(varying) < 2:
        return ""
    centred = (whole[:, varying] - whole[:, varying].mean(0)) / spread[varying]
    alike = np.triu(np.abs(centred.T @ centred) / len(whole) > 1 - PROPORTIONAL, 1)
    if not alike.any():
        return ""
    first, second = varying[np.argwhere(alike)[0]]
    return f"columns {first} and {second} are proportional"
