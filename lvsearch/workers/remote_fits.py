"""Let the workers of an executor make the fits of a search, with the same answer as in one process.

A call asks the evaluator of a search for one fit: its size, the fit to start from, the number of the trial. The result
depends only on the call, and on the size of the chunks of data, which is sent with it. So fits are asked for ahead of
their turn (`lookahead`) and recorded when their turn comes. The search records the same fits in the same order as it
would alone. Fits that it turns out not to want are thrown away.

The evaluator with its data is sent once to each worker, which keeps it under a name. Workers are told the name with
each call. A worker that does not know the name says so, and is sent the evaluator. Threads use the search's own
evaluator.

Failures cost time only. A fit whose worker was lost, or whose result did not arrive, is asked for once more and then
made in this process. An executor that accepts no more calls, or returns nothing, is no longer used.
"""

import math
import pickle
import queue
import sys
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

from lvsearch.bridges.guards import error_in_words
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.engine.estimator import Chunks, MemoryPlan
from lvsearch.inference.sharding import n_processors
from lvsearch.interrupts import cancel_when, was_interrupted
from lvsearch.searching.controller import Call, SearchRules, SearchSettings, SearchState, Task
from lvsearch.searching.guided import SelfGuided
from lvsearch.sizing.fit import Evaluator, Fit, is_by_gains
from lvsearch.sizing.sizes import Size, SizePrior
from lvsearch.sizing.words import size_text
from lvsearch.workers.lookahead import calls_ahead

ATTEMPTS = 2
"""How often a fit is tried by workers before it is made in this process."""
KEPT_BY_WORKER = 2
"""How many evaluators a worker keeps: those of the last searches."""
LISTENING = 1.0
"""How many seconds to wait for a worker before looking whether the user wants to stop. Where waiting cannot be
interrupted, Ctrl-C takes this long."""
CORES_PER_GAIN, CORES_PER_SCORE, MOST_THREADS = 4, 2, 4
"""The number of processors counted for each fit whose gain is measured, and for each one that is scored, and the
largest number of fits at once, where a search uses threads.

The paths of a measured gain run in four threads. A fit that is scored uses one and a half processors on average: on two
processors, two of them at once took 5 to 8 % less time by the clock and 15 % more of the processors.
"""


@runtime_checkable
class Executor(Protocol):
    """An object that runs functions elsewhere, like `concurrent.futures.Executor`.

    Its `submit` returns a future that has `result`, `cancel` and `add_done_callback`.
    """

    def submit(self, fn: Any, /, *args: Any) -> Any:
        """Run fn(*args) elsewhere and return its future."""
        ...


@runtime_checkable
class Chunked(Protocol):
    """An evaluator that works on the data in chunks of units.

    The size of the chunks affects its fits, and may change during a fit.
    """

    @property
    def chunks(self) -> Chunks:
        """The size of the chunks in which the evaluator works now."""
        ...

    def work_in(self, chunks: Chunks) -> None:
        """Make all further fits in chunks of this size."""
        ...


@runtime_checkable
class Planned(Chunked, Protocol):
    """An evaluator in chunks that knows how much memory its fits need."""

    def memory_plan(self, size: Size) -> MemoryPlan:
        """Return how much memory a fit of this size needs."""
        ...


class Answer(NamedTuple):
    """A worker's answer to a call.

    fit: the fit; None if it raised an error
    error: the error in words; None if there is a fit
    chunks: the size of the chunks in use at the end; None for an evaluator that does not work in chunks
    """

    fit: Fit | None
    error: str | None
    chunks: Chunks | None


def check_executor(executor: object) -> None:
    """Raise ValueError for anything but an executor or None, and for a pool of forked processes."""
    if executor is None:
        return
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise ValueError(
            f"got executor={executor!r}, expected one that has submit(function, *arguments), such as lv.WorkerPool(4), "
            "concurrent.futures.ProcessPoolExecutor(…), or an executor of Dask, MPI or Ray"
        )
    context = getattr(executor, "_mp_context", None)  # only pools of processes have one
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "got a pool whose processes are forked, expected spawned ones: a process forked while JAX is running hangs "
            "forever. Use lv.WorkerPool(4), or "
            'ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn"))'
        )


def n_workers(executor: Executor) -> int:
    """Return how many calls an executor works on at once.

    It is the number of workers that the executor states, or else the number of processors.
    """
    for name in ("num_workers", "_max_workers"):
        number = getattr(executor, name, None)
        if isinstance(number, int) and number > 0:
            return number
    return n_processors()


