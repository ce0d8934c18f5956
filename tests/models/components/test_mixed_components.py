"""Columns of several kinds: the parts' oracles multiplied, all that mixtures do with them, what is refused."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import pandas as pd
import partition_oracles as exact
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score

import lvsearch as lv
from lvsearch.models import (
    CategoricalComponents,
    DiagonalComponents,
    DPMixture,
    FiniteMixture,
    LevelComponents,
    MixedComponents,
    PoissonComponents,
    Row,
)
from lvsearch.models.components import log_predictive
from lvsearch.models.components.component import draw_parameters, log_likelihood, log_likelihoods
from lvsearch.models.hyperpriors import GammaPrior

ROWS = np.column_stack([cases.BITS[:5, 0], cases.VALUES[:5, 0], cases.BITS[:5, 1:], cases.VALUES[:5, 1]])
"""A yes-or-no column, a number, two more of the first kind, and one more number."""
COLUMNS = ((1, 4), (0, 2, 3))
COMPONENT = MixedComponents([cases.FULL.component, cases.BERNOULLI.component], COLUMNS)


def log_marginal(rows: np.ndarray) -> float:
    return cases.FULL.log_marginal(rows[:, COLUMNS[0]]) + cases.BERNOULLI.log_marginal(rows[:, COLUMNS[1]])


def log_evidence(size: int) -> float:
    return exact.log_evidence(ROWS, log_marginal, partial(exact.log_finite_prior, n_components=size, concentration=0.8))


@pytest.mark.thorough
def test_rows_have_the_product_of_the_parts(float64):
    @jax.jit
    def step(natural, row):
        """The row's probability after those before it, and what it adds to them."""
        unit = Row(row, jnp.ones(5, bool))
        added = COMPONENT.increment(COMPONENT.coordinates(unit), unit.observed)
        return log_predictive(COMPONENT, natural, unit)[0], jax.tree.map(jnp.add, natural, added)

    natural = jax.tree.map(lambda leaf: leaf[None], COMPONENT.prior(5))
    total = 0.0
    for row in ROWS:
        log_p, natural = step(natural, jnp.asarray(row))
        total += float(log_p)
    assert total == pytest.approx(log_marginal(ROWS), abs=1e-9)


@pytest.mark.slow
def test_a_search_has_the_enumerated_posterior():
    result = lv.search(FiniteMixture(COMPONENT, 0.8), ROWS, prior=lv.sizes.Uniform(3), max_size=3, progress=False)
    wanted = np.array([log_evidence(size) for size in (1, 2, 3)])
    found = result.posterior()
    assert_allclose(found["log_evidence"], wanted, atol=0.1)
    assert_allclose(found["probability"], np.exp(wanted - logsumexp(wanted)), atol=0.03)
    for size, evidence in zip((1, 2, 3), wanted.tolist(), strict=True):
        assert lv.fit(FiniteMixture(COMPONENT, 0.8), ROWS, size=size).estimate.log_lower <= evidence + 1e-6
    assert result.fit(1).estimate.log_lower == pytest.approx(wanted[0], abs=1e-6)  # nothing to choose


@pytest.mark.slow  # the fast tier has the contract of every kind of part, and here their product
def test_the_contract_holds():
    assert lv.models.check(FiniteMixture(COMPONENT), lv.Points.from_array(ROWS)).model == "FiniteMixture"


@pytest.mark.thorough
def test_moments_are_those_of_draws(float64):
    @jax.jit
    def found(key: Any) -> Any:
        """Draws of one component and its moments; the densities of a row among others and by itself."""
        statistics = draw_parameters(COMPONENT, key, 2, 5)
        one = jax.tree.map(lambda leaf: leaf[1], statistics)
        rows, unit = Row(jnp.asarray(ROWS), jnp.ones((5, 5), bool)), Row(jnp.asarray(ROWS[0]), jnp.ones(5, bool))
        draw = jax.vmap(lambda each: COMPONENT.draw(each, one, unit))
        together, alone = log_likelihoods(COMPONENT, statistics, rows), log_likelihood(COMPONENT, statistics, unit)
        return draw(jax.random.split(jax.random.fold_in(key, 1), 20_000)), COMPONENT.moments(one), together[0], alone

    drawn, (mean, covariance), together, alone = jax.tree.map(np.asarray, found(jax.random.key(0)))
    spread = np.sqrt(np.diag(covariance))
    assert_allclose(np.mean(drawn, 0), mean, atol=5 * spread.max() / np.sqrt(20_000))
    assert_allclose(np.cov(np.asarray(drawn).T), covariance, atol=0.1 * spread.max() ** 2)
    assert covariance[1, 4] != 0
    assert_array_equal(covariance[np.ix_([1, 4], [0, 2, 3])], 0)
    assert_allclose(together, alone, rtol=1e-12)


