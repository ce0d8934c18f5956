"""Choose the size to try next: first where probability may hide, then where errors of the evidence decide the answer.

1. Discover. Sizes not tried are given the evidence that their neighbours suggest, generously, plus `SLACK` nats. For
    one variable `gaps` does so; for several, `lattice` does so along each line through a notable size. While a gap as a
    whole could hold a thousandth of the probability, its middle is tried. So the ladder 1, 2, 4, … ends where neither
    the prior nor the data go on. This finds the mode of any curve that rises and then falls. It also finds modes that
    stand above both ends of their gap by no more than the slack. For several variables it finds any mode that can be
    reached so by moving one variable at a time, or all at once.
2. Race. Contenders are the sizes that may hold a thousandth of the probability under their standard errors, or do on
    average over these. Before a size is ruled out it gets as many trials as the best size had (minus one). The size
    whose error moves the posterior most is tried again, for longer. This goes on while errors move the posterior by
    more than `TOLERANCE`, and while a quarter of that is due to sizes with trials left.

All functions depend only on what was found, so a search that was interrupted continues as if it had not been.
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
"""The smallest probability that untried sizes must be able to hold for the search to try them."""
SLACK = 3.0
"""Nats by which sizes not tried may be better than their neighbours suggest."""
TOLERANCE = 0.1
"""The search ends when standard errors move the posterior by less: Σ_s p(s) (1 − p(s)) · standard error in nats.

Two sizes with probabilities 0.75 and 0.25 are then known to 0.07. With 0.2 they were known to 0.15, and on a table of
five rows and four columns searches ended there.
"""
UNSETTLED = 2 * TOLERANCE
"""Where errors move the posterior by more than this at the end of a search, its headline says so."""
HOPELESS = 8
"""The search gives up when this many sizes were tried and every one failed."""


def next_size(
    visits: Sequence[Visit],
    prior: SizePrior,
    trials: int,
    max_size: Size | None,
    scale: float = 1.0,
    exhaustive: bool = False,
) -> Size | None:
    """Return the size to try next, for the first time or again; None when the search is done.

    visits: the visited sizes.
    prior: the prior over sizes.
    trials: the largest number of trials (fits with annealing) of one size.
    max_size: the largest size to try, one number per variable, or None.
    scale: the divisor of the evidence before it is weighed against the prior.
    exhaustive: whether every size up to `max_size` is to be visited in the end.
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
    """Estimate the posterior probability of all untried sizes up to `max_size`, from 0 to 1.

    Untried sizes are given the evidence that the tried sizes around them suggest. The estimate shows why the search
    ended; it is not a bound.

    visits: the visited sizes.
    prior: the prior over sizes.
    max_size: the largest size that counts; None for no limit.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
    good = [visit for visit in visits if not visit.failed and visit.estimate > -math.inf]
    if not good:
        return 0.0
    total = log_sum([prior.log_pmf(visit.size) + visit.estimate / scale for visit in good])
    hidden = [mass for _, mass in _hidden(good, visits, prior, max_size, scale, slack=0.0)]
    rest = log_sum(hidden)
    return math.exp(rest - np.logaddexp(rest, total)) if rest > -math.inf else 0.0


def found_so_far(good: Sequence[Visit], prior: SizePrior, scale: float = 1.0) -> EstimatedPosterior:
    """Return the estimated posterior over the sizes tried so far, averaged over the errors of their evidence.

    good: the visited sizes whose log evidence is finite.
    prior: the prior over sizes.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
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
    """Return the untried size that may hold most probability; None if none may hold a thousandth (step 1, discover).

    good: the visited sizes whose log evidence is finite. visits: all visited sizes.
    max_size: the largest size to try; None for no limit.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
    total = log_sum([prior.log_pmf(visit.size) + visit.estimate / scale for visit in good])
    hidden = _hidden(good, visits, prior, max_size, scale, slack=SLACK)
    size, mass = max(hidden, key=lambda each: each[1], default=(None, -math.inf))
    return size if mass > total + math.log(NEGLIGIBLE) or total == -math.inf else None


def _hidden(
    good: Sequence[Visit], visits: Sequence[Visit], prior: SizePrior, max_size: Size | None, scale: float, slack: float
) -> list[tuple[Size, float]]:
    """Return every untried size worth a look, as (size, log of prior × evidence that sizes around it may have, nats).

    good: the visited sizes whose log evidence is finite. visits: all visited sizes.
    max_size: the largest size to try; None for no limit.
    scale: the divisor of the log evidence before it is weighed against the prior.
    slack: nats by which untried sizes may be better than the tried sizes around them suggest.
    """
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
    """Return the visited size to try again; None if errors of the evidence no longer decide the answer (step 2, race).

    good: the visited sizes with finite log evidence and prior mass. trials: the largest number of trials of one size.
    scale: the divisor of the log evidence before it is weighed against the prior.
    """
    found = found_so_far(good, prior, scale)
    visits = {visit.size: visit for visit in good}
    runs = {size: len(visits[size].trials) for size in found.sizes}
    errors = np.array([standard_error(visits[size], 0.0, 1) / scale for size in found.sizes])
    # More trials reduce the error of annealed evidence only; other evidence states its own fixed error.
    sharpens = np.array([visits[size].annealed is not None for size in found.sizes])
    open_ = np.array(
        [runs[size] < trials and errors[row] > 0 and sharpens[row] for row, size in enumerate(found.sizes)]
    )
    contends = (np.maximum(found.probability, found.probability_upper) >= NEGLIGIBLE) & open_
    if not contends.any():
        return None
    # First give contenders as many trials as the best size had, minus one.
    behind = [
        size for size, one in zip(found.sizes, contends, strict=True) if one and runs[size] < runs[found.best] - 1
    ]
    if behind:
        return min(behind, key=lambda size: (runs[size], size))
    # d p(s) / d log weight(s) = p (1 − p): how far each error moves the posterior
    moved = found.probability * (1 - found.probability) * errors
    if moved.sum() <= TOLERANCE or moved[contends].sum() <= TOLERANCE / 4:
        return None
    return found.sizes[int(np.argmax(np.where(contends, moved, -1.0)))]
