"""The certified interval: lower ≤ exact ≤ upper, whatever the model; and the series it rests on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import betaln, gammaln, hyp1f1, logsumexp

from lvsearch.inference.likelihood import document_bounds, document_likelihood, saturated_ceiling
from lvsearch.inference.likelihood.bounds import log_fit, log_tilted_mass

N_TOPICS, N_WORDS, N_DOCUMENTS = 4, 9, 3  # one trace for all drawn cases


@st.composite
def cases(draw):
    """Skewed α (some topics off), sparse topics, documents of up to 9 tokens inside fixed shapes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    alpha = np.array([draw(st.sampled_from([0.0, 1e-6, 0.03, 0.5, 1.0, 7.0, 60.0])) for _ in range(N_TOPICS)])
    if not alpha.any():
        alpha[draw(st.integers(0, N_TOPICS - 1))] = draw(st.sampled_from([1e-6, 0.2, 5.0]))
    topics = rng.dirichlet(np.full(N_WORDS, draw(st.sampled_from([0.02, 0.3, 2.0, 50.0]))), N_TOPICS) + 1e-12
    topics[rng.random(topics.shape) < draw(st.sampled_from([0.0, 0.4]))] = 0
    topics[:, 0] += topics.sum(axis=1) == 0
    topics /= topics.sum(axis=1, keepdims=True)
    theta = rng.dirichlet(np.maximum(alpha, 1e-3))
    counts = np.array([rng.multinomial(draw(st.integers(0, 9)), theta @ topics) for _ in range(N_DOCUMENTS)])
    return topics, alpha, counts


@pytest.mark.thorough
@settings(deadline=None, max_examples=150, derandomize=True)
@given(cases())
@pytest.mark.filterwarnings("ignore:.*no topic can produce:RuntimeWarning")
def test_the_interval_holds_the_truth(case):
    topics, alpha, counts = case
    exact = document_likelihood(topics, alpha, counts, method="exact").log_likelihood
    lower, upper = document_bounds(topics, alpha, counts)
    assert np.all(lower <= exact)
    assert np.all(exact <= upper)
    assert np.all(upper <= saturated_ceiling(sparse.csr_array(counts)))


@pytest.mark.thorough
@pytest.mark.parametrize("length", [1, 30, 400])
def test_two_topics_in_closed_form(length):
    """One word repeated: Σ_j binom(n, j) β₁ʲ β₂ⁿ⁻ʲ B(α₁ + j, α₂ + n − j) / B(α), long documents included."""
    topics, alpha = np.array([[0.9, 0.1], [0.25, 0.75]]), np.array([0.3, 2.5])
    j = np.arange(length + 1)
    log_choose = gammaln(length + 1) - gammaln(j + 1) - gammaln(length - j + 1)
    log_urn = betaln(alpha[0] + j, alpha[1] + length - j) - betaln(*alpha)
    expected = logsumexp(log_choose + j * np.log(0.9) + (length - j) * np.log(0.25) + log_urn)
    counts = np.array([[length, 0]])
    assert document_likelihood(topics, alpha, counts, method="exact").total == pytest.approx(expected, rel=1e-11)
    lower, upper = document_bounds(topics, alpha, counts)
    assert lower[0] <= expected <= upper[0]
    assert upper[0] - lower[0] < 3


@pytest.mark.parametrize("slope", [(3.0, 0.0), (0.5, 40.0), (700.0, 250.0), (5.0, 5.0)])
def test_the_series_is_kummers_function(slope):
    """K = 2: E e^{g·θ} = e^{g₂} ₁F₁(α₁; α₁ + α₂; g₁ − g₂). The value is above it by rounding and e^{-25} only."""
    alpha = np.array([0.4, 1.7])
    with jax.enable_x64(True):
        value, mean = (np.asarray(x) for x in log_tilted_mass(jnp.asarray(slope), jnp.asarray(alpha), -25.0, 5000))
    low, high = (0, 1) if slope[0] < slope[1] else (1, 0)
    gap = slope[high] - slope[low]
    expected = slope[low] + np.log(hyp1f1(alpha[high], alpha.sum(), gap))
    assert float(value) == pytest.approx(expected, rel=1e-11)
    shifted = np.log(hyp1f1(alpha[high] + 1, alpha.sum() + 1, gap)) - np.log(hyp1f1(alpha[high], alpha.sum(), gap))
    assert float(mean[high]) == pytest.approx(alpha[high] / alpha.sum() * np.exp(shifted), rel=1e-9)
    assert float(mean.sum()) == pytest.approx(1, abs=1e-9)


def test_a_series_cut_short_is_still_above():
    """The remainder is bounded, not dropped: fewer terms give a larger value, down to the truth."""
    alpha, slope = np.array([0.4, 0.2, 1.7]), np.array([30.0, 3.0, 11.0])
    with jax.enable_x64(True):
        values = [
            float(log_tilted_mass(jnp.asarray(slope), jnp.asarray(alpha), -60.0, terms)[0])
            for terms in (10, 28, 35, 50, 80, 200)
        ]
    assert values[0] == np.inf
    assert values[1:] == sorted(values[1:], reverse=True)
    assert values[1] > values[-1] + 0.1


