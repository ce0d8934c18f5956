"""The evidence of one size: an interval from a fit, or estimates of log p(data | size) with their errors. All in nats.

`Evidence` is an interval on log p(data | size, parameters), and `Record` its entry in a search. `Bracket` and `Repeats`
are estimates from annealed paths in both directions and from repeated calls; `pooled` combines them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from lvsearch.models.plain_arguments import shortened_repr
from lvsearch.sizing.logspace import log_sum


@dataclass(frozen=True, init=False)
class Evidence:
    """The log evidence of one fit: an interval lower ≤ log p(data | size, parameters) ≤ upper, with a standard error.

    All numbers are in nats. For marginal evidence the parameters are integrated out.

    lower: the lower end; −inf means probability zero.
    upper: the upper end, by default `lower` (a known value); +inf means that nothing is known from above.
    standard_error: the standard error of an estimate, finite and at least 0.

    Raises ValueError for NaN (a failed fit is reported, not ranked), a `lower` of +inf, ends in the wrong order, or a
    standard error that is negative or infinite.
    """

    lower: float
    upper: float
    standard_error: float

    def __init__(self, lower: float | int, upper: float | int | None = None, standard_error: float | int = 0.0) -> None:
        try:
            lower, standard_error = float(lower), float(standard_error)
            upper = lower if upper is None else float(upper)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"Evidence is a number of nats: got {shortened_repr((lower, upper, standard_error))}."
            ) from error
        if any(math.isnan(number) for number in (lower, upper, standard_error)):
            raise ValueError(
                f"Evidence is not a number: got lower={lower}, upper={upper}, standard_error={standard_error}. "
                "A NaN is a failed fit and is not ranked; find out why the fit failed, or leave this size out."
            )
        if lower == math.inf or lower > upper:
            raise ValueError(
                f"Evidence must have lower <= upper with lower below infinity: got lower={lower}, upper={upper}. "
                "Give log-probabilities in nats, the lower end first."
            )
        if not 0.0 <= standard_error < math.inf:
            raise ValueError(f"A standard error must be finite and at least 0 (nats): got {standard_error}.")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "standard_error", standard_error)


ROUNDING = 1e-9
"""The excess of a bound over a proved ceiling, as a share of the larger of 1 and |ceiling|, that counts as rounding."""


def evidence_below(ceiling: float, lower: float, upper: float) -> Evidence:
    """Return the proved interval of the log evidence of a fit, with its upper end cut at a ceiling.

    ceiling: an upper bound on the log evidence that holds for all parameters, nats; inf if none is known.
    lower, upper: the ends that the fit proves, nats.

    Raises ValueError for NaN, and for a lower end that is above the upper end by more than rounding: a wrong bound.
    """
    upper = min(upper, ceiling)
    above = lower - upper
    return Evidence(upper if 0 < above <= ROUNDING * max(1.0, abs(upper)) else lower, upper)


@dataclass(frozen=True)
class Record:
    """A size that a search tried, with its evidence.

    size: one number per size variable.
    evidence: the evidence of the fit, or of a smaller size (a witness) that had a better one.
    replaced_by: the smaller size whose evidence was recorded instead; None if the evidence is the size's own.
    """

    size: tuple[int, ...]
    evidence: Evidence
    replaced_by: tuple[int, ...] | None = None


HYSTERESIS_SHARE, SHARE_STEPS, ANCHORED_SHARE = 0.15, 24, 0.7
"""Shares of the hysteresis (the distance of forward and backward estimates) that count as standard error.

The share says how far from the middle of both ends the truth lies, beyond the spread of the particle groups. It was
measured as a root mean square on corpora drawn from LDA (60 documents of 30 tokens), against 1,664 temperatures.

Paths from the prior (32 of a corpus and a size): 0.15, 0.08, 0.06, 0.04, 0.04 with 26, 52, 104, 208, 416 temperatures,
always on the low side. The code takes 0.15 √(24 / temperatures).

Paths anchored in one mode (ten of them, 26, 104 and 416 temperatures): 0.7, 0.6, 0.8, leaving out two outliers of 2 and
3. The truth was mostly above the middle, because paths in both directions miss other modes. Paths from a fit use this
second share too, unless their own was measured (`Bracket.hysteresis_share`).
"""
BETWEEN, NEAR = 12**-0.5, 0.5
"""The least share of the hysteresis that counts as standard error as far as the hysteresis is at most `NEAR` nats.

