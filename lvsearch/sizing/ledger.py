"""The records of the sizes that a search tried, and pure functions that read errors and candidate sizes from them.

A *trial* is one fit. A *visit* is a size with all its trials, the best of which gives its evidence. From the visits,
functions here compute

- the error of each size's log evidence (`pooled_spread`, `standard_error`, `with_evidence_from_gains`),
- the sizes that cannot be told from the best (`near_mode`), and
- for the mean-field bound, sizes that deserve another fit or a first one (`visits_between`, `visits_beside`,
  `unvisited_neighbour`, `largest_unvisited`).

Nothing here picks the next fit or ends a search: `searching.controller.next_task` does, by these lists or, for other
kinds of evidence, by the rules of `racing` and `gains`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from lvsearch.sizing.evidence import (
    Bracket,
    Evidence,
    Pooled,
    Record,
    Repeats,
    pooled,
    raised_to_bound,
    student_widening,
)
from lvsearch.sizing.fit import Estimated, HeldOutScores
from lvsearch.sizing.gains import PooledGain, SizeGain, evidence_curve, pool_gains
from lvsearch.sizing.sizes import Size, SizePrior

SD_OF_BEST = (1.0, 0.826, 0.748, 0.701, 0.669, 0.645)
"""Standard deviation of the largest of n independent standard normals, for n = 1, 2, …"""
MEAN_OF_BEST = (0.0, 0.564, 0.846, 1.029, 1.163, 1.267)
"""Mean of the largest of n independent standard normals: how much a size with few trials may still rise."""
NEGLIGIBLE = math.log(1000.0)
"""Nats below the best weight at which a size is dropped if errors are small: a thousandth of the best weight."""


@dataclass(frozen=True)
class Trial(Estimated):
    """The record of one fit of a size, without the fitted model.

    | field | meaning |
    |---|---|
    | `start` | how the fit began, such as "scratch" |
    | `evidence` | proved interval on log p(data | size), nats |
    | `log_symmetry` | log of the number of equivalent relabellings that `evidence` leaves out |
    | `seconds` | the time of the fit |
    | `failure` | the reason why the fit failed to give a number; None if it succeeded |
    | `brackets` | estimates of log evidence with errors, from annealing or a noisy function's calls |
    | `gains` | measured log evidence over that of the next smaller size |
    | `scores` | scores of held-out units; None if there are none |
    | `bend` | the size at which the log likelihood bent while components were removed; None if at none |
    """

    start: str
    evidence: Evidence
    log_symmetry: float
    seconds: float
    failure: str | None = None
    brackets: tuple[Bracket, ...] | tuple[Repeats, ...] = ()
    gains: tuple[SizeGain, ...] = ()
    scores: HeldOutScores | None = None
    bend: int | None = None


@dataclass(frozen=True)
class Visit:
    """The record of one size that a search tried, with all its trials (fits).

    | field | meaning |
    |---|---|
    | `size` | one number per size variable |
    | `trials` | the fits of the size, in order |
    | `evidence` | proved interval of the best trial, nats, or of the smaller size (witness) named in `replaced_by` |
    | `log_symmetry` | log of the number of relabellings that `evidence` leaves out |
    | `replaced_by` | the smaller size whose better evidence was recorded instead; None if there is none |
    | `log_lower`, `log_upper` | proved bounds on log p(data) when the size was first recorded, on the search's scale |
    | `from_gains` | evidence from the gains of all sizes together (`with_evidence_from_gains`), or None |

    For nested evidence, the proved bounds are of the fitted parameters. The scale of the search is nats, or nats per
    token if so asked. Differences of `from_gains` between sizes were measured, and its height is at least that of every
    proved bound.
    """

    size: Size
    trials: tuple[Trial, ...]
    evidence: Evidence
    log_symmetry: float
    replaced_by: Size | None
    log_lower: float
    log_upper: float
    from_gains: PooledGain | None = None

    @property
    def gain(self) -> PooledGain | None:
        """The gain of log evidence over the next smaller size, from all trials, nats; None if no trial measured it."""
        measured = [
            (gain, trial.evidence.lower) for trial in self.trials if trial.failure is None for gain in trial.gains
        ]
        return pool_gains(*zip(*measured, strict=True)) if measured else None

    @property
    def bends(self) -> tuple[int, ...]:
        """The sizes at which the log likelihood bent while components were removed from a larger fit."""
        return tuple(trial.bend for trial in self.trials if trial.bend is not None)

    @property
    def log_bound(self) -> float:
        """The highest proved lower end of log p(data | size), nats, with relabellings of components counted."""
        return self.evidence.lower + self.log_symmetry

    @cached_property
    def annealed(self) -> Pooled | None:
        """The estimate of the log evidence from all annealings (or calls of a noisy function), nats; None without any.

        An estimate below a proved bound on the same evidence is raised to the bound.
        """
        brackets = self._brackets
        if not brackets:
            return None
        return raised_to_bound(pooled(brackets), self.proved_lower)

    @property
    def proved_lower(self) -> float:
        """A proved lower end of the log evidence of this size, nats: the bound of the best fit, without relabellings.

        It is −inf for a noisy function, about which nothing is proved.
        """
        noisy = any(isinstance(one, Repeats) for one in self._brackets)
        return -math.inf if noisy else self.evidence.lower

    @property
    def _brackets(self) -> list:
        """The annealing brackets (or calls of a noisy function) of all trials that did not fail."""
        return [bracket for trial in self.trials if trial.failure is None for bracket in trial.brackets]

    @property
    def estimate(self) -> float:
        """The log evidence by which this size is compared with others, nats.

        It comes from gains between sizes, else from annealing, else it is the proved bound.
        """
        if self.from_gains is not None:
            return self.from_gains.estimate
        annealed = self.annealed
        return self.log_bound if annealed is None else annealed.estimate

    @property
    def seconds(self) -> float:
        """The time of all trials (fits) of this size together, in seconds."""
        return math.fsum(trial.seconds for trial in self.trials)

    @property
    def failed(self) -> bool:
        """True if no trial gave a number and no smaller size (witness) replaced the evidence."""
        return self.replaced_by is None and all(trial.failure is not None for trial in self.trials)

    def with_trial(self, trial: Trial) -> "Visit":
        """Return a copy of the record with one more trial (fit); the evidence becomes the better of both."""
        better = trial.evidence.lower + trial.log_symmetry > self.evidence.lower + self.log_symmetry
        if trial.failure is None and better:
            return replace(self, trials=(*self.trials, trial), evidence=trial.evidence, log_symmetry=trial.log_symmetry)
        return replace(self, trials=(*self.trials, trial))


def scale_evidence(evidence: Evidence, scale: float) -> Evidence:
    """Return the evidence with both ends and the error divided by `scale`; the result is weighed against the prior.

    scale: 1, or the number of tokens if evidence is weighed per token.
    """
    return Evidence(evidence.lower / scale, evidence.upper / scale, evidence.standard_error / scale)


def record_of(visit: Visit, scale: float) -> Record:
    """Return the size and the evidence of a visit as a `Record`, from which bounds are computed.

    scale: the divisor of the log evidence: 1, or the number of tokens.
    """
    return Record(visit.size, scale_evidence(visit.evidence, scale), visit.replaced_by)


def pooled_spread(visits: Sequence[Visit]) -> float:
    """Return the standard deviation of the log evidence of one fit around the mean of its size, nats, over all sizes.

    The value is widened because few fits give it, by Student's 97.5 % point over the normal one. The factor is 6.5 with
    one degree of freedom, 2.2 with two and 1.1 with ten. So three fits that happen to agree do not end a search.

    Where no size has two trials (fits), the roughness of the curve over sizes is used instead. On even steps it is
    √(mean of squared second differences / 6), which equals the standard deviation if the true curve is smooth. With
    fewer than three sizes, or with several size variables, the result is 0.

    visits: the sizes that the search tried.
    """
    squares, freedom = 0.0, 0
    for visit in visits:
        good = [trial.estimate for trial in visit.trials if trial.failure is None and trial.estimate > -math.inf]
        if len(good) > 1:
            squares += float(np.var(good)) * len(good)
            freedom += len(good) - 1
    if freedom:
        return math.sqrt(squares / freedom) * student_widening(freedom)
    if len(visits) < 3 or len(visits[0].size) != 1:
        return 0.0
    ordered = sorted(visits, key=lambda visit: visit.size)
    x = np.array([visit.size[0] for visit in ordered], float)
    y = np.array([visit.estimate for visit in ordered])
    good = np.isfinite(y)
    x, y = x[good], y[good]
    if len(x) < 3:
        return 0.0
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    off = y[1:-1] - (1 - share) * y[:-2] - share * y[2:]
    return math.sqrt(float(np.mean(off**2 / (1 + share**2 + (1 - share) ** 2)))) * student_widening(len(off))


def standard_error(visit: Visit, spread: float, usual_trials: int) -> float:
    """Return the standard error of a size's log evidence, nats: its distance from the result of the usual fits.

    The best of n fits has the standard deviation of the largest of n normals. With fewer trials than usual it also lags
    behind other sizes. The evidence's own standard error (of a function, for instance) is added in quadrature. Annealed
    evidence has its own standard error only. Evidence from gains has the error of its difference to the most probable
    size.

    visit: the size with its fits.
    spread: standard deviation of the log evidence of a single fit, from `pooled_spread`, nats.
    usual_trials: the number of trials (fits) that other sizes have.
    """
    if visit.from_gains is not None:
        return visit.from_gains.standard_error
    if visit.annealed is not None:
        return visit.annealed.standard_error
    good = max(1, sum(trial.failure is None for trial in visit.trials))
    n = min(good, len(SD_OF_BEST)) - 1
    usual = min(usual_trials, len(MEAN_OF_BEST)) - 1
    lag = max(0.0, MEAN_OF_BEST[usual] - MEAN_OF_BEST[n])
    return float(np.sqrt((SD_OF_BEST[n] ** 2 + lag**2) * spread**2 + visit.evidence.standard_error**2))


def near_mode(
    visits: Sequence[Visit], prior: SizePrior, starts: int, scale: float, repeatable: bool
) -> tuple[Visit, ...]:
    """Return the visited sizes whose log prior plus log evidence cannot be told from the best one, best first.

    Failed sizes and sizes of no prior mass are left out.

    visits: the visited sizes.
    prior: the prior over sizes.
    starts: the usual number of trials (fits) of a size.
    scale: the divisor of the evidence before it is weighed against the prior.
    repeatable: whether another trial can come out differently. If not, the only errors are those that fits state
        themselves.
    """
    good = [visit for visit in visits if not visit.failed and prior.log_pmf(visit.size) + visit.estimate > -math.inf]
    if not good:
        return ()
    spread = pooled_spread(good) if repeatable else 0.0
    weight = {visit.size: prior.log_pmf(visit.size) + visit.estimate / scale for visit in good}
    error = {visit.size: standard_error(visit, spread, starts) / scale for visit in good}
    ranked = sorted(good, key=lambda visit: (-weight[visit.size], visit.size))
    best = ranked[0].size

    def close(size: Size) -> bool:
        """Return True if a size's log prior plus evidence is little below that of the best size.

        The limit, in nats, is log 1000 or two standard errors of the difference, whichever is larger.
        """
        reach = max(NEGLIGIBLE, 2.0 * math.hypot(error[size], error[best]))
        return bool(weight[best] - weight[size] <= reach)

    return tuple(visit for visit in ranked if close(visit.size))


def visits_between(near: Sequence[Visit], visits: Sequence[Visit]) -> tuple[Visit, ...]:
    """Return visited sizes that lie between two sizes near the mode along one variable, but are not near it themselves.

    The most likely reason is one unlucky fit. So such a size gets as many trials (fits) as its neighbours before it is
    ruled out.

    near: the sizes near the mode, which cannot be told from the best one. visits: all visited sizes.

    Returns the sizes with the fewest trials first.
    """
    sizes = {visit.size for visit in near}

    def between(size: Size) -> bool:
        """Return True if sizes near the mode lie on both sides of `size` along one variable."""
        for axis, n in enumerate(size):
            line = [s[axis] for s in sizes if s[:axis] + s[axis + 1 :] == size[:axis] + size[axis + 1 :]]
            if any(m < n for m in line) and any(m > n for m in line):
                return True
        return False

    return tuple(sorted((v for v in visits if v.size not in sizes and between(v.size)), key=lambda v: len(v.trials)))


def visits_beside(near: Sequence[Visit], visits: Sequence[Visit]) -> tuple[Visit, ...]:
    """Return visited sizes just outside the sizes near the mode, that is, one step away along one variable.

    A search ends at these sizes, and each may have ended it by one unlucky fit.

    near: the sizes near the mode, which cannot be told from the best one. visits: all visited sizes.

    Returns the sizes with the fewest trials (fits) first.
    """
    sizes = {visit.size for visit in near}
    borders = {step for visit in near for step in _steps(visit.size)} - sizes
    return tuple(sorted((v for v in visits if v.size in borders), key=lambda v: len(v.trials)))


def largest_unvisited(max_size: Size, visits: Sequence[Visit], first: Size) -> Size | None:
    """Return the unvisited size up to `max_size` with most components in all; None when every size was visited.

    max_size: the largest size, one number per size variable. visits: the sizes that the search tried.
    first: the smallest size.
    """
    visited = {visit.size for visit in visits}
    every = product(*(range(least, most + 1) for least, most in zip(first, max_size, strict=True)))
    unvisited = (size for size in every if size not in visited)
    return max(unvisited, key=lambda size: (sum(size), size), default=None)


def unvisited_neighbour(
    near: Sequence[Visit], visits: Sequence[Visit], prior: SizePrior, max_size: Size | None
) -> Size | None:
    """Return the unvisited size next to a size near the mode that is nearest to the best size; None if there is none.

    Sizes without prior mass are left out, because they cannot be the answer whatever their evidence.

    near: the sizes near the mode, which cannot be told from the best one, best first. visits: all visited sizes.
    prior: the prior over sizes.
    max_size: the largest size to try; None for no limit.
    """
    if not near:
        return None
    visited = {visit.size for visit in visits}
    best = near[0].size
    open_steps = [
        step
        for visit in near
        for step in _steps(visit.size)
        if min(step) >= 1
        and step not in visited
        and (max_size is None or all(map(int.__le__, step, max_size)))
        and prior.log_pmf(step) > -math.inf
    ]
    return min(
        open_steps,
        key=lambda step: (sum(abs(a - b) for a, b in zip(step, best, strict=True)), sum(step), step),
        default=None,
    )


def _steps(size: Size) -> list[Size]:
    """Return the sizes that differ from `size` by −1 or +1 in one size variable; a number of theirs may be 0."""
    return [(*size[:axis], size[axis] + by, *size[axis + 1 :]) for axis in range(len(size)) for by in (-1, 1)]


def with_evidence_from_gains(
    visits: Sequence[Visit], prior: SizePrior, largest: int | None, scale: float = 1.0
) -> tuple[Visit, ...]:
    """Return the visited sizes with their log evidence from the gains of all sizes; unchanged if no gain was measured.

    A gain is the log evidence of a size minus that of the next smaller size. The evidence of a size is that of size 1
    plus the gains in between. All are raised by one number where the proved bound of some size would lie above.

    visits: the visited sizes.
    prior: the prior over sizes.
    largest: the largest size allowed; None for no limit.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
    curve = evidence_curve(visits, largest)
    if curve is None:
        return tuple(visits)
    # While no size in reach has prior mass, errors are those of differences to the largest measured size.
    best = curve.answer(prior, scale).best if curve.has_mass(prior) else int(curve.measured[-1])
    relative, errors = curve.relative_to(best)
    heights = [visit.log_bound - relative[visit.size[0] - 1] for visit in visits if not visit.failed]
    heights += [visit.annealed.estimate - relative[0] for visit in visits if visit.size == (1,) and visit.annealed]
    return tuple(
        replace(
            visit,
            from_gains=PooledGain(max(heights) + float(relative[visit.size[0] - 1]), float(errors[visit.size[0] - 1])),
        )
        for visit in visits
    )
