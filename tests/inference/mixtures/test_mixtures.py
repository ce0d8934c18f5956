"""Finite mixtures: exact evidence by enumeration, the compiled kernel against the generic engine, proposals, edges."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mixture_cases as cases
import numpy as np
import partition_oracles as exact
import pytest
from engine_steps import batch_statistics
from mixture_cases import clusters, dataset
from sklearn.mixture import GaussianMixture
from tiers import in_tiers

import lvsearch as lv
from lvsearch.inference.data.rows import rows_of
from lvsearch.inference.engine.estimate import capacity_of, pad_axes
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.engine.meanfield import bound, cast, fit_locals, resident_sweep
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.mixtures import MixtureEstimator, MixtureSettings, predictive_log_density
from lvsearch.inference.mixtures.estimator import recorded_bound
from lvsearch.inference.mixtures.kernel import ascend_rows, row_sums
from lvsearch.inference.mixtures.rows import (
    cast_tiles,
    layout_of,
    pack_increment,
    pack_statistics,
    prepare,
    unpack_sums,
)
from lvsearch.models.components import log_likelihood, log_predictive
from lvsearch.models.components.component import draw_parameters
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.finite_mixture import FiniteMixture
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.units import Row

SIZE = (3,)
by_kind = pytest.mark.parametrize("kind", cases.CASES, ids=lambda kind: kind.name)


def fast_for(*fast: cases.Kind) -> pytest.MarkDecorator:
    """Ask these kinds in the fast tier, the others in the slow one. Densities are compared for every kind in both."""
    return pytest.mark.parametrize("kind", in_tiers(cases.CASES, lambda kind: kind in fast, lambda kind: kind.name))


def unit(row: np.ndarray) -> Row:
    return Row(np.nan_to_num(row), ~np.isnan(row))


# ── densities ───────────────────────────────────────────────────────────────────────────────────────────────────────


@by_kind
def test_predictive_density_is_a_ratio_of_marginals(kind, float64):
    """Eq. 5.13 at the posterior of four rows, against SciPy: p(five rows) / p(four rows)."""
    component, rows = kind.component, kind.rows

    @jax.jit
    def log_density(before: list[Row], after: Row) -> jax.Array:
        increments = [component.increment(component.coordinates(r), jnp.asarray(r.observed)) for r in before]
        natural = jax.tree.map(lambda prior, *s: (prior + sum(s))[None], component.prior(rows.shape[1]), *increments)
        return log_predictive(component, natural, after)[0]

    ours = float(log_density([unit(r) for r in rows[:4]], unit(rows[4])))
    assert ours == pytest.approx(kind.log_marginal(rows[:5]) - kind.log_marginal(rows[:4]), abs=1e-9)


@pytest.mark.thorough
@fast_for(cases.KNOWN, cases.BERNOULLI)
def test_likelihood_is_below_its_ceiling_and_linear(kind, float64):
    component, n_dims = kind.component, kind.rows.shape[1]
    one = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (50, *jnp.shape(leaf))) * 1.0, component.prior(n_dims))
    statistics = jax.jit(component.prior_family.sample)(jax.random.key(0), one)
    likelihood = jax.jit(partial(log_likelihood, component))
    for row in kind.rows:
        ceiling = component.log_ceiling(jax.tree.map(lambda leaf: leaf[None], unit(row)))[0]
        assert np.all(np.asarray(likelihood(statistics, unit(row))) <= ceiling + 1e-9)
    twice = jax.tree.map(lambda leaf: 2 * leaf, statistics)
    zero = jax.tree.map(jnp.zeros_like, statistics)
    at = [np.asarray(likelihood(t, unit(kind.rows[0]))) for t in (zero, statistics, twice)]
    np.testing.assert_allclose(at[2] - at[1], at[1] - at[0], rtol=1e-9, atol=1e-9)


@pytest.mark.thorough
@fast_for(cases.KNOWN, cases.FULL)
def test_packing_is_the_inner_product(kind, float64):
    component, n_dims = kind.component, kind.rows.shape[1]
    one = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *jnp.shape(leaf))) * 1.0, component.prior(n_dims))
    row = unit(kind.rows[0])

    @jax.jit
    def both_ways(row: Row) -> tuple[Any, ...]:
        statistics = component.prior_family.sample(jax.random.key(0), one)
        y, observed = component.coordinates(row), jnp.asarray(row.observed)
        packed = pack_increment(component, y, observed)
        ours = pack_statistics(component, statistics) @ packed + component.log_carrier(y, observed)
        back = unpack_sums(component, jnp.stack([packed] * 3), one)
        increments = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), component.increment(y, observed))
        return packed, ours, log_likelihood(component, statistics, row), back, increments

    packed, ours, direct, back, increments = both_ways(row)
    np.testing.assert_allclose(ours, direct, rtol=1e-12)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-12), back, increments)
    layout = layout_of(component, n_dims, complete=True)
    assert sorted([*layout.varying, *(c for c, _ in layout.constants)]) == list(range(len(packed)))


# ── the kernel ──────────────────────────────────────────────────────────────────────────────────────────────────────


@fast_for(cases.BERNOULLI)
def test_kernel_is_the_generic_engine(kind, float64):
    """Bound, sums and one sweep, at a random state: a DP with a Gamma prior, so that every weight site is there."""
    model, data = DPMixture(kind.component, GammaPrior(2.0, 1.5)), dataset(kind.rows)
    capacity, prepared = (4,), prepare(model, data)
    start = scattered_start(model, jax.random.key(2), cast(data, np.float64), SIZE, capacity, np.float64)
    (batch,) = cast(data, np.float64).batches
    tiles, on = cast_tiles(prepared.tiles, np.float64), model.active(SIZE, capacity)
    l = fit_locals(model, start.beliefs.mean, batch, start.locals[0], SIZE, capacity=capacity, sweeps=1)
    generic = bound(model, (batch,), start.beliefs, (l,), SIZE, capacity=capacity)
    trace = ascend_rows(model, start.beliefs, tiles, SIZE, np.inf, 1, layout=prepared.layout, capacity=capacity)
    assert float(trace.bounds[0]) + prepared.log_carrier == pytest.approx(generic, abs=1e-9)
    sums = row_sums(model, start.beliefs.mean, tiles, prepared.layout, on)
    ours = unpack_sums(model.components, sums.increments, start.beliefs.natural["components"])
    theirs = batch_statistics(model, start.beliefs.mean, batch, l.mean, SIZE, capacity=capacity)["components"]
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9), ours, theirs)
    stepped = resident_sweep(model, start.beliefs, (batch,), (l.mean,), SIZE, capacity=capacity)
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    jax.tree.map(close, trace.beliefs.natural["components"], stepped.natural["components"])


@pytest.mark.slow
def test_kernel_in_several_tiles_and_single_precision(monkeypatch):
    """The same fit whatever the tile, and float32 within rounding."""
    model, data = FiniteMixture(lv.models.FullCovarianceComponents.scaled_to(clusters())), dataset(clusters())
    whole = MixtureEstimator(model, data).fit(SIZE, jax.random.key(0), None)
    monkeypatch.setattr("lvsearch.inference.mixtures.rows.TILE", 16)
    tiled = MixtureEstimator(model, data)
    assert tiled.prepared.tiles.weight.shape == (3, 16)
    assert recorded_bound(model, tiled.prepared, whole.natural, SIZE) == pytest.approx(whole.log_lower, abs=1e-9)
    single = MixtureEstimator(model, data, MixtureSettings(double_below=0.0)).fit(SIZE, jax.random.key(0), None)
    assert single.log_lower == pytest.approx(whole.log_lower, abs=1e-3)


def test_recorded_evidence_is_that_of_the_state():
    model, data = FiniteMixture(lv.models.DiagonalComponents.scaled_to(clusters())), dataset(clusters())
    found = estimator(model, data)
    assert isinstance(found, MixtureEstimator)
    estimate = found.fit(SIZE, jax.random.key(0), None)
    assert recorded_bound(model, found.prepared, estimate.natural, SIZE) == estimate.log_lower
    with jax.enable_x64(True):
        capacity, wide = capacity_of(SIZE), cast(data, np.float64)
        start = scattered_start(model, jax.random.key(0), wide, SIZE, capacity, np.float64)
        natural = pad_axes(model, estimate.natural, SIZE, capacity)
        assert jax.tree.structure(natural) == jax.tree.structure(start.beliefs.natural)


# ── evidence ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@fast_for(cases.DIAGONAL)
@pytest.mark.parametrize("size", [1, 2])
def test_bound_is_below_the_exact_evidence(kind, size):
    """All partitions of six rows; with one component nothing is latent but parameters, and the bound is exact."""
    rows = kind.rows[:6]
    prior = partial(exact.log_finite_prior, n_components=size, concentration=0.8)
    truth = exact.log_evidence(rows, kind.log_marginal, prior)
    estimate = estimator(FiniteMixture(kind.component, 0.8), dataset(rows)).fit((size,), jax.random.key(0), None)
    if size == 1:
        assert estimate.log_lower == pytest.approx(truth, abs=1e-5)
    else:
        assert truth - 4 < estimate.log_lower <= truth + 1e-9


@pytest.mark.thorough
def test_relabellings_correct_the_bound():
    """Separate groups: the bound sits in one of K! labellings, and with log K! it is the evidence, nearly."""
    rows = np.array([[-4.0], [-4.2], [0.1], [-0.1], [4.1], [3.9]])
    component = lv.models.KnownCovarianceComponents(0.04, 0.0, 0.01)
    model = FiniteMixture(component, 1.0)
    estimate = estimator(model, dataset(rows)).fit(SIZE, jax.random.key(0), None)
    prior = partial(exact.log_finite_prior, n_components=3, concentration=1.0)
    truth = exact.log_evidence(rows, exact.known_marginal(np.array([[0.04]]), np.zeros(1), 0.01), prior)
    assert estimate.log_lower + model.log_symmetry(SIZE, estimate.natural) == pytest.approx(truth, abs=0.02)
    assert truth - estimate.log_lower == pytest.approx(np.log(6), abs=0.02)


@pytest.mark.thorough
def test_plug_in_evidence_is_exact_and_certified():
    """Σ_n log Σ_k π_k p(x_n | θ_k) written out; nested, under a ceiling."""
    rows, variance = clusters(), 0.16
    result = lv.search(
        FiniteMixture(lv.models.KnownCovarianceComponents(variance)),
        rows,
        prior=lv.sizes.Geometric(0.3),
        max_size=4,
        evidence="plug-in",
        progress=False,
    )
    fit = result.fit(3)
    weights = fit.table("weights").to_numpy()[:, 0]
    means = fit.table("components").to_numpy() * np.sqrt(variance)
    square = ((rows[:, None] - means) ** 2).sum(-1) / variance
    each = np.log(weights) - 0.5 * square - np.log(2 * np.pi * variance)
    assert fit.evidence.lower == pytest.approx(np.logaddexp.reduce(each, axis=1).sum(), abs=1e-4)
    assert fit.evidence.upper - fit.evidence.lower < 1e-5
    lower = [visit.evidence.lower for visit in sorted(result.visits, key=lambda visit: visit.size)]
    assert np.all(np.diff(lower) >= 0)
    certified = result.posterior("certified")
    assert np.isfinite(certified.log_evidence_upper.iloc[-1])
    assert certified.probability_upper.iloc[1] < 0.01  # two components for three groups


def test_no_certificate_where_there_is_none():
    component = lv.models.DiagonalComponents()
    assert FiniteMixture(component).ceiling(unit(clusters())) == np.inf
    for kind in (lv.models.DiagonalComponents(), lv.models.FullCovarianceComponents()):
        with pytest.raises(ValueError, match="no plug-in form"):
            FiniteMixture(kind).plug_in()


def test_search_finds_the_planted_number():
    model = FiniteMixture(lv.models.DiagonalComponents.scaled_to(clusters()))
    result = lv.search(
        model, clusters(), prior=lv.sizes.Poisson(2), max_size=5, seed=1, evidence="bound", progress=False
    )
    assert result.best_size == (3,)
    assert result.best.transform(clusters()).argmax(1).tolist().count(0) in (20, 14, 7)
    assert np.isinf(result.certified().log_upper)


def test_search_over_mixtures_is_stored(tmp_path):
    model = FiniteMixture(lv.models.DiagonalComponents.scaled_to(clusters()))
    result = lv.search(
        model, clusters(), prior=lv.sizes.Poisson(2), max_size=2, starts=1, evidence="bound", progress=False
    )
    result.save(tmp_path / "run")
    loaded = lv.load(tmp_path / "run")
    assert loaded.evaluator.model.describe() == model.describe()
    np.testing.assert_array_equal(loaded.best.transform(clusters()), result.best.transform(clusters()))


@pytest.mark.thorough
@fast_for(cases.KNOWN)
def test_fits_of_every_kind_come_back_from_their_folders(kind, tmp_path):
    """The same kind with the same numbers, which says the same of rows."""
    fit = lv.fit(FiniteMixture(kind.component, 0.8), cases.points(kind), size=2)
    fit.save(tmp_path / "fit")
    again = lv.load_fit(tmp_path / "fit")
    assert eqx.tree_equal(again.model, fit.model)
    assert again.model.describe() == fit.model.describe()
    np.testing.assert_array_equal(again.log_density(cases.points(kind)), fit.log_density(cases.points(kind)))
    assert again.means().equals(fit.means())


@pytest.mark.thorough
@fast_for(cases.KNOWN, cases.MULTINOMIAL)
def test_draws_have_the_moments_of_their_component(kind, float64):
    """The average and the covariance of 20,000 rows from one component; where the total of a row is given, it is 1."""
    n_dims, n_draws = kind.rows.shape[1], 20_000
    like = Row(np.eye(n_dims)[0], np.ones(n_dims, bool))

    @jax.jit
    def drawn(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        key_parameters, key_rows = jax.random.split(key)
        one = jax.tree.map(lambda leaf: leaf[0], draw_parameters(kind.component, key_parameters, 1, n_dims))
        rows = jax.vmap(lambda each: kind.component.draw(each, one, like))(jax.random.split(key_rows, n_draws))
        return rows, *kind.component.moments(one)

    rows, mean, covariance = map(np.asarray, drawn(jax.random.key(4)))
    away = rows - mean
    products = away[:, :, None] * away[:, None]
    for found, expected in ((rows, mean), (products, covariance)):
        error = found.std(0) / np.sqrt(n_draws) + 1e-9
        assert (np.abs(found.mean(0) - expected) / error).max() < 4.5


# ── predictive density ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("process", "name"),
    [
        (True, "DiagonalComponents"),
        *(pytest.param(process, "FullCovarianceComponents", marks=pytest.mark.slow) for process in (False, True)),
        pytest.param(False, "DiagonalComponents", marks=pytest.mark.slow),
        *(pytest.param(process, "KnownCovarianceComponents", marks=pytest.mark.slow) for process in (False, True)),
    ],
)
def test_predictive_density_integrates_to_one(name, process):
    """By the trapezium rule over the line, mapped by sinh so that tails count: finite and Dirichlet-process."""
    rows = clusters()[:, :1]
    component = getattr(lv.models, name)(*([0.2] if name.startswith("Known") else []))
    model = DPMixture(component, 1.3) if process else FiniteMixture(component)
    estimate = estimator(model, dataset(rows)).fit((2,), jax.random.key(0), None)
    t = np.linspace(-14, 14, 4001)
    density = np.exp(predictive_log_density(estimate, dataset(np.sinh(t)[:, None])))
    assert np.trapezoid(density * np.cosh(t), t) == pytest.approx(1, abs=2e-3)


@pytest.mark.thorough
def test_a_weight_of_zero_has_no_part_in_the_predictive_density(float64):
    """A row that the prior explains by more than 691 nats better than the one component of 200 tight rows."""
    component, rng = lv.models.DiagonalComponents(), np.random.default_rng(0)
    rows = 0.001 * rng.standard_normal((200, 400))
    outlier = dataset(np.full((1, 400), 3.0))
    estimate = estimator(FiniteMixture(component), dataset(rows)).fit((1,), jax.random.key(0), None)
    found = predictive_log_density(estimate, outlier)
    (weights, left), units = FiniteMixture(component).expected_weights(estimate.natural), rows_of(outlier)[0]
    assert (weights.tolist(), left) == ([1.0], 0.0)
    wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), estimate.natural["components"])
    prior = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64)[None], component.prior(400))
    one = Row(*(np.asarray(leaf)[0] for leaf in units))
    own, before = (float(jax.jit(log_predictive)(component, natural, one)[0]) for natural in (wide, prior))
    assert own < before - 691
    np.testing.assert_allclose(found, own, rtol=1e-10)


def test_grown_fits_keep_what_they_start_from():
    model = FiniteMixture(lv.models.KnownCovarianceComponents(0.16)).plug_in()
    found = estimator(model, dataset(clusters()))
    small = found.fit((2,), jax.random.key(0), None)
    assert found.fit((3,), jax.random.key(5), small).log_lower > small.log_lower


@pytest.mark.thorough
def test_variances_with_a_floor_have_a_maximum_of_the_likelihood():
    """The plug-in form of Gaussians with a floor far below their variances: scikit-learn's maximum."""
    rows = clusters()
    model = FiniteMixture(lv.models.DiagonalComponents(variance_floor=1e-4))
    fit = lv.fit(model, lv.Points.from_array(rows), size=3, evidence="plug-in", starts=3)
    theirs = GaussianMixture(3, covariance_type="diag", reg_covar=0.0, n_init=10, random_state=0, tol=1e-9).fit(rows)
    assert fit.estimate.log_lower == pytest.approx(theirs.score(rows) * len(rows), abs=1e-3)
    ceiling = model.plug_in().ceiling(lv.Points.from_array(rows).dataset().batches[0].units)
    assert np.isfinite(ceiling)
    assert ceiling > fit.estimate.log_lower
    with pytest.raises(ValueError, match="Give variance_floor="):
        FiniteMixture().plug_in()
