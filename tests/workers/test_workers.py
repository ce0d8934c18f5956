"""Searches whose fits are made by several workers: what is recorded, and in which order, is what one process records;
workers that are lost, calls that fail and executors that break cost time and nothing else."""

import math
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions
from small_searches import MAX_SIZE, NO_BUDGET, NOTHING, PRIOR, Fake, assert_same_search, corpus, searched, settings
from test_structure import ROOT

import lvsearch as lv
from lvsearch.bridges import numpyro_models
from lvsearch.command import cli
from lvsearch.files.storage import MANIFEST
from lvsearch.inference.engine.estimator import Chunks, MemoryPlan, Part
from lvsearch.interrupts import NotWantedError, raise_if_cancelled
from lvsearch.recommending.recommendation import compare_trials
from lvsearch.recommending.rule import PartLimits, next_part
from lvsearch.searching.controller import (
    Budget,
    SearchRules,
    SearchSettings,
    SearchState,
    run,
)
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.sizing.fit import Evaluator, Fit, HeldOutScores
from lvsearch.sizing.gains import SizeGain
from lvsearch.sizing.ledger import Visit
from lvsearch.sizing.sizes import Size, SizePrior
from lvsearch.workers import remote_fits
from lvsearch.workers.lookahead import calls_ahead
from lvsearch.workers.remote_fits import Workers, check_executor, n_workers, own_threads

FLAT12 = lv.sizes.Table([1 / 12] * 12)
TWO = lv.sizes.Product(lv.sizes.Poisson(2), lv.sizes.Geometric(0.4))


class Scrambled:
    """One thread that works on whatever it likes next; a call is lost with the probability `lost`."""

    def __init__(self, num_workers: int = 4, lost: float = 0.0):
        self.num_workers, self.lost = num_workers, lost
        self.random, self.arrived = random.Random(7), threading.Condition()
        self.waiting: list[tuple[Future, Callable[..., Any], tuple[Any, ...]]] = []
        self.submitted = 0
        threading.Thread(target=self.work, daemon=True).start()

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future:
        future = Future()
        with self.arrived:
            self.submitted += 1
            self.waiting.append((future, fn, args))
            self.arrived.notify()
        return future

    def work(self) -> None:
        while True:
            with self.arrived:
                self.arrived.wait_for(lambda: self.waiting)
                future, fn, args = self.waiting.pop(self.random.randrange(len(self.waiting)))
            if not future.set_running_or_notify_cancel():
                continue
            if self.random.random() < self.lost:
                future.set_exception(BrokenProcessPool("planted"))
            else:
                future.set_result(fn(*args))


def spread(
    evaluator: Evaluator,
    prior: SizePrior,
    chosen: SearchSettings,
    executor: Any,
    *,
    state: SearchState = NOTHING,
    budget: Budget = NO_BUDGET,
    said: list[str] | None = None,
) -> tuple[SearchState, list[SearchState]]:
    history: list[SearchState] = []
    told = [] if said is None else said
    with Workers(evaluator, prior, chosen, executor, told.append) as workers:
        end = run(
            evaluator, prior, chosen, state, budget=budget, save=history.append, progress=False, make=workers.make
        )
    return end, history


def alone(evaluator: Evaluator, prior: SizePrior, chosen: SearchSettings) -> tuple[SearchState, list[SearchState]]:
    history: list[SearchState] = []
    return run(evaluator, prior, chosen, save=history.append, progress=False), history


def rising(size: Size, trial: int = 0) -> float:
    return -60.0 + sum(12.0 * (axis + 1) * (1 - 0.6**part) for axis, part in enumerate(size)) - (trial - 1) ** 2


def peaked(size: Size, trial: int = 0) -> float:
    return -10.0 * (size[0] - 5) ** 2 + math.sin(17.0 * size[0] + trial)


def failing(size: Size, trial: int = 0) -> float:
    return math.nan if size[0] in (2, 5) else peaked(size, trial)


