"""The Normal–Wishart, whose event is a matrix, and the points of known-precision means and of probabilities."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from compiled import Compiled
from scipy.special import multigammaln

from lvsearch.models import families as f
from lvsearch.models.families import NormalWishartStatistics

DEGREES, COUNT = np.array([2.7, 9.0]), np.array([0.4, 3.5])
CENTRE = np.array([[0.3, -1.2, 2.0], [1.0, 0.2, -0.7]])
SCALE = np.array([[[2.0, 0.3, -0.4], [0.3, 1.5, 0.2], [-0.4, 0.2, 0.9]], [[5.0, 1.0, 0.0], [1.0, 4.0, 2.0], [0, 2, 3]]])
FAMILY = f.NormalWishart()
COMPILED = Compiled(FAMILY)


def natural(dtype: Any = np.float64) -> NormalWishartStatistics:
    outer = COUNT[:, None, None] * CENTRE[:, :, None] * CENTRE[:, None, :]
    leaves = (DEGREES - 3, SCALE + outer, COUNT[:, None] * CENTRE, COUNT)
    return NormalWishartStatistics(*(jnp.asarray(leaf, dtype) for leaf in leaves))


def inner(eta: Any, t: Any) -> np.ndarray:
    pairs = zip(eta, t, strict=True)
    return sum((np.asarray(a) * np.asarray(b)).reshape(2, -1).sum(-1) for a, b in pairs)


def scipy_log_density(mean: np.ndarray, precision: np.ndarray, i: int) -> float:
    wishart = scipy.stats.wishart(DEGREES[i], np.linalg.inv(SCALE[i])).logpdf(precision)
    return wishart + scipy.stats.multivariate_normal(CENTRE[i], np.linalg.inv(COUNT[i] * precision)).logpdf(mean)


@pytest.mark.thorough
def test_density_matches_scipy_and_numpyro(float64):
    statistics = COMPILED.sample(jax.random.key(2), natural())
    ours = inner(natural(), statistics) - np.asarray(COMPILED.log_normaliser(natural()))
    mean, precision = map(np.asarray, COMPILED.value(statistics))
    np.testing.assert_allclose(ours, [scipy_log_density(mean[i], precision[i], i) for i in range(2)], rtol=1e-9)
    distribution = jax.eval_shape(FAMILY.to_numpyro, natural())
    assert (distribution.batch_shape, distribution.event_shape) == ((2,), (4, 3))
    stacked = np.concatenate([mean[:, None, :], precision], 1)
    np.testing.assert_allclose(jax.jit(lambda x: FAMILY.to_numpyro(natural()).log_prob(x))(stacked), ours, rtol=1e-8)
    draws = jax.eval_shape(lambda: FAMILY.to_numpyro(natural()).sample(jax.random.key(0), (5,)))
    assert draws.shape == (5, 2, 4, 3)


def test_normaliser_matches_scipy(float64):
    expected = (
        0.5 * DEGREES * 3 * np.log(2)
        + [multigammaln(v / 2, 3) for v in DEGREES]
        - 0.5 * DEGREES * np.linalg.slogdet(SCALE)[1]
        + 1.5 * np.log(2 * np.pi / COUNT)
    )
    np.testing.assert_allclose(COMPILED.log_normaliser(natural()), expected, rtol=1e-12)


def test_mean_is_the_gradient_and_entropy_matches_scipy(float64):
    gradient = jax.jit(jax.grad(lambda eta: FAMILY.log_normaliser(eta).sum()))(natural())
    for a, b in zip(gradient, COMPILED.mean(natural()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    wisharts = [scipy.stats.wishart(DEGREES[i], np.linalg.inv(SCALE[i])) for i in range(2)]
    expected_log = 2 * np.asarray(COMPILED.mean(natural()).half_log_determinant)
    given = 0.5 * (3 * np.log(2 * np.pi * np.e / COUNT) - expected_log)
    np.testing.assert_allclose(COMPILED.entropy(natural()), [w.entropy() for w in wisharts] + given, rtol=1e-9)


def test_natural_inverts_mean_and_point_is_the_mean_value(float64):
    back = COMPILED.natural(COMPILED.mean(natural()))
    for a, b in zip(back, natural(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    mean, precision = COMPILED.value(COMPILED.point(natural()))
    np.testing.assert_allclose(mean, CENTRE, rtol=1e-9)
    np.testing.assert_allclose(precision, DEGREES[:, None, None] * np.linalg.inv(SCALE), rtol=1e-9)
    point = COMPILED.point(natural())
    np.testing.assert_allclose(2 * np.asarray(point.half_log_determinant), np.linalg.slogdet(precision)[1], rtol=1e-9)


@pytest.mark.thorough
def test_sampled_statistics_have_the_expected_mean():
    """20,000 draws, 26 numbers, |z| < 4.5: false alarms below 2e-4."""
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (20_000, *leaf.shape)), natural(np.float32))
    drawn = COMPILED.sample(jax.random.key(11), repeated)
    for t, expected in zip(drawn, COMPILED.mean(natural(np.float32)), strict=True):
        assert t.dtype == jnp.float32
        t = np.asarray(t, np.float64)
        error = t.std(0) / np.sqrt(len(t)) + 1e-5 * (1 + np.abs(expected))
        np.testing.assert_array_less(np.abs(t.mean(0) - np.asarray(expected)), 4.5 * error)


def test_one_column_is_the_normal_gamma(float64):
    """D = 1: Wishart(ν, 1/B) is Gamma(ν/2, B/2), whose statistics are twice and half as large."""
    a, b, m, k = 1.7, 0.8, -0.4, 2.2
    wishart = NormalWishartStatistics(*(jnp.asarray(x) for x in (2 * a - 1, [[2 * b + k * m**2]], [k * m], k)))
    gamma = f.NormalGammaStatistics(*(jnp.asarray(x) for x in (a - 0.5, b + 0.5 * k * m**2, k * m, k)))
    np.testing.assert_allclose(COMPILED.log_normaliser(wishart), f.NormalGamma().log_normaliser(gamma), rtol=1e-12)


def test_zeros_have_the_shape_of_each_field():
    zeros = FAMILY.zeros((4, 3, 3), np.float32)
    assert [leaf.shape for leaf in zeros] == [(4,), (4, 3, 3), (4, 3), (4,)]


@pytest.mark.parametrize(
    ("family", "eta"),
    [
        (f.PointMean(), f.GaussianStatistics(jnp.array([3.0, -1.0]), jnp.array([2.0, 5.0]))),
        (f.PointProbability(), f.BetaStatistics(jnp.array([3.0, 1.0]), jnp.array([2.0, 0.5]))),
    ],
    ids=["mean", "probability"],
)
def test_points_maximise(family, eta, float64):
    """No other point has a greater ⟨η, t⟩; A(η) is that maximum, its gradient t, and the entropy 0."""
    eta, compiled = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), eta), Compiled(family)
    best = jax.tree.map(np.asarray, compiled.mean(eta))
    value = np.sum([a * b for a, b in zip(eta, best, strict=True)], 0)
    for other in np.linspace(0.02, 0.98, 25):
        at = f.GaussianStatistics(4 * other - 2, -0.5 * (4 * other - 2) ** 2)
        at = at if isinstance(family, f.PointMean) else f.BetaStatistics(np.log(other), np.log1p(-other))
        assert np.all(np.sum([a * b for a, b in zip(eta, at, strict=True)], 0) <= value + 1e-12)
    np.testing.assert_allclose(compiled.log_normaliser(eta), value, rtol=1e-12)
    gradient = jax.jit(jax.grad(lambda e: family.log_normaliser(e).sum()))(eta)
    for a, b in zip(gradient, best, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert np.all(np.asarray(compiled.entropy(eta)) == 0)
    for a, b in zip(compiled.mean(compiled.natural(best)), best, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    drawn, point = compiled.sample(jax.random.key(0), eta), compiled.point(eta)
    np.testing.assert_allclose(compiled.value(drawn), compiled.value(point))
    delta = family.to_numpyro(eta)
    np.testing.assert_allclose(delta.log_prob(compiled.value(best)), 0)


def test_points_without_data_are_finite():
    nothing = f.GaussianStatistics(jnp.zeros(2), jnp.zeros(2))
    assert np.all(np.asarray(f.PointMean().mean(nothing).value) == 0)
    log = f.PointProbability().mean(f.BetaStatistics(jnp.zeros(2), jnp.zeros(2)))
    np.testing.assert_allclose(np.exp(log.log_value), 0.5, rtol=1e-6)
