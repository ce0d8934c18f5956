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

from lvsearch.inference.annealing.dispatch import HOPELESS, MANY_LATENTS
from lvsearch.inference.evidence import (
    CollapsedTopics,
    Effort,
    GivenFactors,
    anchored_chain,
    anneal,
    collapsed_topics,
    effort,
    temperature_profile,
)
from lvsearch.inference.topic_samplers import chain as topic_chain
from lvsearch.inference.topic_samplers.anchor import documents_in_random_order, from_topics
from lvsearch.inference.topic_samplers.collapsed import log_joint_of
from lvsearch.inference.topic_samplers.paths import GROUPED_DRAWS
from lvsearch.inference.topic_samplers.topic_state import (
    MOST_IN_WIDE_GROUP,
    TopicState,
    group_width,
    leaders_of_words,
    redraw_group,
    small_groups,
    wide_groups,
)
from lvsearch.sizing.evidence import Bracket

COUNTS = np.array([[2, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 0]])
ALPHA, ETA = np.array([0.4, 0.9]), 0.3
EXACT = oracles.lda_posterior(COUNTS, ALPHA, ETA).log_evidence
N_TOKENS = int(COUNTS.sum())
TOPICS = np.random.default_rng(0).dirichlet(np.ones(3), 2)
WIDE = 0


@cache
def chain(q: str, capacity: int = 3, width: int = 1) -> CollapsedTopics:
    """width: number of tokens drawn together; WIDE for wide groups, in which words repeat."""
    counts, wide = csr_array(COUNTS), width == WIDE
    if q == "prior":
        return collapsed_topics(counts, ALPHA, ETA, capacity, width=width, wide=wide)
    shares = None if q == "topics" else np.log(np.random.default_rng(0).dirichlet([1.0, 1.0], 4))
    factors = GivenFactors(shares, np.log(TOPICS.T))
    return collapsed_topics(counts, ALPHA, ETA, capacity, factors, width=width, wide=wide)


_step = jax.jit(
    lambda chain, key, state, t, backward: chain.step(key, state, t, backward=backward), static_argnames="backward"
)
_init = jax.jit(lambda chain, key, particles: chain.init(key, particles), static_argnums=2)


def every_state(q: str, width: int = 1) -> TopicState:
    """All 2^N assignments, one a particle."""
    z = np.array(list(product(range(2), repeat=N_TOKENS)), np.int32).T
    here = chain(q, width=width)
    padded = np.full((len(here.word), z.shape[1]), -1, np.int32)
    padded[here.word >= 0] = z
    return here._state(jnp.asarray(padded))


def code(state: TopicState) -> np.ndarray:
    """The number of each particle's assignment in `every_state`."""
    assignment = np.asarray(state.assignment)
    return (1 << np.arange(N_TOKENS)[::-1]) @ assignment[assignment[:, 0] >= 0]


@pytest.mark.slow
def test_densities_are_the_model_s(float64):
    state = every_state("prior")
    of_words = np.asarray(state.word_topic)[:3, :2]
    of_documents = np.asarray(state.document_topic)[:4, :2]
    by_hand = [
        log_joint_of(of_documents[..., i].astype(np.int32), of_words[..., i].astype(np.int32), ALPHA, ETA)
        for i in range(2**N_TOKENS)
    ]
    assert np.asarray(chain("prior").log_density(state)) == pytest.approx(by_hand, abs=1e-9)
    assert logsumexp(by_hand) == pytest.approx(EXACT, abs=1e-9)
    log_prior = np.asarray(chain("prior").log_density(state)) - np.asarray(chain("prior").log_ratio(state))
    assert logsumexp(log_prior) == pytest.approx(0.0, abs=1e-9)  # q is a distribution: the prior of z
    log_q = np.asarray(chain("responsibilities").log_density(state) - chain("responsibilities").log_ratio(state))
    assert logsumexp(log_q) == pytest.approx(0.0, abs=1e-6)  # float32
    log_q = np.asarray(chain("topics").log_density(state) - chain("topics").log_ratio(state))
    found = [from_topics(csr_array(COUNTS), ALPHA, ETA, 3, TOPICS, jax.random.key(seed)) for seed in range(20)]
    errors = np.array([(float(each.chain.log_start) - logsumexp(log_q)) / each.error for each in found])
    assert np.all(np.abs(errors) < 4)
    assert np.mean(errors**2) < 2  # q's own evidence, where it has to be estimated