@lv.from_function
def noisy(size: Size, seed: int) -> float:
    return -0.7 * abs(size[0] - 6) + float(np.random.default_rng(seed).normal())


@dataclass
class ByGains(Fake):
    """Sizes are compared by what the last component gains: `gain(size, trial)` nats, known to `error`."""

    gain: Callable[[int, int], float] = lambda size, trial: 0.0
    error: float = 10.0
    first_gain: int | None = 16
    bend: int | None = None  # the fit of every size below it bends there

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        fit = super().evaluate(size, start, trial)
        if size == (1,):
            return fit
        middle, away = self.gain(size[0], trial), math.sqrt(2) * self.error / 1.84
        gains = (SizeGain((middle - away, middle + away), (middle - away, middle + away), 24),)
        return replace(fit, gains=gains, bend=self.bend if self.bend is not None and size[0] < self.bend else None)


def fading(size: int, trial: int) -> float:
    return 800 * math.log(90 / size) * (20 / size) + 10 * math.sin(17.0 * size + trial)


def ending(size: int, trial: int) -> float:
    return (900.0 if size <= 37 else -80.0) + 10 * math.sin(17.0 * size + trial)


def by_gains(gain: Callable[[int, int], float], bend: int | None = None) -> tuple[ByGains, SizePrior, SearchSettings]:
    evaluator = ByGains(
        lambda size, trial: -900.0, ceiling=-50.0, nested=False, anneals=True, shrinks=True, gain=gain, bend=bend
    )
    return evaluator, lv.sizes.weak(), settings(starts=3)


@dataclass
class ByPrediction(Fake):
    """Sizes are compared by the scores of 20 units in each of four parts; sizes from 5 on predict about as well."""

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        per_unit = np.random.default_rng(trial).normal(size=20) + min(size[0], 5) - size[0] / 100
        per_unit += 0.05 * np.random.default_rng([trial, *size]).normal(size=20)
        scores = HeldOutScores(trial, tuple(per_unit.tolist()), 200, "drawn")
        return replace(super().evaluate(size, start, trial), scores=scores)

    def next_trial(self, visits: Sequence[Visit], max_size: Size | None) -> tuple[Size, int] | None:
        asked = {visit.size[0]: len(visit.trials) for visit in visits}
        wanted = next_part(asked, compare_trials(visits, same_units=False), PartLimits(parts=4, largest=64))
        return None if wanted is None else ((wanted[0],), wanted[1])


def by_prediction() -> tuple[ByPrediction, SizePrior, SearchSettings]:
    return ByPrediction(lambda size, trial: -900.0, nested=False), lv.sizes.weak(), settings()


SEARCHES = {
    "by prediction": by_prediction,
    "gains that fade": lambda: by_gains(fading),
    "gains that end": lambda: by_gains(ending),
    "gains that end at a bend": lambda: by_gains(ending, bend=37),
    "nested": lambda: (Fake(rising), lv.sizes.Poisson(4), settings((9,))),
    "nested, two variables": lambda: (
        Fake(rising, size_names=("rows", "columns")), TWO, settings((2, 3), starts=3, keep=1),
    ),
    "bound": lambda: (Fake(peaked, ceiling=9.0, nested=False), FLAT12, settings((12,), starts=3)),
    "bound, every size, shrinking": lambda: (
        Fake(peaked, ceiling=9.0, nested=False, shrinks=True), FLAT12, settings((12,), starts=2, exhaustive=True),
    ),
    "failures": lambda: (Fake(failing, ceiling=9.0, nested=False), FLAT12, settings((12,), starts=2)),
    "function": lambda: (Fake(peaked, ceiling=9.0, nested=False, repeatable=False), PRIOR, settings()),
    "noisy": lambda: (noisy, PRIOR, settings(starts=3)),
    "noisy, few sizes": lambda: (noisy, lv.sizes.Table([0.25] * 4), settings(starts=2)),
    "two variables": lambda: (
        Fake(lambda s, t: -abs(s[0] - 2.0) - 3.0 * abs(s[1] - 3), nested=False, repeatable=False,
             size_names=("rows", "columns")), TWO, settings(),
    ),
}  # fmt: skip
SHORT = ("by prediction", "nested", "bound", "noisy, few sizes")
NAMES = [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.slow]) for name in SEARCHES]


