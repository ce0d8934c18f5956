"""Rows with missing cells under full and tied covariances: against densities of SciPy, enumeration and quadrature."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import partition_oracles as exact
import pytest
from partition_chains import run, z_scores_of_pairs
from scipy.special import logsumexp, multigammaln
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.metrics import adjusted_rand_score

import lvsearch as lv
from lvsearch.fitted.clusters import FittedMixture
from lvsearch.inference.allocation_chains import supported_sizes
from lvsearch.inference.engine.estimate import beliefs_at, capacity_of
from lvsearch.inference.engine.meanfield import MeanField, ascend, cast
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.models.components import FullCovarianceComponents
from lvsearch.models.units import Row

GIVEN = cases.LOCATION, cases.SCALE, 0.3, 2.5, 0.7
KIND = FullCovarianceComponents(*GIVEN, partial_rows=True)
HOLED = np.where(
    [[False, True], [False, False], [True, False], [False, False], [False, False]], np.nan, cases.VALUES[:5]
)
SIZES = 8


def log_size_prior() -> np.ndarray:
    return supported_sizes(lambda size: lv.sizes.Geometric(0.25).log_pmf((size,)), SIZES)


# ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def parameters(float64):
    """Natural parameters of two components: the prior, and that with five rows."""
    prior = KIND.prior(2)
    natural = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), prior)
    for row in jnp.asarray(cases.VALUES[:5]):
        more = KIND.increment(row, jnp.ones(2, bool))
        natural = jax.tree.map(lambda all_, one: all_.at[1].add(one), natural, more)
    return natural


@pytest.mark.parametrize("seen", [(True, True), (True, False), (False, True)], ids=["whole", "first", "second"])
def test_densities_are_marginals(parameters, seen):
    """Of a Gaussian at given parameters, and of Student's t with these integrated out."""
    seen, x = np.array(seen), np.array([1.3, -0.9])
    unit, y = Row(jnp.asarray(np.where(seen, x, 99.0)), jnp.asarray(seen)), (x - cases.LOCATION) / cases.SCALE
    jacobian = np.log(cases.SCALE[seen]).sum()
    statistics = KIND.family.point(parameters)
    means, precisions = map(np.asarray, KIND.family.value(statistics))
    for k in range(2):
        covariance = np.linalg.inv(precisions[k])[np.ix_(seen, seen)]
        expected = multivariate_normal(means[k][seen], covariance).logpdf(y[seen]) - jacobian
        assert float(KIND.log_densities(statistics, unit)[k]) == pytest.approx(expected, abs=1e-9)
        count, degrees = float(parameters.negative_half_square[k]), float(parameters.half_log_determinant[k]) + 2
        centre = np.asarray(parameters.precision_mean[k]) / count
        scale = np.asarray(parameters.negative_half_precision[k]) - count * np.outer(centre, centre)
        shape = scale * (count + 1) / (count * (degrees - 1))
        t = multivariate_t(centre[seen], shape[np.ix_(seen, seen)], df=degrees - 1)
        expected = t.logpdf(y[seen]) - jacobian
        assert float(KIND.log_predictives(parameters, unit)[k]) == pytest.approx(expected, abs=1e-9)


