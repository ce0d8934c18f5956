"""Names of components made of columns, as topics have names made of words."""

import numpy as np
import pandas as pd

from lvsearch.data.points import Points

NAMED_BY = 2
"""The number of columns in a name."""


def column_names_of(values: pd.DataFrame, rows: Points, *, relative: bool) -> tuple[str, ...]:
    """Return a name for each component, such as "petal width 0.25, petal length 1.5".

    A name has the two columns in which the component stands out most, and the component's values in these columns.
    A column's distance counts in standard deviations of the data.

    values: the value of each component in each column, (components, columns), in the units of the data.
    rows: the data, from which the mean and the standard deviation of each column are computed.
    relative: True measures distance from the mean of the data, for means of clusters; False from 0, for loadings.

    Returns one name per component, in the order of the rows of `values`.
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
