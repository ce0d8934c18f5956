"""Newton's steps against SciPy's optimiser on the same objective; hyper-parameters that raise the bound."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln

from lvsearch.inference.data.documents import documents
from lvsearch.inference.engine.empirical_bayes import newton_dirichlet, newton_symmetric
from lvsearch.inference.topics.estimator import TopicEstimator, TopicSettings
from lvsearch.models.lda import LDA

SETTINGS = TopicSettings(collapsed_passes=10, mean_field_passes=25, final_sweeps=40)


def expected_log(draws: np.ndarray) -> np.ndarray:
    """E[log θ] averaged over Dirichlets of the given concentrations (draw, entry)."""
    return (digamma(draws) - digamma(draws.sum(1, keepdims=True))).mean(0)


@pytest.mark.parametrize("seed", range(6))
def test_newton_dirichlet_finds_the_maximum(seed):
    rng = np.random.default_rng(seed)
    entries = int(rng.integers(2, 7))
    mean_log = expected_log(rng.gamma(0.3 + rng.random(entries), 4.0, (30, entries)) + 0.05)

    def negative(log_alpha: np.ndarray) -> tuple[float, np.ndarray]:
        a = np.exp(log_alpha)
        value = gammaln(a.sum()) - gammaln(a).sum() + ((a - 1) * mean_log).sum()
        return -value, -a * (digamma(a.sum()) - digamma(a) + mean_log)

    best = minimize(negative, np.zeros(entries), jac=True, method="BFGS", options={"gtol": 1e-10})
    for start in (np.ones(entries), rng.gamma(1.0, 5.0, entries) + 1e-3, np.full(entries, 100.0)):
        found = newton_dirichlet(start, mean_log)
        np.testing.assert_allclose(found, np.exp(best.x), rtol=1e-5)
        assert np.abs(negative(np.log(found))[1]).max() < 1e-6


def test_newton_dirichlet_at_the_edges():
    """One entry: any α is as good. An entry that no document uses falls to the floor."""
    assert newton_dirichlet(np.array([2.5]), np.array([0.0])) == pytest.approx(2.5)
    found = newton_dirichlet(np.array([1.0, 1.0, 1.0]), np.array([-0.5, -1.2, -1e9]), floor=1e-6)
    assert found[2] == 1e-6
    assert np.all(found > 0)


@pytest.mark.parametrize("seed", range(6))
def test_newton_symmetric_finds_the_maximum(seed):
    rng = np.random.default_rng(seed + 10)
    entries = int(rng.integers(2, 40))
    mean_log_sum = float(expected_log(rng.gamma(0.2 + rng.random(), 3.0, (50, entries)) + 0.05).sum())

    def negative(log_total: np.ndarray) -> float:
        a = float(np.exp(log_total[0]))
        return -(gammaln(a) - entries * gammaln(a / entries) + a / entries * mean_log_sum)

    best = minimize(negative, np.zeros(1), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    for start in (1e-3, 1.0, 300.0):
        assert newton_symmetric(start, entries, mean_log_sum) == pytest.approx(float(np.exp(best.x[0])), rel=1e-5)
    assert newton_symmetric(0.7, 1, -1.0) == 0.7


@pytest.mark.thorough
def test_empirical_bayes_raises_the_marginal_bound():
    """Far from the right hyper-parameters the refitted fit has a much higher bound; the fitted model says which."""
    rng = np.random.default_rng(7)
    topics = rng.dirichlet(np.full(25, 0.2), 4)
    theta = rng.dirichlet(np.full(4, 0.3), 30)
    counts = csr_array(np.stack([rng.multinomial(40, t @ topics) for t in theta]).astype(np.int32))
    data, model, key = documents(counts), LDA(12.0, 2.0), jax.random.key(0)
    fixed = TopicEstimator(model, data, SETTINGS).fit((4,), key, None)
    refitted = TopicEstimator(model, data, SETTINGS, empirical_bayes=True).fit((4,), key, None)
    assert refitted.log_lower > fixed.log_lower + 20
    assert float(refitted.model.concentration) < 12.0
    assert float(refitted.model.topic_concentration) < 2.0
    assert fixed.model.concentration == model.concentration
