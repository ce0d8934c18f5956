"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever it just is. Inside a callback of the garbage collector, such as JAX's, it would
be printed and lost: there the handler here raises nothing. It remembers, so that a search stops at its next step.
"""

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lvsearch.quiet_start import INTERRUPTED

_pressed, _put_off = threading.Event(), threading.Event()


@contextmanager
def watched() -> Iterator[None]:
    """Remember Ctrl-C from here on: see `pressed`. Inside another, in other threads, and where somebody else handles
    it, nothing changes."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _pressed.clear()
    signal.signal(signal.SIGINT, _handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def put_off() -> Iterator[None]:
    """Inside: the first Ctrl-C raises nothing, and is there for `pressed`; the next one, before that was asked, ends
    the process (SystemExit).

    For processes that compute together: one that left in the middle and went on elsewhere would be waited for.
    """
    _put_off.set()
    try:
        yield
    finally:
        _put_off.clear()


def pressed() -> bool:
    """Whether Ctrl-C came since `watched` began, whoever swallowed it; once: asked again, it is as if it had not."""
    was = _pressed.is_set()
    _pressed.clear()
    return was


def _handle(number: int, frame: FrameType | None) -> None:
    again = _pressed.is_set()
    _pressed.set()
    if not _put_off.is_set() and not _is_swallowed(frame):
        raise KeyboardInterrupt
    if again and _put_off.is_set():
        raise SystemExit(INTERRUPTED)


def _is_swallowed(frame: FrameType | None) -> bool:
    """Whether what is raised here would be printed and lost: in a callback of the garbage collector or a `__del__`."""
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
