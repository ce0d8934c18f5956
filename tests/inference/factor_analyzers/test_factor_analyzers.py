"""Mixtures of factor analysers against densities without sums, quadrature, averages over the prior, and the generic
engine. That sweeps leave the posterior as it is: `test_exact_ranks.py`.
"""

from pathlib import Path
from typing import Any

import factor_oracles as exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import Compiled
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma, multivariate_normal
from sklearn.metrics import adjusted_rand_score

import lvsearch as lv
from lvsearch.inference.annealing.dispatch import Effort, anchored_chain, both_ways, temperature_profile
from lvsearch.inference.annealing.particles import draw_from_q
from lvsearch.inference.annealing.prefixes import grow, sequential, shrink
from lvsearch.inference.data.rows import rows
from lvsearch.inference.engine.meanfield import Beliefs, MeanField, ascend, cast
from lvsearch.inference.engine.meanfield_starts import blank_locals
from lvsearch.inference.evidence import evidence_chain
from lvsearch.inference.factor_analyzers import FactorAnalyzerChain, regressions
from lvsearch.inference.factor_analyzers.estimator import (
    FactorAnalyzerEstimator,
    ascend_scored,
    beliefs_at_labels,
    principal_scores,
)
from lvsearch.models import (
    DiagonalComponents,
    FactorAnalyzerComponents,
    FactorAnalyzerMixture,
    FiniteMixture,
    GammaPrior,
    Row,
)
from lvsearch.models.components.component import draw_parameters

RNG = np.random.default_rng(0)
RATE = np.array([0.4, 0.9])
PRIOR = (0.4, 0.7, 1.5, RATE)
"""κ, ℓ, shape and rate."""
MODEL = FactorAnalyzerMixture(FactorAnalyzerComponents(1, 0.0, 1.0, *PRIOR), 0.8)
ROWS = RNG.normal(size=(5, 2)) + 2 * (np.arange(5) % 2)[:, None]
LABELS = np.array([0, 1, 0, 2, 1])
SCORES = RNG.normal(size=(5, 1))


def dataset(values: np.ndarray) -> Any:
    return rows(values, np.ones(values.shape, bool))


def state_of(chain: FactorAnalyzerChain, log_hyper: dict[str, Any]) -> Any:
    """LABELS and SCORES, twice; rows of padding are in the last component, which must not matter."""
    more = len(chain.weight) - len(LABELS)
    labels = np.pad(LABELS, (0, more), constant_values=2)[:, None].repeat(2, 1)
    scores = np.pad(SCORES, [(0, more), (0, 0)], constant_values=9.0)[..., None].repeat(2, 2)
    return Compiled(chain).state_of(jnp.asarray(labels), jnp.asarray(scores), log_hyper)


