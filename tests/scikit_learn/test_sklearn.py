"""Searches as scikit-learn estimators: scikit-learn's own checks, and what they say in a pipeline."""

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tiers import in_tiers

import lvsearch as lv
from lvsearch.models import DiagonalComponents, FactorAnalyzerMixture, FiniteMixture, FullCovarianceComponents
from lvsearch.sklearn import FeatureSearch, MixtureSearch, TopicSearch
from lvsearch.sklearn.mixture_search import full_covariances, most_factors

QUICK = {"max_size": 3, "evidence": "bound", "starts": 1}
KINDS = ("apple pear plum cherry", "iron tin zinc copper")
CHECKS = parametrize_with_checks([TopicSearch(**QUICK), MixtureSearch(**QUICK), FeatureSearch(**QUICK)])
"""A mark, of older versions of scikit-learn over a generator, which pytest will no longer take."""
WITHOUT_FITS = {
    *("check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types", "check_estimator_repr"),
    *("check_no_attributes_set_in_init", "check_mixin_order"),
    *("check_do_not_raise_errors_in_init_or_set_params", "check_parameters_default_constructible"),
    *("check_get_params_invariance", "check_set_params", "check_estimators_unfitted", "check_transformers_unfitted"),
    *("check_complex_data", "check_estimators_empty_data_messages", "check_fit1d", "check_fit2d_1sample"),
    "check_fit_non_negative",
}
"""The checks of scikit-learn that fit nothing, or expect that a fit is refused."""


def name_of(check) -> str:
    """The name of a check, which scikit-learn wraps to tell it the estimator's name."""
    while hasattr(check, "func"):
        check = check.func
    return check.__name__


CHECKED = in_tiers(
    CHECKS.args[1],
    lambda case: name_of(case[1]) in WITHOUT_FITS,
    lambda case: f"{type(case[0]).__name__}-{name_of(case[1])}",
)
TEXTS = [" ".join(kind.split()[(i + j) % 4] for j in range(6)) for i in range(12) for kind in KINDS]


@pytest.mark.filterwarnings("ignore:.* hold no word that the model knows")  # some checks have such documents
@pytest.mark.parametrize(CHECKS.args[0], CHECKED)
def test_what_scikit_learn_expects(estimator, check):
    check(estimator)


@cache
def pipeline() -> Pipeline:
    return make_pipeline(CountVectorizer(), TopicSearch(random_state=3, **QUICK)).fit(TEXTS)


@pytest.mark.slow
def test_kinds_of_components_are_chosen_by_their_evidence():
    """Rows of Student's t with three degrees of freedom, correlated within two groups."""
    rng = np.random.default_rng(0)
    normal = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 120) / np.sqrt(rng.gamma(1.5, 2 / 3, (120, 1)))
    rows = np.repeat([[0, 0], [9, -6.0]], 60, axis=0) + normal
    search = MixtureSearch(covariance_type="auto", max_size=3, starts=1).fit(rows)
    assert search.kinds_.index[0] == "student-full"
    assert set(search.kinds_.index) == {"full", "tied", "diag", "student-full", "student-diag"}
    assert search.best_size_ == search.kinds_["best_size"].iloc[0] == 2
    with pytest.raises(ValueError, match='expected "marginal"'):
        MixtureSearch(covariance_type="auto", evidence="bound").fit(rows)


def test_one_column_is_searched_as_independent_columns():
    rows = np.random.default_rng(0).normal(3.0, 2.0, (30, 1))
    full, diagonal = FullCovarianceComponents.weak(rows), DiagonalComponents.weak(rows)
    assert (full.spread.shape, 2 * full.spread.rate) == (diagonal.rate.shape, diagonal.rate.rate)  # the rate is half
    assert full.pseudo_count == diagonal.pseudo_count
    assert isinstance(full_covariances(rows), DiagonalComponents)
    assert isinstance(full_covariances(np.hstack([rows, rows])), FullCovarianceComponents)
    kinds = MixtureSearch(covariance_type="auto")._models(lv.Points.from_array(rows))
    assert list(kinds) == ["full", "tied", "student-full"]


