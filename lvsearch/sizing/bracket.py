"""Estimated evidence: what paths from both sides, or repeated calls, say of log p(data | size), and how far that may be
off."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from lvsearch.sizing.logspace import log_sum

HYSTERESIS_SHARE, SHARE_STEPS, ANCHORED_SHARE = 0.15, 24, 0.7
"""How far from the middle of the two ends the truth lies beyond what the islands' spread says, as a share of their
distance. Measured, root mean square, on corpora drawn from LDA (60 documents of 30 tokens), against 1,664 temperatures.
From the prior, 32 of a corpus and a size: 0.15, 0.08, 0.06, 0.04, 0.04 with 26, 52, 104, 208, 416 temperatures, always
to the low side; 0.15 √(24 / temperatures) is taken. On a path anchored in one mode, ten of them, 26, 104 and 416:
0.7, 0.6, 0.8 (two outliers left out, of 2 and 3), mostly above the middle: other modes are missed on both ways. Paths
from a fit take the second share too: theirs has not been measured."""
CONTRADICTION = 3.0
"""Nats by which a lower end may exceed an upper end by chance: e^−3, twice."""


@cache
def student_widening(freedom: int) -> float:
    """Student's 97.5 % point over the normal one: what an error known from few values is multiplied by."""
    return float(stdtrit(freedom, 0.975) / ndtri(0.975))


@dataclass(frozen=True)
class Bracket:
    """Forward and backward estimates of log p(data | size) in nats, one of each per island of particles.

    | field | meaning |
    |---|---|
    | `forward` | log p̂ of each island, annealed from q to the posterior: low on average |
    | `backward` | −log of the estimate of 1/p, annealed from where the forward paths ended: high on average |
    | `steps` | temperatures |
    | `particles` | in each half of the islands |
    | `anchor_error` | where q knew one labelling and one mode: the standard error of its own evidence; else None |
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    steps: int
    particles: int
    anchor_error: float | None = None

    @property
    def lower(self) -> float:
        """log of the average p̂ over islands: unbiased on p, so a stochastic lower end."""
        return log_sum(self.forward) - math.log(len(self.forward))

    @property
    def upper(self) -> float:
        """−log of the average estimate of 1/p: a stochastic upper end if the backward paths began in the posterior."""
        return math.log(len(self.backward)) - log_sum(np.negative(self.backward))

    @property
    def hysteresis(self) -> float:
        """How far the backward paths end above the forward ones: what finite speed costs both together."""
        return max(0.0, float(np.mean(self.backward) - np.mean(self.forward)))

    @property
    def estimate(self) -> float:
        """The middle of the two means. Near equilibrium both lag by the same amount, which cancels."""
        return float(np.mean(self.backward) + np.mean(self.forward)) / 2

    @property
    def standard_error(self) -> float:
        """Of `estimate`: the islands' spread, widened for their small number, and what is shared by all islands."""
        return math.hypot(math.sqrt(self.variance) * student_widening(self.freedom), self.common_error)

    @property
    def variance(self) -> float:
        """Of `estimate`, from how the islands differ, nats²."""
        return (float(np.var(self.forward)) + float(np.var(self.backward))) / (4 * max(1, len(self.forward) - 1))

    @property
    def freedom(self) -> int:
        """Degrees of freedom of `variance`."""
        return max(1, 2 * (len(self.forward) - 1))

    @property
    def common_error(self) -> float:
        """The part of the standard error that all islands share: a share of the hysteresis, and the anchor's error."""
        if self.anchor_error is None:
            share = HYSTERESIS_SHARE * min(1.0, math.sqrt(SHARE_STEPS / self.steps))
            return share * self.hysteresis
        return math.hypot(ANCHORED_SHARE * self.hysteresis, self.anchor_error)

    @property
    def finite(self) -> bool:
        return bool(np.all(np.isfinite([*self.forward, *self.backward])))