def misfit(q: str, t: float, at: float, backward: bool, width: int = 1) -> float:
    """p of chi-squared: particles drawn from π_t exactly, moved by one sweep at `at`, against π_t."""
    particles = 20_000
    with jax.enable_x64(True):
        here, state = chain(q, width=width), every_state(q, width)
        log_p, log_ratio = here.log_density(state), here.log_ratio(state)
        log_pi = np.asarray(log_p - log_ratio + t * log_ratio)
        pi = np.exp(log_pi - logsumexp(log_pi))
        chosen = np.random.default_rng(1).choice(len(pi), particles, p=pi)
        start = here.take(state, jnp.asarray(chosen))
        moved = _step(here, jax.random.key(2), start, jnp.asarray(at), backward=backward)
    seen = np.bincount(code(moved), minlength=len(pi))
    rare = pi * particles < 5  # counted together, with the most frequent
    rare[np.argmax(pi)] = True
    expected = np.append(pi[~rare], pi[rare].sum()) * particles
    observed = np.append(seen[~rare], seen[rare].sum())
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))


@pytest.mark.thorough
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("t", [0.4, *(pytest.param(t, marks=pytest.mark.slow) for t in (0.0, 1.0))])
@pytest.mark.parametrize("q", ["prior", "topics", "responsibilities"])
def test_a_sweep_leaves_its_place_on_the_path_as_it_is(q, t, backward):
    """Fixed keys; over keys one of these eighteen fails by chance in 1 of 500."""
    assert misfit(q, t, t, backward) > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("backward", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("t", [0.4, 1.0])
@pytest.mark.parametrize(
    "q", ["prior", *(pytest.param(q, marks=pytest.mark.slow) for q in ("responsibilities", "topics"))]
)
def test_so_does_one_of_groups(q, t, backward):
    """Two tokens together, with so few in all that it matters which proposals are refused (below)."""
    assert chain(q, width=2).width == 2
    assert misfit(q, t, t, backward, 2) > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("t", [0.4, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "q", ["prior", *(pytest.param(q, marks=pytest.mark.slow) for q in ("responsibilities", "topics"))]
)
def test_so_does_one_of_wide_groups(q, t):
    """One group has the same word twice, of two documents."""
    here = chain(q, width=WIDE)
    assert here.leader is not None
    groups = zip(here.word.reshape(-1, 2).tolist(), here.leader.reshape(-1, 2).tolist(), strict=True)
    assert sum(words[0] == words[1] >= 0 and leaders == [0, 0] for words, leaders in groups) == 1
    assert misfit(q, t, t, False, WIDE) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("width", [2, WIDE])
def test_groups_whose_proposals_were_all_accepted_would_not(width, monkeypatch):
    def accepting(state: Any, before: Any, at: Any, rule: Any, uniform: Any) -> TopicState:
        return redraw_group(state, before, at, rule, uniform._replace(group=0.0 * uniform.group))

    monkeypatch.setattr(topic_chain, "redraw_group", accepting)
    monkeypatch.setitem(globals(), "_step", lambda chain, *given, backward: chain.step(*given, backward=backward))
    assert misfit("prior", 1.0, 1.0, False, width) < 1e-6


@pytest.mark.thorough
def test_wide_groups_whose_words_were_all_accepted_would_not(monkeypatch):
    def accepting(state: Any, before: Any, at: Any, rule: Any, uniform: Any) -> TopicState:
        return redraw_group(state, before, at, rule, uniform._replace(words=0.0 * uniform.words))

    monkeypatch.setattr(topic_chain, "redraw_group", accepting)
    monkeypatch.setitem(globals(), "_step", lambda chain, *given, backward: chain.step(*given, backward=backward))
    assert misfit("prior", 1.0, 1.0, False, WIDE) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("q", ["prior", "topics", "responsibilities"])
def test_a_sweep_for_another_place_does_not(q):
    assert misfit(q, 0.4, 0.8, False) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(
    "q", ["responsibilities", *(pytest.param(q, marks=pytest.mark.slow) for q in ("prior", "topics"))]
)
def test_first_draws_are_from_q(q):
    with jax.enable_x64(True):
        state = every_state(q)
        log_q = np.asarray(chain(q).log_density(state) - chain(q).log_ratio(state))
        expected = np.exp(log_q - logsumexp(log_q))
        drawn = code(_init(chain(q), jax.random.key(4), 20_000))
    seen = np.bincount(drawn, minlength=len(expected))
    assert chi2.sf(((seen - expected * 20_000) ** 2 / (expected * 20_000)).sum(), len(expected) - 1) > 1e-4


def bracket(chain: Any, seed: int, steps: int = 16) -> Bracket:
    key_pilot, key = jax.random.split(jax.random.key(seed))
    work = Effort(steps, 2, 16)
    (ends,) = anneal(chain, key, work, temperature_profile(chain, key_pilot, work))
    return Bracket(tuple(ends.forward.tolist()), tuple(ends.backward.tolist()), steps, 32, ends.anchor_error)


def coverage(chain: Any, exact: float, seeds: int) -> float:
    """How often |estimate − exact| is within two standard errors (and a hundredth of a nat of rounding)."""
    found = [bracket(chain, seed) for seed in range(seeds)]
    return float(np.mean([abs(b.estimate - exact) <= 2 * b.standard_error + 0.01 for b in found]))


@pytest.mark.parametrize(
    "q", ["prior", *(pytest.param(q, marks=pytest.mark.slow) for q in ("responsibilities", "topics"))]
)
def test_the_evidence_is_exact_within_its_error(q):
    """From a q of one labelling too: with a symmetric α, states end with what their labelling is worth."""
    exact = EXACT if q == "prior" else oracles.lda_posterior(COUNTS, np.full(2, 0.5), ETA).log_evidence
    given, counts = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]]), csr_array(COUNTS)
    here = chain(q)
    if q == "topics":
        here = from_topics(counts, np.full(2, 0.5), ETA, 3, given, jax.random.key(1)).chain
    elif q == "responsibilities":
        factors = GivenFactors(np.log(np.random.default_rng(0).dirichlet([1.0, 1.0], 4)), np.log(given.T))
        here = collapsed_topics(counts, np.full(2, 0.5), ETA, 3, factors, width=2)
    found = [bracket(here, seed) for seed in range(4)]
    assert np.mean([b.estimate for b in found]) == pytest.approx(exact, abs=0.15)
    assert all(abs(b.estimate - exact) <= 4 * b.standard_error + 0.01 for b in found)


