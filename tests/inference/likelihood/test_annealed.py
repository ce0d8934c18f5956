"""Annealed importance sampling of documents: against enumeration, another annealing, and documents of several modes."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from document_likelihood_coverage import (
    TRUTH,
    Case,
    draw_document,
    draw_topics,
    judge,
    measure,
    pooled,
    truths,
)
from document_oracles import anneal_concentration, sum_over_topic_sets
from scipy import stats
from scipy.special import gammaln, logsumexp

from lvsearch.inference.likelihood import document_likelihood
from lvsearch.inference.likelihood.annealed import (
    CHOICES,
    Document,
    TokenParticles,
    _log_islands,
    _log_islands_soon,
    initial_particles,
    lengths_of_few,
    lengths_of_many,
    log_mean_field,
    log_of,
    log_of_single_topics,
    log_urns,
    relabel,
    split_or_merge,
    sweep,
)
from lvsearch.inference.likelihood.documents import DocumentTile
from lvsearch.inference.likelihood.gibbs_sweep import choose, document_keys, document_uniforms, token_tile
from lvsearch.inference.likelihood.sampling_estimates import average_of_islands


@pytest.fixture(scope="module")
def ambiguous():
    """Four topics that overlap, and words that two pairs of them explain: two modes at a small α."""
    topics = np.random.default_rng(3).dirichlet(np.full(9, 0.4), 4) + 1e-3
    topics /= topics.sum(axis=1, keepdims=True)
    return topics, np.array([0, 0, 1, 3, 3, 5, 8])


@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_the_oracle_is_the_sum_over_topic_sets(ambiguous, alpha):
    """The concentration's annealing gives the enumerated log p."""
    topics, words = ambiguous
    prior = alpha * np.array([1.0, 0.7, 1.3, 0.4])
    sets = sum_over_topic_sets(topics, prior, words)
    exact = logsumexp(list(sets.values()))
    assert len([value for value in sets.values() if value > exact - 4]) > 3  # sets of topics that share the probability
    found, error = anneal_concentration(topics, prior, words, particles=1024, steps=60, seed=0)
    assert error < 0.1
    assert abs(found - exact) < 4 * error + 0.01


def islands_of(program, topics, prior, words, length=16):
    """Return what a program says of five copies of a document, by 80 islands of four particles and six steps.

    length: what the documents are padded to.
    """
    tokens = np.zeros((5, length), np.int32)
    tokens[:, : len(words)] = words
    real = np.zeros_like(tokens)
    real[:, : len(words)] = 1
    return program(
        jnp.asarray(topics.T, jnp.float32),
        jnp.asarray(prior, jnp.float32),
        jnp.asarray(np.maximum(prior, 0.3), jnp.float32),
        *(jnp.asarray(table, jnp.float32) for table in log_urns(prior, length)),
        6,
        tokens,
        real,
        np.arange(5, dtype=np.int32),
        jax.random.key(0),
        80,
        4,
    )


@pytest.mark.thorough
def test_the_program_of_few_documents_is_that_of_many(ambiguous):
    """Compiled with less effort, it makes the same draws."""
    topics, words = ambiguous
    prior = 0.3 * np.array([1.0, 0.7, 1.3, 0.4])
    few, many = (islands_of(program, topics, prior, words) for program in (_log_islands_soon, _log_islands))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), few, many)


@pytest.mark.thorough
def test_blocks_of_padding_change_nothing(ambiguous):
    topics, words = ambiguous
    prior = 0.3 * np.array([1.0, 0.7, 1.3, 0.4])
    little, much = (islands_of(_log_islands_soon, topics, prior, words, length) for length in (64, 256))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), little, much)  # the same draws


def test_few_documents_have_one_length_if_none_is_very_long():
    sizes = np.array([0, 3, 16, 17, 64, 65, 256, 257, 1000, 1025])
    assert lengths_of_many(sizes).tolist() == [16, 16, 16, 64, 64, 128, 256, 512, 1024, 2048]
    assert lengths_of_few(sizes).tolist() == [*[1024] * 9, 2048]
    for most, length in ((3, 16), (6, 256), (8, 512), (9, 1024)):
        assert lengths_of_few(sizes[:most]).tolist() == [length] * most