@dataclass(frozen=True)
class Repeats:
    """What a noisy function returned at one size, call after call, nats. Their mean is the estimate.

    The standard error is Student's: s / √n, widened for a spread that is known from few calls, by the 97.5 % points.
    """

    values: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Calls: what the estimate cost."""
        return len(self.values)

    @property
    def estimate(self) -> float:
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        n = len(self.values)
        if n < 2:
            return math.inf
        return float(np.std(self.values, ddof=1) / math.sqrt(n)) * student_widening(n - 1)

    @property
    def lower(self) -> float:
        return self.estimate - self.standard_error

    @property
    def upper(self) -> float:
        return self.estimate + self.standard_error


@dataclass(frozen=True)
class Pooled:
    """Several brackets of one size together: estimate and its standard error, stochastic ends; nats.

    `upper` is NaN where there is no upper end.
    """

    estimate: float
    standard_error: float
    lower: float
    upper: float


FLOOR = 1e-3
"""Nats below which a standard error is rounding, not knowledge."""
ALIKE = 30.0
"""Variances at equal work that differ by a larger factor are of different paths, not of few islands. By chance two of
six degrees of freedom each differ by more in one pair of two thousand."""


def pooled(brackets: Sequence[Bracket] | Sequence[Repeats]) -> Pooled:
    """All that is known of one size. Of a noisy function the mean of all calls.

    Of annealings, estimates weighted by 1 / error², in which the islands' variance is shared by all brackets alike
    (`_shared_errors`); ends averaged as what they are unbiased for, weighted by steps. A bracket whose upper end is
    below another's lower one is left out: its backward paths did not begin in the posterior.
    """
    values = tuple(value for one in brackets if isinstance(one, Repeats) for value in one.values)
    if values:
        calls = Repeats(values)
        return Pooled(calls.estimate, calls.standard_error, calls.lower, calls.upper)
    return _pooled([one for one in brackets if isinstance(one, Bracket)])


def _pooled(brackets: Sequence[Bracket]) -> Pooled:
    highest = max(bracket.lower for bracket in brackets)
    brackets = [bracket for bracket in brackets if max(bracket.lower, bracket.upper + CONTRADICTION) >= highest]
    errors = np.hypot(_shared_errors(brackets), FLOOR)
    weights = errors**-2 / (errors**-2).sum()
    estimate = float(weights @ [bracket.estimate for bracket in brackets])
    work = np.log([float(bracket.steps) for bracket in brackets])
    work -= log_sum(work)
    return Pooled(
        estimate,
        float((errors**-2).sum() ** -0.5),
        log_sum(work + [bracket.lower for bracket in brackets]),
        -log_sum(work - [bracket.upper for bracket in brackets]),
    )


def _shared_errors(brackets: Sequence[Bracket]) -> Float[np.ndarray, " bracket"]:
    """The standard error of each bracket, nats, its islands' variance estimated together with those of others.

    Four islands whose estimates happen to agree would else outweigh all others, with an error far too small. On paths
    of one kind variance × work, with work = temperatures × particles, is about the same: it is averaged over the
    brackets from a prior, and over those from an anchor, that differ by less than `ALIKE`.
    """
    work = np.array([bracket.steps * bracket.particles for bracket in brackets], float)
    scaled = work * [bracket.variance for bracket in brackets]
    freedom = np.array([bracket.freedom for bracket in brackets])
    anchored = np.array([bracket.anchor_error is not None for bracket in brackets])
    near = (scaled[:, None] <= ALIKE * scaled) & (scaled <= ALIKE * scaled[:, None])
    alike = near & (anchored[:, None] == anchored)
    shared_freedom = alike @ freedom
    variance = alike @ (freedom * scaled) / shared_freedom / work
    widened = np.sqrt(variance) * [student_widening(int(each)) for each in shared_freedom]
    return np.hypot(widened, [bracket.common_error for bracket in brackets])


def contradicts(found: Pooled, proved_lower: float) -> bool:
    """Whether an estimate lies below a proved lower bound on what it estimates by more than its standard error."""
    return proved_lower - found.estimate > found.standard_error


def raised_to_bound(found: Pooled, proved_lower: float) -> Pooled:
    """The estimate, and its lower end, at least at a proved lower bound on the evidence, nats.

    An estimate that lay further below the bound than its standard error missed where the posterior is. It was wrong by
    at least the distance to the bound, which is added to its error. An upper end below the bound is none: paths back
    began elsewhere than in the posterior.
    """
    if not found.estimate < proved_lower:
        return found
    missed = proved_lower - found.estimate if contradicts(found, proved_lower) else 0.0
    return Pooled(
        proved_lower,
        math.hypot(found.standard_error, missed),
        max(found.lower, proved_lower),
        found.upper if found.upper >= proved_lower else math.nan,
    )
