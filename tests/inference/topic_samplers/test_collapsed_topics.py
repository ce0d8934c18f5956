"""Collapsed Gibbs: exact posterior moments, Geweke's joint-distribution test, integer counts, borders.

False alarms. Every z below is a difference over its batch-means (or independent-sample) standard error. With fixed keys
a test either always passes or always fails; over keys, |z| < 4.5 for at most 40 numbers fails by chance in fewer than
1 of 1,000 keys (40 · 2 · (1 − Φ(4.5)) = 3e-4, doubled for the small number of batches).
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.sparse import csr_array
from scipy.stats import chisquare

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.topic_samplers import collapsed as collapsed_topics
from lvsearch.inference.topic_samplers.collapsed import (
    CollapsedSample,
    IndicatorState,
    Tokens,
    collapsed_gibbs,
    expand,
)
from lvsearch.models.lda import LDA, TopicSeeds

ALPHA, ETA, Z_LIMIT = np.array([0.5, 1.4]), 0.6, 4.5
N_TOPICS, N_WORDS = 3, 11


def data(**batches: int) -> Dataset:
    """Seven documents over eleven words, one of them empty, words up to four times."""
    counts = np.random.default_rng(2).poisson(0.7, (7, N_WORDS))
    counts[3] = 0
    return documents(csr_array(counts.astype(np.int32)), **batches)


@cache
def sample() -> CollapsedSample:
    return collapsed_gibbs(LDA([0.3, 0.9, 1.1], 0.2), data(), N_TOPICS, sweeps=6, key=jax.random.key(3))


def recount(z: Any, tokens: Tokens, n_documents: int, n_words: int, n_topics: int) -> IndicatorState:
    """The counts of given indicators, by one-hot sums."""
    chosen = jax.nn.one_hot(z, n_topics, dtype=jnp.int32)
    in_document = jax.nn.one_hot(tokens.document, n_documents, dtype=jnp.int32).T @ chosen
    return IndicatorState(
        z, in_document, jax.nn.one_hot(tokens.word, n_words, dtype=jnp.int32).T @ chosen, chosen.sum(0)
    )


# ── the draw ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n_topics", [1, 5, 17])
def test_draw_inverts_the_distribution_function(n_topics):
    weight = np.random.default_rng(n_topics).gamma(0.5, 1.0, n_topics) + 1e-3
    uniform = (np.arange(997) + 0.5) / 997
    drawn = jax.jit(jax.vmap(collapsed_topics.draw, (None, 0)))(weight.astype(np.float32), uniform.astype(np.float32))
    distribution = weight.cumsum() / weight.sum()
    np.testing.assert_array_equal(drawn, np.searchsorted(distribution, uniform, side="right"))


# ── the chain against enumeration ───────────────────────────────────────────────────────────────────────────────────

COUNTS = np.array([[3, 0, 1], [0, 2, 0]])


def z_scores(samples: np.ndarray, truth: np.ndarray, n_batches: int = 50) -> np.ndarray:
    """Samples (sweep, …) against exact means, by batch means."""
    batches = samples[: len(samples) // n_batches * n_batches].reshape(n_batches, -1, *samples.shape[1:]).mean(1)
    return (batches.mean(0) - truth) / (batches.std(0, ddof=1) / np.sqrt(n_batches))


@partial(jax.jit, static_argnames=("own_left_in", "sweeps"))
def chain(key: Any, tokens: Tokens, own_left_in: bool, sweeps: int) -> tuple[Any, Any]:
    """n_dk and n_kw after every sweep."""
    alpha, eta = jnp.asarray(ALPHA, jnp.float32), jnp.float32(ETA)

    def one(state: IndicatorState, uniforms: Any) -> tuple[IndicatorState, tuple[Any, Any]]:
        z = collapsed_topics.sweep(state, tokens, uniforms, alpha, eta, adding=own_left_in).assignments
        state = recount(z, tokens, *COUNTS.shape, len(ALPHA))
        return state, (state.document_topic, state.word_topic)

    start = recount(jnp.zeros(len(tokens.word), jnp.int32), tokens, *COUNTS.shape, len(ALPHA))
    return jax.lax.scan(one, start, jax.random.uniform(key, (sweeps, len(tokens.word))))[1]


def posterior_means(own_left_in: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """E[θ | z] and E[β | z] after every sweep of one long chain."""
    tokens = expand(documents(csr_array(COUNTS.astype(np.int32))))
    document_topic, word_topic = map(np.asarray, chain(jax.random.key(1), tokens, own_left_in, 20_500))
    theta = (document_topic + ALPHA) / (document_topic + ALPHA).sum(-1, keepdims=True)
    beta = np.swapaxes(word_topic + ETA, 1, 2) / (word_topic + ETA).sum(1)[..., None]
    return theta[500:], beta[500:]


def posterior_z(own_left_in: bool = False) -> np.ndarray:
    exact = oracles.lda_posterior(COUNTS, ALPHA, ETA)
    theta, beta = posterior_means(own_left_in)
    return np.abs(np.concatenate([z_scores(theta, exact.proportions).ravel(), z_scores(beta, exact.topics).ravel()]))


def test_the_chain_has_the_exact_posterior_moments():
    """E[θ] and E[β] over all 2⁶ assignments, |z| < 4.5; α is asymmetric, so the topics are told apart."""
    assert posterior_z().max() < Z_LIMIT
    theta, beta = posterior_means()
    exact = oracles.lda_posterior(COUNTS, ALPHA, ETA)
    assert np.abs(theta.mean(0) - exact.proportions).max() < 0.01
    assert np.abs(z_scores(beta, exact.topics[::-1])).max() > 3 * Z_LIMIT  # the same test tells topics apart


def test_the_moments_find_a_token_left_in_its_own_counts():
    """The planted bug: a conditional on counts that hold the token itself (Geweke's chains are too short to see it)."""
    assert posterior_z(own_left_in=True).max() > 1.5 * Z_LIMIT


# ── Geweke ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LENGTHS, VOCABULARY = (4, 2, 5), 3
DOCUMENT = np.repeat(np.arange(len(LENGTHS)), LENGTHS).astype(np.int32)


def moments(z: Any, words: Any, documents_of: Any) -> Any:
    """Functions of (z, w), first and second moments and where indicators meet words: (function,)."""
    state = recount(z, Tokens(documents_of, words), len(LENGTHS), VOCABULARY, 2)
    share = state.document_topic[:, 1] / jnp.asarray(LENGTHS)
    of_word = state.word_topic[:, 1] / len(words)
    whole = state.topic_total[1] / len(words)
    same = ((z[:, None] == z) & (words[:, None] == words)).mean()
    return jnp.concatenate(
        [share, share**2, of_word, of_word**2, whole[None], (share[0] * share[2])[None], same[None], (whole**2)[None]]
    )


def words_given(key_topics: Any, key_words: Any, word_topic: Any, z: Any) -> Any:
    topics = jax.random.dirichlet(key_topics, word_topic.T + jnp.float32(ETA))
    return jax.random.categorical(key_words, jnp.log(topics)[z]).astype(jnp.int32)


def joint(key: Any) -> Any:
    """(topics, words) of the tokens, drawn from the model."""
    a, b, c, d = jax.random.split(key, 4)
    theta = jax.random.dirichlet(a, jnp.asarray(ALPHA, jnp.float32), (len(LENGTHS),))
    z = jax.random.categorical(b, jnp.log(theta)[DOCUMENT]).astype(jnp.int32)
    return z, words_given(c, d, jnp.zeros((VOCABULARY, 2)), z)


def swept(key: Any, z: Any, words: Any) -> Any:
    tokens = Tokens(jnp.asarray(DOCUMENT), words)
    state = recount(z, tokens, len(LENGTHS), VOCABULARY, 2)
    uniforms = jax.random.uniform(key, words.shape)
    alpha = jnp.asarray(ALPHA, jnp.float32)
    return collapsed_topics.sweep(state, tokens, uniforms, alpha, jnp.float32(ETA)).assignments


def geweke_z(key: int, n_chains: int = 2000, sweeps: int = 8) -> np.ndarray:
    """|z| per function: independent joint draws against the averages of independent chains that start from such."""

    def successive(k: Any) -> Any:
        def step(carry: Any, step_key: Any) -> Any:
            z, words = carry
            a, b, c = jax.random.split(step_key, 3)
            z = swept(a, z, words)
            state = recount(z, Tokens(DOCUMENT, words), len(LENGTHS), VOCABULARY, 2)
            words = words_given(b, c, state.word_topic, z)
            return (z, words), moments(z, words, DOCUMENT)

        return jax.lax.scan(step, joint(k), jax.random.split(jax.random.fold_in(k, 1), sweeps))[1].mean(0)

    @jax.jit
    def draws(keys: Any) -> Any:
        return jax.vmap(lambda k: moments(*joint(k), DOCUMENT))(keys[0]), jax.vmap(successive)(keys[1])

    marginal, chains = draws(jax.random.split(jax.random.key(key), (2, n_chains)))
    marginal, chains = np.asarray(marginal, np.float64), np.asarray(chains, np.float64)
    error = np.sqrt(marginal.var(0, ddof=1) / n_chains + chains.var(0, ddof=1) / n_chains)
    return np.abs(marginal.mean(0) - chains.mean(0)) / error


@pytest.mark.slow  # the exact moments above are of the same sweeps
def test_geweke():
    """Joint draws made forwards and by the sampler agree: 16 functions, |z| < 4.5, false alarms below 1.1e-4."""
    assert geweke_z(0).max() < Z_LIMIT


@pytest.mark.slow  # the power of the test above, at the same sizes
def test_geweke_finds_a_wrong_denominator(monkeypatch):
    """The planted bug: the thesis' misprint, no division by n_k + Vη."""

    def without_denominator(in_document, of_word, topic_total, alpha, eta, n_words):
        return (in_document + alpha) * (of_word + eta)

    monkeypatch.setattr(collapsed_topics, "weights", without_denominator)
    assert geweke_z(0).max() > 1.5 * Z_LIMIT
    assert rank_p_values(0).min() < SMALLEST_P**2


# ── simulation-based calibration (Talts et al. 2018) ────────────────────────────────────────────────────────────────

DRAWS, THIN, BURN, SMALLEST_P = 7, 6, 30, 1e-4


def rank_p_values(key: int, replicates: int = 2000) -> np.ndarray:
    """Of the uniformity of the true values' ranks among draws of chains begun anywhere: (function,)."""

    def one(k: Any) -> Any:
        z, words = joint(k)
        begin = jax.random.bernoulli(jax.random.fold_in(k, 1), 0.5, z.shape).astype(jnp.int32)

        def step(z: Any, key_sweep: Any) -> Any:
            z = swept(key_sweep, z, words)
            return z, moments(z, words, DOCUMENT)

        keys = jax.random.split(jax.random.fold_in(k, 2), BURN + DRAWS * THIN)
        return moments(z, words, DOCUMENT), jax.lax.scan(step, begin, keys)[1][BURN + THIN - 1 :: THIN]

    truth, draws = map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(key), replicates)))
    close = np.abs(draws - truth[:, None]) < 1e-6
    below = ((draws < truth[:, None]) & ~close).sum(1)
    ranks = below + np.random.default_rng(key).integers(close.sum(1) + 1)
    return np.array([chisquare(np.bincount(column, minlength=DRAWS + 1)).pvalue for column in ranks.T])


