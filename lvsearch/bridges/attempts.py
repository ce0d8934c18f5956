"""Tools to call other people's code that may fail: a failure is reported for its size, and the search goes on."""

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Fit, FitInfo
from lvsearch.sizing.sizes import Size

LONGEST = 200
"""The largest number of characters of another person's error message that is shown."""


class TooSlow(Exception):
    """Raised when a call took longer than its limit."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TooSlow` inside the context once `seconds` have passed; None means no limit.

    The operating system's alarm interrupts Python between two steps, so a call into compiled code ends first. In
    threads other than the main one, and on systems without an alarm, nothing interrupts: the caller should check the
    time afterwards.
    """
    if seconds is None or not hasattr(signal, "setitimer") or not _in_main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def failed_fit(size: Size, ceiling: float, start: str, seconds: float, why: str) -> Fit:
    """Return a fit of one size that says only why it failed. A search reports it and does not rank its size.

    size: the size. ceiling: an upper bound on the evidence, in nats, or inf.
    start: a word for the start of the fit, such as "prior". seconds: how long it took.
    why: a phrase that follows "size 3", such as "took longer than 5 seconds".
    """
    message = f"size {'×'.join(map(str, size))} {why}; it is reported, not ranked"
    return Fit(size, Evidence(-math.inf, ceiling), 0.0, None, FitInfo(start, seconds, 0, message))


def error_in_words(error: Exception) -> str:
    """Describe an error in one line that follows "size 3", such as "raised ValueError: got 3"."""
    words = " ".join(str(error).split())
    short = words if len(words) <= LONGEST else f"{words[:LONGEST]}…"
    return f"raised {type(error).__name__}{f': {short}' if short else ''}"


def _in_main_thread() -> bool:
    """Return True in the main thread, the only one that can receive signals."""
    return threading.current_thread() is threading.main_thread()
