"""Find the columns of a table that make a fit fail, to name them in the message when a fit is not a number."""

import numpy as np
from jaxtyping import Bool, Float

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.rows import RowMatrix

REPEATED_SHARE, FEWEST_REPEATED = 0.25, 3
"""The share and the number of equal cells in a column from which on a component can be left without width."""
FAR = 1e6
"""The factor by which a cell may be farther from the median than half of the cells are; farther cells are faults."""
FAR_FROM_0 = 1e6
"""The factor by which a column's mean may be larger than its standard deviation before the column counts as far from
0."""
PROPORTIONAL = 1e-10
"""The largest distance from 1 of the absolute correlation of two columns that count as proportional."""
MOST_COMPARED = 500
"""The largest number of columns that are compared with each other."""


def degenerate_columns(data: Dataset) -> str:
    """Return in words which columns of a table can leave a component without width, and why; "" if none does.

    A component that holds only rows equal in one column, or rows whose columns are proportional, has no width in that
    direction. Where the prior lets widths shrink to 0, its density grows without bound and the fit is not a number.
    """
    if not isinstance(data.original, RowMatrix):
        return ""
    values, observed = data.original.values, data.original.observed
    found = [_fault_of_column(column, values[:, column], observed[:, column]) for column in range(values.shape[1])]
    return "; ".join(fault for fault in [*found, _find_proportional(values, observed)] if fault)


def columns_far_from_0(data: Dataset) -> str:
    """Return in words the first column of a table whose cells vary little beside their distance from 0; "" for none.

    Components that are centred on 0 lose the digits in which such cells differ: covariances are differences of squares.
    """
    if not isinstance(data.original, RowMatrix):
        return ""
    values, observed = data.original.values, data.original.observed
    for column in range(values.shape[1]):
        known = values[observed[:, column], column]
        if known.size and abs(known.mean()) > FAR_FROM_0 * known.std():
            return f"column {column} is about {known.mean():.3g} and varies by {known.std():.2g}"
    return ""


def _fault_of_column(number: int, cells: Float[np.ndarray, " row"], observed: Bool[np.ndarray, " row"]) -> str:
    """Return in words why one column by itself can leave a component without width; "" if it cannot.

    number: the number of the column, for the message. cells: its values. observed: False for missing cells.
    """
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
    """Return in words the first two columns whose correlation is ±1 up to rounding; "" for none.

    Only rows without missing cells are compared. observed: False for missing cells.
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