def test_any_contact_point_bounds_the_fit():
    """f(θ) ≤ f(θ₀) − N + g·θ for random θ, θ₀: the concavity that the proof rests on, and g·θ₀ = N."""
    rng = np.random.default_rng(1)
    beta, counts = jnp.asarray(rng.random((7, 5)), jnp.float32), jnp.asarray(rng.integers(0, 5, 7), jnp.float32)
    for _ in range(20):
        theta, contact = (jnp.asarray(rng.dirichlet(np.full(5, 0.5)), jnp.float32) for _ in range(2))
        at_contact, slope = log_fit(contact, beta, counts)
        assert float(slope @ contact) == pytest.approx(float(counts.sum()), rel=1e-5)
        assert float(log_fit(theta, beta, counts)[0]) <= float(at_contact - counts.sum() + slope @ theta) + 1e-4


def corpus(seed=0, n_documents=12, n_words=60, n_topics=5):
    rng = np.random.default_rng(seed)
    topics, alpha = rng.dirichlet(np.full(n_words, 0.2), n_topics), np.array([0.02, 0.1, 0.3, 0.1, 0.6])
    lengths = rng.integers(60, 200, n_documents)
    counts = np.array([rng.multinomial(n, rng.dirichlet(alpha) @ topics) for n in lengths])
    return topics, alpha, counts


@pytest.mark.slow
def test_realistic_documents_stay_inside():
    """60 to 200 tokens: the interval holds the sampled estimate; the upper end is well below the ceiling."""
    topics, alpha, counts = corpus()
    ends = document_likelihood(topics, alpha, counts, method="bounds")
    estimate = document_likelihood(topics, alpha, counts, method="mfi", samples=200, key=jax.random.key(0))
    assert ends.lower is not None
    assert ends.upper is not None
    assert np.all(ends.lower <= estimate.log_likelihood + 6 * estimate.standard_error)
    assert np.all(estimate.log_likelihood - 6 * estimate.standard_error <= ends.upper)
    assert np.all(ends.upper < saturated_ceiling(sparse.csr_array(counts)) - 1)
    assert np.all(ends.upper - ends.lower < 40)
    np.testing.assert_array_equal(ends.log_likelihood, ends.lower)


@pytest.mark.slow  # topics that are off are among the drawn cases above
def test_padding_topics_changes_nothing():
    """Inactive topics may hold anything, NaN included, and weigh nothing."""
    topics, alpha, counts = corpus(n_documents=4)
    plain = document_bounds(topics, alpha, counts)
    padded = document_bounds(
        np.insert(topics, [0, 3], [[np.nan], [9.0]], axis=0), np.insert(alpha, [0, 3], 0.0), counts
    )
    np.testing.assert_allclose(padded.lower, plain.lower, rtol=1e-9)
    np.testing.assert_allclose(padded.upper, plain.upper, rtol=1e-4)  # the contact point is found in float32


@pytest.mark.thorough
def test_topic_order_and_document_order_do_not_matter():
    topics, alpha, counts = corpus(n_documents=4)
    plain = document_bounds(topics, alpha, counts)
    turned = document_bounds(topics[::-1], alpha[::-1], counts[::-1])
    np.testing.assert_allclose(turned.lower[::-1], plain.lower, rtol=1e-5)
    np.testing.assert_allclose(turned.upper[::-1], plain.upper, rtol=1e-4)


def test_a_document_of_one_word_meets_its_ceiling():
    """Topics that each hold one word only: p(word repeated) is the Pólya urn's, and the ceiling is 0."""
    lower, upper = document_bounds(np.eye(3), [0.5, 0.2, 1.0], [[4, 0, 0], [0, 0, 1]])
    expected = np.log([0.5 * 1.5 * 2.5 * 3.5 / (1.7 * 2.7 * 3.7 * 4.7), 1.0 / 1.7])
    np.testing.assert_allclose(lower, expected, rtol=1e-6)
    assert np.all(expected <= upper)
    assert np.all(upper <= 0)


def test_the_ceiling():
    counts = sparse.csr_array(np.array([[3, 1, 0], [0, 0, 0], [0, 0, 5]]))
    expected = [3 * np.log(3 / 4) + np.log(1 / 4), 0, 0]
    np.testing.assert_allclose(saturated_ceiling(counts), expected, atol=1e-8)
    assert saturated_ceiling(counts)[0] >= expected[0]


def test_impossible_documents_are_minus_infinity():
    lower, upper = document_bounds([[0.5, 0.5, 0.0]], [1.0], [[1, 0, 1], [1, 1, 0]])
    assert lower[0] == upper[0] == -np.inf
    assert lower[1] <= 2 * np.log(0.5) <= upper[1]