@pytest.mark.parametrize("n_topics", [3, 16, 17, 40])
def test_topics_are_drawn_in_proportion_to_their_weights(n_topics):
    """Also in groups: the topic is the one at which the running sum of the weights passes the uniform draw."""
    random = np.random.default_rng(n_topics)
    weight = random.dirichlet(np.full(n_topics, 0.3), 6).T.astype(np.float32) * (random.random((n_topics, 6)) < 0.7)
    weight[-1], weight[0] = 0.0, np.maximum(weight[0], 1e-3)
    uniform = np.tile(((np.arange(2000) + 0.5) / 2000).astype(np.float32), (6, 1))
    chosen = choose(jnp.repeat(jnp.asarray(weight)[:, :, None], 2000, axis=2), jnp.asarray(uniform))
    for column, drawn, points in zip(weight.T.astype(np.float64), np.asarray(chosen), uniform, strict=True):
        running = np.cumsum(column)
        edges = np.abs(points[:, None] * running[-1] - running).min(axis=1)
        clear = edges > 1e-6 * running[-1]
        np.testing.assert_array_equal(drawn[clear], np.searchsorted(running, points * running[-1], side="right")[clear])
        assert np.all(column[drawn] > 0)
        assert clear.mean() > 0.99


@pytest.mark.thorough
@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_islands_are_unbiased(ambiguous, alpha):
    """The mean of p̂/p over 400 islands of few steps is 1: weights, resampling and both moves are right."""
    topics, words = ambiguous
    prior = alpha * np.array([1.0, 0.7, 1.3, 0.4])
    exact = logsumexp(list(sum_over_topic_sets(topics, prior, words).values()))
    log_islands, variance = islands_of(_log_islands, topics, prior, words)
    ratio = np.exp(np.asarray(log_islands, np.float64).ravel() - exact)
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    assert error < 0.1
    # what particles say of an island's variance is a part of it, and no more than a third above
    assert 0.0 < np.mean(variance) < 1.33 * ratio.var(ddof=1)
    assert abs(ratio.mean() - 1) < stats.norm.isf(5e-5) * error


@pytest.mark.slow  # below, many tokens of few topics are compared by the same call
def test_a_document_of_several_modes_has_its_right_value():
    """Long annealing, checked by enumeration, has −142.09 ± .05; mean fields on one chain of supports say −142.7."""
    topics = draw_topics(0.1)
    document = draw_document(topics, 0.01, 30, [61, 1])
    copies = np.repeat(document[None], 4, axis=0)  # four rows are four keys
    found = document_likelihood(topics, np.full(50, 0.01), copies, key=jax.random.key(0))
    assert found.method == "ais"
    assert np.all(found.standard_error < 0.6)
    assert np.all(np.abs(found.log_likelihood + 142.09) < 4 * np.hypot(found.standard_error, 0.05))
    together = logsumexp(found.log_likelihood) - np.log(4)
    assert abs(together + 142.09) < 0.4


@pytest.mark.thorough
def test_moves_keep_counts_and_topics_together():
    """After both moves the counts are those of the topics, and no token is where its word is impossible."""
    random = np.random.default_rng(0)
    topics = random.dirichlet(np.full(12, 0.2), 5)
    topics[:, 0] = [0.5, 0, 0, 1e-38, 0]  # a word of one topic, and of another in float32's last range
    topics[:, 1] = [0, 0.5, 0.5, 0, 0]
    words = np.array([[0, 0, 1, 1, 1, *random.integers(2, 12, 11)], [1, 1, 0, *random.integers(2, 12, 13)]])
    real = np.ones_like(words)
    real[1, 9:] = 0
    beta, mask = token_tile(jnp.asarray(topics.T, jnp.float32), words, real)
    alpha = jnp.asarray([0.1, 1e-20, 0.02, 0.3, 1.0], jnp.float32)
    mask = jnp.asarray(mask)
    log_q = log_mean_field(jnp.maximum(alpha, 0.3), beta, mask)
    assert np.all(np.isfinite(log_q))
    log_urn, log_rising = (jnp.asarray(table, jnp.float32) for table in log_urns(np.asarray(alpha, np.float64), 16))
    lengths = real.sum(axis=1)
    document = Document(
        alpha, log_of(beta), log_q, mask, jnp.asarray(16), log_urn[:-1], log_rising[:-1], log_rising[-1][lengths]
    )
    keys = document_keys(jax.random.key(0), jnp.arange(2))
    state = initial_particles(document, islands=2, particles=3)

    @jax.jit
    def moved(step: jax.Array, s: jax.Array, state: TokenParticles) -> TokenParticles:
        state = relabel(state.spare[1:3], s, state, document)
        return sweep(keys, step, s, state, document)

    for step, s in enumerate((0.0, 0.2, 0.9)):
        state = moved(jnp.asarray(step), jnp.asarray(s), state)
        assert_consistent(state, document)