@pytest.mark.slow
def test_errors_cover_over_seeds():
    """100 seeds: nominally 95 %; fewer than 85 would be a failure of 1 in 10,000 at 95 %."""
    assert coverage(chain("prior"), EXACT, 100) >= 0.85
    assert coverage(chain("prior"), EXACT + 1.0, 100) < 0.5  # the test can fail


@pytest.mark.smoke
def test_one_topic_is_exact_and_capacity_does_not_matter(float64):
    truth = oracles.lda_posterior(COUNTS, np.array([0.7]), ETA).log_evidence
    found = bracket(collapsed_topics(csr_array(COUNTS), np.array([0.7]), ETA, 3), 0)
    assert (found.lower, found.upper) == (pytest.approx(truth, abs=1e-6), pytest.approx(truth, abs=1e-6))
    wide = np.asarray(chain("prior", 6).log_words(chain("prior", 6)._state(every_state("prior").assignment)))
    assert wide == pytest.approx(np.asarray(chain("prior").log_words(every_state("prior"))), abs=1e-9)


SEEDS = np.array([[1.0, 0.0, 2.0]])
SEEDED_ALPHA = np.full(3, 0.5)
SEEDED_PRIOR = ETA + np.pad(SEEDS, ((0, 2), (0, 0)))
SEEDED_EXACT = oracles.lda_posterior(COUNTS, SEEDED_ALPHA, SEEDED_PRIOR).log_evidence


