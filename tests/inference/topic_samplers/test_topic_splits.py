"""What one topic more gains, annealed between two sizes: against enumeration, and against planted bugs."""

from functools import cache
from itertools import product

import jax
import numpy as np
import pytest
from compiled import Compiled
from oracles import lda_posterior
from scipy.sparse import csr_array
from scipy.special import softmax
from scipy.stats import chi2

import lvsearch as lv
from lvsearch.inference.annealing.between_sizes import Gain, gain_downwards, gain_upwards
from lvsearch.inference.annealing.particles import draw_from_q
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.topic_samplers import paths, size_gain, splits
from lvsearch.inference.topic_samplers.chain import collapsed_topics
from lvsearch.inference.topic_samplers.paths import draw_topics_of_tokens
from lvsearch.inference.topic_samplers.size_gain import settle, splits_between, with_alpha
from lvsearch.inference.topic_samplers.splits import TopicSplits
from lvsearch.inference.topic_samplers.topic_state import GivenFactors

PATHS = 1000
TEMPERATURES = np.linspace(0.0, 1.0, 9)[1:]
COUNTS = np.array([[2, 0, 1, 0], [0, 2, 0, 1], [1, 0, 0, 1]])
TOTAL, ETA = 1.7, 0.4
WIDE = 0


def path_to(
    n_topics: int, width: int = 1, labelled: bool = False, pairs: int = 1
) -> tuple[TopicSplits, object, object]:
    """Return the path from `pairs` topics fewer to `n_topics`, and draws of the posteriors of both sizes.

    width: number of tokens drawn together; WIDE for wide groups, in which words repeat.
    labelled: whether the path knows one labelling, from one chain; else it knows the average over all, which is none.
    """
    return made_path(n_topics, width, labelled, pairs)


@cache
def made_path(n_topics: int, width: int, labelled: bool, pairs: int) -> tuple[TopicSplits, object, object]:
    """Make the path of `path_to` once for all tests."""
    keys = jax.random.split(jax.random.key(n_topics), 4)
    alpha = np.full(n_topics, TOTAL / n_topics)
    larger = collapsed_topics(csr_array(COUNTS), alpha, ETA, 4, width=width, wide=width == WIDE)
    merged = np.full(n_topics, TOTAL / (n_topics - pairs))
    merged[pairs : 2 * pairs] = 0.0
    smaller = with_alpha(larger, merged)
    with jax.enable_x64(True):
        upper, _ = settle(larger, keys[1], draw_from_q(larger, keys[0], particles=PATHS), 30, 1)
        known = larger.take(upper, jax.numpy.arange(1)) if labelled else upper
        path = splits_between(larger, smaller, settle(larger, keys[2], known, 0, 8)[1], pairs)
        lower, _ = settle(smaller, keys[3], path.merge(upper), 30, 1)
    return path, lower, upper


@cache
def gained(n_topics: int, width: int, labelled: bool, pairs: int) -> np.ndarray:
    """Return the log weights of `made_path` from the smaller size to the larger one."""
    path, lower, _ = made_path(n_topics, width, labelled, pairs)
    return gain_upwards(path, jax.random.key(1), lower, TEMPERATURES)


@cache
def exact_gain(n_topics: int, fewer: int = 1) -> float:
    """Return log p(words | n_topics) − log p(words | n_topics − fewer), summed over all assignments."""
    sizes = (n_topics - fewer, n_topics)
    evidence = [lda_posterior(COUNTS, np.full(k, TOTAL / k), ETA).log_evidence for k in sizes]
    return evidence[1] - evidence[0]


def z_score(log_weights: np.ndarray, exact: float) -> float:
    """How many standard errors the mean of the weights lies from e^exact."""
    weights = np.exp(log_weights - exact)
    return float((weights.mean() - 1) / (weights.std() / np.sqrt(len(weights))))


slow = pytest.mark.slow


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("n_topics", "width", "pairs"),
    [
        pytest.param(2, 1, 1, marks=slow),
        pytest.param(3, 1, 1, marks=slow),
        pytest.param(3, 2, 1, marks=slow),
        pytest.param(4, 1, 1, marks=slow),
        pytest.param(3, WIDE, 1, marks=slow),
        (4, 1, 2),
        pytest.param(4, WIDE, 2, marks=slow),
    ],
)
def test_both_directions_agree_with_enumeration(n_topics, width, pairs):
    """The mean of e^forward is p(w | K) / p(w | K − 1), that of e^−backward its reciprocal: |z| > 4 has a chance of
    1e-4 (weights are skewed: a little more)."""
    path, _, upper = path_to(n_topics, width, pairs=pairs)
    up = gained(n_topics, width, False, pairs)
    down = gain_downwards(path, jax.random.key(2), upper, TEMPERATURES)
    exact = exact_gain(n_topics, pairs)
    assert abs(z_score(up, exact)) < 4
    assert abs(z_score(-down, -exact)) < 4
    assert up.mean() < exact < down.mean()  # by Jensen's inequality, here by far more than their errors


