"""Which size to look at next: where probability may hide, then where errors decide the answer.

1. Discover. Sizes not tried are given the evidence that those around them suggest, generously (`gaps`; of several
   variables, along each line through a size that counts, `lattice`), `SLACK` nats on top. While all of a gap together
   could hold a thousandth of the probability, its middle is tried. So the ladder 1, 2, 4, … ends where neither the
   prior nor the data go on, and not before. This finds the mode of any curve that rises and then falls, and others that
   stand above both ends of their gap by no more than the slack; of several variables, any that is found so by moving
   one of them at a time, or all at once.
2. Race. Of the sizes that may still hold a thousandth of the probability under their standard errors, or do on average
   over these, none may be told apart by fewer trials than its rivals had; and as long as errors move the posterior by
   more than `TOLERANCE`, and those of sizes with trials left by more than a quarter of it, the size that moves it most
   is tried again, for longer.

Plain functions of what was found: a search that was cut off goes on as if it had not been.
"""

import math
from collections.abc import Sequence

import numpy as np

from lvsearch.sizing.gaps import gaps
from lvsearch.sizing.lattice import hidden_in_lattice
from lvsearch.sizing.ledger import Visit, standard_error
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
    tried as in step 1 but without slack: what ended the search, not a bound."""
    good = [visit for visit in visits if not visit.failed and visit.estimate > -math.inf]
    if not good:
        return 0.0
    total = log_sum([prior.log_pmf(visit.size) + visit.estimate / scale for visit in good])
    hidden = [mass for _, mass in _hidden(good, visits, prior, max_size, scale, slack=0.0)]
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
    total = log_sum([prior.log_pmf(visit.size) + visit.estimate / scale for visit in good])
    hidden = _hidden(good, visits, prior, max_size, scale, slack=SLACK)
    size, mass = max(hidden, key=lambda each: each[1], default=(None, -math.inf))
    return size if mass > total + math.log(NEGLIGIBLE) or total == -math.inf else None


def _hidden(
    good: Sequence[Visit], visits: Sequence[Visit], prior: SizePrior, max_size: Size | None, scale: float, slack: float
) -> list[tuple[Size, float]]:
    """(the size to try first, log of what it and others not tried with it may weigh) wherever there are any."""
    known = {visit.size: visit.estimate / scale for visit in good}
    tried = sorted({visit.size for visit in visits})
    if prior.dimension == 1:
        end = None if max_size is None else max_size[0]
        one = gaps([n for (n,) in tried], {n: value for (n,), value in known.items()}, prior, end, slack)
        return [((gap.size,), gap.log_weight) for gap in one]
    weighted = [visit for visit in good if prior.log_pmf(visit.size) > -math.inf]
    counting = tried[:1]
    if weighted:
        found = found_so_far(weighted, prior, scale)
        ranked = sorted(zip(found.sizes, found.probability_upper.tolist(), strict=True), key=lambda each: -each[1])
        counting = [size for size, high in ranked if high >= NEGLIGIBLE or size == found.best]
    return [
        (hidden.size, hidden.log_weight) for hidden in hidden_in_lattice(tried, known, counting, prior, max_size, slack)
    ]


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
