"""What is saved is what is loaded, bit for bit; a search cut off after any step goes on to the same end."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_searches import KINDS, PRIOR, assert_same_model, assert_same_search, corpus, rewritten, searched

import lvsearch as lv
from lvsearch import api
from lvsearch.files.storage import PACKAGES, CorruptFolderError, read_folder, write_folder
from lvsearch.fitted.stored_fits import decode_module, encode_module
from lvsearch.inference.allocation_chains import AllocationRun
from lvsearch.models.families import PointSimplex
from lvsearch.results import findings
from lvsearch.results.checkpoint import _decode_visit as decode_visit
from lvsearch.results.checkpoint import _encode_visit as encode_visit
from lvsearch.results.checkpoint import decode_progress, encode_progress, progress_arrays
from lvsearch.results.result import SearchResult
from lvsearch.searching.controller import SearchState
from lvsearch.searching.guided import AllocationProgress


@pytest.fixture(scope="module", params=KINDS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchResult, Path]:
    """A result and the folder it was saved in."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    result = searched(request.param)
    result.save(folder)
    return result, folder


@pytest.mark.smoke
def test_loading_gives_the_same_search(saved: tuple[SearchResult, Path]):
    result, folder = saved
    loaded = lv.load(folder)
    assert_same_search(loaded, result)
    assert loaded.seconds == result.seconds
    assert loaded.starts()["seconds"].equals(result.starts()["seconds"])
    assert loaded.state.visits == result.state.visits
    assert list(loaded.state.kept) == list(result.state.kept)
    assert_same_model(loaded.evaluator.model, result.evaluator.model)
    assert loaded.evaluator.ceiling == result.evaluator.ceiling


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("stopped", "why"),
    [
        ("finished", None),
        ("stopped after 60 seconds", "stopped after 60 seconds"),
        ("interrupted", "interrupted"),
        (None, "killed, or still running elsewhere"),
    ],
)
def test_a_loaded_search_knows_whether_it_finished(tmp_path: Path, stopped: str | None, why: str | None):
    result = searched("bound")
    replace(result, state=replace(result.state, stopped=stopped)).save(tmp_path / "run")
    loaded = lv.load(tmp_path / "run")
    assert (loaded.is_finished, loaded.why_unfinished) == (why is None, why)
    copy = loaded.with_prior(lv.sizes.Poisson(2))
    assert (copy.is_finished, copy.why_unfinished) == (why is None, why)


def test_loading_gives_the_same_corpus(saved: tuple[SearchResult, Path]):
    result, folder = saved
    loaded, training = lv.load(folder).training, result.training
    assert loaded is not None
    assert training is not None
    assert loaded == training
    for field in ("vocabulary", "document_names", "document_labels", "notes", "analyzer"):
        assert getattr(loaded, field) == getattr(training, field)
    assert len(loaded.notes) == 2  # the empty document and the unused term


