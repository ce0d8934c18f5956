"""Guard a search against mistakes in other people's code: evaluators that fail, and models that are wrong.

An error, a NaN or a call that takes too long is the failure of one size: it is reported for this size, and the search
goes on. A user's own model is checked once for mistakes, before it is fitted.
"""

import inspect
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any

import equinox as eqx
import jax

import lvsearch.models as models
from lvsearch.files.plain_text import one_line
from lvsearch.inference.data.dataset import Dataset
from lvsearch.interrupts import is_main_thread
from lvsearch.models import families
from lvsearch.models.contract import Model
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.fit import Evaluator, Fit, FitInfo, SelfDescribed
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import size_text

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
    if seconds is None or not hasattr(signal, "setitimer") or not is_main_thread():
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
    message = f"size {size_text(size)} {why}; it is reported, not ranked"
    return Fit(size, Evidence(-math.inf, ceiling), 0.0, None, FitInfo(start, seconds, 0, message))


def parameters_of(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the function's parameters; none where Python does not know them (some compiled functions)."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset()


def error_in_words(error: Exception) -> str:
    """Describe an error in one line that follows "size 3", such as "raised ValueError: got 3"."""
    words = one_line(error)
    short = words if len(words) <= LONGEST else f"{words[:LONGEST]}…"
    return f"raised {type(error).__name__}{f': {short}' if short else ''}"


@dataclass(frozen=True)
class GuardedEvaluator:
    """Another person's evaluator (`inner`), whose errors and NaN become failures of their sizes.

    The other fields are copies of the settings of `inner` (`lvsearch.sizing.fit.Evaluator`).
    """

    inner: Evaluator
    size_names: tuple[str, ...]
    ceiling: float
    nested: bool
    repeatable: bool
    anneals: bool
    shrinks: bool
    scale: float

    @classmethod
    def around(cls, inner: Evaluator) -> "GuardedEvaluator":
        """Return an evaluator with this guard around `inner`."""
        return cls(inner, *(getattr(inner, field.name) for field in fields(cls) if field.name != "inner"))

    def describe(self) -> str:
        """Describe the inner evaluator in one line, for people."""
        return (
            self.inner.describe()
            if isinstance(self.inner, SelfDescribed)
            else f"{type(self.inner).__name__}, an evaluator of one's own"
        )

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Return the fit of the inner evaluator, or a failed fit where that raises an error or returns NaN.

        size: the size. start: the fit to start from, if any. trial: the number of the trial (evaluation) of this size.
        """
        began = time.perf_counter()
        try:
            fit = self.inner.evaluate(size, start, trial)
        except Exception as error:  # another person's code may raise anything; other sizes may still work
            return failed_fit(size, self.ceiling, "evaluator", time.perf_counter() - began, error_in_words(error))
        if math.isnan(fit.estimate):
            return failed_fit(size, self.ceiling, "evaluator", time.perf_counter() - began, "is not a number")
        return fit


_CHECKED: set[Any] = set()
"""The structures (classes, static fields and array shapes) of the models that were checked in this process."""


def check_own(model: Model, data: Dataset, size: tuple[int, ...]) -> None:
    """Run `lv.models.check` on a model of the user's own; a model of `lvsearch.models` is not checked.

    A model counts as the user's own if its class, or the class of one of its fields, is not from `lvsearch.models`.
    Each structure of a model is checked once in a process.

    size: the size at which to check, one number per size variable, raised to at least 2.

    Raises ValueError that says what is wrong with the model.
    """
    if all(_is_from_lvsearch(type(part)) for part in _parts(model)):
        return
    leaves, structure = jax.tree.flatten(model)
    key = structure, tuple(getattr(leaf, "shape", ()) for leaf in leaves), type(data.batches[0].units)
    if key not in _CHECKED:
        models.check(model, data, size=tuple(max(number, 2) for number in size))
        _CHECKED.add(key)


def _is_from_lvsearch(cls: type) -> bool:
    """Return True if a class is one of the models or families of `lvsearch.models`."""
    return any(getattr(where, cls.__name__, None) is cls for where in (models, families))


def _parts(module: eqx.Module) -> Iterator[eqx.Module]:
    """Yield an equinox module and every module in its fields, recursively, also in tuples, lists and mappings."""
    yield module
    for value in vars(module).values():
        for part in jax.tree.leaves(value, is_leaf=lambda one: isinstance(one, eqx.Module)):
            if isinstance(part, eqx.Module):
                yield from _parts(part)