@contextmanager
def own_threads(evaluator: Evaluator) -> Iterator[Executor | None]:
    """Yield a pool of threads for a search that was given no executor, or None if it makes one fit after the other.

    Searches that measure gains between sizes get one thread for every four processors, and searches by prediction one
    for every two, at most 4. Other searches get none, and so do those that would get a single thread.

    evaluator: makes the fits
    """
    n_threads = 1
    if is_by_gains(evaluator):
        n_threads = min(n_processors() // CORES_PER_GAIN, MOST_THREADS)
    elif isinstance(evaluator, SelfGuided):
        n_threads = min(n_processors() // CORES_PER_SCORE, MOST_THREADS)
    if n_threads <= 1:
        yield None
        return
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="lvsearch-fit")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # fits that nobody wants end by themselves, see `Workers`


# ── in a worker ─────────────────────────────────────────────────────────────────────────────────────────────────────


class OwnSearch(NamedTuple):
    """A search in this process, for its threads. Each thread of JAX has a default device and a precision of its own.

    evaluator: makes the fits
    device: the default device where the search was begun; None for JAX's
    double: whether JAX's default precision is 64 bits there
    ended: set when the search ends
    """

    evaluator: Evaluator
    device: Any
    double: bool
    ended: threading.Event

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        """Return a context for a fit of this search in another thread, until the search has ended."""
        with jax.default_device(self.device), jax.enable_x64(self.double), cancel_when(self.ended):
            yield


_OWN: dict[str, OwnSearch] = {}
"""{name: search} of searches in this process."""
_RECEIVED: "OrderedDict[str, Evaluator]" = OrderedDict()  # evaluators that were sent to this process, oldest first
_receiving = threading.Lock()


def evaluate_call(name: str, packed: bytes | None, call: Call, chunks: Chunks | None) -> Answer | None:
    """Return a worker's answer to one call; it runs in the worker.

    name: the name of the evaluator that makes the fit
    packed: the evaluator as bytes, or None if the worker should know it already
    call: what to fit
    chunks: the size of the chunks to work in, or None

    Returns None if the evaluator is not known in this process and was not sent.
    """
    search = _OWN.get(name)
    evaluator = _received_evaluator(name, packed) if search is None else search.evaluator
    if evaluator is None:
        return None
    own = copy(evaluator)  # since threads share the evaluator
    if isinstance(own, Chunked) and chunks is not None:
        own.work_in(chunks)
    try:
        with nullcontext() if search is None else search.in_thread():
            fit = own.evaluate(*call)
    except Exception as error:  # the search raises it, if it turns out to want this fit
        return Answer(None, error_in_words(error), chunks)
    return Answer(fit, None, _chunks_of(own))


def _received_evaluator(name: str, packed: bytes | None) -> Evaluator | None:
    """Return the evaluator of this name that was sent to this process; None if it is not known.

    packed: the evaluator as bytes, or None if it was not sent
    """
    with _receiving:
        if name not in _RECEIVED and packed is not None:
            prepare_programs()
            _RECEIVED[name] = pickle.loads(packed)
            while len(_RECEIVED) > KEPT_BY_WORKER:
                _RECEIVED.popitem(last=False)
        if name in _RECEIVED:
            _RECEIVED.move_to_end(name)
        return _RECEIVED.get(name)


def _chunks_of(evaluator: Evaluator) -> Chunks | None:
    """Return the size of the chunks in which an evaluator works; None if it does not work in chunks."""
    return evaluator.chunks if isinstance(evaluator, Chunked) else None


# ── in the search ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class RemoteCall:
    """The record of a call that workers make.

    call: what to fit. The record keeps its start alive, since calls are told apart by the identity of their start
    future: the executor's future while a worker has the call, else None
    sent: `time.monotonic()` when the call was sent to a worker
    answer: the worker's answer when the call is done, else None
    failures: how often the call was lost with its worker
    """

    call: Call
    future: Any = None
    sent: float = 0.0
    answer: Answer | None = None
    failures: int = 0

    def seconds_so_far(self, now: float) -> float:
        """Return for how many seconds a worker has had the call; `inf` if it came back. now: `time.monotonic()`."""
        if self.answer is not None:
            return math.inf
        return 0.0 if self.future is None else now - self.sent


class Workers:
    """Makes the fits of one search by an executor.

    Use it in a `with` statement. At its end calls that have not begun are cancelled, and threads of this process stop
    the fits that they have begun before the next stage.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        prior: SizePrior,
        settings: SearchSettings,
        executor: Executor,
        say: Callable[[str], None] = lambda words: print(f"lvsearch: {words}", file=sys.stderr),
    ):
        """Prepare workers; nothing is sent yet.

        evaluator: makes the fits of the search
        prior: the prior over sizes
        settings: the settings of the search
        executor: runs the calls
        say: a function that shows a message to the user
        """
        self._evaluator, self._rules = evaluator, SearchRules(evaluator, prior, settings)
        self._executor: Executor | None = executor
        self._n_workers = n_workers(executor)
        self._say = say
        self._name = uuid.uuid4().hex
        self._packed: bytes | None = None
        self._calls: dict[Hashable, RemoteCall] = {}
        self._finished: queue.SimpleQueue[tuple[RemoteCall, Any]] = queue.SimpleQueue()
        self._under_way, self._lost_in_a_row = 0, 0
        self._ended = threading.Event()

    def __enter__(self) -> "Workers":
        """Register the evaluator under its name for threads of this process."""
        config: Any = jax.config
        _OWN[self._name] = OwnSearch(self._evaluator, config.jax_default_device, config.jax_enable_x64, self._ended)
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel calls that have not begun, and tell threads to stop the fits that they have begun."""
        del _OWN[self._name]
        self._ended.set()
        for remote in self._calls.values():
            if remote.future is not None:
                remote.future.cancel()

    def make(self, state: SearchState, task: Task, calls: Sequence[Call], tell: Callable[[str], None]) -> Sequence[Fit]:
        """Return the fits of one task, in order. Meanwhile workers make fits that may be asked for later.

        It is a `controller.Make`, the function by which a search gets its fits.

        state: the results of the search so far
        task: the step that the search takes now
        calls: the fits of this step
        tell: a function that shows the user how far the fits are
        """
        tried = {(visit.size, trial) for visit in state.visits for trial in range(len(visit.trials))}
        self._calls = {
            key: remote for key, remote in self._calls.items() if (remote.call.size, remote.call.trial) not in tried
        }
        return [self._fit(state, task, call, tell) for call in calls]

    def seconds_so_far(self, calls: Sequence[Call]) -> float:
        """Return for how many seconds workers have had all of these calls; `inf` if all came back, even with an error.

        calls: the fits of one task
        """
        while not self._finished.empty():
            self._record(*self._finished.get())
        now = time.monotonic()
        return min(self._calls[key].seconds_so_far(now) if key in self._calls else 0.0 for key in map(self._key, calls))

    def _fit(self, state: SearchState, task: Task, call: Call, tell: Callable[[str], None]) -> Fit:
        """Return the fit of one call: from a worker if possible, else made in this process.

        state: the results of the search so far
        task: the step that the search takes now
        call: what to fit
        tell: a function that shows the user how far the fits are
        """
        while True:
            remote = self._remote_call(call)
            if remote.answer is not None and remote.answer.fit is not None:
                if isinstance(self._evaluator, Chunked) and remote.answer.chunks is not None:
                    self._evaluator.work_in(remote.answer.chunks)
                return remote.answer.fit
            if self._under_way and remote.future is None and not self._has_room_for(call):
                self._wait_for_answer()  # fits made ahead hold the memory that this one needs
                continue
            self._send(remote)
            self._send_ahead(state, task)
            if remote.future is None:  # no worker can make it
                return self._evaluator.evaluate(*call)
            n_ready = sum(other.answer is not None for other in self._calls.values())
            tell(f"{self._under_way} fits under way, {n_ready} ready")
            self._wait_for_answer()

    def _send_ahead(self, state: SearchState, task: Task) -> None:
        """Send calls that the search will probably ask for later, until every worker has something to do.

        state: the results of the search so far
        task: the step that the search takes now
        """
        if self._under_way >= self._n_workers or self._executor is None:
            return
        for call in calls_ahead(self._rules, state, task, self._finished_fit):
            remote = self._remote_call(call)
            if remote.future is not None or remote.answer is not None:
                continue
            if not self._has_room_for(call):
                return
            self._send(remote)
            if self._under_way >= self._n_workers:
                return

    def _has_room_for(self, call: Call) -> bool:
        """Return True if the memory plans of the fits under way and of one more are within the budget together.

        Only threads share one memory; workers elsewhere are taken to have their own.
        """
        if not (isinstance(self._executor, ThreadPoolExecutor) and isinstance(self._evaluator, Planned)):
            return True
        sizes = [remote.call.size for remote in self._calls.values() if remote.future is not None]
        plans = [self._evaluator.memory_plan(size).peak_bytes for size in (*sizes, call.size)]
        return sum(plans) <= self._evaluator.chunks.budget_bytes

    def _key(self, call: Call) -> Hashable:
        """Return the key under which a call is recorded: its size, trial and start, and the chunks to work in."""
        start = None if call.start is None else (call.start.size, id(call.start.state))
        return call.size, call.trial, start, _chunks_of(self._evaluator)

    def _remote_call(self, call: Call) -> RemoteCall:
        """Return the record of a call; a new one is made if there is none."""
        return self._calls.setdefault(self._key(call), RemoteCall(call))

    def _finished_fit(self, call: Call) -> Fit | None:
        """Return the fit of a call if a worker has made it, else None."""
        remote = self._calls.get(self._key(call))
        return None if remote is None or remote.answer is None else remote.answer.fit

    def _send(self, remote: RemoteCall, packed: bytes | None = None) -> None:
        """Ask a worker for a fit, unless it was asked for already, or has failed too often.

        remote: the record of the call
        packed: the evaluator as bytes, for a worker that does not know it; else None
        """
        done = remote.future is not None or remote.answer is not None or remote.failures >= ATTEMPTS
        if done or self._executor is None:
            return
        try:
            future = self._executor.submit(evaluate_call, self._name, packed, remote.call, _chunks_of(self._evaluator))
        except Exception as error:  # raised by a pool that is broken or closed
            self._give_up(f"the executor {error_in_words(error)}")
            return
        remote.future, remote.sent = future, time.monotonic()
        self._under_way += 1
        future.add_done_callback(lambda done: self._finished.put((remote, done)))

    def _wait_for_answer(self) -> None:
        """Wait until a call returns or fails, and record its answer or its failure."""
        while True:
            try:
                remote, future = self._finished.get(timeout=LISTENING)
                break
            except queue.Empty:
                if was_interrupted():
                    raise KeyboardInterrupt from None
        self._record(remote, future)

    def _record(self, remote: RemoteCall, future: Any) -> None:
        """Record the answer or the failure of a call that came back.

        remote: the record of the call
        future: its future, which is done
        """
        self._under_way -= 1
        remote.future = None
        try:
            answer = future.result()
        except KeyboardInterrupt:  # the terminal's Ctrl-C reaches the workers too
            raise
        except BaseException as error:  # an executor may raise anything, cancellation included
            self._record_loss(remote, error)
            return
        self._lost_in_a_row = 0
        if answer is None:  # the worker does not know the evaluator
            self._send(remote, self._pack())
        else:
            remote.answer = answer

    def _record_loss(self, remote: RemoteCall, error: BaseException) -> None:
        """Record that a call did not return, and tell the user. Stop using the executor after too many in a row.

        remote: the record of the call
        error: the error that the future raised
        """
        remote.failures += 1
        self._lost_in_a_row += 1
        if self._executor is None:
            return  # the user was told already
        size = size_text(remote.call.size)
        reason = error_in_words(error) if isinstance(error, Exception) else type(error).__name__
        self._say(f"the fit of size {size} was lost with its worker ({reason}); it is made again")
        if self._lost_in_a_row > ATTEMPTS * self._n_workers:
            self._give_up("nothing comes back from the executor")

    def _give_up(self, why: str) -> None:
        """Stop using the executor, and tell the user why. Further fits are made in this process."""
        if self._executor is not None:
            self._say(f"{why}: the search goes on in this process")
        self._executor = None

    def _pack(self) -> bytes:
        """Return the evaluator with its data as bytes. Raises ValueError if it cannot be pickled."""
        if self._packed is None:
            try:
                self._packed = pickle.dumps(self._evaluator)
            except Exception as error:
                raise ValueError(
                    f"the model or the data cannot be sent to other processes (pickling {error_in_words(error)}): "
                    "expected classes and functions that are defined at the top of a module. Or use threads: "
                    "concurrent.futures.ThreadPoolExecutor"
                ) from error
        return self._packed
