"""New data that a fitted model has no density for are refused by every method of the fit, as training data are.

They are looked at before a parameter is, so most of these tests need no parameters.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fits_without_parameters import fit_without_parameters

import lvsearch as lv

KINDS = lv.models
RNG = np.random.default_rng(0)
NUMBERS = np.concatenate([RNG.normal(mean, 0.7, (12, 2)) for mean in (-2, 2)])
COUNTS = RNG.poisson(3, (24, 3))
BITS = COUNTS > 3
HALF = [[2.0, np.nan], [2.0, 2.0]]
PARTLY = "rows with missing cells"
BAD = {
    "full": (KINDS.FiniteMixture(KINDS.FullCovarianceComponents.scaled_to(NUMBERS)), NUMBERS, HALF, PARTLY),
    "tied": (KINDS.TiedMixture(), NUMBERS, HALF, PARTLY),
    "low-rank": (KINDS.FactorAnalyzerMixture(KINDS.FactorAnalyzerComponents(1)), NUMBERS, HALF, PARTLY),
    "process": (KINDS.DPMixture(KINDS.FullCovarianceComponents.scaled_to(NUMBERS)), NUMBERS, HALF, PARTLY),
    "negative": (KINDS.FiniteMixture(KINDS.PoissonComponents()), COUNTS, [[-1, 0, 0]], "cell with -1.0"),
    "fraction": (KINDS.FiniteMixture(KINDS.MultinomialComponents()), COUNTS, [[0.5, 1, 1]], "cell with 0.5"),
    "bits": (KINDS.FiniteMixture(KINDS.BernoulliComponents()), BITS, [[0, 1, 3]], "cell with 3.0"),
    "levels": (KINDS.FiniteMixture(KINDS.LevelComponents(range(20))), COUNTS, [[0, 1, 77]], "cell with 77.0"),
    "two answers": (
        KINDS.FiniteMixture(KINDS.CategoricalComponents([2])),
        np.eye(2)[np.arange(24) % 2],
        [[1, 1]],
        "no single category",
    ),
    "blocks": (KINDS.LatentBlockModel(KINDS.BernoulliComponents()), BITS, [[0, 1, 3]], "cell with 3.0"),
}


def bad_points(values: Any) -> lv.Points:
    return lv.Points.from_array(values, missing="nan")


@pytest.mark.parametrize("name", BAD)
def test_new_rows_without_a_density_are_refused(name: str) -> None:
    model, values, bad, words = BAD[name]
    fit = fit_without_parameters(model, values)
    calls: list[Callable[[Any], Any]] = [fit.transform, fit.score, fit.score_units, fit.interval_units]
    for call in calls:
        with pytest.raises(ValueError, match=words):
            call(bad_points(bad))
    with pytest.raises(ValueError, match=words):
        lv.functional.batch_of(fit.model, bad_points(bad))


def test_new_sequences_without_a_density_are_refused() -> None:
    fit = fit_without_parameters(KINDS.HiddenMarkov(KINDS.BernoulliComponents()), lv.Groups.from_arrays([BITS * 1.0]))
    for call in (fit.transform, fit.score, fit.paths):
        with pytest.raises(ValueError, match=r"cell with 3\.0"):
            call([np.array([[0.0, 1.0, 3.0]])])


@pytest.fixture(scope="module")
def full() -> Any:
    return lv.fit(BAD["full"][0], NUMBERS, size=2)


@pytest.mark.thorough
def test_the_message_counts_rows_as_the_data_do(full: Any) -> None:
    """Many rows are cut into batches, in which a row has another number than in the data."""
    values = np.zeros((5000, 2))
    values[4321, 1] = np.nan
    with pytest.raises(ValueError, match="the first is row 4321"):
        full.transform(bad_points(values))


@pytest.mark.thorough
def test_rows_without_an_observed_cell_have_a_description(full: Any) -> None:
    np.testing.assert_allclose(full.transform(bad_points([[np.nan] * 2, [2.0, 2.0]]))[0], full.weights(), atol=1e-12)
