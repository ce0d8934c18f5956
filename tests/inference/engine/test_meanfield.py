"""The generic engine against LDA's hand-written updates (SciPy, float64) and against exact numbers; its estimator."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from engine_steps import batch_statistics
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln, logsumexp, softmax
from toy_models import Point, PointMixture

from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.rows import rows
from lvsearch.inference.engine.estimate import CAPACITIES, Estimate, capacity_of, cut_axes, pad_axes
from lvsearch.inference.engine.estimator import GenericEstimator
from lvsearch.inference.engine.meanfield import Beliefs, batch_bound, cast, fit_locals, globals_bound, update_globals
from lvsearch.inference.engine.meanfield_starts import leanings_to_nearest
from lvsearch.inference.engine.summed_out import log_unit_summed
from lvsearch.models import IndependentNormalMixture
from lvsearch.models.contract import Site
from lvsearch.models.families import Categorical
from lvsearch.models.lda import LDA
from lvsearch.results.result import SearchResult
from lvsearch.searching.controller import SearchSettings, SearchState, run
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.sizes import Table

SIZE, CAPACITY, N_WORDS = (3,), (4,), 6
ALPHA, ETA = np.array([0.4, 1.3, 0.7]), 0.3
COUNTS = np.array([[2, 0, 1, 0, 0, 3], [0, 1, 0, 0, 4, 0], [0, 0, 0, 0, 0, 0], [1, 1, 0, 2, 0, 0], [0, 0, 5, 0, 1, 0]])


@cache
def corpus() -> Batch:
    """Five documents, one of them empty, and a row of padding; the weights are those of a minibatch."""
    (batch,) = documents(csr_array(COUNTS.astype(np.int32))).batches
    pad = Batch(*jax.tree.map(lambda x: np.concatenate([x, x[:1]]).astype(x.dtype), (batch.units, batch.weight)))
    weighted = pad._replace(weight=np.array([2.5, 1.0, 1.0, 0.5, 3.0, 0.0], np.float32))
    return cast(Dataset.of_batches((weighted,), (), {}, 6), np.float64).batches[0]


def hand_written(lam: np.ndarray, gamma: np.ndarray, sweeps: int) -> tuple[list[np.ndarray], np.ndarray]:
    """`sweeps` rounds of Eq. 3.9 then 3.10 for every document: (φ per document (token, K), γ (docs, K))."""
    expected_log_beta = digamma(lam) - digamma(lam.sum(1, keepdims=True))
    phis, gamma = [np.zeros((0, 3))] * len(COUNTS), gamma.copy()
    for d, row in enumerate(COUNTS):
        words, counts = np.flatnonzero(row), row[row > 0]
        for _ in range(sweeps):
            phis[d] = softmax(expected_log_beta[:, words].T + digamma(gamma[d]) - digamma(gamma[d].sum()), axis=1)
            gamma[d] = ALPHA + counts @ phis[d]
    return phis, gamma


def hand_written_bound(lam: np.ndarray, phis: list[np.ndarray], gamma: np.ndarray) -> tuple[np.ndarray, float]:
    """Eq. 3.12 term by term: (per document, the topics' part of §3.4.3)."""
    expected_log_beta = digamma(lam) - digamma(lam.sum(1, keepdims=True))
    per_document = []
    for row, phi, g in zip(COUNTS, phis, gamma, strict=True):
        words, c = np.flatnonzero(row), row[row > 0][:, None]
        log_theta = digamma(g) - digamma(g.sum())
        prior = gammaln(ALPHA.sum()) - gammaln(ALPHA).sum() + ((ALPHA - 1) * log_theta).sum()
        assignments = (c * phi * log_theta).sum()
        likelihood = (c * phi * expected_log_beta[:, words].T).sum()
        entropy_theta = -gammaln(g.sum()) + gammaln(g).sum() - ((g - 1) * log_theta).sum()
        entropy_z = -(c * phi * np.log(phi)).sum()
        per_document.append(prior + assignments + likelihood + entropy_theta + entropy_z)
    k, v = lam.shape
    prior = k * (gammaln(v * ETA) - v * gammaln(ETA)) + ((ETA - 1) * expected_log_beta).sum()
    entropy = (-gammaln(lam.sum(1)) + gammaln(lam).sum(1) - ((lam - 1) * expected_log_beta).sum(1)).sum()
    return np.array(per_document), prior + entropy


@pytest.mark.thorough
def test_engine_is_the_hand_written_updates(float64):
    """Eq. 3.9, 3.10, 3.13 and 3.12 to 1e-10, with counts, padding of every kind and minibatch weights."""
    model, batch = LDA(ALPHA, ETA), corpus()
    rng = np.random.default_rng(1)
    lam, gamma = rng.gamma(1.5, 2.0, (3, N_WORDS)), rng.gamma(1.5, 1.0, (len(COUNTS), 3))
    natural = {"topic_word": np.pad(lam - 1, ((0, 1), (0, 0)))}
    expected_log_beta = digamma(lam) - digamma(lam.sum(1, keepdims=True))
    g = {"topic_word": np.pad(expected_log_beta, ((0, 1), (0, 0)))}
    all_gammas = np.pad(np.concatenate([gamma, gamma[:1]]), ((0, 0), (0, 1)))
    log_theta = np.where(all_gammas > 0, digamma(np.maximum(all_gammas, 1e-9)), 0)
    log_theta -= np.where(all_gammas > 0, digamma(all_gammas.sum(1, keepdims=True)), 0)
    z = np.zeros((*batch.units.words.shape, 4))
    start = Beliefs(
        {"assignment": z, "proportions": all_gammas - 1}, {"assignment": z.copy(), "proportions": log_theta}
    )
    fitted = fit_locals(model, g, batch, start, SIZE, capacity=CAPACITY, sweeps=7)
    phis, gamma = hand_written(lam, gamma, 7)
    for d, row in enumerate(COUNTS):
        used = np.count_nonzero(row)
        np.testing.assert_allclose(fitted.mean["assignment"][d, :used, :3], phis[d], atol=1e-10)
        np.testing.assert_allclose(fitted.natural["proportions"][d, :3] + 1, gamma[d], atol=1e-10)
    per_document, topics = hand_written_bound(lam, phis, gamma)
    bounds = batch_bound(model, g, batch, fitted, SIZE, capacity=CAPACITY)
    np.testing.assert_allclose(bounds, [*per_document, 0.0], atol=1e-10)
    assert bounds[2] == pytest.approx(0, abs=1e-12)  # the empty document
    beliefs = Beliefs(natural, g)
    np.testing.assert_allclose(globals_bound(model, beliefs, SIZE, capacity=CAPACITY), topics, atol=1e-10)

    new = np.full((3, N_WORDS), ETA)  # Eq. 3.13, a document of weight w counted w times
    for row, phi, weight in zip(COUNTS, phis, batch.weight, strict=False):
        words = np.flatnonzero(row)
        np.add.at(new.T, words, weight * row[words][:, None] * phi)
    statistics = batch_statistics(model, g, batch, fitted.mean, SIZE, capacity=CAPACITY)
    updated = update_globals(model, beliefs, statistics, SIZE, capacity=CAPACITY)
    np.testing.assert_allclose(updated.natural["topic_word"][:3] + 1, new, atol=1e-10)
    np.testing.assert_allclose(updated.natural["topic_word"][3], 0, atol=0)
    expected = digamma(new) - digamma(new.sum(1, keepdims=True))
    np.testing.assert_allclose(updated.mean["topic_word"][:3], expected, atol=1e-10)


def test_summed_out_indicators_are_enumerated_ones(float64):
    """log Σ_z exp log_unit(z) = log_unit(z = 0) + Σ log-normalisers, against every assignment spelled out."""
    model = LDA(ALPHA, ETA)
    rng = np.random.default_rng(2)
    log_theta, topics = np.log(rng.dirichlet(ALPHA)), rng.dirichlet(np.ones(N_WORDS), 3)
    unit = jax.tree.map(lambda x: jnp.asarray(x[0]), corpus().units)
    words, counts = unit.words[:3], unit.counts[:3].astype(int)
    on = model.active(SIZE, SIZE)
    l = {"proportions": jnp.asarray(log_theta), "assignment": jnp.zeros((len(unit.words), 3))}
    total, means = jax.jit(
        lambda: log_unit_summed(model, {"topic_word": jnp.log(topics)}, l, unit, on, ("assignment",))
    )()
    z = oracles.all_assignments(3, counts.sum())
    tokens = np.repeat(words, counts)
    terms = (log_theta[z] + np.log(topics)[z, tokens]).sum(1)
    prior = gammaln(ALPHA.sum()) - gammaln(ALPHA).sum() + ((ALPHA - 1) * log_theta).sum()
    assert float(total) == pytest.approx(prior + logsumexp(terms), abs=1e-10)
    probability = softmax(log_theta[:, None] + np.log(topics), axis=0)[:, words].T
    np.testing.assert_allclose(means["assignment"][:3], probability, atol=1e-12)


def test_only_indicators_can_be_summed_out():
    model = LDA(ALPHA, ETA)
    with pytest.raises(ValueError, match="cannot sum out 'proportions'"):
        log_unit_summed(model, {}, {}, jax.tree.map(lambda x: x[0], corpus().units), {}, ("proportions",))


# ── the estimator: seven points (DESIGN §4) ─────────────────────────────────────────────────────────────────────────

SEVEN = np.array([-2.2, 2.3, 2.8, -1.6, -1.9, -2.3, 2.0])
TOTAL, PRIOR_PRECISION, PRECISION = 0.5, 0.01, 4.0
PRIOR = Table([0.25, 0.25, 0.25, 0.25])


def seven_points() -> tuple[PointMixture, Dataset]:
    batch = Batch(Point(SEVEN.astype(np.float32)), np.ones(7, np.float32))
    return PointMixture(TOTAL, PRIOR_PRECISION, PRECISION), Dataset.of_batches((batch,), (np.arange(7),), {}, 7)


def exact_evidence(size: int) -> float:
    return oracles.mixture_log_evidence(SEVEN.astype(np.float32).astype(float), size, TOTAL, PRIOR_PRECISION, PRECISION)


@pytest.fixture(scope="module")
def seven_point_search() -> SearchResult:
    """The whole search with a model that no part of it knows."""
    evaluator = ModelEvaluator(*seven_points(), evidence="bound", seed=2)
    settings = SearchSettings("bound", False, (4,), 2, 3, True, True, 8)
    state = run(evaluator, PRIOR, settings, SearchState(), progress=False)
    return SearchResult(evaluator, PRIOR, settings, state, None, 0.0)


@pytest.mark.thorough
def test_label_correction_brings_the_posterior_to_the_exact_one(seven_point_search):
    """A bound sits in one of the equivalent labellings: without log_symmetry the posterior leans to small sizes."""
    visits = sorted(seven_point_search.visits, key=lambda visit: visit.size)
    assert [visit.size for visit in visits] == [(1,), (2,), (3,), (4,)]
    exact = np.array([exact_evidence(size) for size in (1, 2, 3, 4)])
    lower = np.array([visit.evidence.lower for visit in visits])
    assert np.all(lower <= exact + 1e-6)
    estimate = np.array([visit.estimate for visit in visits])
    assert np.abs(softmax(estimate) - softmax(exact)).max() < 0.1
    assert np.abs(softmax(lower) - softmax(exact)).max() > 0.2
    np.testing.assert_allclose(estimate, exact, atol=0.1)
    assert np.abs(seven_point_search.estimated.probability - softmax(exact)).max() < 0.1


def test_estimates_carry_their_own_bound(seven_point_search):
    """A fit grown from a smaller one, and the bound of every kept fit under the exact evidence."""
    for size, fit in seven_point_search.state.kept.items():
        assert fit.state.size == size
        assert all(leaf.shape[0] == size[0] for leaf in jax.tree.leaves(fit.state.natural))
        assert fit.evidence.lower == fit.state.log_lower


def test_padding_and_cutting_are_inverse():
    model, _ = seven_points()
    rng = np.random.default_rng(0)
    natural = {
        "weights": rng.normal(size=3),
        "means": type(model.globals()["means"].family).statistics_type(*rng.normal(size=(2, 3))),
    }
    padded = pad_axes(model, natural, (3,), capacity_of((3,)))
    assert padded["weights"].shape == (CAPACITIES[0],)
    jax.tree.map(np.testing.assert_array_equal, cut_axes(model, padded, (3,), capacity_of((3,))), natural)


def test_grown_start_keeps_the_components_of_the_smaller_fit():
    model, data = seven_points()
    estimator = GenericEstimator(model, data, sweeps=40)
    small = estimator.fit((2,), jax.random.key(0), None)
    grown = estimator.fit((3,), jax.random.key(1), small)
    assert isinstance(grown, Estimate)
    assert small.log_lower < exact_evidence(2) + 1e-6
    assert grown.log_lower < exact_evidence(3) + 1e-6


# ── starts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_begin_with_the_nearest_of_rows_that_are_far_apart():
    """Three far clusters, the smallest of two rows: each gets a group of its own, also with a missing cell."""
    values = np.array([[0.0, 0.0]] * 20 + [[50.0, 0.0]] * 20 + [[0.0, 50.0]] * 2)
    observed = np.arange(84).reshape(42, 2) != 1

    def leaning(seed: int, values: np.ndarray, observed: np.ndarray, size: int) -> np.ndarray:
        (batch,) = rows(values, observed).batches
        (found,) = leanings_to_nearest(jax.random.key(seed), [batch], (size,), (4,)) or ()
        assert found.shape == (len(batch.weight), 4)
        np.testing.assert_array_equal(np.asarray(found[len(values) :]), 0)
        np.testing.assert_array_equal(np.asarray(found[: len(values)] > 0).sum(1), 1)
        return np.asarray(found[: len(values)]).argmax(1)

    for seed in range(5):
        labels = leaning(seed, values, observed, 3)
        assert [len(set(labels[part])) for part in (slice(1, 20), slice(20, 40), slice(40, 42))] == [1, 1, 1]
        assert set(labels) == {0, 1, 2}
    assert set(leaning(0, np.zeros((4, 1)), np.ones((4, 1), bool), 3)) == {0}
    assert leanings_to_nearest(jax.random.key(0), [corpus()], (3,), (4,)) is None


class TwoIndicators(IndependentNormalMixture):
    """A mixture whose rows also have a side, one of three, of which nothing is learned."""

    def locals(self):
        return {**super().locals(), "side": Site(Categorical(), ("side",))}

    def active(self, size, capacity):
        return {**super().active(size, capacity), "side": jnp.ones(3, bool)}

    def log_unit(self, g, l, unit, on):
        return super().log_unit(g, l, unit, on) - jnp.log(3.0) * l["side"].sum()


@pytest.mark.slow
def test_only_components_begin_near_rows():
    """An indicator of another length begins at random, and the fit is that without it."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(-3, 1, (60, 1)), rng.normal(3, 1, (60, 1))])
    data = rows(values, np.ones(values.shape, bool))
    with_side, without = (
        GenericEstimator(kind(scale=10.0), data).fit((2,), jax.random.key(0), None).log_lower
        for kind in (TwoIndicators, IndependentNormalMixture)
    )
    assert with_side == pytest.approx(without, abs=1e-3)
    assert without > -265  # one component for all rows has -322