def planted(n_dims: int = 6, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Three clusters, each long along a direction of its own, 150 rows, and which row is of which."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], 50)
    means, loadings = 2.0 * rng.normal(size=(3, n_dims)), 2.0 * rng.normal(size=(3, n_dims))
    factor = rng.normal(size=(150, 1))
    return means[labels] + factor * loadings[labels] + 0.6 * rng.normal(size=(150, n_dims)), labels


# ── the chain ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_density_of_labels_and_scores(float64):
    chain = evidence_chain(MODEL, dataset(ROWS), (3,), None)
    assert isinstance(chain, FactorAnalyzerChain)
    state = state_of(chain, {})
    expected = exact.log_joint(ROWS, LABELS, SCORES, 3, 0.8, *PRIOR)
    assert float(Compiled(chain).log_density(state)[0]) == pytest.approx(expected, abs=1e-9)
    of_rows = sum(exact.log_marginal(ROWS[k == LABELS], SCORES[k == LABELS], *PRIOR) for k in range(3))
    assert float(Compiled(chain).log_ratio(state)[0]) == pytest.approx(of_rows, abs=1e-9)


def test_hyper_priors_have_their_density(float64):
    """log p(rows, labels, scores, h) is what the numbers h give, beside the priors of h."""
    count, loading, rate = GammaPrior(1.5, 2.0), GammaPrior(2.0, 2.5), GammaPrior(2.0, 1.5)
    model = FactorAnalyzerMixture(FactorAnalyzerComponents(1, 0.0, 1.0, count, loading, 1.5, rate), 0.8)
    chain = evidence_chain(model, dataset(ROWS), (3,), None)
    numbers = {"pseudo_count": [0.4], "loading_count": [0.7], "rate": [0.4, 0.9]}
    log_hyper = {name: jnp.log(jnp.asarray(each))[:, None].repeat(2, 1) for name, each in numbers.items()}
    expected = exact.log_joint(ROWS, LABELS, SCORES, 3, 0.8, *PRIOR)
    expected += gamma(1.5, scale=1 / 2.0).logpdf(0.4) + gamma(2.0, scale=1 / 2.5).logpdf(0.7)
    expected += gamma(2.0, scale=1 / 1.5).logpdf([0.4, 0.9]).sum()
    assert float(Compiled(chain).log_density(state_of(chain, log_hyper))[0]) == pytest.approx(expected, abs=1e-9)


def test_rows_that_came_in_part(float64):
    """p(rows | parameters)^t averaged over the prior of one column: 3e5 draws, within 4.5 of their standard error; and
    what a row adds is the ratio of two."""
    chain = evidence_chain(MODEL, dataset(ROWS), (3,), None)
    share, rng, n = 0.3, np.random.default_rng(3), 300_000

    @jax.jit
    def gains(chain: Any, state: Any) -> tuple[Any, Any, Any]:
        """Return the log gains of all rows, of one row given the others, and of the others."""
        prior, left = chain.prior({}, 2), chain.remove_row(state, jnp.asarray(1))
        others = regressions.scale_sums(left.sums, share)
        scores = jnp.asarray(SCORES[1])[None, None, :, None] * jnp.ones((8, 1, 1, 2))
        each = regressions.posterior_regressions(others, prior)
        adds = regressions.log_row(each, scores, jnp.asarray(ROWS[1]), jnp.asarray(share))[LABELS[1], 0, 0]
        whole = regressions.log_gains(regressions.scale_sums(state.sums, share), prior)
        return whole[:, 0], adds, regressions.log_gains(others, prior)[:, 0].sum()

    found, adds, before = (np.asarray(each) for each in gains(chain, state_of(chain, {})))
    precision = rng.gamma(1.5, 1 / RATE[0], size=(n, 3))
    mean, loading = rng.normal(size=(2, n, 3)) / np.sqrt(np.array([0.4, 0.7])[:, None, None] * precision)
    log = np.zeros(n)
    for row, label, score in zip(ROWS[:, 0], LABELS, SCORES[:, 0], strict=True):
        away = row - mean[:, label] - loading[:, label] * score
        log += share * (0.5 * np.log(precision[:, label]) - 0.5 * precision[:, label] * away**2)
    average, error = logsumexp(log) - np.log(n), np.exp(log).std() / np.exp(log).mean() / np.sqrt(n)
    assert abs(found[0] - average) < 4.5 * error < 0.05
    assert float(adds) == pytest.approx(found.sum() - float(before), abs=1e-10)


def test_candidates_average_to_what_a_row_is_worth(float64):
    """Over 4,096 particles at one state, against quadrature over the score; within 4.5 standard errors."""
    chain, n = evidence_chain(MODEL, dataset(ROWS), (3,), None), 4096
    left = Compiled(chain).remove_row(state_of(chain, {}), jnp.asarray(1))
    wide = Compiled(chain).take(left, jnp.zeros(n, int))
    found = Compiled(chain).candidates(jax.random.key(0), wide, jnp.asarray(1))
    assert np.isneginf(np.asarray(found.log_weight)[3:]).all()
    grid = np.linspace(-8, 8, 401)
    others = np.arange(5) != 1
    for component in range(3):
        members = others & (component == LABELS)
        alone = exact.log_marginal(ROWS[members], SCORES[members], *PRIOR)
        both = [
            exact.log_marginal(np.vstack([ROWS[members], ROWS[1]]), np.vstack([SCORES[members], [[f]]]), *PRIOR)
            for f in grid
        ]
        density = np.exp(np.array(both) - alone - 0.5 * grid**2) / np.sqrt(2 * np.pi)
        expected = (members.sum() + 0.8) * np.trapezoid(density, grid) * (2 * np.pi) ** 1  # both leave out log 2π
        weight = np.exp(np.asarray(found.log_weight)[component]).mean(0)
        assert abs(weight.mean() - expected) < 4.5 * weight.std() / np.sqrt(n) < 0.1 * expected


def test_inverses_written_out(float64):
    root = np.random.default_rng(4).normal(size=(3, 4, 4))
    matrix = root @ np.swapaxes(root, 1, 2) + np.eye(4)
    found, log_det = regressions.inverse(jnp.moveaxis(jnp.asarray(matrix), 0, -1))
    np.testing.assert_allclose(np.moveaxis(np.asarray(found), -1, 0), np.linalg.inv(matrix), rtol=1e-9)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(matrix)[1], rtol=1e-10)
    lower = regressions.lower_root(jnp.moveaxis(jnp.asarray(matrix), 0, -1))
    np.testing.assert_allclose(np.moveaxis(np.asarray(lower), -1, 0), np.linalg.cholesky(matrix), atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
def test_evidence_is_the_average_over_the_prior(size):
    """Both ways along the rows, and forward about labels, within 4.5 standard errors of their difference. Back from the
    posterior of five rows, whose labels change at once, particles miss other labellings than that of q: they end above
    by up to log K!."""
    expected, error = exact.log_evidence(ROWS, size, 1, 0.8, *PRIOR, draws=1_000_000)
    chain, work = evidence_chain(MODEL, dataset(ROWS), (size,), None), Effort(48, 8, 32)
    with jax.enable_x64(True):
        ends = draw_from_q(chain, jax.random.key(0), particles=64)
    anchor = anchored_chain(chain, jax.random.key(1), (ends,))
    assert anchor is not None
    for path in (chain, anchor.chain):
        found, _ = both_ways(path, jax.random.key(2), work, temperature_profile(path, jax.random.key(3), work))
        n = len(found.forward)
        for sign, each in ((1, found.forward), (-1, found.backward)):
            limit = 4.5 * np.hypot(error, each.std() / np.sqrt(n))
            above = sign * (logsumexp(sign * each) - np.log(n)) - expected
            assert -limit < above < limit + (path is not chain) * (sign < 0) * gammaln(size + 1)
            assert limit < 0.6


@pytest.mark.slow
def test_rows_that_go_again_have_the_evidence_of_rows_that_come_under_wide_priors():
    """Back to the priors of hyper-parameters themselves, weights have an infinite variance: a spread of .79."""
    values = np.random.default_rng(0).normal(size=(6, 5))
    model = FactorAnalyzerMixture(FactorAnalyzerComponents.weak(values))
    sampler = sequential(evidence_chain(model, dataset(values), (1,), None), jax.random.key(1))
    there = grow(sampler, jax.random.key(2), 8, islands=10, particles=256)
    back = shrink(sampler, jax.random.key(3), there.state, 8, islands=10)
    assert there.log_evidence[5].std() < 0.25
    assert back.log_evidence.std() < 0.25
    assert back.log_evidence.mean() == pytest.approx(there.log_evidence[5].mean(), abs=0.2)


# ── components ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_rows_given_parameters_and_given_rows(float64):
    """SciPy's density; and an average over parameters drawn, 3e4 of them."""
    component = FactorAnalyzerComponents(2, np.array([0.3, -1.0, 0.1]), 1.7, 0.5, 0.8, 2.0, 0.6)
    unit = Row(jnp.asarray([0.4, -0.2, 1.3]), jnp.ones(3, bool))
    parameters = jax.jit(lambda key: draw_parameters(component, key, 30_000, 3))(jax.random.key(0))
    log = np.asarray(Compiled(component).log_densities(parameters, unit))
    for k in range(3):
        moments = Compiled(component).moments(jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], parameters))
        assert log[k] == pytest.approx(multivariate_normal(*map(np.asarray, moments)).logpdf(unit.value), abs=1e-9)
    natural = jax.tree.map(lambda leaf: np.asarray(leaf)[None], component.prior(3))
    found = float(Compiled(component).log_predictives(natural, unit)[0])
    density = np.exp(log)
    assert abs(np.exp(found) - density.mean()) < 4.5 * density.std() / np.sqrt(len(log)) < 0.05 * density.mean()


