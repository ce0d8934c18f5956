"""HDP topics: the bound against enumeration, the kernel against the generic engine, and what `lv.fit` gives."""

from functools import cache
from typing import Any

import hdp_oracles
import jax
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import betaln

import lvsearch as lv
from lvsearch.fitted.stored_fits import decode_module, encode_module
from lvsearch.inference.data.documents import counts_of, documents
from lvsearch.inference.data.packing import pack
from lvsearch.inference.engine.estimate import capacity_of, cut_axes
from lvsearch.inference.engine.meanfield import MeanField, ascend, cast, resident_sweep
from lvsearch.inference.engine.meanfield_starts import scattered_start
from lvsearch.inference.hdp import HDPEstimator
from lvsearch.inference.hdp.kernel import AscentState, Collected, TablePosterior, memoized_passes, naturals
from lvsearch.inference.hdp.units import Packed, bound_at, packed_documents
from lvsearch.inference.hdp.weights import expected_tables, refit_weights, starting_weights
from lvsearch.models.hdp import HDP
from lvsearch.models.hyperpriors import GammaPrior

COUNTS = np.array([[2, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 3, 0, 1], [0, 0, 0, 0, 0]])
ETA = 0.4
PRIORS = GammaPrior(2.0, 1.5), GammaPrior(3.0, 2.0)
N_WORDS = 30


def data_of(counts: np.ndarray) -> Any:
    return documents(csr_array(counts.astype(np.int32)))


# ── the bound ───────────────────────────────────────────────────────────────────────────────────────────────────────


def ascended(model: HDP, counts: np.ndarray, size: int, key: int = 0) -> MeanField:
    data = cast(data_of(counts), np.float64)
    start = scattered_start(model, jax.random.key(key), data, (size,), capacity_of((size,)), np.float64)
    return ascend(model, data, start, (size,), capacity=capacity_of((size,)), sweeps=2000, tolerance=1e-13)


def test_the_bound_is_exact_where_nothing_is_approximate(float64):
    """One topic, one table: given that everything is there, the posterior factorises, so that the bound is
    log p(data, all tables and tokens at the first); every constant and the leftover mass of both levels are in it."""
    alpha, gamma = 1.5, 0.7
    found = ascended(HDP(ETA, gamma, alpha, tables=1), COUNTS, 1).trace[-1]
    lengths = COUNTS.sum(1)
    truth = (betaln(1 + lengths, alpha) - betaln(1, alpha)).sum()  # E[π'^n] under Beta(1, α), document by document
    truth += betaln(1 + len(COUNTS), gamma) - betaln(1, gamma)
    truth += hdp_oracles.log_topic(hdp_oracles.tokens_of(COUNTS)[1], ETA, COUNTS.shape[1])
    assert found == pytest.approx(truth, abs=1e-9)


@pytest.mark.thorough
def test_the_bound_is_below_the_process_and_rises_with_truncation(float64):
    """The process' evidence does not depend on it. Each truncation goes on from the one before: an added topic that has
    its prior as q changes nothing, so that the bound can only rise."""
    counts = COUNTS[:3].copy()
    counts[2] = [0, 0, 1, 0, 1]
    exact = hdp_oracles.log_evidence(counts, ETA, hdp_oracles.known(0.7), hdp_oracles.known(0.9))

    model, capacity = HDP(ETA, 0.7, 0.9, tables=2), capacity_of((1,))
    data = cast(data_of(counts), np.float64)
    fits = [ascended(model, counts, 1)]
    for size in (2, 3, 4):
        before = fits[-1]
        l = tuple(b.mean for b in before.locals)
        beliefs = resident_sweep(model, before.beliefs, data.batches, l, (size,), capacity=capacity)
        start = before._replace(beliefs=beliefs, trace=())
        fits.append(ascend(model, data, start, (size,), capacity=capacity, sweeps=2000, tolerance=1e-13))
    bounds = [fit.trace[-1] for fit in fits]
    assert max(bounds) < exact
    assert np.diff(bounds).min() > 1e-6


# ── the kernel against the generic engine ───────────────────────────────────────────────────────────────────────────


@cache
def planted() -> np.ndarray:
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(N_WORDS, 0.05), 4)
    lengths = rng.integers(3, 40, 37)
    lengths[5] = 0
    return np.stack([rng.multinomial(n, rng.dirichlet(np.full(4, 0.2)) @ topics) for n in lengths])


