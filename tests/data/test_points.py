"""Points: what is taken, what is refused and in which words, what a missing cell is, parts, identity, storage."""

import json
from datetime import timedelta, timezone
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import lvsearch as lv
from lvsearch.inference import rows
from lvsearch.inference.data.rows import ROWS_PER_BATCH, ROWS_STEP

X = np.array([[1.0, -2.5, 3.0], [0.25, 8.0, -1.0], [4.0, 5.0, 6.5], [9.0, 0.0, 2.0], [-7.0, 1.5, 0.5]])
KNOWN = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
HOLES = np.where(KNOWN, X, np.nan)
NAMES = ("height", "weight", "age")


@pytest.fixture
def points() -> lv.Points:
    return lv.Points.from_array(X, KNOWN, columns=NAMES, row_names=list("abcde"))


# -- what is taken -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("matrix", [X, X.tolist(), jnp.asarray(X), X.astype(np.float32), np.asfortranarray(X)])
def test_any_matrix_of_numbers_will_do(matrix):
    points = lv.Points.from_array(matrix)
    assert_array_equal(points.values, X)
    assert points.observed.all()
    assert (points.columns, points.row_names, points.notes) == (("column0", "column1", "column2"), None, ())
    assert (points.n_units, points.n_observations, points.shape, len(points)) == (5, 15, (5, 3), 5)
    assert lv.Points.from_array(np.array([[True, False], [False, True]])).values.tolist() == [[1, 0], [0, 1]]


def test_missing_cells_are_those_that_the_caller_named(points):
    assert_array_equal(points.observed, KNOWN)
    assert_array_equal(points.values, np.where(KNOWN, X, np.nan))
    assert_array_equal(points.filled, np.where(KNOWN, X, 0.0))
    assert points.notes == ("1 of 5 rows have no observed cell; kept in place",)
    assert_array_equal(points.observations_per_unit, [3, 2, 0, 2, 3])
    given = {"columns": NAMES, "row_names": list("abcde")}
    masked = np.ma.MaskedArray(X, ~KNOWN)
    for same in (
        lv.Points.from_array(HOLES, missing="nan", **given),
        lv.Points.from_array(HOLES, KNOWN, **given),  # what is not observed may hold anything
        lv.Points.from_array(np.where(KNOWN, X, np.inf), KNOWN, **given),
        lv.Points.from_array(masked, **given),
        lv.Points(X, KNOWN, NAMES, tuple("abcde")),
        lv.Points.from_frame(pd.DataFrame(HOLES, columns=NAMES, index=list("abcde")), missing="nan"),
    ):
        assert same == points
    fewer = lv.Points.from_array(masked, X < 9)
    assert_array_equal(fewer.observed, KNOWN & (X < 9))


def test_an_unobserved_column_is_kept_and_noted():
    holes = X.copy()
    holes[:, 1] = np.nan
    points = lv.Points.from_array(holes, missing="nan")
    assert points.notes == ("1 of 3 columns have no observed cell; kept in place",)
    assert points.shape == (5, 3)


def test_frames_bring_their_names():
    frame = pd.DataFrame({"a": [1, 2], "b": pd.array([3, None], dtype="Int64"), "c": [True, False]}, index=["x", "y"])
    points = lv.Points.from_frame(frame, missing="nan")
    assert (points.columns, points.row_names) == (("a", "b", "c"), ("x", "y"))
    assert_array_equal(points.observed, [[True, True, True], [True, False, True]])
    assert lv.Points.from_frame(frame[["a"]].reset_index(drop=True)).row_names is None
    pd.testing.assert_frame_equal(points.to_frame(), frame.astype(float))


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([3, 7, 9, -1, 4]),
        pd.Index([0.1, 2.5, 1e-20, 3.0, 7.0]),
        pd.to_datetime(
            ["2020-01-01", "1999-12-31 23:59:59.5", "2020-01-02", "2021-01-01", "2022-01-01"], format="ISO8601"
        ),
        pd.Index(["07", "7", "b", "c", "d"]),
        pd.Index(["07", "7", "b", "c", "d"], name="who"),
        pd.RangeIndex(5, name="who"),
        pd.Index([3, 5, 8, 9, 11], dtype=object, name=7),
        pd.date_range("2020-10-25 00:30", periods=5, freq="h", tz="Europe/Paris", name="when"),  # an hour twice
        pd.date_range("2020", periods=5, freq="ns", tz=timezone(timedelta(hours=5, minutes=30))),
        pd.date_range("2020-03-29", periods=5, freq="h", tz="UTC"),
        pd.period_range("2020-01", periods=5, freq="M"),
        pd.period_range("2020-01", periods=5, freq="W"),
        pd.period_range("2020-01", periods=5, freq="Q"),
        pd.timedelta_range("1 day", periods=5, freq="7h"),
        pd.Index(pd.date_range("2020-01-01", periods=5).date),
        pd.Index([3, 7, 9, -1, 4], dtype=object),
    ],
    ids=str,
)
def test_results_align_with_the_frame(index):
    frame = pd.DataFrame(X, columns=NAMES, index=index)
    points = lv.Points.from_frame(frame)
    settings, arrays = points.to_storage()
    for each in (points, lv.Points.from_storage(json.loads(json.dumps(settings)), arrays)):
        assert (frame - each.to_frame()).abs().to_numpy().max() == 0  # NaN where rows do not meet
        assert getattr(each.to_frame().index, "tz", None) == getattr(index, "tz", None)
        assert each.to_frame().index.name == (None if index.name is None else str(index.name))
    part = points.part(np.array([3, 0]), "two")
    assert part.to_frame().index.equals(index[[3, 0]])
    answers = pd.DataFrame({"q": list("abaab")}, index=index)
    assert lv.Points.from_categories(answers).to_frame().index.equals(index)


