"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever it just is. Inside a callback of the garbage collector, such as JAX's, it is
printed and swallowed. The handler here also remembers it, so that a search stops at its next step.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_pressed = threading.Event()


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


def pressed() -> bool:
    """Whether Ctrl-C came since `watched` began, whoever swallowed it; once: asked again, it is as if it had not."""
    was = _pressed.is_set()
    _pressed.clear()
    return was


def _handle(number: int, frame: FrameType | None) -> None:
    _pressed.set()
    raise KeyboardInterrupt
