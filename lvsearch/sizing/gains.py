"""How many components, from what one component more gains.

A gain is log p(data | k) − log p(data | k − 1), measured at some sizes k. The evidence at every other size follows from
the gains between: a sum of gains is the logarithm of a ratio of evidences. On data of many units a gain is known to tens
of nats where the evidence itself is known to thousands, because only two components differ between its two ends.

What is assumed, and printed: gains fall as sizes grow. Between two sizes whose gains were measured they fall in some way
that is not known: in half of the draws evenly in log k, in the other half at once, somewhere between the two. Below the
smallest size measured, and beyond the largest, they are as there.

What is not assumed: that every chain was in the best mode. A chain in a poor mode shows a gain that is too small (it has
one component twice, or two in one, and giving back a component that it has twice costs nothing). So a gain that lies far
below one of a larger size contradicts the assumption; that size is measured again, and left out while it does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri, stdtrit

from lvsearch.sizing.posterior import TOGETHER, EstimatedPosterior, antithetic_errors, softmax
from lvsearch.sizing.sizes import SizePrior

DISTANCE_SHARE = 0.1
"""How far from the middle of its two directions a gain may lie, one standard error, as a share of their distance."""
COMMON_SHARE = 0.5
"""How much of the variance of these errors all sizes have in common: the two directions may lag by unequal amounts."""
CONTRADICTED = 3.0
"""Standard errors by which a gain may lie below that of a larger size."""
THINNING = 4
"""Every fourth of the posterior's draws is used: each takes a regression of its own."""
BEYOND = 2
"""Sizes up to so many times the largest measured are given a probability."""


@dataclass(frozen=True)
class SizeGain:
    """log p(data | size) − log p(data | size − 1), annealed both ways, nats.

    | field | meaning |
    |---|---|
    | `forward` | one estimate per path from the smaller size: low on average |
    | `backward` | one estimate per path from the larger size: high on average |
    | `temperatures` | sweeps of each path |
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    temperatures: int

    @property
    def estimate(self) -> float:
        """The middle of the two directions' means, nats."""
        return float(np.mean(self.forward) + np.mean(self.backward)) / 2

    @property
    def distance(self) -> float:
        """How far the backward paths end above the forward ones, nats."""
        return max(0.0, float(np.mean(self.backward) - np.mean(self.forward)))

    @property
    def standard_error(self) -> float:
        """Standard error of `estimate`, nats: the paths' spread, widened for few paths, and a share of the distance."""
        n = len(self.forward)
        middles = (np.array(self.forward) + np.array(self.backward)) / 2
        spread = float(np.std(middles, ddof=1) / math.sqrt(n)) if n > 1 else 0.0
        widened = spread * float(stdtrit(max(1, n - 1), 0.84) / ndtri(0.84))  # few paths: Student's one-sigma point
        return math.hypot(widened, DISTANCE_SHARE * self.distance)

    @property
    def is_finite(self) -> bool:
        """Whether every path ended in a number."""
        return bool(np.all(np.isfinite([*self.forward, *self.backward])))


@dataclass(frozen=True)
class PooledGain:
    """What all measurements of one gain say together: estimate and its standard error, nats."""

    estimate: float
    standard_error: float


def pool_gains(gains: Sequence[SizeGain], log_bounds: Sequence[float]) -> PooledGain:
    """Pool measurements of one gain that began with different fits.

    The measurement that began with the best fit counts, and those whose fits are as good: whose proved bound lies below
    the best one's by no more than the gain's own standard error. Fits that are worse are poorer modes.

    gains: at least one. log_bounds: the proved lower end of log p(data | size) of each fit, nats.
    """
    best = max(range(len(gains)), key=lambda index: log_bounds[index])
    reach = gains[best].standard_error
    good = [gain for gain, bound in zip(gains, log_bounds, strict=True) if bound >= log_bounds[best] - reach]
    estimates = np.array([gain.estimate for gain in good])
    within = math.sqrt(sum(gain.standard_error**2 for gain in good)) / len(good)
    between = float(np.std(estimates, ddof=1) / math.sqrt(len(good))) if len(good) > 1 else 0.0
    return PooledGain(float(estimates.mean()), max(within, between))


class MeasuredSize(Protocol):
    """A visited size, as far as this module looks at it."""

    @property
    def size(self) -> tuple[int, ...]: ...
    @property
    def gain(self) -> PooledGain | None: ...
    @property
    def log_bound(self) -> float: ...