def same(ours: SearchState, theirs: SearchState) -> bool:
    """But for seconds, of which a noisy function has some."""

    def timeless(state: SearchState) -> str:
        words = repr(state)
        return "".join(part.split(",", 1)[-1] for part in words.split("seconds="))

    return timeless(ours) == timeless(theirs)


# ── the answer of one process ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_that_of_one_process(name: str, lost: float):
    expected, steps = alone(*SEARCHES[name]())
    said: list[str] = []
    found, history = spread(*SEARCHES[name](), Scrambled(4, lost), said=said)
    assert same(found, expected)
    assert len(history) == len(steps)
    assert all(map(same, history, steps))
    assert all("made again" in words or "goes on in this process" in words for words in said)


@pytest.mark.parametrize("name", NAMES)
def test_a_search_cut_off_after_every_step_goes_on_with_other_workers(name: str):
    expected, _ = alone(*SEARCHES[name]())
    evaluator, prior, chosen = SEARCHES[name]()
    state, runs = NOTHING, 0
    while state.stopped != "finished":
        executor = Scrambled(1 + runs % 3)
        state, _ = spread(evaluator, prior, chosen, executor, state=state, budget=Budget(seconds=0.0))
        runs += 1
    assert runs > 3
    assert same(state, expected)


def test_workers_work_at_the_same_time():
    """The first trial of size 4 does not come back before another fit was begun."""
    begun, alone_at_four = threading.Event(), []

    def function(size: Size, trial: int) -> float:
        if (size, trial) == ((4,), 0):
            alone_at_four.append(not begun.wait(timeout=60.0))
        elif len(evaluator.calls) > 3:
            begun.set()
        return peaked(size)

    evaluator = Fake(function, nested=False, repeatable=True)
    with ThreadPoolExecutor(2) as pool:
        found, _ = spread(evaluator, FLAT12, settings((12,), starts=3, grow=False), pool)
    expected, _ = alone(Fake(peaked_once, nested=False), FLAT12, settings((12,), starts=3, grow=False))
    assert alone_at_four[0] is False
    assert [visit.size for visit in found.visits] == [visit.size for visit in expected.visits]


def test_fits_of_a_search_by_prediction_are_guessed_ahead():
    """Four workers, who begin fits in turns: few of the fits that they make are not wanted."""
    evaluator, prior, chosen = by_prediction()
    found, _ = spread(evaluator, prior, chosen, Scrambled(4))
    wanted = sum(len(visit.trials) for visit in found.visits)
    assert wanted > 10
    assert len(evaluator.calls) <= 2 * wanted


@pytest.mark.thorough
@pytest.mark.parametrize("gain", [fading, pytest.param(ending, marks=pytest.mark.slow)])
def test_four_workers_halve_the_time_of_a_search_by_gains(gain: Callable[[int, int], float]):
    """Each fit takes as long as every other; a round ends when all that were begun are done."""
    evaluator, prior, chosen = by_gains(gain)
    expected, steps = alone(evaluator, prior, chosen)
    rules = SearchRules(evaluator, prior, chosen)
    state, ready, rounds, begun = NOTHING, {}, 0, 0
    while True:
        search = rules.witness_search(state)
        task = rules.next_task(state, search)
        if task is None:
            break
        (call,) = rules.calls_of(state, search, task)
        if (call.size, call.trial) not in ready:
            ahead = calls_ahead(rules, state, task, lambda call: ready.get((call.size, call.trial)))
            new = {(each.size, each.trial): each for each in ahead if (each.size, each.trial) not in ready}
            for key, each in list(new.items())[:4]:
                ready[key] = evaluator.evaluate(*each)
            rounds, begun = rounds + 1, begun + min(len(new), 4)
        state, _ = rules.enter_fits(state, search, task, [ready[call.size, call.trial]])
    assert state.visits == expected.visits
    fits = len(steps) - 1  # the last step is saved twice
    assert rounds <= fits / 2
    assert begun <= 2 * fits


