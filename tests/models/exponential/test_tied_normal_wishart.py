"""The prior of means that share a precision matrix, whose event is all of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from compiled import Compiled

from lvsearch.models.exponential.normal_wishart import tied_marginals, tied_share
from lvsearch.models.families import NormalWishart, NormalWishartStatistics, TiedNormalWishart

DEGREES, COUNT = 4.2, np.array([0.4, 3.5, 1.2])
CENTRE = np.array([[0.3, -1.2], [1.0, 0.2], [-0.7, 2.0]])
SCALE = np.array([[2.0, 0.3], [0.3, 1.5]])
SHARES = np.array([0.2, 0.5, 0.3])
"""Of what is the precision's own, in each component: only the sums matter."""
FAMILY = TiedNormalWishart()
COMPILED = Compiled(FAMILY)


def natural(dtype: Any = np.float64) -> NormalWishartStatistics:
    outer = COUNT[:, None, None] * CENTRE[:, :, None] * CENTRE[:, None, :]
    leaves = (SHARES * (DEGREES - 3) + 1, SHARES[:, None, None] * SCALE + outer, COUNT[:, None] * CENTRE, COUNT)
    return NormalWishartStatistics(*(jnp.asarray(leaf, dtype) for leaf in leaves))


def close(ours: Any, others: Any, rtol: float = 1e-10) -> None:
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)


@pytest.mark.thorough
def test_density_and_entropy_match_scipy(float64):
    statistics = COMPILED.sample(jax.random.key(2), natural())
    ours = sum((np.asarray(a) * np.asarray(b)).sum() for a, b in zip(natural(), statistics, strict=True))
    mean, precision = map(np.asarray, COMPILED.value(statistics))
    wishart = scipy.stats.wishart(DEGREES, np.linalg.inv(SCALE))
    given = [
        scipy.stats.multivariate_normal(CENTRE[k], np.linalg.inv(COUNT[k] * precision)).logpdf(mean[k])
        for k in range(3)
    ]
    assert ours - COMPILED.log_normaliser(natural()) == pytest.approx(wishart.logpdf(precision) + sum(given), rel=1e-9)
    expected_log = 2 * float(COMPILED.mean(natural()).half_log_determinant[0])
    means = (0.5 * (2 * np.log(2 * np.pi * np.e / COUNT) - expected_log)).sum()
    assert float(COMPILED.entropy(natural())) == pytest.approx(wishart.entropy() + means, rel=1e-9)


def test_mean_is_the_gradient_natural_inverts_it_and_point_is_the_mean_value(float64):
    mean = COMPILED.mean(natural())
    close(jax.jit(jax.grad(FAMILY.log_normaliser))(natural()), mean)
    close(COMPILED.mean(COMPILED.natural(mean)), mean, 1e-7)
    centre, precision = COMPILED.value(COMPILED.point(natural()))
    close((centre, precision), (CENTRE, DEGREES * np.linalg.inv(SCALE)))


def test_marginals_have_the_same_means_and_one_component_is_a_normal_wishart(float64):
    marginals = jax.jit(tied_marginals)(natural())
    close(Compiled(NormalWishart()).mean(marginals), COMPILED.mean(natural()))
    one = jax.tree.map(lambda leaf: leaf[:1], marginals)
    alone = tied_share(one, 1)
    expected = Compiled(NormalWishart()).log_normaliser(one)[0]
    np.testing.assert_allclose(COMPILED.log_normaliser(alone), expected, rtol=1e-12)


@pytest.mark.thorough
def test_components_that_do_not_exist_count_for_nothing(float64):
    """Whatever their parameters are."""
    wider = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.full_like(leaf[:2], jnp.nan)]), natural())
    mask = (jnp.arange(5) < 3)[:, None, None]
    np.testing.assert_allclose(COMPILED.log_normaliser(wider, mask), COMPILED.log_normaliser(natural()), rtol=1e-14)
    mean, expected = COMPILED.mean(wider, mask), COMPILED.mean(natural())
    close([leaf[:3] for leaf in mean], expected)
    for leaf in (*mean, *COMPILED.sample(jax.random.key(0), wider, mask), *COMPILED.natural(mean, mask)):
        assert np.isfinite(np.asarray(leaf)).all()
        assert not np.asarray(leaf[3:]).any()


@pytest.mark.thorough
def test_sampled_statistics_have_the_expected_mean():
    """20,000 draws, 24 numbers, |z| < 4.5: false alarms below 2e-4."""
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (20_000, *leaf.shape)), natural(np.float32))
    drawn = COMPILED.sample(jax.random.key(11), repeated)
    for t, expected in zip(drawn, COMPILED.mean(natural(np.float32)), strict=True):
        assert t.dtype == jnp.float32
        t = np.asarray(t, np.float64)
        error = t.std(0) / np.sqrt(len(t)) + 1e-5 * (1 + np.abs(expected))
        np.testing.assert_array_less(np.abs(t.mean(0) - np.asarray(expected)), 4.5 * error)


@pytest.mark.thorough
def test_numpyro_has_none():
    with pytest.raises(ValueError, match="one precision matrix"):
        FAMILY.to_numpyro(natural(np.float32))
