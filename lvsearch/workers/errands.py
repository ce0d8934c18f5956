"""A search over the workers of an executor, with the answer of one process.

Sizes and their trials are independent of each other but for starts, and what an evaluator returns depends on nothing
but the call. So fits are asked for ahead of their turn (`ahead`), and entered when it comes: what the search records,
and in which order, is what it would have recorded alone. A fit that the search turned out not to want is thrown away.

The evaluator with its data travels once to each worker, which keeps it under a name: calls name it, and a worker that
does not know the name answers so and is sent it. Threads find the search's own.

What goes wrong costs time. A fit whose worker was lost, or that did not come through, is asked for once more and then
made here. An executor that takes no more calls, or from which nothing comes back, is given up.
"""

import os
import pickle
import queue
import sys
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lvsearch.bridges.attempts import told
from lvsearch.inference.compiles import prepare_programs
from lvsearch.inference.data.memory import Chunks
from lvsearch.interrupts import pressed
from lvsearch.searching.controller import Call, SearchSettings, SearchState, Task
from lvsearch.sizing.fit import Evaluator, Fit
from lvsearch.sizing.sizes import SizePrior
from lvsearch.workers.ahead import calls_ahead

ATTEMPTS = 2
"""Of a fit elsewhere, before it is made here."""
KEPT_BY_WORKER = 2
"""Evaluators: those of the last searches."""
LISTENING = 1.0
"""Seconds after which who waits for a worker looks whether somebody wants to stop; where waiting cannot be
interrupted, this is how long Ctrl-C takes."""


@runtime_checkable
class Executor(Protocol):
    """What runs calls elsewhere, as `concurrent.futures.Executor` does: `submit` gives a future that has `result`,
    `cancel` and `add_done_callback`."""

    def submit(self, fn: Any, /, *args: Any) -> Any: ...


@runtime_checkable
class Chunked(Protocol):
    """An evaluator whose fits depend on how small the chunks are that it works in, which may change in a fit."""

    @property
    def chunks(self) -> Chunks: ...

    def work_in(self, chunks: Chunks) -> None:
        """From here on fits are made in these chunks."""
        ...


class Answer(NamedTuple):
    """What a worker says: the fit, or the error of making it in words; and the chunks that it ended with."""

    fit: Fit | None
    error: str | None
    chunks: Chunks | None


def check_executor(executor: object) -> None:
    """ValueError for what is no executor, and for processes that are forked. None is fine: no workers."""
    if executor is None:
        return
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise ValueError(
            f"got executor={executor!r}, expected one that has submit(function, *arguments), such as lv.WorkerPool(4), "
            "concurrent.futures.ProcessPoolExecutor(…), or an executor of Dask, MPI or Ray"
        )
    context = getattr(executor, "_mp_context", None)  # of a pool of processes
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "got a pool whose processes are forked, expected spawned ones: a forked process in which JAX was at work "
            "stops for ever. Take lv.WorkerPool(4), or "
            'ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn"))'
        )


def n_workers(executor: Executor) -> int:
    """How many calls an executor works on at once: what it says, else the number of processors here."""
    for name in ("num_workers", "_max_workers"):
        number = getattr(executor, name, None)
        if isinstance(number, int) and number > 0:
            return number
    return os.cpu_count() or 1


# ── in a worker ─────────────────────────────────────────────────────────────────────────────────────────────────────

_OWN: dict[str, Evaluator] = {}
"""Evaluators of searches in this process."""
_RECEIVED: "OrderedDict[str, Evaluator]" = OrderedDict()
_receiving = threading.Lock()


def evaluated(name: str, packed: bytes | None, call: Call, chunks: Chunks | None) -> Answer | None:
    """The fit of one call by the evaluator of this name; None where it is not known here and not `packed`."""
    evaluator = _known(name, packed)
    if evaluator is None:
        return None
    own = copy(evaluator)  # threads share one
    if isinstance(own, Chunked) and chunks is not None:
        own.work_in(chunks)
    try:
        fit = own.evaluate(*call)
    except Exception as error:  # raised where the fit is wanted, if it is
        return Answer(None, told(error), chunks)
    return Answer(fit, None, _chunks_of(own))


def _known(name: str, packed: bytes | None) -> Evaluator | None:
    if name in _OWN:
        return _OWN[name]
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
    return evaluator.chunks if isinstance(evaluator, Chunked) else None


# ── in the search ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Errand:
    """A call on its way: `future` where a worker has it, `answer` when it is back, `failures` so far.

    It holds the call's start, by whose identity it is known.
    """

    call: Call
    future: Any = None
    answer: Answer | None = None
    failures: int = 0


