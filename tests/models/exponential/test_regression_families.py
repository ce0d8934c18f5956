"""The families of factor analysis against SciPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from compiled import Compiled

from lvsearch.models.families import (
    Family,
    NormalGammaRegression,
    RegressionStatistics,
    VectorGaussian,
    VectorGaussianStatistics,
)

CENTRE = np.array([[0.3, -1.2, 0.8], [1.0, 0.2, -0.5]])
PRECISION = np.array([[[2.0, 0.3, -0.1], [0.3, 1.5, 0.4], [-0.1, 0.4, 0.9]], 0.5 * np.eye(3)])
SHAPE, RATE = np.array([2.5, 1.2]), np.array([0.8, 3.0])


def of_vectors() -> VectorGaussianStatistics:
    return VectorGaussianStatistics(jnp.asarray(np.einsum("kij,kj->ki", PRECISION, CENTRE)), jnp.asarray(PRECISION))


def of_regressions() -> RegressionStatistics:
    linear = np.einsum("kij,kj->ki", PRECISION, CENTRE)
    rate = RATE + 0.5 * (linear * CENTRE).sum(1)
    return RegressionStatistics(*map(jnp.asarray, (SHAPE - 1 + 1.5, rate, linear, PRECISION)))


CASES: list[tuple[Family, Any]] = [(VectorGaussian(), of_vectors), (NormalGammaRegression(), of_regressions)]
WHOLE = pytest.mark.parametrize(
    ("family", "natural"),
    [pytest.param(*CASES[0], id="vector", marks=pytest.mark.slow), pytest.param(*CASES[1], id="regression")],
)
"""In the fast tier: the weights of a regression, which are a vector, and its precision."""


def close(ours: Any, others: Any, rtol: float = 1e-9) -> None:
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-10)


def log_density(family: Any, natural: Any, statistics: Any) -> np.ndarray:
    products = [np.asarray(a) * np.asarray(b) for a, b in zip(natural, statistics, strict=True)]
    return sum(each.reshape(2, -1).sum(1) for each in products) - np.asarray(Compiled(family).log_normaliser(natural))


@pytest.mark.thorough
def test_densities_match_scipy(float64):
    x = Compiled(VectorGaussian()).sample(jax.random.key(0), of_vectors())
    gaussians = [scipy.stats.multivariate_normal(CENTRE[k], np.linalg.inv(PRECISION[k])) for k in range(2)]
    expected = [each.logpdf(np.asarray(x.value)[k]) for k, each in enumerate(gaussians)]
    np.testing.assert_allclose(log_density(VectorGaussian(), of_vectors(), x), expected, rtol=1e-10)
    entropies = [each.entropy() for each in gaussians]
    np.testing.assert_allclose(Compiled(VectorGaussian()).entropy(of_vectors()), entropies, rtol=1e-10)

    drawn = Compiled(NormalGammaRegression()).sample(jax.random.key(1), of_regressions())
    weight, precision = map(np.asarray, Compiled(NormalGammaRegression()).value(drawn))
    expected = [
        scipy.stats.gamma(SHAPE[k], scale=1 / RATE[k]).logpdf(precision[k])
        + scipy.stats.multivariate_normal(CENTRE[k], np.linalg.inv(precision[k] * PRECISION[k])).logpdf(weight[k])
        for k in range(2)
    ]
    np.testing.assert_allclose(log_density(NormalGammaRegression(), of_regressions(), drawn), expected, rtol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "natural"), CASES, ids=["vector", "regression"])
def test_mean_is_the_gradient_and_natural_inverts_it(float64, family, natural):
    compiled = Compiled(family)
    mean = compiled.mean(natural())
    close(jax.jit(jax.grad(lambda eta: family.log_normaliser(eta).sum()))(natural()), mean)
    close(compiled.mean(compiled.natural(mean)), mean, 1e-7)
    legal = family.legal((2, 3, 3), np.float64)
    assert np.isfinite(compiled.log_normaliser(legal)).all()


@pytest.mark.thorough
@WHOLE
def test_draws_have_the_expected_statistics(float64, family, natural):
    """|z| < 5 of 26 averages of 20,000 draws: a false alarm for one key in 60,000."""
    n = 20_000
    wide = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), natural())
    drawn = Compiled(family).sample(jax.random.key(2), wide)
    for draws, mean in zip(drawn, Compiled(family).mean(natural()), strict=True):
        error = np.asarray(draws).std(0) / np.sqrt(n)
        assert np.abs((np.asarray(draws).mean(0) - mean) / error).max() < 5


@pytest.mark.thorough
@WHOLE
def test_coordinates_that_do_not_exist_change_nothing(float64, family, natural):
    """The last of three coordinates away, whatever its numbers are: the family of the other two."""
    eta = natural()
    less = [leaf[..., :2] if leaf.ndim == 2 else leaf[..., :2, :2] if leaf.ndim == 3 else leaf for leaf in eta]
    if isinstance(eta, RegressionStatistics):
        less[0] = less[0] - 0.5  # η₁ of as great an a in two coordinates
        eta = eta._replace(log_precision=less[0])
    mask, smaller = jnp.outer(jnp.arange(3) < 2, jnp.arange(3) < 2), type(eta)(*less)
    compiled = Compiled(family)
    close([compiled.log_normaliser(eta, mask)], [compiled.log_normaliser(smaller)])
    for masked, alone in zip(compiled.mean(eta, mask), compiled.mean(smaller), strict=True):
        padded = np.pad(alone, [(0, 0), *[(0, 1)] * (alone.ndim - 1)])
        np.testing.assert_allclose(masked, padded, rtol=1e-10)
    close([compiled.entropy(eta, mask)], [compiled.entropy(smaller)])
    drawn = compiled.sample(jax.random.key(3), eta, mask)
    assert np.all(np.asarray(drawn[-1])[..., 2] == 0)


@pytest.mark.thorough
def test_points_are_the_mean_values(float64):
    np.testing.assert_allclose(Compiled(VectorGaussian()).point(of_vectors()).value, CENTRE, rtol=1e-12)
    point = Compiled(NormalGammaRegression()).point(of_regressions())
    close(Compiled(NormalGammaRegression()).value(point), (CENTRE, SHAPE / RATE))
    assert VectorGaussian().to_numpyro(of_vectors()).mean.shape == (2, 3)
    with pytest.raises(ValueError, match="NumPyro, which has none"):
        NormalGammaRegression().to_numpyro(of_regressions())
