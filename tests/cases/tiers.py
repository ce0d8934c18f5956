"""The helper that says which cases of a test are asked in the fast tier, and which in a longer one alone."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def in_tiers(
    cases: Iterable[Any],
    is_fast: Callable[[Any], bool],
    name: Callable[[Any], str] | None = None,
    is_thorough: Callable[[Any], bool] = lambda _: False,
) -> list[Any]:
    """Return every case as a parameter of a test; those that are neither fast nor thorough are of the slow tier.

    cases: a plain tuple is several parameters, anything else is one.
    name: the case's name in the output, where pytest's own would not tell.
    is_thorough: of the cases that are not fast.
    """

    def parameter(case: Any) -> Any:
        values = case if type(case) is tuple else (case,)
        mark = () if is_fast(case) else pytest.mark.thorough if is_thorough(case) else pytest.mark.slow
        return pytest.param(*values, marks=mark, id=name(case) if name else None)

    return [parameter(case) for case in cases]