@pytest.mark.slow  # the exact moments above are of the same sweeps
def test_ranks_are_uniform():
    """Of 16 functions: a right sampler fails for one key in 600 at most."""
    assert rank_p_values(0).min() > SMALLEST_P


# ── counts, keys, borders ───────────────────────────────────────────────────────────────────────────────────────────


def test_counts_are_those_of_the_assignments_and_whole():
    drawn, tokens = sample(), expand(data())
    counted = recount(drawn.assignments, tokens, 7, N_WORDS, N_TOPICS)
    np.testing.assert_array_equal(drawn.document_topic, counted.document_topic)
    np.testing.assert_array_equal(drawn.topic_word, counted.word_topic.T)
    for counts in (drawn.assignments, drawn.document_topic, drawn.topic_word):
        assert counts.dtype == np.int32
        assert counts.min() >= 0
    np.testing.assert_array_equal(drawn.document_topic.sum(1), np.bincount(tokens.document, minlength=7))
    np.testing.assert_array_equal(drawn.topic_word.sum(0), np.bincount(tokens.word, minlength=N_WORDS))


def test_log_joint_is_that_of_the_counts():
    drawn = sample()
    truth = oracles.log_dirichlet_multinomial(drawn.document_topic, drawn.alpha).sum()
    truth += oracles.log_dirichlet_multinomial(drawn.topic_word, np.full(N_WORDS, drawn.eta)).sum()
    assert drawn.log_joint.shape == (6,)
    np.testing.assert_allclose(drawn.log_joint[-1], truth, rtol=1e-12)


