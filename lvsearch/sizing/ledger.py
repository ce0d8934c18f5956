"""The state of a search as plain data, and pure functions that decide what to do next.

A *trial* is one fit. A *visit* is a size with all its trials, the best of which gives its evidence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from lvsearch.sizing.bracket import Bracket, Pooled, Repeats, contradicts, pooled, raised_to_bound, student_widening
from lvsearch.sizing.evidence import Evidence, Record
from lvsearch.sizing.fit import HeldOutScores
from lvsearch.sizing.gains import PooledGain, SizeGain, evidence_curve, pool_gains
from lvsearch.sizing.sizes import Size, SizePrior

SD_OF_BEST = (1.0, 0.826, 0.748, 0.701, 0.669, 0.645)
"""Standard deviation of the largest of n independent standard normals, for n = 1, 2, …"""
MEAN_OF_BEST = (0.0, 0.564, 0.846, 1.029, 1.163, 1.267)
"""Mean of the largest of n independent standard normals: how much a size with few trials may still rise."""
NEGLIGIBLE = math.log(1000.0)
"""Nats below the best weight at which a size is dropped if errors are small: a thousandth of the best weight."""


@dataclass(frozen=True)
class Trial:
    """One fit of a size, in nats and seconds. `failure` is None unless the fit failed to give a number."""

    start: str
    evidence: Evidence
    log_symmetry: float
    seconds: float
    failure: str | None = None
    brackets: tuple[Bracket, ...] | tuple[Repeats, ...] = ()
    gains: tuple[SizeGain, ...] = ()
    scores: HeldOutScores | None = None

    @property
    def estimate(self) -> float:
        """The number that compares sizes, nats: the annealed evidence, or the lower bound plus the missing
        relabellings.
        """
        return pooled(self.brackets).estimate if self.brackets else self.evidence.lower + self.log_symmetry


@dataclass(frozen=True)
class Visit:
    """A size and its trials. `evidence` is the best trial's, or that of the witness named in `replaced_by`.

    | field | meaning |
    |---|---|
    | `log_symmetry` | log of the number of relabellings that `evidence` leaves out |
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
        """The gain of this size over the next smaller one from all its trials, or None where no trial measured it."""
        measured = [
            (gain, trial.evidence.lower) for trial in self.trials if trial.failure is None for gain in trial.gains
        ]
        return pool_gains(*zip(*measured, strict=True)) if measured else None

    @property
    def log_bound(self) -> float:
        """The highest proved lower end of log p(data | size), relabellings counted, nats."""
        return self.evidence.lower + self.log_symmetry

    @property
    def annealed(self) -> Pooled | None:
        """All brackets (or all calls of a noisy function) pooled; None where there are neither.

        An estimate below a proved bound on the same evidence is raised to the bound (`raised_to_bound`).
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
    def is_contradicted(self) -> bool:
        """Whether the annealed estimate lies below the proved bound by more than its own standard error."""
        brackets = self._brackets
        return bool(brackets) and contradicts(pooled(brackets), self.proved_lower)

    @property
    def _brackets(self) -> list:
        """The brackets (or calls) of all trials that did not fail."""
        return [bracket for trial in self.trials if trial.failure is None for bracket in trial.brackets]

    @property
    def estimate(self) -> float:
        """The evidence that compares this size with others, nats: from gains, else annealed, else the proved bound."""
        if self.from_gains is not None:
            return self.from_gains.estimate
        annealed = self.annealed
        return self.log_bound if annealed is None else annealed.estimate

    @property
    def seconds(self) -> float:
        """The time of all trials together, seconds."""
        return math.fsum(trial.seconds for trial in self.trials)

    @property
    def failed(self) -> bool:
        """Whether no trial gave a number and no witness replaced the evidence."""
        return self.replaced_by is None and all(trial.failure is not None for trial in self.trials)

    @property
    def best_trial(self) -> int:
        """The index of the trial with the highest estimate."""
        return int(np.argmax([trial.estimate for trial in self.trials]))

    def with_trial(self, trial: Trial) -> "Visit":
        """Return the visit with one more trial; its evidence becomes the better of both."""
        better = trial.evidence.lower + trial.log_symmetry > self.evidence.lower + self.log_symmetry
        if trial.failure is None and better:
            return replace(self, trials=(*self.trials, trial), evidence=trial.evidence, log_symmetry=trial.log_symmetry)
        return replace(self, trials=(*self.trials, trial))


def scaled(evidence: Evidence, scale: float) -> Evidence:
    """Return the evidence divided by `scale`, which is what is weighed against the prior."""
    return Evidence(evidence.lower / scale, evidence.upper / scale, evidence.standard_error / scale)


def record_of(visit: Visit, scale: float) -> Record:
    """Return the record that the bounds need of a visit: its size and scaled evidence."""
    return Record(visit.size, scaled(visit.evidence, scale), visit.replaced_by)


def pooled_spread(visits: Sequence[Visit]) -> float:
    """Return the standard deviation of one fit's estimate around the mean of its size, nats, pooled over sizes.

    The value is widened because few fits give it, by Student's 97.5 % point over the normal one. The factor is 6.5 with
    one degree of freedom, 2.2 with two and 1.1 with ten. So three fits that happen to agree do not end a search.

    Where no size has two trials, the roughness of the curve over sizes is used instead. On even steps it is √(mean of
    squared second differences / 6), which equals the standard deviation if the true curve is smooth. With fewer than
    three sizes, or with several size variables, the result is 0.
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
    """Return how far a size's estimate may lie from what the usual number of trials would have given, nats.

    The best of n fits has the standard deviation of the largest of n normals. With fewer trials than usual it also lags
    behind other sizes. The evidence's own standard error (of a function, for instance) is added in quadrature. Annealed
    evidence has its own standard error only. Evidence from gains has the error of its difference to the most probable
    size.

    visit: the size.
    spread: standard deviation of a single fit, from `pooled_spread`, nats.
    usual_trials: number of trials that other sizes have.
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
    """Return the visits whose weight log p(s) + estimate cannot be told from the best one, best first.

    Failed visits and visits of no weight are left out.

    visits: the visited sizes.
    prior: the prior over sizes.
    starts: the usual number of trials of a size.
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
        """Return whether the weight of a size lies within two standard errors (or `NEGLIGIBLE`) of the best weight."""
        reach = max(NEGLIGIBLE, 2.0 * math.hypot(error[size], error[best]))
        return weight[best] - weight[size] <= reach

    return tuple(visit for visit in ranked if close(visit.size))


