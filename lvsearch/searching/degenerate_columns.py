"""Which columns of a table make a fit fail: what people are told beside a fit that is not a number."""

import numpy as np
from jaxtyping import Bool, Float

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import RowMatrix

REPEATED_SHARE, FEWEST_REPEATED = 0.25, 3
"""Of a column's cells, and in all: so many equal ones can make a component without any width there."""
FAR = 1e6
"""Times as far from the median as the median cell: beside such a cell all others are one value."""
PROPORTIONAL = 1e-10
"""Of 1: by so little the correlation of two columns may fall short of it and the columns say the same."""
MOST_COMPARED = 500
"""Columns that are compared with each other."""


def degenerate_columns(data: Dataset) -> str:
    """Name the columns of a table that leave a component without width, and say why; "" where none is known to.

    A component that holds only rows equal in one column, or rows whose columns are proportional, has no width in that
    direction. Where the prior lets widths shrink to 0, its density grows without bound and a fit ends in no number.
    """
    if not isinstance(data.original, RowMatrix):
        return ""
    values, observed = data.original.values, data.original.observed
    found = [_fault(column, values[:, column], observed[:, column]) for column in range(values.shape[1])]
    return "; ".join(fault for fault in [*found, _proportional(values, observed)] if fault)


def _fault(number: int, cells: Float[np.ndarray, " row"], observed: Bool[np.ndarray, " row"]) -> str:
    """What is wrong with one column by itself; "" for nothing."""
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


def _proportional(values: Float[np.ndarray, "row dim"], observed: Bool[np.ndarray, "row dim"]) -> str:
    """The first two columns of which one is a multiple of the other, of rows that are whole."""
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
