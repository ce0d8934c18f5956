"""One progress bar for all that takes long: on a terminal and in a notebook, and nowhere else.

Off a terminal a bar would fill a log with its own copies. In a notebook without ipywidgets it is plain text, without
the warning that tqdm prints in red there.
"""

import sys
from importlib.util import find_spec

from tqdm import tqdm


def progress_bar(total: int | None, name: str, unit: str, *, wanted: bool = True, initial: int = 0) -> "tqdm":
    """A bar of `total` steps (None: not known), `initial` of them done; it draws nothing unless it is `wanted` and
    somebody can see it."""
    kind = tqdm
    notebook = _in_notebook()
    if notebook and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as kind
    hidden = not wanted or not (notebook or sys.stderr.isatty())
    return kind(total=total, desc=name, unit=unit, disable=hidden, initial=initial)


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this: one is there already, or there is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
