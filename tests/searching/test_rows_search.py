"""Everything a person does with a topic model works with models of rows, and nothing speaks of documents there.

`lv.models.IBP` is searched, saved and loaded; the toy models show that no part knows which model or data it has.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pandas as pd
import pytest
from small_searches import assert_same_search, corpus, earlier_held_out, rewritten
from test_page import Reader
from toy_models import Point, PointMixture

import lvsearch as lv
from lvsearch.data.base import Data, Nouns
from lvsearch.files.storage import CorruptFolderError
from lvsearch.fitted.stored_fits import decode_module, encode_module
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.describing import unit_ceilings
from lvsearch.inference.features.estimator import FeatureEstimator
from lvsearch.models.ibp import GammaPrior
from lvsearch.reports.report import write_report
from lvsearch.results.card import card, summary
from lvsearch.results.heldout import agreement, held_out_comparison, load_held_out
from lvsearch.results.plots import plot_bounds, plot_held_out, plot_posterior

N, PRIOR, MAX_SIZE = 23, lv.sizes.Poisson(2), 3
DOCUMENT_WORDS = ("document", "token", "topic", "corpus", "vocabulary")


@pytest.fixture(scope="module", autouse=True)
def starts_without_chains() -> Iterator[None]:
    """Begin fits of features at features drawn at random, because the chains of their own starts take 20 s to compile.

    `test_feature_search.py` searches with these chains.
    """

    def drawn(estimator: FeatureEstimator, size: tuple[int, ...], key: jax.Array) -> np.ndarray:
        return np.asarray(jax.random.bernoulli(key, 0.5, (estimator.data.n_units, *size)))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FeatureEstimator, "likely_features", drawn)
        yield


@cache
def points() -> lv.Points:
    """Two planted features in three dimensions; a cell in ten missing, one row altogether; named rows and columns."""
    random = np.random.default_rng(8)
    has = random.random((N, 2)) < 0.5
    values = has @ np.array([[3.0, -2.0, 1.0], [-1.0, 2.5, 2.0]]) + 0.4 * random.standard_normal((N, 3))
    values[random.random((N, 3)) < 0.1] = np.nan
    values[7] = np.nan
    frame = pd.DataFrame(values, columns=["höhe", "b", "c"], index=[f"row {i} – α" for i in range(N)])
    return lv.Points.from_frame(frame, missing="nan")


def model() -> lv.models.IBP:
    return lv.models.IBP(concentration=GammaPrior(2.0, 1.0), noise_precision=4.0)


@cache
def searched() -> lv.SearchResult:
    train, _ = points().split(0.3, seed=1)
    return lv.search(model(), train, prior=PRIOR, max_size=MAX_SIZE, seed=4, starts=2, evidence="bound", progress=False)


@pytest.mark.thorough
def test_a_search_over_rows():
    result = searched()
    assert [visit.size for visit in result.visits] == [(1,), (2,), (3,)]
    assert not any(visit.failed for visit in result.visits)
    assert np.isfinite(result.evaluator.ceiling)
    assert result.posterior()["probability"].sum() == pytest.approx(1.0)
    fitted = result.best
    train, test = points().split(0.3, seed=1)
    assert result.training == train
    n_features = fitted.estimate.size[0]
    assert fitted.transform(test).shape == (len(test), n_features)
    assert fitted.score(test) == pytest.approx(fitted.score_units(test).sum(), rel=1e-12)
    lower, upper = fitted.interval_units(test)
    ceilings = test.observations_per_unit * 0.5 * np.log(4.0 / (2 * np.pi))  # no Gaussian of precision 4 is denser
    np.testing.assert_allclose(unit_ceilings(fitted.model, test.dataset()), ceilings, atol=1e-12)
    assert (lower == fitted.score_units(test)).all()
    np.testing.assert_allclose(upper, np.maximum(lower, ceilings), atol=1e-12)
    again = lv.fit(model(), train, size=fitted.size, seed=4)
    assert again.table("loadings").shape == (n_features, 3)
    assert again.evidence.lower < again.evidence.upper == fitted.evidence.upper


@pytest.mark.thorough
def test_rows_score_alone_as_they_do_together():
    fitted, (_, test) = searched().best, points().split(0.3, seed=1)
    alone = [fitted.score(test.select([row])) for row in range(len(test))]
    np.testing.assert_allclose(fitted.score_units(test), alone, rtol=1e-4, atol=1e-4)
    unknown = points().select([7])  # nothing of it was observed: certain, but for the bound's gap on its features
    assert unknown.n_observations == 0
    assert -1.0 < fitted.score(unknown) <= 1e-6


@pytest.mark.thorough
def test_what_a_cell_holds_does_not_matter_where_it_is_missing():
    fitted = searched().best
    test = points().select([0, 1, 2, 3])
    other = lv.Points.from_array(np.where(test.observed, test.values, 1e6), test.observed, columns=test.columns)
    assert fitted.score_units(other).tobytes() == fitted.score_units(test).tobytes()


def test_tables_are_named_by_the_data():
    fitted = searched().best
    loadings = fitted.table("loadings")
    assert list(loadings.columns) == ["höhe", "b", "c"]
    assert (loadings.index.name, loadings.columns.name) == ("feature", "dim")
    sticks = fitted.table("sticks")
    assert list(sticks.columns) == ["sticks"]
    assert sticks["sticks"].between(0, 1).all()
    assert fitted.table("concentration").shape == (1, 1)
    assert {"loadings", "sticks", "concentration"} <= set(fitted.tables())
    with pytest.raises(AttributeError, match=r"a fit of IBP has no 'topics'; it has .*table"):
        fitted.topics()
    assert "topics" not in dir(fitted)


def test_prediction_is_per_row():
    _, test = points().split(0.3, seed=1)
    prediction = searched().predict(test)
    assert prediction.estimate is not None
    assert "averaged per row" in prediction.describe()
    scores = np.array([searched().fit(size).score_units(test) for size in [(1,), (2,), (3,)]])
    weights = searched().posterior()["probability"].to_numpy()
    expected = np.logaddexp.reduce(np.log(weights)[:, None] + scores, axis=0).sum()
    assert prediction.estimate.log_per_unit == pytest.approx(expected, rel=1e-9)


def test_held_out_rows():
    _, test = points().split(0.3, seed=1)
    table = held_out_comparison(searched(), test)
    assert list(table.columns) == [
        "size", "log_p_per_cell", "monte_carlo_error", "difference_per_cell", "standard_error", "estimator"
    ]  # fmt: skip
    best = searched().best
    row = table.set_index("size").loc[best.size[0]]
    assert row["log_p_per_cell"] == pytest.approx(best.score(test) / test.n_observations, rel=1e-12)
    assert row["difference_per_cell"] == 0.0
    assert "nats per cell" in agreement(table)
    assert f"on {len(test)} rows" in agreement(table)
    with pytest.raises(ValueError, match=r"got 1 held-out row\(s\) with \d cells, expected at least two rows"):
        held_out_comparison(searched(), test.select([0]))


@pytest.mark.thorough
def test_nothing_speaks_of_documents(tmp_path: Path):
    _, test = points().split(0.3, seed=1)
    result, table = searched(), held_out_comparison(searched(), test)
    text = write_report(result, tmp_path, held_out=table).read_text(encoding="utf-8")
    assert "16 rows × 3 columns" in text
    assert "## Held-out rows" in text
    names = {path.stem for path in tmp_path.glob("*.csv")}
    assert {"loadings", "sticks", "held_out"} <= names
    assert not {"topics", "topic_words"} & names
    assert list(pd.read_csv(tmp_path / "loadings.csv").columns) == ["feature", "höhe", "b", "c"]
    pictures = [draw(result) for draw in (plot_posterior, plot_bounds)] + [plot_held_out(table)]
    for axes in pictures:
        text += axes.get_xlabel() + axes.get_ylabel() + axes.get_title(loc="left")
        text += "".join(words.get_text() for words in axes.texts)
    page = "".join(Reader((tmp_path / "index.html").read_text(encoding="utf-8")).text)
    assert "Loadings of the features" in page
    text += page + summary(result) + card(result, table) + result.predict(test).describe() + result.training.summary()
    assert "Rows that the search did not see are the best check: train, test = points.split(0.3)" in summary(result)
    for word in DOCUMENT_WORDS:
        assert word not in text.lower().replace("data:image", ""), word


def test_per_cell_scale():
    train, _ = points().split(0.3, seed=1)
    result = lv.search(
        model(), train, prior=PRIOR, max_size=1, seed=4, starts=1, progress=False, evidence="bound", per_token=True
    )  # one size: what is asked is the scale
    assert result.evaluator.scale == train.n_observations == train.observed.sum()
    assert "weighed per cell" in summary(result)


# ── folders ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_a_search_over_rows_is_saved_loaded_and_gone_on_with(tmp_path: Path):
    result = searched()
    result.save(tmp_path / "saved")
    loaded = lv.load(tmp_path / "saved")
    assert_same_search(loaded, result)
    assert loaded.training == result.training
    assert (loaded.training.notes, loaded.training.row_names) == (result.training.notes, result.training.row_names)
    assert loaded.best.transform(points()).tobytes() == result.best.transform(points()).tobytes()
    assert loaded.evaluator.ceiling == result.evaluator.ceiling
    first = lv.search(
        model(), result.training, prior=PRIOR, max_size=MAX_SIZE, seed=4, starts=2, progress=False, seconds=0,
        evidence="bound", out=tmp_path / "run",
    )  # fmt: skip
    assert len(first.visits) == 1
    assert_same_search(lv.resume(tmp_path / "run", progress=False), result)


def test_held_out_rows_come_back(tmp_path: Path):
    _, test = points().split(0.3, seed=1)
    replace(searched(), held_out=test).save(tmp_path / "run")
    loaded = lv.load(tmp_path / "run").held_out
    assert loaded == test
    assert loaded.notes == test.notes
    with pytest.raises(ValueError, match="got Corpus"):
        lv.search(model(), points(), prior=PRIOR, held_out=corpus(), progress=False)


def test_an_earlier_folder_holds_a_corpus_and_an_earlier_held_out_folder_is_refused(tmp_path: Path):
    """Before there were other kinds, a folder did not say which it held."""
    result = lv.search(
        lv.models.LDA(), corpus(), prior=PRIOR, max_size=1, starts=1, seed=1, evidence="bound", progress=False
    )
    result.save(tmp_path / "new")
    assert_same_search(
        lv.load(rewritten(tmp_path / "new", tmp_path / "old", lambda body, _: body["data"].pop("kind"))), result
    )
    earlier_held_out(corpus(), tmp_path / "held-out")
    earlier = rewritten(
        tmp_path / "held-out", tmp_path / "earlier", lambda body, _: body.update(content="held-out documents")
    )
    with pytest.raises(CorruptFolderError, match=r"an earlier version wrote it\. Remove it to go on without"):
        load_held_out(corpus(), earlier)


def test_folders_with_other_data_are_refused(tmp_path: Path):
    searched().save(tmp_path / "run")
    cases = {
        "a kind of data": (lambda body, _: body["data"].update(kind="Movies"), "data of kind 'Movies'"),
        "other values": (lambda _, arrays: arrays["data"].update(values=arrays["data"]["values"] + 1), "data differ"),
        "no mask": (lambda _, arrays: arrays["data"].pop("observed"), r"lacks what a search needs \(KeyError"),
        "another kind": (lambda body, _: body["data"].update(kind="Corpus"), r"lacks what a search needs \(KeyError"),
    }
    for number, (change, message) in enumerate(cases.values()):
        with pytest.raises(CorruptFolderError, match=message):
            lv.load(rewritten(tmp_path / "run", tmp_path / str(number), change))


def test_models_with_priors_on_hyperparameters_are_stored():
    one = lv.models.IBP(GammaPrior(2.0, 0.5), 3.0, GammaPrior(1.0, 0.25))
    again = decode_module(json.loads(json.dumps(encode_module(one))))
    assert again.describe() == one.describe()
    assert isinstance(again.concentration, GammaPrior)
    assert (float(again.concentration.rate), float(again.noise_precision.rate)) == (0.5, 0.25)

    class Own(lv.models.IBP):
        """Not in lvsearch.models."""

    with pytest.raises(ValueError, match=r"class .*Own', expected one of lvsearch\.models"):
        encode_module(Own())


# ── data that does not fit ────────────────────────────────────────────────────────────────────────────────────────


def test_data_of_the_wrong_kind():
    with pytest.raises(ValueError, match=r"got Corpus \(31 .* for IBP, expected data whose units are of type Row"):
        lv.fit(model(), corpus(), size=1)
    with pytest.raises(ValueError, match=r"got Points \(23 .* for LDA, expected data whose units are of type Bag"):
        lv.fit(lv.models.LDA(), points(), size=1)
    with pytest.raises(ValueError, match=r"without data: pass Points or a matrix of numbers as the second argument"):
        lv.search(model(), prior=PRIOR, evidence="bound", max_size=1)
    with pytest.raises(ValueError, match=r"got NaN in 1 of 2 cells.*from_array\(X, missing=\"nan\"\)"):
        lv.fit(model(), [[1.0], [np.nan]], size=1)
    for ask in (searched().predict, searched().best.transform, searched().best.score):
        with pytest.raises(ValueError, match="rows of 2 columns, expected the 3 of the training data"):
            ask([[1.0, 2.0]])
        with pytest.raises(ValueError, match=r"got Corpus .*expected Points over the columns of the training data"):
            ask(corpus())
    result = lv.search(
        lv.models.LDA(), corpus(), prior=PRIOR, max_size=1, starts=1, seed=1, evidence="bound", progress=False
    )
    with pytest.raises(ValueError, match=r"got Points .*expected documents over the words of the training corpus"):
        result.best.score(points())


def test_a_frame_of_counts_over_other_words_is_refused():
    result = lv.search(
        lv.models.LDA(), corpus(), prior=PRIOR, max_size=1, starts=1, seed=1, evidence="bound", progress=False
    )
    frame = pd.DataFrame(corpus().counts.toarray(), columns=list(corpus().vocabulary))
    assert result.best.score(frame) == result.best.score(corpus())
    with pytest.raises(ValueError, match="these words in another order: column 0 is"):
        result.best.score(frame[frame.columns[::-1]])


def test_plug_in_evidence_where_there_is_none():
    with pytest.raises(ValueError, match=r'IBP has no plug-in form.*use evidence="marginal"'):
        lv.search(model(), points(), prior=PRIOR, evidence="plug-in", max_size=2)


# ── models and data of one's own ──────────────────────────────────────────────────────────────────────────────────


class Numbers(Data):
    """Numbers on a line: data that lvsearch does not know."""

    unit_type: ClassVar[type] = Point
    nouns: ClassVar[Nouns] = Nouns("numbers", "number", "numbers", "digit", "digits")
    accepted: ClassVar[str] = "Numbers"
    notes: tuple[str, ...] = ()

    def __init__(self, values: np.ndarray):
        self.values = values

    @classmethod
    def from_any(cls, data: Any) -> "Numbers":
        return data if isinstance(data, Numbers) else cls(np.asarray(data))

    def like_this(self, data: Any) -> "Numbers":
        return Numbers.from_any(data)

    def dataset(self) -> Dataset:
        n = len(self.values)
        batch = Batch(Point(self.values.astype(np.float32)), np.ones(n, np.float32))
        return Dataset.of_batches((batch,), (np.arange(n),), {}, n)

    n_units = property(lambda self: len(self.values))
    observations_per_unit = property(lambda self: np.ones(len(self.values), np.int64))
    entries = property(lambda self: {})
    unit_labels = property(lambda self: None)
    fingerprint = property(lambda self: self.values.tobytes().hex())

    def describe(self) -> str:
        return f"{self.n_units} numbers"

    def facts(self) -> tuple[tuple[str, str], ...]:
        return (("numbers", str(self.n_units)),)

    def part(self, rows: np.ndarray, note: str) -> "Numbers":
        return Numbers(self.values[rows])

    def to_storage(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {}, {"values": self.values}

    @classmethod
    def from_storage(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Numbers":
        return cls(arrays["values"])


@pytest.mark.thorough
def test_data_of_ones_own(tmp_path: Path):
    mixture, numbers = PointMixture(1.5, 0.2, 4.0), Numbers(np.array([-2.0, -1.9, -2.2, 1.0, 1.3, 0.9, 1.1]))
    with pytest.raises(ValueError, match=r"raw data for PointMixture, whose units are of type Point.*Data of your own"):
        lv.fit(mixture, numbers.values, size=1)
    train, test = numbers.split(0.3, seed=1)
    assert (len(train), len(test)) == (5, 2)
    result = lv.search(mixture, train, prior=PRIOR, max_size=2, starts=1, seed=0, evidence="bound", progress=False)
    assert list(result.best.table("weights").index.names) == ["component"]
    assert "data:        5 numbers" in summary(result)
    assert "nats per digit" in agreement(held_out_comparison(result, test))
    shares = lv.fit(mixture, numbers, size=2, seed=0).transform(numbers)  # of each component, not the likeliest one
    assert shares.shape == (7, 2)
    np.testing.assert_allclose(shares.sum(1), 1.0, atol=1e-6)
    assert len(set(shares[:, 0].tolist())) > 2
    with pytest.raises(ValueError, match=r"data of class 'Numbers', expected one of Corpus, Points"):
        result.save(tmp_path / "run")
    assert replace(result, training=numbers).training == Numbers(numbers.values)