@pytest.mark.thorough
@pytest.mark.parametrize("seeded", [0, 2])
def test_gains_with_seeds_agree_with_enumeration(seeded):
    """Topics 0 and 1 are the pair, topic 2 is the third: seeds are in the pair's first topic, or outside of it."""
    n_topics, seeds = 3, np.zeros((3, 4))
    seeds[seeded] = [4, 0, 0, 7]
    larger = collapsed_topics(csr_array(COUNTS), np.full(3, TOTAL / 3), ETA, 4, seeds=seeds)
    smaller = with_alpha(larger, np.array([TOTAL / 2, 0.0, TOTAL / 2]))
    keys = jax.random.split(jax.random.key(5), 6)
    with jax.enable_x64(True):
        upper, averages = settle(larger, keys[1], draw_from_q(larger, keys[0], particles=PATHS), 30, 1)
        path = splits_between(larger, smaller, averages)
        lower, _ = settle(smaller, keys[3], path.merge(upper), 30, 1)
    evidence = [
        lda_posterior(COUNTS, np.full(k, TOTAL / k), ETA + kept).log_evidence
        for k, kept in ((n_topics - 1, seeds[[0, 2]]), (n_topics, seeds))
    ]
    exact = evidence[1] - evidence[0]
    up, down = gain_upwards(path, keys[4], lower, TEMPERATURES), gain_downwards(path, keys[5], upper, TEMPERATURES)
    assert abs(z_score(up, exact)) < 4
    assert abs(z_score(-down, -exact)) < 4
    assert up.mean() < exact < down.mean()
    assert abs(exact - exact_gain(3)) > 0.005  # the seeds matter


def misfit_of_wide_groups(t: float) -> float:
    """p of chi-squared: particles drawn exactly from the path at t, moved by one sweep, against the same."""
    particles, counts = 40_000, csr_array(np.array([[2, 1], [2, 0]]))
    larger = collapsed_topics(counts, np.full(4, TOTAL / 4), ETA, 4, wide=True)
    assert larger.leader is not None
    smaller = with_alpha(larger, np.array([TOTAL / 2, TOTAL / 2, 0.0, 0.0]))
    with jax.enable_x64(True):
        every = np.array(list(product(range(4), repeat=5)), np.int32).T
        assignment = np.full((len(larger.word), every.shape[1]), -1, np.int32)
        assignment[larger.word >= 0] = every
        state = larger.state_of_topics(jax.numpy.asarray(assignment))
        averages = settle(larger, jax.random.key(0), larger.take(state, jax.numpy.arange(200, 203)), 0, 4)[1]
        path = splits_between(larger, smaller, averages, 2)
        log_pi = np.asarray(path.log_density(state) - (1 - t) * path.log_ratio(state))
        pi = softmax(log_pi)
        chosen = np.random.default_rng(1).choice(len(pi), particles, p=pi)
        step = jax.jit(lambda path, key, state: path.step(key, state, jax.numpy.asarray(t), backward=False))
        moved = step(path, jax.random.key(2), path.take(state, jax.numpy.asarray(chosen)))
    seen = np.bincount(4 ** np.arange(5)[::-1] @ np.asarray(moved.assignment)[larger.word >= 0], minlength=len(pi))
    common = pi * particles >= 5
    expected, observed = pi[common] * particles, seen[common]
    rest = particles - expected.sum()
    total = ((observed - expected) ** 2 / expected).sum() + (particles - observed.sum() - rest) ** 2 / rest
    return float(chi2.sf(total, len(expected)))


@pytest.mark.thorough
@pytest.mark.parametrize("t", [pytest.param(0.1, marks=slow), 0.6])
def test_a_sweep_over_wide_groups_leaves_its_place_on_the_path_as_it_is(t):
    assert misfit_of_wide_groups(t) > 1e-4


