"""Ctrl-C while the command `lvsearch` is still being imported: one line, where Python would print a traceback.

Imported before everything else; it does something only in a process that is the command. `lvsearch.interrupts` hears
Ctrl-C from the moment at which the command knows what it was asked.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

INTERRUPTED = 130
"""Exit status, as shells have it."""
COMMAND = "lvsearch"


def end_quietly(number: int, frame: FrameType | None) -> None:
    """The handler of Ctrl-C of a command that has nothing to keep yet: say so, and end this process."""
    os.write(2, b"lvsearch: interrupted; nothing was written\n")
    os._exit(INTERRUPTED)


def listen_again() -> None:
    """Give Ctrl-C back to Python, which raises KeyboardInterrupt."""
    if _is_main_thread() and signal.getsignal(signal.SIGINT) is end_quietly:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_command() -> bool:
    """Whether this process was begun as `lvsearch …` or `python -m lvsearch …`, and not by such a one."""
    return any(Path(word).stem == COMMAND for word in sys.orig_argv[:3])


if _is_command() and _is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_quietly)
