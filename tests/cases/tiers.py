"""The helper that says which cases of a test are asked in the fast tier, and which in the slow one alone."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def in_tiers(
    cases: Iterable[Any], is_fast: Callable[[Any], bool], name: Callable[[Any], str] | None = None
) -> list[Any]:
    """Return every case as a parameter of a test; those that are not fast are asked in the slow tier alone.

    cases: a plain tuple is several parameters, anything else is one.
    name: the case's name in the output, where pytest's own would not tell.
    """

    def parameter(case: Any) -> Any:
        values = case if type(case) is tuple else (case,)
        return pytest.param(*values, marks=() if is_fast(case) else pytest.mark.slow, id=name(case) if name else None)

    return [parameter(case) for case in cases]