def test_the_estimates_are_posterior_means_given_the_assignments():
    drawn = sample()
    np.testing.assert_allclose(drawn.topics().sum(1), 1)
    np.testing.assert_allclose(drawn.topics()[1, 4], (drawn.topic_word[1, 4] + 0.2) / (drawn.topic_word[1].sum() + 2.2))
    np.testing.assert_allclose(drawn.proportions()[3], drawn.alpha / drawn.alpha.sum())  # the empty document


def test_a_continued_chain_is_the_longer_chain():
    model, key = LDA([0.3, 0.9, 1.1], 0.2), jax.random.key(3)
    half = collapsed_gibbs(model, data(), N_TOPICS, sweeps=2, key=key)
    whole = collapsed_gibbs(model, data(), N_TOPICS, sweeps=4, key=key, start=half)
    np.testing.assert_array_equal(whole.assignments, sample().assignments)
    np.testing.assert_array_equal(whole.log_joint, sample().log_joint)
    other = collapsed_gibbs(model, data(), N_TOPICS, sweeps=4, key=jax.random.key(4), start=half)
    assert not np.array_equal(other.assignments, whole.assignments)


def test_padding_and_batches_do_not_matter():
    """Batches of other shapes hold the same tokens, a repeated word once per copy."""
    small = data(tokens_per_batch=32)
    assert len(small.batches) > len(data().batches)
    again = collapsed_gibbs(LDA([0.3, 0.9, 1.1], 0.2), small, N_TOPICS, sweeps=6, key=jax.random.key(3))
    np.testing.assert_array_equal(again.assignments, sample().assignments)
    assert max(np.unique(np.stack(expand(small)), axis=1, return_counts=True)[1]) > 1


