"""A check that refuses numbers whose square float32 cannot hold: too large ones, and columns of too small ones."""

import numpy as np
from jaxtyping import Float

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
