"""The direct-assignment sampler of HDP topics: exact on enumerable data, and Geweke's joint-distribution test.

Both fail on a planted bug. Seeds are fixed; |z| below 4.5 for at most 20 numbers is a false-alarm rate below 1.4e-4.
"""

from typing import Any

import hdp_oracles
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp

import lvsearch as lv
from lvsearch.inference.collapsed_topics import Tokens, expand
from lvsearch.inference.documents import documents
from lvsearch.inference.hdp import direct_assignment, gibbs
from lvsearch.models.hdp import HDP
from lvsearch.models.hyperpriors import GammaPrior

Z_LIMIT = 4.5
COUNTS = np.array([[2, 1, 0], [0, 1, 0], [1, 0, 1]])
ETA, GAMMA, ALPHA = 0.4, 1.3, 0.8
SHARP = HDP(ETA, GAMMA, ALPHA)


def tokens_of(counts: np.ndarray) -> Tokens:
    return Tokens(*(jnp.asarray(leaf) for leaf in expand(documents(csr_array(counts.astype(np.int32))))))


# ── the exact posterior ─────────────────────────────────────────────────────────────────────────────────────────────


def statistics(z: Any) -> Any:
    """How many topics (indicators of 1, 2, 3), and for each pair of tokens whether they share one."""
    n = len(z)
    same = z[:, None] == z
    earlier = jnp.tril(jnp.ones((n, n), bool), -1)
    n_topics = (~(same & earlier).any(1)).sum()
    pairs = same[jnp.triu_indices(n, 1)]
    return jnp.concatenate([n_topics == jnp.arange(1, 4), pairs]).astype(jnp.float32)


def exact_means() -> np.ndarray:
    joint = hdp_oracles.posterior(COUNTS, ETA, hdp_oracles.known(GAMMA), hdp_oracles.known(ALPHA))
    log_joint = np.array(list(joint.values()))
    each = np.array([np.asarray(statistics(jnp.array(labels))) for labels in joint])
    return np.exp(log_joint - logsumexp(log_joint)) @ each


def chain_z(sweeps: int = 400, n_chains: int = 1500) -> np.ndarray:
    """|z| of averages over independent chains, their first quarter left out."""
    tokens = tokens_of(COUNTS)

    def one(key: Any) -> Any:
        state = gibbs.empty_state(len(tokens.word), *COUNTS.shape, 8, GAMMA, ALPHA)
        state = gibbs.sweep(SHARP, state, tokens, jax.random.fold_in(key, 0), adding=True)

        def step(state: Any, number: Any) -> Any:
            state = gibbs.sweep(SHARP, state, tokens, jax.random.fold_in(key, number), adding=False)
            return state, statistics(state.assignments)

        return jax.lax.scan(step, state, jnp.arange(1, sweeps + 1))[1][sweeps // 4 :].mean(0)

    means = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), n_chains)), np.float64)
    error = np.sqrt(means.var(0, ddof=1) / n_chains)
    return np.abs(means.mean(0) - exact_means()) / np.maximum(error, 1e-9)


def test_the_chain_has_the_exact_posterior():
    """Number of topics and co-assignments over all seatings of the franchise, γ and α known."""
    assert chain_z(60).max() < Z_LIMIT


@pytest.mark.slow
def test_the_exact_posterior_finds_tables_that_are_tokens(monkeypatch):
    """The planted bug: corpus weights from words instead of tables."""

    def every_token(state: Any, tokens: Any, uniforms: Any) -> Any:
        return state.topic_total

    monkeypatch.setattr(gibbs, "draw_tables", every_token)
    assert chain_z(60).max() > 1.5 * Z_LIMIT


# ── Geweke ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LENGTHS, VOCABULARY, PLACES = (4, 2, 5), 3, 24
UNSURE = HDP(0.5, GammaPrior(4.0, 4.0), GammaPrior(3.0, 2.0))


def recounted(state: Any, tokens: Tokens) -> Any:
    blank = gibbs.empty_state(len(tokens.word), len(LENGTHS), VOCABULARY, PLACES, 1.0, 1.0)
    z = state.assignments
    return state._replace(
        document_topic=blank.document_topic.at[tokens.document, z].add(1),
        word_topic=blank.word_topic.at[tokens.word, z].add(1),
        topic_total=blank.topic_total.at[z].add(1),
    )


def moments(state: Any, words: Any) -> Any:
    z, n_topics = state.assignments, (state.topic_total > 0).sum() / 5
    same = z[:, None] == z
    together = (same & (words[:, None] == words)).mean()
    log_gamma, log_alpha = jnp.log(state.gamma), jnp.log(state.alpha)
    shares = same[0, 1:3].mean(), same[0, 6:].mean(), same.mean()
    parts = [n_topics, n_topics**2, log_gamma, log_gamma**2, log_alpha, log_alpha**2, together, *shares, state.left]
    return jnp.stack([*parts, log_gamma * n_topics, log_alpha * shares[0]])


