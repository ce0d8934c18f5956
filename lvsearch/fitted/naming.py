"""Names of components made of columns, as topics have names made of words."""

import numpy as np
import pandas as pd

from lvsearch.data.points import Points

NAMED_BY = 2
"""The number of columns in a name."""


def column_names_of(values: pd.DataFrame, rows: Points, *, relative: bool) -> tuple[str, ...]:
    """Return a name for each component, such as "petal width 0.25, petal length 1.5".

    A name has the columns in which the component stands out most, and its values there.

    values: a row per component, a column per column of the data.
    rows: the data, for the mean and spread of each column.
    relative: measure from the mean of the data, as for means of clusters; else from 0, as for loadings.
    """
    with np.errstate(invalid="ignore"):
        known = np.maximum(rows.observed.sum(axis=0), 1)
        mean = rows.filled.sum(axis=0) / known
        spread = np.sqrt((np.where(rows.observed, rows.filled - mean, 0.0) ** 2).sum(axis=0) / known)
    matrix = values.to_numpy(np.float64)
    apart = np.abs(matrix - mean if relative else matrix) / np.maximum(spread, 1e-300)
    order = np.argsort(-apart, axis=1, kind="stable")[:, :NAMED_BY]
    return tuple(
        ", ".join(f"{values.columns[column]} {matrix[row, column]:.3g}".replace("-", "−") for column in columns)
        for row, columns in enumerate(order.tolist())
    )
