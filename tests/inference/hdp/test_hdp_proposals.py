"""Proposals of HDP topics: what is tried, that it is kept only where the bound rises, and that it leaves bad starts."""

from functools import cache
from typing import Any

import hdp_oracles
import jax
import numpy as np
import pytest
from scipy.sparse import csr_array

from lvsearch.inference.data.documents import documents
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.hdp import HDPEstimator, HDPSettings
from lvsearch.inference.hdp.topic_proposals import TopicShares, cut_topics, log_topics, topic_ideas
from lvsearch.inference.mixtures import FitHistory
from lvsearch.models.hdp import HDP

ETA = 0.1
MODEL = HDP(ETA, tables=4)
N_TOPICS, N_WORDS = 4, 22
STAY = HDPSettings(warm_rounds=(2,))
TRY = HDPSettings(warm_rounds=(2,), proposal_rounds=8)


@cache
def planted() -> tuple[np.ndarray, np.ndarray]:
    """(counts (document, word), expected tokens (document, topic, word) at the truth): four topics, almost disjoint."""
    rng = np.random.default_rng(3)
    topics = np.full((N_TOPICS, N_WORDS), 0.02)
    for topic, words in enumerate(np.split(rng.permutation(N_WORDS), [7, 12, 18])):
        topics[topic, words] += rng.dirichlet(np.full(len(words), 3.0))
    topics /= topics.sum(1, keepdims=True)
    shares = rng.dirichlet(np.full(N_TOPICS, 0.15), 53)
    counts = np.stack([rng.multinomial(n, p @ topics) for n, p in zip(rng.integers(8, 40, 53), shares, strict=True)])
    joint = shares[:, :, None] * topics
    return counts, counts[:, None] * joint / joint.sum(1, keepdims=True)


def started(*topics: np.ndarray) -> Estimate:
    """Topics (word,) of expected counts, to start from."""
    natural: dict[str, Any] = {"topic_word": np.stack(topics) + ETA - 1}
    return Estimate(MODEL, (len(topics),), natural, 0.0, np.inf, 0)


@cache
def estimator_with(settings: HDPSettings) -> HDPEstimator:
    return HDPEstimator(MODEL, documents(csr_array(planted()[0].astype(np.int32))), settings)


@cache
def bad_starts() -> dict[str, Estimate]:
    parts = planted()[1]
    whole, half = parts.sum(0), parts[::2, 0].sum(0)
    copies = half, whole[0] - half
    return {
        "copies": started(*copies, *whole[1:]),
        "copies, and two topics in one": started(*copies, whole[1] + whole[2], whole[3]),
    }


@cache
def fits(name: str) -> tuple[Estimate, FitHistory]:
    """(without proposals, with them) from a bad start."""
    start, key = bad_starts()[name], jax.random.key(0)
    before = estimator_with(STAY).fit_with_history(start.size, key, start)
    assert before.proposals == ()
    return before.estimate, estimator_with(TRY).fit_with_history(start.size, key, start)


def topics_of(estimate: Estimate) -> np.ndarray:
    """Expected counts (topic, word) of topics that have more than one in fifty tokens."""
    counts = np.asarray(estimate.natural["topic_word"], np.float64) + 1 - ETA
    return counts[counts.sum(1) > 0.02 * counts.sum()]


# ── ideas ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_is_cut_into_its_two_groups_of_documents():
    """One topic for all, documents of two true topics: the gain is the difference of marginal likelihoods."""
    _, parts = planted()
    counts = np.concatenate([np.round(parts[:30, 0]), np.round(parts[:30, 2])]).astype(np.int64)
    large = counts.sum(1) > 3
    counts, group = counts[large], np.repeat([0, 1], 30)[large]
    shares = TopicShares(counts.sum(0)[:, None].astype(float), counts.sum(1)[:, None].astype(float))
    found = cut_topics(csr_array(counts), shares, ETA)
    far = found.far[:, 0] == (group == 1)
    assert far.all() or not far.any()

    def marginal(rows: np.ndarray) -> float:
        return hdp_oracles.log_topic(hdp_oracles.tokens_of(rows)[1], ETA, N_WORDS)

    apart = marginal(counts[group == 0]) + marginal(counts[group == 1])
    assert found.gains[0] == pytest.approx(apart - marginal(counts), abs=1e-8)
    assert log_topics(shares.words, ETA)[0] == pytest.approx(marginal(counts), abs=1e-8)
    sides = counts[found.far[:, 0]].sum(0)
    np.testing.assert_allclose(found.words[:, 0] * shares.words[:, 0], sides, atol=1e-9)