def test_a_row_without_cells_says_nothing(parameters):
    unit = Row(jnp.zeros(2), jnp.zeros(2, bool))
    np.testing.assert_allclose(KIND.log_predictives(parameters, unit), 0.0, atol=1e-12)
    np.testing.assert_allclose(KIND.log_densities(KIND.family.point(parameters), unit), 0.0, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("mixture", [lv.models.FiniteMixture, lv.models.TiedMixture])
def test_the_contract_is_kept(mixture):
    points = lv.Points.from_array(cases.HOLED, missing="nan")
    report = lv.models.check(mixture(FullCovarianceComponents.weak(points)), points)
    assert "cells (component, dim, dim)" in str(report)


@pytest.mark.thorough
@pytest.mark.parametrize("mixture", [lv.models.FiniteMixture, lv.models.TiedMixture])
def test_ascent_is_that_of_the_generic_engine(mixture, float64):
    """The fit's bound, and where it ends: the generic engine finds nothing to change."""
    points = lv.Points.from_array(np.concatenate([cases.HOLED, [[np.nan, np.nan]]]), missing="nan")
    model, size = mixture(KIND, 1.3), (2,)
    data = points.dataset()
    found = lv.fit(model, points, size=2, seed=0).estimate
    capacity = capacity_of(size)
    begin = beliefs_at(model, found.natural, size, capacity, np.float64)
    blank = tuple(blank_locals(model, batch, size, capacity=capacity) for batch in cast(data, np.float64).batches)
    settled = ascend(model, data, MeanField(begin, blank, (), False), size, capacity=capacity, sweeps=3, tolerance=0.0)
    assert settled.trace[0] == pytest.approx(found.log_lower, abs=1e-6)
    assert settled.trace[-1] == pytest.approx(found.log_lower, abs=1e-3)


@pytest.mark.thorough
def test_rows_without_gaps_are_fitted_as_ever():
    whole = lv.Points.from_array(cases.VALUES)
    plain, partial = (
        lv.fit(lv.models.FiniteMixture(replace(KIND, partial_rows=flag)), whole, size=2, seed=0).estimate
        for flag in (False, True)
    )
    assert partial.log_lower == pytest.approx(plain.log_lower, abs=1e-6)


# ── against enumeration ─────────────────────────────────────────────────────────────────────────────────────────────


def log_rows_given(y: np.ndarray, labels: np.ndarray, *, tied: bool) -> np.ndarray:
    """log p(rows | partition), parameters integrated out, of many tables y at once, (table, row, column); nats.

    Murphy (2007), Eq. 234; with one covariance the scatter matrices of all parts are added up.
    """
    _, _, kappa, excess, spread = GIVEN
    n_tables, n_rows, n_dims = y.shape
    degrees, total, parts = excess + n_dims - 1, np.zeros(n_tables), range(labels.max() + 1)

    def wishart(scatter: np.ndarray, n: int) -> np.ndarray:
        log_gammas = multigammaln((degrees + n) / 2, n_dims) - multigammaln(degrees / 2, n_dims)
        log_before = n_dims * np.log(spread)
        log_after = np.linalg.slogdet(spread * np.eye(n_dims) + scatter)[1]
        constant = log_gammas - 0.5 * n * n_dims * np.log(np.pi) + 0.5 * degrees * log_before
        return constant - 0.5 * (degrees + n) * log_after

    pooled = np.zeros((n_tables, n_dims, n_dims))
    for part in parts:
        own = y[:, labels == part]
        n, sums = own.shape[1], own.sum(1)
        scatter = np.einsum("tni,tnj->tij", own, own) - np.einsum("ti,tj->tij", sums, sums) / (kappa + n)
        total += 0.5 * n_dims * (np.log(kappa) - np.log(kappa + n))
        pooled += scatter
        total += 0.0 if tied else wishart(scatter, n)
    return total + (wishart(pooled, n_rows) if tied else 0.0)


@cache
def grid() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and log weights of the trapezium rule in u, for a cell sinh u: Student's t has heavy tails."""
    u = np.linspace(-9, 9, 241)
    return np.sinh(u), np.log(np.cosh(u)) + np.log(u[1] - u[0])


def log_observed(labels: tuple[int, ...], *, tied: bool) -> float:
    """log p(observed cells | partition) of `HOLED`: its two missing cells by quadrature. Densities of coordinates."""
    y = (HOLED - cases.LOCATION) / cases.SCALE
    nodes, log_weights = grid()
    tables = np.broadcast_to(y, (len(nodes), len(nodes), *y.shape)).copy()
    (first, second), (rows, columns) = np.meshgrid(nodes, nodes, indexing="ij"), np.nonzero(np.isnan(y))
    tables[..., rows[0], columns[0]], tables[..., rows[1], columns[1]] = first, second
    each = log_rows_given(tables.reshape(-1, *y.shape), np.array(labels), tied=tied)
    return float(logsumexp(each + np.add.outer(log_weights, log_weights).ravel()))


def enumerated(log_rows: Callable[[tuple[int, ...]], float]) -> tuple[np.ndarray, np.ndarray]:
    """(p(K | observed cells) of K = 1 … SIZES, p(two rows are together | observed cells))."""
    partitions, prior = list(exact.partitions(len(HOLED))), log_size_prior()
    joint = np.array(
        [
            [prior[size - 1] + exact.log_finite_prior(labels, size, 1.3) + log_rows(labels) for labels in partitions]
            for size in range(1, SIZES + 1)
        ]
    )
    probability = np.exp(joint - logsumexp(joint))
    labels = np.array(partitions)
    return probability.sum(1), np.tensordot(probability.sum(0), labels[:, :, None] == labels[:, None], 1)


@pytest.mark.thorough
@pytest.mark.parametrize("tied", [False, True], ids=["full", "tied"])
def test_chains_agree_with_enumeration(tied):
    @cache
    def log_rows(labels: tuple[int, ...]) -> float:
        return log_observed(labels, tied=tied)

    of_sizes, together = enumerated(log_rows)
    model = (lv.models.TiedMixture if tied else lv.models.FiniteMixture)(KIND, 1.3)
    trace = run(model, HOLED, log_size_prior(), sweeps=1600)
    probability, error = trace.sizes()
    assert error.max() < 0.01
    assert np.abs((probability[:SIZES] - of_sizes) / error[:SIZES])[of_sizes > 0.01].max() < 4
    assert np.abs(z_scores_of_pairs(trace, together)).max() < 4.5
    # what a chain would say that leaves out the rows' missing cells, or fills them with the mean, is another table
    filled = np.where(np.isnan(HOLED), cases.LOCATION, HOLED)
    y = ((filled - cases.LOCATION) / cases.SCALE)[None]
    wrong = enumerated(lambda labels: float(log_rows_given(y, np.array(labels), tied=tied)[0]))[1]
    assert np.abs(z_scores_of_pairs(trace, wrong)).max() > 8


# ── as people use it ────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def planted() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows without gaps, rows with gaps, clusters): three tilted clusters; a seventh of the cells is missing."""
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], 50)
    tilt = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    whole = np.array([[0, 0, 0], [8, 8, 0], [8, 0, 8.0]])[labels] + rng.multivariate_normal(np.zeros(3), tilt, 150)
    return whole, np.where(rng.random(whole.shape) < 1 / 7, np.nan, whole), labels


