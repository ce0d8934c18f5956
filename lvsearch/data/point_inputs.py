"""Checks of the arguments that `Points` are made of: a matrix, a mask, and names."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from lvsearch.models.plain_arguments import as_list


def real_matrix(X: Any) -> Float[np.ndarray, "row column"]:
    """Return X as a float64 matrix (row, column). Raises ValueError for anything but a dense matrix of real numbers."""
    if hasattr(X, "toarray"):
        raise ValueError("got a sparse matrix; expected a dense one: X.toarray(), if the absent entries are zeros")
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"got rows of different lengths ({error}); expected a matrix (rows, columns)") from error
    if array.dtype.kind not in "fiub":
        raise ValueError(f"got values of type {array.dtype}; expected real numbers in a matrix (rows, columns)")
    if array.ndim != 2:
        raise ValueError(
            f"got an array of shape {array.shape}; expected two axes (rows, columns): X[:, None] makes one column of a "
            "list of numbers, X[None] one row"
        )
    return array.astype(np.float64)


def cell_mask(observed: Any, shape: tuple[int, ...]) -> Bool[np.ndarray, "row column"]:
    """Return the mask of known cells, shape (row, column).

    shape: the shape of the data.

    Raises ValueError for another shape, and for values other than True and False.
    """
    mask = np.asarray(observed)
    if mask.dtype != bool:
        raise ValueError(f"got observed of type {mask.dtype}; expected True and False, one for each cell")
    if mask.shape != shape:
        raise ValueError(f"got observed of shape {mask.shape} for values of shape {shape}; expected one for each cell")
    return mask


def refuse_nan(values: Float[np.ndarray, "row column"], columns: tuple[str, ...]) -> None:
    """Raise ValueError if a value is NaN, naming its row and its column.

    values: (row, column). columns: the names of the columns.
    """
    bad = np.isnan(values)
    if bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        raise ValueError(
            f"got NaN in {bad.sum():,} of {bad.size:,} cells, the first in row {row}, column {columns[column]!r}; "
            'expected numbers. Where NaN marks a missing cell say so: lv.Points.from_array(X, missing="nan") (or '
            "from_frame, for a data frame), or give observed="
        )


def name_strings(what: str, values: Iterable[Any] | None, expected: int) -> tuple[str, ...] | None:
    """Return names as a tuple of strings; None stays None.

    what: the name of the argument, for the error. expected: how many names there should be.

    Raises ValueError for a single string, and for another number of names.
    """
    if isinstance(values, str):
        raise ValueError(f"got the string {values[:40]!r} as {what}; expected a list of {expected:,} names")
    strings = None if values is None else tuple(str(value) for value in as_list(what, values))
    if strings is not None and len(strings) != expected:
        raise ValueError(f"got {len(strings):,} {what}, expected {expected:,}: one for each")
    return strings