def test_searches_by_gains_on_many_processors_and_by_prediction_use_threads(monkeypatch: pytest.MonkeyPatch):
    def threads(evaluator: Evaluator, processors: int) -> int:
        monkeypatch.setattr(remote_fits, "n_processors", lambda: processors)
        with own_threads(evaluator) as pool:
            return 1 if pool is None else n_workers(pool)

    evaluator, other, predicting = by_gains(fading)[0], SEARCHES["bound"]()[0], by_prediction()[0]
    assert [threads(evaluator, processors) for processors in (1, 4, 7, 8, 12, 16, 64)] == [1, 1, 1, 2, 3, 4, 4]
    assert [threads(predicting, processors) for processors in (1, 2, 4, 6, 64)] == [1, 1, 2, 3, 4]
    assert threads(other, 64) == 1


def test_threads_work_on_the_device_and_in_the_precision_of_the_search():
    """Here there is one device, which is named or not."""
    seen = []

    def bound(size: Size, trial: int) -> float:
        seen.append((jax.config.jax_default_device, jax.config.jax_enable_x64))  # pyright: ignore
        return -900.0

    evaluator, prior, chosen = by_gains(ending)
    with ThreadPoolExecutor(2) as pool:
        for device, double in ((None, False), (jax.devices()[0], True)):
            seen.clear()
            with jax.default_device(device), jax.enable_x64(double):
                spread(replace(evaluator, function=bound), prior, chosen, pool, budget=Budget(seconds=0.0))
            assert set(seen) == {(device, double)}


@dataclass
class Large(ByGains):
    """A fit needs as many bytes as it has components; `most` is the most that was needed at once."""

    chunks: Chunks = field(default_factory=lambda: Chunks(100))
    held: int = 0
    most: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def work_in(self, chunks: Chunks) -> None: ...

    def memory_plan(self, size: Size) -> MemoryPlan:
        return MemoryPlan((Part("numbers", size[0]),))

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        shared = self.shared
        with self.lock:
            shared.held += size[0]
            shared.most = max(shared.most, shared.held)
        time.sleep(0.1)
        with self.lock:
            shared.held -= size[0]
        return super().evaluate(size, start, trial)

    def __post_init__(self):
        self.shared = self  # the search copies its evaluator for each thread


@pytest.mark.thorough
def test_threads_together_keep_within_the_memory():
    large = Large(lambda size, trial: -900.0, ceiling=-50.0, nested=False, anneals=True, shrinks=True, gain=ending)
    with ThreadPoolExecutor(4) as pool:
        found, _ = spread(large, lv.sizes.weak(), settings(starts=3), pool)
    assert same(found, alone(*by_gains(ending))[0])
    assert 64 < large.most <= 100  # two fits of some 40 components at once, never three


def test_fits_that_are_done_are_taken_at_the_end_of_the_time():
    """The first fit says that it took an hour. The one made beside it is done, and needs no time."""

    def bound(size: Size, trial: int) -> float:
        if size == (1,):
            assert done.wait(timeout=60.0)
            time.sleep(0.3)  # until the other one has come back
        elif size == (16,):
            done.set()
        return -900.0

    class Slow(ByGains):
        def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
            fit = super().evaluate(size, start, trial)
            return replace(fit, info=replace(fit.info, seconds=3600.0))

    done = threading.Event()
    evaluator, prior, chosen = by_gains(ending)
    slow = Slow(**{each.name: getattr(evaluator, each.name) for each in fields(evaluator)} | {"function": bound})
    with ThreadPoolExecutor(2) as pool, Workers(slow, prior, chosen, pool) as workers:
        found = run(
            slow, prior, chosen, budget=Budget(seconds=600.0), progress=False, make=workers.make,
            seconds_so_far=workers.seconds_so_far,
        )  # fmt: skip
    assert [visit.size for visit in found.visits][:2] == [(1,), (16,)]
    assert found.stopped != "finished"


