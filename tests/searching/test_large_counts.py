"""Counts whose unit is small: topics anneal every token by itself, so that what it would cost is said beforehand."""

from pathlib import Path

import numpy as np
import pytest
from jax.errors import JaxRuntimeError

import lvsearch as lv
from lvsearch.inference.annealing.particles import Profile
from lvsearch.inference.engine.estimator import GIB, Chunks
from lvsearch.searching import evaluators

LARGE = np.array([[10**7, 1], [1, 10**7], [10**7, 0]])


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four gigabytes."""
    monkeypatch.setattr(evaluators, "machine_chunks", lambda: Chunks(2 * GIB))


def test_counts_that_leave_no_room_are_refused_before_anything_is_fitted(tmp_path: Path):
    with pytest.raises(MemoryError, match=r"they take about 8\.4 GiB.*divide them.*evidence=\"bound\""):
        lv.search(lv.models.LDA(), LARGE, max_size=2, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_what_costs_by_cells_is_not_refused():
    for model, evidence in ((lv.models.LDA(), "bound"), (lv.models.MixtureOfUnigrams(), "marginal")):
        data = lv.Corpus.from_matrix(LARGE).dataset()
        evaluator = evaluators.ModelEvaluator(model, data, evidence=evidence, seed=0)
        evaluator.check_room()
        assert evaluator.memory_plan((2,)).peak_bytes < GIB


def test_the_plan_of_a_search_counts_its_tokens():
    data = lv.Corpus.from_matrix(LARGE // 100).dataset()
    evaluator = evaluators.ModelEvaluator(lv.models.LDA(), data, evidence="marginal", seed=0)
    evaluator.check_room()
    assert evaluator.memory_plan((2,)).peak_bytes == 300 * int((LARGE // 100).sum())


def test_memory_that_runs_out_all_the_same_is_said_in_words(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5500000000 bytes.")

    monkeypatch.setattr(evaluators, "anneal", full)
    nothing = np.zeros(0, np.float64)
    monkeypatch.setattr(evaluators, "temperature_profile", lambda *_: Profile(nothing, nothing, nothing))
    with pytest.raises(MemoryError, match=r"they take about .*, more than there was\. Where counts are large"):
        lv.search(lv.models.LDA(), np.full((2, 2), 10), max_size=1, starts=1, progress=False)
