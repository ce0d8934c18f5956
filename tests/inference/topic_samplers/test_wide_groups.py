"""A sweep over groups with one token of every document, in which words repeat (`tests/benchmarks/wide_groups.py`),
leaves the posterior of all tokens' topics as it is."""

import itertools

import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln, softmax
from wide_groups import TopicsInWideGroups, log_correction

import lvsearch as lv
from lvsearch.inference.topic_samplers.collapsed import expand
from lvsearch.inference.topic_samplers.topic_state import total_corrections

COUNTS = np.array([[2, 1, 0], [2, 0, 1], [1, 1, 0]])
ALPHA, ETA, N_TOPICS = 0.7, 0.4, 2
Z_LIMIT = 4.5


def visited(random: np.random.Generator, *, exact: bool, chains: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """Return how often chains that begin in the posterior are in each assignment after a sweep, and its probability."""
    tokens = expand(lv.Corpus.from_matrix(COUNTS).dataset())
    every = np.array(list(itertools.product(range(N_TOPICS), repeat=len(tokens.word))))
    log_joint = []
    for topics in every:
        chain = TopicsInWideGroups(tokens, topics, N_TOPICS, 3, ALPHA, ETA)
        of_documents = gammaln(chain.in_document + ALPHA).sum()
        of_words = gammaln(chain.of_word + ETA).sum() - gammaln(chain.of_word.sum(0) + 3 * ETA).sum()
        log_joint.append(of_documents + of_words)
    probability = softmax(log_joint)
    # a sum that names the assignment: 2^place for the tokens in topic 1
    names = 2 ** np.arange(len(tokens.word))[::-1]
    ends = []
    for begin in random.choice(len(every), chains, p=probability):
        chain = TopicsInWideGroups(tokens, every[begin], N_TOPICS, 3, ALPHA, ETA)
        chain.sweep(random, exact=exact)
        ends.append(chain.topics @ names)
    return np.bincount(ends, minlength=len(every)) / chains, probability


def deviation(seen: np.ndarray, probability: np.ndarray, chains: int = 6000) -> float:
    """χ² of the visits in standard deviations of its own distribution."""
    degrees = len(seen) - 1
    return float(((chains * (seen - probability) ** 2 / probability).sum() - degrees) / np.sqrt(2 * degrees))


def test_a_sweep_leaves_the_posterior_as_it_is_and_accepting_all_does_not():
    random = np.random.default_rng(0)
    assert abs(deviation(*visited(random, exact=True))) < Z_LIMIT
    assert deviation(*visited(random, exact=False)) > 2 * Z_LIMIT


def test_the_correction_is_that_of_the_sampler(float64):
    random = np.random.default_rng(1)
    outside, coming, leaving = random.gamma(2.0, 5.0, (7, 1)), *random.integers(0, 5, (2, 7, 1)).astype(float)
    expected = -total_corrections(*map(jnp.asarray, (outside, coming, leaving))).sum()
    np.testing.assert_allclose(log_correction(outside.T, coming.T, leaving.T)[0], expected)
