"""Other people's evaluators under a search: an error is the failure of one size."""

import math
import time
from dataclasses import dataclass

from lvsearch.bridges.attempts import error_in_words, failed_fit
from lvsearch.sizing.fit import Evaluator, Fit, SelfDescribed
from lvsearch.sizing.sizes import Size


@dataclass(frozen=True)
class GuardedEvaluator:
    """Another person's evaluator (`inner`), whose errors and NaN become failures of their sizes."""

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
        """Return the evaluator with this guard."""
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
        """Describe the evaluator in one line."""
        return (
            self.inner.describe()
            if isinstance(self.inner, SelfDescribed)
            else f"{type(self.inner).__name__}, an evaluator of one's own"
        )

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Return the fit of `inner`, or a failed fit where it raises or returns NaN."""
        began = time.perf_counter()
        try:
            fit = self.inner.evaluate(size, start, trial)
        except Exception as error:  # another person's code may raise anything; other sizes may still work
            return failed_fit(size, self.ceiling, "evaluator", time.perf_counter() - began, error_in_words(error))
        if math.isnan(fit.estimate):
            return failed_fit(size, self.ceiling, "evaluator", time.perf_counter() - began, "is not a number")
        return fit
