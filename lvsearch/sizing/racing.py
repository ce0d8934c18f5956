"""Which size to look at next: where probability may hide, then where errors decide the answer.

1. Discover. Sizes not tried are given the evidence that those around them suggest, generously: beside the best size
   as much as it has, between two others the better of the two, beyond the largest its own and the last gain per unit
   for as far again; `SLACK` nats on top. While all of a gap together could hold a thousandth of the probability, its
   middle is tried. So the ladder 1, 2, 4, … ends where neither the prior nor the data go on, and not before. This finds
   the mode of any curve that rises and then falls, and others that stand above both ends of their gap by no more than
   the slack.
2. Race. Of the sizes that may still hold a thousandth of the probability under their standard errors, or do on average
   over these, none may be told apart by fewer trials than its rivals had; and as long as errors move the posterior by
   more than `TOLERANCE`, and those of sizes with trials left by more than a quarter of it, the size that moves it most
   is tried again, for longer.

Plain functions of what was found: a search that was cut off goes on as if it had not been.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from lvsearch.sizing.ledger import Visit, standard_error, unvisited_neighbour
from lvsearch.sizing.logspace import log_sum
from lvsearch.sizing.posterior import EstimatedPosterior, estimate_posterior
from lvsearch.sizing.sizes import Size, SizePrior

NEGLIGIBLE = 1e-3
"""A probability that is not looked for."""
SLACK = 3.0
"""Nats by which sizes not tried may be better than those around them suggest."""
TOLERANCE = 0.2
"""What standard errors may move the posterior by in the end: Σ_s p(s) (1 − p(s)) · standard error."""
HOPELESS = 8
"""Sizes that may fail, all there are, before nothing more is tried."""
FARTHEST = 1 << 20
"""Beyond this size nothing is looked for."""


def next_size(
    visits: Sequence[Visit],
    prior: SizePrior,
    trials: int,
    max_size: Size | None,
    scale: float = 1.0,
    exhaustive: bool = False,
) -> Size | None:
    """The size to try next, for the first time or again; None when nothing is left to settle.

    trials: the most of one size. max_size: the largest one to try, per variable.
    """
    good = [visit for visit in visits if not visit.failed and visit.estimate > -math.inf]
    if not visits:
        return (1,) * prior.dimension
    if len(visits) >= HOPELESS and all(visit.failed for visit in visits):
        return None
    unseen = _discover(good, visits, prior, max_size, scale)
    if unseen is not None:
        return unseen
    weighted = [visit for visit in good if prior.log_pmf(visit.size) > -math.inf]
    again = _race(weighted, prior, trials, scale) if weighted else None
    if again is not None or not exhaustive or max_size is None:
        return again
    visited = {visit.size for visit in visits}
    rest = [size for size in np.ndindex(*max_size) if tuple(n + 1 for n in size) not in visited]
    return tuple(n + 1 for n in rest[0]) if rest else None


def unvisited_share(visits: Sequence[Visit], prior: SizePrior, max_size: Size | None, scale: float = 1.0) -> float:
    """The probability that sizes not tried, up to `max_size`, would hold if the evidence ran between and beyond those
    tried as in step 1 but without slack: what ended the search, not a bound. One size variable; 0 for several."""
    good = [visit for visit in visits if not visit.failed and visit.estimate > -math.inf]
    if not good or prior.dimension != 1:
        return 0.0
    total = log_sum([prior.log_pmf(visit.size) + visit.estimate / scale for visit in good])
    hidden = [mass for _, mass in _gaps(good, visits, prior, max_size, scale, slack=0.0)]
    rest = log_sum(hidden)
    return math.exp(rest - np.logaddexp(rest, total)) if rest > -math.inf else 0.0


def found_so_far(good: Sequence[Visit], prior: SizePrior, scale: float = 1.0) -> EstimatedPosterior:
    """The posterior over the sizes tried, under their own standard errors."""
    return estimate_posterior(
        [visit.size for visit in good],
        np.array([prior.log_pmf(visit.size) for visit in good]),
        np.array([visit.estimate / scale for visit in good]),
        np.array([standard_error(visit, 0.0, 1) / scale for visit in good]),
    )


# ── discover ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _discover(
    good: Sequence[Visit], visits: Sequence[Visit], prior: SizePrior, max_size: Size | None, scale: float
) -> Size | None:
    if prior.dimension > 1:
        return _discover_in_lattice(good, visits, prior, max_size, scale)
    weights = [prior.log_pmf(visit.size) + visit.estimate / scale for visit in good]
    total = log_sum(weights)
    gaps = _gaps(good, visits, prior, max_size, scale, slack=SLACK)
    size, mass = max(gaps, key=lambda gap: gap[1], default=(None, -math.inf))
    return size if mass > total + math.log(NEGLIGIBLE) or total == -math.inf else None


def _gaps(
    good: Sequence[Visit],
    visits: Sequence[Visit],
    prior: SizePrior,
    max_size: Size | None,
    scale: float,
    slack: float,
) -> list[tuple[Size, float]]:
    """For each run of sizes not tried that have prior mass: (the one to try first, log of what all may weigh)."""
    tried = sorted({visit.size[0] for visit in visits})
    known = {visit.size[0]: visit.estimate / scale for visit in good}
    places = np.array(sorted(known), np.float64)
    best = max(known, key=lambda place: (prior.log_pmf((place,)) + known[place], -place), default=None)
    values = np.array([known[int(place)] for place in places])
    found = []
    for low, high in pairwise(tried):
        inside = np.arange(low + 1, high)
        log_prior = np.array([prior.log_pmf((int(n),)) for n in inside])
        if not np.any(log_prior > -math.inf):
            continue
        ends = [known[n] for n in ((best,) if best in (low, high) else (low, high)) if n in known]
        possible = inside[log_prior > -math.inf]
        middle = int(possible[np.argmin(np.abs(possible - (low + high) / 2))])
        found.append(((middle,), float(log_sum(log_prior) + max(ends, default=-math.inf) + slack)))
    beyond = _beyond(tried[-1], places, values, prior, max_size, slack)
    return found if beyond is None else [*found, beyond]


def _beyond(
    last: int, places: np.ndarray, values: np.ndarray, prior: SizePrior, max_size: Size | None, slack: float
) -> tuple[Size, float] | None:
    end = FARTHEST if max_size is None else max_size[0]
    mass = prior.log_mass((last + 1,))
    if last >= end or mass == -math.inf:
        return None
    reach = min(2 * last, end)
    if prior.log_mass((reach + 1,)) == mass:  # nothing up to there: the next size that has any
        low, high = reach, reach + 1
        while high < end and prior.log_mass((high + 1,)) == mass:
            low, high = high, min(2 * high, end)
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if prior.log_mass((middle + 1,)) == mass else (low, middle)
        if prior.log_pmf((high,)) == -math.inf:
            return None
        reach = high
    while prior.log_pmf((reach,)) == -math.inf and reach > last + 1:
        reach -= 1
    outside = prior.log_mass((end + 1,)) if max_size is not None else -math.inf
    if outside == mass:
        return None
    gain = 0.0
    if len(places) > 1 and places[-1] == last:
        gain = max(0.0, (values[-1] - values[-2]) / (places[-1] - places[-2])) * (reach - last)
    level = values[-1] if len(values) else 0.0
    allowed = mass + math.log1p(-math.exp(outside - mass)) if outside > -math.inf else mass
    return (int(reach),), float(allowed + level + gain + slack)


def _discover_in_lattice(
    good: Sequence[Visit], visits: Sequence[Visit], prior: SizePrior, max_size: Size | None, scale: float
) -> Size | None:
    """Several variables: twice the best size while it is the largest tried, then neighbours of those that count."""
    weighted = [visit for visit in good if prior.log_pmf(visit.size) > -math.inf]
    visited = {visit.size for visit in visits}
    largest = max(visits, key=lambda visit: sum(visit.size)).size
    found = found_so_far(weighted, prior, scale) if weighted else None
    best = largest if found is None else found.best
    doubled = tuple(min(2 * n, m) for n, m in zip(largest, max_size or (FARTHEST,) * len(largest), strict=True))
    if best == largest and doubled not in visited and prior.log_mass(doubled) > -math.inf:
        return doubled
    if found is None:
        return None
    worth = {size for size, high in zip(found.sizes, found.probability_upper, strict=True) if high >= NEGLIGIBLE}
    near = sorted(
        (visit for visit in weighted if visit.size in worth),
        key=lambda visit: -(prior.log_pmf(visit.size) + visit.estimate / scale),
    )
    return unvisited_neighbour(near, visits, prior, max_size)


# ── race ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _race(good: Sequence[Visit], prior: SizePrior, trials: int, scale: float) -> Size | None:
    found = found_so_far(good, prior, scale)
    visits = {visit.size: visit for visit in good}
    runs = {size: len(visits[size].trials) for size in found.sizes}
    errors = np.array([standard_error(visits[size], 0.0, 1) / scale for size in found.sizes])
    sharpens = np.array([visits[size].annealed is not None for size in found.sizes])  # else what it states is all
    open_ = np.array(
        [runs[size] < trials and errors[row] > 0 and sharpens[row] for row, size in enumerate(found.sizes)]
    )
    contends = (np.maximum(found.probability, found.probability_upper) >= NEGLIGIBLE) & open_
    if not contends.any():
        return None
    behind = [
        size for size, one in zip(found.sizes, contends, strict=True) if one and runs[size] < runs[found.best] - 1
    ]
    if behind:
        return min(behind, key=lambda size: (runs[size], size))
    moved = found.probability * (1 - found.probability) * errors
    if moved.sum() <= TOLERANCE or moved[contends].sum() <= TOLERANCE / 4:
        return None
    return found.sizes[int(np.argmax(np.where(contends, moved, -1.0)))]