@pytest.mark.thorough
def test_the_first_step_draws_every_token_from_the_mean_field():
    """After step 0 the topics of each token have the shares of q, wherever the tokens were before."""
    topics = np.random.default_rng(1).dirichlet(np.full(6, 0.5), 3)
    words, real = np.array([[0, 1, 2, 3]]), np.ones((1, 4), int)
    beta, mask = token_tile(jnp.asarray(topics.T, jnp.float32), words, real)
    alpha, mask = jnp.full(3, 0.01, jnp.float32), jnp.asarray(mask)
    log_q = log_mean_field(jnp.maximum(alpha, 0.3), beta, mask)
    log_urn, log_rising = (jnp.asarray(table, jnp.float32) for table in log_urns(np.full(3, 0.01), 4))
    document = Document(
        alpha, log_of(beta), log_q, mask, jnp.asarray(4), log_urn[:-1], log_rising[:-1], log_rising[-1][jnp.array([4])]
    )
    n_particles = 20_000
    state = initial_particles(document, islands=1, particles=n_particles)
    keys = document_keys(jax.random.key(0), jnp.arange(1))

    @jax.jit
    def first_step(state: TokenParticles) -> TokenParticles:
        state = relabel(state.spare[1:3], jnp.asarray(0.0), state, document)
        return sweep(keys, jnp.asarray(0), jnp.asarray(0.0), state, document)

    state = first_step(state)
    found = (np.asarray(state.topic)[:, :, None] == np.arange(3)[:, None]).mean(axis=3)  # (position, document, topic)
    expected = np.exp(np.asarray(log_q, np.float64)).transpose(0, 2, 1)
    assert np.all(np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / n_particles) + 1e-4)
    # positions are independent: so are the topics of the first two tokens
    pair = np.asarray(state.topic)[:2, 0] @ (np.asarray(state.topic)[:2, 0].T) / n_particles
    means = np.asarray(state.topic)[:2, 0].mean(axis=1)
    assert abs(pair[0, 1] - means[0] * means[1]) < 4 / np.sqrt(n_particles)


@pytest.mark.parametrize("alpha", [1e-30, 0.01, 50.0, 1e6])
def test_tables_hold_rising_factorials(alpha):
    """The topics' entries and the total's differ by the log of (1)'s prior, in float32 also where α is 10⁶."""
    counts = np.array([[0, 3, 17, 80], [100, 0, 0, 0]])
    prior = alpha * np.array([1.0, 0.7, 0.2, 0.4])
    log_urn, log_rising = (table.astype(np.float32) for table in log_urns(prior, 100))
    found = log_rising[np.arange(4), counts].sum(axis=1) - log_rising[-1, counts.sum(axis=1)]
    # Π (α)_n / (Σα)_L with whole products in place of Γ, whose logs cancel at 10⁶
    logs = [sum(np.log(a + np.arange(n)).sum() for a, n in zip(prior, row, strict=True)) for row in counts]
    totals = [np.log(prior.sum() + np.arange(row.sum())).sum() for row in counts]
    np.testing.assert_allclose(found, np.subtract(logs, totals), rtol=1e-6, atol=2e-5)
    np.testing.assert_allclose(log_urn[:-1, 5], np.log((prior + 5) / max(prior.sum(), 1)), rtol=1e-6)


def test_the_program_is_small_enough_to_compile_in_seconds():
    """A generator of random keys is a loop of its own, and log Γ some four hundred lines: there were 20 loops.

    Four of today's go through the blocks of tokens.
    """
    shape = lambda *axes: jax.ShapeDtypeStruct(axes, jnp.float32)  # noqa: E731
    whole = lambda *axes: jax.ShapeDtypeStruct(axes, jnp.int32)  # noqa: E731
    n_topics, n_words, height, length = 50, 200, 2, 64
    lowered = _log_islands.trace(
        shape(n_words, n_topics),
        shape(n_topics),
        shape(n_topics),
        shape(n_topics + 1, length + 1),
        shape(n_topics + 1, length + 1),
        whole(),
        whole(height, length),
        whole(height, length),
        whole(height),
        jax.eval_shape(lambda: jax.random.key(0)),
        islands=16,
        particles=32,
    ).lower(lowering_platforms=("cpu",))
    text = lowered.as_text()
    assert len(text.splitlines()) < 2700  # a third of them draws from many topics in groups
    assert text.count("stablehlo.while") <= 13


