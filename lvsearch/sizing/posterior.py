"""The posterior over sizes: as proved (or assumed) intervals, and as an estimate under standard errors.

A probability that was rounded to one is false confidence, so `format_probability` never prints a bare 1.000.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lvsearch.sizing.bounds import Bounds
from lvsearch.sizing.sizes import Size

DRAWS = 8192  # half of them mirror images of the others
TOGETHER = 0.95
"""The probability that the sizes which cannot be told apart hold together, at least."""
SETTLED = 3.0
"""Largest standard error (nats) with which a size may be given a probability.

An error of 3 nats leaves odds open from 1 : 400 to 400 : 1 (two standard errors). Beyond it, an average over the error
would reward the size measured worst.
"""


@dataclass(frozen=True)
class PosteriorRow:
    """The intervals of one size, or of all unvisited sizes together if `size` is None. Logs in nats."""

    size: Size | None
    log_prior: float
    log_evidence_lower: float
    log_evidence_upper: float
    probability_lower: float
    probability_upper: float


@dataclass(frozen=True)
class Posterior:
    """Intervals on the posterior over sizes: one row per size in increasing order, then one row for the unvisited
    sizes.

    `kind` names the type of the bounds that the intervals rest on, and `basis` says the same for people.
    """

    kind: str
    basis: str
    rows: tuple[PosteriorRow, ...]

    @property
    def unvisited(self) -> PosteriorRow:
        """The row of all unvisited sizes together."""
        return self.rows[-1]

    @property
    def is_vacuous(self) -> bool:
        """Whether no size is proved to have any probability: every lower end rounds to 0 in three digits."""
        return all(row.probability_lower < 5e-4 for row in self.rows[:-1])

    def describe(self) -> str:
        """Return one line for people: the interval of the size with the highest lower end, and of the unvisited
        sizes.
        """
        if self.is_vacuous:
            most = format_probability(max(row.probability_upper for row in self.rows[:-1]))
            rest = format_probability(self.unvisited.probability_upper)
            return (
                f"{self.basis}: says nothing about single sizes, whose intervals reach from 0 to as much as {most}; "
                f"all unvisited sizes together may hold {rest}."
            )
        best = max(self.rows[:-1], key=lambda row: row.probability_lower)
        low, high = format_probability(best.probability_lower), format_probability(best.probability_upper)
        rest = format_probability(self.unvisited.probability_upper)
        name = _name(best.size or ())
        return (
            f"{self.basis}: size {name} has probability {low} to {high}; all unvisited sizes together at most {rest}."
        )


def posterior(bounds: Bounds) -> Posterior:
    """Return intervals on p(s | y) per visited size and on the probability that the size is unvisited.

    A size's probability is lowest with its own weight at the lower end and every other weight at its upper end. It is
    highest with the reverse. The sum of the other weights comes from running sums on both sides, never from
    subtraction. Where intervals have width, the result is tighter than Lemma 2 of Chiang & Poole.
    """
    lower = np.append(bounds.weights_lower, bounds.unvisited_lower)
    upper = np.append(bounds.weights_upper, bounds.unvisited_upper)
    probability_lower = share(lower, sum_of_others(upper), undefined=0.0)
    probability_upper = share(upper, sum_of_others(lower), undefined=1.0)
    mass = bounds.log_unvisited_prior
    columns = zip(
        (*bounds.sizes, None),
        (*bounds.log_prior, mass),
        (*bounds.evidence_lower, _average(bounds.unvisited_lower, mass)),
        (*bounds.evidence_upper, _average(bounds.unvisited_upper, mass)),
        probability_lower.tolist(),
        probability_upper.tolist(),
        strict=True,
    )
    return Posterior(bounds.kind, bounds.basis, tuple(PosteriorRow(*row) for row in columns))


@dataclass(frozen=True)
class EstimatedPosterior:
    """An estimated posterior over the sizes tried. It says nothing about sizes not tried. Arrays follow `sizes`."""

    sizes: tuple[Size, ...]
    probability: Float[np.ndarray, " sizes"]  # mean over the errors
    probability_lower: Float[np.ndarray, " sizes"]  # 5 % quantile over the errors
    probability_upper: Float[np.ndarray, " sizes"]  # 95 % quantile
    best: Size  # highest probability; where some are not settled, the highest estimate of prior times evidence
    indistinguishable: tuple[Size, ...]  # sizes that cannot be told from `best`, and `best`: see `estimate_posterior`
    unsettled: tuple[Size, ...] = ()  # rivals of `best` whose standard error is beyond `SETTLED`

    @property
    def is_decided(self) -> bool:
        """Whether every size that may be the best one is known well enough for probabilities to mean anything."""
        return not self.unsettled

    def describe(self) -> str:
        """Return one line for people: the sizes that cannot be told apart, and the probability of the best."""
        best = self.sizes.index(self.best)
        chance = format_probability(float(self.probability[best]))
        if len(self.indistinguishable) == 1:
            told = f"{_name(self.best)} stands apart from every other size tried"
        else:
            told = f"{_ranges(self.indistinguishable)} cannot be told apart"
        return f"{told}; estimated probability of {_name(self.best)} under standard errors: {chance}"


def estimate_posterior(
    sizes: Sequence[Size],
    log_prior: Float[np.ndarray, " sizes"],
    estimate: Float[np.ndarray, " sizes"],
    standard_error: Float[np.ndarray, " sizes"],
) -> EstimatedPosterior:
    """Average p(s | y) ∝ p(s) e^{estimate} over independent Gaussian errors of the estimates.

    The average uses 8,192 antithetic draws with a fixed seed, so the same inputs give the same numbers.

    sizes: the sizes tried; the result is in increasing order.
    log_prior: log p(s) of each, nats.
    estimate, standard_error: log evidence of each and its standard error, nats.

    Sizes that cannot be told apart (`indistinguishable`) are of two kinds: the most probable ones that hold 95 %
    together, and those whose log-weights differ from the best one's by at most 2 √(se² + se²). So telling two sizes
    apart takes probability *and* small errors.

    Where a size that may be the best one has a standard error beyond `SETTLED`, an average over errors would reward the
    size that was measured worst. Then the best size is the one with the highest estimate. All sizes whose estimates lie
    within two standard errors of it cannot be told apart. Probabilities are those of the estimates themselves, with the
    5 % and 95 % points over the errors beside them.

    Raises ValueError for NaN, a negative standard error, or no size with prior mass.
    """
    _check_estimates(sizes, log_prior, estimate, standard_error)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    ordered = tuple(sizes[index] for index in order)
    weights, errors = (log_prior + estimate)[order], standard_error[order]
    probability = softmax(weights + errors * antithetic_errors(len(order)))
    low, high = np.quantile(probability, [0.05, 0.95], axis=0)
    mean = probability.mean(axis=0)
    best = int(np.argmax(mean))
    downwards = np.argsort(-mean, kind="stable")
    needed = np.searchsorted(np.cumsum(mean[downwards]), TOGETHER * (1 - 1e-12)) + 1
    close = np.abs(weights - weights[best]) <= 2.0 * np.hypot(errors, errors[best])
    rival = close | (mean > 1 - TOGETHER)
    unsettled = rival & (errors > SETTLED)
    if unsettled.any():
        # An average over errors this large would reward the size measured worst: use the estimates themselves.
        mean = softmax(weights[None])[0]
        best = int(np.argmax(weights))
        close = np.abs(weights - weights[best]) <= 2.0 * np.hypot(errors, errors[best])
        downwards = np.argsort(-mean, kind="stable")
        needed = np.searchsorted(np.cumsum(mean[downwards]), TOGETHER * (1 - 1e-12)) + 1
        unsettled = close & (errors > SETTLED)
    close[downwards[:needed]] = True
    return EstimatedPosterior(
        sizes=ordered,
        probability=mean,
        probability_lower=low,
        probability_upper=high,
        best=ordered[best],
        indistinguishable=tuple(size for size, one in zip(ordered, close.tolist(), strict=True) if one),
        unsettled=tuple(size for size, one in zip(ordered, unsettled.tolist(), strict=True) if one),
    )


@dataclass(frozen=True)
class PriorInfluence:
    """How far the prior moves the estimated posterior away from that of a flat prior over the same sizes."""

    total_variation: float  # half the summed absolute difference, in [0, 1]
    mode: Size
    flat_mode: Size

    @property
    def matters(self) -> bool:
        """Whether the prior changes the mode, or moves more than 0.05 of the probability."""
        return self.mode != self.flat_mode or self.total_variation > 0.05

    def describe(self) -> str:
        """Return a sentence part for people that says how much probability a flat prior would move."""
        distance = format_probability(self.total_variation)
        if not self.matters:
            return f"among the sizes tried it hardly matters: a flat one moves probability {distance}"
        modes = f"mode {_name(self.mode)}, flat {_name(self.flat_mode)}"
        return f"it matters among the sizes tried: a flat one moves probability {distance} ({modes})"


def prior_influence(
    sizes: Sequence[Size],
    log_prior: Float[np.ndarray, " sizes"],
    estimate: Float[np.ndarray, " sizes"],
    standard_error: Float[np.ndarray, " sizes"],
) -> PriorInfluence:
    """Compare the posterior with that of a flat prior over the sizes tried, under the same errors.

    sizes, log_prior, estimate, standard_error: as for `estimate_posterior`.
    """
    ours = estimate_posterior(sizes, log_prior, estimate, standard_error)
    flat = estimate_posterior(sizes, np.zeros_like(log_prior), estimate, standard_error)
    moved = 0.5 * float(np.abs(ours.probability - flat.probability).sum())
    return PriorInfluence(total_variation=min(moved, 1.0), mode=ours.best, flat_mode=flat.best)


def in_percent(probability: float) -> str:
    """Return a probability such as "74 %", with "more than 99 %" and "less than 1 %" at the ends.

    No rounding claims certainty. Raises ValueError outside [0, 1].
    """
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"A probability lies in [0, 1]: got {probability}.")
    if probability > 0.99:
        return "more than 99 %"
    return "less than 1 %" if 0.0 < probability < 0.01 else f"{100 * probability:.0f} %"


def format_probability(probability: float) -> str:
    """Return a probability with three digits, such as "0.741", with ">0.999" and "<0.001" at the ends.

    No rounding claims certainty. Raises ValueError outside [0, 1].
    """
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"A probability lies in [0, 1]: got {probability}.")
    if probability > 0.999:
        return ">0.999"
    if 0.0 < probability < 0.001:
        return "<0.001"
    return f"{probability:.3f}"


def _check_estimates(
    sizes: Sequence[Size],
    log_prior: Float[np.ndarray, " sizes"],
    estimate: Float[np.ndarray, " sizes"],
    standard_error: Float[np.ndarray, " sizes"],
) -> None:
    """Raise ValueError unless each size has one valid log-prior, estimate and standard error, and some size has
    mass.
    """
    if not len(sizes) == log_prior.size == estimate.size == standard_error.size > 0:
        got = (len(sizes), log_prior.size, estimate.size, standard_error.size)
        raise ValueError(f"One log-prior, estimate and standard error per size: got lengths {got}.")
    if np.isnan(log_prior).any() or not np.isfinite(estimate).all():
        raise ValueError("Log-priors must not be NaN, and estimates must be finite nats: leave failed fits out.")
    if not (np.isfinite(standard_error).all() and np.all(standard_error >= 0.0)):
        raise ValueError("Standard errors must be finite and at least 0 (nats).")
    if np.max(log_prior) == -math.inf:
        raise ValueError("The prior gives no mass to any size tried: try sizes that it allows, or change the prior.")


def sum_of_others(terms: Float[np.ndarray, " terms"]) -> Float[np.ndarray, " terms"]:
    """Return for each term the log of the sum over all other terms, log Σ_{j ≠ i} e^{term_j}."""
    before = np.concatenate([[-math.inf], np.logaddexp.accumulate(terms)[:-1]])
    after = np.concatenate([np.logaddexp.accumulate(terms[::-1])[:-1][::-1], [-math.inf]])
    return np.logaddexp(before, after)


def share(
    own: Float[np.ndarray, " terms"], others: Float[np.ndarray, " terms"], undefined: float
) -> Float[np.ndarray, " terms"]:
    """Return e^own / (e^own + e^others), elementwise; `undefined` where both are zero or both infinite."""
    same = own == others
    known = same & np.isfinite(own)
    gap = np.subtract(others, own, out=np.zeros_like(own), where=~same)
    share = np.exp(-np.logaddexp(0.0, gap))
    return np.where(same & ~known, undefined, share)


def antithetic_errors(n_sizes: int) -> Float[np.ndarray, "draws sizes"]:
    """Draw standard normal numbers with a fixed seed, half of them mirror images of the others."""
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, n_sizes))
    return np.concatenate([half, -half])


def softmax(log_weights: Float[np.ndarray, "draws sizes"]) -> Float[np.ndarray, "draws sizes"]:
    """Return rows of probabilities from rows of log-weights."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _average(log_total: float, log_mass: float) -> float:
    """Return the average log evidence of the unvisited sizes, nats; −inf where there is none."""
    return -math.inf if -math.inf in (log_total, log_mass) else log_total - log_mass


def _name(size: Size) -> str:
    """Return the size as text: a bare number for one size variable, else a tuple."""
    return str(size[0]) if len(size) == 1 else str(size)


def _ranges(sizes: Sequence[Size]) -> str:
    """Return sizes such as "12–14, 20": runs of consecutive integers for one variable, else the sizes themselves."""
    if len(sizes[0]) > 1:
        return ", ".join(map(str, sizes))
    runs: list[list[int]] = []
    for (size,) in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