@pytest.mark.thorough
def test_loaded_models_give_the_same_bits(saved: tuple[SearchResult, Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(findings, "SAMPLES", 16)
    result, folder = saved
    loaded = lv.load(folder)
    documents = corpus().select(range(9, 20))
    for size in result.state.kept:
        mine, other = result.fit(size), loaded.fit(size)
        assert mine.transform(documents).tobytes() == other.transform(documents).tobytes()
        assert mine.score_units(documents).tobytes() == other.score_units(documents).tobytes()
        for ours, theirs in zip(mine.interval_units(documents), other.interval_units(documents), strict=True):
            assert ours.tobytes() == theirs.tobytes()
        assert mine.table("topic_word").equals(other.table("topic_word"))
        assert mine.topics().equals(other.topics())
        assert mine.alpha.tobytes() == other.alpha.tobytes()
    assert result.predict(documents) == loaded.predict(documents)


def test_a_fitted_vector_of_concentrations_survives():
    model = searched("plug-in").best.model
    assert model.concentration.shape == (searched("plug-in").best.estimate.size[0],)
    assert isinstance(model.topics, PointSimplex)
    assert_same_model(decode_module(json.loads(json.dumps(encode_module(model)))), model)


def test_texts_come_back_with_their_analyzer(tmp_path: Path):
    words = ["boat sail wind", "wind storm rain", "rain boat river the", "sail storm river"] * 3
    for number, stop_words in enumerate(("english", ["wind", "the"], None)):
        texts = lv.Corpus.from_texts(words, stop_words=stop_words)
        replace(searched("bound"), training=texts, state=SearchState()).save(tmp_path / str(number))
        loaded = lv.load(tmp_path / str(number)).training
        assert loaded is not None
        assert (loaded.analyzer, loaded.notes) == (texts.analyzer, texts.notes)
        assert loaded.encode(["the boat in the wind"]) == texts.encode(["the boat in the wind"])


@pytest.mark.parametrize("evidence", ["bound", pytest.param("plug-in", marks=pytest.mark.slow)])
def test_going_on_from_every_checkpoint_gives_the_same_search(
    evidence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A copy of the folder after every save stands for a process killed just then."""
    copies: list[Path] = []
    real = api.save_search

    def save_and_copy(result: SearchResult, folder: Path) -> None:
        real(result, folder)
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copytree(folder, copies[-1])

    with monkeypatch.context() as patched:
        patched.setattr(api, "save_search", save_and_copy)
        whole = lv.search(
            lv.models.LDA(), corpus(), prior=PRIOR, evidence=evidence, max_size=5, seed=2, progress=False,
            out=tmp_path / "whole", report=False,
        )  # fmt: skip
    assert_same_search(whole, searched(evidence))  # writing changes nothing
    steps = len(whole.visits if evidence == "plug-in" else whole.starts())  # all fits of a size at once, or one
    assert len(copies) == steps + 2  # at the beginning, after every step, at the end
    assert len(lv.load(copies[0]).visits) == 0
    assert lv.load(copies[-2]).state.stopped is None
    for copy in copies:
        assert_same_search(lv.resume(copy, report=False, progress=False), whole)
        assert_same_search(lv.load(copy), whole)  # and it was written back


def test_a_search_stopped_by_its_budget_goes_on(tmp_path: Path):
    first = lv.search(
        lv.models.LDA(),
        corpus(),
        prior=PRIOR,
        max_size=5,
        seed=2,
        progress=False,
        seconds=0,
        evidence="bound",
        out=tmp_path / "run",
        report=False,
    )
    assert (len(first.visits), first.state.stopped) == (1, "stopped after 0 seconds")
    assert_same_search(lv.load(tmp_path / "run"), first)
    resumed = lv.resume(tmp_path / "run", report=False, progress=False)
    assert_same_search(resumed, searched("bound"))
    assert resumed.seconds > first.seconds


def test_where_a_fit_bent_survives():
    visit = searched("bound").visits[-1]
    bent = replace(visit, trials=(replace(visit.trials[0], bend=5), *visit.trials[1:]))
    read = decode_visit(json.loads(json.dumps(encode_visit(bent))))
    assert read.bends == (5,)
    assert read == bent


def test_settings_and_priors_survive(tmp_path: Path):
    prior = lv.sizes.Mixture([0.25, 0.75], [lv.sizes.Table([0.1, 0.9]), lv.sizes.NegativeBinomial(2.5, 0.7)])
    result = lv.search(
        lv.models.LDA(2.0, 0.3), corpus(), prior=prior, evidence="plug-in", max_size=(2,), seed=9, starts=2, grow=False,
        exhaustive=True, keep=1, per_token=True, progress=False,
    )  # fmt: skip
    result.save(tmp_path / "run")
    loaded = lv.load(tmp_path / "run")
    assert_same_search(loaded, result)
    assert loaded.evaluator.scale == corpus().n_tokens
    assert_same_model(loaded.evaluator.base_model, lv.models.LDA(2.0, 0.3))
    assert loaded.posterior("certified").equals(result.posterior("certified"))


def test_a_result_under_another_prior_is_saved_as_such(tmp_path: Path):
    other = searched("plug-in").with_prior(lv.sizes.Geometric(0.3))
    other.save(tmp_path / "run")
    assert_same_search(lv.load(tmp_path / "run"), other)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_saving_over_something_is_refused(saved: tuple[SearchResult, Path], tmp_path: Path):
    result, folder = saved
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match=r"exists and is not empty: choose another folder"):
        result.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        result.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_search_over_a_function_is_not_saved(tmp_path: Path):
    function = lv.from_function(lambda size: -float(size[0]), ceiling=0.0)
    result = lv.search(function, prior=PRIOR, max_size=3, progress=False)
    with pytest.raises(ValueError, match=r"over a plain function, expected one over a model.*no pickle.*posterior\(\)"):
        result.save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"over a plain function.*Leave out= away"):
        lv.search(function, prior=PRIOR, max_size=3, progress=False, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class OwnLDA(lv.models.LDA):
    """A model that is not in lvsearch.models."""


class LDA(lv.models.LDA):
    """Another one, under a name that is."""


@pytest.mark.parametrize("model", [OwnLDA(), LDA()])
def test_a_model_of_ones_own_is_refused_before_anything_is_fitted(
    model: lv.models.LDA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lv.searching.evaluators.ModelEvaluator, "evaluate", lambda *_: pytest.fail("fitted"))
    with pytest.raises(
        ValueError, match=r"class '(Own)?LDA', expected one of lvsearch\.models.*no pickle.*leave out= away"
    ):
        lv.search(model, corpus(), prior=PRIOR, max_size=3, progress=False, evidence="bound", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_prior_that_cannot_be_stored_is_refused_before_anything_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lv.searching.evaluators.ModelEvaluator, "evaluate", lambda *_: pytest.fail("fitted"))
    with pytest.raises(ValueError, match=r"Joint prior.*prior\.table\(\)"):
        lv.search(
            lv.models.LDA(), corpus(), prior=lv.sizes.Joint(lambda s: -s[0], (5,)), max_size=3, progress=False,
            evidence="bound", out=tmp_path / "run",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["HugeModel", "families", "Model", "Dirichlet", "os"])
def test_a_class_that_is_not_ours_is_never_imported(saved: tuple[SearchResult, Path], tmp_path: Path, name: str):
    folder = rewritten(saved[1], tmp_path / "run", lambda body, _: body["model"].update({"class": name}))
    with pytest.raises(CorruptFolderError, match=r"does not have; read the folder with|was it written by lvsearch"):
        lv.load(folder)


def test_other_data_are_refused(saved: tuple[SearchResult, Path], tmp_path: Path):
    def change(body: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["data"]["data"] = arrays["data"]["data"] + 1

    with pytest.raises(CorruptFolderError, match="the data differ from those searched"):
        lv.load(rewritten(saved[1], tmp_path / "run", change))


@pytest.mark.parametrize("part", ["model", "prior", "settings", "visits", "kept", "data", "seconds", "stopped"])
def test_a_manifest_that_lacks_a_part_is_refused(saved: tuple[SearchResult, Path], tmp_path: Path, part: str):
    folder = rewritten(saved[1], tmp_path / "run", lambda body, _: body.pop(part))
    with pytest.raises(CorruptFolderError, match=r"lacks what a search needs.*was it written by lvsearch"):
        lv.load(folder)


def test_a_fit_without_its_arrays_is_refused(saved: tuple[SearchResult, Path], tmp_path: Path):
    folder = rewritten(saved[1], tmp_path / "run", lambda _, arrays: arrays.pop("fit-3"))
    with pytest.raises(CorruptFolderError, match=r"arrays of the fit of size \[3\] are missing"):
        lv.load(folder)


def test_a_size_without_fits_is_refused(saved: tuple[SearchResult, Path], tmp_path: Path):
    def change(body: dict[str, Any], arrays: dict[str, Any]) -> None:
        body["visits"][0]["trials"] = []

    with pytest.raises(CorruptFolderError, match="was tried, but has no fit; restore"):
        lv.load(rewritten(saved[1], tmp_path / "run", change))


@pytest.mark.parametrize("body", [[], None, {"topics": 5}, "text"])
def test_a_folder_of_ours_that_holds_no_search_is_refused(tmp_path: Path, body: object):
    write_folder(tmp_path, body, {"data": {"x": np.zeros(3)}})
    for read in (lv.load, lv.resume):
        with pytest.raises(CorruptFolderError, match=r"lacks what a search needs"):
            read(tmp_path)


def test_versions_and_device_are_noted(saved: tuple[SearchResult, Path]):
    versions = read_folder(saved[1])[0]["versions"]
    assert set(versions) == {*PACKAGES, "device"}
    assert versions["numpy"] == np.__version__


def test_chains_of_older_folders_have_one_side():
    """Numbers of parts had an axis of sides only where there were two."""
    parts = np.random.default_rng(0).integers(1, 4, (9, 32, 1, 4))
    run = AllocationRun(np.zeros((6, 4), int), {}, 16, parts, np.zeros((9, 32, 4)), np.full((9, 4, 5), 0.2), 9)
    chains = AllocationProgress(run, np.full(5, np.log(0.2)))
    entry, arrays = encode_progress(chains), progress_arrays(chains)
    for stored in (parts, parts[:, :, 0]):
        np.testing.assert_array_equal(decode_progress(entry, {**arrays, "parts": stored}).run.parts, parts)
    for damaged in (parts[1:], parts[:, :, 0, 1:], np.repeat(parts, 2, axis=2)):
        with pytest.raises(TypeError, match="do not belong together"):
            decode_progress(entry, {**arrays, "parts": damaged})


@pytest.mark.parametrize("has_warm_up", [False, True])
def test_older_folders_say_by_their_labels_whether_there_was_a_warm_up(has_warm_up: bool):
    """Chains over features alone had one, and theirs alone have an axis of places."""
    labels = np.zeros((6, 16, 4) if has_warm_up else (6, 4), int)
    counts = np.ones((9, 32, 1, 4), int), np.zeros((9, 32, 4)), np.full((9, 4, 5), 0.2)
    run = AllocationRun(labels, {}, 16, *counts, 9, has_warm_up=has_warm_up)
    chains = AllocationProgress(run, np.full(5, np.log(0.2)))
    entry, arrays = encode_progress(chains), progress_arrays(chains)
    assert decode_progress(entry, arrays).run.has_warm_up == has_warm_up
    assert decode_progress({**entry, "has_warm_up": not has_warm_up}, arrays).run.has_warm_up != has_warm_up
    del entry["has_warm_up"]
    assert decode_progress(entry, arrays).run.has_warm_up == has_warm_up
