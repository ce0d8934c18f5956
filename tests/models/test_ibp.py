"""What is true of the Indian buffet model besides what the table of models tests.

False alarms: as in `test_gibbs.py`, |z| < 4.5 for at most 40 numbers.
"""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.stats import chisquare, norm, poisson

from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.engine.estimator import GenericEstimator
from lvsearch.inference.engine.meanfield import ascend, cast
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.evidence import anneal, effort, evidence_chain, temperature_profile
from lvsearch.models import IBP, GammaPrior, Row
from lvsearch.models.contract import log_relabellings
from lvsearch.models.families import GaussianStatistics
from lvsearch.searching.evaluators import brackets_of
from lvsearch.sizing.evidence import pooled

Z_LIMIT = 4.5
SEEDS = {0: 32, 1: 32, 4: 24, 5: 24, 6: 24}
"""Sets of the campaign on stated errors, and how often each is annealed."""
VALUES = np.array([[1.3, -0.2, 0.7], [0.4, 2.1, -1.0], [1.9, 1.7, 0.1]])
OBSERVED = np.array([[True, True, False], [True, True, True], [False, True, True]])


def one_batch(values: np.ndarray, observed: np.ndarray | None = None) -> Dataset:
    mask = np.ones(values.shape, bool) if observed is None else observed
    n_rows, n_columns = values.shape
    batch = Batch(Row(values.astype(np.float32), mask), np.ones(n_rows, np.float32))
    return Dataset.of_batches((batch,), (np.arange(n_rows),), {"dim": n_columns}, n_rows)


# ── the log-joint ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_expected_log_unit_is_exact():
    """E_q log p(z, x | A, π) by summing over all z: pairs are off the diagonal, E A² and z² = z no squared means."""
    rng = np.random.default_rng(0)
    mean, variance = rng.standard_normal((3, 4)), rng.gamma(2.0, 0.5, (3, 4))
    probability, log_pi, log_not = rng.random(3), -rng.gamma(1.0, 1.0, 3), -rng.gamma(1.0, 1.0, 3)
    x, observed = rng.standard_normal(4), np.array([True, False, True, True])
    model = IBP(1.0, 1.0, 2.5)
    expected = 0.0
    for z in np.array(list(product([0.0, 1.0], repeat=3))):
        weight = np.prod(np.where(z > 0, probability, 1 - probability))
        density = norm.logpdf(x, z @ mean, 2.5**-0.5) - 0.5 * 2.5 * (z @ variance)
        expected += weight * (np.where(z > 0, log_pi, log_not).sum() + density[observed].sum())
    with jax.enable_x64(True):
        g = {
            "sticks": IBP().globals()["sticks"].family.statistics_type(log_pi, log_not),
            "loadings": GaussianStatistics(mean, -0.5 * (variance + mean**2)),
        }
        unit = Row(np.where(observed, x, np.nan), observed)
        value = model.log_unit(g, {"features": jnp.asarray(probability)}, unit, model.active((3,), (3,)))
        np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_bound_is_below_the_evidence_with_every_prior(float64):
    """Concentration and both precisions inferred, cells missing; one feature and two. The gap is mean field's."""
    model = IBP(GammaPrior(2.0, 1.5), GammaPrior(3.0, 4.0), GammaPrior(4.0, 2.0))
    grids = [oracles.gamma_grid(2.0, 1.5), oracles.gamma_grid(3.0, 4.0), oracles.gamma_grid(4.0, 2.0)]
    data = cast(one_batch(VALUES, OBSERVED), np.float64)
    for size in ((1,), (2,)):
        start = scattered_start(model, jax.random.key(0), data, size, (2,), np.float64)
        end = ascend(model, data, start, size, capacity=(2,), sweeps=500, tolerance=1e-12)
        gap = oracles.features_log_evidence(VALUES, OBSERVED, size[0], *grids) - end.trace[-1]
        assert 0 < gap < 5
        assert np.diff(end.trace).min() > -1e-10


def test_finite_evidence_tends_to_that_of_the_process():
    """The two oracles agree in the limit: the difference is c/K + O(1/K²), and extrapolating 1/K to 0 removes it."""
    values, observed = VALUES[:2, :1], np.ones((2, 1), bool)
    grids = oracles.known(0.8), oracles.known(0.5), oracles.known(4.0)
    at_8, at_16 = (oracles.features_log_evidence(values, observed, k, *grids) for k in (8, 16))
    infinite = oracles.buffet_posterior(values, observed, 0.8, 0.5, 2**0.5, 9).log_evidence
    assert abs(at_16 - infinite) < abs(at_8 - infinite) / 1.8
    assert abs(2 * at_16 - at_8 - infinite) < abs(at_16 - infinite) / 5