def test_parts_of_a_data_frame_align_with_it_without_names_too():
    frame = pd.DataFrame(X, columns=NAMES)
    points = lv.Points.from_frame(frame)
    assert points.row_names is None
    assert lv.Points.from_frame(frame) == lv.Points.from_array(X, columns=NAMES)
    parts = points.split(0.4, seed=0)
    for part in (*parts, parts[0].select([1, 0])):
        pd.testing.assert_frame_equal(part.to_frame(), frame.loc[part.to_frame().index])
    assert lv.Points.from_array(X).part(np.array([3, 0]), "two").row_names is None


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2020-10-24 22:00", periods=5, freq="h", tz="Europe/Berlin"),
        pd.CategoricalIndex([3, 7, 9, -1, 4]),
        pd.CategoricalIndex(list("badec")),
    ],
)
def test_results_align_with_indexes_of_equal_names(index):
    """Their own index may be of a simpler kind: categories are no categories any more."""
    frame = pd.DataFrame(X, columns=NAMES, index=index)
    column = lv.Points.from_frame(frame).to_frame()[NAMES[0]]
    assert (frame.assign(again=column)["again"] == frame[NAMES[0]]).all()


def test_kinds_of_row_names_that_are_refused():
    with pytest.raises(ValueError, match="got row_kind='day'; expected one of text, whole"):
        lv.Points(X, KNOWN | True, NAMES, tuple("abcde"), row_kind="day")
    with pytest.raises(ValueError, match="'a'"):
        lv.Points(X, KNOWN | True, NAMES, tuple("abcde"), row_kind="whole")
    with pytest.raises(ValueError, match="got row_zone='UTC' for row names of kind 'text'; expected times"):
        lv.Points(X, KNOWN | True, NAMES, tuple("abcde"), row_zone="UTC")
    days = tuple(f"2020-01-0{day}" for day in range(1, 6))
    with pytest.raises(ValueError, match="got row_zone='Europe/Nowhere'; expected a time zone"):
        lv.Points(X, KNOWN | True, NAMES, days, row_kind="time", row_zone="Europe/Nowhere")


def test_a_mask_in_a_data_frame_is_matched_by_name():
    frame = pd.DataFrame(X, columns=NAMES, index=list("abcde"))
    mask = pd.DataFrame(KNOWN, columns=NAMES, index=frame.index)
    expected = lv.Points.from_frame(frame, KNOWN)
    assert lv.Points.from_frame(frame, mask[["age", "height", "weight"]]) == expected
    with pytest.raises(
        ValueError, match="got observed with the columns 'height', 'weight'; expected those of the data"
    ):
        lv.Points.from_frame(frame, mask[["height", "weight"]])
    with pytest.raises(ValueError, match=r"got observed with another index than the data frame; .* observed\.loc\["):
        lv.Points.from_frame(frame, mask.iloc[::-1])


