"""What a fit will take is stated before it starts; chunks are made to fit; running out halves them and goes on."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from scipy.sparse import csr_array
from small_searches import assert_same_search
from test_structure import ROOT
from toy_models import Point, PointMixture

import lvsearch as lv
from lvsearch import api
from lvsearch.inference.data import packing
from lvsearch.inference.data.dataset import Batch, Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.data.packing import pack
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import (
    GIB,
    MIB,
    Chunks,
    GenericEstimator,
    MemoryPlan,
    Part,
    in_words,
    machine_chunks,
    out_of_memory,
)
from lvsearch.inference.topics import kernel as kernels
from lvsearch.inference.topics.estimator import TopicEstimator
from lvsearch.inference.topics.passes import Layout, Packing, layout_within, topic_plan
from lvsearch.searching.controller import SearchSettings
from lvsearch.searching.evaluators import ModelEvaluator

PLENTY = Chunks(2**60)
AP = Packing(Layout(16, 93, 93), 10_473, 38_000, 6_600_000)
"""About 16 × AP."""
FULL = JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.")


@cache
def counts() -> csr_array:
    """Short documents of a small vocabulary: two batches."""
    return csr_array(np.random.default_rng(4).poisson(0.7, (70, 11)).astype(np.int32))


@cache
def estimator() -> TopicEstimator:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "device_tile_blocks", lambda *_: packing.TILE_BLOCKS_CPU)  # on a GPU too
        found = TopicEstimator(lv.models.LDA(), documents(counts()))
    assert found.packed.n_batches == 2
    return found


# ── the plan ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_plan_counts_the_arrays_that_there_are():
    plan = estimator().memory_plan((3,))
    length = estimator().capacity(3)
    state = kernels.start_state(estimator().packed, np.zeros((11, length), np.float32), np.ones(length, np.float32))
    assert (plan.n_batches, plan.kept_bytes) == (2, state.per_batch.nbytes)
    assert plan.bytes_per_batch == state.total.nbytes
    assert estimator()._packing.slots * length * 4 == state.proportions.nbytes
    tiles = next(part for part in plan.parts if part.name == "tiles")
    assert tiles.n_bytes == sum(leaf.nbytes for leaf in estimator().packed.tiles)
    assert plan.peak_bytes == sum(part.n_bytes for part in plan.parts)
    assert plan == estimator().memory_plan((8,))  # one capacity, one plan


def test_the_plan_grows_with_every_size():
    plan = topic_plan(AP, 512, AP.layout)
    for more in (
        topic_plan(AP, 1024, AP.layout),
        topic_plan(AP, 512, AP.layout._replace(n_batches=32)),
        topic_plan(AP, 512, AP.layout._replace(tile_blocks=186)),
        topic_plan(AP._replace(n_words=20_000), 512, AP.layout),
        topic_plan(AP._replace(slots=10**6), 512, AP.layout),
        topic_plan(AP._replace(cells=10**8), 512, AP.layout),
    ):
        assert more.peak_bytes > plan.peak_bytes


def test_passes_copy_no_batches_counts():
    """They are updated in place: the compiled program has no copy of that shape."""
    packed = pack(csr_array(np.random.default_rng(1).poisson(0.1, (400, 300)).astype(np.int32)), n_batches=9)
    alpha = np.ones(8, np.float32)
    state = kernels.start_state(packed, np.zeros((300, 8), np.float32), alpha)
    assert packed.n_batches == 9
    small = np.float32(0)
    lowered = kernels.memoized_passes.__wrapped__.lower(
        packed.tiles, state, alpha, small, rule=kernels.COLLAPSED, sweeps=1, passes=1, tolerance=small, momentum=small
    )
    program = lowered.compile()
    copied = [line for line in str(program.as_text()).splitlines() if re.search(r"= f32\[9,300,8\]\S* copy\(", line)]
    assert not copied


def test_plans_in_words():
    plan = MemoryPlan((Part("all", int(1.23 * GIB)),), 7, 30 * MIB)
    assert plan.describe("64 topics") == "at most about 1.2 GiB at 64 topics (7 batches keep 210 MiB of counts)"
    assert MemoryPlan((Part("all", 2048),)).describe("size 3") == "at most about 2 KiB at size 3"
    assert in_words(1500 * MIB) == "1.5 GiB"


def test_the_generic_engine_states_a_plan_too():
    def mixture(n: int) -> GenericEstimator:
        batch = Batch(Point(np.linspace(-1, 1, n)), np.ones(n, np.float32))
        return GenericEstimator(PointMixture(1.0, 0.1, 1.0), Dataset.of_batches((batch,), (np.arange(n),), {}, n))

    small, large = mixture(10).memory_plan((3,)), mixture(1000).memory_plan((3,))
    data = dict(large.parts)["data"] - dict(small.parts)["data"]
    beliefs = dict(large.parts)["beliefs about units"] - dict(small.parts)["beliefs about units"]
    assert data == 3 * 990 * (8 + 4)  # a float64 number and a float32 weight
    assert beliefs == 4 * 990 * 8 * 2 * 4  # eight components, natural parameters and means, float32
    assert mixture(10).with_chunks(Chunks(0, 5)).memory_plan((3,)) == small


def test_the_plan_is_printed_before_the_search(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packing, "device_tile_blocks", lambda *_: packing.TILE_BLOCKS_CPU)
    evaluator = ModelEvaluator(lv.models.LDA(), documents(counts()), evidence="bound", seed=0)
    usual = SearchSettings("bound", False, None, 0, 1, True, False, 8)
    assert re.match(r"at most about 81 MiB at 64 topics \(2 batches keep 6 KiB", api._memory_in_words(evaluator, usual))
    assert " at 5 topics " in api._memory_in_words(evaluator, replace(usual, max_size=(5,)))
    search(seconds=0)
    assert "memory:" not in capsys.readouterr().err
    search(seconds=0, progress=True)
    stated = "memory: at most about 80 MiB at 4 topics (2 batches keep 3 KiB of counts)\n"
    assert capsys.readouterr().err.startswith(stated)


@pytest.mark.slow
def test_the_plan_is_within_a_quarter_of_what_is_measured():
    command = [sys.executable, "tests/benchmarks/memory.py", "--scale", "2", "--topics", "100"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    assert "bar within 25 %: met" in done.stdout, done.stdout


# ── chunks that fit ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_fewer_batches_where_the_budget_is_small():
    full = topic_plan(AP, 512, AP.layout).peak_bytes
    assert layout_within(AP, 512, PLENTY) == AP.layout
    assert layout_within(AP, 512, Chunks(full)) == AP.layout
    for budget in (full - 1, 1300 * MIB):
        layout = layout_within(AP, 512, Chunks(budget))
        assert layout.n_batches < AP.layout.n_batches
        assert topic_plan(AP, 512, layout).peak_bytes <= budget
        assert topic_plan(AP, 512, layout._replace(n_batches=2 * layout.n_batches)).peak_bytes > budget
    for budget in (full // 2, 0):  # what a single batch takes is what it takes
        assert layout_within(AP, 512, Chunks(budget)) == Layout(1, 93, 93)
    assert layout_within(AP, 8, Chunks(full // 2)) == AP.layout  # a small size needs no smaller chunks


def test_halvings():
    wide = AP._replace(layout=Layout(5, 1000, 300))
    found = [layout_within(wide, 8, PLENTY._replace(halvings=n))[:2] for n in range(7)]
    assert found == [(5, 1000), (2, 1000), (1, 1000), (1, 500), (1, 300), (1, 300), (1, 300)]


@pytest.mark.thorough
def test_the_estimator_keeps_to_its_chunks():
    """Down to the arrays; and the one it was made from is as it was."""
    one = estimator().with_chunks(Chunks(0))
    assert one.memory_plan((3,)).n_batches == 1
    estimate = one.fit((3,), jax.random.key(0), None)
    assert np.isfinite(estimate.log_lower)
    assert one.packed.n_batches == 1
    np.testing.assert_array_equal(one.packed.gather(one.packed.lengths[..., None])[:, 0], counts().sum(1))
    assert estimator().packed.n_batches == 2
    assert estimator().memory_plan((3,)).n_batches == 2


def test_the_budget_of_this_machine(monkeypatch: pytest.MonkeyPatch):
    assert MIB < machine_chunks().budget_bytes < 2**50
    assert machine_chunks().halvings == 0
    device = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 1000})
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert machine_chunks() == Chunks(800)


# ── out of memory ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_which_errors_say_that_memory_ran_out():
    assert out_of_memory(FULL)
    assert out_of_memory(MemoryError())
    assert not out_of_memory(JaxRuntimeError("INVALID_ARGUMENT: shapes differ"))
    assert not out_of_memory(ValueError("RESOURCE_EXHAUSTED"))


def too_large(size: int, halvings: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on fits of `size` run out of memory until chunks were halved so often."""
    right = TopicEstimator.fit

    def fit(self: TopicEstimator, wanted: tuple[int, ...], key: jax.Array, start: Estimate | None) -> Estimate:
        if wanted == (size,) and self.chunks.halvings < halvings:
            raise FULL
        return right(self, wanted, key, start)

    monkeypatch.setattr(TopicEstimator, "fit", fit)


