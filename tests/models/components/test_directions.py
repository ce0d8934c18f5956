"""Directions: the average of an exponential over the sphere, the family of their parameters, and planted clusters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import Compiled
from scipy.special import gammaln, ive
from scipy.stats import vonmises_fisher
from tiers import in_tiers

import lvsearch as lv
from lvsearch.models.components import VonMisesFisherComponents
from lvsearch.models.components.directions import (
    ConcentratedDirection,
    DirectionStatistics,
    draw_direction,
    log_average,
)
from lvsearch.models.units import Row

KAPPA = np.logspace(-3, 6, 181)
FAMILY = ConcentratedDirection((0.7, 3.0, 12.0, 60.0))
SUMS = np.random.default_rng(0).normal(size=(4, 5)) * np.array([[0.0], [0.2], [1.0], [8.0]])
NATURAL = DirectionStatistics(SUMS, np.array([0.0, 1.0, 3.0, 25.0]))  # pyright: ignore[reportArgumentType]


# ── the average over the sphere ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n_dims", in_tiers((2, 3, 5, 8, 10, 27, 64, 384), lambda n: n == 8, is_thorough=bool))
def test_average_over_the_sphere_is_a_bessel_function(n_dims, float64):
    """Compare the log, the ratio of two and the gradient by JAX with SciPy's, where these do not underflow."""
    order, square = n_dims / 2 - 1, KAPPA**2
    bessel, next_bessel = ive(order, KAPPA), ive(order + 1, KAPPA)
    known = (bessel > 1e-280) & (KAPPA > 0.3)
    found = jax.jit(lambda x: log_average(x, n_dims))(square)
    slope = jax.jit(jax.vmap(jax.grad(lambda x: log_average(x, n_dims).value)))(square)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.log(bessel) + KAPPA - order * np.log(KAPPA / 2) + gammaln(order + 1)
        ratio = next_bessel / bessel / KAPPA
    np.testing.assert_allclose(np.asarray(found.value)[known], exact[known], rtol=1e-10)
    np.testing.assert_allclose(np.asarray(found.slope)[known], ratio[known], rtol=1e-10)
    np.testing.assert_allclose(2 * np.asarray(slope), found.slope, rtol=1e-10)


@pytest.mark.parametrize("n_dims", in_tiers((2, 7, 768, 1536), lambda n: n == 768, is_thorough=bool))
def test_average_over_the_sphere_has_its_limits(n_dims):
    """Its power series for small κ, and κ less the logs of a Gaussian's volume for large κ."""
    small, large = np.array([0.0, 1e-3, 1e-2, 0.1]), 1e7 * n_dims
    series = small**2 / (2 * n_dims) - small**4 / (4 * n_dims**2 * (n_dims + 2))
    np.testing.assert_allclose(log_average(small**2, n_dims, np).value, series, rtol=1e-5, atol=1e-12)
    log_gaussian = large + gammaln(n_dims / 2) + (n_dims / 2 - 1) * np.log(2 / large) - 0.5 * np.log(2 * np.pi * large)
    found = log_average(np.float64(large) ** 2, n_dims, np).value
    assert found - large == pytest.approx(log_gaussian - large, rel=1e-6, abs=n_dims * 1e-5)


# ── the family ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_family_is_an_exponential_family(float64):
    """The prior has mass 1; expected statistics are the gradient of the log-normaliser, also where the sum of rows is
    0, and give the natural parameters back."""
    natural, family = jax.tree.map(jnp.asarray, NATURAL), Compiled(FAMILY)
    assert float(family.log_normaliser(natural)[0]) == pytest.approx(0, abs=1e-14)
    mean = family.mean(natural)
    gradient = jax.jit(jax.grad(lambda eta: FAMILY.log_normaliser(eta).sum()))(natural)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), gradient, mean)
    back = family.natural(mean)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), back, natural)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), family.mean(back), mean)
    point = family.point(natural)
    np.testing.assert_array_equal(family.value(point), mean.vector)
    np.testing.assert_allclose(point.log_constant, -log_average((mean.vector**2).sum(-1), 5).value, rtol=1e-12)


@pytest.mark.thorough
def test_draws_of_the_family_have_its_mean(float64):
    many = 5_000
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (many, *leaf.shape)), NATURAL)
    drawn, mean = Compiled(FAMILY).sample(jax.random.key(1), repeated), Compiled(FAMILY).mean(NATURAL)
    for each, expected in zip(jax.tree.leaves(drawn), jax.tree.leaves(mean), strict=True):
        each = np.asarray(each)
        assert (np.abs(each.mean(0) - expected) < 4.5 * each.std(0) / np.sqrt(many) + 1e-9).all()
    lengths = np.sqrt((np.asarray(drawn.vector) ** 2).sum(-1))
    assert np.abs(lengths[..., None] - np.array(FAMILY.concentrations)).min(-1).max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [0.0, 0.5, 30.0, 1e4])