def test_fits_that_nobody_wants_any_more_end_by_themselves():
    begun, ended = threading.Event(), threading.Event()

    def bound(size: Size, trial: int) -> float:
        if size == (1,):
            assert begun.wait(timeout=60.0)
        elif size > (32,):
            begun.set()
            try:
                while True:
                    raise_if_cancelled()
                    time.sleep(0.01)
            except NotWantedError:
                ended.set()
                raise
        return -900.0

    evaluator, prior, chosen = by_gains(ending)
    evaluator = replace(evaluator, function=bound)
    with ThreadPoolExecutor(4) as pool:
        found, _ = spread(evaluator, prior, chosen, pool, budget=Budget(seconds=0.0))
        assert [visit.size for visit in found.visits] == [(1,)]
        assert ended.wait(timeout=60.0)


def peaked_once(size: Size, trial: int) -> float:
    return peaked(size)


@dataclass
class Shrinking(Fake):
    """Its memory runs out at one call, after which everything comes out a little differently."""

    chunks: Chunks = field(default_factory=lambda: Chunks(1 << 20))

    def work_in(self, chunks: Chunks) -> None:
        self.chunks = chunks

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        if size == (4,) and not self.chunks.halvings:
            self.chunks = self.chunks.halved()
        self.function = lambda size, trial: peaked(size, trial) - 1e-3 * self.chunks.halvings
        return super().evaluate(size, start, trial)


def test_fits_made_ahead_in_chunks_that_proved_too_large_are_made_again():
    chosen = settings((12,), starts=2, grow=False)
    expected, _ = alone(Shrinking(peaked, ceiling=9.0, nested=False), FLAT12, chosen)
    found, _ = spread(Shrinking(peaked, ceiling=9.0, nested=False), FLAT12, chosen, Scrambled(6))
    assert same(found, expected)
    assert any(visit.size != (4,) and "0.001" not in str(visit.estimate) for visit in found.visits)


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────────────────────────


class Breaking:
    """Takes so many calls, makes them at once, and is broken."""

    num_workers = 2

    def __init__(self, calls: int, how: BaseException | None = None):
        self.left, self.how = calls, how

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future:
        if not self.left and self.how is None:
            raise BrokenProcessPool("planted")
        future = Future()
        if self.left:
            self.left -= 1
            future.set_result(fn(*args))
        else:
            future.set_exception(self.how)
        return future


@pytest.mark.parametrize("calls", [0, 1, 5])
def test_an_executor_that_breaks_is_given_up(calls: int):
    evaluator, prior, chosen = SEARCHES["bound"]()
    said: list[str] = []
    found, _ = spread(evaluator, prior, chosen, Breaking(calls), said=said)
    assert same(found, alone(*SEARCHES["bound"]())[0])
    assert said == ["the executor raised BrokenProcessPool: planted: the search goes on in this process"]


def test_one_that_gives_nothing_back_is_given_up_too():
    said: list[str] = []
    found, _ = spread(*SEARCHES["bound"](), Breaking(2, OSError("no route")), said=said)
    assert same(found, alone(*SEARCHES["bound"]())[0])
    assert said[-1] == "nothing comes back from the executor: the search goes on in this process"
    assert "lost with its worker (raised OSError: no route)" in said[0]


