"""The witness algorithm (Chiang & Poole, Algorithm 1): which size to try next, and bounds on log p(data) so far.

It does not refer to a model. A witness of a size is a visited size that is no larger in any variable.

    search = WitnessSearch(sizes.Poisson(10))
    while (size := search.next_size()) is not None and search.bounds().width > 1.0:
        search.record(size, my_log_likelihood(size))

There are two orders. For nested models (Proposition 1: a larger model can imitate a smaller one), the next size is a
successor of the min-witness, first axis first. Otherwise the search climbs a doubling ladder, and then always takes the
unvisited size nearest to the best visited one. Both orders depend only on what was recorded, so a search can be rebuilt
from its records.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from lvsearch.sizing import bounds as bounds_of
from lvsearch.sizing.bounds import Region, Unvisited, unvisited
from lvsearch.sizing.evidence import Evidence, Record
from lvsearch.sizing.sizes import Size, SizePrior, as_size
from lvsearch.sizing.univariate import require_prior


class WitnessSearch:
    """The state of a search over sizes: the visited sizes with their evidence, to which `record` adds.

    A witness of a size is a visited size that is no larger in any variable. If models are nested (a larger model can
    imitate a smaller one), the evidence of a size is at least that of its witness.

    prior: p(s); sizes above which no prior mass lies are never proposed.
    ceiling: a number ≥ log p(y | s) for every size and parameter, nats; 0 for discrete data, +inf for no ceiling.
    nested: whether models are nested (Proposition 1), so that witnesses can be used; False under marginal evidence.
    max_size: the largest size to propose, an int for all size variables or a tuple; None for no limit.

    The search starts at (1, …, 1), the one size that can witness all others, even where the prior gives it no mass. It
    then adds nothing to the sum, but its evidence bounds every other size from below.
    """

    def __init__(
        self,
        prior: SizePrior,
        ceiling: float | int = 0.0,
        nested: bool = True,
        max_size: int | Size | None = None,
    ) -> None:
        require_prior(prior)
        if math.isnan(ceiling) or ceiling == -math.inf:
            raise ValueError(
                f"The ceiling bounds log p(data) from above: got {ceiling}, expected nats, or inf for none."
            )
        self.prior = prior
        self.ceiling = float(ceiling)
        self.nested = nested
        self.max_size = None if max_size is None else per_variable(max_size, prior.dimension)
        self._records: dict[Size, Record] = {}
        self._unvisited = Unvisited((), ())
        self._log_box = cache(prior.log_box)  # a step changes few boxes: the others keep their mass
        self._log_box_upper = cache(prior.log_box_upper)
        self._log_mass = cache(prior.log_mass_upper)  # −inf exactly where no size above has mass

    @classmethod
    def from_records(
        cls,
        prior: SizePrior,
        ceiling: float | int,
        nested: bool,
        max_size: int | Size | None,
        records: Sequence[Record],
    ) -> "WitnessSearch":
        """Return the search that made these records, or a search with the same records under another prior.

        prior: the prior over sizes.
        ceiling: a number ≥ log p(data | size) for every size and parameter, nats.
        nested: whether a larger model can imitate a smaller one.
        max_size: the largest size to propose, an int for all size variables or a tuple; None for no limit.
        records: the visited sizes with their evidence, in the order of the search.
        """
        search = cls(prior, ceiling, nested, max_size)
        for record in records:
            search._append(record)
        search._update_regions()
        return search

    def __reduce__(self) -> tuple[Any, ...]:
        """Return (function, arguments) by which pickle and `copy` make the search anew from its records.

        The masses kept so far stay behind: pickle does not take functions that remember their results.
        """
        return WitnessSearch.from_records, (self.prior, self.ceiling, self.nested, self.max_size, self.records)

    @property
    def records(self) -> tuple[Record, ...]:
        """The visited sizes with their evidence, in the order in which they were recorded."""
        return tuple(self._records.values())

    @property
    def generated(self) -> tuple[Size, ...]:
        """The visited sizes in the order in which they were recorded."""
        return tuple(self._records)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The unvisited sizes with prior mass, cut into disjoint boxes, each with its best witness."""
        return self._unvisited.regions

    @property
    def witnesses(self) -> tuple[Size, ...]:
        """A smallest set of visited sizes that has a best witness of every unvisited size; () without nesting.

        A best witness is a visited size, no larger in any variable, with the highest evidence.
        """
        return self._unvisited.witnesses if self.nested else ()

    @property
    def min_witness(self) -> Size | None:
        """The size in `witnesses` with the lowest evidence (the earliest of equals); None if there are none."""
        return min(self.witnesses, key=self._lower, default=None)

    def best_witness(self, size: Size | int) -> Record | None:
        """Return the record with the highest evidence among visited sizes no larger than `size` in any variable.

        A fit of `size` does best to start from this fit.

        Among equals, a size in `witnesses` (whose fits a search keeps) comes first, then the largest. The result is
        None before the first record, and where models are not nested.
        """
        size = as_size(size, self.prior.dimension)
        preceding = [record for record in self._records.values() if self.nested and _precedes(record.size, size)]
        serving = set(self.witnesses)
        return max(
            preceding,
            key=lambda record: (record.evidence.lower, record.size in serving, sum(record.size)),
            default=None,
        )

    def next_size(self) -> Size | None:
        """Return the size to fit next; None when no size within `max_size` could still change the bounds."""
        if not self._records:
            return self.prior.first
        if not self._unvisited.regions:
            return None
        if self.nested:
            ascending = sorted(self.witnesses, key=self._lower)
            return next((size for witness in ascending for size in self._successors(witness)), None)
        return self._next_rung() or self._nearest_to_best()

    @property
    def on_ladder(self) -> bool:
        """True if a search without nesting is still on its doubling ladder of sizes 1, 2, 4, …."""
        return not self.nested and (not self._records or self._next_rung() is not None)

    def record(self, size: Size | int, evidence: Evidence | float | int) -> Record:
        """Record the log evidence of a size (nats), in any order after (1, …, 1), and return its record.

        If the prior excludes small sizes, its first size takes the place of (1, …, 1).

        Where models are nested, evidence with a lower end below that of the best witness (a visited smaller size) is
        replaced by the witness's evidence. The returned record says so. Upper ends are clipped to the ceiling.

        Raises ValueError for a size recorded twice, a first size other than the prior's, NaN, or a lower end above the
        ceiling. An excess of up to 1e-9 of the ceiling is rounding, and is clipped.
        """
        size = as_size(size, self.prior.dimension)
        evidence = self._under_ceiling(size, evidence if isinstance(evidence, Evidence) else Evidence(evidence))
        witness = self.best_witness(size)
        entry = Record(size, evidence)
        if witness is not None and evidence.lower < witness.evidence.lower:
            entry = Record(size, witness.evidence, replaced_by=witness.size)
        self._append(entry)
        self._update_regions()
        return entry

    def bounds(self) -> bounds_of.Certified:
        """Return bounds on log p(data) over all sizes that rest on no assumption.

        Raises ValueError before the first record.
        """
        self._require_records()
        return bounds_of.certified(self.prior, self.records, self._unvisited.regions, self.ceiling, self.nested)

    def diminishing(self) -> bounds_of.Diminishing:
        """Return bounds on log p(data) over all sizes that assume diminishing gains.

        Raises ValueError before the first record and for several size variables.
        """
        return bounds_of.diminishing(
            self.bounds(), self.prior, self.records, self._unvisited.regions, self.ceiling, self.nested
        )

    def _lower(self, size: Size) -> float:
        """Return the lower end of the log evidence of a visited size, nats."""
        return self._records[size].evidence.lower

    def _require_records(self) -> None:
        """Raise ValueError if no size was recorded yet."""
        if not self._records:
            raise ValueError("Nothing is recorded yet: evaluate next_size() and record its evidence first.")

    def _under_ceiling(self, size: Size, evidence: Evidence) -> Evidence:
        """Return the evidence of a size with its ends clipped to the ceiling.

        Raises ValueError if the lower end lies above the ceiling by more than rounding.
        """
        slack = 1e-9 * max(1.0, abs(self.ceiling))
        if evidence.lower > self.ceiling + slack:
            raise ValueError(
                f"The evidence of size {size} is above the ceiling: got lower end {evidence.lower}, expected at most "
                f"{self.ceiling}. Give the ceiling that the model proves (densities need one; inf for none)."
            )
        if evidence.upper <= self.ceiling:
            return evidence
        return Evidence(min(evidence.lower, self.ceiling), self.ceiling, evidence.standard_error)

    def _append(self, record: Record) -> None:
        """Add a size with its evidence, without recomputing the boxes of unvisited sizes.

        Raises ValueError for a repeated size or a wrong first size.
        """
        first = self.prior.first
        as_size(record.size, self.prior.dimension)
        if record.size in self._records:
            raise ValueError(f"Size {record.size} is recorded already; each size is recorded once.")
        if not self._records and record.size != first:
            raise ValueError(f"The first size must be {first}, the witness of all others: got {record.size}.")
        self._records[record.size] = replace(record, evidence=self._under_ceiling(record.size, record.evidence))

    def _update_regions(self) -> None:
        """Recompute the boxes of unvisited sizes and their witnesses, after sizes were recorded."""
        if self._records:
            lower = [record.evidence.lower for record in self._records.values()]
            self._unvisited = unvisited(self.generated, lower, self._log_box, self._log_box_upper)

    def _allowed(self, size: Size) -> bool:
        """Return True if a size is within `max_size` in every variable."""
        return self.max_size is None or _precedes(size, self.max_size)

    def _successors(self, witness: Size) -> Iterator[Size]:
        """Yield unvisited sizes above `witness`, nearest first, and among equals by the first size variable first.

        Only sizes within `max_size` count that have prior mass at or above them.
        """

        def above(size: Size) -> Iterator[Size]:
            """Yield the sizes one step above `size` that are allowed and have prior mass at or above them."""
            steps = (_neighbour(size, axis, 1) for axis in range(len(size)))
            return (step for step in steps if self._allowed(step) and self._log_mass(step) > -math.inf)

        for level in _levels(witness, above, lambda size: size in self._records):
            yield from (size for size in level if size not in self._records)

    def _next_rung(self) -> Size | None:
        """Return the first unvisited size of the ladder (1, …, 1), (2, …, 2), (4, …, 4), …; None when it is finished.

        Every size variable stops at its maximum. Without a `max_size` the ladder ends after two sizes in a row that
        were worse than the best before them, or that had no evidence although the prior has mass there.
        """
        worse, best, power = 0, -math.inf, 1
        while True:
            rung = tuple(min(power, end) for end in self.max_size or (power,) * self.prior.dimension)
            if self._log_mass(rung) == -math.inf or (self.max_size is None and worse == 2):
                return None
            if rung not in self._records and self.prior.log_pmf(rung) > -math.inf:
                return rung
            score = self._score(rung)
            failed = score == -math.inf and self.prior.log_pmf(rung) > -math.inf
            worse, best = (worse + 1 if failed or score < best else 0), max(best, score)
            power *= 2
            if self.max_size is not None and power > max(self.max_size):
                return None

    def _nearest_to_best(self) -> Size | None:
        """Return the unvisited size with prior mass nearest to the best visited size; None when there is none.

        Distance is the number of steps by one in one size variable. The best size has the most prior × evidence.
        """
        best = min(self._records, key=lambda size: (-self._score(size), sum(size), size))
        ones = (1,) * self.prior.dimension

        def reachable(size: Size) -> bool:
            """Return True if the size is allowed and each number, with 1 elsewhere, has prior mass at or above it."""
            alone = (_neighbour(ones, axis, part - 1) for axis, part in enumerate(size))
            return self._allowed(size) and all(self._log_mass(corner) > -math.inf for corner in alone)

        def around(size: Size) -> Iterator[Size]:
            """Yield the reachable sizes one step from `size`."""
            steps = (_neighbour(size, axis, by) for axis in range(len(size)) for by in (-1, 1))
            return (step for step in steps if min(step) >= 1 and reachable(step))

        for level in _levels(best, around, lambda size: True):
            new = [size for size in level if size not in self._records and self.prior.log_pmf(size) > -math.inf]
            if new:
                return min(new, key=lambda size: (sum(size), size))
        return None

    def _score(self, size: Size) -> float:
        """Return the log prior plus the lower end of the log evidence of a size, nats; −inf if it was not visited."""
        record = self._records.get(size)
        return -math.inf if record is None else self.prior.log_pmf(size) + record.evidence.lower


def per_variable(max_size: Any, dimension: int) -> Size:
    """Return the largest size to try as a tuple with one number per size variable; an int stands for all variables."""
    return as_size(max_size if isinstance(max_size, tuple) else (max_size,) * dimension, dimension, "max_size")


def _precedes(first: Size, second: Size) -> bool:
    """Return True if the first size is no larger than the second in any size variable."""
    return all(a <= b for a, b in zip(first, second, strict=True))


def _neighbour(size: Size, axis: int, by: int) -> Size:
    """Return a copy of the size in which the number of the size variable `axis` is changed by `by`."""
    return (*size[:axis], size[axis] + by, *size[axis + 1 :])


def _levels(
    start: Size, neighbours: Callable[[Size], Iterator[Size]], passable: Callable[[Size], bool]
) -> Iterator[list[Size]]:
    """Yield the breadth-first levels of sizes around `start`, one list per distance; `start` itself is left out.

    neighbours: function that yields the sizes one step from a size.
    passable: function that returns True for a size from which the walk may go on.
    """
    seen, level = {start}, [start]
    while level:
        found = dict.fromkeys(step for size in level if passable(size) for step in neighbours(size))
        level = [size for size in found if size not in seen]
        seen.update(level)
        if level:
            yield level
