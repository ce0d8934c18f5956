"""Processes on this machine that make fits, for `lv.search(…, executor=…)`."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from lvsearch.inference.compiles import ProgramsKept, adopt, decision
from lvsearch.models.plain_arguments import whole_number


class WorkerPool:
    """A pool of processes on this machine: `with lv.WorkerPool(4) as pool: lv.search(…, executor=pool)`.

    num_workers: the number of processes, at least 1.

    It differs from `concurrent.futures.ProcessPoolExecutor` in four ways. Processes are always spawned, never forked
    from one in which JAX is running. A process that is lost, for example killed for lack of memory, is replaced. At the
    end of the `with`, or of this process, the workers stop at once, whatever they are doing. Ctrl-C goes to this
    process only.

    Spawned processes import the script that started them, so its code must be under `if __name__ == "__main__":`. Each
    process takes the memory of a fit, and shares the processors with the others.

    Raises ValueError for a number below 1.
    """

    def __init__(self, num_workers: int):
        self.num_workers = whole_number("num_workers", num_workers, least=1)
        self._context = get_context("spawn")
        self._ends, self._lifeline = self._context.Pipe(duplex=False)
        self._pool = self._new_pool()

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":
        """Run fn(*args) in one of the processes, and return its future. If processes were lost, new ones take the call.

        Raises RuntimeError once the pool is closed.
        """
        if self._lifeline.closed:
            raise RuntimeError("the pool of workers is closed")
        try:
            return self._pool.submit(fn, *args)
        except (BrokenProcessPool, OSError):  # OSError is raised while the pool is just breaking
            self._pool.shutdown(wait=False)
            self._pool = self._new_pool()
            return self._pool.submit(fn, *args)

    def close(self) -> None:
        """End all processes now, whatever they are doing."""
        self._lifeline.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> "WorkerPool":
        """Return the pool itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pool."""
        self.close()

    def _new_pool(self) -> ProcessPoolExecutor:
        """Return a new pool of processes."""
        return ProcessPoolExecutor(
            self.num_workers, self._context, initializer=_prepare_process, initargs=(self._ends, decision())
        )


def _prepare_process(ends: Connection, kept: ProgramsKept) -> None:
    """Prepare a new process of the pool; it runs in that process.

    The process then ends when the pool ends, also if the pool's own process is killed. It keeps compiled programs where
    the pool's process does.

    ends: the end of a connection whose other end is closed when the pool ends
    kept: where compiled programs are kept
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_pool, args=(ends,), daemon=True).start()
    adopt(kept)


def _exit_with_pool(ends: Connection) -> None:
    """Wait until the other end of a connection is closed, and end this process then. It runs in a thread."""
    try:
        ends.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