# ── what lecture 23 says of the process ─────────────────────────────────────────────────────────────────────────────

ALPHA, N_ROWS, MANY, DRAWS = 2.0, 12, 60, 3000


@cache
def simulated() -> np.ndarray:
    """Features (draw, row, K) of the finite model."""
    model, units = IBP(ALPHA, 1.0, 1.0), Row(np.zeros((N_ROWS, 1), np.float32), np.ones((N_ROWS, 1), bool))
    draw = jax.jit(jax.vmap(lambda key: model.simulate(key, (MANY,), units, {"dim": 1})[1]["features"]))
    return np.asarray(draw(jax.random.split(jax.random.key(0), DRAWS)), np.float64)


def z_of(samples: np.ndarray, truth: float) -> float:
    return float(abs(samples.mean() - truth) / (samples.std(ddof=1) / np.sqrt(len(samples))))


@pytest.mark.thorough
def test_a_row_has_alpha_features():
    """αK/(K + α) on average, which tends to α; their number is Poisson(α) in the limit."""
    per_row = simulated().sum(2)
    truth = ALPHA * MANY / (MANY + ALPHA)
    assert z_of(per_row.mean(1), truth) < Z_LIMIT
    assert truth == pytest.approx(ALPHA, rel=0.04)
    counts = np.bincount(per_row[:, 5].astype(int), minlength=8)[:8]
    expected = poisson.pmf(np.arange(8), truth)
    assert np.abs(counts / DRAWS - expected).max() < 0.03  # the binomial of K = 60 is this close, and noise is 0.008


@pytest.mark.thorough
def test_all_rows_together_have_n_alpha_ones():
    assert z_of(simulated().sum((1, 2)), N_ROWS * ALPHA * MANY / (MANY + ALPHA)) < Z_LIMIT


@pytest.mark.thorough
def test_features_grow_harmonically():
    """n rows have K(1 − Π_i i/(i + α/K)) features on average, α H_n in the limit: each row brings fewer."""
    opened = np.cumsum(simulated(), axis=1) > 0
    used = opened.sum(2)  # (draw, rows so far)
    ratio = np.arange(1, N_ROWS + 1) / (np.arange(1, N_ROWS + 1) + ALPHA / MANY)
    exact = MANY * (1 - np.cumprod(ratio))
    assert max(z_of(used[:, n], exact[n]) for n in range(N_ROWS)) < Z_LIMIT
    harmonic = ALPHA * np.cumsum(1 / np.arange(1, N_ROWS + 1))
    np.testing.assert_allclose(exact, harmonic, rtol=0.06)
    assert (np.diff(used.mean(0), n=2) < 0.02).all()
    tail = np.bincount(used[:, -1], minlength=14)[:14]
    assert np.abs(tail / DRAWS - poisson.pmf(np.arange(14), exact[-1])).max() < 0.03


@pytest.mark.thorough
def test_popular_features_become_more_popular():
    """P(z_{n+1,k} = 1 | m of n) = (m + α/K)/(n + 1 + α/K): the finite form of m/(n + 1)."""
    z = simulated()
    before, after = z[:, :-1].sum(1).astype(int), z[:, -1]
    for m in range(1, 6):
        followed = after[before == m]
        assert z_of(followed, (m + ALPHA / MANY) / (N_ROWS + ALPHA / MANY)) < Z_LIMIT


@pytest.mark.thorough
def test_rows_are_exchangeable():
    """Which of the rows comes first says nothing: the first row with a feature that one row has is uniform."""
    z = simulated()
    alone = z.sum(1) == 1
    owners = z.argmax(1)[alone]
    assert chisquare(np.bincount(owners, minlength=N_ROWS)).pvalue > 1e-4


# ── the model's words and limits ────────────────────────────────────────────────────────────────────────────────────


def test_what_the_model_says_of_itself():
    assert IBP(2.0, 1.0, 4.0).describe() == (
        "IBP: concentration 2, spread evenly (sticks ~ Beta(2/K, 1)); loading precision 1; noise precision 4"
    )
    assert "concentration ~ Gamma(1, rate 1), spread evenly (sticks ~ Beta(α/K, 1))" in IBP().describe()
    assert list(IBP().globals()) == ["concentration", "loading_precision", "noise_precision", "sticks", "loadings"]
    assert list(IBP(1.0, 1.0, 1.0).globals()) == ["sticks", "loadings"]
    with pytest.raises(ValueError, match=r'evidence="marginal"'):
        IBP().plug_in()
    for wrong in (0.0, -1.0, np.nan, [1.0, 2.0], GammaPrior(0.0, 1.0)):
        with pytest.raises(ValueError, match=r"positive|finite"):
            IBP(concentration=wrong)


