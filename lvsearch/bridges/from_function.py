"""Plain functions of the size as evaluators, which a search calls: exact, noisy, failing or slow functions."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lvsearch.bridges.guards import TooSlow, error_in_words, failed_fit, parameters_of, time_limit
from lvsearch.models.plain_arguments import real_number, shortened_repr, whole_number, yes_or_no
from lvsearch.sizing.evidence import Evidence, Repeats
from lvsearch.sizing.fit import Fit, FitInfo
from lvsearch.sizing.sizes import Size

NOISY_CALLS = 6
"""The number of calls of a size in its first trial (evaluation), if two calls differ. With six, Student's 97.5 % point
is a third wider than the normal one.
"""
GROWTH = 3
"""The factor by which each further trial (evaluation) of a size has more calls than the one before."""
SEED = "seed"
"""The name of the parameter that marks a function as noisy."""


@dataclass(frozen=True)
class FunctionEvaluator:
    r"""A plain function of the size with its settings, in the form in which a search evaluates sizes.

    `from_function` makes it.

    | field | meaning |
    |---|---|
    | `function` | takes a tuple of sizes (and a seed), returns log p(data \| size) in nats or an `Evidence` |
    | `size_names` | one name per size variable |
    | `ceiling` | a proved upper limit of its values, in nats |
    | `nested` | True if the value never falls when a size grows |
    | `calls` | the number of calls of every size at first |
    | `seconds_per_call` | the time limit of a call; None for no limit |
    | `seed` | decides the seeds of a noisy function's calls |
    | `shrinks`, `scale` | settings that every evaluator has; they have no effect on a function |
    """

    function: Callable[..., Any]
    size_names: tuple[str, ...]
    ceiling: float
    nested: bool
    calls: int = 2
    seconds_per_call: float | None = None
    seed: int = 0
    shrinks: bool = False
    scale: float = 1.0

    @property
    def anneals(self) -> bool:
        """True if another trial (evaluation) of a size makes its evidence more precise, since the function may be
        noisy.
        """
        return (self.calls > 1 or self.seeded) and not self.nested

    @property
    def repeatable(self) -> bool:
        """True if a size may be evaluated again, since the function may be noisy."""
        return self.anneals

    @property
    def seeded(self) -> bool:
        """True if the function has a parameter `seed`, by which it says that it is noisy."""
        return SEED in parameters_of(self.function)

    def with_seed(self, seed: int) -> "FunctionEvaluator":
        """Return the same evaluator with another seed for the function's noise."""
        return replace(self, seed=seed)

    def describe(self) -> str:
        """Describe the evaluator in one line, for people."""
        return "a noisy function of the size" if self.seeded else "a function of the size"

    def evaluate(self, size: Size, start: Fit | None, trial: int = 0) -> Fit:
        """Call the function, several times if it is noisy, and return its evidence as a `Fit`.

        size: the size. start: not used. trial: the number of the trial (evaluation) of this size; later ones make more
            calls.

        Raises ValueError for a value that is no evidence, and for two different values of a function with nested=True.
        """
        del start
        began = time.perf_counter()
        values: list[float] = []
        noisy, first = trial > 0 or self.seeded, max(self.calls, NOISY_CALLS)
        made = first * (GROWTH**trial - 1) // (GROWTH - 1)  # the calls of all earlier trials, a geometric series
        wanted = first * GROWTH**trial if noisy else self.calls
        # call until there are enough values; the first two that differ show that the function is noisy
        while len(values) < wanted:
            value, why = self._call(size, made + len(values))
            if why is None and not isinstance(value, Evidence) and math.isnan(value):
                why = "is not a number" if wanted == 1 or not values else f"is not a number in call {len(values) + 1}"
            if why is not None:
                return failed_fit(size, self.ceiling, "function", time.perf_counter() - began, why)
            if isinstance(value, Evidence):
                return Fit(size, value, 0.0, None, FitInfo("function", time.perf_counter() - began))
            values.append(value)
            if len(set(values)) > 1:
                noisy, wanted = True, max(wanted, first)
        info = FitInfo("function", time.perf_counter() - began, len(values))
        if not noisy:
            return Fit(size, Evidence(values[0]), 0.0, None, info)
        if self.nested:
            raise ValueError(
                f"got {values[0]} and then {values[1]} nats for size {size} of a function with nested=True, expected "
                "the same at every call: bounds are proved of exact values. Leave nested=True away where it is noisy"
            )
        if not all(map(math.isfinite, values)):
            why = f"came out as {min(values)} and as {max(values)}, which have no mean"
            return failed_fit(size, self.ceiling, "function", info.seconds, why)
        return Fit(size, Evidence(-math.inf, self.ceiling), 0.0, None, info, (Repeats(tuple(values)),))

    def _call(self, size: Size, number: int) -> tuple[Any, str | None]:
        """Return (nats or an `Evidence`, None) from one call, or (None, why the call failed).

        size: the size. number: the number of this call, for its seed.

        Raises ValueError for a value that is neither a number nor an `Evidence`.
        """
        began = time.perf_counter()
        try:
            with time_limit(self.seconds_per_call):
                if self.seeded:
                    value = self.function(size, **{SEED: _call_seed(self.seed, size, number)})
                else:
                    value = self.function(size)
        except TooSlow:
            return None, f"took longer than {self.seconds_per_call:g} seconds"
        except Exception as error:  # another person's code may raise anything; other sizes may still work
            return None, error_in_words(error)
        if self.seconds_per_call is not None and time.perf_counter() - began > self.seconds_per_call:
            return None, f"took longer than {self.seconds_per_call:g} seconds"
        if isinstance(value, Evidence):
            return value, None
        if isinstance(value, str) or value is None or np.ndim(value) != 0 or not np.isreal(value):
            raise ValueError(f"got {value!r} for size {size}, expected log p(data | size) in nats, or an lv.Evidence")
        try:
            return float(value), None
        except (TypeError, ValueError, OverflowError) as error:
            expected = "log p(data | size) in nats, or an lv.Evidence"
            raise ValueError(f"got {shortened_repr(value)} for size {size}, expected {expected}") from error


