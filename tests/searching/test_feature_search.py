"""The default search of `IBP`: chains over features answer how many features are in use."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import lvsearch as lv
from lvsearch.fitted.mixture_posterior import MixturePosterior
from lvsearch.inference.allocation_chains import AllocationTrace
from lvsearch.inference.allocation_chains.run import CHAINS as SEARCH_CHAINS
from lvsearch.inference.features import estimator as feature_fits
from lvsearch.models.contract import Model

MODEL = lv.models.IBP()


def planted() -> lv.Points:
    rng = np.random.default_rng(0)
    has = rng.integers(0, 2, (30, 2))
    return lv.Points.from_array(has @ np.array([[3, 0, 0, 2.0], [0, 3, -2, 0]]) + rng.normal(0, 0.3, (30, 4)))


@pytest.fixture(scope="module")
def found() -> lv.SearchResult:
    """Return the search. Its fits run as many chains as the search, so that both share one compiled program."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(feature_fits, "CHAINS", SEARCH_CHAINS)
        return lv.search(MODEL, planted(), max_size=8, seed=0, progress=False)


@pytest.mark.thorough
def test_the_answer_is_the_number_of_features_in_use(found: lv.SearchResult):
    assert found.settings.evidence == "partitions"
    assert found.partitions is not None
    assert found.partitions.is_settled
    assert found.partitions.occupied_summary()[1] == (2,)
    assert found.best_size == (2,)
    assert {visit.size for visit in found.visits} >= {(1,), (2,)}
    card = found.summary().splitlines()
    assert card[0].startswith("2 features (")
    assert "2 features are in use. The model's size, the number of features that could be used, is 2–" in card[1]
    assert any(line.startswith("  in use:") for line in card)
    assert not any("occupied" in line or "components" in line for line in card)
    assert "chains over features of the rows" in found.summary()
    # the size itself has the table of all searches
    assert found.posterior()["probability"].sum() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.thorough
def test_the_fit_of_the_best_size_has_the_planted_loadings(found: lv.SearchResult):
    loadings = found.best.table("loadings").to_numpy()
    planted_loadings = np.array([[3, 0, 0, 2.0], [0, 3, -2, 0]])
    apart = np.abs(loadings[:, None] - planted_loadings).max(-1)
    assert apart.min(0).max() < 0.4


@pytest.mark.thorough
def test_the_picture_shows_numbers_in_use(found: lv.SearchResult):
    figure, axes = plt.subplots()
    found.plot_posterior(axes)
    assert axes.get_xlabel() == "number of features in use"
    plt.close(figure)


@pytest.mark.thorough
def test_under_another_prior_only_the_size_is_known(found: lv.SearchResult):
    other = found.with_prior(lv.sizes.Poisson(3))
    assert "could be used (" in other.summary().splitlines()[0]
    assert "known under the search's own prior alone" in other.summary()


def test_the_size_that_is_fitted_is_the_next_one_that_the_prior_allows():
    of_size, of_number = np.array([0.0, 0.0, 0.2, 0.0, 0.8]), np.array([0.1, 0.2, 0.3, 0.3, 0.1])
    posterior = MixturePosterior(
        np.log(np.full(5, 0.2)), of_size, of_size, of_number, of_number, 1.0, 100.0, 4, 256, 0.02, 0, "features", True
    )
    np.testing.assert_allclose(posterior.size_chances, [0.0, 0.0, 0.9, 0.0, 0.1])
    np.testing.assert_array_equal(replace(posterior, size_is_limit=False).size_chances, of_size)


@pytest.mark.slow
def test_a_stopped_search_goes_on_to_the_same_answer(found: lv.SearchResult, tmp_path):
    folder = tmp_path / "search"
    stopped = lv.search(MODEL, planted(), max_size=8, seed=0, progress=False, seconds=0.1, out=folder)
    assert not stopped.is_finished
    resumed = lv.resume(folder, progress=False)
    assert resumed.partitions is not None
    assert found.partitions is not None
    np.testing.assert_array_equal(resumed.partitions.probability, found.partitions.probability)
    np.testing.assert_array_equal(resumed.partitions.occupied_probability, found.partitions.occupied_probability)
    assert lv.load(folder).summary().splitlines()[:2] == found.summary().splitlines()[:2]


def test_chains_that_cannot_compare_all_sizes_are_refused():
    with pytest.raises(ValueError, match="or IBP, and none of these"):
        lv.search(MODEL, planted(), evidence="partitions", exhaustive=True, max_size=2, progress=False)


def test_no_feature_in_use_is_a_number_like_others():
    draws = np.array([[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 2]] * 4)
    log_rows = np.random.default_rng(0).normal(size=draws.shape)
    trace = AllocationTrace(np.full((12, 3), 1 / 3), draws[None], log_rows, 8, 1)
    assert trace.fewest_parts == 0
    posterior = MixturePosterior.from_trace(trace, np.log(np.full(3, 1 / 3)), 0.5, MODEL)
    assert posterior.chains == 12
    table = posterior.occupied()
    assert table["occupied"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(table["probability"], [9 / 12, 2 / 12, 1 / 12])
    assert posterior.occupied_summary()[:2] == (((0,), (1,), (2,)), (0,))
    assert "0 features in use are most probable" in posterior.describe()


def test_numbers_in_use_must_be_precise_too():
    """Chains that agree on sizes, but count features in use with large errors, are not settled."""
    rng = np.random.default_rng(1)
    draws = rng.integers(1, 3, (8, 40))
    trace = AllocationTrace(np.full((8, 3), 1 / 3), draws[None], rng.normal(size=draws.shape), 80, 1)
    size_error, number_error = trace.sizes()[1].max(), trace.occupied()[1].max()
    assert size_error < number_error
    between = (size_error + number_error) / 2
    assert trace.rhat < 1.05
    assert trace.is_settled(between)
    assert not trace.is_settled(between, of_parts=True)


def test_the_answer_of_other_models_is_their_size():
    kinds = [value for value in vars(lv.models).values() if isinstance(value, type) and issubclass(value, Model)]
    assert [kind for kind in kinds if kind.size_is_limit] == [lv.models.IBP]