def assert_consistent(state: TokenParticles, document: Document) -> None:
    hot = np.asarray(state.topic)[:, None] == np.arange(len(document.alpha))[:, None, None]
    expected = (hot * np.asarray(document.real)[:, None, :, None]).sum(axis=0)
    np.testing.assert_array_equal(np.asarray(state.counts), expected)
    chosen = np.take_along_axis(np.asarray(document.log_beta)[..., None], np.asarray(state.topic)[:, None], axis=1)
    assert np.all((chosen[:, 0] > -1e3) | (np.asarray(document.real)[..., None] == 0))


@pytest.mark.parametrize(("spread", "least"), [(0.1, 0.94), (0.8, 0.93), (1.2, 0.915)])
def test_the_error_of_islands_is_student_s(spread, least):
    """Normal logs of mean −spread²/2 are the logs of estimates of 1: 2 errors hold as often as the docstring says."""
    logs = np.random.default_rng(0).normal(-(spread**2) / 2, spread, (4000, 8))
    found = average_of_islands(logs, np.zeros_like(logs))
    covered = np.mean(np.abs(found.log_likelihood) <= 2 * found.standard_error)
    assert least < covered < 0.965


@pytest.mark.slow
def test_two_annealings_agree_where_nothing_can_be_enumerated():
    """The path over concentrations, in NumPy, and the long run that judges the campaign, on six documents."""
    topics = draw_topics(0.5)
    documents = np.array([draw_document(topics, 0.01, 30, [61, i]) for i in range(6)])
    prior = np.full(50, 0.01)
    truth = truths(Case(0.01, 0.5, topics, documents))
    for row, document in enumerate(documents):
        words = np.repeat(np.arange(200), document)
        found, error = anneal_concentration(topics, prior, words, particles=1024, steps=300, seed=row)
        assert abs(found - truth["truth"][row]) < 4 * np.hypot(error, truth["truth_error"][row])


@pytest.mark.slow
def test_stated_errors_hold_on_the_campaign_s_documents():
    """The campaign's table of every cell, on fewer documents: the pooled share within 2 errors is near 95 %."""
    table = pooled(measure(["ais", "lrs"], 12, None))
    for method in ("ais", "lrs"):
        n = table.loc[method, "documents"]
        assert table.loc[method, "within_2"] > 0.95 - 3 * np.sqrt(0.95 * 0.05 / n)
        assert table.loc[method, "within_4"] > 0.98


@pytest.mark.thorough
@pytest.mark.parametrize("alpha", [1e-30, pytest.param(1e-6, marks=pytest.mark.slow)])
def test_topics_of_many_tokens_are_lost_where_alpha_asks_for_it(ambiguous, alpha):
    """Particles begin with several topics; at α = 10⁻³⁰ all tokens have one. Without merges 60 nats were missing."""
    topics, _ = ambiguous
    random = np.random.default_rng(0)
    documents = np.array([random.multinomial(13, random.dirichlet(np.ones(4)) @ topics) for _ in range(12)])
    prior = np.full(4, alpha)
    exact = document_likelihood(topics, prior, documents, method="exact").log_likelihood
    found = document_likelihood(topics, prior, documents, key=jax.random.key(0), certify=False)
    assert np.all(np.abs(found.log_likelihood - exact) < 4 * found.standard_error)
    assert np.median(found.standard_error) < 0.8
    assert np.all(found.log_likelihood > exact - 3)


