"""Models of the library as NumPyro models: their density against exact evidence, NUTS against exact posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density

import lvsearch as lv
from lvsearch.models.exponential.normal_wishart import NormalWishartStatistics
from lvsearch.models.families import NormalWishart

ROWS = np.random.default_rng(4).normal(size=(9, 2)) @ np.array([[1.0, 0.6], [0.0, 0.5]]) + [2.0, -1.0]
FULL = lv.models.FullCovarianceComponents.scaled_to(ROWS)


def exact_posterior() -> NormalWishartStatistics:
    """η of p(μ, Λ | ROWS) of one component with full covariance: the prior's and what every row adds."""
    y = (ROWS - np.asarray(FULL.location)) / np.asarray(FULL.scale)
    prior = FULL.prior(2)
    return NormalWishartStatistics(
        prior.half_log_determinant + len(y),
        prior.negative_half_precision + y.T @ y,
        prior.precision_mean + y.sum(0),
        prior.negative_half_square + len(y),
    )


@pytest.mark.thorough
def test_density_is_evidence_times_posterior(float64):
    """log p(θ, data) − log p(θ | data) is the exact evidence, at any θ: full covariance, one component."""
    model = lv.to_numpyro(lv.models.FiniteMixture(FULL), ROWS, 1)
    posterior = NormalWishart().to_numpyro(exact_posterior())
    prior = NormalWishart().log_normaliser(FULL.prior(2))
    log_scale = len(ROWS) * (np.log(2 * np.pi) + np.log(np.asarray(FULL.scale)).sum())
    evidence = float(NormalWishart().log_normaliser(exact_posterior()) - prior - log_scale)

    @jax.jit
    def apart(theta: jax.Array) -> jax.Array:
        found, _ = log_density(model, (), {}, {"components": theta[None], "weights": jnp.ones(1)})
        return found - posterior.log_prob(theta)

    for theta in jax.jit(lambda key: posterior.sample(key, (3,)))(jax.random.key(0)):
        assert float(apart(theta)) == pytest.approx(evidence, rel=1e-9)


@pytest.mark.slow
def test_statistics_of_a_normal_wishart_are_those_of_its_density(float64):
    """Written out, against the identity by which every other family finds them."""
    family, eta = NormalWishart(), exact_posterior()
    theta = family.to_numpyro(eta).sample(jax.random.key(1))
    generic = jax.jit(super(NormalWishart, family).statistics_at)(theta, eta)
    for ours, theirs in zip(family.statistics_at(theta, eta), generic, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


def test_the_support_of_mean_and_precision_has_its_jacobian(float64):
    from numpyro.distributions import biject_to

    support = NormalWishart().to_numpyro(exact_posterior()).support
    to, x = biject_to(support), jnp.array([0.3, -0.8, 0.4, -0.2, 0.7])
    value, inside = np.asarray(jax.jit(lambda x: to(x))(x)), jax.jit(lambda value: support(value))
    assert inside(value)
    outside = value.copy()
    outside[1, 0] = -1.0
    assert not inside(outside)
    np.testing.assert_allclose(jax.jit(lambda value: to.inv(value))(value), x, rtol=1e-9)
    free = np.array([0, 1, 2, 3, 5])  # the precision is symmetric: one of its four cells is not free
    jacobian = jax.jit(jax.jacobian(lambda x: to(x).ravel()[free]))(x)
    found = float(jax.jit(lambda x, value: to.log_abs_det_jacobian(x, value))(x, value))
    assert found == pytest.approx(float(np.linalg.slogdet(jacobian)[1]), rel=1e-9)
    assert to.inverse_shape((7, 3, 2)) == (7, 5)
    assert to.forward_shape((7, 5)) == (7, 3, 2)


@pytest.mark.slow
def test_labels_are_summed_out(float64):
    """Two components of yes-or-no cells against the sum over all labels."""
    cells = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    model = lv.to_numpyro(lv.models.FiniteMixture(lv.models.BernoulliComponents(1.0, 1.0)), cells, 2)
    weights, chance = np.array([0.3, 0.7]), np.array([[0.9, 0.2], [0.4, 0.5]])
    found, _ = log_density(model, (), {}, {"weights": jnp.array(weights), "components": jnp.array(chance)})
    of_rows = (chance[None] ** cells[:, None] * (1 - chance[None]) ** (1 - cells[:, None])).prod(-1)
    assert float(found) == pytest.approx(np.log(of_rows @ weights).sum(), rel=1e-9)  # all priors are uniform


@pytest.mark.slow
def test_a_search_after_it_is_as_before():
    """Programs of both precisions close over the same hyper-parameters: neither may get the other's."""
    points = lv.Points.from_array(ROWS)
    model = lv.models.FiniteMixture(lv.models.FullCovarianceComponents.scaled_to(ROWS))
    model_in_numpyro = lv.to_numpyro(model, points, 1)
    mcmc = MCMC(NUTS(model_in_numpyro), num_warmup=1, num_samples=1, progress_bar=False)
    mcmc.run(jax.random.key(0))
    assert lv.fit(model, points, size=1).evidence == lv.fit(lv.models.FiniteMixture(FULL), ROWS, size=1).evidence


def test_what_cannot_be_one():
    with pytest.raises(ValueError, match="point estimate"):
        log_density(lv.to_numpyro(lv.models.LDA().plug_in(), np.ones((3, 4)), 2), (), {}, {})
    with pytest.raises(ValueError, match="improper prior"):
        lv.search(lv.from_numpyro(lambda size, data: lv.to_numpyro(lv.models.FiniteMixture(FULL), data, size)()), ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_nuts_on_full_covariances(size):
    """Size 1: means of μ and Λ within four Monte Carlo errors of the exact posterior's. Size 2: no divergence."""
    mcmc = MCMC(
        NUTS(lv.to_numpyro(lv.models.FiniteMixture(FULL), ROWS, size)),
        num_warmup=500,
        num_samples=4000,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0))
    draws = np.asarray(mcmc.get_samples()["components"], np.float64)
    assert draws.shape == (4000, size, 3, 2)
    assert np.isfinite(draws).all()
    if size == 1:
        exact = NormalWishart().to_numpyro(exact_posterior()).sample(jax.random.key(1), (40_000,))
        error = draws[:, 0].std(0) / np.sqrt(1000)
        assert (np.abs(draws[:, 0].mean(0) - np.asarray(exact).mean(0)) < 4 * error).all()
        np.testing.assert_allclose(draws[:, 0].std(0), np.asarray(exact).std(0), rtol=0.15)