def test_one_topic_takes_everything():
    drawn = collapsed_gibbs(LDA(0.7, 0.2), data(), 1, sweeps=1, key=jax.random.key(0))
    np.testing.assert_array_equal(drawn.assignments, 0)
    words = np.bincount(expand(data()).word, minlength=N_WORDS)
    np.testing.assert_allclose(drawn.log_joint, oracles.log_dirichlet_multinomial(words, np.full(N_WORDS, 0.2)))


def test_a_total_concentration_is_spread_evenly():
    drawn = collapsed_gibbs(LDA(0.9, 0.2), data(), N_TOPICS, sweeps=1, key=jax.random.key(0))
    np.testing.assert_allclose(drawn.alpha, [0.3, 0.3, 0.3])


@pytest.mark.parametrize(
    ("model", "size", "sweeps", "message"),
    [
        (LDA(1.0, 0.2), 0, 1, "at least 1 topic"),
        (LDA(1.0, 0.2), 2, 0, "got sweeps=0"),
        (LDA(1.0, 0.2).plug_in(), 2, 1, "point estimates"),
        (LDA([0.5, 0.5], 0.2), 3, 1, "2 entries for 3 topics"),
        (LDA(1.0, 0.2, seeds=TopicSeeds.of_counts([[1, 2]])), 2, 1, "got an LDA with seeds"),
    ],
)
def test_bad_input_is_refused(model, size, sweeps, message):
    with pytest.raises(ValueError, match=message):
        collapsed_gibbs(model, data(), size, sweeps=sweeps, key=jax.random.key(0))


def test_a_start_from_elsewhere_is_refused():
    with pytest.raises(ValueError, match="got a start from other documents"):
        collapsed_gibbs(LDA(1.0, 0.2), data(), N_TOPICS, sweeps=1, key=jax.random.key(0), start=sample())
    halves = documents(csr_array(COUNTS / 2))
    with pytest.raises(ValueError, match="not whole numbers"):
        expand(halves)
