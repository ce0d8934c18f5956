"""The posterior over sizes from measured gains of one more component.

A gain is log p(data | k) − log p(data | k − 1), measured at some sizes k. Sums of gains are logarithms of ratios of
evidences, so gains at all sizes give the evidence of every size relative to every other. On data of many units a gain
is known to tens of nats where the evidence itself is known to thousands, because only two components differ between its
two ends.

It is assumed, and printed, that gains fall as sizes grow. Sizes between two measured ones need a rule. Gains may lie on
a smooth curve about the size where they end (`smooth_gains`). If they do not, half of the draws fall evenly in log k,
and the other half at one random place between the two sizes. Below the smallest measured size and beyond the largest
one, gains are equal to the nearest measured one. But where the smallest measured size loses, nothing is known of where
gains end below it: draws change their sign at a random place there.

It is not assumed that every chain was in the best mode. A chain in a poor mode shows a gain that is too small. Such a
chain has one component twice, or two in one, and giving back a duplicate component costs nothing. So a size that may
gain nothing, below a larger size that surely gains, contradicts the assumption. That size is measured again, and left
out while the contradiction lasts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import chdtri, ndtr, ndtri, stdtrit

from lvsearch.sizing.evidence import TwoWayPaths
from lvsearch.sizing.posterior import TOGETHER, EstimatedPosterior, antithetic_errors, softmax
from lvsearch.sizing.sizes import SizePrior

PATH_SHARE = 0.1
"""The standard error of a gain from paths that do not end quite in the middle, as a share of the two ends' distance.

Measured on a planted corpus (116,000 tokens, 20 topics, the 32nd topic). With 30, 60, 120, 240 and 480 temperatures the
middle was −183, −162, −163, −162 and −162 nats, and the distance 199, 123, 77, 65 and 32. So 30 temperatures are off by
a tenth of their distance, and longer paths by less. Paths of several components are off by less too: on Cora (128
topics, the last ten) paths of 24 and of 60 temperatures gave 24, 21 and 23, 22 nats a component, at distances of 145
and 97.
"""
FIT_SHARE = 0.17
"""The standard error of one component's gain because fits differ, as a share of the distance of the path's two ends.

Another fit of the same size lies in another mode, whose gain differs, and the paths of one fit do not show it. On Cora
the gains of seven sizes between 91 and 256 topics lay about a smooth curve by 0.21 of their distances (root mean
square), with the part that comes from the paths (`PATH_SHARE`). The error of a mean over m components is divided by √m.
Later fits, which began with half as many topics again, differ about as much as is stated, or less: gains of four
searches with 128 topics (the last 21) had a standard deviation of 4 nats where 7 to 9 are stated; with 256 topics (the
last 42) 2 nats where 2 are stated.
"""
COMMON_SHARE = 0.3
"""The share of the variance of gains' errors that all sizes have in common: the two directions may lag unequally."""
CONTRADICTED = 3.0
"""Standard errors by which a gain may lie below that of a larger size before it contradicts falling gains."""
THINNING = 4
"""Only every fourth of the posterior's draws is used, because each draw is a row of possibly hundreds of sizes."""
STRETCH, FEWEST_ON_A_CURVE = 2.5, 3
"""A smooth curve is fitted to gains within the factor `STRETCH` of the size where gains change their sign.

At least `FEWEST_ON_A_CURVE` gains are needed. A test simulates whole searches, with errors as stated and half as large
again, and counts how often ranges hold the best size. On abstracts on nematodes four gains within a factor of two gave
256 topics, and three within 2.5 gave 254 after two thirds of the work.
"""
CURVE_POWERS = (-1, 0, 1, 2, 3)
"""The powers p of 1/size in which gains may be a straight line: size itself, log size, 1/size, 1/size², 1/size³.

Near the end, gains of Cora lie on a line in 1/size and those of news articles between lines in 1/size² and 1/size³.
"""
MOST_SCATTER = 3.0
"""The number of stated errors by which gains may scatter about a smooth curve that is known to less than a nat.

If they scatter by more, the curve is rejected there, because gains are known well enough without one. Three gains that
scatter by more show no curve either: of three planted topics the second gained 287, the third 225, and a fourth lost
15, with errors of 0.5 to 3. Everywhere else the curve stays: fits of one size lie in different modes, whose gains
differ by more than is stated. On news articles four fits of 200 topics gained −20, −37, −9 and −15 nats, with errors of
3 to 6.
"""
LEAST_BETTER = 4.0
"""The least difference between the misfits of two levels and of a curve for one of them to count as clearly better.

A misfit is a sum of squared residuals, each divided by the error that the gain does not share with the others. If two
levels are clearly better, there is no curve. If the curve is, gains do not end abruptly. Without this margin, two
levels took the place of a curve in one of ten simulated searches with fading gains.
"""
PAST_THE_END = 1.2
"""The next size is 1.2 times the size where gains seem to end: at least 1.2, at most 2 times the largest measured."""
BEYOND = 2
"""Sizes up to this multiple of the largest measured size are given a probability.

If that size surely gains, nothing is known of larger ones, and sizes up to it are given one. A search goes on then; one
that is stopped says that the evidence still rises.
"""