def enclosed(near: Sequence[Visit], visits: Sequence[Visit]) -> tuple[Visit, ...]:
    """Return visits that are not near the mode but lie between two that are, along one variable; fewest trials first.

    The most likely reason is one unlucky fit. So such a size gets as many trials as its neighbours before it is ruled
    out.
    """
    sizes = {visit.size for visit in near}

    def between(size: Size) -> bool:
        """Return whether sizes near the mode lie on both sides of `size` along one variable."""
        for axis, n in enumerate(size):
            line = [s[axis] for s in sizes if s[:axis] + s[axis + 1 :] == size[:axis] + size[axis + 1 :]]
            if any(m < n for m in line) and any(m > n for m in line):
                return True
        return False

    return tuple(sorted((v for v in visits if v.size not in sizes and between(v.size)), key=lambda v: len(v.trials)))


def bordering(near: Sequence[Visit], visits: Sequence[Visit]) -> tuple[Visit, ...]:
    """Return visits one step from a size near the mode that are not near it themselves, fewest trials first.

    A search ends at these sizes, and each may have ended it by one unlucky fit.
    """
    sizes = {visit.size for visit in near}
    borders = {step for visit in near for step in _steps(visit.size)} - sizes
    return tuple(sorted((v for v in visits if v.size in borders), key=lambda v: len(v.trials)))


def largest_unvisited(max_size: Size, visits: Sequence[Visit]) -> Size | None:
    """Return the unvisited size up to `max_size` with most components in all; None when every size was visited."""
    visited = {visit.size for visit in visits}
    unvisited = (size for size in product(*(range(1, n + 1) for n in max_size)) if size not in visited)
    return max(unvisited, key=lambda size: (sum(size), size), default=None)


def unvisited_neighbour(
    near: Sequence[Visit], visits: Sequence[Visit], prior: SizePrior, max_size: Size | None
) -> Size | None:
    """Return the unvisited size one step from a size near the mode, the nearest to the best one; None when there is
    none.

    Sizes without prior mass are left out, because they cannot be the answer whatever their evidence.
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
    """Return the sizes one step away along each variable in turn; one of their numbers may be 0."""
    return [(*size[:axis], size[axis] + by, *size[axis + 1 :]) for axis in range(len(size)) for by in (-1, 1)]


def with_evidence_from_gains(
    visits: Sequence[Visit], prior: SizePrior, largest: int | None, scale: float = 1.0
) -> tuple[Visit, ...]:
    """Return the visits, each with the evidence that the gains of all sizes give; unchanged where no gain was measured.

    Gains say how sizes differ. The height of the curve is the evidence of size 1 plus the gains between. The whole
    curve is raised where the proved bound of some size would lie above it.

    visits: the visited sizes.
    prior: the prior over sizes.
    largest: the largest size allowed.
    scale: the divisor of the evidence before it is weighed against the prior.
    """
    curve = evidence_curve(visits, largest)
    if curve is None:
        return tuple(visits)
    # While no size in reach has prior mass, errors are those of differences to the largest measured size.
    best = curve.posterior(prior, scale).best[0] if curve.has_mass(prior) else int(curve.measured[-1])
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