def test_the_part_of_a_single_topic_is_the_enumerated_one(ambiguous):
    topics, words = ambiguous
    prior = np.array([0.1, 0.2, 0.05, 0.3])
    expected = logsumexp([v for s, v in sum_over_topic_sets(topics, prior, words).items() if len(s) == 1])
    padded = np.pad(words, (0, 9)).astype(np.int32)[None]
    tile = DocumentTile(np.array([0]), padded, (np.arange(16) < len(words)).astype(np.int32)[None])
    found = log_of_single_topics(tile, jnp.asarray(topics.T, jnp.float32), jnp.asarray(prior, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_campaign_s_judge_counts_right():
    """Estimates that are one and three errors off, with a truth that is certain: one of two is covered."""
    topics = draw_topics(0.5)
    case = Case(0.1, 0.5, topics, np.array([draw_document(topics, 0.1, 30, [1, i]) for i in range(2)]))
    truth = pd.DataFrame({"truth": [-10.0, -20.0], "truth_error": [0.0, 0.0]})
    found = pd.DataFrame({"value": [-10.5, -18.5], "error": [0.5, 0.5], "seconds": [1.0, 1.0]})
    row = judge(case, "any", truth, found)
    assert (row["within_2"], row["within_4"]) == (0.5, 1.0)
    assert row["mean_difference"] == pytest.approx(0.5)
    assert row["nats_per_token"] == pytest.approx(1.0 / 60)
    assert TRUTH.samples >= 4 * 128


def exact_path(topics: np.ndarray, prior: np.ndarray, words: np.ndarray, s: float, log_q: np.ndarray):
    """All assignments of tokens to topics, (assignment, position), and their probabilities on the path at s."""
    assignments = np.array(list(itertools.product(range(len(prior)), repeat=len(words))))
    counts = (assignments[:, :, None] == np.arange(len(prior))).sum(axis=1)
    log_prior = (gammaln(counts + prior) - gammaln(prior)).sum(axis=1)
    places = np.arange(len(words))
    log_joint = log_prior + np.log(topics)[assignments, words].sum(axis=1)
    log_path = (1 - s) * log_q[places, assignments].sum(axis=1) + s * log_joint
    return assignments, np.exp(log_path - logsumexp(log_path))


def distance_after_moves(topics, prior, words, s, move, seed) -> tuple[float, float]:
    """Return (χ² per degree of freedom, the share of particles that moved) after many moves of exact draws.

    χ² compares the shares of assignments with the exact ones.
    """
    n_particles, length = 40_000, len(words)
    beta, mask = token_tile(jnp.asarray(topics.T, jnp.float32), words[None], np.ones((1, length), int))
    mask = jnp.asarray(mask)
    log_q = log_mean_field(jnp.maximum(jnp.asarray(prior, jnp.float32), 0.3), beta, mask)
    assignments, probability = exact_path(topics, prior, words, s, np.asarray(log_q, np.float64)[:, :, 0])
    log_urn, log_rising = (jnp.asarray(table, jnp.float32) for table in log_urns(prior, length))
    document = Document(
        jnp.asarray(prior, jnp.float32),
        log_of(beta),
        log_q,
        mask,
        jnp.asarray(length),
        log_urn[:-1],
        log_rising[:-1],
        log_rising[-1][jnp.array([length])],
    )
    drawn = np.random.default_rng(0).choice(len(assignments), n_particles, p=probability)
    topic = jnp.asarray(assignments[drawn].T[:, None, :], jnp.int32)
    counts = (topic[:, None] == jnp.arange(len(prior))[:, None, None]).sum(axis=0).astype(jnp.float32)
    state = initial_particles(document, islands=1, particles=n_particles)._replace(topic=topic, counts=counts)
    keys = document_keys(jax.random.key(seed), jnp.arange(1))

    @jax.jit
    def moved_once(step: jax.Array, state: TokenParticles) -> TokenParticles:
        uniforms = document_uniforms(keys, 1000 + step, CHOICES, n_particles)
        return move(keys, step, uniforms, jnp.asarray(s, jnp.float32), state, document)

    for step in range(3):
        state = moved_once(jnp.asarray(step), state)
        assert_consistent(state, document)
    code = len(prior) ** np.arange(length)[::-1]
    ended = np.bincount(np.asarray(state.topic)[:, 0].T @ code, minlength=len(assignments))
    often = probability * n_particles > 20
    seen = np.append(ended[often], ended[~often].sum())
    expected = np.append(probability[often], probability[~often].sum()) * n_particles
    moved = np.mean((np.asarray(state.topic) != np.asarray(topic)).any(axis=0))
    return float(((seen - expected) ** 2 / expected).mean()), float(moved)


@pytest.mark.thorough
@pytest.mark.parametrize(("s", "alpha"), [pytest.param(1.0, 0.02, marks=pytest.mark.slow), (0.4, 1e-3)])
def test_splits_and_merges_leave_the_path_as_it_is(ambiguous, s, alpha):
    """Exact draws of the topics of five tokens have the same shares after three moves: χ² of each is 1 on average.

    Of one seed it is 1 ± .3, so the mean of three is compared.
    """
    topics, words = ambiguous
    prior = alpha * np.array([1.0, 0.7, 1.3, 0.4])
    found = [distance_after_moves(topics, prior, words[1:6], s, split_or_merge, seed) for seed in range(3)]
    distance, moved = np.mean(found, axis=0)
    assert distance < 1.6
    assert moved > 0.02

    def on_a_steeper_path(keys, step, uniforms, s, state, document):
        """The planted bug: the path's weights twice as steep."""
        twice = document._replace(log_q=2 * document.log_q, log_beta=2 * document.log_beta)
        return split_or_merge(keys, step, uniforms, s, state, twice)

    assert distance_after_moves(topics, prior, words[1:6], s, on_a_steeper_path, 0)[0] > 3