@cache
def seeded_chain(q: str, width: int = 1) -> CollapsedTopics:
    """Three topics, of which the first has seeds."""
    counts, random = csr_array(COUNTS), np.random.default_rng(0)
    topics = random.dirichlet(np.ones(3), 3)
    if q == "topics":
        return from_topics(counts, SEEDED_ALPHA, ETA, 4, topics, jax.random.key(1), seeds=SEEDS).chain
    shares = np.log(random.dirichlet(np.ones(3), 4))
    factors = None if q == "prior" else GivenFactors(shares, np.log(topics.T))
    return collapsed_topics(counts, SEEDED_ALPHA, ETA, 4, factors, width=width, wide=width == WIDE, seeds=SEEDS)


@pytest.mark.thorough
def test_seeds_are_tokens_whose_topics_are_known(float64):
    """log p(w, z) of every assignment is that of a prior with the imaginary tokens added; q is a distribution of z."""
    z = np.array(list(product(range(3), repeat=N_TOKENS)), np.int32).T
    here = seeded_chain("prior")
    padded = np.full((len(here.word), z.shape[1]), -1, np.int32)
    padded[here.word >= 0] = z
    state = here.state_of_topics(jnp.asarray(padded))
    exact = oracles.lda_posterior(COUNTS, SEEDED_ALPHA, SEEDED_PRIOR)
    assert logsumexp(np.asarray(here.log_density(state))) == pytest.approx(exact.log_evidence, abs=1e-9)
    free = oracles.lda_posterior(COUNTS, SEEDED_ALPHA, ETA).log_evidence
    assert abs(free - exact.log_evidence) > 0.01  # the seeds matter
    weights = np.exp(np.asarray(here.log_density(state)) - exact.log_evidence)
    means = np.asarray(here.topic_means(state))[:3, :3] @ weights
    np.testing.assert_allclose(means.T, exact.topics, atol=1e-6)
    with_factors = seeded_chain("responsibilities")
    log_q = np.asarray(with_factors.log_density(state) - with_factors.log_ratio(state))
    assert logsumexp(log_q) == pytest.approx(0.0, abs=1e-6)  # float32
    scores = np.asarray(with_factors.label_scores(state))
    is_free = np.array([False, True, True, False])
    np.testing.assert_array_equal(np.isfinite(scores[0]), np.eye(4, dtype=bool) | (is_free[:, None] & is_free))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("q", "width"),
    [
        ("prior", 1),
        pytest.param("responsibilities", 2, marks=pytest.mark.thorough),
        pytest.param("topics", 1, marks=pytest.mark.thorough),
        pytest.param("prior", WIDE, marks=pytest.mark.slow),
    ],
)
def test_the_evidence_with_seeds_is_exact(q, width):
    """Weights of the way up average to the evidence, whatever its labelling; the error of 500 paths is .03 nats."""
    assert log_average_weight(seeded_chain(q, width)) == pytest.approx(SEEDED_EXACT, abs=0.12)


def log_average_weight(chain: CollapsedTopics) -> float:
    key_pilot, key = jax.random.split(jax.random.key(0))
    (ends,) = anneal(chain, key, Effort(16, 1, 500), temperature_profile(chain, key_pilot, Effort(16, 2, 16)))
    return float(np.mean(ends.forward))


@pytest.mark.thorough
@pytest.mark.parametrize("only_free", [True, pytest.param(False, id="all")])
def test_only_free_topics_may_be_relabelled(monkeypatch, only_free):
    """From topics in which other words are common than those of the seeds. Each capacity is traced anew."""
    if not only_free:
        monkeypatch.setattr(CollapsedTopics, "exchangeable", CollapsedTopics._exists)
    topics, seeds = np.array([[0.05, 0.9, 0.05], [0.9, 0.05, 0.05], [0.05, 0.05, 0.9]]), 10 * SEEDS
    capacity = 5 if only_free else 6
    chain = from_topics(csr_array(COUNTS), SEEDED_ALPHA, ETA, capacity, topics, jax.random.key(1), seeds=seeds).chain
    prior = ETA + np.pad(seeds, ((0, 2), (0, 0)))
    off = log_average_weight(chain) - oracles.lda_posterior(COUNTS, SEEDED_ALPHA, prior).log_evidence
    assert (abs(off) < 0.15) == only_free, off