@dataclass(frozen=True)
class SizeGain(TwoWayPaths):
    """One measurement of a gain, log p(data | size) − log p(data | size − m), annealed in both directions, nats.

    | field | meaning |
    |---|---|
    | `forward` | one estimate per path from the smaller size: low on average |
    | `backward` | one estimate per path from the larger size: high on average |
    | `temperatures` | number of sweeps of each path |
    | `sizes` | m: how far the two sizes are apart |
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    temperatures: int
    sizes: int = 1

    @property
    def estimate(self) -> float:
        """The gain of one component, averaged over the m last: the middle of the mean forward and backward estimates.

        It is in nats. Where gains fall evenly, it is the gain at the middle of the m sizes.
        """
        return float(np.mean(self.forward) + np.mean(self.backward)) / (2 * self.sizes)

    @property
    def distance(self) -> float:
        """The nats a component by which the backward paths end above the forward ones on average; at least 0."""
        return self.hysteresis / self.sizes

    @property
    def standard_error(self) -> float:
        """The standard error of `estimate`, nats.

        It joins the spread of the paths, widened for few paths, with two shares of the distance of the two directions:
        for paths that do not end quite in the middle, and for other fits of the same size.
        """
        n = len(self.forward)
        middles = (np.array(self.forward) + np.array(self.backward)) / (2 * self.sizes)
        spread = float(np.std(middles, ddof=1) / math.sqrt(n)) if n > 1 else 0.0
        widened = spread * float(stdtrit(max(1, n - 1), 0.84) / ndtri(0.84))  # few paths: Student's one-sigma point
        return math.hypot(widened, math.hypot(PATH_SHARE, FIT_SHARE) * self.distance / math.sqrt(self.sizes))


@dataclass(frozen=True)
class PooledGain:
    """The gain of one component from all measurements at a size: log evidence and its error, nats.

    `sizes`: over how many sizes, the last of which is this one, the gain is an average.
    """

    estimate: float
    standard_error: float
    sizes: float = 1.0


def pool_gains(gains: Sequence[SizeGain], log_bounds: Sequence[float]) -> PooledGain:
    """Return one estimate of a gain from several measurements, which began from different fits.

    Fits with a lower bound are in poorer modes. So only those measurements count whose fit has the best proved bound,
    or one below it by no more than the standard error of the best fit's gain. Weights are the numbers of temperatures.
    Weights from errors would favour measurements that look exact by chance.

    gains: at least one measurement.
    log_bounds: the proved lower end of log p(data | size) of each measurement's fit, nats.
    """
    best = max(range(len(gains)), key=lambda index: log_bounds[index])
    reach = gains[best].standard_error
    good = [gain for gain, bound in zip(gains, log_bounds, strict=True) if bound >= log_bounds[best] - reach]
    estimates, errors = (np.array([getattr(gain, name) for gain in good]) for name in ("estimate", "standard_error"))
    weights = np.array([float(gain.temperatures) for gain in good])
    weights /= weights.sum()
    mean = float(weights @ estimates)
    within = math.sqrt(float(weights**2 @ errors**2))
    n = len(good)
    between = math.sqrt(float(weights @ (estimates - mean) ** 2) / (n - 1)) if n > 1 else 0.0
    return PooledGain(mean, max(within, between), float(weights @ np.array([gain.sizes for gain in good])))


@runtime_checkable
class MeasuredSize(Protocol):
    """The interface of a size that a search tried: size, measured gain, proved bound, and bends."""

    @property
    def size(self) -> tuple[int, ...]:
        """The size, one number per size variable."""
        ...

    @property
    def gain(self) -> PooledGain | None:
        """The gain of log evidence of one component, from all measurements; None if it was not measured."""
        ...

    @property
    def log_bound(self) -> float:
        """The highest proved lower end of log p(data | size), nats."""
        ...

    @property
    def bends(self) -> tuple[int, ...]:
        """The sizes at which the log likelihood bent while components were removed from a larger fit."""
        ...


@dataclass(frozen=True)
class EvidenceCurve:
    """The log evidence of the sizes 1, 2, … relative to each other, from gains measured at some of them.

    | field | shape | meaning |
    |---|---|---|
    | `measured` | (measured,) | sizes whose gain was measured, in increasing order |
    | `middles` | (measured,) | the middle of the sizes over which each gain is an average |
    | `gains`, `errors` | (measured,) | what one component more gains in log evidence, and standard errors, nats |
    | `contradicted` | (measured,) | whether a gain lies too far below that of a larger size, and is left out |
    | `end` | | the largest size that is given a probability |
    """

    measured: Int[np.ndarray, " measured"]
    middles: Float[np.ndarray, " measured"]
    gains: Float[np.ndarray, " measured"]
    errors: Float[np.ndarray, " measured"]
    contradicted: Bool[np.ndarray, " measured"]
    end: int

    @cached_property
    def log_evidence_draws(self) -> Float[np.ndarray, "draws end"]:
        """Draws of log p(data | size k) − log p(data | size 1) for k = 1 … end, (draws, end), in nats.

        The seed of the draws is fixed.
        """
        (nodes, drawn), sizes = self._interpolated_gains(), np.arange(2, self.end + 1)
        gains = np.empty((len(drawn), len(sizes)))
        # Where the smallest measured size loses, gains end at an unknown place below it, drawn evenly in log k.
        ends_at = nodes[0] ** np.random.default_rng(2).random((len(drawn), 1))
        below, first = sizes[sizes <= nodes[0]], drawn[:, :1]
        gains[:, : len(below)] = np.where(below <= ends_at, np.abs(first), first)
        gains[:, sizes > nodes[-1]] = drawn[:, -1:]
        # Between two measured sizes: even draws fall evenly in log k; odd draws fall at one uniformly drawn place,
        # unless gains lie on a smooth curve.
        where = np.random.default_rng(1).random((len(drawn), len(nodes)))
        evenly = ((np.arange(len(drawn)) % 2 == 0) | (self.smooth is not None))[:, None]
        for index, (low, high) in enumerate(pairwise(nodes.tolist())):
            inside = (sizes > low) & (sizes <= high)
            share = np.log(sizes[inside] / low) / math.log(high / low)
            fallen = np.where(evenly, share, (share >= 1) | (share > where[:, index, None]))
            gains[:, inside] = drawn[:, index, None] + (drawn[:, index + 1] - drawn[:, index])[:, None] * fallen
        if self.smooth is not None:
            inside = (sizes >= self.smooth.first) & (sizes <= self.smooth.last)
            gains[:, inside] = self.smooth.draws(sizes[inside], len(drawn))
        return np.concatenate([np.zeros((len(drawn), 1)), np.cumsum(gains, axis=1)], axis=1)

    @cached_property
    def smooth(self) -> "SmoothGains | None":
        """The smooth curve through the gains near the size where they change sign; None if they do not lie on one."""
        keep = ~self.contradicted
        return smooth_gains(self.middles[keep], self.gains[keep], self.errors[keep])

    @property
    def fades(self) -> bool:
        """True if gains fade along a smooth curve, which fits clearly better than two levels do."""
        return self.smooth is not None and not self.smooth.may_end_abruptly

    def _interpolated_gains(self) -> tuple[Int[np.ndarray, " node"], Float[np.ndarray, "draws node"]]:
        """Return the sizes between which gains are interpolated, rising, and draws of the gains there, in nats.

        These are the measured sizes. Where gains lie on a smooth curve, its two ends take the place of the sizes
        between them, so that gains go on from the curve without a jump. With a jump, draws that still gain at the
        curve's end would all have their highest evidence at that one size.
        """
        keep = ~self.contradicted
        nodes, drawn = self.measured[keep], self._falling_draws()
        if self.smooth is None:
            return nodes, drawn
        ends = np.array([self.smooth.first, self.smooth.last])
        below, above = nodes < ends[0], self.middles[keep] > ends[1]
        beyond, gains_beyond = nodes[above], drawn[:, above]
        if not above.any():  # a little beyond the curve the last gain counts by itself
            beyond, gains_beyond = np.array([math.ceil(PAST_THE_END * ends[1])]), drawn[:, -1:]
        on_curve = self.smooth.draws(ends, len(drawn))
        nodes = np.concatenate([nodes[below], ends, beyond])
        return nodes, np.concatenate([drawn[:, below], on_curve, gains_beyond], axis=1)

    def _falling_draws(self) -> Float[np.ndarray, "draws node"]:
        """Draw the measured gains under their errors, (draws, gains), nats, and make every draw fall with the size.

        Gains that are contradicted are left out.
        """
        keep = ~self.contradicted
        gains, errors = self.gains[keep], np.maximum(self.errors[keep], 1e-3)
        normal = antithetic_errors(len(gains) + 1)[::THINNING]
        common, own = normal[:, :1], normal[:, 1:]  # the first column is the error that all gains share
        drawn = gains + errors * (math.sqrt(COMMON_SHARE) * common + math.sqrt(1 - COMMON_SHARE) * own)
        return fit_falling(drawn, errors**-2.0)

    def relative_to(self, best: int) -> tuple[Float[np.ndarray, " end"], Float[np.ndarray, " end"]]:
        """Return log p(data | size k) − log p(data | size `best`) for k = 1 … end, and its standard error.

        Both arrays are (end,), in nats.
        """
        relative = self.log_evidence_draws - self.log_evidence_draws[:, best - 1 : best]
        return relative.mean(axis=0), relative.std(axis=0)

    def posterior(self, prior: SizePrior, scale: float = 1.0) -> EstimatedPosterior:
        """Return the posterior over the sizes 1 … end, averaged over the errors of the gains.

        The field `indistinguishable` of the result reaches from the smallest to the largest of the most probable sizes
        that hold 95 % together.

        prior: the prior over sizes.
        scale: the divisor of the log evidence before it is weighed against the prior.

        Raises ValueError where the prior gives no mass to any of the sizes.
        """
        probability = self._probability_draws(prior, scale)
        low, high = np.quantile(probability, [0.05, 0.95], axis=0)
        found = _answer_of(probability.mean(axis=0))
        return EstimatedPosterior(
            sizes=tuple((k,) for k in range(1, self.end + 1)),
            probability=probability.mean(axis=0),
            probability_lower=low,
            probability_upper=high,
            best=(found.best,),
            indistinguishable=tuple(
                (k,) for k in range(found.first, found.last + 1) if prior.log_pmf((k,)) > -math.inf
            ),
        )

    def has_mass(self, prior: SizePrior) -> bool:
        """Return True if the prior gives a positive probability to any of the sizes 1 … end."""
        return prior.log_box((1,), (self.end + 1,)) > -math.inf

    def answer(self, prior: SizePrior, scale: float = 1.0) -> "SizeAnswer":
        """Return the most probable size, and the range of the most probable sizes that hold 95 % together.

        scale: the divisor of the log evidence before it is weighed against the prior.

        Raises ValueError where the prior gives no mass to any of the sizes 1 … end.
        """
        return _answer_of(self._probability_draws(prior, scale).mean(axis=0))

    def _probability_draws(self, prior: SizePrior, scale: float) -> Float[np.ndarray, "draws end"]:
        """Return the posterior over the sizes 1 … end for each draw of the evidence, (draws, end); rows sum to 1.

        scale: the divisor of the log evidence before it is weighed against the prior.

        Raises ValueError where the prior gives no mass to any of the sizes.
        """
        log_prior = np.array([prior.log_pmf((k,)) for k in range(1, self.end + 1)])
        if log_prior.max() == -math.inf:
            raise ValueError("The prior gives no mass to any size up to the largest measured: change the prior.")
        return softmax(self.log_evidence_draws / scale + log_prior)


class SizeAnswer(NamedTuple):
    """The most probable size, and the smallest and the largest of the most probable sizes that hold 95 %."""

    best: int
    first: int
    last: int


def _answer_of(probability: Float[np.ndarray, " end"]) -> SizeAnswer:
    """Return the most probable size and the range of the most probable sizes that hold 95 % together.

    probability: of the sizes 1, 2, …, summing to 1.
    """
    downwards = np.argsort(-probability, kind="stable")
    needed = int(np.searchsorted(np.cumsum(probability[downwards]), TOGETHER * (1 - 1e-12))) + 1
    likely = downwards[:needed] + 1
    return SizeAnswer(int(likely[0]), int(likely.min()), int(likely.max()))


@dataclass(frozen=True)
class SmoothGains:
    """A smooth curve of gains over sizes, fitted to measured gains by weighted least squares.

    A gain is the log evidence of a size minus that of the next smaller size. The curve is a straight line in a power of
    the size. Gains of some corpora lie on a line in 1/size, those of others on one in 1/size², so the power is not
    known, and draws are averaged over several (`CURVE_POWERS`).

    | field | shape | meaning |
    |---|---|---|
    | `first`, `last`, `number` | | ends of the range, and the number of gains measured in it |
    | `ends_at` | | the size that the powers are relative to |
    | `probability` | (power,) | of each power in `CURVE_POWERS`, given the gains; sums to 1 |
    | `coefficients` | (power, 2) | level and slope of each line, nats |
    | `covariance` | (power, 2, 2) | covariance of the errors of the two coefficients, nats² |
    | `common_error` | | standard error that all gains have in common, nats |
    | `freedom` | | number of gains beyond level, slope and power, at least 2: how well their scatter is known |
    | `may_end_abruptly` | | whether two levels, one up to some size and one beyond, fit about as well as the curve |
    """

    first: int
    last: int
    number: int
    ends_at: float
    probability: Float[np.ndarray, " power"]
    coefficients: Float[np.ndarray, "power two"]
    covariance: Float[np.ndarray, "power two two"]
    common_error: float
    freedom: int
    may_end_abruptly: bool

    def draws(self, sizes: Int[np.ndarray, " size"], number: int) -> Float[np.ndarray, "draws size"]:
        """Draw `number` curves of gains at the given sizes under the errors of the fit, from a fixed seed.

        Errors of the coefficients have Student's distribution, because they are known from a few gains' scatter.

        Returns gains in nats, (number, sizes).
        """
        normal = antithetic_errors(5)[:: len(antithetic_errors(1)) // number]
        common, scatter, power = normal[:, :1], ndtr(normal[:, 1:2]), ndtr(normal[:, 2])
        student = normal[:, 3:] / np.sqrt(chdtri(self.freedom, scatter) / self.freedom)
        chosen = np.minimum(np.searchsorted(np.cumsum(self.probability), power), len(self.probability) - 1)
        roots = np.linalg.cholesky(self.covariance)[chosen]
        lines = self.coefficients[chosen] + np.einsum("dij,dj->di", roots, student)
        curves = np.einsum("di,dsi->ds", lines, _lines(sizes / self.ends_at)[chosen])
        return curves + self.common_error * common


def smooth_gains(
    measured: Float[np.ndarray, " measured"],
    gains: Float[np.ndarray, " measured"],
    errors: Float[np.ndarray, " measured"],
) -> SmoothGains | None:
    """Fit a smooth curve through the gains near the size where they change their sign from + to −.

    A gain is the log evidence of a size minus that of the next smaller size.

    The curve is a straight line in a power of the size. Only sizes within a factor of 2.5 of the sign change take part.

    measured: the measured sizes, in increasing order; of gains that are averages, the middles of their sizes.
    gains, errors: their gains and standard errors, nats.

    Returns None where gains do not change their sign, where too few lie near the change, or where they do not lie on
    such a curve: where they end abruptly (`_misfit_of_two_levels`), or scatter too much (`MOST_SCATTER`). Then only
    falling gains are assumed.
    """
    # the size where the falling fit of the gains crosses 0, by linear interpolation in log size
    level = fit_falling(gains[None], np.maximum(errors, 1e-3) ** -2.0)[0]
    if not (level[0] > 0 > level[-1]):
        return None
    above = int(np.flatnonzero(level > 0)[-1])
    low, high = (math.log(measured[index]) for index in (above, above + 1))
    ends_at = math.exp(low + (high - low) * level[above] / (level[above] - level[above + 1]))
    near = (measured >= ends_at / STRETCH) & (measured <= ends_at * STRETCH)
    number = int(near.sum())
    if number < FEWEST_ON_A_CURVE:
        return None
    # weighted least squares for each power, with each gain's own error; the error that all gains share is kept apart
    lines = _lines(measured[near] / ends_at)
    own = np.maximum(errors[near], 1e-3) * math.sqrt(1 - COMMON_SHARE)
    weighted = lines / own[:, None]
    covariance = np.linalg.inv(np.swapaxes(weighted, 1, 2) @ weighted)
    coefficients = np.einsum("pij,psj,s->pi", covariance, weighted, gains[near] / own)
    residuals = gains[near] - np.einsum("psi,pi->ps", lines, coefficients)
    misfits = ((residuals / own) ** 2).sum(axis=1)
    # Errors are as large as the scatter about the best line says, since a gain holds for the mode of its fit alone.
    best, freedom = int(misfits.argmin()), max(2, number - 3)
    misfit = float(misfits[best])
    spread = max(1.0, misfit / freedom)
    probability = softmax(-misfits[None] / (2 * spread))[0]
    scatter = math.sqrt(float((residuals[best] ** 2).sum()) / freedom)
    more = _misfit_of_two_levels(gains[near], own) - misfit
    scatters = spread > MOST_SCATTER**2
    if (scatters and (scatter < 1 or number == FEWEST_ON_A_CURVE)) or more < -LEAST_BETTER:
        return None
    common = math.sqrt(COMMON_SHARE) * float(np.median(errors[near]))
    first, last = math.ceil(measured[near][0]), math.ceil(measured[near][-1])
    return SmoothGains(
        first,
        last,
        number,
        ends_at,
        probability,
        coefficients,
        covariance * spread,
        common,
        freedom,
        more < LEAST_BETTER,
    )


def _misfit_of_two_levels(gains: Float[np.ndarray, " measured"], errors: Float[np.ndarray, " measured"]) -> float:
    """Return the misfit of the best two levels: one level up to some size, another beyond it.

    The misfit is the sum of squared residuals, each divided by its error. Where gains end abruptly, it is clearly less
    than the misfit of a curve. In 2 of 33 planted corpora a curve was accepted although gains ended abruptly: 300 nats
    up to the planted number, and −60 beyond, with errors of 60. The 95 % ranges were 30–61 for 35 topics, and 35–61 for
    38. With 35 topics two levels had a sixth of the curve's misfit. On abstracts on nematodes, whose gains fade, two
    levels had at least four times the curve's misfit.

    gains, errors: by increasing size, nats.
    """
    return min(
        _misfit_of_level(gains[:index], errors[:index]) + _misfit_of_level(gains[index:], errors[index:])
        for index in range(1, len(gains))
    )


def _misfit_of_level(gains: Float[np.ndarray, " gain"], errors: Float[np.ndarray, " gain"]) -> float:
    """Return the sum of squares of gains minus their weighted mean, each divided by its error."""
    return float((((gains - np.average(gains, weights=errors**-2.0)) / errors) ** 2).sum())


def _lines(sizes: Float[np.ndarray, " size"]) -> Float[np.ndarray, "power size two"]:
    """Return the columns 1 and (1 − size^−p)/p of a least-squares fit for each power p of `CURVE_POWERS`.

    For p = 0 the second column is the logarithm, the limit of the others. Every column falls to 0 at size 1 with the
    same slope, so lines of different powers have coefficients of the same order.

    sizes: divided by the size where gains end.
    """
    logs = np.log(sizes)
    columns = [logs if power == 0 else -np.expm1(-power * logs) / power for power in CURVE_POWERS]
    return np.stack([np.stack([np.ones_like(logs), column], axis=1) for column in columns])


def fit_falling(
    rows: Float[np.ndarray, "draws node"], weights: Float[np.ndarray, " node"]
) -> Float[np.ndarray, "draws node"]:
    """Return for each row the nearest row of numbers that never rise, by weighted least squares.

    The i-th number is min_{a ≤ i} max_{b ≥ i} of the weighted average from a to b. Rows are many and short, so averages
    of all rows are computed at once.

    rows: the numbers to fit, (draws, columns).
    weights: the weight of each column in the least squares, (columns,).

    Source: Barlow et al. 1972, isotonic regression in its min-max form.
    """
    n = rows.shape[1]
    total = np.concatenate([[0.0], np.cumsum(weights)])
    sums = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows * weights, axis=1)], axis=1)
    lowest = np.full(rows.shape, np.inf)
    for first in range(n):
        averages = (sums[:, first + 1 :] - sums[:, first : first + 1]) / (total[first + 1 :] - total[first])
        # the largest average from `first` to i or beyond, for every i at once
        highest = np.maximum.accumulate(averages[:, ::-1], axis=1)[:, ::-1]
        lowest[:, first:] = np.minimum(lowest[:, first:], highest)
    return lowest


def evidence_curve(visits: Sequence[MeasuredSize], largest: int | None = None) -> EvidenceCurve | None:
    """Return the log evidence of all sizes relative to each other, from measured gains; None if none was measured.

    visits: the sizes that the search tried, with their gains.
    largest: the largest size allowed; None for no limit.
    """
    known = sorted((visit.size[0], visit.gain) for visit in visits if visit.gain is not None)
    if not known:
        return None
    measured = np.array([size for size, _ in known])
    gains = np.array([gain.estimate for _, gain in known])
    errors = np.array([gain.standard_error for _, gain in known])
    middles = np.array([size - (gain.sizes - 1) / 2 for size, gain in known])
    surely_rises = gains[-1] > SURE * errors[-1]
    end = (1 if surely_rises else BEYOND) * int(measured[-1])
    return EvidenceCurve(
        measured,
        middles,
        gains,
        errors,
        _contradicted(gains, errors),
        end if largest is None else max(min(end, largest), int(measured[-1])),
    )


def _contradicted(gains: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return True for each gain that contradicts the assumption that gains fall as sizes grow, (gains,).

    Such a gain is not surely positive, and lies more than three standard errors (`CONTRADICTED`) below the surely
    positive gain of a larger size. Only then does a fit in a poor mode change the answer. Losses beyond the size where
    gains end need not fall. Nor need sure gains: a planted corpus of five topics of unequal size gave 9,134 nats for
    the fourth topic, 9,375 for the fifth.

    gains, errors: measured gains and their standard errors by increasing size, nats.
    """
    found = np.zeros(len(gains), bool)
    highest = len(gains) - 1
    for index in range(len(gains) - 2, -1, -1):
        below = gains[highest] - gains[index]
        gains_beyond = gains[highest] > SURE * errors[highest]
        gains_here = gains[index] > SURE * errors[index]
        apart = below > CONTRADICTED * math.hypot(errors[index], errors[highest])
        found[index] = gains_beyond and not gains_here and apart
        if not found[index] and gains[index] > gains[highest]:
            highest = index
    return found


