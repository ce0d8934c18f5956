"""The progress bar of everything that takes long; it is shown on terminals and in notebooks only.

In a log file a bar would fill the file with copies of itself. In a notebook without ipywidgets it is plain text,
without tqdm's red warning.
"""

import sys
from importlib.util import find_spec

from tqdm import tqdm


def progress_bar(total: int | None, name: str, unit: str, *, wanted: bool = True, initial: int = 0) -> "tqdm":
    """Return a tqdm progress bar. It draws nothing unless it is wanted and there is a terminal or notebook to draw on.

    total: the number of steps; None if it is not known.
    name: the text before the bar.
    unit: the noun for a step.
    wanted: False makes a bar that is never drawn.
    initial: the number of steps that are done already.
    """
    kind = tqdm
    notebook = _in_notebook()
    if notebook and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as kind
    hidden = not wanted or not (notebook or is_on_terminal())
    return kind(total=total, desc=name, unit=unit, disable=hidden, initial=initial)


def is_on_terminal() -> bool:
    """Return True if standard error is a terminal.

    It is none where it was replaced by an object that only writes, where it was closed, and in a program without a
    console, in which it is None.
    """
    isatty = getattr(sys.stderr, "isatty", None)
    try:
        return isatty is not None and bool(isatty())
    except ValueError:  # a closed file
        return False


def _in_notebook() -> bool:
    """Return True if this code runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
