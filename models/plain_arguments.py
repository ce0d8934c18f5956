"""Check arguments that are plain numbers, words, lists or paths, before any work is done, for every public function.

A function states what an argument may be, as scikit-learn's `_parameter_constraints` do: `starts =
whole_number("starts", starts, least=1)`. The returned value has one type. A wrong value raises a ValueError that says
what was got and what was expected. `True` is no number, "1" is no number, 1.5 and 2.0 are no whole numbers, and NaN is
outside all limits.
"""

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LONGEST = 60
"""The number of characters of a wrong value that a message shows."""
LARGEST_SEED = 2**32 - 1
"""The largest seed. JAX keeps 32 bits of a seed, so beyond it two seeds would silently be the same."""


def whole_number(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """Return an argument as an int: a whole number of Python, NumPy or JAX.

    name: the name of the argument
    value: what the caller passed
    least, most: the smallest and the largest allowed number; None for no limit

    Raises ValueError for anything else.
    """
    try:
        number = operator.index(value)
    except (TypeError, ValueError, IndexError):  # the last two of arrays that have no single entry
        number = None
    if number is None or _is_truth(value) or not _is_within(number, least, most):
        raise ValueError(f"got {name}={shortened_repr(value)}, expected a whole number{_limits(least, most)}")
    return number


def checked_seed(seed: Any) -> int:
    """Return the seed as an int, which NumPy's generators and JAX's keys can both take.

    Raises ValueError unless it is a whole number from 0 to 2³² − 1.
    """
    return whole_number("seed", seed, least=0, most=LARGEST_SEED)


def real_number(
    name: str,
    value: Any,
    *,
    least: float | int | None = None,
    above: float | int | None = None,
    most: float | int | None = None,
    below: float | int | None = None,
) -> float:
    """Return an argument as a float: a finite number of Python, NumPy or JAX.

    name: the name of the argument
    value: what the caller passed
    least, most: the smallest and the largest allowed number; None for no limit
    above, below: limits that are not allowed themselves; None for no limit

    Raises ValueError for anything else, also for NaN and for numbers too large for a float.
    """
    number = math.nan
    if not isinstance(value, str | bytes) and not _is_truth(value):
        try:
            number = float(value) if np.ndim(value) == 0 and not np.iscomplexobj(value) else math.nan
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    inside = (above is None or number > above) and (below is None or number < below)
    if not math.isfinite(number) or not inside or not _is_within(number, least, most):
        raise ValueError(
            f"got {name}={shortened_repr(value)}, expected a finite number{_limits(least, most, above, below)}"
        )
    return number


def yes_or_no(name: str, value: Any) -> bool:
    """Return an argument as a bool. Raises ValueError for anything but True and False, of Python or NumPy.

    name: the name of the argument, for the error.
    """
    if not _is_truth(value):
        raise ValueError(f"got {name}={shortened_repr(value)}, expected True or False")
    return bool(value)


def check_flags(**flags: Any) -> None:
    """Raise ValueError for the first argument, passed as name=value, that is neither True nor False."""
    for name, value in flags.items():
        yes_or_no(name, value)


def one_of(name: str, value: Any, words: Sequence[str]) -> str:
    """Return the argument `value` if it is one of a few words. Raises ValueError otherwise, listing the words.

    name: the name of the argument, for the error.
    """
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"got {name}={shortened_repr(value)}, expected one of {', '.join(map(repr, words))}")
    return value


def as_list(name: str, values: Any) -> list[Any]:
    """Return the entries of an argument as a list. Raises ValueError for text and for anything that is not iterable.

    name: the name of the argument, for the error.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"got {name}={shortened_repr(values)}, expected a list")
    try:
        return list(values)
    except TypeError as error:  # such as an array without axes, which only looks iterable
        raise ValueError(f"got {name}={shortened_repr(values)}, expected a list") from error


def as_names(name: str, values: Any) -> list[Any]:
    """Return names as a list in their order.

    name: the name of the argument, for the error.

    Raises ValueError for text, for anything that is not iterable, and for sets and dicts: a set has no order, and of a
    dict keys or values may be meant.
    """
    if isinstance(values, set | frozenset | Mapping):
        raise ValueError(
            f"got a {type(values).__name__} as {name}; expected a list, whose order is that of the data: of a dict "
            "list(d) or list(d.values())"
        )
    return as_list(name, values)


def numbers(name: str, values: Any) -> np.ndarray:
    """Return an argument as a float64 array of any shape. Raises ValueError if it does not consist of numbers.

    name: the name of the argument, for the error.
    """
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"got {name}={shortened_repr(values)}, expected numbers") from error


def as_path(name: str, value: Any) -> Path:
    """Return an argument as a path. Raises ValueError for anything that names no file or folder.

    name: the name of the argument, for the error.
    """
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"got {name}={shortened_repr(value)}, expected a path")
    return Path(value)


def shortened_repr(value: Any) -> str:
    """Return a wrong value as text for an error message: on one line, with at most `LONGEST` (60) characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _is_truth(value: Any) -> bool:
    """Return True for True and False, of Python or NumPy."""
    return isinstance(value, bool | np.bool_)


def _is_within(number: float | int, least: float | int | None, most: float | int | None) -> bool:
    """Return True if a number is within both limits; None is no limit."""
    return (least is None or number >= least) and (most is None or number <= most)


def _limits(
    least: float | int | None,
    most: float | int | None,
    above: float | int | None = None,
    below: float | int | None = None,
) -> str:
    """Return limits in words for an error, such as " from 0 to 1", " of at least 1" or " above 0"; "" without limits.

    least, most: the smallest and the largest allowed number. above, below: limits that are not allowed themselves.
    """
    if least is not None and most is not None:
        return f" from {least} to {most}"
    said = ((" of at least", least), (" above", above), (" of at most", most), (" below", below))
    return " and".join(f"{words} {end}" for words, end in said if end is not None)
