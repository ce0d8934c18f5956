"""Mixtures with one covariance against all labellings of a few rows.

False alarms. Keys are fixed: a test always passes or always fails. Over keys, each z below is normal to good
approximation, and |z| < 4.5 for the 81 frequencies of a test fails by chance for fewer than one key in 1,000.
"""

from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import partition_oracles
import pytest
import tied_oracles
from compiled import Compiled
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import gamma, multivariate_normal

import lvsearch as lv
from lvsearch.inference.evidence import evidence_chain
from lvsearch.inference.evidence.mixture_hyperparameters import HyperMixture
from lvsearch.inference.full_covariances import TiedEstimator, TiedMixtureChain
from lvsearch.inference.mixtures.kernel import ascend_rows
from lvsearch.models import DiagonalComponents, FullCovarianceComponents, GammaPrior, TiedMixture

PRIOR = (mixture_cases.LOCATION, mixture_cases.SCALE, 0.3, 2.5, 0.7)
CONCENTRATION = 0.8
MODEL = TiedMixture(FullCovarianceComponents(*PRIOR), CONCENTRATION)
ROWS = mixture_cases.VALUES[:6]
Z_LIMIT = 4.5


def chain_of(n: int, size: int, capacity: int = 4) -> TiedMixtureChain:
    return TiedMixtureChain.from_data(MODEL, mixture_cases.dataset(ROWS[:n]), size, capacity)


def padded(labels: np.ndarray, chain: TiedMixtureChain) -> Any:
    """labels: (labelling, row). Rows of padding are in the last component, which must not matter."""
    more = len(chain.weight) - labels.shape[1]
    return jnp.asarray(np.pad(labels.T, [(0, more), (0, 0)], constant_values=int(chain.size) - 1), jnp.int32)


@cache
def planted() -> tuple[np.ndarray, np.ndarray]:
    """Three clusters that are long where they are near each other, 75 rows, and which row is of which."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [30, 25, 20])
    along = np.array([[1, 0.9], [0, 0.3]])
    return np.array([[0, 0], [0, 2.0], [4, 0]])[labels] + rng.standard_normal((75, 2)) @ along, labels


# ── the oracle ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_oracle_agrees_with_others():
    """One component: row after row by Student's t. One column: the precision integrated numerically."""
    one = np.zeros(6, np.int64)
    expected = partition_oracles.full_marginal(*PRIOR)(ROWS)
    assert tied_oracles.log_marginal(ROWS, one, *PRIOR) == pytest.approx(expected, abs=1e-10)
    labels, x = np.array([0, 1, 0, 2, 1, 1]), ROWS[:, :1]
    between = np.eye(6) + (labels[:, None] == labels) / 0.3

    def joint(precision: float) -> float:
        rows = multivariate_normal(np.full(6, 0.4), between * 1.3**2 / precision).pdf(x[:, 0])
        return rows * gamma(2.5 / 2, scale=2 / 0.7).pdf(precision)

    density = tied_oracles.log_marginal(x, labels, np.array([0.4]), np.array([1.3]), 0.3, 2.5, 0.7)
    assert density == pytest.approx(np.log(quad(joint, 0, np.inf)[0]), abs=1e-7)


# ── the chain ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_densities_of_all_labellings(float64):
    """Three of four places in use, padding in one of them; and what any row makes of each component it joins."""
    plain, every = chain_of(5, 3), tied_oracles.all_labels(5, 3)
    chain = Compiled(plain)
    state = chain.state_from_labels(padded(every, plain))
    likelihood = np.array([tied_oracles.log_marginal(ROWS[:5], one, *PRIOR) for one in every])
    joint = tied_oracles.log_joints(ROWS[:5], 3, CONCENTRATION, *PRIOR)
    np.testing.assert_allclose(chain.log_ratio(state), likelihood, rtol=0, atol=1e-9)
    np.testing.assert_allclose(chain.log_density(state), joint, rtol=0, atol=1e-9)
    left = chain.remove_row(state, jnp.asarray(2), jax.tree.map(jnp.asarray, plain.prior))
    joining = chain.score_row(left, jnp.asarray(2), chain.normalisers(left.natural))
    of = {tuple(one): value for one, value in zip(every.tolist(), joint, strict=True)}
    each = [[of[(*one[:2], k, *one[3:])] for one in every.tolist()] for k in range(3)]
    differences = np.asarray(joining.scores.score)[:3] - np.array(each)
    np.testing.assert_allclose(differences - differences[0], 0, atol=1e-9)
    again = chain.normalisers(state.natural)[0]
    chosen = np.take_along_axis(np.asarray(joining.normaliser), every[:, 2][None], axis=0)[0]
    np.testing.assert_allclose(chosen, again, rtol=1e-12)


