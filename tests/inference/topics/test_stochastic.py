"""Stochastic variational inference: gradients right on average, and the fixed points of coordinate ascent."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.sparse import csr_array

import lvsearch as lv
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.mapped import MappedCounts, files_of
from lvsearch.inference.data.packing import pack
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.streaming import MOST_SWEEPS, TOLERANCE, Minibatches, expected_counts

ETA, SIZE = 0.3, 3
ALPHA = np.array([0.7, 0.7, 0.7, 0, 0, 0, 0, 0], np.float32)
MODEL = lv.models.LDA(2.1, ETA)


@cache
def counts() -> csr_array:
    """Three kinds of documents, of very different lengths, one empty."""
    random = np.random.default_rng(9)
    topics = random.dirichlet(np.full(40, 0.08), 3)
    rates = random.dirichlet(np.full(3, 0.1), 150) @ topics
    found = random.poisson(rates * random.integers(5, 150, (150, 1))).astype(np.int32)
    found[4] = 0
    return csr_array(found)


@cache
def total() -> np.ndarray:
    found = np.zeros((40, 8), np.float32)
    found[:, :SIZE] = np.random.default_rng(1).gamma(2.0, 3.0, (40, SIZE))
    return found


def batch_counts(at: np.ndarray) -> np.ndarray:
    """What a pass over all documents at once finds, in tiles of another layout."""
    packed = pack(counts(), 1, 200)
    start = kernels.start_state(packed, at, ALPHA).proportions
    topics = kernels.exp_log_topics(at, np.float32(ETA), ALPHA)
    tolerance = np.float32(TOLERANCE)
    _, found = kernels.document_pass(packed.tiles, topics, start, ALPHA, sweeps=MOST_SWEEPS, tolerance=tolerance)
    return np.asarray(found)


def minibatch_counts(minibatches: Minibatches, at: np.ndarray) -> list[np.ndarray]:
    """n_m of every minibatch."""
    topics = jnp.asarray(at)
    return [np.asarray(expected_counts(minibatches, m, topics, ALPHA, ETA)) for m in range(len(minibatches))]


@pytest.mark.parametrize("per_batch", [10, 40, 1000])
def test_the_noisy_gradient_is_right_on_average(per_batch):
    """All minibatches enumerated: the mean of M n_m is what all documents say, though they hold different numbers of
    documents and tokens."""
    minibatches = Minibatches.from_dataset(documents(counts()), per_batch)
    assert (len(minibatches) > 1) == (per_batch < 1000)
    each = minibatch_counts(minibatches, total())
    np.testing.assert_allclose(np.mean([len(each) * n for n in each], axis=0), batch_counts(total()), atol=2e-3)
    if len(each) > 1:
        tokens = [n.sum() for n in each]
        assert np.ptp(tokens) > 1  # so that a wrong weight would show


def test_a_step_of_one_with_all_documents_is_coordinate_ascent():
    """And a step of less goes that part of the way."""
    start = Estimate(MODEL, (SIZE,), {"topic_word": total()[:, :SIZE].T + np.float32(ETA - 1)}, 0.0, np.inf, 0)
    there = batch_counts(total())[:, :SIZE].T + ETA - 1
    for rate in (1.0, 0.25):
        found = lv.inference.stochastic_topics(
            MODEL,
            documents(counts()),
            SIZE,
            key=jax.random.key(0),
            documents=1000,
            schedule=optax.constant_schedule(rate),
            start=start,
            bound=False,
        )
        wanted = (1 - rate) * start.natural["topic_word"] + rate * there
        np.testing.assert_allclose(found.natural["topic_word"], wanted, rtol=1e-4, atol=1e-3)
        assert found.log_lower == -np.inf


def ascended(at: np.ndarray) -> np.ndarray:
    """The fixed point of batch coordinate ascent from there."""
    for _ in range(100):
        before, at = at, batch_counts(at)
    assert np.abs(at - before).max() < 0.02
    return at


@pytest.mark.thorough
def test_its_fixed_point_is_that_of_batches():
    """From scratch, with steps that grow small. What is left is noise: about a step ρ has left of it √(ρ/2) of one
    minibatch's standard deviation, which all minibatches enumerated say; allowed are six of these."""
    schedule = lv.inference.robbins_monro(1.0, 0.9)
    options = {"key": jax.random.key(3), "documents": 30, "passes": 50}
    found = lv.inference.stochastic_topics(MODEL, documents(counts()), SIZE, schedule=schedule, **options)
    at = np.zeros((40, 8), np.float32)
    at[:, :SIZE] = found.natural["topic_word"].T + 1 - ETA
    settled = ascended(at)
    minibatches = Minibatches.from_dataset(documents(counts()), 30)
    each = [len(minibatches) * n for n in minibatch_counts(minibatches, settled)]
    np.testing.assert_allclose(np.mean(each, axis=0), settled, atol=0.05)  # no step from there, on average
    allowed = 6 * np.sqrt(schedule(50 * len(minibatches)) / 2) * np.std(each, axis=0).max()
    assert allowed < 0.1 * settled.max()
    np.testing.assert_allclose(at, settled, atol=allowed)
    # the noise costs some nats, most of them in words that stand in a topic once or twice
    assert found.log_lower == pytest.approx(lv.fit(MODEL, counts(), size=SIZE).evidence.lower, rel=2e-3)


def test_documents_on_disk_give_the_same(tmp_path):
    lv.Corpus.from_matrix(counts()).save(tmp_path / "corpus")
    files = files_of(lv.Corpus.open(tmp_path / "corpus").counts)
    assert files is not None
    key = jax.random.key(5)
    found = [
        lv.inference.stochastic_topics(MODEL, data, SIZE, key=key, documents=30, passes=2)
        for data in (documents(counts()), documents(MappedCounts.from_files(files)))
    ]
    np.testing.assert_allclose(*(each.natural["topic_word"] for each in found), rtol=1e-4, atol=1e-3)
    assert found[0].log_lower == pytest.approx(found[1].log_lower, rel=1e-6)


def test_schedules():
    steps = [float(lv.inference.robbins_monro(2.0, 0.6)(t)) for t in range(4)]
    np.testing.assert_allclose(steps, [(t + 2) ** -0.6 for t in range(4)])
    assert lv.inference.robbins_monro(0.0, 1.0)(0) == 1.0
    for delay, forgetting in ((1.0, 0.5), (1.0, 1.1), (-1.0, 0.7)):
        with pytest.raises(ValueError, match=r"expected a delay of at least 0 and forgetting in \(0.5, 1\]"):
            lv.inference.robbins_monro(delay, forgetting)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "got size=0"),
        ({"documents": 0}, "got documents=0"),
        ({"passes": 0}, "got passes=0"),
        ({"schedule": optax.constant_schedule(1.5)}, "got a step of 1.5 at number 0"),
        ({"schedule": lambda step: float("nan")}, "got a step of nan"),
        ({"model": lv.models.LDA().plug_in()}, "topics are point estimates"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    options = {"model": MODEL, "size": SIZE, **options}
    model, size = options.pop("model"), options.pop("size")
    with pytest.raises(ValueError, match=message):
        lv.inference.stochastic_topics(model, documents(counts()), size, key=jax.random.key(0), **options)
