"""The witness algorithm (Chiang & Poole, Algorithm 1) with no model in sight: which size next, what is proved so far.

    search = WitnessSearch(sizes.Poisson(10))
    while (size := search.next_size()) is not None and search.bounds().width > 1.0:
        search.record(size, my_log_likelihood(size))

Two orders. Nested models (Proposition 1: a larger model can imitate a smaller one): a successor of the min-witness,
first axis first. Otherwise: a doubling ladder, then always the unvisited size nearest to the best visited one.
Both depend on nothing but what was recorded, so a search is rebuilt from its records.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from lvsearch.sizing import bounds as bounds_of
from lvsearch.sizing.evidence import Evidence, Record
from lvsearch.sizing.regions import Region, Unvisited, unvisited
from lvsearch.sizing.sizes import Size, SizePrior, as_size


class WitnessSearch:
    """Generated sizes, their evidence and their witnesses; grows by `record`.

    prior     p(s); sizes above which no prior mass lies are never proposed
    ceiling   ≥ log p(y | s) for every size and parameter, nats: 0 for discrete data, +inf for no ceiling
    nested    Proposition 1 holds: use witnesses. False under marginal evidence
    max_size  largest size to propose, an int for all size variables or a tuple; None for no limit

    The search starts at (1, …, 1), the one size that can witness all others, also where the prior gives it no mass:
    it then adds nothing to the sum, but its evidence bounds every other size from below.
    """

    def __init__(
        self,
        prior: SizePrior,
        ceiling: float | int = 0.0,
        nested: bool = True,
        max_size: int | Size | None = None,
    ) -> None:
        if not isinstance(prior, SizePrior):
            raise ValueError(f"got the prior {prior!r}, expected one of lv.sizes, such as lv.sizes.Poisson(10)")
        if math.isnan(ceiling) or ceiling == -math.inf:
            raise ValueError(
                f"The ceiling bounds log p(data) from above: got {ceiling}, expected nats, or inf for none."
            )
        self.prior = prior
        self.ceiling = float(ceiling)
        self.nested = nested
        self.max_size = None if max_size is None else _per_variable(max_size, prior.dimension)
        self._records: dict[Size, Record] = {}
        self._unvisited = Unvisited((), ())
        self._log_box = cache(prior.log_box)  # a step changes few boxes: the others keep their mass
        self._log_box_upper = cache(prior.log_box_upper)
        self._log_mass = cache(prior.log_mass_upper)  # which sizes may have any

    @classmethod
    def from_records(
        cls,
        prior: SizePrior,
        ceiling: float | int,
        nested: bool,
        max_size: int | Size | None,
        records: Sequence[Record],
    ) -> "WitnessSearch":
        """The search that made these records (in order), or the same fits under another prior."""
        search = cls(prior, ceiling, nested, max_size)
        for record in records:
            search._append(record)
        search._cut()
        return search

    @property
    def records(self) -> tuple[Record, ...]:
        """In the order in which they were made."""
        return tuple(self._records.values())

    @property
    def generated(self) -> tuple[Size, ...]:
        """Sizes recorded, in order."""
        return tuple(self._records)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The unvisited sizes with prior mass, cut into boxes."""
        return self._unvisited.regions

    @property
    def witnesses(self) -> tuple[Size, ...]:
        """A minimal set of sizes that witnesses every unvisited size with the best evidence; () if not nested."""
        return self._unvisited.witnesses if self.nested else ()

    @property
    def min_witness(self) -> Size | None:
        """The witness with the lowest evidence (the earliest of equals); None where there are no witnesses."""
        return min(self.witnesses, key=self._lower, default=None)

    def best_witness(self, size: Size | int) -> Record | None:
        """The record with the highest evidence among those that precede `size`, its best start.

        Of equals one in `witnesses` (whose fits a search keeps) comes first, then the largest.
        None before the first record, or where models are not nested.
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
        """The size to evaluate next; None when nothing within `max_size` could still change the bounds."""
        first = (1,) * self.prior.dimension
        if not self._records:
            return first
        if not self._unvisited.regions:
            return None
        if self.nested:
            ascending = sorted(self.witnesses, key=self._lower)
            return next((size for witness in ascending for size in self._successors(witness)), None)
        return self._next_rung() or self._nearest_to_best()

    @property
    def on_ladder(self) -> bool:
        """Without nesting: the doubling ladder is not finished."""
        return not self.nested and (not self._records or self._next_rung() is not None)

    def record(self, size: Size | int, evidence: Evidence | float | int) -> Record:
        """Enter the evidence of a size, in any order after (1, …, 1).

        Where models are nested, evidence with a lower end below that of the best witness is replaced by the witness's
        (its fit with empty extra components), and the returned record says so. Upper ends are clipped to the ceiling.

        Raises ValueError for a size recorded twice, another first size than (1, …, 1), NaN, or a lower end above the
        ceiling (by more than 1e-9 of it; less is rounding, and clipped).
        """
        size = as_size(size, self.prior.dimension)
        evidence = self._under_ceiling(size, evidence if isinstance(evidence, Evidence) else Evidence(evidence))
        witness = self.best_witness(size)
        entry = Record(size, evidence)
        if witness is not None and evidence.lower < witness.evidence.lower:
            entry = Record(size, witness.evidence, replaced_by=witness.size)
        self._append(entry)
        self._cut()
        return entry

    def bounds(self) -> bounds_of.Certified:
        """Certified bounds on log p(y); ValueError before the first record."""
        self._require_records()
        return bounds_of.certified(self.prior, self.records, self._unvisited.regions, self.ceiling, self.nested)

    def diminishing(self) -> bounds_of.Diminishing:
        """Bounds under the assumption of diminishing gains (one size variable)."""
        return bounds_of.diminishing(
            self.bounds(), self.prior, self.records, self._unvisited.regions, self.ceiling, self.nested
        )

    def _lower(self, size: Size) -> float:
        return self._records[size].evidence.lower

    def _require_records(self) -> None:
        if not self._records:
            raise ValueError("Nothing is recorded yet: evaluate next_size() and record its evidence first.")

    def _under_ceiling(self, size: Size, evidence: Evidence) -> Evidence:
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
        first = (1,) * self.prior.dimension
        as_size(record.size, self.prior.dimension)
        if record.size in self._records:
            raise ValueError(f"Size {record.size} is recorded already; each size is recorded once.")
        if not self._records and record.size != first:
            raise ValueError(f"The first size must be {first}, the witness of all others: got {record.size}.")
        self._records[record.size] = replace(record, evidence=self._under_ceiling(record.size, record.evidence))

    def _cut(self) -> None:
        if self._records:
            lower = [record.evidence.lower for record in self._records.values()]
            self._unvisited = unvisited(self.generated, lower, self._log_box, self._log_box_upper)

    def _allowed(self, size: Size) -> bool:
        return self.max_size is None or _precedes(size, self.max_size)

    def _successors(self, witness: Size) -> Iterator[Size]:
        """Unvisited sizes above `witness` with prior mass at or above them, nearest first, first axis first."""

        def above(size: Size) -> Iterator[Size]:
            steps = (_moved(size, axis, 1) for axis in range(len(size)))
            return (step for step in steps if self._allowed(step) and self._log_mass(step) > -math.inf)

        for level in _levels(witness, above, lambda size: size in self._records):
            yield from (size for size in level if size not in self._records)

    def _next_rung(self) -> Size | None:
        """The first size of the ladder 1, 2, 4, 8, … (on the diagonal, axes stopping at their maximum) not yet visited.

        Without a `max_size` the ladder ends when two rungs in a row were worse than the best before them, or had no
        evidence at all where the prior has mass.
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
        best = min(self._records, key=lambda size: (-self._score(size), sum(size), size))
        ones = (1,) * self.prior.dimension

        def reachable(size: Size) -> bool:
            """Inside the box of sizes whose every coordinate can have mass."""
            alone = (_moved(ones, axis, part - 1) for axis, part in enumerate(size))
            return self._allowed(size) and all(self._log_mass(corner) > -math.inf for corner in alone)

        def around(size: Size) -> Iterator[Size]:
            steps = (_moved(size, axis, by) for axis in range(len(size)) for by in (-1, 1))
            return (step for step in steps if min(step) >= 1 and reachable(step))

        for level in _levels(best, around, lambda size: True):
            new = [size for size in level if size not in self._records and self.prior.log_pmf(size) > -math.inf]
            if new:
                return min(new, key=lambda size: (sum(size), size))
        return None

    def _score(self, size: Size) -> float:
        """log p(s) + lower end of evidence; −inf for a size not visited (a rung without prior mass)."""
        record = self._records.get(size)
        return -math.inf if record is None else self.prior.log_pmf(size) + record.evidence.lower


def _per_variable(max_size: int | Size, dimension: int) -> Size:
    return as_size(max_size if isinstance(max_size, tuple) else (max_size,) * dimension, dimension)


def _precedes(first: Size, second: Size) -> bool:
    return all(a <= b for a, b in zip(first, second, strict=True))


def _moved(size: Size, axis: int, by: int) -> Size:
    return (*size[:axis], size[axis] + by, *size[axis + 1 :])


def _levels(
    start: Size, neighbours: Callable[[Size], Iterator[Size]], passable: Callable[[Size], bool]
) -> Iterator[list[Size]]:
    """Breadth-first levels around `start` (itself left out), going on from `passable` sizes only."""
    seen, level = {start}, [start]
    while level:
        found = dict.fromkeys(step for size in level if passable(size) for step in neighbours(size))
        level = [size for size in found if size not in seen]
        seen.update(level)
        if level:
            yield level