@cache
def fitted() -> FittedMixture:
    points = lv.Points.from_array(planted()[1], missing="nan")
    found = lv.fit(lv.models.FiniteMixture(FullCovarianceComponents.weak(points)), points, size=3, seed=0)
    assert isinstance(found, FittedMixture)
    return found


@pytest.mark.thorough
def test_planted_clusters_are_found_and_cells_filled_in():
    whole, holed, labels = planted()
    assert adjusted_rand_score(labels, fitted().labels()) > 0.95
    filled, missing = fitted().fill_missing().to_numpy(), np.isnan(holed)
    np.testing.assert_array_equal(filled[~missing], holed[~missing])
    # cells of the tilted columns lie nearer than a column's spread within its cluster, which the mean alone would give
    tilted = missing & (np.isnan(holed).sum(1) == 1)[:, None] & (np.arange(3) < 2)
    assert np.sqrt(np.mean((filled - whole)[tilted] ** 2)) < 0.65
    covariance = fitted().covariances()[0].to_numpy()
    assert covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]) == pytest.approx(0.9, abs=0.08)


@pytest.mark.thorough
def test_a_cell_is_filled_in_by_regression():
    """One component: the formula of a Gaussian's conditional mean, with NumPy."""
    rows = np.random.default_rng(0).multivariate_normal([0.0, 5.0], [[1.0, 0.8], [0.8, 1.0]], 30)
    rows[3, 1] = rows[7] = np.nan
    points = lv.Points.from_array(rows, missing="nan")
    fit = lv.fit(lv.models.FiniteMixture(FullCovarianceComponents.weak(points)), points, size=1, seed=0)
    mean, covariance = fit.means().to_numpy()[0], fit.covariances()[0].to_numpy()
    filled = fit.fill_missing().to_numpy()
    assert filled[3, 1] == pytest.approx(mean[1] + covariance[1, 0] / covariance[0, 0] * (rows[3, 0] - mean[0]))
    np.testing.assert_allclose(filled[7], mean)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "mixture", [lv.models.FiniteMixture, pytest.param(lv.models.TiedMixture, marks=pytest.mark.slow)]
)
def test_a_search_goes_on_where_it_was_cut_off(mixture, tmp_path):
    points = lv.Points.from_array(planted()[1][::3], missing="nan")
    model, settings = mixture(FullCovarianceComponents.weak(points)), {"max_size": 5, "seed": 0, "progress": False}
    whole = lv.search(model, points, **settings)
    cut = lv.search(model, points, **settings, seconds=0, out=tmp_path / "cut", report=False)
    assert not cut.is_finished
    resumed = lv.resume(tmp_path / "cut", report=False, progress=False)
    assert resumed.posterior().equals(whole.posterior())
    assert whole.best_size == (3,)
    draws, again = whole.draws(64), lv.load(tmp_path / "cut").draws(64)
    predicted = draws.log_predictive(points)["log_predictive"]
    assert np.isfinite(predicted).all()
    np.testing.assert_array_equal(predicted, again.log_predictive(points)["log_predictive"])


