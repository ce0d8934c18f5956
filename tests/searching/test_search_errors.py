"""Bad input, through the calls that people make: what came, what was expected, what to do; and nothing is lost."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from small_searches import MAX_SIZE, N_DOCUMENTS, N_TERMS, PRIOR, Fake, corpus, searched

import lvsearch as lv
from lvsearch.searching.evaluators import ModelEvaluator


@pytest.fixture(autouse=True)
def no_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input is noticed before anything is fitted."""
    searched("plug-in"), searched("bound")  # these may be
    monkeypatch.setattr(ModelEvaluator, "evaluate", lambda *_: pytest.fail("something was fitted"))


def search(data: Any = None, **changed: Any) -> lv.SearchResult:
    arguments = {"prior": PRIOR, "max_size": 3, "evidence": "bound", "progress": False} | changed
    unchecked = getattr(lv.search, "__wrapped__", lv.search)  # without the checks of types that tests have
    return unchecked(lv.models.LDA(), corpus() if data is None else data, **arguments)


def counts() -> np.ndarray:
    return corpus().counts.toarray().astype(float)


def with_cell(value: float) -> np.ndarray:
    matrix = counts()
    matrix[3, 4] = value
    return matrix


# ── data ────────────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_DATA = [
    pytest.param(lambda: with_cell(-2.0), r"-2", id="negative"),
    pytest.param(lambda: with_cell(1.5), r"1\.5", id="fractional"),
    pytest.param(lambda: with_cell(np.nan), r"(?i)nan", id="NaN"),
    pytest.param(lambda: with_cell(np.inf), r"(?i)inf", id="infinite"),
    pytest.param(lambda: csr_array(with_cell(-2.0)), r"-2", id="negative, sparse"),
    pytest.param(lambda: pd.DataFrame(with_cell(np.nan)), r"(?i)nan", id="NaN, table"),
    pytest.param(lambda: np.zeros((4, 3), int), r"without a single token", id="no tokens"),
    pytest.param(lambda: np.zeros((0, 3), int), r"expected", id="no documents"),
    pytest.param(lambda: np.zeros((4, 0), int), r"expected", id="no terms"),
    pytest.param(lambda: np.ones(5, int), r"expected", id="one axis"),
]


