"""The posterior over sizes, as proved (or assumed) intervals or as an estimate, and that over the members of a mixture.

A probability that was rounded to one is false confidence, so `format_probability` never prints a bare 1.000.

A `Mixture` is a weighted set of priors over sizes, its members. p(member m | data) ∝ weight_m Σ_s p_m(s) p(data | s).
The members differ only in how they weigh the sizes s. Their posterior has the same two forms as that over sizes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lvsearch.sizing.bounds import Bounds
from lvsearch.sizing.logspace import log_sum, log_times
from lvsearch.sizing.sizes import Mixture, Size
from lvsearch.sizing.witness import WitnessSearch
from lvsearch.sizing.words import between_in_words

DRAWS = 8192  # half of them mirror images of the others
PerSize = Float[np.ndarray, " sizes"]
"""One number for each size."""
TOGETHER = 0.95
"""The least probability that the sizes which cannot be told apart hold together."""
SETTLED = 3.0
"""Largest standard error (nats) with which a size may be given a probability.

An error of 3 nats leaves odds open from 1 : 400 to 400 : 1 (two standard errors). Beyond it, an average over the error
would reward the size measured worst.
"""


@dataclass(frozen=True)
class PosteriorRow:
    """The log prior and the intervals of log evidence (nats) and posterior probability of one size.

    `size` is None for the row of all unvisited sizes together.
    """

    size: Size | None
    log_prior: float
    log_evidence_lower: float
    log_evidence_upper: float
    probability_lower: float
    probability_upper: float


@dataclass(frozen=True)
class Posterior:
    """Intervals on the posterior over sizes.

    kind: "certified" (proved) or "diminishing" (assuming diminishing gains).
    basis: a phrase for people that says what the intervals rest on.
    rows: one row per visited size in increasing order, then one row for all unvisited sizes together.
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
        """True if no size is proved to have any probability: every lower end rounds to 0 in three digits."""
        return all(row.probability_lower < 5e-4 for row in self.rows[:-1])

    def describe(self) -> str:
        """Return one line for people: the interval of the size with the highest lower end, and of unvisited sizes."""
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
    """Return intervals on the posterior probability of each visited size, and of all unvisited sizes together.

    bounds: intervals on log prior × evidence of every size.

    A size's probability is lowest with its own weight at the lower end and every other weight at its upper end. It is
    highest with the reverse. The sum of the other weights comes from running sums on both sides, never from
    subtraction. Where intervals have width, the result is tighter than Lemma 2 of Chiang & Poole.
    """
    lower = np.append(bounds.weights_lower, bounds.unvisited_lower)
    upper = np.append(bounds.weights_upper, bounds.unvisited_upper)
    probability_lower = share_of_total(lower, sum_of_others(upper), undefined=0.0)
    probability_upper = share_of_total(upper, sum_of_others(lower), undefined=1.0)
    mass = bounds.log_unvisited_prior
    columns = zip(
        (*bounds.sizes, None),
        (*bounds.log_prior, mass),
        (*bounds.evidence_lower, _average_evidence(bounds.unvisited_lower, mass)),
        (*bounds.evidence_upper, _average_evidence(bounds.unvisited_upper, mass)),
        probability_lower.tolist(),
        probability_upper.tolist(),
        strict=True,
    )
    return Posterior(bounds.kind, bounds.basis, tuple(PosteriorRow(*row) for row in columns))


