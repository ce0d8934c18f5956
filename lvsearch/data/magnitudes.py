"""Numbers that engines can square: neither too large nor, whole columns of them, too small."""

import numpy as np
from jaxtyping import Float

LARGEST, SMALLEST = 1e15, 1e-15
"""Engines square values in float32, whose range is 1e-38 to 3e38. Of a column, the largest value must be within."""


def refuse_magnitudes(
    values: Float[np.ndarray, "row column"], columns: tuple[str, ...], row_noun: str = "row", noun: str = "column"
) -> None:
    """ValueError for a value that is not finite or beyond ±LARGEST, and for a column of values all within SMALLEST of 0
    that are not all 0, naming the first."""
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
