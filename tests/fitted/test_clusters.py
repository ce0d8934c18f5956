"""What people ask of a fitted mixture, in the units of their data."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from fits_without_parameters import fit_without_parameters
from scipy.stats import kstest

import lvsearch as lv
from lvsearch.reports.page_parts import parts_of

CENTRES = np.array([[10.0, -200.0, 3.0], [14.0, 100.0, 3.0]])
SPREADS = np.array([0.5, 20.0, 0.1])


def flowers() -> pd.DataFrame:
    """Two clusters of unequal size, columns on very different scales, rows with names."""
    rng = np.random.default_rng(0)
    of = np.repeat([0, 1], [70, 30])
    values = CENTRES[of] + SPREADS * rng.standard_normal((100, 3))
    return pd.DataFrame(values, columns=["length", "mass", "width"], index=[f"plant {row}" for row in range(100)])


@cache
def fitted(kind=lv.models.DiagonalComponents, size=2):
    frame = flowers()
    components = kind.scaled_to(frame.to_numpy())
    return lv.fit(lv.models.FiniteMixture(components), frame, size=size, seed=0, starts=3)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    [lv.models.DiagonalComponents, pytest.param(lv.models.FullCovarianceComponents, marks=pytest.mark.slow)],
)
def test_means_covariances_and_weights_are_those_of_the_clusters(kind):
    fit = fitted(kind)
    large = int(np.argmax(fit.weights()))
    np.testing.assert_allclose(fit.weights()[large], 0.7, atol=0.03)
    assert fit.weights().sum() == pytest.approx(1.0)
    means = fit.means()
    assert list(means.columns) == ["length", "mass", "width"]
    np.testing.assert_allclose((means.loc[[large, 1 - large]] - CENTRES) / SPREADS, 0, atol=0.5)
    spread = np.sqrt(np.diag(fit.covariances()[large]))
    np.testing.assert_allclose(spread / SPREADS, 1, atol=0.5)
    assert list(fit.covariances()[0].index) == list(means.columns)


def test_labels_memberships_and_prediction_are_named_by_the_rows():
    fit, frame = fitted(), flowers()
    labels = fit.labels()
    assert list(labels.index) == list(frame.index)
    assert len(set(labels[:70])) == len(set(labels[70:])) == 1
    assert labels.iloc[0] != labels.iloc[-1]
    np.testing.assert_array_equal(fit.predict(frame.iloc[::-1]), labels.to_numpy()[::-1])
    np.testing.assert_allclose(fit.memberships().sum(axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_clusters_under_independent_priors_are_found_and_described():
    """The generic engine fits this mixture. It found no cluster where all components began as a blur of all rows."""
    frame = flowers()
    model = lv.models.IndependentNormalMixture.scaled_to(frame.to_numpy())
    fit = lv.fit(model, frame, size=2, seed=0)
    large = int(np.argmax(fit.weights()))
    np.testing.assert_allclose(fit.weights()[large], 0.7, atol=0.03)
    means, spreads = fit.means(), [np.sqrt(np.diag(fit.covariances()[k])) for k in (large, 1 - large)]
    np.testing.assert_allclose((means.loc[[large, 1 - large]] - CENTRES) / SPREADS, 0, atol=0.5)
    np.testing.assert_allclose(spreads / SPREADS, 1, atol=0.5)
    np.testing.assert_array_equal(fit.labels() == large, np.arange(100) < 70)
    assert list(fit.sample(3).columns) == [*frame.columns, "component"]
    np.testing.assert_allclose(fit.affinity(fit), np.eye(2), atol=1e-3)
    assert "mass" in fit.component_names()[0]
    with pytest.raises(ValueError, match="expected a mixture with conjugate priors"):
        fit.log_density()
    assert fit.means().equals(lv.fit(model, frame, size=2, seed=0).means())


def test_uncertain_rows_come_first():
    fit = fitted()
    way = np.linspace(0, 1, 41)[:, None]
    line = pd.DataFrame(CENTRES[0] + way * (CENTRES[1] - CENTRES[0]), columns=flowers().columns)
    found = fit.uncertain(5, line)
    shares = fit.memberships(line).to_numpy()
    assert list(found.index) == list(np.argsort(shares.max(axis=1), kind="stable")[:5])
    assert 0 < found.index[0] < 40
    assert found["probability"].is_monotonic_increasing
    assert (found["probability"] > found["second_probability"]).all()
    assert (found["component"] != found["second"]).all()
    with pytest.raises(ValueError, match="one component"):
        fitted(size=1).uncertain()


def test_new_rows_have_the_moments_of_the_mixture():
    fit = fitted()
    drawn = fit.sample(4000, seed=1)
    share = drawn["component"].value_counts(normalize=True).sort_index()
    np.testing.assert_allclose(share, fit.weights() / fit.weights().sum(), atol=0.03)
    for component, rows in drawn.groupby("component"):
        error = (rows.drop(columns="component").mean() - fit.means().loc[component]) / SPREADS
        np.testing.assert_allclose(error, 0, atol=0.1)
        covariance = np.cov(rows.drop(columns="component").to_numpy().T) / np.outer(SPREADS, SPREADS)
        np.testing.assert_allclose(covariance, fit.covariances()[component] / np.outer(SPREADS, SPREADS), atol=0.2)
    pd.testing.assert_frame_equal(drawn, fit.sample(4000, seed=1))


def test_density_is_lower_far_away():
    fit = fitted()
    far = flowers().iloc[:2].copy()
    far.iloc[1] += 100 * SPREADS
    density = fit.log_density(far)
    assert density.iloc[0] > density.iloc[1] + 10
    np.testing.assert_allclose(fit.log_density().iloc[0], density.iloc[0])


@pytest.mark.slow  # as of the Gaussians above
def test_bernoulli_components_have_moments():
    bits = (np.random.default_rng(1).random((300, 2)) < [0.2, 0.9]).astype(float)
    bernoulli = lv.fit(lv.models.FiniteMixture(lv.models.BernoulliComponents(1.0, 1.0)), bits, size=1, seed=0)
    np.testing.assert_allclose(bernoulli.means().loc[0], bits.mean(axis=0), atol=0.01)
    assert set(np.unique(bernoulli.sample(50).drop(columns="component"))) == {0.0, 1.0}


@pytest.mark.slow  # as of the kind above
def test_known_covariance_and_multinomial_have_moments():
    rng = np.random.default_rng(1)
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    rows = rng.multivariate_normal([3.0, -1.0], covariance, size=300)
    known = lv.fit(lv.models.FiniteMixture(lv.models.KnownCovarianceComponents(covariance)), rows, size=1, seed=0)
    np.testing.assert_allclose(known.covariances()[0], covariance, rtol=1e-5)
    np.testing.assert_allclose(known.means().loc[0], rows.mean(axis=0), atol=0.1)
    counts = rng.multinomial(30, [0.5, 0.3, 0.2], size=40).astype(float)
    multinomial = lv.fit(lv.models.FiniteMixture(lv.models.MultinomialComponents(1.0)), counts, size=1, seed=0)
    np.testing.assert_allclose(multinomial.means().loc[0], [0.5, 0.3, 0.2], atol=0.03)
    np.testing.assert_array_equal(multinomial.sample(5).drop(columns="component").sum(axis=1), 30)


def test_the_picture_shows_two_columns_and_refuses_others():
    axes = fitted().plot_clusters(("mass", "width"))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("mass", "width")
    assert len(axes.patches) == 2
    with pytest.raises(ValueError, match="expected two of 'length', 'mass', 'width'"):
        fitted().plot_clusters(("mass", "height"))
    figure = fitted().plot_pairs()
    assert len(figure.axes) == 9
    with pytest.raises(ValueError, match="expected two or more of"):
        fitted().plot_pairs(["mass"])


def test_a_page_shows_clusters_by_size_with_their_means_and_rows():
    parts = parts_of(fitted())
    assert parts is not None
    weights = fitted().weights()
    assert [part.number for part in parts.rows] == list(weights.sort_values(ascending=False).index)
    assert parts.rows[0].share == pytest.approx(weights.max())
    assert "mass −2" in parts.rows[0].facts[0]
    assert parts.explorer is not None
    unit = parts.explorer.units[3]
    assert unit.name == "plant 3"
    assert {piece.part for piece in unit.pieces} == {fitted().predict()[3]}
    assert len(parts.drawings) == 1


def test_training_data_of_another_class_are_refused_in_words():
    with pytest.raises(ValueError, match=r"got data of the class Points, expected lv\.Corpus"):
        fitted()._data_as(lv.Corpus, None)


def test_other_models_do_not_offer_clusters():
    model = lv.fit(lv.models.LDA(), np.array([[1, 2], [2, 0], [0, 3]]), size=1, seed=0)
    assert "means" not in dir(model)
    assert "topics" not in dir(fitted())


@pytest.mark.thorough
@pytest.mark.parametrize("categorical", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rows_of_answers_do_not_lie_in_one_dot_and_empty_components_are_counted(categorical):
    """40 rows were two dots, under the title "2 components" of a fit of 3."""
    frame = pd.DataFrame({"smokes": ["often", "never"] * 20, "drinks": ["yes", "no"] * 20})
    points = lv.Points.from_categories(frame)
    kind = lv.models.BernoulliComponents()
    if categorical:
        kind = lv.models.CategoricalComponents.from_columns(points.columns)
    fit = lv.fit(lv.models.FiniteMixture(kind), points, size=3, seed=0)
    axes = fit.plot_clusters()
    drawn = np.concatenate([np.asarray(dots.get_offsets()) for dots in axes.collections])
    assert len(np.unique(drawn, axis=0)) == 40
    assert (np.abs(drawn - np.round(drawn)) <= 0.2).all()
    assert axes.get_title(loc="left") == "3 components, 2 with rows"
    assert "moved apart at random" in " ".join(text.get_text() for text in axes.texts).replace("\n", " ")


# ── the next batch, and rows that fit nowhere ───────────────────────────────────────────────────────────────────────


def more_flowers(seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    of = np.repeat([0, 1], [10, 60])
    values = CENTRES[of] + SPREADS * random.standard_normal((70, 3))
    return pd.DataFrame(values, columns=["length", "mass", "width"], index=[f"late {row}" for row in range(70)])


def test_an_updated_fit_keeps_its_clusters():
    old = fitted()
    for seed in range(3):
        new = old.update(more_flowers(seed))
        assert len(new.training) == 170
        np.testing.assert_allclose((new.means() - old.means()) / SPREADS, 0, atol=0.6)
        assert new.labels()[:100].equals(old.labels())
        second = int(old.labels().iloc[-1])
        np.testing.assert_allclose(new.weights()[second], 90 / 170, atol=0.03)
    with pytest.raises(ValueError, match="2 columns"):
        old.update(more_flowers(0).to_numpy()[:, :2])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model",
    [
        lambda values: lv.models.TiedMixture(lv.models.FullCovarianceComponents.weak(values)),
        lambda values: lv.models.FactorAnalyzerMixture(lv.models.FactorAnalyzerComponents.weak(values, 1)),
        lambda values: lv.models.IndependentNormalMixture(),
    ],
    ids=["tied", "low-rank", "independent"],
)
def test_every_kind_of_mixture_keeps_its_clusters(model):
    random = np.random.default_rng(0)
    centres = np.array([[-3.0, 0, 0], [3, 0, 3], [0, 4, -3]])
    first = centres[np.repeat([0, 1, 2], 30)] + 0.5 * random.standard_normal((90, 3))
    later = centres[np.repeat([2, 1], 30)] + 0.5 * random.standard_normal((60, 3))
    old = lv.fit(model(first), first, size=3, seed=0)
    assert old.update(later).labels()[:90].equals(old.labels())


def test_a_process_cannot_keep_the_numbers_of_its_clusters():
    old = fit_without_parameters(lv.models.DPMixture(lv.models.DiagonalComponents()), np.eye(4))
    with pytest.raises(ValueError, match=r"DPMixture.*expected a model with a size"):
        old.update(np.eye(4))


def test_far_rows_are_the_most_unusual_also_where_cells_are_missing():
    fit = fitted()
    rows = flowers().iloc[:30].copy()
    rows.iloc[:5, 0] = np.nan
    far = pd.DataFrame([[12, -50, 3], [np.nan, 600, 3]], columns=rows.columns, index=["between", "beyond"])
    found = fit.unusual(lv.Points.from_frame(pd.concat([rows, far]), missing="nan"), draws=99)
    assert set(found.index[:2]) == {"between", "beyond"}
    assert found["p"].iloc[:3].tolist()[:2] == [0.01, 0.01]
    assert found["p"].iloc[5] > 0.01
    assert len(fit.unusual(draws=9)) == 100


@pytest.mark.thorough
def test_p_values_of_rows_drawn_from_the_fit_are_uniform():
    found = fitted().unusual(fitted().sample(400, seed=4).drop(columns="component"), draws=499, seed=8)
    assert kstest(found["p"] - np.random.default_rng(0).random(400) / 500, "uniform").pvalue > 0.01


@pytest.mark.thorough
def test_counts_without_a_model_of_their_total_are_compared_at_the_same_total():
    """Rows of 5 and of 50 counts, in the same shares: neither is unusual beside rows of its own length."""
    random = np.random.default_rng(2)
    counts = random.multinomial(np.repeat([5, 50], 30), [0.7, 0.2, 0.1]).astype(float)
    fit = lv.fit(lv.models.FiniteMixture(lv.models.MultinomialComponents()), counts, size=1, seed=0)
    found = fit.unusual(np.vstack([counts, [[0, 0, 50]]]), draws=99)
    assert found.index[0] == 60
    assert found["p"].iloc[0] == 0.01
    assert 0.2 < found["p"].loc[range(30)].mean() < 0.9
    assert 0.2 < found["p"].loc[range(30, 60)].mean() < 0.9


def test_models_whose_units_are_not_drawn_say_so():
    fit = fit_without_parameters(lv.models.LatentBlockModel(lv.models.BernoulliComponents()), np.eye(4))
    with pytest.raises(ValueError, match="LatentBlockModel, whose units are not drawn"):
        fit.unusual()
