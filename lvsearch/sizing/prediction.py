"""Predictions averaged over sizes: bounds on log p(y′ | y) under plug-in evidence, and an estimate under marginal
evidence.

The bounded quantity is log p(y′ | y) = log Σ_s p(s) p(y | s) p(y′ | s) / Σ_s p(s) p(y | s). Every weight p(s) p(y | s)
lies in an interval, the unvisited sizes share one interval, and their predictions lie between 0 and e^ceiling(y′). The
ratio is optimised jointly over all of these (a linear-fractional program). A weighted average is highest with the
weights of the best predictions at their upper ends and the others at their lower ends. So only the thresholds between
the two groups need trying.

Eq. 13 of Chiang & Poole (A₁ + B₁ ≤ p ≤ A₂ + B₂) counts everything twice and is not used. All bounds hold at the
parameters of these fits, θ_s, and say nothing of better parameters.

Averages over sizes are taken in two ways, which answer different questions:

    whole set    one average for all test units (documents, rows) together; never above the best size
    per unit     an average for each unit, summed as logs: additive over units; may beat the best size
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lvsearch.sizing.bounds import Bounds


@dataclass(frozen=True)
class PredictionInterval:
    """An interval on the log probability of test data given the training data, averaged over sizes.

    | field | meaning |
    |---|---|
    | `form` | "whole set", or "per document" (or row, …): whether all units or each unit are averaged over sizes |
    | `kind` | the kind of the bounds on the evidence: "certified" or "diminishing" |
    | `basis` | for people: what the interval rests on, and whether it holds for fitted parameters only |
    | `log_lower`, `log_upper` | the ends of the interval, nats |
    """

    form: str
    kind: str
    basis: str
    log_lower: float
    log_upper: float

    def describe(self) -> str:
        """Return the interval of log p(test | data) in one line for people, in nats, with what it rests on."""
        between = f"between {self.log_lower:,.2f} and {self.log_upper:,.2f} nats"
        return f"{self.basis}, {self.form}: log p(test | data) {between}"


@dataclass(frozen=True)
class PredictionEstimate:
    """Estimates of log p(test | train), averaged over the sizes whose fit was kept, or over draws of all sizes; nats.

    log_whole_set: one average for all test units together.
    log_per_unit: an average for each unit, summed over units as logs.
    unit: the noun for a unit, such as "document".
    method: how the log p of a unit was computed, in words.
    averaged_over: what the averages go over, in words.
    """

    log_whole_set: float
    log_per_unit: float
    unit: str = "unit"
    method: str = ""
    averaged_over: str = "the sizes whose fit was kept"

    def describe(self) -> str:
        """Return both estimates of log p(test | data) in one line for people, in nats."""
        how = f" Each {self.unit} by itself: {self.method}." if self.method else ""
        return (
            f"estimate over {self.averaged_over}: log p(test | data) ≈ {self.log_whole_set:,.2f} nats averaged "
            f"for the whole set, {self.log_per_unit:,.2f} averaged per {self.unit}.{how}"
        )


@dataclass(frozen=True)
class Prediction:
    """The log probability of new units (documents, rows), averaged over sizes as a whole set and unit by unit, nats.

    | field | evidence | meaning |
    |---|---|---|
    | `whole_set` | plug-in | interval on log p(test | train), one average over sizes for all units together |
    | `per_unit` | plug-in | interval on Σ_u log p(test_u | train), an average over sizes for each unit |
    | `estimate` | marginal | both averages, over the sizes whose fit was kept, or over draws; not a bound |

    `whole_set` is never above the prediction of the best size; `per_unit` may be. In the intervals, unvisited sizes and
    sizes whose fit was not kept may predict anything up to the ceiling. Fields that do not apply are None.
    """

    whole_set: PredictionInterval | None
    per_unit: PredictionInterval | None
    estimate: PredictionEstimate | None

    def describe(self) -> str:
        """Return one line for people for each field that is not None."""
        parts = (self.whole_set, self.per_unit, self.estimate)
        return "\n".join(part.describe() for part in parts if part is not None)


def predict_whole_set(
    bounds: Bounds,
    log_predictive_lower: Float[np.ndarray, " sizes"],
    log_predictive_upper: Float[np.ndarray, " sizes"],
    ceiling: float | int,
) -> PredictionInterval:
    """Return an interval on log p(test | train), with one average over sizes for the whole test set.

    bounds: bounds on the evidence of every size.
    log_predictive_lower, log_predictive_upper: ends of log p(test | train, size, fitted parameters), nats, in the order
        of `bounds.sizes`; equal where exact.
    ceiling: a number ≥ log p(test | size, parameters) for every size and parameter, nats.

    Raises ValueError for NaN, wrong lengths or ends in the wrong order.
    """
    lower, upper = _interval_per_unit(
        bounds, log_predictive_lower[:, None], log_predictive_upper[:, None], np.array([float(ceiling)])
    )
    return PredictionInterval("whole set", bounds.kind, bounds.basis, float(lower[0]), float(upper[0]))


def predict_per_unit(
    bounds: Bounds,
    log_predictive_lower: Float[np.ndarray, "sizes units"],
    log_predictive_upper: Float[np.ndarray, "sizes units"],
    ceilings: Float[np.ndarray, " units"],
    unit: str = "unit",
) -> PredictionInterval:
    """Return an interval on Σ_u log p(test unit u | train), where each unit is averaged over sizes by itself.

    bounds: bounds on the evidence of every size.
    log_predictive_lower, log_predictive_upper: ends of log p(unit | train, size, fitted parameters), nats, with a row
        per size in the order of `bounds.sizes` and a column per unit; equal where exact.
    ceilings: for each unit a number ≥ its log p under every size and parameter, nats.
    unit: the name of a unit for people, such as "document".

    Raises ValueError for NaN, wrong shapes or ends in the wrong order.
    """
    lower, upper = _interval_per_unit(bounds, log_predictive_lower, log_predictive_upper, ceilings)
    return PredictionInterval(f"per {unit}", bounds.kind, bounds.basis, float(lower.sum()), float(upper.sum()))


def estimate_prediction(
    probability: Float[np.ndarray, " sizes"],
    log_predictive: Float[np.ndarray, "sizes units"],
    unit: str = "unit",
    method: str = "",
) -> PredictionEstimate:
    """Return estimates of log p(test | train), averaged over sizes by their posterior probabilities.

    probability: posterior probability of each size; they sum to 1.
    log_predictive: log p(test_u | size) of each size and unit, nats.
    unit: the name of a unit for people, such as "document".
    method: how log p of a unit was computed, in words.

    Raises ValueError for wrong shapes, NaN, or probabilities that do not sum to 1.
    """
    if probability.shape[0] != log_predictive.shape[0] or np.isnan(log_predictive).any():
        raise ValueError(
            f"One prediction per size and unit, none NaN: got shapes {probability.shape} and {log_predictive.shape}."
        )
    if not (np.all(probability >= 0.0) and abs(probability.sum() - 1.0) <= 1e-6):
        raise ValueError(f"Probabilities must be at least 0 and sum to 1: got a sum of {probability.sum()}.")
    used = probability > 0.0
    log_weight, rows = np.log(probability[used]), log_predictive[used]
    whole = np.logaddexp.reduce(log_weight + rows.sum(axis=1))
    each = np.logaddexp.reduce(log_weight[:, None] + rows, axis=0)
    return PredictionEstimate(float(whole), float(each.sum()), unit, method)


def _interval_per_unit(
    bounds: Bounds,
    log_predictive_lower: Float[np.ndarray, "sizes units"],
    log_predictive_upper: Float[np.ndarray, "sizes units"],
    ceilings: Float[np.ndarray, " units"],
) -> tuple[Float[np.ndarray, " units"], Float[np.ndarray, " units"]]:
    """Return the lower and the upper end of log p(test unit | train) for each unit, both (units,), nats.

    bounds: bounds on the evidence of every size.
    log_predictive_lower, log_predictive_upper: ends of log p(unit | train, size), (sizes, units), nats.
    ceilings: an upper bound on each unit's log p under every size, (units,), nats.

    Raises ValueError for NaN, wrong shapes, ends in the wrong order, or predictions above their ceiling.
    """
    shape = (len(bounds.sizes), ceilings.size)
    if log_predictive_lower.shape != shape or log_predictive_upper.shape != shape:
        got = (log_predictive_lower.shape, log_predictive_upper.shape)
        raise ValueError(f"Predictions have a row per size and a column per unit, {shape}: got {got}.")
    crossed = ~(log_predictive_lower <= log_predictive_upper)  # true for NaN as well
    if crossed.any() or np.isnan(ceilings).any():
        raise ValueError("Predictions must have lower <= upper ends and no NaN: a failed prediction is not averaged.")
    if np.any(log_predictive_lower > ceilings + 1e-9 * np.maximum(1.0, np.abs(ceilings))):
        raise ValueError("A prediction lies above the ceiling of its unit: the ceiling is not one.")
    weights_lower = np.append(bounds.weights_lower, bounds.unvisited_lower)
    weights_upper = np.append(bounds.weights_upper, bounds.unvisited_upper)
    if np.max(weights_upper) == -math.inf:
        raise ValueError(
            "Every size makes the data impossible, so nothing can be predicted: widen the search or prior."
        )
    lowest = np.vstack([log_predictive_lower, np.full(ceilings.size, -math.inf)])
    highest = np.vstack([np.minimum(log_predictive_upper, ceilings), ceilings])
    lower = [_extreme_average(column, weights_lower, weights_upper, highest=False) for column in lowest.T]
    upper = [_extreme_average(column, weights_lower, weights_upper, highest=True) for column in highest.T]
    return np.array(lower), np.array(upper)


def _extreme_average(
    log_values: Float[np.ndarray, " items"],
    weights_lower: Float[np.ndarray, " items"],
    weights_upper: Float[np.ndarray, " items"],
    highest: bool,
) -> float:
    """Return the largest or smallest log weighted average, log(Σ w e^value / Σ w), over all weights in their intervals.

    The extreme has the best values at the upper ends of their weights and the others at the lower ends. So one pass
    over the thresholds between the two groups finds it. Weights of zero take no part, and an unbounded weight outweighs
    all the rest.

    log_values: logs of the values that are averaged.
    weights_lower, weights_upper: ends of the log weight of each value.
    highest: True for the largest average, False for the smallest.
    """
    order = np.argsort(-log_values if highest else log_values, kind="stable")
    value, low, high = log_values[order], weights_lower[order], weights_upper[order]
    unbounded = np.flatnonzero(high == math.inf)
    cut = int(unbounded[0]) if unbounded.size else value.size
    favoured, rest = high[:cut], low
    # entry k: the first k values have their favoured weights, the rest the others
    weight = np.logaddexp(_running_sums(favoured), _running_sums(rest[::-1])[::-1][: cut + 1])
    total = np.logaddexp(
        _running_sums(_log_product(favoured, value[:cut])),
        _running_sums(_log_product(rest, value)[::-1])[::-1][: cut + 1],
    )
    possible = weight > -math.inf
    average = total[possible] - weight[possible]
    candidates = [*average.tolist(), *([float(value[cut])] if unbounded.size else [])]
    return max(candidates) if highest else min(candidates)


def _running_sums(terms: Float[np.ndarray, " items"]) -> Float[np.ndarray, " thresholds"]:
    """Return the log of the sum of the first k terms for k = 0 … n, (n + 1,). terms: logs of n numbers."""
    return np.logaddexp.accumulate(np.concatenate([[-math.inf], terms]))


def _log_product(
    first: Float[np.ndarray, " items"], second: Float[np.ndarray, " items"]
) -> Float[np.ndarray, " items"]:
    """Return the logs of the products of numbers given as logs, elementwise, where 0 · ∞ = 0."""
    zero = (first == -math.inf) | (second == -math.inf)
    return np.add(first, second, out=np.full(first.shape, -math.inf), where=~zero)