def search(progress: bool = False, **settings) -> lv.SearchResult:
    return lv.search(
        lv.models.LDA(), counts(), prior=lv.sizes.Poisson(3), max_size=4, starts=1, exhaustive=True, evidence="bound",
        progress=progress,
        **settings,
    )  # fmt: skip


def chunks_of(result: lv.SearchResult) -> Chunks:
    assert isinstance(result.evaluator, ModelEvaluator)
    return result.evaluator.chunks


@pytest.mark.thorough
def test_running_out_halves_the_chunks_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And a search resumed from any moment, before or after, is the same to the bit."""
    roomy = search()
    assert "ran out" not in roomy.summary()
    too_large(2, 1, monkeypatch)
    copies: list[Path] = []
    save = api.save_search

    def save_and_copy(result: lv.SearchResult, folder: Path) -> None:
        save(result, folder)
        copies.append(shutil.copytree(folder, tmp_path / f"copy-{len(copies)}"))

    with monkeypatch.context() as patched:
        patched.setattr(api, "save_search", save_and_copy)
        result = search(out=tmp_path / "run", report=False)
    assert [visit.size for visit in result.visits] == [visit.size for visit in roomy.visits]
    halvings = [chunks_of(lv.load(copy)).halvings for copy in copies]
    assert halvings[0] == 0
    assert halvings[-1] == 1
    same = dict(zip(result.visits, roomy.visits, strict=True))
    assert [mine.evidence == other.evidence for mine, other in same.items()] == [h == 0 for h in halvings[1:-1]]
    for copy in copies:
        resumed = lv.resume(copy, report=False, progress=False)
        assert_same_search(resumed, result)
        assert chunks_of(resumed) == chunks_of(result)
    assert "memory:      ran out once" in result.summary()
    assert "ran out once" in lv.load(tmp_path / "run")._repr_html_()


def test_nothing_left_to_halve(monkeypatch: pytest.MonkeyPatch):
    too_large(3, 100, monkeypatch)
    with pytest.raises(
        MemoryError, match=r"out of memory at size 3, in the smallest chunks .* at most about .*max_size"
    ):
        search()


def test_other_errors_are_not_taken_for_it(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> Estimate:
        raise JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(TopicEstimator, "fit", broken)
    with pytest.raises(JaxRuntimeError, match="something else"):
        search()