@pytest.mark.parametrize("calls", [1, 4])
def test_ctrl_c_that_reaches_a_worker_keeps_what_is_done(calls: int):
    expected, steps = alone(*SEARCHES["nested"]())
    found, _ = spread(*SEARCHES["nested"](), Breaking(calls, KeyboardInterrupt()))
    assert found.stopped == "interrupted"
    assert 0 < len(found.visits) <= calls
    assert found.visits == steps[len(found.visits) - 1].visits
    assert same(spread(*SEARCHES["nested"](), Scrambled(), state=found)[0], expected)


def test_an_error_is_raised_where_its_fit_is_wanted_and_nowhere_else():
    def function(size: Size, trial: int) -> float:
        if size[0] in raising:
            raise ValueError(f"planted at {size[0]}")
        return peaked(size)

    raising = {int(n) for n in range(1, 13)} - {visit.size[0] for visit in alone(*SEARCHES["bound"]())[0].visits}
    assert raising
    calm = Fake(function, ceiling=9.0, nested=False)
    assert spread(calm, FLAT12, settings((12,), starts=3), Scrambled(5))[0].stopped == "finished"
    raising.add(4)
    with pytest.raises(ValueError, match="planted at 4"):
        spread(Fake(function, ceiling=9.0, nested=False), FLAT12, settings((12,), starts=3), Scrambled(5))


@pytest.mark.parametrize("other", [3, "processes", object(), ThreadPoolExecutor])
def test_what_is_no_executor_is_refused(other: object):
    with pytest.raises(ValueError, match="expected one that has submit"):
        check_executor(other)


def test_a_class_is_no_executor_yet():
    with pytest.raises(ValueError, match="expected one that has submit"):
        lv.search(lv.models.LDA(), corpus(), executor=ThreadPoolExecutor)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="expected one that has submit"):
        lv.resume("nowhere", executor=ThreadPoolExecutor)  # pyright: ignore[reportArgumentType]


def test_forked_processes_are_refused_and_spawned_ones_taken():
    with pytest.raises(ValueError, match="processes are forked"):
        check_executor(ProcessPoolExecutor(2, multiprocessing.get_context("fork")))
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))  # which begins no process before its first call
    check_executor(pool)
    assert n_workers(pool) == 2
    with pytest.raises(ValueError, match="at least 1"):
        lv.WorkerPool(0)


# ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_threads_find_what_one_process_finds(tmp_path: Path):
    with ThreadPoolExecutor(2) as pool:
        result = lv.search(
            lv.models.LDA(), corpus(), prior=PRIOR, evidence="bound", max_size=MAX_SIZE, seed=2, progress=False,
            out=tmp_path / "run", report=False, executor=pool,
        )  # fmt: skip
    assert_same_search(result, searched("bound"))
    assert_same_search(lv.load(tmp_path / "run"), searched("bound"))


def test_an_evaluator_that_travelled_gives_the_same_bits():
    evaluator = searched("bound").evaluator
    assert isinstance(evaluator, ModelEvaluator)
    packed = pickle.dumps(evaluator)
    ours, theirs = evaluator.evaluate((3,), None, 1), pickle.loads(packed).evaluate((3,), None, 1)
    assert ours.evidence == theirs.evidence
    leaves = (jax.tree.leaves(fit.state.natural) for fit in (ours, theirs))
    assert all(map(np.array_equal, *leaves))
    raw = corpus().counts.data.nbytes
    assert len(packed) < 20 * raw + 10_000


def test_data_of_a_numpyro_model_travel_in_double_precision():
    data = np.array([1 / 3, 2 / 3])
    evaluator = numpyro_models._make_evaluator(lv.from_numpyro(worker_functions.coins), data, 3)
    again = pickle.loads(pickle.dumps(evaluator))
    assert (again.seed, again.model) == (3, evaluator.model)
    assert again.data.dtype == np.float64
    assert np.array_equal(again.data, data)