@pytest.mark.parametrize(("data", "message"), BAD_DATA)
def test_bad_counts(data: Callable[[], Any], message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=rf"{message}"):
        search(data(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=rf"{message}"):
        lv.fit(lv.models.LDA(), data(), size=2)


def test_a_vocabulary_of_the_wrong_length():
    with pytest.raises(ValueError, match=rf"{N_TERMS - 1}.*{N_TERMS}|{N_TERMS}.*{N_TERMS - 1}"):
        lv.Corpus.from_matrix(corpus().counts, vocabulary=corpus().vocabulary[:-1])


def test_a_model_without_data():
    with pytest.raises(
        ValueError, match=r"a model without data: pass a Corpus, texts or a matrix of counts as the second"
    ):
        lv.search(lv.models.LDA(), prior=PRIOR, evidence="bound", max_size=3)


def test_a_function_with_data_or_per_token():
    function = lv.from_function(lambda size: -1.0)
    with pytest.raises(ValueError, match=r"a search over a function takes no data"):
        lv.search(function, corpus(), prior=PRIOR, max_size=3)
    with pytest.raises(ValueError, match=r"takes no data and no per_token"):
        lv.search(function, prior=PRIOR, max_size=3, per_token=True)


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_SETTINGS = [
    pytest.param(
        {"evidence": "exact"}, r"got evidence='exact', expected one of 'marginal', 'bound', 'plug-in'", id="evidence"
    ),
    pytest.param(
        {"evidence": "plug-in", "max_size": None}, r"when to stop with max_size=, seconds= or width=", id="stop"
    ),
    pytest.param({"max_size": 0}, r"got max_size=0, expected a whole number from 1 on", id="size 0"),
    pytest.param({"max_size": -3}, r"got max_size=-3, expected a whole number from 1 on", id="size −3"),
    pytest.param({"max_size": "3"}, r"got max_size='3', expected a whole number from 1 on", id="size as text"),
    pytest.param({"max_size": True}, r"got max_size=True, expected a whole number from 1 on", id="size as yes or no"),
    pytest.param(
        {"max_size": (3, 4)}, r"got max_size=\(3, 4\), expected a whole number", id="two sizes for one variable"
    ),
    pytest.param({"starts": 0}, r"got starts=0, expected a whole number of at least 1", id="starts"),
    pytest.param({"keep": 0}, r"got keep=0, expected a whole number of at least 1", id="keep"),
    pytest.param({"mesh": 2}, r"got mesh=2, expected a jax\.sharding\.Mesh", id="mesh"),
    pytest.param({"grow": "no"}, r"got grow='no', expected True or False", id="grow"),
    pytest.param({"starts": 1.5}, r"got starts=1\.5, expected a whole number", id="starts of one and a half"),
    pytest.param({"max_size": 10**30}, r"got size .*, expected at most 2,147,483,647 of each", id="size 10³⁰"),
    pytest.param({"seconds": -1}, r"got seconds=-1, expected a number of at least 0, or None", id="seconds"),
    pytest.param({"seconds": float("nan")}, r"got seconds=nan, expected a number", id="seconds NaN"),
    pytest.param({"width": -0.5}, r"got width=-0\.5, expected a number of at least 0", id="width"),
    pytest.param({"width": float("nan")}, r"got width=nan, expected a number", id="width NaN"),
    pytest.param({"exhaustive": True, "max_size": None}, r"exhaustive=True without max_size: say", id="exhaustive"),
    pytest.param(
        {"prior": lv.sizes.Product(PRIOR, PRIOR), "max_size": 3},
        r"a prior over 2 size variable\(s\), expected 1 \(topics\): combine priors with lv\.sizes\.Product",
        id="prior of two variables",
    ),
]


@pytest.mark.parametrize(("changed", "message"), BAD_SETTINGS)
def test_bad_settings(changed: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        search(**changed, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_size_of_two_variables_is_asked_for_as_a_tuple():
    """It said "Sizes start at 1, not 0" of 3."""
    with pytest.raises(ValueError, match=r"got size=3, expected a tuple with 2 numbers"):
        lv.fit(lv.models.LatentBlockModel(), np.eye(4), size=3)


def test_a_function_of_two_sizes_needs_a_prior_over_two():
    function = lv.from_function(lambda size: -1.0, size_names=("rows", "columns"))
    with pytest.raises(ValueError, match=r"over 1 size variable\(s\), expected 2 \(rows, columns\)"):
        lv.search(function, prior=PRIOR, max_size=3)


@pytest.mark.parametrize(
    ("size", "message"),
    [(0, r"got size=0"), (-1, r"got size=-1"), ((2, 2), r"got size=\(2, 2\)")],
)
def test_a_size_that_is_none(size: Any, message: str):
    for call in (lambda: lv.fit(lv.models.LDA(), corpus(), size=size), lambda: searched("plug-in").fit(size)):
        with pytest.raises(ValueError, match=rf"{message}, expected a whole number from 1 on"):
            call()


def test_one_fit_with_bad_arguments():
    with pytest.raises(ValueError, match=r"got evidence='best', expected one of"):
        lv.fit(lv.models.LDA(), corpus(), size=2, evidence="best")
    with pytest.raises(ValueError, match=r"got starts=0, expected a whole number of at least 1"):
        lv.fit(lv.models.LDA(), corpus(), size=2, starts=0)
    with pytest.raises(ValueError, match=r"expected at most 2,147,483,647"):
        lv.fit(lv.models.LDA(), corpus(), size=10**30)


def test_a_fit_that_is_not_a_number_is_an_error_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    broken = Fake(lambda size, trial: float("nan"))
    monkeypatch.setattr(ModelEvaluator, "evaluate", lambda _, size, start, trial=0: broken.evaluate(size, start, trial))
    for call in (
        lambda: lv.fit(lv.models.LDA(), corpus(), size=2, starts=2),
        lambda: searched("plug-in").fit(99),
    ):
        with pytest.raises(ValueError, match="is not a number"):
            call()


# ── plain functions ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [None, "−3", [1.0, 2.0], 1j, np.zeros(3)], ids=repr)
def test_a_function_that_returns_no_number(value: object):
    with pytest.raises(
        ValueError, match=r"for size \(1,\), expected log p\(data \| size\) in nats, or an lv\.Evidence"
    ):
        lv.search(lv.from_function(lambda size: value), prior=PRIOR, max_size=3, progress=False)


@pytest.mark.parametrize("value", [-3, -3.0, np.float32(-3), np.array(-3.0)], ids=repr)
def test_any_kind_of_number_will_do(value: Any):
    result = lv.search(lv.from_function(lambda size: value), prior=PRIOR, max_size=2, progress=False)
    assert result.visits[0].evidence == lv.Evidence(-3.0)


def test_evidence_above_the_ceiling():
    with pytest.raises(
        ValueError, match=r"size \(1,\) is above the ceiling: got lower end 2\.0, expected at most 0\.0"
    ):
        lv.search(lv.from_function(lambda size: 2.0, ceiling=0.0), prior=PRIOR, max_size=3, progress=False)
    with pytest.raises(ValueError, match=r"ceiling bounds log p\(data\) from above: got nan"):
        lv.search(lv.from_function(lambda size: -1.0, ceiling=np.nan), prior=PRIOR, max_size=3, progress=False)


def test_a_function_has_no_models():
    result = lv.search(lv.from_function(lambda size: -float(size[0])), prior=PRIOR, max_size=3, progress=False)
    for ask in (lambda: result.best, lambda: result.fit(2), lambda: result.predict(corpus())):
        with pytest.raises(ValueError, match=r"over a plain function has no data and no models"):
            ask()


# ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_prior_of_another_dimension():
    with pytest.raises(ValueError, match=r"got a prior over 2 size variable\(s\), expected 1"):
        searched("plug-in").with_prior(lv.sizes.Product(PRIOR, PRIOR))


@pytest.mark.parametrize("evidence", ["bound", "plug-in"])
def test_documents_over_other_words(evidence: str):
    result = searched(evidence)
    fewer = lv.Corpus.from_matrix(corpus().counts[:, 2:], vocabulary=corpus().vocabulary[2:])
    swapped = lv.Corpus.from_matrix(corpus().counts, vocabulary=[f"other{i}" for i in range(N_TERMS)])
    for ask in (result.predict, result.best.transform, result.best.score, result.best.interval_units):
        with pytest.raises(
            ValueError, match=rf"over {N_TERMS - 2} words, expected the {N_TERMS} of the training corpus"
        ):
            ask(fewer)
        with pytest.raises(ValueError, match=r"over other words: column 0 is .*: use training\.encode"):
            ask(swapped)
    with pytest.raises(ValueError, match="-2"):
        result.predict(with_cell(-2.0))


# ── folders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_output_folder_that_holds_something_is_untouched(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"exists and is not empty: choose another folder.*lv\.resume"):
        search(out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(FileExistsError, match="choose another folder"):
        search(out=tmp_path / "thesis.tex")


def test_a_saved_search_is_not_overwritten(tmp_path: Path):
    searched("plug-in").save(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(FileExistsError, match=r"go on with a search saved there by lv\.resume"):
        search(out=tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("read", [lv.load, lambda folder: lv.resume(folder, progress=False)], ids=["load", "resume"])
def test_folders_that_hold_no_search(read: Callable[[Path], Any], tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere: expected one written by a search"):
        read(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"holds no manifest\.json"):
        read(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"name": "a web app", "files": []}))
    with pytest.raises(ValueError, match=r"manifest\.json is damaged or foreign"):
        read(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["name"] == "a web app"


@pytest.mark.parametrize("read", [lv.load, lambda folder: lv.resume(folder, progress=False)], ids=["load", "resume"])
@pytest.mark.parametrize("damage", ["truncated manifest", "truncated arrays", "flipped byte", "lost file"])
def test_a_damaged_search_is_refused_and_left_as_it_is(read: Callable[[Path], Any], damage: str, tmp_path: Path):
    searched("plug-in").save(tmp_path / "run")
    manifest, arrays = tmp_path / "run" / "manifest.json", next((tmp_path / "run").glob("fit-3-*.npz"))
    match damage:
        case "truncated manifest":
            manifest.write_bytes(manifest.read_bytes()[:-200])
        case "truncated arrays":
            arrays.write_bytes(arrays.read_bytes()[:-50])
        case "flipped byte":
            data = bytearray(arrays.read_bytes())
            data[len(data) // 2] ^= 4
            arrays.write_bytes(data)
        case "lost file":
            arrays.unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(ValueError, match=r"restore it from a copy"):
        read(tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_resuming_with_a_bad_budget_touches_nothing(tmp_path: Path):
    searched("plug-in").save(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with pytest.raises(ValueError, match=r"got seconds=-5, expected a number of at least 0"):
        lv.resume(tmp_path / "run", seconds=-5, progress=False)
    for path in (tmp_path / "copy").iterdir():
        assert (tmp_path / "run" / path.name).read_bytes() == path.read_bytes()


def test_what_is_shared_was_not_changed_by_any_of_this():
    assert corpus().n_documents == N_DOCUMENTS
    assert [visit.size[0] for visit in searched("plug-in").visits] == list(range(1, MAX_SIZE + 1))
