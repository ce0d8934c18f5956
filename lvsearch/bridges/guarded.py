"""Evaluators of other people under the search."""

import math
import time
from dataclasses import dataclass

from lvsearch.bridges.attempts import failed, told
from lvsearch.sizing.fit import Evaluator, Fit, SelfDescribed
from lvsearch.sizing.sizes import Size


@dataclass(frozen=True)
class GuardedEvaluator:
    """An evaluator of somebody's own (`inner`), whose errors and NaN are failures of their sizes."""

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
        """The same evaluator, guarded."""
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
        """For people, in one line."""
        return (
            self.inner.describe()
            if isinstance(self.inner, SelfDescribed)
            else f"{type(self.inner).__name__}, an evaluator of one's own"
        )

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """As `inner` does."""
        began = time.perf_counter()
        try:
            fit = self.inner.evaluate(size, start, trial)
        except Exception as error:  # a stranger's code, whatever it is: the other sizes may do
            return failed(size, self.ceiling, "evaluator", time.perf_counter() - began, told(error))
        if math.isnan(fit.estimate):
            return failed(size, self.ceiling, "evaluator", time.perf_counter() - began, "is not a number")
        return fit