@pytest.mark.slow
@pytest.mark.parametrize("evidence", ["bound", "plug-in"])
def test_processes_find_what_one_process_finds(evidence: str, tmp_path: Path):
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        result = lv.search(
            lv.models.LDA(), corpus(), prior=PRIOR, evidence=evidence, max_size=MAX_SIZE, seed=2, progress=False,
            out=tmp_path / "run", report=False, executor=pool,
        )  # fmt: skip
    assert_same_search(result, searched(evidence))


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [True, False])
def test_a_worker_that_dies_costs_its_fit_only(replaced: bool, tmp_path: Path, monkeypatch, capsys):
    """One pool brings a new process, the other is broken for good; the function ends one process at size 4."""
    monkeypatch.setenv("DIES_ONCE", str(tmp_path / "died"))
    expected = lv.search(lv.from_function(worker_functions.calm), prior=FLAT12, max_size=12, progress=False)
    pool = lv.WorkerPool(2) if replaced else ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    with pool:
        found = lv.search(
            lv.from_function(worker_functions.dies_once), prior=FLAT12, max_size=12, progress=False, executor=pool
        )
    assert (tmp_path / "died").exists()
    assert same(found.state, expected.state)
    said = capsys.readouterr().err
    assert ("lost with its worker" if replaced else "goes on in this process") in said
    assert ("goes on in this process" in said) == (not replaced)


@pytest.mark.slow
def test_what_cannot_travel_is_refused_in_words():
    with lv.WorkerPool(1) as pool, pytest.raises(ValueError, match="cannot be sent to other processes"):
        lv.search(lv.from_function(lambda size: 0.0), prior=FLAT12, max_size=4, progress=False, executor=pool)


# ── the command line ────────────────────────────────────────────────────────────────────────────────────────────────


def command(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "lvsearch", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=ROOT,
    )  # fmt: skip


def ended(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors.decode()


def children(pid: int) -> set[int]:
    """The workers that a process of Linux began."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            ours = int(stat.read_text().rpartition(")")[2].split()[1]) == pid
            if ours and b"--multiprocessing-fork" in stat.with_name("cmdline").read_bytes():
                found.add(int(stat.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="children are found in /proc, which Linux has")
def test_the_command_goes_on_after_its_workers_and_itself_were_killed(tmp_path: Path):
    """A worker is killed, then the command; no worker outlives it, and the answer is that of an undisturbed search."""
    texts = tmp_path / "docs.txt"
    texts.write_text("".join(f"{kind} {kind} {kind[::-1]}\n" for kind in ("boat sail", "cat dog", "oak elm")) * 20)
    fast = ("--evidence", "bound", "--max-size", 4, "--starts", 2, "--held-out", 0, "--quiet")
    arguments = ("--texts", texts, *fast)
    ended(command("search", *arguments, "--out", tmp_path / "one"))
    disturbed = command("search", *arguments, "--out", tmp_path / "two", "--workers", 2)
    while not (begun := children(disturbed.pid)) or not (tmp_path / "two" / MANIFEST).exists():
        assert disturbed.poll() is None
        time.sleep(0.05)
    os.kill(max(begun), signal.SIGKILL)
    while not lv.load(tmp_path / "two").visits:
        assert disturbed.poll() is None
        time.sleep(0.2)
    begun |= children(disturbed.pid)
    disturbed.kill()
    assert b"lost with its worker" in disturbed.communicate(timeout=60)[1]
    give_up = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in begun):
        assert time.monotonic() < give_up, "a worker outlives its search"
        time.sleep(0.05)
    ended(command("resume", tmp_path / "two", "--quiet", "--workers", 2))
    assert_same_search(lv.load(tmp_path / "two"), lv.load(tmp_path / "one"))


def test_the_command_wants_a_number_of_workers(tmp_path: Path, capsys):
    assert cli.main(["search", "--texts", "none.txt", "--out", str(tmp_path / "run"), "--workers", "0"]) == 2
    assert "got --workers 0, expected at least 1" in capsys.readouterr().err