def test_ideas_move_tokens_and_lose_only_those_of_a_deleted_topic():
    """Topic 1 is two true topics, 0 and 2 are one, the last place is free."""
    counts, parts = planted()
    copy = parts[:, 0] * (np.arange(len(counts)) % 4 > 0)[:, None]
    tokens = np.stack([copy, parts[:, 1] + parts[:, 2], parts[:, 0] - copy, np.zeros_like(copy)], axis=1)
    shares = TopicShares(tokens.sum(0).T, tokens.sum(2))
    found = list(topic_ideas(shares, csr_array(counts), ETA, 1))
    assert [idea.kind for idea in found] == ["merge", "delete", "birth"]
    assert [idea.components for idea in found] == [(0, 2), (2,), (1, 3)]
    for idea in found:
        lost = shares.in_documents[:, 2] if idea.kind == "delete" else 0.0
        np.testing.assert_allclose(idea.shares.in_documents.sum(1), shares.in_documents.sum(1) - lost, atol=1e-9)
        kept = shares.words.sum(1) - (shares.words[:, 2] if idea.kind == "delete" else 0.0)
        np.testing.assert_allclose(idea.shares.words.sum(1), kept, atol=1e-9)
        assert min(idea.shares.words.min(), idea.shares.in_documents.min()) >= 0
    assert found[0].shares.tokens[2] == found[1].shares.tokens[2] == 0
    assert 0 < found[2].shares.tokens[3] < shares.tokens[1]


# ── fits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["copies", "copies, and two topics in one"])
def test_proposals_leave_a_bad_start(name):
    """To as many topics as were planted, and their words."""
    before, after = fits(name)
    assert after.estimate.log_lower > before.log_lower + 5
    found, truth = topics_of(after.estimate), planted()[1].sum(0)
    assert len(found) == N_TOPICS
    alike = (found / np.linalg.norm(found, axis=1, keepdims=True)) @ (truth.T / np.linalg.norm(truth, axis=1))
    assert sorted(alike.argmax(1)) == list(range(N_TOPICS))
    assert alike.max(1).min() > 0.95


@pytest.mark.thorough
def test_every_proposal_is_recorded_with_its_gain():
    least = TRY.proposal_tolerance * planted()[0].sum()
    record = [proposal for name in bad_starts() for proposal in fits(name)[1].proposals]
    assert {proposal.kind for proposal in record} == {"passes", "merge", "delete", "birth"}
    for proposal in record:
        entropies = {f"entropy of {name}" for name in MODEL.globals()}
        assert set(proposal.terms) == {"documents", "log prior"} | entropies
        assert sum(proposal.terms.values()) == pytest.approx(proposal.gain, abs=1e-6)
        assert proposal.accepted == (proposal.gain > least)
    assert {proposal.accepted for proposal in record} == {True, False}


@pytest.mark.thorough
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a second fit has the bits of the first on a CPU only")
@pytest.mark.parametrize("name", ["copies", "copies, and two topics in one"])
def test_the_bound_of_a_fit_is_that_of_its_start_and_what_was_gained(name):
    before, after = fits(name)
    gained = sum(proposal.gain for proposal in after.proposals if proposal.accepted)
    assert after.estimate.log_lower == pytest.approx(before.log_lower + gained, abs=1e-6)
    assert after.estimate.passes == before.passes + 10 * len(after.proposals)


@pytest.mark.thorough
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="sums over documents repeat to the bit on a CPU only")
def test_a_fit_with_proposals_repeats():
    name = "copies"
    start, (_, first) = bad_starts()[name], fits(name)
    again = estimator_with(TRY).fit_with_history(start.size, jax.random.key(0), start)
    assert again.proposals == first.proposals
    assert again.estimate.log_lower == first.estimate.log_lower
    assert np.array_equal(again.estimate.natural["topic_word"], first.estimate.natural["topic_word"])


@pytest.mark.thorough
def test_there_may_be_nothing_to_propose():
    """One topic has no pair, and nowhere for a second."""
    found = estimator_with(HDPSettings(rounds=(2,), proposal_rounds=1)).fit_with_history((1,), jax.random.key(0))
    assert {proposal.kind for proposal in found.proposals} == {"passes"}
