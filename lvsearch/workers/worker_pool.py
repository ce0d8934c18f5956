"""Processes of this machine that fit, for `lv.search(…, executor=…)`."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from lvsearch.inference.program_cache import ProgramsKept, adopt, decision
from lvsearch.models.plain_arguments import whole_number


class WorkerPool:
    """So many processes of this machine, to search with: `with lv.WorkerPool(4) as pool: lv.search(…, executor=pool)`.

    It differs from `concurrent.futures.ProcessPoolExecutor` in three things. Processes are always spawned, never forked
    from one in which JAX is at work. A process that is lost, killed for want of memory say, is replaced. And at the end
    of the `with`, or of this process, whatever they are still doing ends at once. Ctrl-C is for this process to hear.

    Spawned processes import the script that they come from: what it does stands under `if __name__ == "__main__":`.
    Each takes the memory of a fit, and shares the processors with the others. Raises ValueError for a number below 1.
    """

    def __init__(self, num_workers: int):
        self.num_workers = whole_number("num_workers", num_workers, least=1)
        self._context = get_context("spawn")
        self._ends, self._lifeline = self._context.Pipe(duplex=False)
        self._pool = self._new()

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":
        """The future of fn(*args); by new processes where the old ones are lost. Raises RuntimeError once closed."""
        if self._lifeline.closed:
            raise RuntimeError("the pool of workers is closed")
        try:
            return self._pool.submit(fn, *args)
        except (BrokenProcessPool, OSError):  # the latter while it is just breaking
            self._pool.shutdown(wait=False)
            self._pool = self._new()
            return self._pool.submit(fn, *args)

    def close(self) -> None:
        """End all processes now, whatever they do."""
        self._lifeline.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.num_workers, self._context, initializer=_begin, initargs=(self._ends, decision())
        )


def _begin(ends: Connection, kept: ProgramsKept) -> None:
    """In a new process: end when the pool does, also where its process was killed; programs are kept where it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(ends,), daemon=True).start()
    adopt(kept)


def _end_with(ends: Connection) -> None:
    try:
        ends.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
