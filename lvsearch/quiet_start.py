"""Handle Ctrl-C while the command `lvsearch` is still being imported: print one line instead of a traceback.

This module is imported before all others, and acts only in a process that is the command. `lvsearch.interrupts` handles
Ctrl-C from the moment at which the command has parsed its arguments.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""
COMMAND = "lvsearch"


def end_quietly(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C of a command that has nothing to keep yet: say so, and end this process."""
    os.write(2, b"lvsearch: interrupted; nothing was written\n")
    os._exit(INTERRUPTED)


def listen_again() -> None:
    """Give Ctrl-C back to Python, which raises KeyboardInterrupt."""
    if _is_main_thread() and signal.getsignal(signal.SIGINT) is end_quietly:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_main_thread() -> bool:
    """Return True in the main thread, the only one that may set signal handlers."""
    return threading.current_thread() is threading.main_thread()


def _is_command() -> bool:
    """Return True if this process was started as `lvsearch …` or `python -m lvsearch …`."""
    return any(Path(word).stem == COMMAND for word in sys.orig_argv[:3])


if _is_command() and _is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_quietly)