The truth may be anywhere between two ends this close: the share is the standard deviation of a uniform distribution.
Measured on the finite Indian buffet, five sets with missing cells, 96 temperatures, 136 annealings: errors were 0.93
times as large as stated as a root mean square, at most 1.3 times on one set. With the share above alone they were 1.5
times as large on that set.
"""
CONTRADICTION = 3.0
"""The number of nats by which a lower end may exceed an upper end by chance.

Each end is off by as much with probability e^−3 at most.
"""


@cache
def student_widening(freedom: int) -> float:
    """Return the factor that widens a standard error known from few values: Student's 97.5 % point over the normal one.

    freedom: degrees of freedom of the standard error.
    """
    return float(stdtrit(freedom, 0.975) / ndtri(0.975))


class TwoWayPaths:
    """Estimates of one log evidence, or of a difference of two, by annealing in both directions, nats.

    | field | meaning |
    |---|---|
    | `forward` | estimates that are low on average |
    | `backward` | estimates that are high on average |
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]

    @property
    def hysteresis(self) -> float:
        """The distance by which backward estimates lie above forward ones on average, nats; at least 0.

        It shrinks as paths get more temperatures.
        """
        return max(0.0, float(np.mean(self.backward) - np.mean(self.forward)))

    @property
    def is_finite(self) -> bool:
        """True if every forward and backward estimate is a finite number."""
        return bool(np.all(np.isfinite([*self.forward, *self.backward])))


@dataclass(frozen=True)
class Bracket(TwoWayPaths):
    """Estimates of log p(data | size) in nats by annealing in both directions, one of each per group of particles.

    | field | meaning |
    |---|---|
    | `forward` | log estimate of each group, annealed from a first distribution q to the posterior: low on average |
    | `backward` | −log of the estimate of 1/p, annealed from where the forward paths ended: high on average |
    | `steps` | number of temperatures of a path |
    | `particles` | number of particles in each half of the groups |
    | `anchor_error` | standard error of q's own evidence where q covers one labelling and one mode only; else None |
    | `hysteresis_share` | share of the hysteresis that counts as standard error, if measured for the path; else None |
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    steps: int
    particles: int
    anchor_error: float | None = None
    hysteresis_share: float | None = None

    @property
    def lower(self) -> float:
        """The log of the average forward estimate of p(data | size) over particle groups, nats.

        The average is unbiased, so its log is a stochastic lower bound.
        """
        return log_sum(self.forward) - math.log(len(self.forward))

    @property
    def upper(self) -> float:
        """The negative log of the average backward estimate of 1 / p(data | size) over particle groups, nats.

        It is a stochastic upper bound if the backward paths began in the posterior.
        """
        return math.log(len(self.backward)) - log_sum(np.negative(self.backward))

    @property
    def estimate(self) -> float:
        """The middle of the mean forward and the mean backward estimate of log p(data | size), nats.

        Near equilibrium both lag by the same amount, which cancels.
        """
        return float(np.mean(self.backward) + np.mean(self.forward)) / 2

    @property
    def standard_error(self) -> float:
        """The standard error of the estimate of log p(data | size), nats.

        It joins the spread of the particle groups, widened for their small number, with the error that all groups
        share.
        """
        return math.hypot(math.sqrt(self.variance) * student_widening(self.freedom), self.common_error)

    @property
    def variance(self) -> float:
        """The part of the variance of the estimate that follows from how the particle groups differ, nats²."""
        return (float(np.var(self.forward)) + float(np.var(self.backward))) / (4 * max(1, len(self.forward) - 1))

    @property
    def freedom(self) -> int:
        """The degrees of freedom of the variance between particle groups: 2 (groups − 1), at least 1."""
        return max(1, 2 * (len(self.forward) - 1))

    @property
    def common_error(self) -> float:
        """The part of the standard error that all particle groups share, nats.

        It is a share of the hysteresis, joined with the error of the first distribution's own evidence if it has one.
        """
        if self.anchor_error is None:
            share = HYSTERESIS_SHARE * min(1.0, math.sqrt(SHARE_STEPS / self.steps))
            return max(share * self.hysteresis, BETWEEN * min(self.hysteresis, NEAR))
        share = ANCHORED_SHARE if self.hysteresis_share is None else self.hysteresis_share
        return math.hypot(share * self.hysteresis, self.anchor_error)


@dataclass(frozen=True)
class Repeats:
    """The values that a noisy function returned at one size, call after call, nats. Their mean is the estimate.

    The standard error is s / √n, widened by Student's 97.5 % point because the spread s is known from few calls.
    """

    values: tuple[float, ...]

    @property
    def steps(self) -> int:
        """The number of calls of the function at this size."""
        return len(self.values)

    @property
    def estimate(self) -> float:
        """The mean of all calls, nats."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """The widened standard error of the mean, nats; infinite after a single call."""
        n = len(self.values)
        if n < 2:
            return math.inf
        return float(np.std(self.values, ddof=1) / math.sqrt(n)) * student_widening(n - 1)

    @property
    def lower(self) -> float:
        """The estimate minus one standard error, nats."""
        return self.estimate - self.standard_error

    @property
    def upper(self) -> float:
        """The estimate plus one standard error, nats."""
        return self.estimate + self.standard_error


@dataclass(frozen=True)
class Pooled:
    """The log evidence of one size from all its brackets or calls together, nats.

    `lower` and `upper` are stochastic bounds; `upper` is NaN where there is none.
    """

    estimate: float
    standard_error: float
    lower: float
    upper: float


FLOOR = 1e-3
"""The smallest standard error of a bracket, in nats; smaller ones are rounding errors and are raised to it."""
ALIKE = 30.0
"""The largest factor between the variances of two brackets at equal work for which their variances are averaged.