def from_function(
    function: Callable[..., Any],
    *,
    size_names: tuple[str, ...] = ("size",),
    ceiling: float = math.inf,
    nested: bool = False,
    calls: int = 2,
    seconds_per_call: float | None = None,
) -> FunctionEvaluator:
    """Return an evaluator for `lv.search` from any function of the size.

    function: takes a tuple of sizes, also for a single size variable. It returns log p(data | size) in nats, or an
        `Evidence(lower, upper, standard_error)`, which is used as it is.
    ceiling: a proved upper limit of what it can return (0 for discrete data).
    nested: True if the value never falls when a size grows.
    calls: the number of calls of every size at first; 1 means that the function is exact.
    seconds_per_call: the time limit of a call; None for no limit.

    Noise. Two calls that agree are taken as exact. If they differ, the size is called at least six times, and the
    search uses the mean with Student's standard error. Sizes whose errors decide the answer are called three and nine
    times as often (`starts` in `lv.search`). A function with a second parameter `seed` says that it is noisy. It gets
    another whole number at every call, made from the seed of the search, and is called six times or more. The mean must
    be the quantity of interest: for a search with random starts it is the result of one start, not the best of many.

    Failures. A size at which the function raises, returns NaN, or takes longer than seconds_per_call is reported and
    not ranked, and the search goes on. Ctrl-C stops it. A call can only be interrupted between two steps of Python, and
    only in the main thread; elsewhere it ends first.

    Raises ValueError for what is not callable, calls below 1, and a limit that is not positive.
    """
    if not callable(function):
        raise ValueError(f"got {function!r}, expected a function of the size: a tuple of whole numbers -> nats")
    calls = whole_number("calls", calls, least=1)
    if seconds_per_call is not None:
        seconds_per_call = real_number("seconds_per_call", seconds_per_call, above=0)
    yes_or_no("nested", nested)
    return FunctionEvaluator(function, size_names, float(ceiling), nested, calls, seconds_per_call)


def _call_seed(seed: int, size: Size, number: int) -> int:
    """Return the seed of one call, a whole number below 2³²: the same arguments always give the same seed.

    seed: the seed of the search. size: the size. number: the number of the call.
    """
    return int(np.random.SeedSequence((seed, number, *size)).generate_state(1)[0])