@dataclass(frozen=True)
class EvidenceCurve:
    """The evidence of sizes 1, 2, … relative to each other, from gains measured at some of them.

    | field | shape | meaning |
    |---|---|---|
    | `measured` | (measured,) | sizes whose gain was measured, in increasing order |
    | `gains`, `errors` | (measured,) | their gains and standard errors, nats |
    | `contradicted` | (measured,) | whether a gain lies too far below that of a larger size, and is left out |
    | `end` | | the largest size that is given a probability |
    """

    measured: Int[np.ndarray, " measured"]
    gains: Float[np.ndarray, " measured"]
    errors: Float[np.ndarray, " measured"]
    contradicted: Bool[np.ndarray, " measured"]
    end: int

    @cached_property
    def log_evidence_draws(self) -> Float[np.ndarray, "draws end"]:
        """Draws of log p(data | k) − log p(data | 1) for k = 1 … end, nats, from a fixed seed."""
        nodes = self.measured[~self.contradicted]
        drawn = self._falling_draws()
        sizes = np.arange(2, self.end + 1)
        gains = np.empty((len(drawn), len(sizes)))
        gains[:, sizes <= nodes[0]] = drawn[:, :1]
        gains[:, sizes > nodes[-1]] = drawn[:, -1:]
        # one uniform number a draw and interval says where gains fall at once; every other draw falls evenly instead
        where = np.random.default_rng(1).random((len(drawn), len(nodes)))
        evenly = (np.arange(len(drawn)) % 2 == 0)[:, None]
        for index, (low, high) in enumerate(pairwise(nodes.tolist())):
            inside = (sizes > low) & (sizes <= high)
            share = np.log(sizes[inside] / low) / math.log(high / low)
            fallen = np.where(evenly, share, (share >= 1) | (share > where[:, index, None]))
            gains[:, inside] = drawn[:, index, None] + (drawn[:, index + 1] - drawn[:, index])[:, None] * fallen
        return np.concatenate([np.zeros((len(drawn), 1)), np.cumsum(gains, axis=1)], axis=1)

    def _falling_draws(self) -> Float[np.ndarray, "draws node"]:
        """Draws of the gains under their errors, each made to fall with the size: least squares under that order."""
        from sklearn.isotonic import isotonic_regression

        keep = ~self.contradicted
        gains, errors = self.gains[keep], np.maximum(self.errors[keep], 1e-3)
        normal = antithetic_errors(len(gains) + 1)[::THINNING]
        common, own = normal[:, :1], normal[:, 1:]
        drawn = gains + errors * (math.sqrt(COMMON_SHARE) * common + math.sqrt(1 - COMMON_SHARE) * own)
        weights = errors**-2.0
        return np.stack([isotonic_regression(row, sample_weight=weights, increasing=False) for row in drawn])

    def relative_to(self, best: int) -> tuple[Float[np.ndarray, " end"], Float[np.ndarray, " end"]]:
        """Return log p(data | k) − log p(data | best) for k = 1 … end, and its standard error, nats."""
        relative = self.log_evidence_draws - self.log_evidence_draws[:, best - 1 : best]
        return relative.mean(axis=0), relative.std(axis=0)

    def posterior(self, prior: SizePrior, scale: float = 1.0) -> EstimatedPosterior:
        """Return the posterior over the sizes 1 … end, averaged over the errors of the gains.

        scale: what evidence is divided by before it is weighed against the prior.

        `indistinguishable`: from the smallest to the largest of the most probable sizes that hold 95 %.
        Raises ValueError where the prior gives no mass to any of them.
        """
        log_prior = np.array([prior.log_pmf((k,)) for k in range(1, self.end + 1)])
        if log_prior.max() == -math.inf:
            raise ValueError("The prior gives no mass to any size up to the largest measured: change the prior.")
        probability = softmax(self.log_evidence_draws / scale + log_prior)
        low, high = np.quantile(probability, [0.05, 0.95], axis=0)
        mean = probability.mean(axis=0)
        downwards = np.argsort(-mean, kind="stable")
        needed = int(np.searchsorted(np.cumsum(mean[downwards]), TOGETHER * (1 - 1e-12))) + 1
        first, last = int(downwards[:needed].min()) + 1, int(downwards[:needed].max()) + 1
        return EstimatedPosterior(
            sizes=tuple((k,) for k in range(1, self.end + 1)),
            probability=mean,
            probability_lower=low,
            probability_upper=high,
            best=(int(np.argmax(mean)) + 1,),
            indistinguishable=tuple((k,) for k in range(first, last + 1) if log_prior[k - 1] > -math.inf),
        )


def evidence_curve(visits: Sequence[MeasuredSize], largest: int | None = None) -> EvidenceCurve | None:
    """Return the curve that the gains of these visits give; None where no gain was measured.

    largest: the largest size allowed.
    """
    known = sorted((visit.size[0], visit.gain) for visit in visits if visit.gain is not None)
    if not known:
        return None
    measured = np.array([size for size, _ in known])
    gains = np.array([gain.estimate for _, gain in known])
    errors = np.array([gain.standard_error for _, gain in known])
    end = BEYOND * int(measured[-1])
    return EvidenceCurve(
        measured, gains, errors, _contradicted(gains, errors), end if largest is None else max(min(end, largest), int(measured[-1]))
    )


