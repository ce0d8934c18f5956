"""A chain that never moves: its two directions agree, far below the evidence, and the search must not believe them."""

import dataclasses
from typing import Any

import jax
import numpy as np
import oracles
import pytest
from scipy.sparse import csr_array

import lvsearch as lv
from lvsearch.inference.annealing import dispatch
from lvsearch.inference.evidence import (
    CollapsedTopics,
    Effort,
    TwoSided,
    both_ways,
    collapsed_topics,
    temperature_profile,
)
from lvsearch.searching import evaluators
from lvsearch.sizing.evidence import Bracket

COUNTS = np.kron(np.eye(3, dtype=int), [[4, 3, 5], [5, 4, 2], [3, 5, 4]])
"""Nine documents of three kinds: from the prior of the topics their evidence is some forty nats away."""
ETA, TOTAL = 0.1, 0.6
SETTINGS = {"prior": lv.sizes.Poisson(2), "max_size": 3, "starts": 1, "seed": 1, "progress": False}


class Frozen(CollapsedTopics):
    """The chain of LDA without its sweeps."""

    def step(self, key: Any, state: Any, temperature: Any, *, backward: bool) -> Any:
        return state


def frozen(chain: CollapsedTopics) -> Frozen:
    return Frozen(**{field.name: getattr(chain, field.name) for field in dataclasses.fields(chain)})


def chain(n_topics: int, counts: np.ndarray = COUNTS) -> CollapsedTopics:
    return collapsed_topics(csr_array(counts), np.full(n_topics, TOTAL / n_topics), ETA, 3)


def annealed(each: CollapsedTopics) -> TwoSided:
    work = Effort(24, 2, 8)
    key_pilot, key = jax.random.split(jax.random.key(0))
    return both_ways(each, key, work, temperature_profile(each, key_pilot, work))[0]


def bracket(ends: TwoSided) -> Bracket:
    return Bracket(tuple(ends.forward.tolist()), tuple(ends.backward.tolist()), 24, 16, ends.anchor_error)


@pytest.mark.thorough
def test_two_ends_that_agree_prove_nothing_and_the_path_says_so():
    """Backward paths begin where forward ones ended, so that hysteresis is at most log(particles), at any distance."""
    moving, still = annealed(chain(3)), annealed(frozen(chain(3)))
    assert (moving.moved, still.moved) == (True, False)
    truth, found = bracket(moving), bracket(still)
    assert found.hysteresis <= np.log(8) + 1e-6
    assert truth.estimate - found.estimate > 5 * np.hypot(found.standard_error, truth.standard_error)


@pytest.mark.thorough
def test_where_there_is_nothing_to_learn_nothing_has_to_move():
    """One topic, and a single token: log p − log q is one number, and exact."""
    one, single = annealed(frozen(chain(1))), annealed(frozen(chain(2, np.array([[1, 0]]))))
    assert one.moved
    assert single.moved
    exact = oracles.lda_posterior(np.array([[1, 0]]), np.full(2, TOTAL / 2), ETA).log_evidence
    assert bracket(single).estimate == pytest.approx(exact, abs=1e-6)


@pytest.mark.thorough
def test_a_search_reports_a_chain_that_never_moves_and_does_not_rank_it(monkeypatch):
    monkeypatch.setattr(dispatch, "FIRST_DRAWS", 3000)
    known = evaluators.evidence_chain

    def stuck(model: Any, data: Any, size: tuple[int, ...], estimate: Any) -> Any:
        found = known(model, data, size, estimate)
        return frozen(found) if size == (3,) else found

    monkeypatch.setattr(evaluators, "evidence_chain", stuck)
    result = lv.search(lv.models.LDA(TOTAL, ETA), COUNTS, **SETTINGS)
    assert "the chain of size (3,) never moved" in result.summary()
    assert 3 not in result.posterior()["size"].tolist()
    assert {1, 2} <= set(result.posterior()["size"])


@pytest.mark.thorough
def test_a_search_all_of_whose_chains_are_stuck_gives_only_what_is_exact(monkeypatch):
    monkeypatch.setattr(dispatch, "FIRST_DRAWS", 3000)
    known = evaluators.evidence_chain
    monkeypatch.setattr(evaluators, "evidence_chain", lambda *arguments: frozen(known(*arguments)))
    result = lv.search(lv.models.LDA(TOTAL, ETA), COUNTS, **SETTINGS)
    assert result.posterior()["size"].tolist() == [1]
    assert "2 fit(s) failed" in result.summary()
