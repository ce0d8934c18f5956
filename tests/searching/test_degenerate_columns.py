"""A fit that is not a number names the columns that made it so."""

import numpy as np
import pytest

import lvsearch as lv
from lvsearch.searching.degenerate_columns import degenerate_columns

NOISE = np.random.default_rng(0).standard_normal((32, 2))
HALF_EQUAL = np.where((np.arange(32) < 16)[:, None] & np.array([True, False]), 0.7, NOISE)
FAR = np.where((np.arange(32) == 3)[:, None] & np.array([False, True]), 1e9, NOISE)
TWO_ROWS = np.array([[0.0, 1.0], [2.0, 5.0]])[np.arange(32) % 2]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (HALF_EQUAL, "column 0 is 0.7 in 16 of 32 rows"),
        (FAR, "column 1 has a cell of 1e+09, beside which all others look equal"),
        (NOISE[:, [0, 0]] * [1.0, 2.0], "columns 0 and 1 are proportional"),
        (TWO_ROWS, "column 0 is 0 in 16 of 32 rows; column 1 is 1 in 16 of 32 rows; columns 0 and 1 are proportional"),
        (NOISE, ""),
    ],
    ids=["half equal", "far", "proportional", "two rows", "nothing"],
)
def test_columns_without_width_are_named(rows: np.ndarray, said: str) -> None:
    assert degenerate_columns(lv.Points.from_array(rows).dataset()) == said


def test_missing_cells_are_no_repeated_value() -> None:
    holed = np.where((np.arange(32) < 16)[:, None], np.nan, NOISE)
    assert degenerate_columns(lv.Points.from_array(holed, missing="nan").dataset()) == ""
