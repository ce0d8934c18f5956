"""Turn columns of categories into indicators, one column of 0 and 1 for each category, as latent class models need."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lvsearch.files.plain_text import visible
from lvsearch.models.components.categorical import indicator_name, number_name


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

    Raises ValueError for empty cells without `missing`, columns of fewer than two categories, and `numbers` that are no
    columns of numbers.
    """
    if missing not in (None, "nan"):
        raise ValueError(f'got missing={missing!r}; expected "nan", for answers that are not known, or None')
    values, observed, names = [], [], []
    lost = [name for name in numbers if name not in frame.columns]
    if lost:
        raise ValueError(f"got numbers={list(numbers)!r}, expected columns of the frame: there is no {lost[0]!r}")
    for name in frame.columns:
        # columns of numbers are kept; every other column becomes one indicator for each of its categories
        column = frame[name]
        if name in numbers:
            cells = _numbers(pd.Series(column), missing)
            values.append(cells)
            observed.append(~np.isnan(cells))
            names.append(number_name(name))
            continue
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