@pytest.mark.thorough
def test_in_one_column_full_covariances_are_independent_columns():
    """The evidence of one component, which mean field gives exactly, is the same at the same numbers."""
    rows = np.random.default_rng(0).normal(3.0, 2.0, (30, 1))
    numbers = (
        replace(FullCovarianceComponents.weak(rows), pseudo_count=1.3, spread=0.8),
        replace(DiagonalComponents.weak(rows), pseudo_count=1.3, rate=0.4),
    )
    ours, theirs = (lv.fit(FiniteMixture(kind), rows, size=1).estimate.log_lower for kind in numbers)
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_low_rank_covariances_and_how_many_factors_are_weighed():
    """Ledermann's bound: of 3 and 4 columns one factor is fewer numbers than a covariance, of 5 columns two."""
    assert [most_factors(n) for n in (1, 2, 3, 4, 5, 13)] == [0, 0, 1, 1, 2, 8]
    rows = np.random.default_rng(0).normal(size=(20, 5))
    search = MixtureSearch(covariance_type="low-rank", n_factors=2)
    model = search._model(lv.Points.from_array(rows))
    assert isinstance(model, FactorAnalyzerMixture)
    assert model.analyzers.n_factors == 2
    kinds = MixtureSearch(covariance_type="auto")._models(lv.Points.from_array(rows))
    assert list(kinds)[-2:] == ["low-rank-1", "low-rank-2"]
    with pytest.raises(ValueError, match="'low-rank', 'auto'"):
        MixtureSearch(covariance_type="low rank").fit(rows)


@pytest.mark.slow
def test_low_rank_clusters_are_found_by_their_kind():
    """Two clusters in six columns, each along one direction of its own."""
    rng = np.random.default_rng(0)
    along = np.repeat(2.0 * rng.normal(size=(2, 6)), 60, axis=0)
    rows = 2 * along[::-1] + rng.normal(size=(120, 1)) * along + 0.5 * rng.normal(size=(120, 6))
    search = MixtureSearch(covariance_type="low-rank", max_size=3, starts=1).fit(rows)
    assert search.best_size_ == 2
    np.testing.assert_array_equal(search.labels_ == search.labels_[0], np.arange(120) < 60)
    assert np.isfinite(search.score(rows))


def test_topics_in_a_pipeline():
    words, search = pipeline()
    direct = lv.search(
        lv.models.LDA(), words.transform(TEXTS), **QUICK, seed=3, progress=False
    )  # what a person would have done
    assert search.best_size_ == direct.best_size[0] == 2
    assert (
        search.result_.posterior()
        .drop(columns=["seconds"], errors="ignore")
        .equals(direct.posterior().drop(columns=["seconds"], errors="ignore"))
    )
    assert search.sentence_ == direct.summary().splitlines()[0]
    assert "between 1 and 3 topics (by the mean-field bound, which is not the evidence)" in search.sentence_
    shares = pipeline().transform(TEXTS)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    assert pipeline().predict(TEXTS).tolist() == shares.argmax(axis=1).tolist()
    assert len(set(pipeline().predict(TEXTS)[::2])) == 1  # every other document is of one kind
    assert search.get_feature_names_out().tolist() == ["topic0", "topic1"]
    np.testing.assert_allclose(search.components_.sum(axis=1), 1, rtol=1e-6)
    names = words.get_feature_names_out()
    top = [sorted(names[topic.argsort()[-4:]]) for topic in search.components_]  # as with scikit-learn's own LDA
    assert sorted(top) == [sorted(kind.split()) for kind in KINDS]
    assert not hasattr(TopicSearch(), "components_")  # not before `fit`
    found = search.topics(words.get_feature_names_out(), n_words=4)
    assert sorted(sorted(line.split()) for line in found["words"]) == [sorted(kind.split()) for kind in KINDS]
    assert search.topics(n_words=1)["words"].str.startswith("term").all()
    with pytest.raises(ValueError, match="a vocabulary of 2 terms"):
        search.topics(["one", "two"])


def test_the_score_is_per_token():
    words, search = pipeline()
    once, twice = (words.transform(TEXTS * times) for times in (1, 2))
    assert search.score(once) == pytest.approx(search.score(twice), rel=1e-6)
    assert -np.log(8) < search.score(once) < 0  # better than eight words at random
    assert search.score(once) * once.sum() == pytest.approx(search.best_.score(once), rel=1e-9)
    with pytest.raises(ValueError, match="without a single token"):
        search.score(0 * once[:2])