@slow
@pytest.mark.parametrize("t", [0.1, 0.6])
def test_without_the_ratio_of_words_it_would_not(t, monkeypatch):
    """At .1 it is nearly all that of the merged topics."""
    monkeypatch.setattr(splits, "word_correction", lambda outside, inside, eta: 0.0 * outside)
    assert misfit_of_wide_groups(t) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("n_topics", "pairs"), [pytest.param(2, 1, marks=slow), pytest.param(3, 1, marks=slow), (4, 2)]
)
def test_measured_labels_leave_the_estimate_unbiased(n_topics, pairs):
    """The chain forgets the labelling that the path knows: weights are wide, and their mean is right. At 4 topics half
    a nat more or less would be seen."""
    up = gained(n_topics, 1, True, pairs)
    assert abs(z_score(up, exact_gain(n_topics, pairs))) < 4


@pytest.mark.thorough
@pytest.mark.parametrize(("n_topics", "pairs"), [pytest.param(3, 1, marks=slow), (4, 2)])
def test_a_planted_bug_of_half_a_nat_is_seen(n_topics, pairs):
    assert abs(z_score(gained(n_topics, 1, False, pairs), exact_gain(n_topics, pairs) - 0.5)) > 4


@pytest.mark.parametrize(("n_topics", "pairs"), [pytest.param(3, 1, marks=slow), (4, 2)])
def test_the_weights_of_the_path_are_the_log_joints_of_its_ends(n_topics, pairs):
    """log π_1 − log π_0 = log p(z, w | K) − log p(merge(z), w | K − m) − Σ log shares, the switch of α included."""
    path, _, upper = path_to(n_topics, pairs=pairs)
    with jax.enable_x64(True):
        of_path, larger, smaller = Compiled(path), Compiled(path.larger), Compiled(path.smaller)
        ratio = np.asarray(of_path.log_ratio(upper)) + np.asarray(of_path.log_switch(upper))
        shares = np.asarray(of_path._log_shares(np.maximum(upper.assignment, 0)))
        paired = (np.asarray(upper.assignment) < 2 * pairs) & (np.asarray(upper.assignment) >= 0)
        joints = np.asarray(larger.log_density(upper)) - np.asarray(smaller.log_density(of_path.merge(upper)))
        expected = joints - np.where(paired, shares, 0.0).sum(0)
    np.testing.assert_allclose(ratio, expected, atol=1e-5)


def test_splitting_divides_each_token_by_its_shares():
    path, lower, _ = path_to(4, pairs=2)
    topic = np.asarray(lower.assignment)
    with jax.enable_x64(True):
        split = Compiled(path).split(jax.random.key(0), lower)
        back = Compiled(path).merge(split)
        shares = np.asarray(Compiled(path)._log_shares(np.maximum(topic, 0) + 2))
    np.testing.assert_array_equal(back.assignment, topic)
    real = topic[:, 0] >= 0
    second = np.exp(shares)[real].mean(1)
    seen = (np.asarray(split.assignment)[real] == topic[real] + 2).mean(1)
    np.testing.assert_allclose(seen, second, atol=5 * 0.5 / np.sqrt(PATHS))


@pytest.mark.slow
def test_labels_are_measured_so_that_mixing_over_labellings_costs_nothing():
    """With one document of one word, topics are exchanged all the time: no log K may be added."""
    counts = csr_array(np.array([[1, 0, 0, 0]]))
    larger = collapsed_topics(counts, np.full(2, 0.5), ETA, 4)
    path = splits_between(larger, with_alpha(larger, np.array([1.0, 0.0])), settle_one(larger))
    with jax.enable_x64(True):
        lower, _ = settle(
            path.smaller, jax.random.key(3), draw_from_q(path.smaller, jax.random.key(4), particles=500), 2, 1
        )
    up = gain_upwards(path, jax.random.key(1), lower, TEMPERATURES)
    assert abs(z_score(up, 0.0)) < 4  # p(w) = 1/4, however many topics
    assert up.std() < 0.5


def settle_one(chain):
    """Averages of the topics over a short chain."""
    with jax.enable_x64(True):
        return settle(chain, jax.random.key(0), draw_from_q(chain, jax.random.key(1), particles=4), 2, 4)[1]