@pytest.mark.parametrize("names", [{"a", "b"}, frozenset("ab"), {"a": 1, "b": 2}])
def test_names_have_an_order(names):
    kind = type(names).__name__
    with pytest.raises(ValueError, match=f"got a {kind} as columns; expected a list, whose order is that of the data"):
        lv.Points.from_array([[1, 2]], columns=names)
    with pytest.raises(ValueError, match=f"got a {kind} as row_names"):
        lv.Points.from_array([[1], [2]], row_names=names)
    with pytest.raises(ValueError, match=f"got a {kind} as names"):
        lv.Groups.from_arrays([[[1.0]], [[2.0]]], names=names)
    for what in ("document_names", "document_labels"):
        with pytest.raises(ValueError, match=f"got a {kind} as {what}"):
            lv.Corpus.from_texts(["apple", "pear"], **{what: names})
    assert lv.Points.from_array([[1, 2]], columns={"a": 1, "b": 2}.keys()).columns == ("a", "b")


def test_times_that_text_does_not_give_back_name_rows_all_the_same():
    frame = pd.DataFrame(X, index=pd.date_range("1850", periods=5, tz="Europe/Berlin"))  # 53:28 from Greenwich
    points = lv.Points.from_frame(frame)
    assert points.row_names == tuple(map(str, frame.index))
    assert points.row_kind == "text"
    for kind in ("period[nonsense]", "date", "duration"):
        with pytest.raises(ValueError):  # noqa: PT011 — pandas says why
            lv.Points(X, KNOWN | True, NAMES, tuple("abcde"), row_kind=kind)


def test_files(tmp_path: Path, points):
    frame = pd.DataFrame(HOLES, columns=NAMES, index=pd.Index(list("abcde"), name="who"))
    frame.to_csv(tmp_path / "named.csv")
    assert lv.Points.from_csv(tmp_path / "named.csv", row_names="who", missing="nan") == points
    np.savetxt(tmp_path / "bare.csv", X, delimiter=",")
    assert lv.Points.from_csv(tmp_path / "bare.csv", header=False) == lv.Points.from_array(X)
    np.save(tmp_path / "x.npy", HOLES)
    assert lv.Points.from_npy(tmp_path / "x.npy", missing="nan") == lv.Points.from_array(HOLES, missing="nan")


# -- what is refused ---------------------------------------------------------------------------------------------------


NAN = r"got NaN in 5 of 15 cells, the first in row 1, column 'column1'.*from_array\(X, missing=\"nan\"\).*observed="


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (HOLES, {}, NAN),
        (HOLES, {"observed": X < 100}, NAN),
        (HOLES, {"missing": "NA"}, r"got missing='NA'; expected \"nan\" or None.*observed=\(X != value\)"),
        (np.where(X == 9, np.inf, X), {}, r"got inf in row 3, column 'column0'; expected finite numbers up to 1e\+15"),
        (np.where(X == 9, -1e16, X), {"missing": "nan"}, r"got -1e\+16 in row 3.*rescale the column"),
        (X[:, 0], {}, r"shape \(5,\); expected two axes \(rows, columns\): X\[:, None\]"),
        (X[None], {}, r"shape \(1, 5, 3\); expected two axes"),
        (X[:0], {}, "got 0 rows and 3 columns"),
        (X[:, :0], {}, "got 5 rows and 0 columns"),
        ([[1.0], [1.0, 2.0]], {}, r"rows of different lengths"),
        ([["a", "b"]], {}, r"values of type <U1; expected real numbers"),
        ([[1.0, None]], {}, r"values of type object"),
        (X + 1j, {}, r"values of type complex128"),
        (sp.csr_array(X), {}, r"sparse matrix.*X\.toarray\(\)"),
        (pd.DataFrame(X), {}, r"data frame; use lv\.Points\.from_frame"),
        (X, {"observed": KNOWN[:, :2]}, r"observed of shape \(5, 2\) for values of shape \(5, 3\)"),
        (X, {"observed": KNOWN.astype(int)}, r"observed of type int64; expected True and False"),
        (X, {"observed": X > 100}, r"5 rows without a single observed cell"),
        (X, {"columns": "abc"}, r"the string 'abc' as columns; expected a list of 3 names"),
        (X, {"columns": ["a", "b"]}, r"got 2 columns, expected 3: one for each"),
        (X, {"columns": ["a", "b", "a"]}, r"column name 'a' twice"),
        (X, {"row_names": ["a"]}, r"got 1 row_names, expected 5: one for each"),
    ],
)
def test_matrices_that_are_refused(matrix, options, message):
    with pytest.raises(ValueError, match=message):
        lv.Points.from_array(matrix, **options)