@dataclass(frozen=True)
class EstimatedPosterior:
    """An estimated posterior over the sizes that were tried; it says nothing about other sizes. Arrays are (sizes,)."""

    sizes: tuple[Size, ...]
    probability: PerSize  # mean over the errors
    probability_lower: PerSize  # 5 % quantile over the errors
    probability_upper: PerSize  # 95 % quantile
    best: Size  # highest probability; where some are not settled, the highest estimate of prior times evidence
    indistinguishable: tuple[Size, ...]  # sizes that cannot be told from `best`, and `best`: see `estimate_posterior`
    unsettled: tuple[Size, ...] = ()  # those of several sizes that may be the best whose error is beyond `SETTLED`
    moved_by_errors: float = 0.0  # Σ_s p(s) (1 − p(s)) · standard error of s in nats: how far errors move the posterior

    @property
    def is_decided(self) -> bool:
        """True if a single size may be the best, or if the standard error of each that may be is at most 3 nats.

        With several such sizes and larger errors, probabilities mean nothing.
        """
        return not self.unsettled

    def one_variable(self, axis: int) -> tuple[int, float, tuple[int, ...]]:
        """Return the most probable number of one size variable, whatever the others are, with its probability, and the
        most probable numbers that hold 95 % together, increasing.

        axis: the place of the variable in a size.
        """
        numbers = np.array([size[axis] for size in self.sizes])
        values = np.unique(numbers)
        chances = np.array([self.probability[numbers == value].sum() for value in values])
        order = np.argsort(-chances, kind="stable")
        enough = int(np.searchsorted(np.cumsum(chances[order]), TOGETHER * chances.sum() * (1 - 1e-12))) + 1
        held = tuple(sorted(values[order[:enough]].tolist()))
        return int(values[order[0]]), float(chances[order[0]]), held

    def describe(self) -> str:
        """Return one line for people: the sizes that cannot be told apart, and the probability of the best."""
        best = self.sizes.index(self.best)
        chance = format_probability(float(self.probability[best]))
        if len(self.indistinguishable) == 1:
            told = f"{_name(self.best)} stands apart from every other size tried"
        else:
            told = f"the evidence cannot choose between {between_in_words(self.indistinguishable)}"
        return f"{told}; estimated probability of {_name(self.best)} under standard errors: {chance}"


def estimate_posterior(
    sizes: Sequence[Size], log_prior: PerSize, estimate: PerSize, standard_error: PerSize
) -> EstimatedPosterior:
    """Return the posterior over sizes, p(s | data) ∝ p(s) e^{log evidence}, averaged over errors of the evidence.

    Errors of the log evidence are independent and Gaussian.

    The average uses 8,192 antithetic draws with a fixed seed, so the same inputs give the same numbers.

    sizes: the sizes tried; the result is in increasing order.
    log_prior: log p(s) of each, nats.
    estimate, standard_error: log evidence of each and its standard error, nats.

    Sizes that cannot be told apart (`indistinguishable`) are of two kinds. The first are the most probable sizes that
    hold 95 % together. The second are sizes whose log prior plus evidence differs from the best size's by at most
    2 √(se² + se²), twice the standard error. So telling two sizes apart takes probability *and* small errors.

    Where several sizes may be the best one and one of them has a standard error beyond `SETTLED`, an average over
    errors would reward the size that was measured worst. Then the best size is the one with the highest estimate. All
    sizes whose estimates lie within two standard errors of it cannot be told apart. Probabilities are those of the
    estimates themselves, with the 5 % and 95 % points over the errors beside them. A size that stands alone, above all
    others by more than two standard errors of the difference, needs no small error of its own.

    Raises ValueError for NaN, a negative standard error, or no size with prior mass.
    """
    _check_estimates(sizes, log_prior, estimate, standard_error)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    ordered = tuple(sizes[index] for index in order)
    weights, errors = (log_prior + estimate)[order], standard_error[order]
    probability = softmax(weights + errors * antithetic_errors(len(order)))
    low, high = np.quantile(probability, [0.05, 0.95], axis=0)
    mean = probability.mean(axis=0)

    def close_to(best: int) -> np.ndarray:
        """Return which sizes lie within two standard errors of the best one, (sizes,)."""
        return np.abs(weights - weights[best]) <= 2.0 * np.hypot(errors, errors[best])

    best = int(np.argmax(mean))
    rivals = close_to(best) | (mean > 1 - TOGETHER)  # and the best size itself
    unsettled = rivals & (errors > SETTLED) & (rivals.sum() > 1)
    if unsettled.any():
        # An average over errors this large would reward the size measured worst: use the estimates themselves.
        mean, best = softmax(weights[None])[0], int(np.argmax(weights))
        unsettled = close_to(best) & (errors > SETTLED)
    close, downwards = close_to(best), np.argsort(-mean, kind="stable")
    needed = np.searchsorted(np.cumsum(mean[downwards]), TOGETHER * (1 - 1e-12)) + 1
    close[downwards[:needed]] = True
    return EstimatedPosterior(
        sizes=ordered,
        probability=mean,
        probability_lower=low,
        probability_upper=high,
        best=ordered[best],
        indistinguishable=tuple(size for size, one in zip(ordered, close.tolist(), strict=True) if one),
        unsettled=tuple(size for size, one in zip(ordered, unsettled.tolist(), strict=True) if one),
        moved_by_errors=float((mean * (1 - mean) * errors).sum()),
    )


