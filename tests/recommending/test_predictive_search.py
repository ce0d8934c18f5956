"""Searches by prediction: what is recommended, that it is kept and gone on with, and what it refuses."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from small_searches import assert_same_search, corpus, searched

import lvsearch as lv
from lvsearch.results.card import card
from lvsearch.results.result import SearchResult
from lvsearch.scrutiny.scrutiny import Scrutiny

PLANTED, ROWS = 3, 72


@cache
def rows(seed: int = 0) -> np.ndarray:
    """Three clusters, eight standard deviations apart."""
    rng = np.random.default_rng(seed)
    return 8.0 * (np.arange(ROWS) % PLANTED)[:, None] + rng.normal(size=(ROWS, 2))


def model() -> lv.models.FiniteMixture:
    return lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(rows()))


@cache
def clusters() -> SearchResult:
    return lv.search(model(), rows(), evidence="predictive", max_size=5, starts=4, seed=1, progress=False)


@cache
def topics() -> SearchResult:
    """With as many parts as `recommend` asks about, so that both are one search."""
    return lv.search(lv.models.LDA(), corpus(), evidence="predictive", max_size=3, seed=1, progress=False)


@pytest.mark.thorough
def test_planted_clusters_are_recommended():
    found = clusters().recommended
    assert found is not None
    assert (found.size, clusters().best_size, clusters().best.size) == ((PLANTED,), (PLANTED,), (PLANTED,))
    assert found.describe().startswith("3 components predict new rows as well as any size tried")
    table = found.table()
    below = table.loc[table["size"] == 2].iloc[0]
    assert below["difference_per_cell"] < -5 * below["standard_error"]
    assert not below["as_good"]
    assert clusters().best.transform(rows()).shape == (ROWS, PLANTED)  # of all rows, not of a part


@pytest.mark.thorough
def test_every_unit_is_scored_by_a_fit_that_did_not_see_it():
    """Asked about all four parts, a size has a score of every row; a fit of these very rows would score them higher."""
    visit = next(visit for visit in clusters().visits if visit.size == (PLANTED,))
    parts = [trial.scores for trial in visit.trials if trial.scores is not None]
    assert [scores.part for scores in parts] == [0, 1, 2, 3]
    assert sum(len(scores.per_unit) for scores in parts) == ROWS
    training = lv.Points.from_any(rows())
    for scores in parts:
        train, left_out = training.fold(scores.part, 4, seed=1)
        assert len(left_out) == len(scores.per_unit)
        assert len(train) + len(left_out) == ROWS
        assert scores.n_observations == left_out.n_observations
    seen = float(clusters().best.score_units(rows()).sum())
    assert sum(sum(scores.per_unit) for scores in parts) < seen


@pytest.mark.thorough
def test_few_units_are_cut_into_parts_of_two_or_more():
    """Ten parts of six rows would have one row each, whose score has no error."""
    found = lv.search(model(), rows()[:6], evidence="predictive", max_size=1, progress=False).recommended
    assert found is not None
    assert "cut into 3 parts" in found.held_out
    assert found.size == (1,)


def test_folds_one_by_one_are_the_folds():
    data = lv.Points.from_any(rows())
    for number, (train, test) in enumerate(data.folds(4, seed=1)):
        assert data.fold(number, 4, seed=1) == (train, test)
    with pytest.raises(ValueError, match="fold 4 of 4"):
        data.fold(4, 4)


@pytest.mark.thorough
def test_given_units_are_the_only_ones_held_out():
    result = lv.search(
        model(), rows(), evidence="predictive", held_out=rows(7), max_size=4, starts=2, seed=1, progress=False
    )
    found = result.recommended
    assert found is not None
    assert found.size == (PLANTED,)
    assert "held out were given" in found.held_out
    assert all(outcome.n_units == ROWS for outcome in found.outcomes)
    assert len(result.compare_held_out()) == len(result.visits)  # every fit is of all rows, and kept


@pytest.mark.thorough
def test_how_good_topics_are_stands_beside_what_they_predict():
    found = topics().recommended
    assert found is not None
    known = [outcome for outcome in found.outcomes if outcome.coherence is not None]
    assert known
    assert all(-1 <= outcome.coherence <= 1 for outcome in known if outcome.coherence is not None)
    assert all(0 <= (outcome.found_again or 0) <= outcome.size[0] for outcome in known)
    assert next(outcome.found_again for outcome in known if outcome.size == (1,)) == 1
    text = found.describe_topics()
    assert text is not None
    assert text.startswith("Coherence is highest at ")
    assert " recommended topics again. At " in text
    assert clusters().recommended is not None
    assert clusters().recommended.describe_topics() is None
    assert list(topics().best.topics().columns)[:1] == ["prevalence"]


@pytest.mark.thorough
@pytest.mark.parametrize("result", [clusters, topics])
def test_it_is_kept_and_read_again(result, tmp_path: Path):
    whole = result()
    whole.save(tmp_path / "run")
    loaded = lv.load(tmp_path / "run")
    assert_same_search(loaded, whole)
    assert loaded.recommended == whole.recommended
    assert_same_search(lv.resume(tmp_path / "run", report=False, progress=False), whole)


@pytest.mark.thorough
def test_a_search_that_was_stopped_goes_on_to_the_same_answer(tmp_path: Path):
    first = lv.search(
        model(), rows(), evidence="predictive", max_size=5, starts=4, seed=1, seconds=0, progress=False,
        out=tmp_path / "run", report=False,
    )  # fmt: skip
    assert len(first.starts()) == 1
    assert first.summary().startswith("Unfinished (stopped after 0 seconds): 1 component predicts")
    assert_same_search(lv.resume(tmp_path / "run", report=False, progress=False), clusters())


@pytest.mark.thorough
def test_workers_find_the_same(tmp_path: Path):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as executor:
        found = lv.search(
            model(), rows(), evidence="predictive", max_size=5, starts=4, seed=1, progress=False, executor=executor
        )
    assert_same_search(found, clusters())


@pytest.mark.thorough
def test_card_page_and_report_say_it(tmp_path: Path):
    from lvsearch.reports.report import write_report

    text = topics().summary()
    assert "predict" in text.splitlines()[0]
    assert "probab" not in text.splitlines()[0]
    assert "rule:" in text
    assert "topics:" in text
    assert "as_good" in card(topics())
    path = write_report(topics(), tmp_path / "report")
    assert "What sizes predict" in path.read_text(encoding="utf-8")
    assert (tmp_path / "report" / "recommended.csv").is_file()
    assert (tmp_path / "report" / "index.html").is_file()
    axes = topics().plot_posterior()
    assert "nats per token" in axes.get_ylabel()


def test_it_has_no_posterior():
    """Nor has one that was stopped early, when no size was fitted to all rows."""
    early = replace(clusters(), state=replace(clusters().state, visits=clusters().visits[:1], kept={}))
    asked = [early.posterior, lambda: early.estimated, early.plot_bounds, early.plot_progress]
    asked += [clusters().posterior, lambda: clusters().estimated, clusters().plot_bounds, clusters().plot_progress]
    for ask in (*asked, lambda: clusters().predict(rows())):
        with pytest.raises(ValueError, match=r"result\.recommended"):
            ask()


@pytest.mark.slow  # the whole search by prediction once more
def test_other_searches_are_asked_and_answer_as_one_by_prediction():
    """The fits are those of a search by prediction with the same seed: so is the answer."""
    asked = searched("bound")
    found = replace(asked, settings=replace(asked.settings, seed=1, max_size=(3,))).recommend(progress=False)
    assert found == topics().recommended


@pytest.mark.thorough
def test_other_searches_keep_the_answer(tmp_path: Path):
    """Return the search by prediction that asks least: of one size."""
    asked = searched("bound")
    assert asked.recommended is None
    found = replace(asked, settings=replace(asked.settings, seed=1, max_size=(1,))).recommend(progress=False)
    assert found.size == (1,)
    kept = asked.with_recommended(found)
    assert kept.recommended == found
    assert f"recommended: {found.describe()}" in kept.summary()
    kept.save(tmp_path / "run")
    assert lv.load(tmp_path / "run").recommended == found
    assert Scrutiny(recommended=found).with_prior(lv.sizes.Poisson(2)).recommended == found  # no prior decided it


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"prior": lv.sizes.Poisson(3)}, "expected none"),
        ({"per_token": True}, "expected neither"),
        ({"exhaustive": True, "max_size": 3}, "expected neither"),
        ({"robustness": True}, "expected annealed"),
        ({"starts": 1}, r"got starts=1 \(--starts on the command line\), expected 2 or more"),
        ({"data": rows()[:1]}, "at least two parts"),
        ({"data": rows()[:3]}, "at least two parts, of two rows or more each"),
        ({"model": lv.models.LatentBlockModel()}, "one size"),
        ({"model": lv.from_function(lambda size: 0.0), "data": None}, "its own evidence"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, words):
    arguments = {"model": model(), "data": rows(), "evidence": "predictive", "progress": False} | changed
    with pytest.raises(ValueError, match=words):
        lv.search(**arguments)


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match="integrated out"):
        searched("plug-in").recommend(progress=False)
    with pytest.raises(ValueError, match="expected one of 'marginal'"):
        lv.fit(model(), rows(), size=2, evidence="predictive")


@pytest.mark.slow
@pytest.mark.parametrize("planted", [4, 9])
def test_planted_topics_are_recommended(planted):
    """30,000 tokens of LDA: at most one topic too few, and no more than the grid is coarse too many; what is lost in
    prediction is within the error that the rule allows."""
    rng = np.random.default_rng(planted)
    words = rng.dirichlet(np.full(400, 0.05), planted)
    shares = rng.dirichlet(np.full(planted, 0.5), 300)
    counts = np.stack([rng.multinomial(100, share @ words) for share in shares])
    found = lv.search(lv.models.LDA(), lv.Corpus.from_matrix(counts), evidence="predictive", progress=False).recommended
    assert found is not None
    assert planted - 1 <= found.size[0] <= 1.2 * planted
    own = next(outcome for outcome in found.outcomes if outcome.size == found.size)
    assert own.difference >= -own.standard_error
    assert own.found_again is not None
    assert own.found_again >= 0.7 * planted
