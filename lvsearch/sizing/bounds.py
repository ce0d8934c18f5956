"""Bounds on the log evidence over all sizes, log p(y) = log Σ_s p(s) p(y | s).

Every size that the search visited contributes an interval. All unvisited sizes together contribute one more interval.
Two types of bounds differ in that last interval:

    Certified      no assumption: unvisited sizes lie between their best witness (Proposition 1, nested models) and the
    ceiling
    Diminishing    unvisited sizes are at most what a printed assumption allows; never above `Certified`

Unvisited sizes are cut into disjoint boxes for that (`unvisited`), each with its best witness: the visited smaller size
with most evidence.

The two types rest on different assumptions, so comparing one with the other (order or equality) raises TypeError.

Where models are nested, the evidence of a size is p(y | s, θ_s) at the parameters θ_s of its fit. Every sum here is
over these fitted parameters. Nothing is proved about the best parameters of a size: an optimiser may have missed them
by any number of nats without a sign. The property `basis` puts this into words, and every display of an interval shows
it.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from lvsearch.sizing.evidence import Record
from lvsearch.sizing.logspace import log_sum, log_times
from lvsearch.sizing.sizes import OpenSize, Size, SizePrior

# ── unvisited sizes, cut into boxes ───────────────────────────────────────────────────────────────────────────────────


class Region(NamedTuple):
    """A box of unvisited sizes t, with lower ≤ t < upper in every variable, that have the same possible witnesses.

    A witness is a visited size that is no larger in any variable. None in `upper` means no end.
    """

    lower: Size
    upper: OpenSize
    log_mass: float  # lower end of the box's log prior mass, nats; −inf where only an upper end is known
    log_mass_upper: float  # upper end of the log prior mass, nats; never −inf
    witness: Size  # the visited size w ⪯ t with the highest lower end of evidence
    log_witness: float  # lower end of the witness's log evidence, nats


class Unvisited(NamedTuple):
    """All boxes of unvisited sizes with prior mass, and a smallest set of witnesses for them.

    A witness is a visited smaller size. Each box finds a witness with the best evidence in the set.
    """

    regions: tuple[Region, ...]
    witnesses: tuple[Size, ...]  # in the order in which they were generated


def unvisited(
    generated: Sequence[Size],
    evidence: Sequence[float],
    log_box: Callable[[Size, OpenSize], float],
    log_box_upper: Callable[[Size, OpenSize], float] | None = None,
) -> Unvisited:
    """Return the unvisited sizes, cut into disjoint boxes, with a witness (best visited smaller size) for each box.

    A size precedes another if none of its numbers is larger. The distinct coordinates of the visited sizes G cut the
    positive integers into a grid of cells. Every size t in a cell is preceded by the same members of G, namely those
    that precede the cell's lower corner, and only that corner can itself be in G. So the complement of G is a disjoint
    union of whole cells and of cells without their corner. The latter fall into one box per axis. No
    inclusion–exclusion and no subtraction of masses is needed.

    generated: the visited sizes, which must contain (1, …, 1).
    evidence: lower end of the log evidence of each, nats.
    log_box: function of (lower, upper) that returns the prior's log-mass of a box. Boxes without mass are left out.
    log_box_upper: function that returns an upper end of that mass, where the mass is only bounded.
    """
    points = np.array(generated, dtype=np.int64)
    axes = [np.unique(points[:, axis]) for axis in range(points.shape[1])]
    # the grid of cells: cell [i, j, …] begins at the i-th, j-th, … distinct coordinate
    where = tuple(np.searchsorted(axis, points[:, i]) for i, axis in enumerate(axes))
    visited = np.zeros([axis.size for axis in axes], dtype=bool)
    visited[where] = True
    boxes = [
        (cell, lower, upper, most)
        for cell, lower, upper in _boxes(axes, visited)
        if (most := (log_box_upper or log_box)(lower, upper)) > -math.inf
    ]
    if not boxes:
        return Unvisited((), ())
    # candidates for the witness of a cell: visited sizes that precede it and have the best evidence of these
    cells = np.array(sorted({cell for cell, _, _, _ in boxes}), dtype=np.int64)
    scores = np.array(evidence, dtype=np.float64)
    best = _best_preceding(visited.shape, where, scores)[tuple(cells.T)]
    precedes = np.all(np.stack(where, axis=1)[:, None, :] <= cells[None, :, :], axis=2)
    optimal = precedes & (scores[:, None] == best[None, :])
    kept = _prune(optimal, points)
    witness_of_cell = {
        tuple(cell): int(np.flatnonzero(optimal[:, column] & kept)[0]) for column, cell in enumerate(cells.tolist())
    }
    regions = tuple(
        Region(
            lower,
            upper,
            log_box(lower, upper),
            most,
            generated[witness_of_cell[cell]],
            float(scores[witness_of_cell[cell]]),
        )
        for cell, lower, upper, most in boxes
    )
    return Unvisited(regions, tuple(generated[index] for index in np.flatnonzero(kept).tolist()))


def _boxes(
    axes: Sequence[Int[np.ndarray, " _"]], visited: Bool[np.ndarray, " ..."]
) -> Iterator[tuple[Size, Size, OpenSize]]:
    """Yield (cell index, lower corner, upper end) of every box of unvisited sizes in the grid.

    A cell whose lower corner is visited is cut into one box per axis, which leave the corner out.

    axes: the distinct coordinates of the visited sizes along each variable, rising.
    visited: True for cells whose lower corner is visited, one axis per variable.
    """
    starts = [axis.tolist() for axis in axes]
    ends = [[*axis[1:], None] for axis in starts]
    for cell in product(*(range(len(axis)) for axis in starts)):
        corner = tuple(start[i] for start, i in zip(starts, cell, strict=True))
        upper = tuple(end[i] for end, i in zip(ends, cell, strict=True))
        if not visited[cell]:
            yield cell, corner, upper
            continue
        # Sizes equal to the corner before `axis`, beyond it on `axis`, and free after it: disjoint over axes.
        for axis in range(len(corner)):
            beyond = corner[axis] + 1
            end = upper[axis]
            if end is None or beyond < end:
                at_corner = tuple(part + 1 for part in corner[:axis])
                yield cell, (*corner[:axis], beyond, *corner[axis + 1 :]), (*at_corner, *upper[axis:])


def _best_preceding(
    shape: tuple[int, ...], where: tuple[Int[np.ndarray, " generated"], ...], scores: Float[np.ndarray, " generated"]
) -> Float[np.ndarray, " ..."]:
    """Return for each cell of the grid the highest score of the visited sizes that precede its lower corner.

    shape: of the grid of cells.
    where: the cell index of each visited size along each variable.
    scores: the lower end of the log evidence of each visited size, nats.
    """
    best = np.full(shape, -math.inf)
    best[where] = scores
    for axis in range(len(shape)):
        best = np.maximum.accumulate(best, axis=axis)
    return best


def _prune(
    optimal: Bool[np.ndarray, "generated cells"], points: Int[np.ndarray, "generated dimension"]
) -> Bool[np.ndarray, " generated"]:
    """Return True for each visited size that stays a witness, after dropping the ones that no cell needs, (generated,).

    A size is dropped if each of its cells keeps another optimal witness. The smallest size is dropped first, so that
    under ties a size gives way to larger ones and the search moves on.

    optimal: True where a visited size is a best witness of a cell.
    points: the visited sizes.
    """
    kept = np.asarray(optimal.any(axis=1))
    count = np.asarray(optimal.sum(axis=0))
    for index in np.lexsort((*points.T[::-1], points.sum(axis=1))).tolist():
        if kept[index] and bool(np.all(count[optimal[index]] > 1)):
            kept[index] = False
            count = count - optimal[index]
    return kept


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


OF_FITS = "of these fits"
NOT_OF_SIZES = "not of the best parameters of a size"


@dataclass(frozen=True, eq=False)
class Bounds(ABC):
    """Intervals for the log prior × evidence of every size, and so for log p(y) = log Σ_s p(s) p(y | s), in nats.

    Tuples follow `sizes`, the visited sizes in increasing (lexicographic) order. The comments say what each field is.
    """

    sizes: tuple[Size, ...]
    log_prior: tuple[float, ...]  # log p(s)
    evidence_lower: tuple[float, ...]  # ≤ log p(y | s, θ_s)
    evidence_upper: tuple[float, ...]  # ≥ log p(y | s, θ_s)
    log_unvisited_prior: float  # log H, the prior mass outside `sizes`
    unvisited_lower: float  # ≤ log Σ_{t ∉ sizes} p(t) p(y | t)
    unvisited_upper: float  # ≥ log Σ_{t ∉ sizes} p(t) p(y | t)
    of_fits: bool  # evidence is p(y | s, θ_s) at fitted parameters θ_s: nothing is proved of better ones

    @property
    def kind(self) -> str:
        """The kind of the bounds: "certified" (proved) or "diminishing" (they assume diminishing gains)."""
        return type(self).__name__.lower()

    @property
    @abstractmethod
    def basis(self) -> str:
        """A phrase for people that says what the bounds rest on, and whether they hold for fitted parameters only."""

    @property
    def weights_lower(self) -> Float[np.ndarray, " sizes"]:
        """The lower end of log p(s) p(y | s), log prior plus log evidence, of each visited size, (sizes,), nats."""
        return np.array([log_times(*pair) for pair in zip(self.log_prior, self.evidence_lower, strict=True)])

    @property
    def weights_upper(self) -> Float[np.ndarray, " sizes"]:
        """The upper end of log p(s) p(y | s), log prior plus log evidence, of each visited size, (sizes,), nats."""
        return np.array([log_times(*pair) for pair in zip(self.log_prior, self.evidence_upper, strict=True)])

    @property
    def log_lower(self) -> float:
        """The lower end of log p(y), the log of the evidence averaged over all sizes by their prior, nats."""
        return log_sum([*self.weights_lower, self.unvisited_lower])

    @property
    def log_upper(self) -> float:
        """The upper end of log p(y), the log of the evidence averaged over all sizes by their prior, nats."""
        return log_sum([*self.weights_upper, self.unvisited_upper])

    @property
    def width(self) -> float:
        """The width of the interval of log p(y), nats; 0 where both ends say that the data are impossible."""
        return 0.0 if self.log_upper == self.log_lower else self.log_upper - self.log_lower

    def __eq__(self, other: object) -> bool:
        """Return True if two bounds of the same type are equal. Raises TypeError for bounds of different types."""
        if not isinstance(other, Bounds):
            return NotImplemented
        if type(other) is not type(self):
            raise TypeError(
                f"{type(self).__name__} and {type(other).__name__} bounds rest on different assumptions "
                "and are not comparable; compare two of one kind."
            )
        return astuple(self) == astuple(other)

    def __hash__(self) -> int:
        """Return a hash of the type, the sizes and their evidence."""
        return hash((type(self).__name__, self.sizes, self.evidence_lower))

    def _interval(self) -> str:
        """Return the interval of log p(data) in words: "log p(data) between … and … nats"."""
        return f"log p(data) between {self.log_lower:,.2f} and {self.log_upper:,.2f} nats"


@dataclass(frozen=True, eq=False)
class Certified(Bounds):
    """Bounds on log p(y) that rest on no assumption.

    A witness of a size is a visited smaller size. If models are nested, the evidence of an unvisited size is at least
    that of its best witness. It is never above the ceiling, an upper bound for every size.
    """

    @property
    def basis(self) -> str:
        """A phrase for people: "certified", or "proved of these fits" if it holds for fitted parameters only."""
        return f"proved {OF_FITS}" if self.of_fits else "certified"

    def describe(self) -> str:
        """Return one line for people: the interval of log p(data), and the prior mass of the unvisited sizes."""
        unvisited = math.exp(self.log_unvisited_prior)
        no = f"No assumption, but {NOT_OF_SIZES}." if self.of_fits else "No assumption."
        return f"{self.basis}: {self._interval()}; unvisited sizes hold {unvisited:.2g} of the prior. {no}"


class Violation(NamedTuple):
    """A size whose log evidence came out above the level that diminishing gains had allowed for it.

    size: the size.
    assumed: the largest log evidence that was assumed just before the size was fitted, nats.
    found: the log evidence of its fit, less two standard errors, nats.
    """

    size: int
    assumed: float
    found: float

    def describe(self) -> str:
        """Return a phrase that says by how many nats the size exceeded its assumed level."""
        return f"size {self.size} came out {self.found - self.assumed:,.2f} nats above the {self.assumed:,.2f} assumed"


@dataclass(frozen=True, eq=False)
class Diminishing(Bounds):
    """Bounds on log p(y) for one size variable, which assume that each further component helps no more than the last.

    The assumption limits the evidence of unvisited sizes. The bounds may widen as well as narrow as a search goes on.
    """

    largest: int  # largest size tried
    gain: float  # assumed bound on the gain per added unit beyond `largest`, nats; +inf when it is not known yet
    still_rising: bool  # the assumption gives no useful upper end, so the certified one is used
    violations: tuple[Violation, ...]

    @property
    def basis(self) -> str:
        """A phrase for people: "diminishing", or that bounds are of these fits, if gains diminish."""
        return f"{OF_FITS}, if gains diminish" if self.of_fits else "diminishing"

    def assumption(self) -> str:
        """Return the assumption about untried sizes in words, as a clause that completes "assuming that …"."""
        return (
            f"beyond size {self.largest}, the largest tried, each added unit raises log p(data | size) by at most "
            f"{self.gain:,.3g} nats (largest gain per unit over the last three sizes + 2 standard errors), "
            "and a size between two that were tried is no better than the better of them"
        )

    def describe(self) -> str:
        """Return a line for people: the interval of log p(data) with its assumption, and any violations of it.

        If the evidence still rises with the size, there is no upper end, and the line says so.
        """
        if self.still_rising:
            text = f"still rising: no upper bound yet. log p(data) at least {self.log_lower:,.2f} nats"
        else:
            text = f"{self.basis}: {self._interval()}, assuming that {self.assumption()}"
        seen = "".join(f" The assumption failed: {violation.describe()}." for violation in self.violations)
        return f"{text}.{seen}"


def certified(
    prior: SizePrior, records: Sequence[Record], regions: Sequence[Region], ceiling: float, nested: bool
) -> Certified:
    """Return certified bounds on log p(y), which rest on no assumption, from the sizes visited so far.

    prior: the prior over sizes.
    records: the visited sizes with their evidence, in any order.
    regions: the unvisited sizes, cut into boxes with their prior masses and best witnesses (visited smaller sizes).
    ceiling: a number ≥ log p(y | s) for every size, nats.
    nested: whether a larger model can imitate a smaller one. Without nesting, unvisited sizes get no lower bound.

    Source: Lemma 1 of Chiang & Poole, with the best witness of every region in place of one min-witness, and with
    `ceiling` in place of 0.
    """
    ordered = sorted(records, key=lambda record: record.size)
    witnessed = [log_times(region.log_mass, region.log_witness) for region in regions] if nested else []
    return Certified(
        sizes=tuple(record.size for record in ordered),
        log_prior=tuple(prior.log_pmf(record.size) for record in ordered),
        evidence_lower=tuple(record.evidence.lower for record in ordered),
        evidence_upper=tuple(record.evidence.upper for record in ordered),
        log_unvisited_prior=log_sum([region.log_mass_upper for region in regions]),
        unvisited_lower=log_sum(witnessed),
        unvisited_upper=log_sum([log_times(region.log_mass_upper, ceiling) for region in regions]),
        of_fits=nested,
    )


def diminishing(
    base: Certified,
    prior: SizePrior,
    records: Sequence[Record],
    regions: Sequence[Region],
    ceiling: float,
    nested: bool,
) -> Diminishing:
    """Return `base` with its unvisited sizes bounded by the assumption of diminishing gains.

    Beyond the largest visited size N the bound is Σ_{t > N} p(t) e^{level + gain (t − N)}, a tilted tail of the prior
    in closed form. `level` is the upper end of the evidence at N plus 2 standard errors. A gain is the rise per unit of
    size between neighbouring visited sizes, taken between lower ends and between upper ends. Where models are nested
    evidence cannot fall: then gain ≥ 0, and levels are running maxima.

    base: the certified bounds of the same search.
    prior: the prior over sizes.
    records: the visited sizes with their evidence, in the order of the search.
    regions: the unvisited sizes, cut into boxes with their prior masses.
    ceiling: a number ≥ log p(y | s) for every size, nats.
    nested: whether a larger model can imitate a smaller one, so that evidence cannot fall with the size.

    Raises ValueError for several size variables.
    """
    if prior.dimension != 1:
        raise ValueError(f"Diminishing gains need one size variable: got {prior.dimension}. Use the certified bounds.")
    visited = sorted(_visit(record) for record in records)
    trend = _trend(visited, nested)
    # Gaps between visited sizes get the level of their neighbours; the open end gets the tilted tail of the prior.
    terms = []
    beyond = beyond_certified = -math.inf
    for region in regions:
        if region.upper[0] is not None:
            terms.append(log_times(region.log_mass_upper, min(_gap_level(visited, region.lower[0], nested), ceiling)))
        else:
            beyond_certified = log_times(region.log_mass_upper, ceiling)
            beyond = min(_log_beyond(trend, prior, region.lower[0]), beyond_certified)
    # The assumption is useless if the tail alone may outweigh all visited sizes, or be as large as without it.
    useless = beyond > -math.inf and beyond >= min(beyond_certified, log_sum(base.weights_lower))
    still_rising = trend.gain == math.inf or useless
    upper = base.unvisited_upper if still_rising else max(log_sum([*terms, beyond]), base.unvisited_lower)
    return Diminishing(
        sizes=base.sizes,
        log_prior=base.log_prior,
        evidence_lower=base.evidence_lower,
        evidence_upper=base.evidence_upper,
        log_unvisited_prior=base.log_unvisited_prior,
        unvisited_lower=base.unvisited_lower,
        unvisited_upper=upper,
        of_fits=base.of_fits,
        largest=trend.largest,
        gain=trend.gain,
        still_rising=still_rising,
        violations=_violations(records, nested),
    )


def audit(history: Sequence[Certified], tolerance: float = 1e-12) -> tuple[int, ...]:
    """Return the positions in a search's history whose interval is not inside the interval before; () if none.

    Certified intervals can only narrow, so that any position returned shows an error.

    history: the certified bounds after each step of a search.
    tolerance: allowance for rounding, relative to the larger of 1 and the ends compared.
    """

    def slack(before: float, after: float) -> float:
        """Return the allowance for rounding between an end of one interval and of the next, nats."""
        finite = [abs(end) for end in (before, after) if math.isfinite(end)]
        return tolerance * max([1.0, *finite])

    return tuple(
        step
        for step, (before, after) in enumerate(pairwise(history), start=1)
        if not after.log_lower >= before.log_lower - slack(before.log_lower, after.log_lower)  # true of NaN as well
        or not after.log_upper <= before.log_upper + slack(before.log_upper, after.log_upper)
    )


class _Visit(NamedTuple):
    """One visited size of a single size variable, with lower and upper end of its log evidence and its error, nats."""

    size: int
    lower: float
    upper: float
    error: float
    reach: float  # upper + 2 standard errors


class _Trend(NamedTuple):
    """The assumption about sizes beyond the largest visited one: a line that their log evidence does not exceed.

    The line is `level` + `gain` · (size − `largest`), nats.
    """

    largest: int
    level: float
    gain: float


def _visit(record: Record) -> _Visit:
    """Return the size and log evidence of a record, with its upper end plus 2 standard errors, as a `_Visit`."""
    lower, upper, error = record.evidence.lower, record.evidence.upper, record.evidence.standard_error
    return _Visit(record.size[0], lower, upper, error, upper + 2.0 * error)


def _trend(visited: Sequence[_Visit], nested: bool) -> _Trend:
    """Return the assumed line that log evidence does not exceed beyond the largest visited size.

    The slope is the largest gain per unit of size over the last three gaps. It is infinite where fewer than three
    sizes are visited or an evidence is not finite.

    visited: the visited sizes in increasing order.
    nested: whether evidence cannot fall with the size.
    """
    level = max(visit.reach for visit in visited) if nested else visited[-1].reach
    gains = [_gain(before, after) for before, after in pairwise(visited[-4:])]
    if len(visited) < 3 or not all(gain < math.inf for gain in gains):  # NaN (∞ − ∞) counts as unknown
        return _Trend(visited[-1].size, level, math.inf)
    return _Trend(visited[-1].size, level, max(0.0, *gains) if nested else max(gains))


def _gain(before: _Visit, after: _Visit) -> float:
    """Return the rise of log evidence per unit of size from one visited size to the next, plus 2 standard errors, nats.

    The rise is the larger of that between the lower ends and that between the upper ends; +inf where it is not known.
    """
    lower, upper = after.lower - before.lower, after.upper - before.upper
    error = 2.0 * math.hypot(before.error, after.error)
    rise = math.inf if math.isnan(lower) or math.isnan(upper) else max(lower, upper)
    return (rise + error) / (after.size - before.size)


def _log_beyond(trend: _Trend, prior: SizePrior, start: int) -> float:
    """Return the assumed upper bound on log Σ_{t ≥ start} p(t) p(y | t), nats; +inf where the gain is not known.

    trend: the line that log evidence does not exceed beyond the largest visited size. start: the first unvisited size.
    """
    if trend.gain == math.inf or trend.level == -math.inf:
        return trend.level if trend.level == -math.inf else math.inf
    first = trend.level + trend.gain * (start - trend.largest)
    return log_times(first, prior.log_tilted_mass(start, trend.gain))


def _gap_level(visited: Sequence[_Visit], size: int, nested: bool) -> float:
    """Return the assumed upper end of the log evidence at an unvisited `size` between two visited ones, nats.

    It is the larger upper end of the two; where models are nested, the largest of all visited sizes up to the next.

    visited: the visited sizes in increasing order.
    """
    right = bisect_left(visited, size, key=lambda visit: visit.size)
    return max(visit.reach for visit in visited[0 if nested else right - 1 : right + 1])


def _violations(records: Sequence[Record], nested: bool) -> tuple[Violation, ...]:
    """Replay the search and return every size that came out above its assumed level by more than 2 standard errors.

    records: the visited sizes with their evidence, in the order of the search.
    nested: whether evidence cannot fall with the size.
    """
    visited: list[_Visit] = []
    found: list[Violation] = []
    for visit in map(_visit, records):
        if len(visited) >= 3:
            trend = _trend(visited, nested)
            ahead = visit.size - trend.largest
            assumed = trend.level + trend.gain * ahead if ahead > 0 else _gap_level(visited, visit.size, nested)
            low = visit.lower - 2.0 * visit.error
            if low > assumed + 1e-12 * abs(low):
                found.append(Violation(visit.size, assumed, low))
        insort(visited, visit)
    return tuple(found)
