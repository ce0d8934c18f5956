"""The fast kernels of topics against the generic engine and against NumPy; their estimator's promises."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from heapq import heapreplace
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln, softmax

from lvsearch.inference.data import packing
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.packing import BLOCK, PackedDocuments, pack
from lvsearch.inference.engine.describing import bound_units
from lvsearch.inference.engine.estimate import Estimate, capacity_of, recorded_beliefs_and_bound
from lvsearch.inference.engine.estimator import GenericEstimator
from lvsearch.inference.engine.meanfield import (
    Beliefs,
    batch_bound,
    cast,
    expected_statistics,
    fit_locals,
    globals_bound,
)
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics import passes
from lvsearch.inference.topics.estimator import TopicEstimator, TopicSettings, point_topics
from lvsearch.inference.topics.merging import (
    alike_pairs,
    cheapest_pairs,
    dispensable_topics,
    merge_topics,
    remove_topics,
    size_at_bend,
)
from lvsearch.inference.topics.passes import PassSettings, passes_in_lanes
from lvsearch.models.exponential.digamma import digamma_positive, exp_digamma, log_gamma_positive
from lvsearch.models.lda import LDA

N_WORDS, SIZE, CAPACITY = 21, (3,), (4,)
ALPHA = np.array([0.4, 1.3, 0.7, 0.0])
ETA = 0.3
SETTINGS = TopicSettings(collapsed_passes=4, mean_field_passes=3, final_sweeps=10)


@cache
def counts() -> csr_array:
    """Seven documents, one of them empty and one with nearly every word, more than once."""
    rng = np.random.default_rng(5)
    dense = rng.poisson(0.35, (7, N_WORDS))
    dense[2] = 0
    dense[4] = rng.integers(0, 3, N_WORDS) + (np.arange(N_WORDS) < 19)
    return csr_array(dense.astype(np.int32))


@cache
def data() -> Dataset:
    return documents(counts(), tokens_per_batch=48)


@cache
def packed() -> PackedDocuments:
    """Two batches of two tiles, a tile without work among them."""
    found = pack(counts(), n_batches=2, tile_blocks=4)
    assert found.tiles.words.shape[:2] == (2, 2)
    return found


def wide(packed: PackedDocuments) -> PackedDocuments:
    tiles = packed.tiles._replace(counts=np.asarray(packed.tiles.counts, np.float64))
    return PackedDocuments(tiles, packed.documents, packed.n_documents, packed.n_words)


def per_slot(packed: PackedDocuments, per_document: np.ndarray) -> np.ndarray:
    """Per-document values at their slots; α at slots without a document."""
    real = packed.documents >= 0
    return np.where(real[..., None], per_document[np.maximum(packed.documents, 0)], ALPHA)


def random_gamma(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(ALPHA > 0, rng.gamma(1.0, 2.0, (7, 4)) + 0.1, 0.0)


def random_concentration(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.5, 2.0, (N_WORDS, 4)) + 0.05


def random_topics(seed: int = 1) -> np.ndarray:
    """E[log β] (word, topic) of random Dirichlets; the topic that does not exist has 0."""
    concentration = random_concentration(seed)
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


# ── packing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def unpacked(packed: PackedDocuments) -> np.ndarray:
    """The counts again, (D, V), read slot by slot."""
    dense = np.zeros((packed.n_documents, packed.n_words))
    for at in np.ndindex(packed.tiles.slots.shape):
        document = packed.documents[at[:2]][packed.tiles.slots[at]]
        np.add.at(dense[document], packed.tiles.words[at], packed.tiles.counts[at])
    return dense


@pytest.mark.parametrize(("n_batches", "tile_blocks"), [(1, 1), (2, 4), (3, 64)])
def test_packing_loses_nothing(n_batches, tile_blocks):
    found = pack(counts(), n_batches, tile_blocks)
    np.testing.assert_array_equal(unpacked(found), counts().todense())
    np.testing.assert_array_equal(np.sort(found.documents[found.documents >= 0]), np.arange(7))
    lengths = found.gather(found.lengths[..., None])[:, 0]
    np.testing.assert_array_equal(lengths, counts().sum(1))
    assert found.tiles.words.shape[-1] == BLOCK


def test_tiles_hold_equal_work():
    rng = np.random.default_rng(0)
    corpus = csr_array(rng.poisson(0.05, (300, 200)).astype(np.int32))
    found = pack(corpus, 4, 16)
    filled = (found.tiles.counts > 0).reshape(*found.documents.shape[:2], -1).sum(-1)
    assert (found.documents >= 0).sum(-1).max() <= 2 * (found.documents >= 0).sum(-1).mean()
    assert (filled == 0).sum() < found.n_batches
    assert pack(corpus, 4, 16).documents.tobytes() == found.documents.tobytes()


def test_packing_is_linear_in_the_documents(monkeypatch):
    """Documents of 13 blocks leave every tile of 64 twelve short, so that a first guess has a fifth too few tiles."""
    dealt = []
    monkeypatch.setattr(packing, "heapreplace", lambda heap, item: (dealt.append(item), heapreplace(heap, item)))
    n_documents, length = 4000, 100
    rows = np.arange(n_documents + 1) * length
    corpus = csr_array((np.ones(rows[-1], np.int32), np.tile(np.arange(length), n_documents), rows))
    found = pack(corpus, 1, 64)
    assert found.tiles.words.shape[1] <= 1.01 * n_documents / 4
    assert len(dealt) < 12 * n_documents
    np.testing.assert_array_equal(found.gather(found.lengths[..., None])[:, 0], np.full(n_documents, length))


# ── special functions ───────────────────────────────────────────────────────────────────────────────────────────────


def test_positive_digamma_and_log_gamma(float64):
    x = np.geomspace(1e-5, 1e9, 2001)
    assert np.max(np.abs(digamma_positive(x) - digamma(x)) * np.minimum(1, x)) < 1e-11
    assert np.max(np.abs(log_gamma_positive(x) - gammaln(x)) / np.maximum(1, np.abs(gammaln(x)))) < 1e-11
    wide = np.geomspace(1e-80, 1e80, 2001)
    assert np.max(np.abs(log_gamma_positive(wide) - gammaln(wide)) / np.maximum(1, np.abs(gammaln(wide)))) < 1e-11
    assert float(log_gamma_positive(0.0)) == np.inf
    slope = jax.vmap(jax.grad(log_gamma_positive))(wide)
    assert np.max(np.abs(slope - digamma(wide)) / np.maximum(1, np.abs(digamma(wide)))) < 1e-11
    known = x[digamma(x) > -600]
    np.testing.assert_allclose(exp_digamma(known), np.exp(digamma(known)), rtol=1e-11)
    assert np.all(np.asarray(exp_digamma(np.array([0.0, -1.0]))) == 0)


def test_exp_digamma_in_float32():
    x = np.geomspace(0.06, 1e6, 501).astype(np.float32)
    np.testing.assert_allclose(exp_digamma(x), np.exp(digamma(x.astype(np.float64))), rtol=1e-5)


# ── kernels against the generic engine ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_document_bounds_are_the_generic_bound(float64):
    model, log_topics, gamma = LDA(ALPHA[:3], ETA), random_topics(), random_gamma()
    tiles = wide(packed()).tiles
    fast = packed().gather(kernels.document_bounds(tiles, log_topics, per_slot(packed(), gamma), ALPHA))
    batches = cast(data(), np.float64).batches
    assert len({batch.units.words.shape for batch in batches}) == 2
    for batch, ids in zip(batches, data().unit_ids, strict=True):
        beliefs = beliefs_at(batch.units.words, gamma[np.maximum(ids, 0)], log_topics)
        slow = batch_bound(model, {"topic_word": log_topics.T}, batch, beliefs, SIZE, capacity=CAPACITY)
        np.testing.assert_allclose(fast[ids[ids >= 0]], np.asarray(slow)[ids >= 0], rtol=0, atol=1e-10)


def test_document_pass_is_the_generic_sweep(float64):
    """γ after 4 sweeps, and the expected counts at that γ."""
    model, log_topics, start = LDA(ALPHA[:3], ETA), random_topics(), random_gamma(3)
    exp_topics = np.where(ALPHA > 0, np.exp(log_topics), 0.0)
    tiles = wide(packed()).tiles
    slots, total = kernels.document_pass(
        tiles, exp_topics, per_slot(packed(), start), ALPHA, sweeps=4, tolerance=np.float64(0)
    )
    new = packed().gather(slots)
    expected = np.zeros((N_WORDS, 4))
    for batch, ids in zip(cast(data(), np.float64).batches, data().unit_ids, strict=True):
        beliefs = beliefs_at(batch.units.words, start[np.maximum(ids, 0)], log_topics)
        slow = fit_locals(model, {"topic_word": log_topics.T}, batch, beliefs, SIZE, capacity=CAPACITY, sweeps=4)
        real = ids >= 0
        fast = new[ids[real]]
        np.testing.assert_allclose(fast[:, :3], slow.natural["proportions"][real, :3] + 1, atol=1e-10)
        assert np.all(fast[:, 3] == 0)
        words = batch.units.words[real]
        phi = beliefs_at(words, fast, log_topics).mean["assignment"]
        np.add.at(expected, words, batch.units.counts[real][..., None] * phi)
    np.testing.assert_allclose(total, expected, atol=1e-10)


def test_settled_documents_are_left_alone(float64):
    """With a tolerance a document's result does not depend on what shares its tile: convergence is its own business."""
    exp_topics = np.where(ALPHA > 0, np.exp(random_topics()), 0.0)
    together = pack(counts(), n_batches=1, tile_blocks=64)
    apart = pack(counts(), n_batches=1, tile_blocks=1)
    assert together.documents.shape[1] == 1
    assert apart.documents.shape[1] > 2
    found = []
    for way in (together, apart):
        start = per_slot(way, random_gamma(3))
        tiles = wide(way).tiles
        slots, _ = kernels.document_pass(tiles, exp_topics, start, ALPHA, sweeps=50, tolerance=np.float64(0.05))
        found.append(way.gather(slots))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_topic_bound_is_the_generic_bound(float64):
    model, concentration = LDA(ALPHA[:3], ETA), random_concentration()
    bound, log_topics = kernels.topic_bound(concentration, np.float64(ETA), ALPHA > 0)
    natural = jnp.asarray(concentration.T - 1)
    on = model.active(SIZE, CAPACITY)
    mean = expected_statistics(model.globals()["topic_word"], natural, on)
    beliefs = Beliefs({"topic_word": natural}, {"topic_word": mean})
    assert float(bound) == pytest.approx(float(globals_bound(model, beliefs, SIZE, capacity=CAPACITY)), abs=1e-9)
    np.testing.assert_allclose(np.asarray(log_topics), random_topics(), atol=1e-11)