def geweke_z(n_chains: int = 3000, sweeps: int = 6) -> np.ndarray:
    """|z| per function: independent joint draws against the averages of independent chains that start from such."""
    document = jnp.asarray(np.repeat(np.arange(len(LENGTHS)), LENGTHS).astype(np.int32))

    def words_given(key: Any, word_topic: Any, z: Any) -> Any:
        key_topics, key_words = jax.random.split(key)
        topics = jax.random.dirichlet(key_topics, word_topic.T + UNSURE.topic_concentration.astype(np.float32))
        return jax.random.categorical(key_words, jnp.log(topics)[z]).astype(jnp.int32)

    def joint(key: Any) -> Any:
        keys = jax.random.split(key, 6)
        (a, b), (c, d) = UNSURE.corpus_concentration, UNSURE.document_concentration
        gamma, alpha = jax.random.gamma(keys[0], jnp.float32(a)) / b, jax.random.gamma(keys[1], jnp.float32(c)) / d
        sticks = jax.random.beta(keys[2], 1.0, gamma, (PLACES,))
        beta = sticks * jnp.cumprod(jnp.append(1.0, 1 - sticks[:-1]))
        log_theta = jax.random.loggamma(keys[3], jnp.broadcast_to(alpha * beta + 1e-12, (len(LENGTHS), PLACES)))
        z = jax.random.categorical(keys[4], log_theta[document]).astype(jnp.int32)
        words = words_given(keys[5], jnp.zeros((VOCABULARY, PLACES)), z)
        blank = gibbs.empty_state(len(document), len(LENGTHS), VOCABULARY, PLACES, gamma, alpha)
        state = recounted(blank._replace(assignments=z), Tokens(document, words))
        beta = jnp.where(state.topic_total > 0, beta, 0.0)
        return state._replace(beta=beta, left=1 - beta.sum()), words

    def successive(key: Any) -> Any:
        def step(carry: Any, step_key: Any) -> Any:
            state, words = carry
            a, b = jax.random.split(step_key)
            tokens = Tokens(document, words)
            state = gibbs.sweep(UNSURE, recounted(state, tokens), tokens, a, adding=False)
            words = words_given(b, state.word_topic, state.assignments)
            return (state, words), moments(state, words)

        return jax.lax.scan(step, joint(key), jax.random.split(jax.random.fold_in(key, 1), sweeps))[1].mean(0)

    @jax.jit
    def draws(keys: Any) -> Any:
        return jax.vmap(lambda k: moments(*joint(k)))(keys[0]), jax.vmap(successive)(keys[1])

    marginal, chains = draws(jax.random.split(jax.random.key(0), (2, n_chains)))
    marginal, chains = np.asarray(marginal, np.float64), np.asarray(chains, np.float64)
    error = np.sqrt(marginal.var(0, ddof=1) / n_chains + chains.var(0, ddof=1) / n_chains)
    return np.abs(marginal.mean(0) - chains.mean(0)) / error


@pytest.mark.slow
def test_geweke():
    """Joint draws made forwards and by the sampler agree, concentrations under their priors: 13 functions."""
    assert geweke_z().max() < Z_LIMIT


@pytest.mark.slow
def test_geweke_finds_a_forgotten_auxiliary_variable(monkeypatch):
    """The planted bug: concentrations drawn without the s of Escobar & West."""
    right = gibbs.draw_concentration

    def forgetful(key: Any, prior: Any, now: Any, n_tables: Any, customers: Any) -> Any:
        return right(key, prior, now, n_tables + (customers > 0).sum(), customers)

    monkeypatch.setattr(gibbs, "draw_concentration", forgetful)
    assert geweke_z().max() > 1.5 * Z_LIMIT


# ── counts, keys, borders ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def data() -> Any:
    return documents(csr_array(np.random.default_rng(0).poisson(0.7, (9, 11)).astype(np.int32)))


@pytest.fixture(scope="module")
def sample(data: Any) -> Any:
    return direct_assignment(HDP(0.2), data, sweeps=4, key=jax.random.key(3))


def test_counts_are_those_of_the_assignments(data, sample):
    tokens, z = expand(data), sample.assignments
    counted = np.zeros_like(sample.topic_word)
    np.add.at(counted, (z, tokens.word), 1)
    np.testing.assert_array_equal(sample.topic_word, counted)
    assert sample.document_topic.sum() == len(z)
    assert (np.diff(counted.sum(1)) <= 0).all()
    assert sample.occupied[-1] == len(sample.beta) == len(np.unique(z))
    assert 0 < sample.beta.sum() < 1
    np.testing.assert_allclose(sample.topics().sum(1), 1)
    assert len(sample.occupied) == len(sample.gammas) == 4


def test_a_sample_scores_documents(data, sample):
    counts = csr_array(np.eye(11, dtype=np.int32)[:3])
    topics, key = sample.topics(), jax.random.key(0)
    found = lv.inference.document_likelihood(topics, sample.alpha, counts, method="exact", key=key)
    shares = sample.alpha / sample.alpha.sum()
    np.testing.assert_allclose(found.log_likelihood, np.log(shares @ sample.topics())[:3], rtol=1e-5)


@pytest.mark.slow
def test_more_topics_than_places_are_found_places(monkeypatch, data):
    """A sweep that runs out of places is made again with more."""
    monkeypatch.setattr(gibbs, "FIRST_CAPACITY", 2)
    found = direct_assignment(HDP(0.2, 8.0, 5.0), data, sweeps=2, key=jax.random.key(0))
    assert found.occupied.max() > 2
    assert found.topic_word.sum() == len(found.assignments)


def test_a_chain_goes_on(data, sample):
    more = direct_assignment(HDP(0.2), data, sweeps=2, key=jax.random.key(3), start=sample)
    np.testing.assert_array_equal(more.occupied[:4], sample.occupied)
    assert len(more.occupied) == 6


def test_bad_input_is_refused(data, sample):
    with pytest.raises(ValueError, match="got sweeps=0"):
        direct_assignment(HDP(0.2), data, sweeps=0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="got a start from other documents"):
        direct_assignment(HDP(0.2), documents(csr_array(COUNTS)), sweeps=1, key=jax.random.key(0), start=sample)