@pytest.mark.thorough
def test_documents_in_turn_begin_with_the_seeds(float64):
    """Their order is fixed and one document comes: the average of its weights is its probability."""
    one = csr_array(COUNTS[:1])
    chain = collapsed_topics(one, SEEDED_ALPHA, ETA, 4, seeds=SEEDS)
    turns = documents_in_random_order(chain, jax.random.key(0))
    state = turns.initial_state(jax.random.key(1), 20_000)
    _, gain = turns.append(jax.random.key(2), state, jnp.asarray(0))
    weights = np.exp(np.asarray(gain))
    exact = np.exp(oracles.lda_posterior(COUNTS[:1], SEEDED_ALPHA, SEEDED_PRIOR).log_evidence)
    assert abs(weights.mean() - exact) < 4 * weights.std() / np.sqrt(len(weights))


def test_more_seeded_topics_than_topics_are_refused():
    with pytest.raises(ValueError, match="got 1 topics, expected at least 2"):
        collapsed_topics(csr_array(COUNTS), np.ones(1), ETA, 3, seeds=np.eye(2, 3))


def test_a_corpus_without_tokens_has_evidence_one():
    empty = collapsed_topics(csr_array(np.zeros((2, 3), np.int64)), ALPHA, ETA, 3)
    assert bracket(empty, 0).estimate == pytest.approx(0.0, abs=1e-9)


def test_counts_that_are_not_whole_are_refused():
    with pytest.raises(ValueError, match="whole numbers"):
        collapsed_topics(csr_array(COUNTS / 2), ALPHA, ETA, 3)


def test_the_same_key_gives_the_same_bits_whatever_the_threads_do():
    first, second = bracket(chain("prior"), 7), bracket(chain("prior"), 7)
    assert first == second != bracket(chain("prior"), 8)


def three_obvious_topics(n_documents: int = 30) -> CollapsedTopics:
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(3), np.full(10, 0.1))
    counts = np.stack([rng.multinomial(40, topics[document % 3]) for document in range(n_documents)])
    return collapsed_topics(csr_array(counts), np.full(3, 0.3), 0.1, 3)


@pytest.mark.slow
def test_where_directions_are_far_apart_a_second_path_begins_where_the_first_one_ended():
    """The path from the prior is hundreds of nats wide in so few steps, the other one is not."""
    plain = three_obvious_topics()
    key_pilot, key = jax.random.split(jax.random.key(0))
    work = Effort(24, 2, 8)
    first, second = anneal(plain, key, work, temperature_profile(plain, key_pilot, work))
    assert (first.anchor_error is None, second.anchor_error is None) == (True, False)
    wide, narrow = np.mean(first.backward - first.forward), np.mean(second.backward - second.forward)
    assert narrow < 0.1 * wide
    lower = Bracket(tuple(first.forward.tolist()), tuple(first.backward.tolist()), 24, 16).lower
    assert lower < np.mean(second.backward) + 3.0  # nothing is contradicted


