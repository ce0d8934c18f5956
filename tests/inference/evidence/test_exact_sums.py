"""Spreads of cells that lie close together far from the origin, against fractions and against a fine grid."""

import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import Compiled
from scipy.special import logsumexp
from scipy.stats import dirichlet, gamma, norm
from tiers import in_tiers

from lvsearch.data.kinds import data_for
from lvsearch.inference.annealing.dispatch import evidence_chain
from lvsearch.inference.evidence.exact_sums import digits_of, number_of, sum_of_squares_about_mean, unit_of
from lvsearch.inference.evidence.independent_normal import IndependentNormalChain
from lvsearch.models import IndependentNormalMixture

SPREADS, OFFSETS = (1e-3, 1e-6, 1e-10, 1e-14), (0.0, 0.43, 1e3, 1e6)
pytestmark = pytest.mark.usefixtures("float64")


def fractions_about_mean(cells: np.ndarray) -> np.ndarray:
    """The deviations of the cells from their mean, without rounding until the end."""
    exact = [Fraction(float(cell)) for cell in cells]
    mean = sum(exact) / len(exact)
    return np.array([float(cell - mean) for cell in exact])


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("spread", SPREADS)
def test_spread_is_that_of_fractions_after_an_outlier_came_and_went(spread, offset):
    random = np.random.default_rng(0)
    cells = offset + spread * random.normal(size=7)
    others = np.array([-2.0 * offset - 3.0, 1e-3, 17.0])
    column = np.concatenate([cells, others])[:, None]
    totals, squares = digits_of(column, unit := unit_of(column))
    kept, shuffled = slice(0, len(cells)), random.permutation(len(column))
    sums = [jnp.zeros(digits.shape[0]) for digits in (totals, squares)]
    for row in shuffled:
        sums = [total + digits[:, row, 0] for total, digits in zip(sums, (totals, squares), strict=True)]
    for row in shuffled[shuffled >= len(cells)]:
        sums = [total - digits[:, row, 0] for total, digits in zip(sums, (totals, squares), strict=True)]
    expected = (fractions_about_mean(column[kept, 0]) ** 2).sum()
    found = float(sum_of_squares_about_mean(sums[0], sums[1], jnp.asarray(float(len(cells)))) * unit[0] ** 2)
    # a cell is rounded to whole units, which matters where the cells are as small as the spread
    assert found == pytest.approx(expected, rel=1e-13 + 4 * unit[0] / spread, abs=0)
    assert float(number_of(sums[0]) * unit[0]) == pytest.approx(column[kept, 0].sum(), rel=1e-14, abs=7 * unit[0])


def test_equal_cells_have_no_spread():
    column = np.full((1000, 1), 0.1)
    totals, squares = digits_of(column, unit_of(column))
    sums = (jnp.asarray(digits.sum(axis=(1, 2))) for digits in (totals, squares))
    assert float(sum_of_squares_about_mean(*sums, jnp.asarray(1000.0))) == 0


def log_marginal(cells: np.ndarray, kappa: float, alpha: float, beta: float) -> float:
    """A of `independent_normal` by the trapezium rule in log τ on a fine grid."""
    grid = np.linspace(-60, 90, 150_001)
    tau, n, mean = np.exp(grid), len(cells), cells.mean()
    square = (fractions_about_mean(cells) ** 2).sum() + kappa * n * mean**2 / (kappa + n * tau)
    log_integrand = (alpha + n / 2) * grid - beta * tau - 0.5 * tau * square
    log_integrand += 0.5 * np.log(2 * np.pi / (kappa + n * tau))
    return float(logsumexp(log_integrand) + np.log(grid[1] - grid[0]))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spread", "offset"),
    in_tiers(itertools.product(SPREADS, OFFSETS), {(1e-3, 0.0), (1e-14, 0.43), (1e-10, 1e6)}.__contains__),
)
def test_density_of_close_cells_is_that_of_a_fine_grid(spread, offset):
    """The rate β of the precisions is as small as the spread of the cells asks for, as the chain's draws make it."""
    scale = max(offset, 1.0)
    cells = offset + spread * np.random.default_rng(0).normal(size=6)
    model = IndependentNormalMixture(mean_precision=scale**-2)
    chain = evidence_chain(model, data_for(model, cells[:, None]).dataset(), (2,), None)

    @jax.jit
    def of_one_component(chain, log_rate):
        state = chain.state_from_labels(jnp.zeros((len(chain.mixture.weight), 1), jnp.int32), {"rate": log_rate})
        gains = chain.mixture.gains(state.mixture.natural, chain.prior(state.log_hyper))
        return gains.sum() + chain.mixture.log_carried(state.labels)[0], chain.log_density(state)

    given = scale**-2, 2.0, spread**2
    # without rows: Γ(α) β^−α √(2π/κ)
    before = 0.5 * np.log(2 * np.pi) + np.log(scale) - 2 * np.log(spread**2)
    expected = log_marginal(cells, *given) - before - 3 * np.log(2 * np.pi)
    found, log_density = of_one_component(chain, jnp.full((1, 1), 2 * np.log(spread)))
    assert float(found) == pytest.approx(expected, abs=1e-4)
    assert np.isfinite(np.asarray(log_density)).all()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "spread", [*(pytest.param(spread, marks=pytest.mark.slow) for spread in SPREADS[:3]), SPREADS[3]]
)
def test_all_latents_have_the_density_and_precision_of_close_cells(spread):
    """Σ (y − μ)² and log p(rows, latents) of the chain over all latent variables, one by one in NumPy."""
    random = np.random.default_rng(0)
    cells = 0.43 + spread * random.normal(size=6)
    model = IndependentNormalMixture()
    chain = IndependentNormalChain.from_data(model, data_for(model, cells[:, None]).dataset(), 2, 2)
    labels, weights = np.array([0, 1, 0, 0, 1, 0], np.int32), [0.3, 0.7]
    means, precisions, rate = np.array([0.43, cells[1]]), np.array([2.0, 3.0]) / spread**2, spread**2
    compiled = Compiled(chain)
    state = jax.jit(lambda chain, key: chain.init(key, 1))(chain, jax.random.key(0))
    state = state._replace(
        labels=jnp.asarray(np.resize(labels, state.labels.shape)),  # what rows of padding have does not count
        log_weights=jnp.log(jnp.asarray(weights))[:, None],
        mean=jnp.asarray(means)[:, None, None],
        precision=jnp.asarray(precisions)[:, None, None],
        rate=jnp.full((1, 1), rate),
    )
    squares = np.asarray(compiled._squares_about_means(state))[:, 0, 0]
    np.testing.assert_allclose(squares, [((cells[labels == k] - means[k]) ** 2).sum() for k in (0, 1)], rtol=1e-12)
    expected = norm(means[labels], precisions[labels] ** -0.5).logpdf(cells).sum() + np.log(weights)[labels].sum()
    expected += norm.logpdf(means).sum() + gamma(2.0, scale=1 / rate).logpdf(precisions).sum()
    expected += gamma(0.2, scale=1 / 10.0).logpdf(rate) + dirichlet([1.0, 1.0]).logpdf(weights)
    assert float(compiled.log_density(state)[0]) == pytest.approx(expected, rel=1e-9)
