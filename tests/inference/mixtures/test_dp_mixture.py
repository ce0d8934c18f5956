"""The Dirichlet-process mixture: a bound on the process that rises with truncation, simulation, tables."""

from functools import partial

import jax
import mixture_cases as cases
import numpy as np
import partition_oracles as exact
import pytest
from fits_without_parameters import fit_without_parameters
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import chisquare
from tiers import in_tiers

import lvsearch as lv
from lvsearch.comparison.alignment import component_map
from lvsearch.fitted.occupied_posterior import occupied_table, plot_side_by_side, side_by_side
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.mixtures import (
    chinese_restaurant,
    log_block_count_prior,
    log_partition_prior,
    occupied_along,
    occupied_under,
    polya_urn,
    stick_breaking,
)
from lvsearch.models.dp_mixture import DPMixture
from lvsearch.models.hyperpriors import GammaPrior

N_DRAWS = 4000


# ── the bound ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.parametrize("kind", in_tiers(cases.CASES, lambda kind: kind is cases.BERNOULLI, lambda kind: kind.name))
@pytest.mark.parametrize(
    "concentration",
    [pytest.param(2.0, id="given"), pytest.param(GammaPrior(2.0, 1.5), id="Gamma", marks=pytest.mark.slow)],
)
def test_bound_rises_with_truncation_and_stays_below_the_process(kind, concentration):
    """All partitions of seven rows, α on a grid: at T = 1, 2, 4, 8 the best of two fits from scratch and of the smaller
    truncation's fit, grown."""
    if isinstance(concentration, GammaPrior):
        prior = exact.gamma_process_prior(2.0, 1.5)
    else:
        prior = partial(exact.log_process_prior, alpha=concentration)
    truth = exact.log_evidence(kind.rows, kind.log_marginal, prior)
    data = lv.Points.from_array(kind.rows, missing="nan").dataset()
    found = estimator(DPMixture(kind.component, concentration), data)
    best, smaller = [], None
    for truncation in (1, 2, 4, 8):
        starts = [None] if smaller is None else [None, None, smaller]
        fits = [found.fit((truncation,), jax.random.key(k), start) for k, start in enumerate(starts)]
        smaller = max(fits, key=lambda fit: fit.log_lower)
        best.append(smaller.log_lower)
    if not isinstance(concentration, GammaPrior):
        # with α inferred, each further stick is factorised from it and costs some
        assert np.diff(best).min() > -1e-3
        assert best[-1] > best[0] + 0.1
    assert max(best) <= truth + 1e-9
    assert truth - best[-1] < 8  # seven rows that several partitions explain: mean field knows one of them


@pytest.mark.slow  # that bounds stay below the process is in a shorter tier
def test_the_truncated_process_is_no_bound_on_the_process():
    """Why V_T keeps its prior: at T = 2 the truncated model's evidence exceeds the process's (α = 3, rows alike)."""
    rows = np.array([[0.1], [-0.2], [0.05], [0.3], [-0.1]])
    marginal = exact.known_marginal(np.array([[1.0]]), np.zeros(1), 1.0)
    process = exact.log_evidence(rows, marginal, partial(exact.log_process_prior, alpha=3.0))
    truncated = exact.log_evidence(rows, marginal, partial(exact.log_truncated_prior, truncation=2, alpha=3.0))
    assert truncated > process + 0.1
    model = DPMixture(lv.models.KnownCovarianceComponents(1.0, 0.0, 1.0), 3.0)
    found = estimator(model, lv.Points.from_array(rows).dataset())
    assert found.fit((2,), jax.random.key(0), None).log_lower < process


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind", [cases.BERNOULLI, pytest.param(cases.FULL, marks=pytest.mark.slow)], ids=lambda kind: kind.name
)
def test_weights_and_what_is_left_over_sum_to_one(kind):
    data = lv.Points.from_array(kind.rows, missing="nan").dataset()
    model = DPMixture(kind.component, GammaPrior(2.0, 1.5))
    estimate = estimator(model, data).fit((4,), jax.random.key(0), None)
    weights, left = model.expected_weights(estimate.natural)
    assert weights.sum() + left == pytest.approx(1, abs=1e-12)
    assert left > 1e-4
    assert np.all(np.diff(np.asarray(estimate.natural["sticks"].log_value)) <= 1e-3)  # sticks in order of size


def test_process_has_no_plug_in_form_and_no_estimated_components():
    with pytest.raises(ValueError, match="no plug-in form"):
        DPMixture().plug_in()
    with pytest.raises(ValueError, match="expected components with a prior"):
        DPMixture(lv.models.BernoulliComponents().plug_in())


# ── simulation ──────────────────────────────────────────────────────────────────────────────────────────────────────


def drawn_partitions(name: str, n: int, alpha: float) -> np.ndarray:
    keys = jax.random.split(jax.random.key(4), N_DRAWS)
    if name == "sticks":
        return np.array([stick_breaking(key, n, alpha) for key in keys])
    scheme = chinese_restaurant if name == "restaurant" else polya_urn
    return np.asarray(jax.jit(jax.vmap(lambda key: scheme(key, n, alpha)))(keys))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["restaurant", "urn", "sticks"])