def test_what_is_no_mixture_of_factor_analysers_is_refused():
    with pytest.raises(ValueError, match="expected FactorAnalyzerComponents"):
        FactorAnalyzerMixture(DiagonalComponents())
    with pytest.raises(ValueError, match="FactorAnalyzerMixture\\(components\\) is their mixture"):
        FiniteMixture(FactorAnalyzerComponents())
    with pytest.raises(ValueError, match="got n_factors=4, expected 1 to 3"):
        FactorAnalyzerComponents(4)
    with pytest.raises(ValueError, match="no plug-in form"):
        MODEL.plug_in()
    holed = lv.Points.from_array(np.where(np.eye(5, 2) > 0, np.nan, ROWS), missing="nan")
    with pytest.raises(ValueError, match="missing cells"):
        lv.fit(MODEL, holed, size=2)


@pytest.mark.slow  # of numbers that are given: `test_models.py`
def test_the_contract_is_kept():
    weak = FactorAnalyzerMixture(FactorAnalyzerComponents.weak(ROWS))
    lv.models.check(weak, lv.Points.from_array(ROWS))


# ── fits and searches ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_ascent_is_that_of_the_generic_engine(float64):
    """Bounds after every sweep, from the same labels and scores."""
    data, size, capacity = dataset(ROWS), (3,), (4,)
    fitting = FactorAnalyzerEstimator(MODEL, data)
    labels = np.pad(LABELS, (0, 3), constant_values=-1)
    shares = (labels[:, None] == np.arange(4)).astype(float)
    scores = principal_scores(fitting.rows.coordinates, labels, 1)
    begin = beliefs_at_labels(MODEL, shares, scores, fitting.rows, size, capacity=capacity)
    trace = ascend_scored(MODEL, begin, fitting.rows, size, 0.0, 3, capacity=capacity)
    blank = tuple(blank_locals(MODEL, batch, size, capacity=capacity) for batch in cast(data, np.float64).batches)
    once = Beliefs(dict(begin.natural), dict(begin.mean))
    generic = ascend(MODEL, data, MeanField(once, blank, (), False), size, capacity=capacity, sweeps=2, tolerance=0.0)
    bounds = trace.bound_history() + fitting.log_carrier
    assert np.all(np.diff(bounds) > 0)
    # after a sweep the generic engine's rows are at their optimum for the parameters before it
    assert bounds[0] < generic.trace[0] < bounds[1] < generic.trace[1] < bounds[2]


@pytest.mark.slow
def test_planted_clusters_are_found_and_stored(tmp_path: Path):
    values, labels = planted()
    model = FactorAnalyzerMixture(FactorAnalyzerComponents.weak(values))
    result = lv.search(model, values, max_size=4, starts=1, progress=False)
    assert result.best_size == (3,)
    found = result.best
    assert adjusted_rand_score(labels, found.predict()) > 0.95
    inside = found.sample(4000, seed=1)
    first = inside[inside["component"] == 0].drop(columns="component")
    covariance = found.covariances()[0].to_numpy()
    np.testing.assert_allclose(np.cov(first.to_numpy().T), covariance, atol=0.2 * np.abs(covariance).max())
    assert np.isfinite(found.log_density(values[:5])).all()
    result.save(tmp_path / "found")
    again = lv.load(tmp_path / "found")
    assert again.best_size == (3,)
    np.testing.assert_array_equal(again.best.predict(), found.predict())
    assert again.best.model.describe() == model.describe()