@pytest.mark.parametrize("at_once", [8, 1 << 22])
def test_first_topics_of_tokens_are_drawn_by_the_responsibilities_of_a_fit(monkeypatch, at_once):
    """Weights are θ_dk φ_kw; slots without a token stay empty; a topic of probability 0 is never drawn."""
    monkeypatch.setattr(paths, "MOST_WEIGHTS_AT_ONCE", at_once)
    proportions = np.array([[0.6, 0.3, 0.1, 0.0], [0.1, 0.1, 0.8, 0.0], [0.25, 0.5, 0.25, 0.0]])
    topics = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]])
    with np.errstate(divide="ignore"):
        factors = GivenFactors(np.log(proportions), np.log(topics.T))
    chain = collapsed_topics(csr_array(COUNTS), np.full(4, 0.5), ETA, 8, width=2)
    drawn = draw_topics_of_tokens(chain, factors, np.random.default_rng(0), PATHS)
    real = chain.word >= 0
    assert real.sum() == COUNTS.sum()
    assert (drawn[~real] == -1).all()
    weights = proportions[chain.document[real]] * topics.T[chain.word[real]]
    seen = (drawn[real][:, :, None] == np.arange(4)).mean(1)
    np.testing.assert_allclose(seen, weights / weights.sum(1, keepdims=True), atol=5 * 0.5 / np.sqrt(PATHS))
    assert (seen[:, 3] == 0).all()


@pytest.mark.parametrize(
    ("n_topics", "doubles", "fewer", "temperatures"),
    [(40, 20, 1, 24), (96, 1, 4, 24), (96, 6, 6, 24), (96, 10, 8, 12), (96, 48, 16, 12)],
)
def test_large_sizes_merge_the_pairs_that_are_alike_and_never_only_one(
    monkeypatch, n_topics, doubles, fewer, temperatures
):
    """Each topic has words of its own, but `doubles` pairs of topics share them. Merging such a pair costs next to
    nothing, the merger of another one hundreds of nats."""
    own = np.arange(n_topics)
    own[:doubles] = np.arange(n_topics - doubles, n_topics)
    counts = np.zeros((n_topics, n_topics))
    counts[np.arange(n_topics), own] = 500.0
    counts += np.random.default_rng(0).uniform(0.0, 0.1, counts.shape)
    model = lv.models.LDA(1.0, ETA)
    estimate = Estimate(model, (n_topics,), {"topic_word": counts + ETA - 1}, -np.inf, np.inf, 1)
    asked = []

    def record(*given: object) -> Gain:
        asked.append(given)
        return Gain(np.zeros(1), np.zeros(1), 1)

    monkeypatch.setattr(size_gain, "gain_of_last_topics", record)
    data = lv.Corpus.from_matrix(np.ones((1, n_topics), int)).dataset()
    size_gain.gain_of_last_topic(model, data, (n_topics,), estimate, jax.random.key(0), 0)
    ((*_, work, merged),) = asked
    assert (merged, work.temperatures) == (fewer, temperatures)


@pytest.mark.parametrize(
    ("per_topic", "trial", "forward", "backward", "temperatures"),
    [
        (4, 0, (900.0, 1200.0), (9000.0, 8000.0), [8]),  # all paths say that the topic gains
        (4, 0, (-9000.0, -8000.0), (-900.0, -300.0), [8]),
        (4, 0, (-900.0, -1200.0), (900.0, 800.0), [8, 24]),  # the sign is open
        (4, 1, (900.0, 1200.0), (9000.0, 8000.0), [24]),
        (4, 2, (900.0, 1200.0), (9000.0, 8000.0), [60]),
        (5, 0, (900.0, 1200.0), (9000.0, 8000.0), [24]),  # 12 tokens are few for three topics
    ],
)
def test_with_many_tokens_a_short_measurement_stands_if_all_paths_agree_on_the_sign(
    monkeypatch, per_topic, trial, forward, backward, temperatures
):
    asked = []

    def record(*given: object) -> Gain:
        asked.append(given[5].temperatures)
        return Gain(np.array(forward), np.array(backward), asked[-1])

    monkeypatch.setattr(size_gain, "gain_of_last_topics", record)
    monkeypatch.setattr(size_gain, "MANY_TOKENS", 12)
    monkeypatch.setattr(size_gain, "MANY_PER_TOPIC", per_topic)
    data = lv.Corpus.from_matrix(np.ones((4, 3), int)).dataset()
    estimate = Estimate(lv.models.LDA(1.0, ETA), (3,), {"topic_word": np.ones((3, 3))}, -np.inf, np.inf, 1)
    found = size_gain.gain_of_last_topic(estimate.model, data, (3,), estimate, jax.random.key(0), trial)
    assert asked == temperatures
    assert found.temperatures == temperatures[-1]
