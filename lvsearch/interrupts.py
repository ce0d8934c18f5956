"""Handle Ctrl-C during a search so that none is lost.

Python raises KeyboardInterrupt wherever the program is. Inside a callback of the garbage collector, such as JAX's, the
exception would be printed and lost. In such a callback the handler of this module raises nothing, but remembers the
Ctrl-C, and the search stops at its next step.
"""

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lvsearch.quiet_start import INTERRUPTED

_was_pressed, _is_postponed = threading.Event(), threading.Event()


@contextmanager
def remember_interrupts() -> Iterator[None]:
    """Remember every Ctrl-C inside this context, so that `was_interrupted` can tell.

    The context does nothing inside another such context, in other threads, and if somebody else handles Ctrl-C.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
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