def test_output_in_pandas_and_names_of_columns():
    counts = CountVectorizer().fit(TEXTS)
    frame = pd.DataFrame(counts.transform(TEXTS).toarray(), columns=counts.get_feature_names_out())
    search = TopicSearch(**QUICK).set_output(transform="pandas").fit(frame)
    assert search.transform(frame).columns.tolist() == ["topic0", "topic1"]
    assert search.feature_names_in_.tolist() == list(frame.columns)
    assert set(" ".join(search.topics(n_words=4)["words"]).split()) == set(frame.columns)  # known from the frame
    with pytest.raises(ValueError, match="feature names should match"):
        search.transform(frame.iloc[:, ::-1])


def test_what_is_no_count_is_refused_and_unfitted_ones_say_so():
    for X, message in (
        (np.eye(3) / 2, "whole numbers; TF-IDF weights"),
        (-np.eye(3), "Negative values in data passed to TopicSearch"),
        *((texts, r"got texts; TopicSearch takes counts of words.*CountVectorizer") for texts in same_texts()),
    ):
        with pytest.raises(ValueError, match=message):
            TopicSearch(**QUICK).fit(X)
    for estimator in (TopicSearch(), MixtureSearch(), FeatureSearch()):
        with pytest.raises(NotFittedError):
            estimator.transform(np.eye(3))
        with pytest.raises(NotFittedError):
            _ = estimator.best_
    for wrong, said in (("spherical", "'spherical'"), (["full"], r"\['full'\]"), (np.array(["full", "diag"]), ".*")):
        with pytest.raises(ValueError, match=f"covariance_type={said}, expected one of 'full', 'tied'"):
            MixtureSearch(covariance_type=wrong).fit(np.random.default_rng(0).normal(size=(9, 2)))


def same_texts() -> list:
    """Two texts in the ways in which people have them."""
    texts = ["apple pear", "iron tin"]
    return [texts, tuple(texts), np.array(texts), pd.Series(texts), pd.DataFrame({"id": [1, 2], "text": texts})]


@pytest.mark.parametrize("estimator", [MixtureSearch(**QUICK), FeatureSearch(**QUICK)])
def test_columns_of_dates_and_text_are_refused_with_advice_of_our_own(estimator):
    days = pd.date_range("2020-01-01", periods=6)
    for column, said in (
        (days, r"'when' \(row 0: '2020-01-01.*write dates as numbers"),
        (days - days[0], r"'when' \(row 0: '0 days.*total_seconds"),
        (days.to_period("D"), r"'when' \(row 0: '2020-01-01'\).*write dates as numbers"),
        (list("abcdef"), r"'when' \(row 0: 'a'\).*leave the column out"),
    ):
        with pytest.raises(ValueError, match=f"got 1 column.*{said}"):
            estimator.fit(pd.DataFrame({"x": np.arange(6.0), "when": column}))


@pytest.mark.smoke
def test_clones_have_the_parameters_and_no_fit():
    search = TopicSearch(lv.models.LDA(concentration=2.0), prior=lv.sizes.Poisson(3), random_state=7, **QUICK)
    again = clone(search)
    assert again.get_params()["prior"] == lv.sizes.Poisson(3)
    assert again.get_params()["model"].describe() == search.model.describe()
    assert set(search.get_params()) == {
        *("model", "prior", "max_size", "evidence", "starts", "seconds", "random_state", "verbose"),
        *("model__concentration", "model__topic_concentration"),
    }
    assert again.get_params()["model__concentration"] == 2.0
    assert not hasattr(clone(pipeline()[-1]), "result_")
    assert again.set_params(max_size=5).max_size == 5


def test_a_fit_survives_pickling():
    assert pipeline()[-1].sentence_ in str(pipeline()[-1].result_)  # what was printed is kept, and pickled too
    back = pickle.loads(pickle.dumps(pipeline()))
    np.testing.assert_array_equal(back.transform(TEXTS), pipeline().transform(TEXTS))
    assert back[-1].sentence_ == pipeline()[-1].sentence_


