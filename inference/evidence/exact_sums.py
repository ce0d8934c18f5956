"""Sums of numbers and of their squares, held without rounding, and the spread about their mean that comes from them.

Rows join and leave a component one at a time, which changes sums over its rows, Σ y and Σ y², by one term. The spread
about the mean ȳ is a difference of these sums, Σ (y − ȳ)² = Σ y² − (Σ y)²/n. Of rows that are 10⁻¹⁰ apart and 1 from
the origin, sums of 53 bits keep no digit of it.

Here a number is a whole multiple of a small unit. It is held as digits of base B = 2²⁵ that are floating-point numbers:
y = unit · Σ_i d_i Bⁱ. Digits have signs and are at most B/2 in size. The digits of a sum are sums of digits. For up to
2²⁶ rows they are whole numbers below 2⁵³, and so exact, in whatever order rows come and go. Products of two digits are
at most 2⁴⁸. So n Σ y² − (Σ y)² has no rounding in any digit. Where its digits are put together, leading ones have
cancelled already, and only what is left is rounded.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Numbers = TypeVar("Numbers", np.ndarray, Array)

BASE = 2.0**25
N_DIGITS = 3
"""The number of digits of a number: 74 bits and a sign, below the largest number of its column."""
N_SQUARE_DIGITS = 2 * N_DIGITS


def unit_of(values: Float[np.ndarray, "... column"]) -> Float[np.ndarray, " column"]:
    """Return the unit of each column, (column,): a power of 2, of which the largest number is at most 2⁷⁴ multiples.

    values: finite numbers. What is below the unit of its column is lost.
    """
    largest = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0, initial=0.0)
    exponent = np.frexp(np.where(largest > 0, largest, 1.0))[1]
    return np.ldexp(1.0, exponent - (25 * N_DIGITS - 1))


def digits_of(
    values: Float[np.ndarray, "*things"], unit: Float[np.ndarray, "..."]
) -> tuple[Float[np.ndarray, "digit *things"], Float[np.ndarray, "square_digit *things"]]:
    """Return (the digits of some numbers, the digits of their squares), least digit first.

    values: finite numbers, at most 2⁷⁴ units in size.
    unit: the units of the last axis, or one for all (`unit_of`); squares are in squared units.
    """
    rest, digits = np.rint(values / unit), []
    for _ in range(N_DIGITS):
        above = np.rint(rest / BASE)
        digits.append(rest - above * BASE)
        rest = above
    return np.stack(digits), np.stack(_carried(_products(digits)))


def number_of(digits: Float[Array, "digit *things"]) -> Float[Array, "*things"]:
    """Return the sum of digits times their powers of the base, rounded once for each digit, (things…)."""
    number = digits[-1]
    for digit in digits[-2::-1]:
        number = number * BASE + digit
    return number


def sum_of_squares_about_mean(
    totals: Float[Array, "digit *things"], squares: Float[Array, "square_digit *things"], count: Float[Array, "*things"]
) -> Float[Array, "*things"]:
    """Return Σ (y − ȳ)² about the mean ȳ of each group of numbers y, in squared units, (things…), with a relative error
    of some roundings.

    totals: digits of Σ y.
    squares: digits of Σ y².
    count: how many numbers each group has, 0 or more.
    """
    of_totals = _products(_carried(list(totals)))
    of_squares = _carried(list(squares))
    # n Σ y² − (Σ y)², digit by digit and without rounding
    differences = [count * square - product for square, product in zip(of_squares, of_totals, strict=True)]
    return number_of(jnp.stack(differences)) / jnp.maximum(count, 1.0)


def _carried(digits: Sequence[Numbers]) -> list[Numbers]:
    """Return the same number with all digits but the last at most B/2 in size, and one digit more."""
    carry: Any = 0.0
    result = []
    for digit in digits:
        whole = digit + carry
        rounded = jnp.rint if isinstance(whole, Array) else np.rint
        carry = rounded(whole / BASE)
        result.append(whole - carry * BASE)
    return [*result, carry]


def _products(digits: Sequence[Numbers]) -> list[Numbers]:
    """Return the digits of the square of a number, before what is above B/2 is carried."""
    n = len(digits)
    products: Any = [
        sum(digits[i] * digits[total - i] for i in range(max(0, total - n + 1), min(n, total + 1)))
        for total in range(2 * n - 1)
    ]
    return products