def packed_state(model: HDP, packed: Any, fit: MeanField, data: Any, n_topics: int) -> AscentState:
    """The kernel's state at a generic fit of all documents, its statistics those of the generic globals."""
    ids = np.concatenate(data.unit_ids)

    def by_document(leaves: list[Any]) -> np.ndarray:
        values = np.concatenate([np.asarray(leaf) for leaf in leaves])[ids >= 0]
        return values[np.argsort(ids[ids >= 0])]

    def in_slots(values: np.ndarray, blank: float) -> np.ndarray:
        out = np.full((*packed.real.shape, *values.shape[1:]), blank)
        out[packed.real] = values[packed.documents.documents[packed.real]]
        return out

    pointers = by_document([b.mean["pointer"] for b in fit.locals])
    hits = by_document([b.natural["document_sticks"].log_value for b in fit.locals]) + 1
    passes = by_document([b.natural["document_sticks"].log_complement for b in fit.locals]) + 1
    seating = TablePosterior(in_slots(pointers, 1 / n_topics), in_slots(hits, 1.0), in_slots(passes, 1.0))
    natural = jax.tree.map(np.asarray, fit.beliefs.natural)
    words = np.maximum(natural["topic_word"].T + 1 - float(model.topic_concentration), 0)
    words[:, n_topics:] = 0
    n_sticks = float(packed.real.sum() * model.tables)
    log_left = float(PRIORS[1].rate) - float(natural["document_concentration"].negative_value)
    total = Collected(words, pointers.sum((0, 1)), np.float64(log_left), np.float64(n_sticks))
    blank = jax.tree.map(lambda leaf: np.zeros((packed.documents.n_batches, *np.shape(leaf))), total)
    gamma, alpha = (
        np.float64((natural[name].log_value + 1) / natural[name].negative_value)
        for name in ("corpus_concentration", "document_concentration")
    )
    return AscentState(total, blank, seating, gamma, alpha)


@pytest.mark.thorough
def test_the_kernel_has_the_generic_bound_and_stays_at_its_optimum(float64):
    """At the end of a generic ascent: the same number, and no pass of the kernel moves it; nor does it fall on the way
    there from the generic start."""
    model, size, counts = HDP(ETA, *PRIORS, tables=3), (4,), planted()
    data = cast(data_of(counts), np.float64)
    start = scattered_start(model, jax.random.key(1), data, size, capacity_of(size), np.float64)
    end = ascend(model, data, start, size, capacity=capacity_of(size), sweeps=4000, tolerance=1e-12)
    assert end.converged
    whole, halves = (packed_documents(pack(counts_of(data), n_batches=n, tile_blocks=8)) for n in (1, 2))

    def bound(packed: Packed, natural: Any, seating: TablePosterior) -> float:
        return bound_at(model, natural, size, packed, seating, 0)[0]

    state = packed_state(model, whole, end, data, size[0])
    generic = cut_axes(model, end.beliefs.natural, size, capacity_of(size))
    assert bound(whole, generic, state.seating) == pytest.approx(end.trace[-1], abs=1e-8)

    def passed(packed: Packed, state: AscentState, passes: int) -> AscentState:
        exists = np.arange(capacity_of(size)[0]) < size[0]
        tiles = jax.tree.map(np.asarray, packed.documents.tiles)
        fresh = jax.tree.map(jax.numpy.array, state)
        return memoized_passes(model, tiles, packed.real, fresh, exists, sweeps=1, passes=passes)

    remembered = state._replace(per_batch=jax.tree.map(lambda leaf: np.asarray(leaf)[None], state.total))
    moved = passed(whole, remembered, 3)
    at_rest = bound(whole, naturals(model, moved, size[0]), moved.seating)
    assert at_rest == pytest.approx(end.trace[-1], abs=1e-4)  # natural parameters are kept in float32

    climbing, bounds = passed(halves, packed_state(model, halves, start, data, size[0]), 1), []
    for _ in range(12):
        climbing = passed(halves, climbing, 1)
        bounds.append(bound(halves, naturals(model, climbing, size[0]), climbing.seating))
    assert np.diff(bounds).min() > -1e-4
    assert bounds[-1] > bounds[0] + 1


# ── corpus weights ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_expected_tables_are_those_of_the_restaurant():
    """Whole counts: n customers open Σ a / (a + r) tables, r < n; less than one word opens less than one."""
    alphas = np.array([0.3, 1.7])
    counts = np.array([[40.0, 0.0], [0.0, 35.0]])
    truth = [sum(a / (a + r) for r in range(n)) for a, n in ((0.3, 40), (1.7, 35))]
    np.testing.assert_allclose(expected_tables(counts, alphas), truth, atol=1e-5)
    few = expected_tables(np.array([[0.01, 0.2]]), alphas)
    assert 0.0099 < few[0] < 0.01
    assert 0.15 < few[1] < 0.2


