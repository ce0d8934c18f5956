"""Images whose regions are of any kind of component: exact with one factor, found with several, and stored."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import log_dirichlet_multinomial
from tiers import in_tiers

import lvsearch as lv
from lvsearch.models import (
    GMLDA,
    CorrLDA,
    GMMixture,
    LevelComponents,
    MultinomialComponents,
    NegativeBinomialComponents,
    PoissonComponents,
    Row,
)
from lvsearch.models.components.component import (
    Component,
    draw_parameters,
    log_likelihood,
    log_likelihoods,
    log_predictive,
)

CAPTIONS = np.array([[2, 0, 1], [0, 1, 0], [1, 1, 0]])
ETA = 0.4


def one_by_one(component: Component) -> Callable[[np.ndarray], float]:
    """log p(rows) as the product of each row's density given those before it."""

    def log_marginal(rows: np.ndarray) -> float:
        natural, total = jax.tree.map(lambda leaf: leaf[None], component.prior(rows.shape[1])), 0.0
        for row in rows:
            unit = Row(jnp.asarray(row), jnp.ones(len(row), bool))
            log_p, natural = after(component, natural, unit)
            total += float(log_p[0])
        return total

    return log_marginal


@jax.jit
def after(component: Component, natural: Any, unit: Row) -> tuple[jax.Array, Any]:
    """(log p(row), what is believed once it is seen)."""
    added = component.increment(component.coordinates(unit), unit.observed)
    return log_predictive(component, natural, unit), jax.tree.map(jnp.add, natural, added)


COUNTS = mixture_cases.COUNTS
OTHERS: tuple[tuple[str, Component, np.ndarray], ...] = (
    ("levels", LevelComponents((0, 1, 2, 3, 4, 5), 0.6), COUNTS),
    ("Poisson", PoissonComponents(1.4, 0.6), COUNTS),
    ("negative binomial", NegativeBinomialComponents(2.5, 1.4, 0.6), COUNTS),
)
KINDS = [(kind.name, kind.component, kind.rows, kind.log_marginal) for kind in mixture_cases.CASES]
KINDS += [(name, component, rows, one_by_one(component)) for name, component, rows in OTHERS]


ONE_FACTOR = [(GMMixture, *kind) for kind in KINDS] + [(model, *KINDS[1]) for model in (GMLDA, CorrLDA)]
ONE_FACTOR += [(CorrLDA, *next(kind for kind in KINDS if kind[0] == "Bernoulli"))]
QUICK = {"CorrLDA-Bernoulli"}
"""The case of the fast tier: cells, which compile fast, in a model with words of regions. Mixtures of every kind have
tests of their own there."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "name", "component", "rows", "log_marginal"),
    [
        pytest.param(*case, id=name, marks=[] if name in QUICK else pytest.mark.slow)
        for case, name in ((case, f"{case[0].__name__}-{case[1]}") for case in ONE_FACTOR)
    ],
)
def test_one_factor_is_exact(model, name, component, rows, log_marginal):
    """Where there is nothing to choose, the bound is the evidence: conjugate in regions and words."""
    whole = rows[~np.isnan(rows).any(1)]
    images = lv.PairedCorpus.from_arrays([whole[:2], whole[2:3], whole[3:]], CAPTIONS)
    # features are fitted in float32, hence the tolerance
    fit = lv.fit(model(1.3, MultinomialComponents(ETA), component), images, size=1)
    words = log_dirichlet_multinomial(CAPTIONS.sum(0), np.full(3, ETA))
    assert fit.estimate.log_lower == pytest.approx(log_marginal(whole) + words, abs=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "component", "rows", "log_marginal"),
    in_tiers(KINDS, lambda kind: kind[0] in ("known covariance", "levels"), lambda kind: kind[0]),
)
def test_rows_together_are_rows_one_by_one(name, component, rows, log_marginal, float64):
    partial = not any(row.any() and not row.all() for row in np.isnan(rows)) or component.cellwise
    rows = rows if partial else rows[~np.isnan(rows).any(1)]
    units = Row(jnp.asarray(np.where(np.isnan(rows), 7.0, rows)), jnp.asarray(~np.isnan(rows)))

    @jax.jit
    def both(component: Component, key: jax.Array, units: Row) -> tuple[jax.Array, jax.Array]:
        statistics = draw_parameters(component, key, 4, rows.shape[1])
        each = jax.vmap(lambda unit: log_likelihood(component, statistics, unit))(units)
        return log_likelihoods(component, statistics, units), each

    together, each = both(component, jax.random.key(1), units)
    assert_allclose(together, each, rtol=1e-12)


@pytest.mark.parametrize(
    "kind", ["levels", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("full covariance", "Poisson"))]
)
def test_the_contract_holds(kind):
    component, rows = next((component, rows) for name, component, rows, _ in KINDS if name == kind)
    images = lv.PairedCorpus.from_arrays([rows[:2], rows[2:3], rows[3:]], CAPTIONS)
    report = lv.models.check(GMLDA(1.3, MultinomialComponents(ETA), component), images)
    assert [name for name, _ in report.findings][:3] == ["declared", "multilinear", "empty places"]


def counted_images(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Forty images of three rows of counts, each from one of three kinds of rows that say one word each."""
    means = np.array([[9.0, 1, 1, 3], [1, 9, 1, 3], [1, 1, 9, 3]])
    kinds = rng.integers(3, size=(40, 3))
    captions = np.array([np.bincount(row, minlength=3) for row in kinds])
    return list(rng.poisson(means[kinds])), captions, kinds


@pytest.mark.slow  # as those of test_annotation.py
@pytest.mark.parametrize("component", [PoissonComponents(1.0, 0.3), MultinomialComponents(0.5)])
def test_regions_of_counts_are_found(component):
    regions, captions, kinds = counted_images(np.random.default_rng(2))
    images = lv.PairedCorpus.from_arrays(regions, captions, ["red", "green", "blue"])
    fit = lv.fit(CorrLDA(1.0, MultinomialComponents(0.1), component), images, size=3)
    words = fit.label_regions(images, 1)["words"].to_numpy().reshape(kinds.shape)
    assert (words == np.array(["red", "green", "blue"])[kinds]).mean() > 0.9


def test_regions_of_another_kind_are_refused():
    weak = lv.models.DiagonalComponents.weak(np.random.default_rng(0).normal(size=(5, 2)))
    with pytest.raises(ValueError, match="got regions whose pseudo_count and rate have priors"):
        CorrLDA(regions=weak)