@pytest.mark.thorough
def test_the_estimator_of_scikit_learn_takes_announced_gaps():
    whole, holed, labels = planted()
    search = lv.sklearn.MixtureSearch(missing="nan", max_size=4).fit(holed)
    assert search.best_size_ == 3
    assert adjusted_rand_score(labels, search.labels_) > 0.95
    np.testing.assert_array_equal(search.predict(holed), search.labels_)
    assert adjusted_rand_score(labels, search.predict(whole)) > 0.98  # with all cells, rows are told apart better
    with pytest.raises(ValueError, match="missing=\"nan\" with covariance_type='low-rank', expected one of"):
        lv.sklearn.MixtureSearch(covariance_type="low-rank", missing="nan").fit(holed)
    with pytest.raises(ValueError, match="missing"):
        lv.sklearn.MixtureSearch(missing="mean").fit(holed)


def test_what_takes_whole_rows_only_says_so():
    points = lv.Points.from_array(cases.HOLED, missing="nan")
    weak = FullCovarianceComponents.weak(points)
    assert weak.partial_rows
    assert not FullCovarianceComponents.weak(cases.VALUES).partial_rows
    with pytest.raises(ValueError, match=r"rows with missing cells.*weak\(points\)"):
        lv.fit(lv.models.FiniteMixture(FullCovarianceComponents.weak(cases.VALUES)), points, size=2)
    for mixture in (lv.models.FiniteMixture(weak), lv.models.TiedMixture(weak)):
        with pytest.raises(ValueError, match=r'annealed evidence and lv\.sample do not draw.*evidence="partitions"'):
            lv.search(mixture, points, evidence="annealed", max_size=2, progress=False)
        with pytest.raises(ValueError, match=r"annealed evidence and lv\.sample do not draw"):
            lv.sample(mixture, points, size=2)
        with pytest.raises(ValueError, match="whose cells exist only in the component that a unit has"):
            lv.to_numpyro(mixture, points, size=2)
    at_means = weak.at_prior_means()
    for model in (lv.models.DPMixture, lv.models.HiddenMarkov, lv.models.HDPMixture):
        with pytest.raises(ValueError, match="missing cells are latent"):
            model(at_means)
    with pytest.raises(ValueError, match="missing cells are latent"):
        lv.models.StudentComponents(weak)