# ── which size next ─────────────────────────────────────────────────────────────────────────────────────────────────

PRECISION, SMOOTH_PRECISION = 0.1, 0.25
"""How wide the 95 % range may be in the end, as a share of the most probable size.

`PRECISION` applies where gains end abruptly. `SMOOTH_PRECISION` applies where they fade: then the size is known less
well however long one measures.
"""
SURE = 2.0
"""Standard errors by which a gain must differ from 0 to count as surely positive or negative.

No larger size is tried once the gain of the largest measured one is surely negative.
"""
ENOUGH_ON_A_CURVE, MOST_ON_A_CURVE = 9, 18
"""Once 9 sizes lie on a smooth curve, no new size is measured. Once they have 18 measurements together, none is.

Until then a size on the curve is measured again, with longer paths, while the 95 % range is too wide and two levels fit
about as well as the curve. The reason is a planted corpus of 36 topics, each worth 100 to 200 nats with errors of 70 to
90. Nine sizes lay about a curve, and the range was still 24–63.
"""
FARTHEST = 1 << 14
"""The largest size that is ever looked at, where neither the prior nor a limit ends before."""
LOOKS = 2
"""The least number of fits of the most probable size and of the next larger one, where these were measured and gains
do not surely fade along a smooth curve.
"""


@dataclass(frozen=True)
class NextSize:
    """The size whose gain to measure next, with the reason in words for people.

    `begins_from`: the larger size, measured before, from whose fit the first fit of this size begins; None: from
        nothing.
    """

    size: int
    reason: str
    begins_from: int | None = None


