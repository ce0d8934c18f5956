"""Handle Ctrl-C while the command `lvsearch` is still being imported: print one line instead of a traceback.

This module is imported before all others, and acts only in a process that is the command. `lvsearch.interrupts` handles
Ctrl-C after the command has parsed its arguments.
"""

import os
import signal
import sys
import threading
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
