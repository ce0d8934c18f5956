"""Columns that leave a component without width: fits under weak priors are numbers; others name the columns."""

from itertools import product

import numpy as np
import pytest
from tiers import in_tiers

import lvsearch as lv
from lvsearch.searching.evaluators import columns_far_from_0, degenerate_columns
from lvsearch.sklearn.mixture_search import KINDS, low_rank

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


TABLES = {
    "half equal": HALF_EQUAL,
    "no width": HALF_EQUAL + 6.0 * (np.arange(32) >= 16)[:, None],
    "proportional": NOISE[:, [0, 0]] * [1.0, 2.0],
    "far": FAR,
    "two rows": TWO_ROWS,
}
MIXTURES = {**KINDS, "low-rank": lambda values: low_rank(values, 1)}
FAST = ("half equal", "diag", 2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("table", "kind", "size"),
    in_tiers(product(TABLES, MIXTURES, (1, 2, 3)), lambda case: case == FAST),
)
def test_fits_under_weak_priors_are_numbers(table: str, kind: str, size: int) -> None:
    rows = TABLES[table]
    assert np.isfinite(lv.fit(MIXTURES[kind](rows), rows, size=size).evidence.lower)


@pytest.mark.thorough
def test_a_fit_without_a_least_width_says_what_to_do() -> None:
    """The priors of `weak` without it."""
    rows, one = TABLES["no width"], lv.models.GammaPrior(1.0, 1.0)
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(rows, one, 2.0, one))
    with pytest.raises(ValueError, match=r"column 0 is 0\.7 in 16 of 32 rows.*least_rate=1e-8"):
        lv.fit(model, rows, size=2)


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_chains_compare_every_size(table: str) -> None:
    search = lv.sklearn.MixtureSearch(covariance_type="diag", max_size=3).fit(TABLES[table])
    assert search.result_.not_compared == {}
    assert search.result_.estimated.is_decided
    assert search.best_size_ > 1 or table == "proportional"


@pytest.mark.slow
def test_annealing_that_misses_the_equal_cells_does_not_decide() -> None:
    """Paths along the rows seldom come upon a width of almost nothing: the fit's bound shows that they missed it."""
    result = lv.search(MIXTURES["diag"](HALF_EQUAL), HALF_EQUAL, evidence="annealed", max_size=3, progress=False)
    assert result.not_compared == {}
    assert result.best_size == (2,) or not result.estimated.is_decided


def test_columns_far_from_0_are_named() -> None:
    """Components centred on 0 may lose the digits of such columns; whether the fit is then no number is rounding."""
    points = lv.Points.from_array(NOISE + np.array([0.0, 1.7e9]))
    assert columns_far_from_0(points.dataset()) == f"column 1 is about 1.7e+09 and varies by {NOISE[:, 1].std():.2g}"
    assert columns_far_from_0(lv.Points.from_array(NOISE + 1e4).dataset()) == ""
    assert columns_far_from_0(lv.Corpus.from_any(np.eye(2, dtype=int)).dataset()) == ""