def next_measured(
    visits: Sequence[MeasuredSize],
    trials: dict[int, int],
    prior: SizePrior,
    most_trials: int,
    largest: int | None,
    *,
    first: int,
) -> NextSize | None:
    """Return the size whose gain to measure next, with the reason, or None when the search is done.

    A gain is the log evidence of a size minus that of the next smaller size.

    The search is done when the answer is as narrow as asked, when no size is left to measure, or when enough is known
    of a smooth curve (`ENOUGH_ON_A_CURVE`). First it tries larger and larger sizes until one surely loses, or two in a
    row have negative estimates; smaller ones if the smallest does not surely gain. Sizes that contradict falling gains
    are repeated. Then it halves the stretch between a sure gain and a sure loss, or measures inside the widest stretch
    of unmeasured sizes within the 95 % range, until that range is narrow. Last it repeats the sizes whose gains decide
    the answer.

    Gains probably end where the log likelihood bent while components were removed from a larger fit
    (`MeasuredSize.bends`). That size and the next larger one are preferred to twice a size and to the middle of two. A
    bend only decides which sizes are measured.

    A size below all measured ones, and one at a bend below a size that surely loses, begins from the fit of the larger
    size: removing surplus topics from it was measured to end in better modes than beginning with 1.5 times the size. Of
    2.4 million words with 40 planted topics, bounds of fits of 41 were −21,319 thousand nats from 62 and −21,295 from
    64 that came from 96. Where gains fade, every fit begins from nothing, so that their scatter shows how fits differ.

    visits: the sizes that the search tried, with their gains.
    trials: the number of trials (measurements) of each size tried, {size: trials}.
    prior: the prior over sizes.
    most_trials: the largest number of trials of one size.
    largest: the largest size allowed, or None.
    first: the first size whose gain is measured.
    """
    limit, least = _largest_with_mass(prior, largest), prior.first[0] + 1  # the first size of all has no gain
    if limit < least:
        return None
    curve = evidence_curve(visits, largest)
    if curve is None:
        begin = max(first, least)
        return _untried([min(begin, limit), min(2 * begin, limit), least], trials, "the first gain")
    high, low = int(curve.measured[-1]), int(curve.measured[0])
    still_gains = curve.gains[-1] > -SURE * curve.errors[-1]
    ended = len(curve.gains) > 1 and curve.gains[-2:].max() < 0  # two estimates in a row are losses
    if not curve.has_mass(prior):
        further = _untried([min(2 * high, limit)], trials, "the prior allows larger sizes alone")
        if further is not None:
            return further
    elif still_gains and not ended and high < limit:
        larger = [*_sizes_at_bends(visits, high, 2 * high), _next_larger_size(curve), 2 * high]
        larger = [min(size, limit) for size in larger]
        further = _untried(larger, trials, "the largest size tried may still gain")
        if further is not None:
            return further
    if curve.gains[0] < SURE * curve.errors[0] and low > least:
        smaller = _untried(
            _sizes_below(visits, low, least), trials, "the smallest size tried gains nothing", begins_from=low
        )
        return smaller or _size_to_repeat(curve, trials, most_trials, curve.answer(prior))
    for size in curve.measured[curve.contradicted].tolist():
        if trials[size] < most_trials:
            return NextSize(size, "a larger size gains more")
    answer = curve.answer(prior)
    best, low_end, high_end = answer
    sharp = None if curve.fades else _size_inside_sign_change(curve, visits)
    if sharp is not None:
        return sharp
    is_wide = high_end - low_end > _widest_range(curve) * best
    if curve.smooth is not None and curve.smooth.number >= ENOUGH_ON_A_CURVE:
        # More sizes would not reduce the error that all share. Longer measurements do, and may show an abrupt end.
        on_curve = (np.ceil(curve.middles) >= curve.smooth.first) & (np.ceil(curve.middles) <= curve.smooth.last)
        made = sum(trials[size] for size in curve.measured[on_curve].tolist())
        if not (is_wide and curve.smooth.may_end_abruptly) or made >= MOST_ON_A_CURVE:
            return None
        return _least_certain_sign(curve, trials, most_trials, low_end, high_end)
    if is_wide:
        places = [least - 1, *curve.measured.tolist()]
        stretches = [
            (math.log(above / below), round(math.sqrt(above * below)))
            for below, above in pairwise(places)
            if above - below > 1 and above > low_end and below <= high_end
        ]
        widest = max(stretches, default=None)
        if widest is not None and widest[0] > PRECISION / 2:
            middle = _untried([widest[1]], trials, "sizes not measured decide")
            if middle is not None:
                return middle
    return _size_to_repeat(curve, trials, most_trials, answer)