def planted(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Sixty people of three kinds: two measurements, a count and a word."""
    kind = np.repeat([0, 1, 2], [25, 20, 15])
    measured = np.array([[0, 0], [3, 0], [0, 3.0]])[kind] + 0.6 * rng.standard_normal((60, 2))
    frame = pd.DataFrame(measured, columns=["height", "weight"])
    frame["visits"] = rng.poisson(np.array([2, 9, 20])[kind])
    words = np.array(["red", "green", "blue"])
    frame["colour"] = [rng.choice(words, p=np.where(words == words[k], 0.8, 0.1)) for k in kind]
    return frame, kind


@pytest.mark.thorough
def test_clusters_of_a_mixed_table_are_found_kept_and_read(tmp_path):
    frame, kind = planted(np.random.default_rng(0))
    frame.loc[3, "height"] = np.nan
    frame.loc[7, "colour"] = None
    points = lv.Points.from_categories(frame, numbers=["height", "weight", "visits"], missing="nan")
    assert points.columns == ("height", "weight", "visits", "colour=blue", "colour=green", "colour=red")
    parts = [
        (DiagonalComponents.scaled_to(points.values[:, :2]), ["height", "weight"]),
        (PoissonComponents(1.0, 0.1), ["visits"]),
        (CategoricalComponents([3]), ["colour"]),
    ]
    component = MixedComponents.from_columns(points, parts)
    assert component.columns == ((0, 1), (2,), (3, 4, 5))
    fit = lv.fit(FiniteMixture(component), points, size=3)
    assert adjusted_rand_score(kind, fit.labels()) > 0.9
    fit.save(tmp_path / "fit")
    again = lv.load_fit(tmp_path / "fit")
    assert again.model.components.columns == component.columns
    assert_array_equal(again.transform(points), fit.transform(points))


@pytest.mark.slow  # chains take a component by its marginals, which have their exact numbers above
def test_occupied_clusters_of_a_mixed_table():
    frame, _ = planted(np.random.default_rng(0))
    points = lv.Points.from_categories(frame, numbers=["height", "weight", "visits"])
    component = MixedComponents.scaled_to(points.values, points.columns)
    process = lv.occupied(DPMixture(component), points, draws=200, chains=2, progress=False)
    assert process.posterior()["probability"].sum() == pytest.approx(1, abs=1e-6)


def test_numbers_and_categories_by_default():
    frame, _ = planted(np.random.default_rng(1))
    points = lv.Points.from_categories(frame, numbers=["height", "weight", "visits"])
    assert MixedComponents.scaled_to(points.values, points.columns).columns == ((0, 1, 2), (3, 4, 5))


@pytest.mark.slow  # a fit of parts that are given is in a shorter tier
def test_clusters_are_found_by_default_components():
    frame, kind = planted(np.random.default_rng(1))
    points = lv.Points.from_categories(frame, numbers=["height", "weight", "visits"])
    component = MixedComponents.scaled_to(points.values, points.columns)
    assert adjusted_rand_score(kind, lv.fit(FiniteMixture(component), points, size=3).labels()) > 0.9


def test_what_cannot_be_mixed_is_refused():
    poisson, bits = PoissonComponents(), cases.BERNOULLI.component
    for columns in ([[0], [0]], [[0], [2]], [[0]], [[], []]):
        with pytest.raises(ValueError, match="every column from 0 on in one of them"):
            MixedComponents([poisson, bits], columns)
    with pytest.raises(ValueError, match="got a part with levels"):
        MixedComponents([LevelComponents((1, 2))], [[0]])
    with pytest.raises(ValueError, match="some are estimated"):
        MixedComponents([poisson, CategoricalComponents([2], estimated=True)], [[0], [1, 2]])
    with pytest.raises(ValueError, match="got parts whose pseudo_count have priors"):
        MixedComponents([DiagonalComponents(pseudo_count=GammaPrior(1.0, 1.0))], [[0]])
    with pytest.raises(ValueError, match="got the column 'size', expected one of 'visits', 'colour=red'"):
        MixedComponents.from_columns(["visits", "colour=red"], [(poisson, ["size"])])
    with pytest.raises(ValueError, match=r"got a cell with -1\.0 for PoissonComponents"):
        lv.fit(FiniteMixture(MixedComponents([poisson, bits], [[0], [1]])), np.array([[-1.0, 0], [1, 1]]), size=1)
    with pytest.raises(ValueError, match="got rows of 3 columns for parts of 2"):
        lv.fit(FiniteMixture(MixedComponents([poisson, bits], [[0], [1]])), np.ones((2, 3)), size=1)
    with pytest.raises(ValueError, match="expected both"):
        MixedComponents.scaled_to(np.ones((3, 2)), ["a", "b"])


def test_columns_that_are_no_numbers_are_named():
    frame, _ = planted(np.random.default_rng(0))
    with pytest.raises(ValueError, match="there is no 'age'"):
        lv.Points.from_categories(frame, numbers=["age"])
    with pytest.raises(ValueError, match="got the column 'colour' among the numbers"):
        lv.Points.from_categories(frame, numbers=["colour"])
    frame.loc[0, "height"] = np.nan
    with pytest.raises(ValueError, match="got 1 empty cells in the column 'height'"):
        lv.Points.from_categories(frame, numbers=["height"])


PLUG_IN = FiniteMixture(
    MixedComponents([DiagonalComponents(variance_floor=0.01), CategoricalComponents([2])], [[0], [1, 2]])
)


def test_the_plug_in_form_is_that_of_the_parts():
    with pytest.raises(ValueError, match="no plug-in form"):
        COMPONENT.plug_in()
    assert PLUG_IN.plug_in().components.estimated


@pytest.mark.slow
def test_a_plug_in_fit_of_one_component_is_the_best_of_every_part():
    rows = np.column_stack([ROWS[:, 1], ROWS[:, 0], 1 - ROWS[:, 0]])
    fit = lv.fit(PLUG_IN, rows, size=1, evidence="plug-in")
    share, variance = ROWS[:, 0].mean(), ROWS[:, 1].var()
    best = 5 * (share * np.log(share) + (1 - share) * np.log(1 - share)) - 2.5 * (1 + np.log(2 * np.pi * variance))
    assert fit.estimate.log_lower == pytest.approx(best, abs=1e-4)
