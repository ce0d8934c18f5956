"""The collapsed chain of LDA against enumeration: densities, every tempered conditional, the evidence it anneals to."""

from functools import cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp
from scipy.stats import chi2

from lvsearch.bracket import Bracket
from lvsearch.inference.collapsed_topics import log_joint_of
from lvsearch.inference.evidence import CollapsedTopics, Effort, anneal, collapsed_topics
from lvsearch.inference.evidence.topics import TopicState

COUNTS = np.array([[2, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]])
ALPHA, ETA = np.array([0.4, 0.9]), 0.3
EXACT = oracles.lda_posterior(COUNTS, ALPHA, ETA).log_evidence
N_TOKENS = int(COUNTS.sum())


@cache
def chain(fitted: bool, capacity: int = 3) -> CollapsedTopics:
    counts = csr_array(COUNTS)
    log_q = np.log(np.random.default_rng(0).dirichlet([1.0, 1.0], counts.nnz)) if fitted else None
    return collapsed_topics(counts, ALPHA, ETA, capacity, log_q)


_step = jax.jit(
    lambda chain, key, state, t, backward: chain.step(key, state, t, backward=backward), static_argnames="backward"
)
_init = jax.jit(lambda chain, key: chain.init(key, 20_000))


def every_state(fitted: bool) -> TopicState:
    """All 2^N assignments, one a particle."""
    z = np.array(list(product(range(2), repeat=N_TOKENS)), np.int32).T
    padded = np.full((len(chain(fitted).word), z.shape[1]), -1, np.int32)
    padded[:N_TOKENS] = z
    return chain(fitted)._state(jnp.asarray(padded))


def code(state: TopicState) -> np.ndarray:
    """The number of each particle's assignment in `every_state`."""
    return (1 << np.arange(N_TOKENS)[::-1]) @ np.asarray(state.assignment)[:N_TOKENS]


def test_densities_are_the_model_s(float64):
    state = every_state(False)
    of_words = np.asarray(state.word_topic)[:3, :2]
    of_documents = np.asarray(state.document_topic)[:4, :2]
    by_hand = [
        log_joint_of(of_documents[..., i].astype(np.int32), of_words[..., i].astype(np.int32), ALPHA, ETA)
        for i in range(2**N_TOKENS)
    ]
    assert np.asarray(chain(False).log_density(state)) == pytest.approx(by_hand, abs=1e-9)
    assert logsumexp(by_hand) == pytest.approx(EXACT, abs=1e-9)
    log_prior = np.asarray(chain(False).log_density(state)) - np.asarray(chain(False).log_ratio(state))
    assert logsumexp(log_prior) == pytest.approx(0.0, abs=1e-9)  # q is a distribution: the prior of z
    log_q = np.asarray(chain(True).log_density(state)) - np.asarray(chain(True).log_ratio(every_state(True)))
    assert logsumexp(log_q) == pytest.approx(0.0, abs=1e-6)  # q's log responsibilities are float32