def _next_larger_size(curve: EvidenceCurve) -> int:
    """Return the next larger size to measure: twice the largest measured size, or less where gains are about to end.

    Where the last two gains fall surely, a straight line in 1/size through them says where gains end. Gains of real
    text lie nearly on such a line: from 60 and 120 topics it ends at 151 to 156 on Cora and at 163 on news articles,
    where gains end at 166 and 178. Where the last gain is a loss that is not sure, the next size is a little larger. A
    short step saves time, because a fit of twice the size takes more than twice as long.

    curve: the gains measured so far.
    """
    high = int(curve.measured[-1])
    ends_at = math.inf
    if curve.gains[-1] < 0:
        ends_at = high
    elif len(curve.gains) > 1:
        fall, error = float(curve.gains[-2] - curve.gains[-1]), math.hypot(*curve.errors[-2:])
        if fall > SURE * error:
            below, above = curve.middles[-2:].tolist()
            reciprocal = 1 / above - (1 / below - 1 / above) * float(curve.gains[-1]) / fall
            ends_at = 1 / reciprocal if reciprocal > 0 else math.inf
    return math.ceil(min(PAST_THE_END * max(high, ends_at), 2 * high))


def _sizes_at_bends(visits: Sequence[MeasuredSize], first: int, last: int) -> list[int]:
    """Return the bends from `first` up to below `last`, the one seen last first; for a bend at `first`, first + 1.

    visits: the sizes that the search tried, with their bends.
    first, last: sizes. Those returned are larger than `first`, and smaller than `last`.
    """
    seen = [bend for visit in reversed(visits) for bend in reversed(visit.bends)]
    return [max(bend, first + 1) for bend in seen if first <= bend < last - (bend == first)]


