"""Arithmetic on probabilities kept as logarithms (nats), so that a mass of e^−400 is as exact as one of a half."""

import math
from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Float

LOG_HALF = -math.log(2.0)


def log_sum(terms: Iterable[float]) -> float:
    """Return log Σ e^term over all terms. No terms give −inf; any term +inf gives +inf."""
    values = np.array(terms if isinstance(terms, np.ndarray) else list(terms), dtype=np.float64)
    if values.size == 0:
        return -math.inf
    top = int(np.argmax(values))
    largest = float(values[top])
    if math.isinf(largest):
        return largest
    values[top] = -math.inf  # log1p of the others keeps the relative accuracy of a sum near one
    return largest + math.log1p(float(np.exp(values - largest).sum()))


def log_times(first: float, second: float) -> float:
    """Return the log of the product of two numbers given as logarithms, where 0 · ∞ = 0.

    With this rule a size without prior mass adds nothing to a sum, whatever its evidence.
    """
    return -math.inf if -math.inf in (first, second) else first + second


def log_one_minus(log_probability: float) -> float:
    """Return log(1 − p) for a probability p given as its logarithm, accurate for p near 0 and near 1.

    A log-probability above 0, by rounding, counts as 0.
    """
    if log_probability >= 0.0:
        return -math.inf
    if log_probability > LOG_HALF:
        return math.log(-math.expm1(log_probability))
    return math.log1p(-math.exp(log_probability))


def log_ratio_series(ratio: Callable[[Float[np.ndarray, " terms"]], Float[np.ndarray, " terms"]]) -> float:
    """Return log(1 + r₀ + r₀r₁ + r₀r₁r₂ + …), summed until nothing changes.

    All terms are positive, so nothing cancels. A ratio of 0 ends the series.

    ratio: function of an array of indices j = 0, 1, … that returns the ratios r_j of successive terms, falling in j.
    """
    total, last, start, block = 1.0, 1.0, 0, 64
    while last > 1e-18 * total:
        terms = last * np.cumprod(ratio(np.arange(start, start + block, dtype=np.float64)))
        total += float(terms.sum())
        last = float(terms[-1])
        start, block = start + block, 2 * block
    return math.log(total)