# ── memoized passes against their definition ────────────────────────────────────────────────────────────────────────


def memoized_by_hand(
    rule: str, pseudo_counts: np.ndarray, passes: int, sweeps: int, momentum: float
) -> tuple[np.ndarray, np.ndarray]:
    """The definition, a document at a time: a batch's old counts out, its new ones in."""
    dense, batches = np.asarray(counts().todense(), float), packed().documents
    exists = ALPHA > 0
    gamma = np.where(exists, ALPHA + dense.sum(1, keepdims=True) / 3, 0.0)
    total, memory, step = pseudo_counts.copy(), np.zeros((len(batches), *pseudo_counts.shape)), 0.0
    for number in range(passes):
        before = total
        total = np.maximum(total + (momentum if number < passes - 1 else 0.0) * step, 0)
        for b, members in enumerate(batches):
            concentration = total + ETA
            if rule == "collapsed":
                topics, scale = concentration, 1 / concentration.sum(0)
            else:
                topics, scale = np.exp(digamma(concentration)), np.exp(-digamma(concentration.sum(0)))
            new = np.zeros_like(total)
            for d in members[members >= 0]:
                words = np.flatnonzero(dense[d])
                c = dense[d, words][:, None]
                weight = gamma[d] if rule == "collapsed" else np.where(exists, np.exp(digamma(gamma[d] + ~exists)), 0)
                phi = topics[words] * scale * exists * weight
                phi /= phi.sum(1, keepdims=True)
                for _ in range(sweeps):
                    if rule == "collapsed":
                        left, seen = np.maximum(gamma[d] - phi, ALPHA), np.maximum(topics[words] - phi, ETA / 2)
                        phi = left * seen * scale * exists
                    else:
                        phi = topics[words] * scale * exists * np.exp(digamma(gamma[d] + ~exists))
                    phi /= phi.sum(1, keepdims=True)
                    gamma[d] = ALPHA + (c * phi).sum(0)
                if rule == "mean field":
                    phi = topics[words] * scale * exists * np.exp(digamma(gamma[d] + ~exists))
                    phi /= phi.sum(1, keepdims=True)
                new[words] += c * phi
            total = np.maximum(total + new - memory[b], 0)
            memory[b] = new
        total = memory.sum(0)
        step = total - before if number else 0.0
    return total, gamma


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "rule"), [("collapsed", kernels.COLLAPSED), ("mean field", kernels.MEAN_FIELD)])
def test_memoized_passes_are_their_definition(float64, name, rule):
    pseudo_counts = np.random.default_rng(2).gamma(0.5, 2.0, (N_WORDS, 4)) * (ALPHA > 0)
    for n_passes, momentum in ((1, 0.0), (3, 0.0), (4, 0.9)):
        blank = kernels.start_state(packed(), pseudo_counts, ALPHA)
        even = np.where(ALPHA > 0, ALPHA + packed().lengths[..., None] / 3, 0.0)
        state = kernels.Counts(pseudo_counts, np.asarray(blank.per_batch, np.float64), even)
        state, fit, made = kernels.memoized_passes(
            wide(packed()).tiles,
            state,
            ALPHA,
            np.float64(ETA),
            rule=rule,
            sweeps=2,
            passes=n_passes,
            tolerance=np.float64(-np.inf),
            momentum=np.float64(momentum),
        )
        total, gamma = memoized_by_hand(name, pseudo_counts, n_passes, 2, momentum)
        assert int(made) == n_passes
        np.testing.assert_allclose(state.total, total, atol=1e-9)
        np.testing.assert_allclose(packed().gather(state.proportions), gamma, atol=1e-9)
        assert float(fit) < 0
        np.testing.assert_allclose(np.asarray(state.total).sum(), counts().sum(), rtol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("n_lanes", [pytest.param(2, marks=pytest.mark.slow), 3])  # with 3 the last has no document
@pytest.mark.parametrize(("name", "rule"), [("collapsed", kernels.COLLAPSED), ("mean field", kernels.MEAN_FIELD)])
def test_passes_in_lanes_are_their_definition(name, rule, n_lanes):
    pseudo_counts = np.random.default_rng(2).gamma(0.5, 2.0, (N_WORDS, 4)) * (ALPHA > 0)
    narrow = ALPHA.astype(np.float32)
    state = kernels.start_state(packed(), pseudo_counts, narrow)
    made_with = PassSettings(rule, narrow, ETA, 2, 4, -np.inf, 0.9, float(counts().sum()))
    state, made, _ = passes_in_lanes(packed(), state, made_with, n_lanes)
    total, gamma = memoized_by_hand(name, pseudo_counts, 4, 2, 0.9)
    assert made == 4
    np.testing.assert_allclose(state.total, total, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(packed().gather(state.proportions), gamma, rtol=1e-3, atol=1e-4)
    on, _, _ = passes_in_lanes(packed(), state, made_with._replace(passes=1), n_lanes)
    assert on.proportions.shape == (*packed().documents.shape, 4)
    np.testing.assert_allclose(np.asarray(on.total).sum(), counts().sum(), rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["from nothing", "from more topics"]
)
def test_a_fit_of_many_documents_takes_lanes_and_ends_where_one_program_does(monkeypatch, more):
    settings = TopicSettings(collapsed_passes=6, mean_field_passes=3)
    estimator = TopicEstimator(LDA(2.0, 0.2), data(), settings)
    start = estimator.fit_to_merge((5,), jax.random.key(0)) if more else None

    def fitted() -> Estimate:
        return TopicEstimator(LDA(2.0, 0.2), data(), settings).fit((3,), jax.random.key(1), start)

    assert passes.lanes_for(packed(), 8) == 1
    alone = fitted()
    monkeypatch.setattr(passes, "LEAST_WORK", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert passes.lanes_for(packed(), 8) == 2
    lanes = fitted()
    assert lanes.passes == alone.passes
    np.testing.assert_allclose(lanes.log_lower, alone.log_lower, rtol=1e-5)


def test_mean_field_passes_never_lower_the_bound(float64):
    tiles, alpha = wide(packed()).tiles, ALPHA
    pseudo_counts = np.random.default_rng(2).gamma(0.5, 2.0, (N_WORDS, 4)) * (alpha > 0)
    state = jax.tree.map(lambda x: np.asarray(x, np.float64), kernels.start_state(packed(), pseudo_counts, alpha))
    bounds = []
    for _ in range(12):
        state, _, _ = kernels.memoized_passes(
            tiles,
            state,
            alpha,
            np.float64(ETA),
            rule=kernels.MEAN_FIELD,
            sweeps=2,
            passes=1,
            tolerance=np.float64(-np.inf),
            momentum=np.float64(0),
        )
        topics, log_topics = kernels.topic_bound(np.asarray(state.total) + ETA, np.float64(ETA), alpha > 0)
        per_document = kernels.document_bounds(tiles, log_topics, state.proportions, alpha)
        bounds.append(float(topics) + packed().gather(per_document).sum())
    assert np.all(np.diff(bounds) > -1e-9)
    assert bounds[-1] > bounds[0] + 1


# ── merging ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pairs_are_alike_where_their_mergers_cost_about_the_same():
    """Topics 0 and 1 share one subject, 2 and 3 another; all other mergers cost tens of times as much."""
    counts = 100.0 * np.kron(np.eye(5), np.ones(4))
    counts = np.concatenate([counts[:1], counts[:2], counts[1:]])
    counts[0, 0] += 60
    counts[2, 4] += 70
    assert cheapest_pairs(counts, 3)[:2] == [(0, 1), (2, 3)]
    assert alike_pairs(counts, 3) == [(0, 1), (2, 3)]
    assert alike_pairs(counts, 1) == [(0, 1)]


@pytest.mark.parametrize("seed", range(5))
def test_cheapest_pairs_are_those_of_all_mergers_tried_one_by_one(seed: int):
    """The topics have very different numbers of tokens, so that the order of lower bounds is not that of costs."""
    rng = np.random.default_rng(seed)
    counts = rng.dirichlet(np.full(30, 0.1), 12) * rng.gamma(0.5, 1000, 12)[:, None]

    def cost(pair: tuple[int, int]) -> float:
        one, other, both = (each[each > 0] for each in (*counts[list(pair)], counts[list(pair)].sum(0)))
        return sum(sign * (n * np.log(n / n.sum())).sum() for sign, n in ((1, one), (1, other), (-1, both)))

    free, expected = set(range(12)), []
    for _ in range(6):
        expected.append(min(combinations(sorted(free), 2), key=cost))
        free -= set(expected[-1])
    assert cheapest_pairs(counts, 6) == expected


def test_merging_joins_the_most_similar_topics():
    rng = np.random.default_rng(3)
    two = rng.dirichlet(np.full(30, 0.1), 2) * np.array([[400.0], [90.0]])
    noisy = np.stack([two[0] * 0.7, two[1], two[0] * 0.3 + 0.01])
    merged = merge_topics(noisy, 2)
    np.testing.assert_allclose(merged, [noisy[0] + noisy[2], noisy[1]])
    np.testing.assert_allclose(merge_topics(noisy, 1).sum(), noisy.sum())
    np.testing.assert_array_equal(merge_topics(noisy, 5), noisy)


def log_likelihood(theta: np.ndarray, topics: np.ndarray) -> float:
    """log p(all words) at given proportions (document, topic), which need not sum to 1, and topics (word, topic)."""
    words = counts().toarray()
    seen = words.sum(1) > 0
    theta = theta[seen] / theta[seen].sum(-1, keepdims=True)
    return float((words[seen] * np.log(theta @ topics.T)).sum())


def losses_of(gamma: np.ndarray, topics: np.ndarray, pairs: np.ndarray, merged: np.ndarray) -> kernels.Losses:
    with jax.enable_x64(True):
        tiles = wide(packed()).tiles
        found = kernels.removal_losses(tiles, per_slot(packed(), gamma), topics, pairs.astype(np.int32), merged)
    return kernels.sum_of_parts([found])


def test_losses_with_a_topic_fewer_are_those_of_the_documents():
    """Each topic left out, and each pair merged, in NumPy. One topic does not exist, one document is empty."""
    gamma, topics = random_gamma(), random_concentration() * (ALPHA > 0)
    topics = topics / np.maximum(topics.sum(0), 1e-9)
    pairs = np.array([[0, 0, 1], [1, 2, 2]])
    merged = (topics[:, pairs[0]] + 2 * topics[:, pairs[1]]) / 3
    found = losses_of(gamma, topics, pairs, merged)
    now = log_likelihood(gamma, topics)
    for k in range(3):
        others = np.delete(np.arange(3), k)
        assert found.without[k] == pytest.approx(now - log_likelihood(gamma[:, others], topics[:, others]), rel=1e-9)
    for pair, (k, other) in enumerate(pairs.T):
        (third,) = {0, 1, 2} - {k, other}
        theta = np.stack([gamma[:, k] + gamma[:, other], gamma[:, third]], 1)
        left = np.stack([merged[:, pair], topics[:, third]], 1)
        assert found.merged[pair] == pytest.approx(now - log_likelihood(theta, left), rel=1e-9)
    assert found.without[3] == 0.0


def test_the_extra_loss_without_two_topics_is_right_where_both_are_small():
    """The loss without both is counted in NumPy."""
    gamma, topics = random_gamma() * np.array([0.02, 1.0, 0.03, 0.0]), (random_concentration() + 1) * (ALPHA > 0)
    topics = topics / np.maximum(topics.sum(0), 1e-9)
    pairs = np.array([[0], [2]])
    found = losses_of(gamma, topics, pairs, topics[:, :1])
    both = log_likelihood(gamma, topics) - log_likelihood(gamma[:, [1]], topics[:, [1]])
    extra = both - float(found.without[0] + found.without[2])
    with jax.enable_x64(True):
        joint = kernels.joint_losses(
            wide(packed()).tiles, per_slot(packed(), gamma), topics, np.array([2, 0], np.int32)
        )
    assert joint[1, 2] == pytest.approx(extra, rel=0.2)
    assert joint[0, 0] == pytest.approx(joint[1, 2])


def test_the_topics_that_may_go_are_those_needed_least_and_the_second_of_cheap_pairs():
    losses = kernels.Losses(np.array([1.0, 7.0, 2.0, 8.0, 9.0, 3.0, 0.0]), np.array([5.0, 4.0]))
    pairs = np.array([[0, 3], [1, 4]])
    assert dispensable_topics(losses, pairs, 6, 1).tolist() == [0, 2, 4]
    assert dispensable_topics(losses, pairs, 6, 1, given=1).tolist() == [2, 4, 5]
    assert dispensable_topics(losses, pairs, 6, 1, given=5).tolist() == [5, 5, 5]
    assert dispensable_topics(losses, pairs, 6, 1, given=6).tolist() == []


def test_of_two_equal_topics_one_is_left_out_and_the_other_stays():
    """Topics 0 and 1 are one topic cut in two, 2 and 3 are others. Without either of 0 and 1 little is lost."""
    both = np.array([[9.0, 40.0, 0, 0], [40.0, 9.0, 0, 0], [0, 0, 2, 2]])
    losses = kernels.Losses(np.array([3.0, 2.0, 8.0, 9.0]), np.array([20.0, 5.0]))
    word_counts = np.arange(1.0, 21.0).reshape(4, 5)
    pairs, chosen = np.array([[0, 2], [1, 3]]), np.array([0, 1, 3])
    np.testing.assert_array_equal(remove_topics(word_counts, 1, losses, pairs, chosen, both), word_counts[[0, 2, 3]])
    two_fewer = np.stack([word_counts[0], word_counts[2] + word_counts[3]])  # the cheap merger, not topic 0
    np.testing.assert_array_equal(remove_topics(word_counts, 2, losses, pairs, chosen, both), two_fewer)
    nothing_may = remove_topics(word_counts, 2, losses, pairs, np.array([], int), both[:0])
    np.testing.assert_array_equal(nothing_may, word_counts)


def test_after_a_removal_the_last_copy_of_a_topic_is_not_merged_away():
    """Topics 0 and 1 are equal, and 2 is near them: without 0, a merger of 1 with 2 would cost what 1 is needed for."""
    both = np.array([[0, 40.0, 0, 0], [40.0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    losses = kernels.Losses(np.array([1.0, 2.0, 9.0, 8.0]), np.array([3.0]))
    word_counts = np.arange(1.0, 21.0).reshape(4, 5)
    kept = remove_topics(word_counts, 2, losses, np.array([[1], [2]]), np.arange(4), both)
    np.testing.assert_array_equal(kept, word_counts[[1, 2]])


def test_log_likelihoods_bend_where_topics_are_needed_and_nowhere_on_a_smooth_curve():
    rng = np.random.default_rng(0)
    falling = [48, 46, 44, 42, 40, 38, 36, 34, 32]
    sizes = np.array(falling)
    noise = 50 * rng.normal(size=len(sizes))
    for needed in (37, 38, 39, 40):  # 37 and 39 lie within a step of two topics
        fits = noise + 1500.0 * np.minimum(sizes, needed) + 100.0 * sizes
        assert size_at_bend(falling, fits.tolist()) == needed
    assert size_at_bend(falling, (noise + 1500.0 * sizes).tolist()) is None
    fading = noise + 40_000 * np.log(sizes)  # as on real text
    assert size_at_bend(falling, fading.tolist()) is None
    assert size_at_bend(falling[:4], [0.0, 1.0, 2.0, 0.0]) is None
    assert size_at_bend(falling, [*fading.tolist()[:-1], np.nan]) is None


# ── the estimator ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fit_to_merge_has_topics_and_no_bound_and_a_fit_of_fewer_topics_begins_with_it():
    estimator = TopicEstimator(LDA(1.9, ETA), data(), SETTINGS)
    first = estimator.fit_to_merge((5,), jax.random.key(0))
    assert first.log_lower == -np.inf
    assert 0 < first.passes <= SETTINGS.passes_to_merge
    tokens = (first.natural["topic_word"] + 1 - ETA).sum()
    assert tokens == pytest.approx(counts().sum(), rel=1e-4)
    merged = estimator.fit((3,), jax.random.key(1), first)
    assert np.isfinite(merged.log_lower)
    assert merged.natural["topic_word"].shape == (3, N_WORDS)


@pytest.mark.slow
def seeded() -> LDA:
    """Two topics with seeds of very different weight."""
    seeds = np.zeros((2, N_WORDS))
    seeds[0, [3, 5]], seeds[1, 0] = [4, 2], 3000
    return LDA(1.0, ETA).with_seeds([f"word{word}" for word in range(N_WORDS)], seeds)


def planted_documents(n_topics: int) -> csr_array:
    """400 documents of about 60 words, of topics that hardly share any."""
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(120, 0.05), n_topics)
    shares = rng.dirichlet(np.full(n_topics, 0.3), 400)
    return csr_array(np.stack([rng.multinomial(60, share @ topics) for share in shares]))


@pytest.mark.thorough
def test_a_fit_that_comes_from_more_topics_says_where_the_log_likelihood_bent():
    estimator = TopicEstimator(LDA(2.0, 0.05), documents(planted_documents(6)))
    larger = estimator.fit_to_merge((10,), jax.random.key(0))
    assert estimator.fit((4,), jax.random.key(1), larger).bend == 6
    assert estimator.fit((8,), jax.random.key(1), larger).bend is None  # the way ends before


@pytest.mark.thorough
def test_below_a_fit_of_too_many_topics_the_log_likelihood_bends_and_below_one_of_too_few_it_does_not():
    estimator = TopicEstimator(LDA(2.0, 0.05), documents(planted_documents(6)))
    many = estimator.fit((11,), jax.random.key(1), estimator.fit_to_merge((16,), jax.random.key(0)))
    assert many.bend is None
    assert estimator.bend_below(many) == 6
    few = estimator.fit((6,), jax.random.key(1), many)
    assert estimator.bend_below(few) is None


@pytest.mark.thorough
def test_the_bound_with_seeds_is_the_generic_bound():
    """The generic engine knows the model's log-joint alone. From the fit it climbs a little, and never down."""
    model, here = seeded(), data()
    fit = TopicEstimator(model, here).fit((4,), jax.random.key(0), None)
    with jax.enable_x64(True):
        _, of_topics = recorded_beliefs_and_bound(model, fit.natural, (4,), (8,))
        concentration = fit.natural["topic_word"].astype(np.float64).T + 1
        plain, log_topics = kernels.topic_bound(concentration, np.float64(ETA), np.ones(4, bool))
    added = TopicEstimator(model, here)._seed_bound(ETA, np.asarray(log_topics))
    assert float(plain) + added == pytest.approx(of_topics, abs=1e-6)
    assert abs(added) > 1
    further = GenericEstimator(model, here).fit((4,), jax.random.key(0), fit)
    assert fit.log_lower <= further.log_lower + 1e-3
    assert further.log_lower - fit.log_lower < 0.05 * abs(fit.log_lower)


def test_topics_with_seeds_stay_first_when_topics_go():
    """From eight topics to two, which both have seeds: these are never left out or merged, and keep their places."""
    model, here = seeded(), data()
    estimator = TopicEstimator(model, here)
    larger = estimator.fit_to_merge((8,), jax.random.key(0))
    for size in (5, 3, 2):
        fit = estimator.fit((size,), jax.random.key(1), larger)
        assert fit.size == (size,)
        assert point_topics(fit)[1].argmax() == 0
        assert point_topics(fit)[1, 0] > 0.9  # 3,000 imaginary tokens of one word hold it
        assert np.all(fit.natural["topic_word"][0, [3, 5]] + 1 - ETA >= [4, 2])
        assert np.all(fit.natural["topic_word"] + 1 > 0)
    with pytest.raises(ValueError, match="expected at least 2: so many have seeds"):
        estimator.fit((1,), jax.random.key(1), None)


def test_passes_in_lanes_add_seeds_too(monkeypatch):
    alone = TopicEstimator(seeded(), data(), SETTINGS).fit((4,), jax.random.key(0), None)
    monkeypatch.setattr(passes, "LEAST_WORK", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    lanes = TopicEstimator(seeded(), data(), SETTINGS).fit((4,), jax.random.key(0), None)
    np.testing.assert_allclose(lanes.log_lower, alone.log_lower, rtol=1e-5)


def test_seeds_of_other_words_and_with_empirical_bayes_are_refused():
    with pytest.raises(ValueError, match="seeds over 3 words"):
        TopicEstimator(LDA(1.0, ETA).with_seeds(["a", "b", "c"], np.eye(2, 3)), data())
    with pytest.raises(ValueError, match="empirical_bayes"):
        TopicEstimator(seeded(), data(), empirical_bayes=True)


@pytest.mark.thorough
def test_topics_of_words_that_all_subjects_share_are_left_out():
    """Eight topics that vary about one distribution of words: a fit of twelve has topics of common words alone. With
    mergers alone, which keep these and join planted topics, the bound was 580 nats below that of a fit from the planted
    topics; it is 270 below it now."""
    rng = np.random.default_rng(2)
    n_topics, n_words = 8, 600
    common = 1 / (np.arange(n_words) + 10.0)
    topics = rng.gamma(1000 * common / common.sum() + 1e-3, size=(n_topics, n_words))
    topics /= topics.sum(1, keepdims=True)
    proportions = rng.dirichlet(np.full(n_topics, 5 / n_topics), 1500)
    planted = csr_array(np.array([rng.multinomial(150, each @ topics) for each in proportions]))
    estimator = TopicEstimator(LDA(), documents(planted))
    found = estimator.fit((n_topics,), jax.random.key(2), estimator.fit_to_merge((12,), jax.random.key(2)))
    eta = float(LDA().numbers()[1])
    natural = {"topic_word": (topics * planted.sum() / n_topics + eta - 1).astype(np.float32)}
    known = Estimate(LDA(), (n_topics,), natural, -np.inf, np.inf, 1)
    assert found.log_lower > estimator.fit((n_topics,), jax.random.key(2), known).log_lower - 400


def test_recorded_marginal_bound_is_that_of_the_carried_state(monkeypatch):
    """Evaluated again at the natural parameters and the model that the estimate carries: the same bits."""
    estimator = TopicEstimator(LDA(1.9, ETA), data(), SETTINGS)
    seen = []
    evaluate = estimator._marginal_bound
    monkeypatch.setattr(estimator, "_marginal_bound", lambda *args: seen.append(args) or evaluate(*args))
    estimate = estimator.fit((3,), jax.random.key(0), None)
    ((model, _, gamma, capacity),) = seen
    assert model is estimate.model
    assert evaluate(estimate.model, estimate.natural["topic_word"], gamma, capacity) == estimate.log_lower
    assert estimate.natural["topic_word"].shape == (3, N_WORDS)
    assert estimator.fit((3,), jax.random.key(0), None).log_lower == estimate.log_lower


@pytest.mark.thorough
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


@pytest.mark.parametrize("plug_in", [False, pytest.param(True, marks=pytest.mark.slow)])
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
