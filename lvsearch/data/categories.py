"""Columns of categories as indicators, one column for each category: what latent classes are given."""

import numpy as np
import pandas as pd

from lvsearch.files.plain_text import visible


def indicators(frame: pd.DataFrame, missing: str | None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(values, observed, names): (rows, categories) of 0 and 1, which are known, and "column=category" for each.

    Categories are those of a pandas Categorical, in its order, else the values that occur, sorted. missing: "nan" where
    an empty cell is an answer that is not known. Raises ValueError for empty cells without it, and for columns of fewer
    than two categories.
    """
    if missing not in (None, "nan"):
        raise ValueError(f'got missing={missing!r}; expected "nan", for answers that are not known, or None')
    values, observed, names = [], [], []
    for name in frame.columns:
        column = frame[name]
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
        names += [f"{name}={level}" for level in levels]
    return np.concatenate(values, axis=1), np.concatenate(observed, axis=1), names