@dataclass(frozen=True)
class PriorInfluence:
    """A comparison of the estimated posterior over sizes with the one under a flat prior over the same sizes.

    `mode` is the most probable size, and `flat_mode` the most probable size under the flat prior.
    """

    total_variation: float  # half the summed absolute difference, in [0, 1]
    mode: Size
    flat_mode: Size

    @property
    def matters(self) -> bool:
        """True if the prior changes the most probable size, or moves more than 0.05 of the probability."""
        return self.mode != self.flat_mode or self.total_variation > 0.05

    def describe(self) -> str:
        """Return a phrase for people that says how much probability a flat prior would move."""
        distance = format_probability(self.total_variation)
        if not self.matters:
            return f"among the sizes tried it hardly matters: a flat one moves probability {distance}"
        modes = f"mode {_name(self.mode)}, flat {_name(self.flat_mode)}"
        return f"it matters among the sizes tried: a flat one moves probability {distance} ({modes})"


TIED = 1e-6
"""The difference of two log evidences, in nats, that rounding may make."""


def prior_influence(
    sizes: Sequence[Size], log_prior: PerSize, estimate: PerSize, standard_error: PerSize
) -> PriorInfluence:
    """Compare the posterior over sizes with the one under a flat prior over the sizes tried, with the same errors.

    sizes: the sizes tried.
    log_prior: log p(size) of each, nats.
    estimate, standard_error: log evidence of each size and its standard error, nats.
    """
    ours = estimate_posterior(sizes, log_prior, estimate, standard_error)
    flat = estimate_posterior(sizes, np.zeros_like(log_prior), estimate, standard_error)
    moved = 0.5 * float(np.abs(ours.probability - flat.probability).sum())
    # where the evidence of two sizes is the same within its errors, noise would choose one of them
    one, other = (list(sizes).index(each) for each in (ours.best, flat.best))
    apart = abs(float(estimate[other] - estimate[one]))
    tied = apart <= TIED + float(np.hypot(standard_error[one], standard_error[other]))
    return PriorInfluence(total_variation=min(moved, 1.0), mode=ours.best, flat_mode=ours.best if tied else flat.best)


def in_percent(probability: float) -> str:
    """Return a probability such as "74 %", with "more than 99 %" and "less than 1 %" at the ends.

    No rounding claims certainty. Raises ValueError outside [0, 1], by more than rounding.
    """
    probability = _without_rounding(probability)
    if probability > 0.99:
        return "more than 99 %"
    return "less than 1 %" if 0.0 < probability < 0.01 else f"{100 * probability:.0f} %"


def format_probability(probability: float) -> str:
    """Return a probability with three digits, such as "0.741", with ">0.999" and "<0.001" at the ends.

    No rounding claims certainty. Raises ValueError outside [0, 1], by more than rounding.
    """
    probability = _without_rounding(probability)
    if probability > 0.999:
        return ">0.999"
    if 0.0 < probability < 0.001:
        return "<0.001"
    return f"{probability:.3f}"


ROUNDING = 1e-9
"""By how much rounding may put a probability beyond 0 or 1: a sum of shares may be 1.0000000000000002."""


def _without_rounding(probability: float) -> float:
    """Return the probability in [0, 1]. Raises ValueError if it lies beyond by more than `ROUNDING`."""
    if not -ROUNDING <= probability <= 1.0 + ROUNDING:
        raise ValueError(f"A probability lies in [0, 1]: got {probability}.")
    return min(max(probability, 0.0), 1.0)