def _sizes_below(visits: Sequence[MeasuredSize], low: int, least: int) -> list[int]:
    """Return sizes below the smallest measured one, which gains nothing, in the order in which to try them.

    They are the bends below it, the one seen last first, and at last half of it. Where a size at a bend, or above one,
    gained nothing, steps down from the lowest bend grow: by 1, by 2 further, by 4 further.

    visits: the sizes that the search tried, with their bends.
    low: the smallest measured size. least: the smallest size that has a gain.
    """
    half = max(least, low // 2)
    seen = [bend for visit in reversed(visits) for bend in reversed(visit.bends)]
    steps = [2 * low - bend - 1 for bend in seen if bend >= low]
    near = [*(bend for bend in seen if bend < low), *([max(steps)] if steps else [])]
    return [*(size for size in near if size > half), half]


def _size_inside_sign_change(curve: EvidenceCurve, visits: Sequence[MeasuredSize]) -> NextSize | None:
    """Return an unmeasured size between two measured ones, of which the smaller surely gains and the larger surely
    loses.

    It is a size at a bend, or one above it, or else the middle: halving finds the size where gains end. Returns None
    where no size lies between two such sizes, or where the middle was measured and contradicts the assumption of
    falling gains.

    curve: the gains measured so far. visits: the sizes that the search tried.
    """
    sure = np.abs(curve.gains) > SURE * curve.errors
    for low, high in pairwise(np.flatnonzero(~curve.contradicted).tolist()):
        first, second = int(curve.measured[low]), int(curve.measured[high])
        if sure[low] and sure[high] and curve.gains[low] > 0 > curve.gains[high] and second - first > 1:
            middle, reason = round(math.sqrt(first * second)), "gains change their sign in between"
            bent = [size for size in _sizes_at_bends(visits, first, second) if size not in curve.measured]
            if bent:
                return NextSize(bent[0], reason, begins_from=second)
            # a middle that was measured was contradicted
            return None if middle in curve.measured else NextSize(middle, reason)
    return None


def _size_to_repeat(
    curve: EvidenceCurve, trials: dict[int, int], most_trials: int, answer: SizeAnswer
) -> NextSize | None:
    """Return the size whose gain to measure again, or None if errors no longer decide the answer.

    The most probable size and the next larger one come first, where they were measured, unless gains fade along a
    smooth curve and cannot end abruptly: there the gains of other sizes show whether a fit lies in a poor mode. Then
    comes the gain within the 95 % range whose sign is least certain.

    curve: the gains measured so far.
    trials: the number of measurements of each size tried, {size: trials}. most_trials: the largest number allowed.
    answer: the most probable size and the 95 % range.
    """
    best, first, last = answer
    beside = [int(size) for size in curve.measured if size in (best, best + 1)]
    for size in [] if curve.fades else beside:
        if trials[size] < min(LOOKS, most_trials):
            return NextSize(size, "a second fit beside the answer")
    if last - first <= _widest_range(curve) * best:
        return None
    return _least_certain_sign(curve, trials, most_trials, first, last)


def _least_certain_sign(
    curve: EvidenceCurve, trials: dict[int, int], most_trials: int, first: int, last: int
) -> NextSize | None:
    """Return the size whose gain is nearest to 0 in its errors, so that its sign is least certain, to measure it again.

    Returns None if no size qualifies.

    curve: the gains measured so far.
    trials: the number of measurements of each size tried, {size: trials}.
    most_trials: the largest number of measurements of one size.
    first, last: the ends of the 95 % range. The gain of `last` + 1 counts too, since it decides where the range ends.
    """
    inside = [
        (abs(gain) / error, int(size))
        for size, gain, error in zip(curve.measured, curve.gains, curve.errors, strict=True)
        if first <= size <= last + 1 and trials[int(size)] < most_trials
    ]
    return None if not inside else NextSize(min(inside)[1], "its error decides")


def _widest_range(curve: EvidenceCurve) -> float:
    """Return how wide the 95 % range may be in the end, as a share of the most probable size.

    It is `PRECISION`, or 2.5 times as much where gains lie on a smooth curve.
    """
    return PRECISION if curve.smooth is None else SMOOTH_PRECISION


def _untried(
    sizes: Sequence[int], trials: dict[int, int], reason: str, begins_from: int | None = None
) -> NextSize | None:
    """Return the first of `sizes` that was never tried, with the given reason; None when all were tried.

    trials: the number of trials of each size tried, {size: trials}.
    begins_from: as of `NextSize`.
    """
    return next((NextSize(size, reason, begins_from) for size in sizes if size not in trials), None)


def _largest_with_mass(prior: SizePrior, largest: int | None) -> int:
    """Return the largest size to try: the limit `largest`, or the largest size with prior mass if that is smaller.

    Without a limit, sizes up to 16,384 (`FARTHEST`) are tried.
    """
    low, high = 1, (FARTHEST if largest is None else largest) + 1
    while high - low > 1:  # `low` has mass at or beyond it, `high` has none or is beyond the limit
        middle = (low + high) // 2
        low, high = (middle, high) if prior.log_mass((middle,)) > -math.inf else (low, middle)
    return low