def test_three_constructions_have_the_same_law(name):
    """Frequencies of all 15 partitions of four against the formula: χ², false alarm 1e-4."""
    every = list(exact.partitions(4))
    drawn = drawn_partitions(name, 4, 1.4)
    counts = np.array([(drawn == labels).all(1).sum() for labels in every])
    probability = np.exp([log_partition_prior(exact.sizes(labels), 1.4) for labels in every])
    np.testing.assert_allclose(probability.sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(np.log(probability), [exact.log_process_prior(p, 1.4) for p in every], rtol=1e-10)
    assert counts.sum() == N_DRAWS
    assert chisquare(counts, N_DRAWS * probability).pvalue > 1e-4
    assert chisquare(counts, N_DRAWS * probability[::-1]).pvalue < 1e-8


@pytest.mark.parametrize("concentration", [1.4, GammaPrior(2.0, 1.5)])
def test_block_count_prior_is_the_sum_over_partitions(concentration):
    prior = exact.gamma_process_prior(2.0, 1.5) if isinstance(concentration, GammaPrior) else None
    log_p = prior or partial(exact.log_process_prior, alpha=1.4)
    by_count = np.zeros(6)
    for labels in exact.partitions(6):
        by_count[max(labels)] += np.exp(log_p(labels))
    np.testing.assert_allclose(np.exp(log_block_count_prior(6, concentration)), by_count, rtol=1e-6)


@pytest.mark.parametrize(("shape", "rate"), [(0.01, 0.01), (0.03, 1.0), (0.05, 0.02), (1.0, 1000.0), (300.0, 2.0)])
def test_block_count_prior_integrates_vague_and_narrow_gamma_priors(shape, rate):
    """Against adaptive quadrature in log α. A vague prior has most of its mass at α that floats cannot hold."""
    n = 5
    stirling = np.array([24, 50, 35, 10, 1])  # c(5, K)

    def density(u: float, k: int) -> float:
        log_prior = shape * (u + np.log(rate)) - rate * np.exp(u) - gammaln(shape)
        # Γ(α) / Γ(α + 5), and α^K, with one α cancelled
        return np.exp(log_prior + (k - 1) * u - np.log(np.exp(u) + np.arange(1, n)).sum())

    low, high = -35 - np.log(rate), np.log((shape + n + 12 * np.sqrt(shape + n) + 40) / rate)
    truth = [quad(density, low, high, (k,), epsabs=0, epsrel=1e-10, limit=500)[0] for k in range(1, n + 1)]
    truth[0] += np.exp(shape * (low + np.log(rate)) - gammaln(shape + 1)) / 24  # below `low`: one block
    found = np.exp(log_block_count_prior(n, GammaPrior(shape, rate)))
    np.testing.assert_allclose(found, stirling * truth, rtol=1e-7)
    assert found.sum() == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("n", [1, 200])
@pytest.mark.parametrize("shape", [0.01, 0.03, 0.05, 1.0, 1e5])
def test_block_count_prior_sums_to_one(n, shape):
    assert np.exp(log_block_count_prior(n, GammaPrior(shape, 0.1))).sum() == pytest.approx(1, abs=1e-7)


# ── occupied components, side by side ───────────────────────────────────────────────────────────────────────────────


def test_occupied_counts_follow_the_shares():
    """Two rows: certain and even odds: one component with probability ½."""
    counts = occupied_under(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), np.random.default_rng(0), 4000)
    assert counts.sizes.tolist() == [1, 2]
    assert abs(counts.probability[0] - 0.5) < 4.5 * counts.standard_error[0]
    chain = occupied_along(np.array([2, 2, 3, 2] * 100))
    np.testing.assert_allclose(chain.probability, [0.75, 0.25])
    assert np.all(chain.standard_error < 0.01)


@pytest.mark.thorough
def test_occupied_posterior_has_the_table_form():
    """The columns of a size search, and both in one picture."""
    rows = np.concatenate([cases.VALUES, cases.VALUES + 9])
    fit = lv.fit(DPMixture(lv.models.DiagonalComponents.scaled_to(rows), 1.0), rows, size=6)
    table = fit.occupied_under_fit(draws=200)
    finite = lv.search(
        lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(rows)),
        rows,
        prior=lv.sizes.Poisson(2),
        max_size=3,
        starts=1,
        evidence="bound",
        progress=False,
    )
    assert list(table.columns) == list(finite.posterior().columns)
    assert table.probability.sum() == pytest.approx(1)
    np.testing.assert_allclose(table.log_prior, log_block_count_prior(14, 1.0)[table["size"] - 1])
    tables = {"finite": finite.posterior(), "process": table}
    both = side_by_side(tables)
    np.testing.assert_allclose(both.sum(), 1, atol=1e-6)
    axes = plot_side_by_side(tables)
    assert axes.get_xlabel()
    assert len(axes.get_legend().get_texts()) == 2
    assert occupied_table(occupied_along(np.array([1, 2, 2]))).log_prior.isna().all()
    mapped = finite.component_map(2)
    assert mapped.overlap.shape == (2, 3)
    features = fit_without_parameters(lv.models.IBP(), rows)
    with pytest.raises(ValueError, match="whose units are not in one component each"):
        features.occupied_under_fit()


def test_component_map_finds_permutations_and_splits():
    rng = np.random.default_rng(0)
    small = np.eye(3)[np.repeat([0, 1, 2], [10, 20, 12])]
    large = np.eye(4)[np.concatenate([np.full(10, 2), np.full(12, 0), np.full(8, 3), np.full(12, 1)])]
    found = component_map(small, large)
    assert found.matched == ((0, 2), (1, 0), (2, 1))
    assert found.splits == {1: (0, 3)}
    assert component_map(large, small).merges == {1: (0, 3)}
    assert found.order().tolist() == [2, 0, 1, 3]
    assert found.describe() == "0 → 2, 1 → 0 + 3 (60%, 40%), 2 → 1"
    order = rng.permutation(4)
    assert component_map(large, large[:, order]).order().tolist() == np.argsort(order).tolist()
    with pytest.raises(ValueError, match="shares ≥ 0"):
        component_map(small, -large)