@pytest.mark.thorough
@pytest.mark.parametrize("compared", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_first_path_that_is_bound_to_be_too_wide_is_gone_one_way_only(compared):
    """compared: with the number that the same path has where steps are many, both ways."""
    plain = three_obvious_topics(30 if compared else 9)
    key_pilot, key = jax.random.split(jax.random.key(0))
    few, many = Effort(4, 2, 8), Effort(48, 2, 8)
    profile = temperature_profile(plain, key_pilot, few)
    assert HOPELESS * few.steps < len(profile.temperature) <= HOPELESS * many.steps
    (only,) = anneal(plain, key, few, profile)
    assert only.anchor_error is not None
    assert np.isfinite([only.forward, only.backward]).all()
    if not compared:
        return
    _, second = anneal(plain, key, many, profile)
    quick, slow = (float(np.mean(ends.forward + ends.backward) / 2) for ends in (only, second))
    assert quick == pytest.approx(slow, abs=2.0)


@pytest.mark.thorough
def test_topics_to_begin_with_are_those_of_the_best_particle(float64):
    plain = chain("prior")
    anchor = anchored_chain(plain, jax.random.key(0), [_init(plain, jax.random.key(1), 4)] * 2)
    assert anchor is not None
    assert 0 <= anchor.error < 1
    assert anchor.chain.label_scores(every_state("prior")) is not None
    assert float(anchor.chain.log_start) < 0


@pytest.mark.parametrize(("concentration", "taken"), [pytest.param(0.6, True, marks=pytest.mark.slow), (0.06, False)])
def test_no_second_path_begins_where_its_first_draws_would_stick(concentration, taken):
    # three obvious topics: with so small an α sweeps of q under given topics do not move, and p̂ is no longer unbiased
    counts = csr_array(np.kron(np.eye(3, dtype=int), np.full((5, 4), 3)))
    chain = collapsed_topics(counts, np.full(3, concentration / 3), 0.1, 4)
    with jax.enable_x64(True):
        state = _init(chain, jax.random.key(0), 4)
    assert (anchored_chain(chain, jax.random.key(1), [state]) is not None) == taken


def test_tokens_of_a_group_share_neither_document_nor_word_and_all_are_there():
    rng = np.random.default_rng(0)
    document, word = rng.integers(0, 60, 5_000), rng.zipf(1.5, 5_000) % 300
    width = group_width(document, word)
    groups = small_groups(document, word, width)
    assert groups.shape[1] == width == 2  # one word has a third of all
    np.testing.assert_array_equal(np.sort(groups[groups >= 0]), np.arange(5_000))
    for group in groups:
        real = group[group >= 0]
        assert len(real) == len(set(document[real])) == len(set(word[real])) > 0


@pytest.mark.parametrize("width", [2, 8, 32, 64])
def test_groups_are_as_few_as_the_fullest_lane_allows(width):
    # Words come in bursts, as in texts: the tokens of single lanes of documents and words are then far from even.
    rng = np.random.default_rng(1)
    document = rng.integers(0, 300, 4_000)
    word = np.repeat(rng.zipf(1.4, 4_000) % 700, rng.integers(1, 6, 4_000))[:20_000]
    document = np.repeat(document, -(-len(word) // len(document)))[: len(word)]
    groups = small_groups(document, word, width)
    most = max(np.bincount(document).max(), np.bincount(word).max())
    assert len(groups) <= 1.01 * max(most, len(word) / width) + 1
    for group in groups[:: max(1, len(groups) // 50)]:
        real = group[group >= 0]
        assert len(real) == len(set(document[real])) == len(set(word[real]))


@pytest.mark.parametrize(("n_tokens", "width"), [(0, 1), (50, 32), (5_000, 64), (200_000, 64)])
def test_groups_are_as_wide_as_the_commonest_word_and_the_longest_document_allow(n_tokens, width):
    rng = np.random.default_rng(0)
    assert group_width(rng.integers(0, 500, n_tokens), rng.integers(0, 2_000, n_tokens)) == width


@pytest.mark.parametrize(("n_documents", "n_tokens"), [(7, 0), (7, 60), (400, 9_000), (5_000, 9_000)])
def test_wide_groups_hold_every_token_once_and_no_document_twice(n_documents, n_tokens):
    random = np.random.default_rng(1)
    document, word = random.integers(0, n_documents, n_tokens), random.integers(0, 50, n_tokens)
    groups = wide_groups(document)
    assert sorted(groups[groups >= 0]) == list(range(n_tokens))
    assert groups.shape[1] <= MOST_IN_WIDE_GROUP
    assert len(groups) == max(np.bincount(document).max(initial=1), -(-n_tokens // MOST_IN_WIDE_GROUP))
    words = np.append(word, -1)[groups]
    leaders = leaders_of_words(words)
    for group, own, leader in zip(groups, words, leaders, strict=True):
        assert len(set(document[group[group >= 0]])) == (group >= 0).sum()
        np.testing.assert_array_equal(own[leader], own)
        assert len(set(leader)) == len(set(own))


def test_one_topic_takes_one_step_and_many_tokens_go_in_groups():
    assert effort(collapsed_topics(csr_array(COUNTS), np.array([0.7]), ETA, 3), 0).steps == 1
    counts = np.random.default_rng(0).poisson(1.55, (200, 200))
    few, many = (collapsed_topics(csr_array(each), ALPHA, ETA, 3) for each in (counts[:150], counts))
    assert counts.sum() > MANY_LATENTS >= counts[:150].sum()
    assert (few.width, effort(few, 0).steps) == (1, 24)
    assert (many.width, effort(many, 0).steps, len(many.alpha)) == (64, GROUPED_DRAWS // many.elements, 4)
    np.testing.assert_array_equal(np.bincount(many.document[many.document >= 0]), counts.sum(1))
