"""The fast kernels of topics against the generic engine and against NumPy; their estimator's promises."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import digamma, softmax

from lvsearch.inference import topics as kernels
from lvsearch.inference.data import Dataset, documents
from lvsearch.inference.estimator import Estimate, bound_units, capacity_of
from lvsearch.inference.meanfield import Beliefs, batch_bound, cast, fit_locals
from lvsearch.inference.topic_estimator import TopicEstimator, TopicSettings
from lvsearch.models.lda import LDA

N_WORDS, SIZE, CAPACITY = 21, (3,), (4,)
ALPHA = np.array([0.4, 1.3, 0.7, 0.0])
ETA = 0.3
SETTINGS = TopicSettings(zeroth_order_passes=4, mean_field_passes=3, final_sweeps=10)


@cache
def data() -> Dataset:
    """Seven documents in three batches of two shapes, one document empty, one batch with a row of padding."""
    rng = np.random.default_rng(5)
    counts = rng.poisson(0.35, (7, N_WORDS))
    counts[2] = 0
    counts[4] = rng.integers(0, 3, N_WORDS) + (np.arange(N_WORDS) < 19)
    return documents(csr_array(counts.astype(np.int32)), tokens_per_batch=48)


def wide_groups() -> tuple[kernels.Tiles, ...]:
    return kernels.tiles(cast(data(), np.float64))


def random_gammas(seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(np.where(ALPHA > 0, rng.gamma(1.0, 2.0, (*g.words.shape[:2], 4)) + 0.1, 0) for g in wide_groups())


def random_topics(seed: int = 1) -> np.ndarray:
    """E[log β] (word, topic) of random Dirichlets; the topic that does not exist has 0."""
    concentration = np.random.default_rng(seed).gamma(0.5, 2.0, (N_WORDS, 4)) + 0.05
    return np.where(ALPHA > 0, digamma(concentration) - digamma(concentration.sum(0)), 0.0)


def expected_log_theta(gamma: np.ndarray) -> np.ndarray:
    exists = gamma > 0
    safe = np.where(exists, gamma, 1.0)
    return np.where(exists, digamma(safe) - digamma(np.maximum(gamma.sum(-1, keepdims=True), 1e-9)), 0.0)


def beliefs_at(words: np.ndarray, gamma: np.ndarray, log_topics: np.ndarray) -> Beliefs:
    """The generic engine's beliefs at γ, the assignments best for it (Eq. 3.9)."""
    natural = log_topics[words] + expected_log_theta(gamma)[:, None, :]
    phi = softmax(np.where(ALPHA > 0, natural, -np.inf), axis=-1)
    proportions = np.where(ALPHA > 0, gamma - 1, 0)
    return Beliefs(
        {"assignment": natural, "proportions": proportions},
        {"assignment": phi, "proportions": expected_log_theta(gamma)},
    )


def test_document_bounds_are_the_generic_bound(float64):
    model, log_topics = LDA(ALPHA[:3], ETA), random_topics()
    gammas = random_gammas()
    fast = kernels.ungroup(data(), kernels.document_bounds(wide_groups(), log_topics, gammas, ALPHA))
    batches = cast(data(), np.float64).batches
    assert len({batch.units.words.shape for batch in batches}) == 2
    for batch, bounds, gamma in zip(batches, fast, kernels.ungroup(data(), gammas), strict=True):
        beliefs = beliefs_at(batch.units.words, gamma, log_topics)
        slow = batch_bound(model, {"topic_word": log_topics.T}, batch, beliefs, SIZE, capacity=CAPACITY)
        real = np.asarray(batch.weight) > 0
        np.testing.assert_allclose(np.asarray(bounds)[real], np.asarray(slow)[real], rtol=0, atol=1e-10)


def test_mean_field_pass_is_the_generic_sweep(float64):
    """γ after 4 sweeps, and the expected counts at that γ."""
    model, log_topics = LDA(ALPHA[:3], ETA), random_topics()
    exp_topics = np.where(ALPHA > 0, np.exp(log_topics), 0.0)
    start = random_gammas(3)
    gammas, total = kernels.mean_field_pass(wide_groups(), exp_topics, start, ALPHA, sweeps=4)
    expected = np.zeros((N_WORDS, 4))
    before, after = kernels.ungroup(data(), start), kernels.ungroup(data(), gammas)
    for batch, gamma, new in zip(cast(data(), np.float64).batches, before, after, strict=True):
        beliefs = beliefs_at(batch.units.words, gamma, log_topics)
        slow = fit_locals(model, {"topic_word": log_topics.T}, batch, beliefs, SIZE, capacity=CAPACITY, sweeps=4)
        np.testing.assert_allclose(new[:, :3], slow.natural["proportions"][:, :3] + 1, atol=1e-10)
        assert np.all(new[:, 3] == 0)
        phi = beliefs_at(batch.units.words, new, log_topics).mean["assignment"]
        np.add.at(expected, batch.units.words, batch.units.counts[..., None] * phi)
    np.testing.assert_allclose(total, expected, atol=1e-10)