def misfit(fitted: bool, t: float, at: float, backward: bool) -> float:
    """p of chi-squared: particles drawn from π_t exactly, moved by one sweep at `at`, against π_t."""
    particles = 20_000
    with jax.enable_x64(True):
        state = every_state(fitted)
        log_p, log_ratio = chain(fitted).log_density(state), chain(fitted).log_ratio(state)
        log_pi = np.asarray(log_p - log_ratio + t * log_ratio)
        pi = np.exp(log_pi - logsumexp(log_pi))
        chosen = np.random.default_rng(1).choice(len(pi), particles, p=pi)
        start = chain(fitted).take(state, jnp.asarray(chosen))
        moved = _step(chain(fitted), jax.random.key(2), start, jnp.asarray(at), backward=backward)
    seen = np.bincount(code(moved), minlength=len(pi))
    rare = pi * particles < 5  # counted together, with the most frequent
    rare[np.argmax(pi)] = True
    expected = np.append(pi[~rare], pi[rare].sum()) * particles
    observed = np.append(seen[~rare], seen[rare].sum())
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("t", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("fitted", [False, True])
def test_a_sweep_leaves_its_place_on_the_path_as_it_is(fitted, t, backward):
    """Fixed keys; over keys one of these twelve fails by chance in 1 of 800."""
    assert misfit(fitted, t, t, backward) > 1e-4


@pytest.mark.parametrize("fitted", [False, True])
def test_a_sweep_for_another_place_does_not(fitted):
    assert misfit(fitted, 0.4, 0.8, False) < 1e-6


@pytest.mark.parametrize("fitted", [False, True])
def test_first_draws_are_from_q(fitted):
    with jax.enable_x64(True):
        state = every_state(fitted)
        q = np.exp(np.asarray(chain(fitted).log_density(state) - chain(fitted).log_ratio(state)))
        drawn = code(_init(chain(fitted), jax.random.key(4)))
    seen = np.bincount(drawn, minlength=len(q))
    assert chi2.sf(((seen - q * 20_000) ** 2 / (q * 20_000)).sum(), len(q) - 1) > 1e-4


def bracket(chain: Any, seed: int, steps: int = 16) -> Bracket:
    ends = anneal(chain, jax.random.key(seed), Effort(steps, 2, 16))
    return Bracket(tuple(ends.forward.tolist()), tuple(ends.backward.tolist()), steps, 32)


def coverage(chain: Any, exact: float, seeds: int) -> float:
    """How often |estimate − exact| is within two standard errors (and a hundredth of a nat of rounding)."""
    found = [bracket(chain, seed) for seed in range(seeds)]
    return float(np.mean([abs(b.estimate - exact) <= 2 * b.standard_error + 0.01 for b in found]))


@pytest.mark.parametrize("fitted", [False, True])
def test_the_evidence_is_exact_within_its_error(fitted):
    """From a q of one labelling too: with a symmetric α, states end with what their labelling is worth."""
    found = [bracket(chain(fitted), seed) for seed in range(4)]
    if fitted:
        symmetric = collapsed_topics(csr_array(COUNTS), np.full(2, 0.5), ETA, 3, np.log(np.tile([0.9, 0.1], (5, 1))))
        truth = oracles.lda_posterior(COUNTS, np.full(2, 0.5), ETA).log_evidence
        found, exact = [bracket(symmetric, seed) for seed in range(4)], truth
    else:
        exact = EXACT
    assert np.mean([b.estimate for b in found]) == pytest.approx(exact, abs=0.15)
    assert all(abs(b.estimate - exact) <= 4 * b.standard_error + 0.01 for b in found)


@pytest.mark.slow
def test_errors_cover_over_seeds():
    """100 seeds: nominally 95 %; fewer than 85 would be a failure of 1 in 10,000 at 95 %."""
    assert coverage(chain(False), EXACT, 100) >= 0.85
    assert coverage(chain(False), EXACT + 1.0, 100) < 0.5  # the test can fail


def test_one_topic_is_exact_and_capacity_does_not_matter(float64):
    truth = oracles.lda_posterior(COUNTS, np.array([0.7]), ETA).log_evidence
    found = bracket(collapsed_topics(csr_array(COUNTS), np.array([0.7]), ETA, 3), 0)
    assert (found.lower, found.upper) == (pytest.approx(truth, abs=1e-6), pytest.approx(truth, abs=1e-6))
    wide = np.asarray(chain(False, 6)._log_words(chain(False, 6)._state(every_state(False).assignment)))
    assert wide == pytest.approx(np.asarray(chain(False)._log_words(every_state(False))), abs=1e-9)


def test_a_corpus_without_tokens_has_evidence_one():
    empty = collapsed_topics(csr_array(np.zeros((2, 3), np.int64)), ALPHA, ETA, 3)
    assert bracket(empty, 0).estimate == pytest.approx(0.0, abs=1e-9)


def test_counts_that_are_not_whole_are_refused():
    with pytest.raises(ValueError, match="whole numbers"):
        collapsed_topics(csr_array(COUNTS / 2), ALPHA, ETA, 3)


def test_the_same_key_gives_the_same_bits_whatever_the_threads_do():
    first, second = bracket(chain(False), 7), bracket(chain(False), 7)
    assert first == second != bracket(chain(False), 8)