@cache
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [40, 10], [-30, 30.0]])
    return centres[np.repeat([0, 1, 2], [10, 15, 20])] + rng.normal(0, 2, (45, 2))


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_clusters(covariance_type):
    search = MixtureSearch(covariance_type=covariance_type, max_size=4, evidence="bound", starts=1)
    labels = search.fit_predict(rows())
    assert search.best_size_ == 3
    assert [len(set(labels[part])) for part in (slice(0, 10), slice(10, 25), slice(25, 45))] == [1, 1, 1]
    assert len(set(labels)) == 3
    assert search.labels_.tolist() == search.predict(rows()).tolist() == labels.tolist()
    np.testing.assert_array_equal(search.predict_proba(rows()), search.transform(rows()))
    density = search.best_.log_density(rows())
    np.testing.assert_allclose(search.score_samples(rows()), density)
    assert search.score(rows()) == pytest.approx(density.mean())
    assert search.score(rows()) > search.score(rows() + 100)
    found, parts = rows(), [rows()[labels == number] for number in range(3)]
    np.testing.assert_allclose(search.weights_, [len(part) / len(found) for part in parts], atol=0.03)
    np.testing.assert_allclose(search.means_, [part.mean(0) for part in parts], atol=1)
    assert search.covariances_.shape == (3, 2, 2)
    assert np.all(np.linalg.eigvalsh(search.covariances_) > 0)
    assert search.get_feature_names_out().tolist() == ["component0", "component1", "component2"]


@pytest.mark.slow
def test_features():
    rng = np.random.default_rng(0)
    has = rng.integers(0, 2, (60, 3))
    X = has @ np.array([[3, 0, 0, 2.0], [0, 3, -2, 0], [0, 0, 3, 3]]) + rng.normal(0, 0.3, (60, 4))
    search = FeatureSearch(prior=lv.sizes.Poisson(2), max_size=5, evidence="bound").fit(X)
    assert search.best_size_ == 3
    found = search.predict(X)
    agreement = [max(np.mean(found[:, k] == has[:, j]) for k in range(3)) for j in range(3)]
    assert min(agreement) > 0.9
    assert search.score(X) == pytest.approx(search.best_.score(X) / len(X))
    assert search.get_feature_names_out().tolist() == ["feature0", "feature1", "feature2"]


@pytest.mark.slow
def test_in_cross_validation_and_grids():
    scores = cross_val_score(make_pipeline(CountVectorizer(), TopicSearch(**QUICK)), TEXTS, cv=2)
    assert scores.shape == (2,)
    assert np.all(np.isfinite(scores))
    assert np.all(scores < 0)
    models = [lv.models.LDA(topic_concentration=value) for value in (0.05, 50.0)]  # the second: no peaks at all
    grid = GridSearchCV(TopicSearch(**QUICK), {"model": models}, cv=2)
    grid.fit(CountVectorizer().fit_transform(TEXTS))
    assert grid.best_index_ == 0
    scaled = make_pipeline(StandardScaler(), MixtureSearch(**QUICK))
    assert cross_val_score(scaled, rows()[np.random.default_rng(0).permutation(45)], cv=3).shape == (3,)