@partial(jax.jit, static_argnames="backward")
def step(chain: Any, key: Any, state: Any, temperature: Any, backward: bool) -> Any:
    return chain.step(key, state, temperature, backward=backward)


@pytest.mark.thorough
@pytest.mark.parametrize("backward", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_sweeps_leave_the_tempered_posterior(float64, backward):
    """20,000 exact draws of π_t, swept once, are still its draws; swept at another temperature they are not."""
    chain, every, temperature, draws = chain_of(4, 3), tied_oracles.all_labels(4, 3), 0.4, 20_000
    likelihood = np.array([tied_oracles.log_marginal(ROWS[:4], one, *PRIOR) for one in every])
    target = tied_oracles.log_joints(ROWS[:4], 3, CONCENTRATION, *PRIOR) - (1 - temperature) * likelihood
    probability = np.exp(target - logsumexp(target))
    drawn = every[np.random.default_rng(1).choice(len(every), draws, p=probability)]
    start = chain.state_from_labels(padded(drawn, chain))

    def largest_z(at: float) -> float:
        labels = np.asarray(step(chain, jax.random.key(2), start, at, backward).labels)[:4]
        frequency = np.bincount(3 ** np.arange(4)[::-1] @ labels, minlength=81) / draws
        return float(np.abs((frequency - probability) / np.sqrt(probability * (1 - probability) / draws)).max())

    assert largest_z(temperature) < Z_LIMIT
    assert largest_z(1.0) > 2 * Z_LIMIT


@pytest.mark.thorough
def test_rows_of_a_hyper_prior_have_its_density(float64):
    """log p(rows, labels, h) is what the numbers h give, beside the prior of h."""
    spread, count = GammaPrior(2.0, 1.5), GammaPrior(1.5, 2.0)
    model = TiedMixture(FullCovarianceComponents(*PRIOR[:2], count, 2.5, spread), CONCENTRATION)
    chain = evidence_chain(model, mixture_cases.dataset(ROWS), (3,), None)
    assert isinstance(chain, HyperMixture)
    labels, numbers = np.array([0, 1, 0, 2, 1, 1]), {"pseudo_count": [0.4], "spread": [0.6, 1.7]}
    log_hyper = {name: jnp.log(jnp.asarray(each))[:, None] for name, each in numbers.items()}
    state = chain.state_from_labels(jnp.asarray(np.pad(labels, (0, 2)), jnp.int32)[:, None], log_hyper)
    base = np.diag([0.6, 1.7]) @ np.diag(mixture_cases.SCALE**2)
    rows = (ROWS - mixture_cases.LOCATION) @ np.diag(np.diag(base) ** -0.5)  # in which the spread is 1
    marginal = tied_oracles.log_marginal(rows, labels, np.zeros(2), np.ones(2), 0.4, 2.5, 1.0)
    expected = marginal - 3 * np.log(np.diag(base)).sum() + tied_oracles.log_label_prior(labels, 3, CONCENTRATION)
    expected += gamma(2.0, scale=1 / 1.5).logpdf([0.6, 1.7]).sum() + gamma(1.5, scale=0.5).logpdf(0.4)
    assert float(chain.log_density(state)[0]) == pytest.approx(expected, abs=1e-9)


# ── fits and searches ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_one_component_is_the_full_covariance():
    """The bound is the evidence itself, and the density of new rows a ratio of two."""
    fit = lv.fit(MODEL, ROWS, size=1, starts=1)
    exact = tied_oracles.log_evidence(ROWS, 1, CONCENTRATION, *PRIOR)
    assert fit.evidence.lower == pytest.approx(exact, abs=1e-5)
    new = mixture_cases.VALUES[6]
    more = tied_oracles.log_evidence(mixture_cases.VALUES, 1, CONCENTRATION, *PRIOR)
    assert fit.log_density(new[None]).item() == pytest.approx(more - exact, abs=1e-5)


def test_what_is_no_tied_mixture_is_refused():
    with pytest.raises(ValueError, match="expected FullCovarianceComponents"):
        TiedMixture(DiagonalComponents())
    with pytest.raises(ValueError, match="no plug-in form"):
        TiedMixture().plug_in()
    holed = lv.Points.from_array(np.where(np.eye(6, 2) > 0, np.nan, ROWS), missing="nan")
    with pytest.raises(ValueError, match="missing cells"):
        lv.fit(TiedMixture(), holed, size=2)


@pytest.mark.slow
def test_search_has_the_enumerated_posterior():
    exact = [tied_oracles.log_evidence(ROWS, size, CONCENTRATION, *PRIOR) for size in (1, 2, 3)]
    settings = {"prior": lv.sizes.Poisson(2), "max_size": 3, "progress": False}
    by_chains, annealed = (lv.search(MODEL, ROWS, evidence=kind, **settings) for kind in ("partitions", "annealed"))
    table = annealed.posterior().set_index("size")
    for size, evidence in enumerate(exact, 1):
        error = max(table["standard_error"][size], 1e-6)
        assert abs(table["log_evidence"][size] - evidence) < Z_LIMIT * error
        assert error < 0.1
    prior = np.array([lv.sizes.Poisson(2).log_pmf((size,)) for size in (1, 2, 3)])
    expected = np.exp(exact + prior - logsumexp(exact + prior))
    np.testing.assert_allclose(table["probability"], expected, atol=0.05)
    np.testing.assert_allclose(by_chains.posterior().set_index("size")["probability"], expected, atol=0.05)


@pytest.mark.slow
def test_planted_clusters_are_found_and_stored(tmp_path: Path):
    rows, labels = planted()
    model = TiedMixture(FullCovarianceComponents.weak(rows))
    result = lv.search(model, rows, max_size=4, progress=False)
    assert result.best_size == (3,)
    found = result.best
    together = found.predict()[:, None] == found.predict()
    assert (together == (labels[:, None] == labels)).mean() > 0.98
    first, *others = found.covariances().values()
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-5)
    np.testing.assert_allclose(first, [[1.0, 0.9], [0.9, 0.9]], atol=0.25)
    drawn = found.sample(4000, seed=1)
    within = drawn.drop(columns="component") - found.means().loc[drawn["component"]].to_numpy()
    np.testing.assert_allclose(np.cov(within.T), first, atol=0.1)
    result.save(tmp_path / "found")
    again = lv.load(tmp_path / "found")
    assert again.best_size == (3,)
    np.testing.assert_array_equal(again.best.predict(), found.predict())
    assert again.best.model.describe() == model.describe()
    full = lv.fit(model.independent, rows, size=3)
    assert found.evidence.lower > full.evidence.lower + 5


@pytest.mark.slow
def test_fits_end_where_true_labels_lead():
    """Six clusters in three columns: rows in turn, each component with its own covariance, end 10 to 150 nats lower."""
    rng = np.random.default_rng(2)
    along, labels = rng.normal(size=(3, 3)), rng.integers(6, size=300)
    rows = (3.0 * rng.normal(size=(6, 3)))[labels] @ along + rng.normal(size=(300, 3)) @ along
    model = TiedMixture(FullCovarianceComponents.weak(rows))
    fitting = TiedEstimator(model, mixture_cases.dataset(rows))
    with jax.enable_x64(True):
        run = fitting.run((6,), np.float64)
        part = run.rows_in_order(np.arange(300))
        begin = run.beliefs_from_labels(part, np.pad(labels, (0, len(part.weight) - 300)))
        trace = ascend_rows(model, begin, run.tiles, (6,), 1e-6, 1000, **run.static)
    led = trace.bound_history()[-1] + fitting.prepared.log_carrier
    assert lv.fit(model, rows, size=6).evidence.lower > led - 0.01
