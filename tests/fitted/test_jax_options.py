"""Fits under options of JAX that programs of other people set: they work, and what they find is the same."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import lvsearch as lv

ROWS = np.random.default_rng(0).standard_normal((20, 2)) + np.repeat([[-4.0], [4.0]], 10, axis=0)
COUNTS = np.random.default_rng(0).poisson(1.0, (7, 9))
CASES = {"mixture": (lv.models.FiniteMixture(), ROWS), "topics": (lv.models.LDA(), COUNTS)}


@cache
def plain_score(name: str) -> float:
    model, data = CASES[name]
    return lv.fit(model, data, size=2, seed=0).score(data)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "option",
    [lambda: jax.debug_nans(True), jax.checking_leaks, lambda: jax.numpy_dtype_promotion("strict")],
    ids=["debug_nans", "checking_leaks", "strict promotion"],
)
def test_a_fit_is_the_same_under_options_of_jax(option: Callable[[], AbstractContextManager[Any]], name: str) -> None:
    model, data = CASES[name]
    expected = plain_score(name)
    with option():
        fit = lv.fit(model, data, size=2, seed=0)
        shares, score = fit.transform(data), fit.score(data)
    assert score == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(np.asarray(shares).sum(1), 1, rtol=1e-5)