def _check_estimates(sizes: Sequence[Size], log_prior: PerSize, estimate: PerSize, standard_error: PerSize) -> None:
    """Raise ValueError unless each size has one valid log prior, log evidence and standard error (nats).

    At least one size must have prior mass.
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
    """Return for each term the log of the sum over all other terms, log Σ_{j ≠ i} e^{term_j}, (terms,).

    Running sums from both sides avoid subtraction, which would lose digits.
    """
    before = np.concatenate([[-math.inf], np.logaddexp.accumulate(terms)[:-1]])
    after = np.concatenate([np.logaddexp.accumulate(terms[::-1])[:-1][::-1], [-math.inf]])
    return np.logaddexp(before, after)


def share_of_total(
    own: Float[np.ndarray, " terms"], others: Float[np.ndarray, " terms"], undefined: float
) -> Float[np.ndarray, " terms"]:
    """Return e^own / (e^own + e^others), the share of each term in the total, (terms,).

    own: logs of the terms. others: logs of the sum of all other terms.
    undefined: the result where both are zero or both infinite.
    """
    same = own == others
    known = same & np.isfinite(own)
    gap = np.subtract(others, own, out=np.zeros_like(own), where=~same)
    share = np.exp(-np.logaddexp(0.0, gap))
    return np.where(same & ~known, undefined, share)


def antithetic_errors(n_sizes: int) -> Float[np.ndarray, "draws sizes"]:
    """Draw standard normal numbers with a fixed seed, (8192, n_sizes); the second half mirrors the first (−x)."""
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, n_sizes))
    return np.concatenate([half, -half])


def softmax(log_weights: Float[np.ndarray, "draws sizes"]) -> Float[np.ndarray, "draws sizes"]:
    """Return rows of probabilities, which sum to 1, from rows of log weights, (draws, sizes)."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _average_evidence(log_total: float, log_mass: float) -> float:
    """Return the log of the average evidence of the unvisited sizes, weighted by their prior, nats; −inf without any.

    log_total: the log of the sum of prior times evidence. log_mass: the log of the sum of the prior.
    """
    return -math.inf if -math.inf in (log_total, log_mass) else log_total - log_mass


def _name(size: Size) -> str:
    """Return a size as text: a bare number for one size variable, else a tuple such as "(3, 2)"."""
    return str(size[0]) if len(size) == 1 else str(size)


@dataclass(frozen=True)
class MemberPosterior:
    """The posterior probabilities of the members of a mixture prior. Arrays are (members,).

    members: each member prior in words.
    weight: the prior probability of each member.
    probability: the estimated posterior probability; None for plug-in evidence, which proves intervals only.
    probability_lower, probability_upper: 5 % and 95 % points over the errors of the evidence, or proved ends.
    """

    members: tuple[str, ...]
    weight: tuple[float, ...]
    probability: Float[np.ndarray, " members"] | None
    probability_lower: Float[np.ndarray, " members"]
    probability_upper: Float[np.ndarray, " members"]


def estimated_members(
    prior: Mixture,
    sizes: Sequence[Size],
    estimate: PerSize,
    standard_error: PerSize,
) -> MemberPosterior:
    """Estimate the posterior probability of each member prior, averaged over Gaussian errors of the sizes' evidence.

    prior: the mixture.
    sizes: the sizes tried.
    estimate, standard_error: their log evidence and its standard error, nats.

    Returns the mean over the errors, with the 5 % and 95 % points. Sizes that were not tried take no part.
    """
    log_pmf = np.array([[member.log_pmf(size) for size in sizes] for member in prior.priors])
    evidence = estimate + standard_error * antithetic_errors(len(sizes))
    top = np.maximum(evidence.max(axis=1, keepdims=True), -np.finfo(float).max)
    with np.errstate(divide="ignore"):
        each = np.log(np.exp(evidence - top) @ np.exp(log_pmf).T)
    probability = softmax(each + np.log(prior.weights))
    low, high = np.quantile(probability, [0.05, 0.95], axis=0)
    return MemberPosterior(_member_names(prior), prior.weights, probability.mean(axis=0), low, high)


def proved_members(prior: Mixture, search: WitnessSearch) -> MemberPosterior:
    """Return proved intervals on the posterior probability of each member prior.

    The evidence of an unvisited size is at most the ceiling of the search. If models are nested, it is at least that
    of its best witness (a visited smaller size).

    prior: the mixture. search: the sizes tried with their evidence, and the unvisited sizes.
    """
    lower, upper = [], []
    for weight, member in zip(np.log(prior.weights).tolist(), prior.priors, strict=True):
        low = [log_times(member.log_pmf(record.size), record.evidence.lower) for record in search.records]
        high = [log_times(member.log_pmf(record.size), record.evidence.upper) for record in search.records]
        for region in search.regions:
            if search.nested:
                low.append(log_times(member.log_box(region.lower, region.upper), region.log_witness))
            high.append(log_times(member.log_box_upper(region.lower, region.upper), search.ceiling))
        lower.append(weight + log_sum(low))
        upper.append(weight + log_sum(high))
    low, high = np.array(lower), np.array(upper)
    return MemberPosterior(
        _member_names(prior),
        prior.weights,
        None,
        share_of_total(low, sum_of_others(high), undefined=0.0),
        share_of_total(high, sum_of_others(low), undefined=1.0),
    )


def _member_names(prior: Mixture) -> tuple[str, ...]:
    """Return each member prior of the mixture in words."""
    return tuple(member.describe() for member in prior.priors)
