"""Calls of other people's code that may fail: what goes wrong is told of its size, and the search goes on."""

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
"""Letters of somebody else's error that are told."""


class TooSlow(Exception):
    """A call took longer than it may."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TooSlow` in what runs inside once it took so long; None for no limit.

    By the alarm of the system, heard between two steps of Python: one call into compiled code ends first. In threads
    other than the main one, and on systems without it, nothing interrupts; who calls looks at the clock afterwards.
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


def failed(size: Size, ceiling: float, start: str, seconds: float, why: str) -> Fit:
    """A fit of which nothing is known but why; it is reported, not ranked."""
    told = f"size {'×'.join(map(str, size))} {why}; it is reported, not ranked"
    return Fit(size, Evidence(-math.inf, ceiling), 0.0, None, FitInfo(start, seconds, 0, told))


def told(error: Exception) -> str:
    """An error in one line."""
    words = " ".join(str(error).split())
    short = words if len(words) <= LONGEST else f"{words[:LONGEST]}…"
    return f"raised {type(error).__name__}{f': {short}' if short else ''}"


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