def _contradicted(gains: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Whether each gain lies below that of a larger size by more than `CONTRADICTED` standard errors."""
    found = np.zeros(len(gains), bool)
    highest = len(gains) - 1
    for index in range(len(gains) - 2, -1, -1):
        below = gains[highest] - gains[index]
        found[index] = below > CONTRADICTED * math.hypot(errors[index], errors[highest])
        if not found[index] and gains[index] > gains[highest]:
            highest = index
    return found


# ── which size next ─────────────────────────────────────────────────────────────────────────────────────────────────

FIRST = 16
"""The first size whose gain is measured."""
PRECISION = 0.1
"""How wide the range that holds 95 % may be in the end, as a share of the most probable size."""
SURE = 2.0
"""Standard errors by which the gain of the largest size measured must be negative before no larger one is tried."""
FARTHEST = 1 << 14
"""The largest size that is looked at where neither the prior nor a limit ends before."""
LOOKS = 2
"""Fits that each of the two sizes gets between which gains change their sign."""


@dataclass(frozen=True)
class NextSize:
    """The size to measure next, and why: `reason` for people."""

    size: int
    reason: str


def next_measured(
    visits: Sequence[MeasuredSize],
    trials: dict[int, int],
    prior: SizePrior,
    most_trials: int,
    largest: int | None,
    precision: float = PRECISION,
) -> NextSize | None:
    """Return the size whose gain to measure next; None when the answer is as narrow as asked, or nothing is left.

    First larger and larger sizes, until one gains nothing; then the widest stretch of sizes not measured within the
    range that holds 95 %, until that is narrow; then those sizes again whose gains decide.

    trials: size -> how often it was tried. largest: the largest size allowed.
    """
    limit = _largest_with_mass(prior, largest)
    if limit == 1:
        return None
    curve = evidence_curve(visits, largest)
    if curve is None:
        return _untried([min(FIRST, limit), min(2 * FIRST, limit), 2], trials, "the first gain")
    high, low = int(curve.measured[-1]), int(curve.measured[0])
    if curve.gains[-1] > -SURE * curve.errors[-1] and high < limit:
        further = _untried([min(2 * high, limit)], trials, "the largest size tried still gains")
        if further is not None:
            return further
    if curve.gains[0] < SURE * curve.errors[0] and low > 2:
        return _untried([max(2, low // 2)], trials, "the smallest size tried gains nothing") or _again(curve, trials, most_trials, precision, prior)
    for size in curve.measured[curve.contradicted].tolist():
        if trials[size] < most_trials:
            return NextSize(size, "a larger size gains more")
    found = curve.posterior(prior)
    first, last = found.indistinguishable[0][0], found.indistinguishable[-1][0]
    sharp = _sharp_change(curve)
    if sharp is not None:
        return NextSize(sharp, "gains change their sign in between")
    if last - first > precision * found.best[0]:
        places = [1, *curve.measured.tolist()]
        stretches = [
            (math.log(above / below), round(math.sqrt(above * below)))
            for below, above in pairwise(places)
            if above - below > 1 and above > first and below <= last
        ]
        widest = max(stretches, default=None)
        if widest is not None and widest[0] > precision / 2:
            middle = _untried([widest[1]], trials, "sizes not measured decide")
            if middle is not None:
                return middle
    return _again(curve, trials, most_trials, precision, prior)


def _sharp_change(curve: EvidenceCurve) -> int | None:
    """Return the middle between two sizes, one of which surely gains and the next one surely does not; None where there
    is no size between such two. Halving finds the place where gains end, as often as it needs."""
    sure = np.abs(curve.gains) > SURE * curve.errors
    for low, high in pairwise(np.flatnonzero(~curve.contradicted).tolist()):
        first, second = int(curve.measured[low]), int(curve.measured[high])
        if sure[low] and sure[high] and curve.gains[low] > 0 > curve.gains[high] and second - first > 1:
            return round(math.sqrt(first * second))
    return None


def _again(
    curve: EvidenceCurve, trials: dict[int, int], most_trials: int, precision: float, prior: SizePrior
) -> NextSize | None:
    """Measure a gain again: next to the answer each has `LOOKS` trials, and the uncertain ones more where they decide."""
    found = curve.posterior(prior)
    best = found.best[0]
    beside = [int(size) for size in curve.measured if size in (best, best + 1)]
    for size in beside:
        if trials[size] < min(LOOKS, most_trials):
            return NextSize(size, "a second fit beside the answer")
    first, last = found.indistinguishable[0][0], found.indistinguishable[-1][0]
    if last - first <= precision * best:
        return None
    inside = [
        (abs(gain) / error, int(size))
        for size, gain, error in zip(curve.measured, curve.gains, curve.errors, strict=True)
        if first <= size <= last + 1 and trials[int(size)] < most_trials
    ]
    return None if not inside else NextSize(min(inside)[1], "its error decides")


def _untried(sizes: Sequence[int], trials: dict[int, int], reason: str) -> NextSize | None:
    """Return the first of these sizes that was never tried."""
    return next((NextSize(size, reason) for size in sizes if size not in trials), None)


def _largest_with_mass(prior: SizePrior, largest: int | None) -> int:
    """Return the largest size to look at: the limit, or where the prior ends."""
    low, high = 1, (FARTHEST if largest is None else largest) + 1
    while high - low > 1:  # `low` has mass at or beyond it, `high` has none or is beyond the limit
        middle = (low + high) // 2
        low, high = (middle, high) if prior.log_mass((middle,)) > -math.inf else (low, middle)
    return low