def test_frames_that_are_refused():
    with pytest.raises(ValueError, match=r"1 column\(s\) without numbers, the first 'who'.*select_dtypes"):
        lv.Points.from_frame(pd.DataFrame({"x": [1.0], "who": ["Ann"]}))
    with pytest.raises(ValueError, match=r"1 column\(s\) without numbers, the first 'x'"):
        lv.Points.from_frame(pd.DataFrame({"x": [1 + 2j]}))
    with pytest.raises(ValueError, match=r"got NaN in 1 of 2 cells, the first in row 1, column 'x'.*from_frame"):
        lv.Points.from_frame(pd.DataFrame({"x": pd.array([1, None], dtype="Int64")}))
    with pytest.raises(ValueError, match="several levels of names"):
        lv.Points.from_frame(pd.DataFrame(X).set_index([0, 1]))


def test_files_that_are_refused(tmp_path: Path):
    def written(text: str) -> Path:
        (tmp_path / "x.csv").write_text(text)
        return tmp_path / "x.csv"

    with pytest.raises(ValueError, match=r"only numbers on the first line.*header=False"):
        lv.Points.from_csv(written("1,2\n3,4\n"))
    with pytest.raises(ValueError, match=r"x\.csv: .*expected comma-separated numbers, as many on every line"):
        lv.Points.from_csv(written("a,b\n1,2\n3,4,5\n"))
    with pytest.raises(ValueError, match=r"x\.csv: got lines with more values than the header has names"):
        lv.Points.from_csv(written("a,b\n1,2,3\n4,5,6\n"))
    with pytest.raises(ValueError, match=r"x\.csv: .*expected comma-separated"):
        lv.Points.from_csv(written(""))
    with pytest.raises(ValueError, match=r"x\.csv: .*who"):
        lv.Points.from_csv(written("a,b\n1,2\n"), row_names="who")
    with pytest.raises(ValueError, match="got 'Ann' in the column 'a', row 0"):
        lv.Points.from_csv(written("a,b\nAnn,2\nBob,4\n"))
    with pytest.raises(ValueError, match="got NaN in 1 of 4 cells, the first in row 0, column 'b'"):
        lv.Points.from_csv(written("a,b\n1,\n3,4\n"))
    np.save(tmp_path / "objects.npy", np.array([[1, None]]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"objects\.npy: .*expected a matrix written by numpy\.save"):
        lv.Points.from_npy(tmp_path / "objects.npy")
    np.savez(tmp_path / "several.npz", a=X)
    with pytest.raises(ValueError, match="an archive of several arrays"):
        lv.Points.from_npy(tmp_path / "several.npz")


# -- parts, identity, storage ------------------------------------------------------------------------------------------


def test_it_is_frozen(points):
    with pytest.raises(ValueError, match="read-only"):
        points.values[0, 0] = 1.0
    mine = X.copy()
    points = lv.Points.from_array(mine)
    mine[0, 0] = 99.0
    assert points.values[0, 0] == 1.0


def test_parts_keep_rows_together(points):
    part = points.select([3, 0])
    assert_array_equal(part.values, points.values[[3, 0]])
    assert_array_equal(part.observed, KNOWN[[3, 0]])
    assert (part.row_names, part.columns, part.notes[-1]) == (("d", "a"), NAMES, "selected 2 of 5 rows")
    train, test = points.split(0.4, seed=3)
    assert sorted(train.row_names + test.row_names) == list("abcde")
    assert test.notes[-1] == "2 of 5 rows held out (test_fraction=0.4, seed=3)"
    held_out = [name for _, side in points.folds(5) for name in side.row_names]
    assert sorted(held_out) == list("abcde")
    with pytest.raises(ValueError, match="got no row ids"):
        points.select([])
    with pytest.raises(ValueError, match="got 1 row; expected at least 2 rows to split"):
        points.select([0]).split()


def test_a_part_may_be_a_row_of_which_nothing_is_known(points):
    assert points.select([2]).n_observations == 0


def test_equality_is_content(points):
    others = (
        lv.Points.from_array(X, columns=NAMES, row_names=list("abcde")),
        lv.Points.from_array(X + 1, KNOWN, columns=NAMES, row_names=list("abcde")),
        lv.Points.from_array(X, KNOWN, columns=NAMES),
        lv.Points.from_array(X, KNOWN, columns=NAMES[::-1], row_names=list("abcde")),
        lv.Points.from_array(X[[1, 0, 2, 3, 4]], KNOWN, columns=NAMES, row_names=list("abcde")),
    )
    assert len({points, *others}) == 6
    assert points != "points"
    assert points.fingerprint == "9734f2fe72ae5f1b1ffe308be555d5be2aeff39f61d69bd11d93ef52a8563bd0"


def test_storage_gives_it_back(points):
    for one in (points, lv.Points.from_array(X), points.select([1, 3])):
        settings, arrays = one.to_storage()
        again = lv.Points.from_storage(settings, arrays)
        assert again == one
        assert (again.notes, again.row_names) == (one.notes, one.row_names)


def test_it_is_described_in_its_own_words(points):
    assert points.describe() == "5 rows × 3 columns, 10 of 15 cells observed"
    assert repr(lv.Points.from_array(X)) == "Points(5 rows × 3 columns, all 15 cells observed)"
    assert "3: height, weight, age" in str(points)
    assert "<caption>Points</caption>" in points._repr_html_()
    for word in ("document", "token", "word"):
        assert word not in str(points) + points._repr_html_()


# -- new rows ----------------------------------------------------------------------------------------------------------


def test_new_rows_are_over_the_same_columns(points):
    assert points.like_this(X[:2]).columns == NAMES
    assert points.like_this(pd.DataFrame(X, columns=NAMES)).columns == NAMES
    assert points.like_this(points.select([0])) == points.select([0])
    with pytest.raises(ValueError, match="rows of 2 columns, expected the 3 of the training data"):
        points.like_this(X[:, :2])
    with pytest.raises(ValueError, match=r"in another order: column 0 is 'age', expected 'height'"):
        points.like_this(pd.DataFrame(X, columns=["age", "weight", "height"]))
    with pytest.raises(ValueError, match=r"of other names: column 0 is 'column0', expected 'height'"):
        points.like_this(lv.Points.from_array(X))
    with pytest.raises(ValueError, match=r"got NaN in 5 of 15 cells.*missing="):
        points.like_this(HOLES)


# -- as an array -------------------------------------------------------------------------------------------------------


def test_points_stand_for_their_values_wherever_an_array_is_asked_for():
    """The page on models says that a kind of component is made from `lv.Points`; it was refused: "expected numbers"."""
    counts = np.array([[1.0, 4.0], [2.0, np.nan], [7.0, 6.0]])
    points = lv.Points.from_array(counts, missing="nan")
    assert_array_equal(np.asarray(points), counts)
    np.asarray(points)[0, 0] = 9.0
    assert points.values[0, 0] == 1.0
    kinds = lv.models.DiagonalComponents, lv.models.FullCovarianceComponents
    for make in (*(kind.weak for kind in kinds), *(kind.scaled_to for kind in kinds)):
        assert_array_equal(make(points).scale, make(counts).scale)
    assert lv.models.PoissonFactorization.scaled_to(points).mean_count == 4.0


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 8, 9, ROWS_PER_BATCH, 2 * ROWS_PER_BATCH + 5])
def test_batches_hold_every_row_once(n: int):
    values = np.arange(2.0 * n).reshape(n, 2)
    observed = values % 3 > 0
    data = rows(values, observed)
    assert (data.n_units, data.extents) == (n, {"dim": 2})
    assert len(data.shapes) == 1
    assert_array_equal(data.gather([batch.units.value for batch in data.batches]), values)
    assert_array_equal(data.gather([batch.units.observed for batch in data.batches]), observed)
    for batch, ids in zip(data.batches, data.unit_ids, strict=True):
        assert len(ids) % ROWS_STEP == 0
        assert len(ids) <= ROWS_PER_BATCH
        assert_array_equal(batch.weight, ids >= 0)
        assert not batch.units.observed[ids < 0].any()
        assert (batch.units.value[ids < 0] == 0).all()


# -- joining -----------------------------------------------------------------------------------------------------------


def test_joined_rows_follow_with_their_names_and_missing_cells(points):
    joined = points.joined(lv.Points.from_array([[1.0, np.nan, 2.0]], missing="nan", columns=NAMES))
    assert_array_equal(joined.values[:5], points.values)
    assert_array_equal(joined.observed[5], [True, False, True])
    assert joined.row_names == (*"abcde", "5")
    assert "joined 1 rows to 5" in joined.notes
    days = pd.date_range("2026-01-01", periods=2)
    frame = pd.DataFrame(X[:2], columns=list(NAMES), index=days)
    dated = lv.Points.from_frame(frame)
    assert (
        dated.joined(frame.set_axis(days + pd.Timedelta(days=2)))
        .to_frame()
        .index.equals(pd.date_range(days[0], periods=4))
    )
    assert dated.joined(points).row_kind == "text"
    assert len(lv.Points.from_array(X).joined(X[:1]).to_frame()) == 6
    with pytest.raises(ValueError, match="2 columns"):
        points.joined(X[:, :2])
