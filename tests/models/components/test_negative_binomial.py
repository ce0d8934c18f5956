"""Counts that vary more than a Poisson's: against quadrature, against all labellings, and against what they are for."""

import jax
import jax.numpy as jnp
import numpy as np
import partition_oracles as exact
import pytest
from scipy.integrate import quad
from scipy.stats import beta, gamma, nbinom, poisson

import lvsearch as lv
from lvsearch.models import FiniteMixture, Row
from lvsearch.models.components import NegativeBinomialComponents, PoissonComponents, log_normalisers, log_predictive

R, SHAPE, RATE = np.array([1.5, 4.0]), 1.3, 0.6
ROWS = np.array([[7, 0], [3, 1], [0, 9], [1, np.nan], [12, 2.0]])
COMPONENT = NegativeBinomialComponents(R, SHAPE, RATE)


def by_quadrature(rows: np.ndarray) -> float:
    """log p(rows of one component), nats: each column's probability v integrated over its Beta."""
    total = 0.0
    for column, r in zip(rows.T, R, strict=True):
        seen = column[~np.isnan(column)]

        def density(v: float, seen=seen, r=r) -> float:
            return float(nbinom.pmf(seen, r, 1 - v).prod() * beta.pdf(v, SHAPE, RATE * r))

        total += np.log(quad(density, 0, 1, epsabs=0, epsrel=1e-10, limit=400)[0])
    return total


def as_units(rows: np.ndarray) -> Row:
    return Row(np.nan_to_num(rows), ~np.isnan(rows))


def log_marginal(rows: np.ndarray, component) -> float:
    """As the components say it: A(τ) − A(λ) + log h."""
    units = as_units(rows)
    prior = component.prior(rows.shape[1])
    each = jax.vmap(component.increment)(jnp.asarray(units.value), jnp.asarray(units.observed))
    after = jax.tree.map(lambda leaf, more: (leaf + more.sum(0))[None], prior, each)
    before = jax.tree.map(lambda leaf: leaf[None], prior)
    carrier = jax.vmap(component.log_carrier)(jnp.asarray(units.value), jnp.asarray(units.observed)).sum()
    return float((log_normalisers(component, after) - log_normalisers(component, before))[0] + carrier)


@pytest.mark.thorough
@pytest.mark.usefixtures("float64")
def test_the_marginal_is_that_of_quadrature():
    assert log_marginal(ROWS, COMPONENT) == pytest.approx(by_quadrature(ROWS), abs=1e-7)
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], COMPONENT.prior(2))
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), as_units(ROWS))
    assert float(log_predictive(COMPONENT, prior, one)[0]) == pytest.approx(by_quadrature(ROWS[:1]), abs=1e-7)


@pytest.mark.usefixtures("float64")
def test_without_more_variance_it_is_the_poisson():
    wide = NegativeBinomialComponents(1e8, SHAPE, RATE)
    assert log_marginal(ROWS, wide) == pytest.approx(log_marginal(ROWS, PoissonComponents(SHAPE, RATE)), abs=1e-5)
    assert abs(log_marginal(ROWS, COMPONENT) - log_marginal(ROWS, PoissonComponents(SHAPE, RATE))) > 1


@pytest.mark.slow  # the marginal of a group is in a shorter tier, and mixtures of other counts
def test_bound_and_annealed_evidence_against_all_partitions():
    points, model = lv.Points.from_array(ROWS, missing="nan"), FiniteMixture(COMPONENT, 0.8)
    result = lv.search(model, points, max_size=2, evidence="annealed", seed=0, progress=False)
    found = result.posterior().set_index("size")
    for size in (1, 2):
        truth = exact.log_evidence(ROWS, by_quadrature, lambda labels, k=size: exact.log_finite_prior(labels, k, 0.8))
        assert result.fit(size).estimate.log_lower <= truth + 1e-5
        row = found.loc[size]
        assert abs(row["log_evidence"] - truth) <= 4 * row["standard_error"] + 0.01


@pytest.mark.thorough
@pytest.mark.usefixtures("float64")
def test_draws_have_the_moments_that_are_said():
    statistics = COMPONENT.family.point(COMPONENT.family.statistics_type(jnp.array([2.0, 3.0]), jnp.array([1.5, 2.5])))
    unit = Row(np.zeros(2), np.ones(2, bool))
    keys = jax.random.split(jax.random.key(0), 40_000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: COMPONENT.draw(key, statistics, unit)))(keys))
    mean, covariance = map(np.asarray, COMPONENT.moments(statistics))
    v = np.exp(np.asarray(statistics.log_value))
    assert mean == pytest.approx(nbinom.mean(R, 1 - v))
    assert np.diag(covariance) == pytest.approx(nbinom.var(R, 1 - v))
    error = np.sqrt(np.diag(covariance) / len(drawn))
    assert np.all(np.abs(drawn.mean(0) - mean) < 4.5 * error)
    for column in range(2):
        seen = np.bincount(drawn[:, column].astype(int), minlength=4)[:4] / len(drawn)
        expected = nbinom.pmf(np.arange(4), R[column], 1 - v[column])
        assert np.all(np.abs(seen - expected) < 4.5 * np.sqrt(expected / len(drawn)))


@pytest.mark.usefixtures("float64")
def test_no_row_is_above_its_ceiling():
    units, ceiling = as_units(ROWS), COMPONENT.log_ceiling(as_units(ROWS))
    for v in np.linspace(0.01, 0.99, 99):
        each = np.where(units.observed, nbinom.logpmf(units.value, R, 1 - v), 0.0)
        assert np.all(each.sum(1) <= ceiling + 1e-9)
    best = units.value / (units.value + R)
    assert np.where(units.observed, nbinom.logpmf(units.value, R, 1 - best), 0.0).sum(1) == pytest.approx(ceiling)


def test_what_is_no_count_is_refused():
    model = FiniteMixture(COMPONENT)
    with pytest.raises(ValueError, match=r"got a cell with 0\.5 for NegativeBinomialComponents, expected whole"):
        lv.fit(model, np.array([[1.0, 0.5], [2.0, 3.0]]), size=1)
    with pytest.raises(ValueError, match="got 2 concentrations for 3 columns"):
        lv.fit(model, np.ones((4, 3)), size=1)
    with pytest.raises(ValueError, match="concentration"):
        NegativeBinomialComponents(0.0)


@pytest.mark.slow
def test_clusters_of_overdispersed_counts_are_not_split():
    """What it is for: three clusters whose counts vary twice as much as Poisson's. A Poisson mixture asks for more."""
    rng = np.random.default_rng(0)
    means = np.array([[30, 5, 5, 12], [5, 30, 12, 5], [12, 5, 30, 30.0]])[np.repeat([0, 1, 2], 40)]
    rows = poisson.rvs(gamma.rvs(6.0, scale=means / 6.0, random_state=rng), random_state=rng)
    sizes = {
        name: lv.search(FiniteMixture(component), rows, max_size=8, seed=0, progress=False).best_size[0]
        for name, component in (
            ("poisson", PoissonComponents(1.0, 0.1)),
            ("overdispersed", NegativeBinomialComponents(6.0, 1.0, 0.1)),
        )
    }
    assert sizes["overdispersed"] == 3 < sizes["poisson"]
