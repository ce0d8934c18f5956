"""Names of components that are made of columns, as topics have names made of words."""

import numpy as np
import pandas as pd

from lvsearch.data.points import Points

NAMED_BY = 2
"""Columns in a name."""


def column_names_of(values: pd.DataFrame, rows: Points, *, relative: bool) -> tuple[str, ...]:
    """A name for each row of `values` (components, columns): the columns that stand out most and its values in them.

    relative: stand out from the mean of the data, as means do; else from 0, as loadings. Such as "petal width 0.25,
    petal length 1.5".
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