def memoized_by_hand(pseudo_counts: np.ndarray, passes: int, sweeps: int) -> tuple[np.ndarray, list[np.ndarray], float]:
    """The definition, a document at a time: γ ← α + γ ∘ βᵀ(c / βγ); a batch's old counts out, its new ones in."""
    groups = wide_groups()
    total = pseudo_counts.copy()
    memory = [np.zeros((len(g.words), *total.shape)) for g in groups]
    gammas = [np.where(ALPHA > 0, ALPHA + g.counts.sum(-1, keepdims=True) / 3, 0.0) for g in groups]
    for _ in range(passes):
        fit = 0.0
        for group, old, gamma in zip(groups, memory, gammas, strict=True):
            for b in range(len(group.words)):
                topics = (total + ETA) / (total.sum(0) + N_WORDS * ETA) * (ALPHA > 0)
                new = np.zeros_like(total)
                for d in range(len(group.words[b])):
                    w, c = group.words[b, d], group.counts[b, d]
                    for _ in range(sweeps):
                        gamma[b, d] = ALPHA + gamma[b, d] * (topics[w].T @ (c / (topics[w] @ gamma[b, d])))
                    mixed = topics[w] @ gamma[b, d]
                    fit += (c * np.log(mixed / gamma[b, d].sum())).sum()
                    np.add.at(new, w, (c / mixed)[:, None] * topics[w] * gamma[b, d])
                total = total + new - old[b]
                old[b] = new
        total = sum(old.sum(0) for old in memory)
    return total, gammas, fit


@pytest.mark.parametrize("passes", [1, 3])
def test_memoized_passes_are_their_definition(float64, passes):
    pseudo_counts = np.random.default_rng(2).gamma(0.5, 2.0, (N_WORDS, 4)) * (ALPHA > 0)
    groups = wide_groups()
    blank = kernels.start_state(groups, pseudo_counts, ALPHA)
    state = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), blank)
    state = state._replace(total=jnp.asarray(pseudo_counts))
    exact_start = tuple(np.where(ALPHA > 0, ALPHA + g.counts.sum(-1, keepdims=True) / 3, 0.0) for g in groups)
    state = state._replace(proportions=tuple(map(jnp.asarray, exact_start)))
    state, fit, made = kernels.memoized_passes(groups, state, ALPHA, ETA, sweeps=2, passes=passes, tolerance=-np.inf)
    total, gammas, expected_fit = memoized_by_hand(pseudo_counts, passes, 2)
    assert int(made) == passes
    np.testing.assert_allclose(state.total, total, atol=1e-10)
    for one, other in zip(state.proportions, gammas, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    assert float(fit) == pytest.approx(expected_fit, abs=1e-9)
    np.testing.assert_allclose(state.total.sum(), sum(g.counts.sum() for g in groups), rtol=1e-12)


def test_ungroup_restores_the_order_of_the_batches():
    whole = data()
    groups = kernels.tiles(whole)
    for batch, words in zip(whole.batches, kernels.ungroup(whole, tuple(g.words for g in groups)), strict=True):
        np.testing.assert_array_equal(batch.units.words, words)


# ── the estimator ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_recorded_marginal_bound_is_that_of_the_carried_state(monkeypatch):
    """Evaluated again at the natural parameters and the model that the estimate carries: the same bits."""
    estimator = TopicEstimator(LDA(1.9, ETA), data(), SETTINGS)
    seen = []
    evaluate = estimator._marginal_bound
    monkeypatch.setattr(estimator, "_marginal_bound", lambda *args: seen.append(args) or evaluate(*args))
    estimate = estimator.fit((3,), jax.random.key(0), None)
    ((model, _, gammas, alpha),) = seen
    assert model is estimate.model
    assert evaluate(estimate.model, estimate.natural["topic_word"], gammas, alpha) == estimate.log_lower
    assert estimate.natural["topic_word"].shape == (3, N_WORDS)
    assert estimator.fit((3,), jax.random.key(0), None).log_lower == estimate.log_lower


def test_recorded_plug_in_interval_is_that_of_the_carried_state():
    estimate = TopicEstimator(LDA(1.9, ETA).plug_in(), data(), SETTINGS).fit((3,), jax.random.key(0), None)
    lower, upper = bound_units(estimate.model, estimate, data())
    assert (float(lower.sum()), float(upper.sum())) == (estimate.log_lower, estimate.log_upper)
    assert estimate.model.concentration.shape == (3,)


@contextmanager
def counted_compilations() -> Iterator[list[str]]:
    """Every XLA compilation inside the block, eager operations included."""
    events: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_compilations_are_counted():
    """The counter itself: a new shape is one compilation, a known one none."""
    double = jax.jit(lambda x: 2 * x)
    with counted_compilations() as events:
        double(np.ones(13, np.float32))
        assert len(events) == 1
        double(np.zeros(13, np.float32))
        assert len(events) == 1


@pytest.mark.parametrize("plug_in", [False, True])
def test_sizes_of_one_bucket_compile_nothing_new(plug_in):
    """After one fit at K = 2: K = 3…8 from scratch and grown, no compilation of any kind."""
    model = LDA(1.9, ETA).plug_in() if plug_in else LDA(1.9, ETA)
    estimator = TopicEstimator(model, data(), SETTINGS)
    assert {capacity_of((size,)) for size in range(2, 9)} == {(8,)}
    keys = list(jax.random.split(jax.random.key(0), 9))  # drawing keys is the test's own business
    start: Estimate = estimator.fit((2,), keys[0], None)
    with counted_compilations() as events:
        for size in range(3, 9):
            estimator.fit((size,), keys[size], None)
            start = estimator.fit((size,), keys[size], start)
    assert len(events) == 0
    assert np.isfinite(start.log_lower)
