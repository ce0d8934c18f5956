"""Check and convert the matrices that data are made of: their values, masks, names, magnitudes and categories.

Numbers whose square float32 cannot hold are refused: too large ones, and columns of too small ones. Columns of
categories are turned into indicators, one column of 0 and 1 for each category, as latent class models need.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lvsearch.files.plain_text import visible
from lvsearch.models.components.categorical import indicator_name, number_name
from lvsearch.models.plain_arguments import as_list, as_names, shortened_repr
from lvsearch.tables.frames import has_column, require_distinct

LARGEST, SMALLEST = 1e15, 1e-15
"""The limits of the largest value of a column. Inference squares values in float32, whose range is 1e-38 to 3e38."""


def refuse_magnitudes(
    values: Float[np.ndarray, "row column"], columns: tuple[str, ...], row_noun: str = "row", noun: str = "column"
) -> None:
    """Raise ValueError for numbers that are too large, or for a column of numbers that are all too small, naming the
    first.

    Too large is a value beyond ±LARGEST or not finite. Too small is a column within SMALLEST of 0 that is not all 0.

    values: the numbers, (row, column).
    columns: the names of the columns.
    row_noun, noun: the words for a row and a column in the message.
    """
    bad = ~(np.abs(values) <= LARGEST)
    if bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        raise ValueError(
            f"got {values[row, column]} in {row_noun} {row}, {noun} {columns[column]!r}; expected finite numbers "
            f"up to {LARGEST:g}: leave it out (mark it as not observed), or rescale the {noun}"
        )
    peaks = np.abs(values).max(axis=0, initial=0.0)
    tiny = np.flatnonzero((peaks > 0) & (peaks < SMALLEST))
    if len(tiny):
        raise ValueError(
            f"got values of at most {peaks[tiny[0]]:g} in the {noun} {columns[tiny[0]]!r}; expected some of at "
            f"least {SMALLEST:g}, or zeros: rescale the {noun}"
        )


def indicators(
    frame: pd.DataFrame, missing: str | None, numbers: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the columns of a data frame as indicators of their categories: (values, observed, names).

    frame: the data frame; each column is a question, each row a unit (observation).
    missing: "nan" if an empty cell is an unknown answer; None if every cell must be filled.
    numbers: columns of numbers, which are kept as they are.

    The categories of a column are those of its pandas Categorical, in its order, else the values that occur, sorted.

    Returns:
        values, (rows, categories) of 0 and 1; observed, True where the answer is known, same shape; names,
        "column=category" for each, as `lvsearch.models.components.categorical` writes them.

    Raises ValueError for empty cells without `missing`, columns of fewer than two categories, a column name twice,
    cells of several values, and `numbers` that are no columns of numbers.
    """
    if missing not in (None, "nan"):
        raise ValueError(f'got missing={missing!r}; expected "nan", for answers that are not known, or None')
    values, observed, names = [], [], []
    require_distinct("column", map(str, frame.columns))
    numbers = as_list("numbers", numbers)
    lost = [name for name in numbers if not has_column(frame.columns, name)]
    if lost:
        raise ValueError(f"got numbers={numbers!r}, expected columns of the frame: there is no {lost[0]!r}")
    for name in frame.columns:
        # columns of numbers are kept; every other column becomes one indicator for each of its categories
        column = frame[name]
        if name in numbers:
            cells = _numbers(pd.Series(column), missing)
            values.append(cells)
            observed.append(~np.isnan(cells))
            names.append(number_name(name))
            continue
        objects = column if pd.api.types.is_object_dtype(column.dtype) else ()
        nested = next((cell for cell in objects if not isinstance(cell, Hashable)), None)
        if nested is not None:
            raise ValueError(
                f"got the {type(nested).__name__} {shortened_repr(nested)} in the column {visible(str(name))!r}, "
                "expected one answer in each cell: make a column of yes and no of every possible answer"
            )
        coded = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
        levels, codes = list(coded.cat.categories), coded.cat.codes.to_numpy()
        if len(levels) < 2:
            raise ValueError(
                f"got the column {visible(str(name))!r} with {len(levels)} categories, expected at least two: it tells "
                "nothing apart; leave it out, or give it a Categorical with all its categories"
            )
        unknown = codes < 0
        if unknown.any() and missing is None:
            raise ValueError(
                f"got {int(unknown.sum())} empty cells in the column {visible(str(name))!r}, expected an answer in "
                'each: pass missing="nan" where these are not known'
            )
        values.append((codes[:, None] == np.arange(len(levels))).astype(np.float64))
        observed.append(np.repeat(~unknown[:, None], len(levels), axis=1))
        names += [indicator_name(name, level) for level in levels]
    return np.concatenate(values, axis=1), np.concatenate(observed, axis=1), names


def _numbers(column: pd.Series, missing: str | None) -> np.ndarray:
    """Return a column of numbers as an array of shape (rows, 1), NaN in empty cells.

    missing: "nan" if empty cells are allowed, else None.

    Raises ValueError for text, or for empty cells without `missing`.
    """
    if not pd.api.types.is_numeric_dtype(column):
        raise ValueError(f"got the column {visible(str(column.name))!r} among the numbers, expected one of numbers")
    cells = column.to_numpy(np.float64, na_value=np.nan)[:, None]
    if missing is None and np.isnan(cells).any():
        raise ValueError(
            f"got {int(np.isnan(cells).sum())} empty cells in the column {visible(str(column.name))!r}, expected a "
            'number in each: pass missing="nan" where these are not known'
        )
    return cells


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


def common_width(matrices: Sequence[np.ndarray], whole: str, row: str, cell: str) -> int:
    """Return the number of columns of several matrices; those without rows may have any.

    whole, row, cell: what a matrix, a row and a column are called in errors, such as "group", "row" and "column".

    Raises ValueError for arrays of other than two axes, for matrices of several widths, and if none has a row.
    """
    odd = next((n for n, matrix in enumerate(matrices) if matrix.size and matrix.ndim != 2), None)
    widths = {matrix.shape[1] for matrix in matrices if matrix.size and matrix.ndim == 2}
    if odd is not None or len(widths) > 1:
        got = f"{sorted(widths)} {cell}s per {row}" if odd is None else f"{whole} {odd} of shape {matrices[odd].shape}"
        raise ValueError(f"got {got}; expected ({row}s, {cell}s) for every {whole}, with the same {cell}s throughout")
    if not widths:
        raise ValueError(f"got {len(matrices):,} {whole}s without a single {row}; expected some")
    return widths.pop()


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

    Raises ValueError for a single string, a set or a dict, and for another number of names.
    """
    if isinstance(values, str):
        raise ValueError(f"got the string {values[:40]!r} as {what}; expected a list of {expected:,} names")
    strings = None if values is None else tuple(str(value) for value in as_names(what, values))
    if strings is not None and len(strings) != expected:
        raise ValueError(f"got {len(strings):,} {what}, expected {expected:,}: one for each")
    return strings