Variances that differ by more come from different paths, not from few particle groups. By chance, two variances of six
degrees of freedom each differ by more in one pair of two thousand.
"""


def pooled(brackets: Sequence[Bracket] | Sequence[Repeats]) -> Pooled:
    """Return one estimate of the log evidence of a size from all its brackets (or all calls of a noisy function).

    Calls of a noisy function: the estimate is the mean of all calls.

    Annealed brackets: estimates are averaged with weights 1 / error², where the variance of the particle groups is
    estimated jointly (`_shared_errors`). Stochastic ends are averaged on the scale on which they are unbiased, with
    weights proportional to steps. A bracket whose upper end lies below another's lower end is left out, because its
    backward paths did not begin in the posterior.

    brackets: at least one; all annealed or all repeated calls.
    """
    values = tuple(value for one in brackets if isinstance(one, Repeats) for value in one.values)
    if values:
        calls = Repeats(values)
        return Pooled(calls.estimate, calls.standard_error, calls.lower, calls.upper)
    return _pooled([one for one in brackets if isinstance(one, Bracket)])


def _pooled(brackets: Sequence[Bracket]) -> Pooled:
    """Return one estimate of the log evidence of a size from all its annealed brackets, nats.

    Brackets whose upper end lies below another's lower end by more than 3 nats are left out.
    """
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
    """Return the standard error of each bracket, (brackets,), nats, with variances pooled over similar brackets.

    By itself, a bracket of four groups that happen to agree would outweigh all others with an error far too small. On
    paths of one kind, variance × work (work = temperatures × particles) is about constant. So the product is averaged
    over brackets of one kind (from the prior, or from a fit) that differ by less than the factor `ALIKE`.
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
    """Return True if an estimate lies below a proved lower bound on the same log evidence by more than its error.

    proved_lower: the proved lower bound, nats.
    """
    return proved_lower - found.estimate > found.standard_error


def raised_to_bound(found: Pooled, proved_lower: float) -> Pooled:
    """Return an estimate of log evidence, raised to a proved lower bound where it lies below the bound.

    The lower end is raised too.

    An estimate that lay below the bound by more than its standard error missed the region of the posterior. Its error
    was at least the distance to the bound, so this distance is added to its standard error. An upper end below the
    bound becomes NaN, because its backward paths did not begin in the posterior.

    proved_lower: the proved lower bound, nats.
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
