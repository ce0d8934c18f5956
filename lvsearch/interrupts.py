"""Handle Ctrl-C: while the command `lvsearch` is still being imported, and during a search.

While the command is being imported there is nothing to save, so one line is printed instead of a traceback. For this,
`lvsearch/__init__.py` imports this module before all others, and this module imports the standard library only. It acts
on import only in a process that is the command. `listen_again` ends this once the command has parsed its arguments.

During a search no Ctrl-C may be lost. Python raises KeyboardInterrupt wherever the program is. Inside a callback of the
garbage collector, such as JAX's, the exception would be printed and lost. In such a callback the handler of this module
raises nothing, but remembers the Ctrl-C, and the search stops at its next step.

When a search ends, by Ctrl-C or otherwise, threads may still make fits for it. `cancel_when` lets these stop.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType

INTERRUPTED = 130
"""The exit status after Ctrl-C, by the convention of shells."""
COMMAND = "lvsearch"


def end_quietly(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C of a command that has nothing to save yet: print one line, and end this process with status 130.

    number, frame: the signal and the place of the program, as Python passes them.
    """
    os.write(2, b"lvsearch: interrupted; nothing was written\n")
    os._exit(INTERRUPTED)


def listen_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, Python's default."""
    if is_main_thread() and signal.getsignal(signal.SIGINT) is end_quietly:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_main_thread() -> bool:
    """Return True in the main thread, the only one that may set signal handlers."""
    return threading.current_thread() is threading.main_thread()


def _is_command() -> bool:
    """Return True if this process was started as `lvsearch …` or `python -m lvsearch …`."""
    return any(Path(word).stem == COMMAND for word in sys.orig_argv[:3])


if _is_command() and is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_quietly)


_was_pressed, _is_postponed = threading.Event(), threading.Event()
_cancelled: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)


class NotWantedError(Exception):
    """Raised inside a fit of another thread whose result is no longer needed, because its search has ended."""


@contextmanager
def cancel_when(event: threading.Event) -> Iterator[None]:
    """Make `raise_if_cancelled` raise inside this context, in this thread, once the event is set.

    event: set by the search when it ends.
    """
    token = _cancelled.set(event)
    try:
        yield
    finally:
        _cancelled.reset(token)


def raise_if_cancelled() -> None:
    """Raise NotWantedError if the event of the enclosing `cancel_when` is set. Long work calls this between its stages.

    Outside such a context nothing is raised.
    """
    event = _cancelled.get()
    if event is not None and event.is_set():
        raise NotWantedError("the search ended before this fit was done")


@contextmanager
def remember_interrupts() -> Iterator[None]:
    """Remember every Ctrl-C inside this context, so that `was_interrupted` can tell.

    The context does nothing inside another such context, in other threads, and if somebody else handles Ctrl-C.
    """
    if not is_main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _was_pressed.clear()
    signal.signal(signal.SIGINT, _handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def postpone_interrupts() -> Iterator[None]:
    """Only remember the first Ctrl-C inside this context, for `was_interrupted`; the second one ends the process.

    The second one raises SystemExit if `was_interrupted` was not called in between. The context is for processes that
    compute together: if one of them left in the middle, the others would wait for it.
    """
    _is_postponed.set()
    try:
        yield
    finally:
        _is_postponed.clear()


def was_interrupted() -> bool:
    """Return True if Ctrl-C was pressed since `remember_interrupts` began or since the last call, even if the exception
    was caught.
    """
    was = _was_pressed.is_set()
    _was_pressed.clear()
    return was


def _handle(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C: remember it, and raise KeyboardInterrupt unless it is postponed or would be lost.

    number, frame: the signal and the place of the program, as Python passes them.
    """
    again = _was_pressed.is_set()
    _was_pressed.set()
    if not _is_postponed.is_set() and not _is_swallowed(frame):
        raise KeyboardInterrupt
    if again and _is_postponed.is_set():
        raise SystemExit(INTERRUPTED)


def _is_swallowed(frame: FrameType | None) -> bool:
    """Return True if an exception raised at this place would be printed and lost.

    This is so in a callback of the garbage collector and in a `__del__`. frame: the place of the program.
    """
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