@pytest.mark.thorough
def test_rows_keep_their_names_and_predict_gives_arrays_whatever_the_output():
    """`predict` and `predict_proba` after `set_output`, and the index of a frame in what is fitted."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(12, 2)), 20 + rng.normal(size=(12, 2))])
    frame = pd.DataFrame(rows, columns=["a", "b"], index=[f"r{row}" for row in range(24)])
    quick = {"model": lv.models.FiniteMixture(lv.models.DiagonalComponents.weak(rows)), **QUICK}
    for search, index in (
        (MixtureSearch(**quick), frame.index),
        (MixtureSearch(**quick).set_output(transform="pandas"), pd.RangeIndex(100, 124)),  # as after a filter
    ):
        frame = frame.set_axis(index)
        search.fit(frame)
        assert search.best_.labels().index.tolist() == list(frame.index)
        assert isinstance(search.predict(frame), np.ndarray)
        assert search.predict_proba(frame).shape == (24, search.best_size_)
        np.testing.assert_array_equal(search.predict(frame), search.labels_)
    assert search.transform(frame).index.tolist() == list(frame.index)
    assert search.n_features_in_ == 2


def test_topics_of_a_frame_keep_the_names_of_its_rows():
    counts = CountVectorizer().fit(TEXTS)
    frame = pd.DataFrame(counts.transform(TEXTS).toarray(), columns=counts.get_feature_names_out())
    frame.index = [f"d{row}" for row in range(len(frame))]
    search = TopicSearch(**QUICK).set_output(transform="pandas").fit(frame)
    assert search.best_.training.document_names == tuple(frame.index)
    assert search.predict(frame).shape == (len(frame),)
    assert search.transform(frame).index.tolist() == list(frame.index)


def test_numbers_in_the_priors_of_a_model_are_parameters():
    search = TopicSearch(model=lv.models.LDA(2.0, 0.1))
    assert search.get_params()["model__concentration"] == 2.0
    assert "model__concentration" not in search.get_params(deep=False)
    changed = clone(search).set_params(model__concentration=3.0, model__topic_concentration=0.2, max_size=4)
    assert (float(changed.model.concentration), float(changed.model.topic_concentration)) == (3.0, pytest.approx(0.2))
    assert (float(search.model.concentration), changed.max_size) == (2.0, 4)
    mixture = MixtureSearch(model=lv.models.FiniteMixture(lv.models.DiagonalComponents()))
    inner = [name for name in mixture.get_params() if name.startswith("model__components__")]
    assert inner
    assert mixture.set_params(**{inner[0]: 7.0}).get_params()[inner[0]] == 7.0
    with pytest.raises(ValueError, match="'model__alpha', expected one of 'model__concentration'"):
        search.set_params(model__alpha=1.0)
    for value in (0.0, -1.0, np.nan, np.inf, "x"):
        with pytest.raises(ValueError, match=r"got model__concentration=.*expected a finite number above 0"):
            search.set_params(model__concentration=value)
    with pytest.raises(ValueError, match=r"whose model is made of the data; expected a model="):
        TopicSearch().set_params(model__concentration=1.0)


def test_empty_cells_are_refused_with_advice_of_our_own():
    rows = np.ones((4, 2))
    rows[2, 1] = np.nan
    for X, column in ((rows, "1"), (pd.DataFrame(rows, columns=["a", "b"]), "'b'")):
        with pytest.raises(
            ValueError, match=rf"NaN in 1 of 8 cells of X, the first in row 2, column {column}.*missing=\"nan\""
        ):
            MixtureSearch().fit(X)
        for counts in (X, csr_array(np.asarray(X))):
            with pytest.raises(
                ValueError, match=r"NaN in 1 of 8 cells of X, the first in row 2, column.*counts of words"
            ):
                TopicSearch().fit(counts)


def test_partial_fit_updates_the_fit_of_the_first_batch():
    random = np.random.default_rng(0)
    batches = [random.multinomial(20, np.kron(np.eye(2), np.full(3, 1 / 3))[kind], 8) for kind in (0, 1, 1)]
    search = TopicSearch(lv.models.MixtureOfUnigrams(), random_state=0, **QUICK).partial_fit(
        np.concatenate(batches[:2])
    )
    first = search.best_
    assert search.partial_fit(batches[2]) is search
    assert search.best_size_ == first.size[0]
    assert (len(first.training), len(search.best_.training), len(search.result_.training)) == (16, 24, 16)
    np.testing.assert_array_equal(
        search.components_.argmax(axis=1) < 3, first.table("topic_word").to_numpy().argmax(axis=1) < 3
    )
    assert search.transform(batches[0]).shape == (8, first.size[0])
    with pytest.raises(ValueError, match="X has 5 features"):
        search.partial_fit(batches[0][:, :5])
    assert len(search.fit(batches[0]).best_.training) == 8


@pytest.mark.thorough
def test_partial_fit_of_clusters_has_the_labels_of_the_last_batch():
    rows = np.concatenate([np.random.default_rng(0).normal(mean, 1, (20, 2)) for mean in (-6, 6)])
    search = MixtureSearch(covariance_type="diag", random_state=0, **QUICK).partial_fit(rows)
    labels = search.labels_
    search.partial_fit(rows[30:])
    assert search.labels_.tolist() == labels[30:].tolist()
    assert len(search.best_.training) == 50