@pytest.mark.parametrize("n_dims", [2, 3, 9])
def test_draws_of_rows_have_the_cosines_of_their_density(n_dims, kappa, float64):
    """The average and the average square of the cosine, by quadrature of the density of an angle."""
    vector = jnp.zeros(n_dims).at[1].set(kappa)
    rows = np.asarray(
        jax.jit(jax.vmap(lambda key: draw_direction(key, vector)))(jax.random.split(jax.random.key(2), 20_000))
    )
    assert np.abs((rows**2).sum(1) - 1).max() < 1e-12
    angle = (np.arange(200_000) + 0.5) * np.pi / 200_000
    weight = np.exp(kappa * (np.cos(angle) - 1)) * np.sin(angle) ** (n_dims - 2)
    for power in (1, 2):
        found, expected = rows[:, 1] ** power, (weight * np.cos(angle) ** power).sum() / weight.sum()
        assert abs(found.mean() - expected) < 4.5 * found.std() / np.sqrt(len(rows))


def test_what_numpyro_has_not_is_refused():
    with pytest.raises(ValueError, match="NumPyro has no distribution"):
        FAMILY.to_numpyro(NATURAL)


# ── the components ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_wrong_rows_and_arguments_are_refused():
    kind = VonMisesFisherComponents([1.0, 10.0])
    whole = np.ones((2, 3), bool)
    with pytest.raises(ValueError, match=r"got row 1 of length 2 .* np.linalg.norm"):
        kind.check(Row(np.array([[1.0, 0, 0], [0, 2, 0]]), whole))
    with pytest.raises(ValueError, match="a direction has all of its cells"):
        kind.check(Row(np.array([[1.0, 0, 0], [0, 1, 0]]), np.array([[True] * 3, [True, True, False]])))
    with pytest.raises(ValueError, match="at least 2 columns"):
        kind.check(Row(np.ones((2, 1)), whole[:, :1]))
    for wrong in ([], [0.0, 1.0], [2.0, 1.0], [1.0, np.inf], [[1.0]]):
        with pytest.raises(ValueError, match="expected positive numbers that rise"):
            VonMisesFisherComponents(wrong)
    for lowest, highest in ((5.0, 2.0), (0.0, None), (None, np.inf)):
        with pytest.raises(ValueError, match="expected 0 < lowest < highest"):
            VonMisesFisherComponents.weak(np.eye(3), lowest, highest)


def test_rows_of_nearly_unit_length_are_directions(float64):
    kind, row = VonMisesFisherComponents([1.0, 10.0]), np.array([0.6, 0.0, 0.8])
    other = kind.coordinates(Row(1.0005 * row, np.ones(3, bool)))
    np.testing.assert_allclose(other, row, rtol=1e-15)


def test_weak_components_have_concentrations_for_their_columns():
    """No value of κ is far from one of these, in units in which a row would notice."""
    for n_dims in (2, 8, 64, 384):
        values = np.array(VonMisesFisherComponents.weak(np.eye(n_dims)).concentrations)
        assert (values[0], values[-1]) == pytest.approx((n_dims / 10, 100 * n_dims))
        steps = np.diff(np.log(values))
        assert steps.max() <= 0.2
        assert (n_dims - 1) * steps.max() ** 2 / 16 <= 0.1


def planted(n_dims: int, n_rows: int, kappa: float) -> tuple[np.ndarray, np.ndarray]:
    """(directions about five mean directions, by SciPy; the number of each row's)."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(5, n_dims))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    labels = rng.integers(5, size=n_rows)
    laws = [vonmises_fisher(mean, kappa) for mean in means]  # pyright: ignore[reportArgumentType]
    return np.array([laws[label].rvs(1, random_state=rng)[0] for label in labels]), labels


@pytest.mark.slow
@pytest.mark.parametrize(("n_dims", "n_rows", "kappa"), [(8, 300, 20.0), (384, 600, 200.0)])
def test_search_finds_the_planted_number(n_dims, n_rows, kappa):
    rows, labels = planted(n_dims, n_rows, kappa)
    model = lv.models.FiniteMixture(VonMisesFisherComponents.weak(rows))
    result = lv.search(model, lv.Points.from_array(rows), seed=0, progress=False)
    assert result.best_size == (5,)
    found = result.best.transform(rows).argmax(1)
    together = (found[:, None] == found) == (labels[:, None] == labels)
    assert together.mean() > 0.95