def test_corpus_weights_leave_mass_over_and_follow_the_tables():
    model = HDP(ETA, *PRIORS)
    rng = np.random.default_rng(0)
    counts = rng.dirichlet([0.1, 2.0, 0.6], 50) * 30
    weights = refit_weights(model, starting_weights(model, 3), counts, counts.sum(1))
    assert np.argsort(weights.beta).tolist() == [0, 2, 1]
    assert 0.9 < weights.beta.sum() < 1
    again = refit_weights(HDP(ETA, 0.8, 1.1), starting_weights(HDP(ETA, 0.8, 1.1), 3), counts, counts.sum(1))
    assert (again.gamma, again.alpha) == (0.8, 1.1)


# ── what people get ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def model() -> lv.FittedModel:
    return lv.fit(HDP(0.1, tables=4), planted(), size=7, seed=0)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*no word that the model knows")
def test_a_fit_has_topics_and_alpha_that_score_documents(model):
    assert model.topics(3).shape == (7, 2)
    topics = model.table("topic_word")
    assert topics.shape == (7, N_WORDS)
    assert model.alpha.shape == (7,)
    scored = lv.inference.document_likelihood(
        topics.to_numpy(), model.alpha, csr_array(planted()[:6]), method="mfi", samples=400, key=jax.random.key(0)
    )
    lower, upper = model.interval_units(planted()[:6])
    assert np.all(lower < scored.log_likelihood + 1)  # mean field, and Monte Carlo
    assert np.all(scored.log_likelihood <= upper + 1e-6)
    np.testing.assert_allclose(model.transform(planted()).sum(1), 1, rtol=1e-6)
    weights, left = model.model.expected_weights(model.estimate.natural)
    assert weights.sum() + left == pytest.approx(1)
    assert 0 < left < 0.2


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="sums over documents repeat to the bit on a CPU only")
def test_the_bound_of_a_fit_is_at_what_it_carries(model):
    """Between that of one topic and the ceiling; a fit from scratch repeats to the bit."""
    again = lv.fit(HDP(0.1, tables=4), planted(), size=7, seed=0)
    assert again.evidence.lower == model.evidence.lower
    single = lv.fit(HDP(0.1, tables=4), planted(), size=1, seed=0)
    assert single.evidence.lower < model.evidence.lower < model.evidence.upper


def test_occupied_topics_are_a_distribution(model):
    table = model.occupied_under_fit(draws=300)
    assert table.probability.sum() == pytest.approx(1)
    assert table["size"].between(3, 7).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topic_concentration": 0}, "topic_concentration must be one positive number"),
        ({"tables": 0}, "got tables=0"),
        ({"corpus_concentration": -1.0}, "corpus_concentration must be one positive number"),
    ],
)
def test_bad_hyperparameters_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HDP(**settings)


def test_no_plug_in_form():
    with pytest.raises(ValueError, match="no plug-in form"):
        lv.fit(HDP(), planted(), size=3, evidence="plug-in")


def test_the_memory_plan_grows_with_the_truncation_and_shrinks_with_chunks():
    estimator = HDPEstimator(HDP(0.1, tables=4), data_of(planted()))
    small, large = estimator.memory_plan((7,)), estimator.memory_plan((100,))
    assert small.peak_bytes < large.peak_bytes
    assert {"pointers", "topics"} <= {part.name for part in large.parts}
    tight = estimator.with_chunks(estimator.chunks.halved())
    assert tight.memory_plan((100,)).peak_bytes <= large.peak_bytes


def test_the_model_can_be_stored():
    model = HDP(0.1, GammaPrior(2.0, 3.0), 1.5, tables=4)
    stored = decode_module(encode_module(model))
    assert stored.describe() == model.describe()
    assert "corpus concentration ~ Gamma(2, rate 3); document concentration 1.5; 4 tables" in stored.describe()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*no word that the model knows")
@pytest.mark.parametrize(
    "counts",
    [
        np.array([[5, 0], [0, 0]]),
        *(pytest.param(c, marks=pytest.mark.slow) for c in (np.array([[0, 1]]), np.tile([[3, 1, 2]], (4, 1)))),
    ],
)
def test_degenerate_data_give_numbers(counts):
    """One word, an empty document, copies of one document; one truncation more than there is anything to tell apart."""
    found = lv.fit(HDP(0.1, tables=2), counts, size=2)
    assert np.isfinite(found.evidence.lower)
    assert np.all(np.isfinite(found.transform(counts)))
    assert np.all(found.alpha > 0)
