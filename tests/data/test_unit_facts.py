"""A card says so where the prior of a mixture expects cells in another unit than the data have."""

import numpy as np
import pytest

import lvsearch as lv
from lvsearch.data.kinds import unit_facts
from lvsearch.models.components.component import Component

kinds = lv.models
ROWS = np.random.default_rng(0).normal(0.0, 1.0, (50, 2))


def said_of(component: Component, values: np.ndarray) -> str:
    """Return what is said of a mixture of these components on these rows; empty if nothing is."""
    points = lv.Points.from_array(values, columns=["height", "width"], missing="nan")
    return " ".join(fact.text for fact in unit_facts(kinds.FiniteMixture(component), points))


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", [kinds.DiagonalComponents, kinds.FullCovarianceComponents])
def test_components_made_from_the_data_fit_any_unit(kind, unit, shift):
    values = unit * (ROWS + shift * (unit > 1e-3))
    for component in (kind.weak(values), kind.scaled_to(values)):
        assert not said_of(component, values)


@pytest.mark.parametrize(
    "component",
    [
        kinds.DiagonalComponents(),
        kinds.FullCovarianceComponents(),
        kinds.KnownCovarianceComponents(np.eye(2), pseudo_count=0.5),
        kinds.StudentComponents(kinds.DiagonalComponents()),
        kinds.MixedComponents([kinds.DiagonalComponents(), kinds.DiagonalComponents()], [[0], [1]]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_other_units_are_named_with_their_column(component):
    assert not said_of(component, ROWS)
    far = said_of(component, ROWS * [1.0, 100.0])
    assert "column width" in far
    assert "from 0" in far
    assert "DiagonalComponents.weak(points.values)" in far
    assert "column height" in said_of(component, ROWS * [0.01, 1.0])
    assert "column height" in said_of(component, ROWS + np.array([40.0, 0.0]))


def test_missing_cells_do_not_count():
    values = ROWS.copy()
    values[25:, 1] = np.nan
    assert not said_of(kinds.DiagonalComponents(), values)


def test_nothing_is_said_of_models_without_a_unit():
    assert not said_of(kinds.BernoulliComponents(), (ROWS > 0).astype(float))
    corpus = lv.Corpus.from_matrix(np.ones((2, 3), int))
    assert unit_facts(kinds.LDA(), corpus) == ()


@pytest.mark.thorough
def test_cards_of_fits_and_searches_say_it():
    values = 50 * np.repeat([[-1.0, 0.0], [1.0, 0.0]], 6, axis=0) + ROWS[:12]
    fit = lv.fit(kinds.FiniteMixture(), values, size=2)
    assert "unit:        the prior expects the cells of column" in str(fit)
    result = lv.search(kinds.FiniteMixture(), values, max_size=2, evidence="bound", starts=1, progress=False)
    assert "unit:        the prior expects the cells of column" in str(result)
    fitting = kinds.FiniteMixture(kinds.DiagonalComponents.weak(values))
    assert "  unit:" not in str(lv.fit(fitting, values, size=2))