class Workers:
    """Makes the fits of one search by an executor. To be used in a `with`: at its end calls that did not begin are
    taken back."""

    def __init__(
        self,
        evaluator: Evaluator,
        prior: SizePrior,
        settings: SearchSettings,
        executor: Executor,
        say: Callable[[str], None] = lambda words: print(f"lvsearch: {words}", file=sys.stderr),
    ):
        self._evaluator, self._prior, self._settings = evaluator, prior, settings
        self._executor: Executor | None = executor
        self._n_workers = n_workers(executor)
        self._say = say
        self._name = uuid.uuid4().hex
        self._packed: bytes | None = None
        self._errands: dict[Hashable, Errand] = {}
        self._heard: queue.SimpleQueue[tuple[Errand, Any]] = queue.SimpleQueue()
        self._under_way, self._lost_in_a_row = 0, 0

    def __enter__(self) -> "Workers":
        _OWN[self._name] = self._evaluator
        return self

    def __exit__(self, *_: object) -> None:
        del _OWN[self._name]
        for errand in self._errands.values():
            if errand.future is not None:
                errand.future.cancel()

    def make(self, state: SearchState, task: Task, calls: Sequence[Call], tell: Callable[[str], None]) -> Sequence[Fit]:
        """The fits of one task, and meanwhile those that may come after it. A `controller.Make`."""
        tried = {(visit.size, trial) for visit in state.visits for trial in range(len(visit.trials))}
        self._errands = {
            key: errand for key, errand in self._errands.items() if (errand.call.size, errand.call.trial) not in tried
        }
        return [self._fit(state, task, call, tell) for call in calls]

    def _fit(self, state: SearchState, task: Task, call: Call, tell: Callable[[str], None]) -> Fit:
        while True:
            errand = self._errand(call)
            if errand.answer is not None and errand.answer.fit is not None:
                if isinstance(self._evaluator, Chunked) and errand.answer.chunks is not None:
                    self._evaluator.work_in(errand.answer.chunks)
                return errand.answer.fit
            self._send(errand)
            self._send_ahead(state, task)
            if errand.future is None:  # it cannot be made elsewhere
                return self._evaluator.evaluate(*call)
            n_ready = sum(other.answer is not None for other in self._errands.values())
            tell(f"{self._under_way} fits under way, {n_ready} ready")
            self._listen()

    def _send_ahead(self, state: SearchState, task: Task) -> None:
        """Give every worker something to do."""
        if self._under_way >= self._n_workers or self._executor is None:
            return
        for call in calls_ahead(self._evaluator, self._prior, self._settings, state, task, self._made):
            self._send(self._errand(call))
            if self._under_way >= self._n_workers:
                return

    def _key(self, call: Call) -> Hashable:
        start = None if call.start is None else (call.start.size, id(call.start.state))
        return call.size, call.trial, start, _chunks_of(self._evaluator)

    def _errand(self, call: Call) -> Errand:
        return self._errands.setdefault(self._key(call), Errand(call))

    def _made(self, call: Call) -> Fit | None:
        errand = self._errands.get(self._key(call))
        return None if errand is None or errand.answer is None else errand.answer.fit

    def _send(self, errand: Errand, packed: bytes | None = None) -> None:
        """Ask for a fit, unless that was done, or is no use."""
        settled = errand.future is not None or errand.answer is not None or errand.failures >= ATTEMPTS
        if settled or self._executor is None:
            return
        try:
            future = self._executor.submit(evaluated, self._name, packed, errand.call, _chunks_of(self._evaluator))
        except Exception as error:  # of a pool that is broken or closed
            self._give_up(f"the executor {told(error)}")
            return
        errand.future = future
        self._under_way += 1
        future.add_done_callback(lambda done: self._heard.put((errand, done)))

    def _listen(self) -> None:
        """Wait until a call comes back, or does not."""
        while True:
            try:
                errand, future = self._heard.get(timeout=LISTENING)
                break
            except queue.Empty:
                if pressed():
                    raise KeyboardInterrupt from None
        self._under_way -= 1
        errand.future = None
        try:
            answer = future.result()
        except KeyboardInterrupt:  # the terminal's Ctrl-C reaches the workers too
            raise
        except BaseException as error:  # whatever a transport raises, cancellation among it
            self._lost(errand, error)
            return
        self._lost_in_a_row = 0
        if answer is None:
            self._send(errand, self._pack())
        else:
            errand.answer = answer

    def _lost(self, errand: Errand, error: BaseException) -> None:
        errand.failures += 1
        self._lost_in_a_row += 1
        if self._executor is None:
            return  # which was said
        size = "×".join(map(str, errand.call.size))
        reason = told(error) if isinstance(error, Exception) else type(error).__name__
        self._say(f"the fit of size {size} was lost with its worker ({reason}); it is made again")
        if self._lost_in_a_row > ATTEMPTS * self._n_workers:
            self._give_up("nothing comes back from the executor")

    def _give_up(self, why: str) -> None:
        if self._executor is not None:
            self._say(f"{why}: the search goes on in this process")
        self._executor = None

    def _pack(self) -> bytes:
        if self._packed is None:
            try:
                self._packed = pickle.dumps(self._evaluator)
            except Exception as error:
                raise ValueError(
                    f"the model or the data cannot be sent to other processes (pickling {told(error)}): expected "
                    "classes and functions that are defined at the top of a module. Or take threads: "
                    "concurrent.futures.ThreadPoolExecutor"
                ) from error
        return self._packed