def test_ceiling_is_the_density_at_the_mean():
    """Reached where the features fit exactly; below 0 where the noise is wide."""
    units = Row(VALUES, OBSERVED)
    assert IBP(1.0, 1.0, 0.5).ceiling(units) == pytest.approx(7 * norm.logpdf(0, scale=2**0.5))
    assert IBP(1.0, 1.0, GammaPrior()).ceiling(units) == np.inf
    evidence = oracles.features_log_evidence(
        0 * VALUES, OBSERVED, 2, oracles.known(1.0), oracles.known(1e8), oracles.known(0.5)
    )
    assert evidence == pytest.approx(IBP(1.0, 1.0, 0.5).ceiling(units), abs=1e-6)


def test_relabellings_of_equal_rows():
    rows = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0 + 1e-6], [0.0, 0.0]])
    assert log_relabellings(rows) == pytest.approx(np.log(12))
    assert log_relabellings(rows[:0]) == 0


# ── how many features ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_four_features_are_found():
    """Four blocks of three columns: the evidence estimate (bound + log relabellings) rises to 4, and the expected
    features are the true ones."""
    model, rng = IBP(), np.random.default_rng(2)
    blocks = np.kron(np.eye(4), np.ones(3)) * rng.uniform(1, 2, 12)
    truth = rng.random((40, 4)) < 0.5
    data = one_batch(truth @ blocks + 0.4 * rng.standard_normal((40, 12)))
    estimator = GenericEstimator(model, data)
    estimates, fits = {}, {}
    for size in (3, 4, 5):
        tries = [estimator.fit((size,), jax.random.key(seed), None) for seed in range(2)]
        fits[size] = max(tries, key=lambda fit: fit.log_lower)
        estimates[size] = fits[size].log_lower + model.log_symmetry((size,), fits[size].natural)
    assert max(estimates, key=lambda size: estimates[size]) == 4
    assert estimates[4] > estimates[3] + 20
    loadings = fits[4].natural["loadings"]
    found = loadings.value / loadings.negative_half_square
    strong = np.abs(found) > 0.5
    assert sorted(tuple(np.flatnonzero(row)) for row in strong) == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]


# ── what the annealed evidence says of its own error ────────────────────────────────────────────────────────────────


def campaign_set(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Five rows, three columns, two planted features, a quarter of the cells missing: (values, observed)."""
    rng = np.random.default_rng(number)
    features, loadings = rng.random((5, 2)) < 0.5, rng.normal(size=(2, 3)) * 1.3
    values = (features @ loadings + 0.5 * rng.normal(size=(5, 3))).astype(np.float32)
    observed = rng.random((5, 3)) < 0.75
    observed[0] = True
    return values.astype(np.float64), observed


def z_of_annealed_evidence(number: int, seeds: int) -> np.ndarray:
    """(estimate − exact) / stated error over seeds, for one set, at the cheapest annealing; all three priors Gamma."""
    values, observed = campaign_set(number)
    truth = oracles.features_log_evidence(values, observed, 2, *[oracles.gamma_grid(1.0, 1.0, 90)] * 3)
    data, found = one_batch(np.where(observed, values, 0.0), observed), []
    for seed in range(seeds):
        chain = evidence_chain(IBP(), data, (2,), None)
        work, key = effort(chain, 0), jax.random.key(1000 * number + seed)
        ends = anneal(chain, key, work, temperature_profile(chain, jax.random.fold_in(key, 7), work))
        found.append(pooled(brackets_of(ends, work)))
    return np.array([(each.estimate - truth) / each.standard_error for each in found])


@pytest.mark.slow
def test_errors_of_annealed_evidence_with_missing_cells_are_true():
    """136 annealings of five sets: errors are as large as stated, and few are twice as large; on no set much larger."""
    by_set = [z_of_annealed_evidence(number, seeds) for number, seeds in SEEDS.items()]
    z = np.concatenate(by_set)
    assert 0.9 < np.sqrt((z**2).mean()) < 1.1
    assert (np.abs(z) > 2).mean() <= 0.07
    assert max(np.sqrt((each**2).mean()) for each in by_set) < 1.35
