"""Paths along the data against enumeration: mixtures row by row, LDA document by document.

False alarms. Keys are fixed: a test always passes or always fails. Over keys, each z below is normal to good
approximation; |z| < 4.5 of the at most ten of a test fails by chance in fewer than 1 of 10,000 keys.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mixture_cases
import numpy as np
import oracles
import pytest
import word_mixture_oracles as word_oracles
from compiled import Compiled
from mixture_cases import CASES, DIAGONAL, Kind
from scipy.sparse import csr_array
from scipy.special import logsumexp
from test_evidence_mixtures import all_labels, chain_of, log_likelihoods, log_priors, padded

from lvsearch.inference.annealing.prefixes import Grown, grow, revisits, sequential, shrink
from lvsearch.inference.data.documents import documents as documents_of
from lvsearch.inference.evidence import (
    Effort,
    GivenFactors,
    UnigramMixtureChain,
    both_ways,
    collapsed_topics,
    temperature_profile,
)
from lvsearch.inference.evidence.row_by_row import RowByRow
from lvsearch.inference.topic_samplers.anchor import DocumentByDocument
from lvsearch.models import MixtureOfUnigrams

Z_LIMIT = 4.5
SIZE, PARTICLES, SWEEPS = 3, 8, 3
pytestmark = pytest.mark.usefixtures("float64")
kinds = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.name)


def rows_of(kind: Kind, n: int, key: int = 0) -> RowByRow:
    found = sequential(chain_of(kind, n, SIZE, 4), jax.random.key(key))
    assert isinstance(found, RowByRow)
    return found


def exact_prefixes(kind: Kind, order: tuple[int, ...]) -> np.ndarray:
    """log p(the first m rows in that order), m = 1 …"""
    reordered = kind._replace(rows=kind.rows[list(order)])
    lengths = range(1, len(order) + 1)
    return np.array([logsumexp(log_priors(m, SIZE) + log_likelihoods(reordered, m, SIZE)) for m in lengths])


def z_of(ratios: np.ndarray) -> np.ndarray:
    """z of averages over islands, (island, …), that should be 1; some are 1 in every island, but for rounding."""
    return (ratios.mean(0) - 1) / np.maximum(ratios.std(0, ddof=1) / np.sqrt(len(ratios)), 1e-6)


def z_of_prefixes(sampler: Any, exact: np.ndarray, islands: int) -> np.ndarray:
    found = grow(sampler, jax.random.key(3), SWEEPS, islands=islands, particles=PARTICLES).log_evidence
    ratios = np.exp(found[: len(exact)] - exact[:, None]).T
    np.testing.assert_allclose(ratios[:, 0], 1.0, rtol=1e-6)  # the first unit's is known
    np.testing.assert_array_equal(
        found[len(exact) :], np.broadcast_to(found[len(exact) - 1], found[len(exact) :].shape)
    )
    return z_of(ratios[:, 1:])


def z_back(sampler: RowByRow, kind: Kind, n: int, islands: int) -> float:
    log_target = log_priors(n, SIZE) + log_likelihoods(kind, n, SIZE)
    evidence = logsumexp(log_target)
    drawn = np.random.default_rng(5).choice(len(log_target), islands * PARTICLES, p=np.exp(log_target - evidence))
    posterior = sampler.chain.state_from_labels(padded(all_labels(n, SIZE)[:, drawn], sampler.chain))
    back = shrink(sampler, jax.random.key(4), posterior, SWEEPS, islands=islands)
    return float(z_of(np.exp(evidence - back.log_evidence)))


def check_mixture(kind: Kind, n: int, islands: int) -> None:
    sampler = rows_of(kind, n)
    order = tuple(int(row) for row in sampler.order[:n])
    assert order != tuple(range(n))
    assert np.abs(z_of_prefixes(sampler, exact_prefixes(kind, order), islands)).max() < Z_LIMIT
    assert abs(z_back(sampler, kind, n, islands)) < Z_LIMIT


@pytest.mark.thorough
def test_every_prefix_has_its_exact_evidence_forwards_and_the_whole_backwards():
    """E[p̂(first m rows)] = p(first m rows) for every m; E[1 / p̂] = 1 / p(all) from exact posterior draws."""
    check_mixture(DIAGONAL, 5, 300)


@pytest.mark.slow
@kinds
def test_every_prefix_of_every_kind_has_its_exact_evidence(kind):
    check_mixture(kind, 6, 4000)


@pytest.mark.slow  # the power of the test above, at the same sizes
@pytest.mark.parametrize("wrong", ["seats", "revisit", "reverse"])
def test_wrong_weights_and_wrong_sweeps_are_seen(wrong):
    """Planted: one seat too many; sweeps that visit the rows that have not come; a backward path without its sweeps'
    rows removed."""

    class Wrong(RowByRow):
        def _log_predictive(self, before, score, row):
            more = 0.02 * before.counts[0] if wrong == "seats" else 0.0
            return super()._log_predictive(before, score, row) + more

        def revisit(self, key, state, units, *, backward):
            if wrong != "revisit":
                return super().revisit(key, state, units, backward=backward)
            return self.chain.state_from_labels(jnp.where(state.labels >= 0, jnp.minimum(state.labels, 1), -1))

        def remove(self, key, state, unit):
            left, worth = super().remove(key, state, unit)
            return (left._replace(labels=state.labels) if wrong == "reverse" else left), worth

    sampler = rows_of(DIAGONAL, 5)
    planted = Wrong(sampler.chain, sampler.order, sampler.n_units)
    if wrong == "reverse":
        assert abs(z_back(planted, DIAGONAL, 5, 300)) > Z_LIMIT
    else:
        exact = exact_prefixes(DIAGONAL, tuple(int(row) for row in sampler.order[:5]))
        assert np.abs(z_of_prefixes(planted, exact, 300)).max() > Z_LIMIT


@pytest.mark.slow
@kinds
def test_removing_undoes_appending(kind):
    sampler, key = rows_of(kind, 5), jax.random.key(1)
    states = [sampler.initial_state(key, 7)]
    gains = []
    for unit in range(5):
        state, gain = sampler.append(jax.random.fold_in(key, unit), states[-1], jnp.asarray(unit))
        states.append(state)
        gains.append(gain)
    state = states[-1]
    for unit in reversed(range(5)):
        state, gain = sampler.remove(jax.random.key(unit), state, jnp.asarray(unit))
        np.testing.assert_allclose(gain, gains[unit], atol=1e-9)
        np.testing.assert_array_equal(state.labels, states[unit].labels)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), state.natural, states[unit].natural)


def test_revisits_are_of_so_many_sweeps():
    for sweeps in (4, 16):
        due = revisits(1000, sweeps)
        assert due[0]
        assert due[-1]
        assert (np.flatnonzero(due) + 1).sum() / 1000 == pytest.approx(sweeps + 1, rel=0.2)
    assert revisits(1, 8).tolist() == [True]


@pytest.mark.slow
def test_ends_meet_where_rows_lie_in_groups():
    """Three groups of 41 rows: 8 sweeps do what hundreds of temperatures do not."""
    chain = chain_of(DIAGONAL._replace(rows=mixture_cases.clusters()), 41, SIZE, 4)
    work = Effort(96, 2, 64)
    ends, _ = both_ways(chain, jax.random.key(0), work, temperature_profile(chain, jax.random.key(1), work))
    assert ends.moved
    assert ends.anchor_error is None
    assert abs(ends.forward.mean() - ends.backward.mean()) < 0.5


# ── mixtures of unigrams ────────────────────────────────────────────────────────────────────────────────────────────

WORDS = np.array([[2, 0, 1], [0, 1, 0], [3, 0, 0], [1, 0, 1], [0, 0, 2]])


def unigrams() -> RowByRow:
    chain = UnigramMixtureChain.from_data(MixtureOfUnigrams(0.8, 0.4), documents_of(csr_array(WORDS)), SIZE, 4)
    found = sequential(chain, jax.random.key(2))
    assert isinstance(found, RowByRow)
    return found


def exact_unigrams(sampler: RowByRow) -> tuple[np.ndarray, np.ndarray]:
    """(log p(the first m documents) for m = 1 …, which document of `WORDS` comes when)."""
    ids = np.concatenate([np.asarray(part.units) for part in sampler.chain.increments])
    order = ids[sampler.order[: len(WORDS)]]
    lengths = range(1, len(WORDS) + 1)
    return np.array([word_oracles.mixture_log_evidence(WORDS[order[:m]], SIZE, 0.8, 0.4) for m in lengths]), order


@pytest.mark.slow  # forwards, mixtures of rows and documents are in a shorter tier
@pytest.mark.parametrize("islands", [300, 4000])
def test_unigram_mixtures_have_the_exact_evidence_of_every_prefix(islands):
    sampler = unigrams()
    exact, order = exact_unigrams(sampler)
    assert sorted(order.tolist()) == list(range(len(WORDS)))
    found = grow(sampler, jax.random.key(3), SWEEPS, islands=islands, particles=PARTICLES).log_evidence
    assert np.abs(z_of(np.exp(found[: len(exact)] - exact[:, None]).T)).max() < Z_LIMIT


@pytest.mark.thorough
@pytest.mark.parametrize("planted", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_unigram_mixtures_come_back_to_nothing_with_the_exact_evidence(planted):
    """Planted: a tenth of a nat a document too much."""

    class Planted(RowByRow):
        def remove(self, key, state, unit):
            left, worth = super().remove(key, state, unit)
            return left, worth + planted

    sampler, n = unigrams(), len(WORDS)
    sampler = Planted(sampler.chain, sampler.order, sampler.n_units)
    exact, _ = exact_unigrams(sampler)
    labels = all_labels(n, SIZE)
    every = np.zeros((sampler.chain.elements, labels.shape[1]), int)
    for document, row in enumerate(labels):
        every += np.asarray(sampler.chain.labels_of(np.eye(n, dtype=int)[document], 1)) * row
    chain = Compiled(sampler.chain)
    state = chain.state_from_labels(jnp.asarray(every))
    log_target = np.asarray(chain.log_density(state))
    assert logsumexp(log_target) == pytest.approx(exact[-1], abs=1e-9)
    drawn = np.random.default_rng(5).choice(labels.shape[1], 300 * PARTICLES, p=np.exp(log_target - exact[-1]))
    posterior = chain.take(state, jnp.asarray(drawn))
    back = shrink(sampler, jax.random.key(4), posterior, SWEEPS, islands=300)
    assert (abs(z_of(np.exp(exact[-1] - back.log_evidence))) < Z_LIMIT) == (planted == 0)


# ── documents ───────────────────────────────────────────────────────────────────────────────────────────────────────

COUNTS = np.array([[2, 0, 1], [0, 1, 0], [0, 0, 0], [1, 0, 1]])
ALPHA, ETA = np.array([0.4, 0.9]), 0.3


def documents() -> DocumentByDocument:
    found = sequential(collapsed_topics(csr_array(COUNTS), ALPHA, ETA, 3), jax.random.key(1))
    assert isinstance(found, DocumentByDocument)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("islands", [400, pytest.param(4000, marks=pytest.mark.slow)])
def test_documents_have_the_exact_evidence_of_every_prefix(islands):
    """The empty document is worth nothing and does not come."""
    sampler = documents()
    assert int(sampler.n_units) == 3
    order = list(dict.fromkeys(sampler.chain.document[sampler.tokens[: COUNTS.sum()]].tolist()))
    lengths = range(1, 4)
    exact = np.array([oracles.lda_posterior(COUNTS[order[:m]], ALPHA, ETA).log_evidence for m in lengths])
    found = grow(sampler, jax.random.key(3), SWEEPS, islands=islands, particles=PARTICLES).log_evidence
    assert np.abs(z_of(np.exp(found[:3] - exact[:, None]).T)).max() < Z_LIMIT


@pytest.mark.slow  # backwards, mixtures of rows and of unigrams are in a shorter tier
def test_documents_backwards_have_the_exact_evidence():
    """From states that many sweeps over all documents have made draws of the posterior."""
    sampler, islands = documents(), 400
    exact = oracles.lda_posterior(COUNTS, ALPHA, ETA).log_evidence
    there: Grown = grow(sampler, jax.random.key(3), 40, islands=1, particles=islands * PARTICLES)
    back = shrink(sampler, jax.random.key(4), there.state, SWEEPS, islands=islands)
    assert abs(z_of(np.exp(exact - back.log_evidence))) < Z_LIMIT


def test_given_topics_and_labellings_have_no_path_along_the_data():
    chain = chain_of(DIAGONAL, 5, SIZE, 4)
    anchor = np.zeros((len(chain.weight), 4))
    anchored = eqx.tree_at(lambda c: c.anchor, chain, anchor, is_leaf=lambda leaf: leaf is None)
    assert sequential(anchored, jax.random.key(0)) is None
    given = collapsed_topics(csr_array(COUNTS), ALPHA, ETA, 3, GivenFactors(None, np.zeros((COUNTS.shape[1], 2))))
    assert sequential(given, jax.random.key(0)) is None
