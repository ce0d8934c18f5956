"""A guard around other people's evaluators: an error is the failure of one size, and the search goes on."""

import math
import time
from dataclasses import dataclass

from lvsearch.bridges.attempts import error_in_words, failed_fit
from lvsearch.sizing.fit import Evaluator, Fit, SelfDescribed
from lvsearch.sizing.sizes import Size


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
        return cls(
            inner,
            inner.size_names,
            inner.ceiling,
            inner.nested,
            inner.repeatable,
            inner.anneals,
            inner.shrinks,
            inner.scale,
        )

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
