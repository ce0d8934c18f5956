"""Find untried sizes of several size variables (such as row and column clusters) that may hold probability.

Two families of sizes are examined. First, every line through a size of notable probability along one variable is
treated as one size variable (`gaps`). Second, the ladder (1, …, 1), (2, …, 2), (4, …, 4), … is climbed while sizes
above its last rung in all variables may hold probability. The ladder is needed because data may gain nothing until
several variables grow together: a chess-board has neither row clusters nor column clusters alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lvsearch.sizing.gaps import Gap, gap_beyond, gaps
from lvsearch.sizing.sizes import OpenSize, Size, SizePrior


@dataclass(frozen=True)
class Line:
    """A line of sizes: those that differ from the size `through` in the size variable number `axis` only.

    Its methods are those of a prior along one size variable (`OneSize`).
    """

    prior: SizePrior
    through: Size
    axis: int

    def size_at(self, number: int) -> Size:
        """Return the size on the line whose size variable `axis` equals `number`."""
        return (*self.through[: self.axis], number, *self.through[self.axis + 1 :])

    def holds(self, size: Size) -> bool:
        """Return True if a size is on the line."""
        return self.size_at(size[self.axis]) == size

    def log_pmf(self, size: Size) -> float:
        """Return the log prior probability of the size on the line whose number is `size[0]`, nats."""
        return self.prior.log_pmf(self.size_at(size[0]))

    def log_mass(self, corner: Size) -> float:
        """Return the log prior mass of the sizes on the line from the number `corner[0]` on, nats."""
        ends: OpenSize = tuple(None if axis == self.axis else n + 1 for axis, n in enumerate(self.through))
        return self.prior.log_box(self.size_at(corner[0]), ends)


@dataclass(frozen=True)
class Ladder:
    """The ladder of sizes (n, …, n), called rungs, with each size variable stopping at its largest value.

    Its methods are those of a prior along one size variable (`OneSize`).
    """

    prior: SizePrior
    largest: Size | None

    def size_at(self, number: int) -> Size:
        """Return the size (n, …, n) of the ladder for n = `number`, with each variable cut at its largest value."""
        if self.largest is None:
            return (number,) * self.prior.dimension
        return tuple(min(number, most) for most in self.largest)

    def log_pmf(self, size: Size) -> float:
        """Return the log prior probability of the rung n = `size[0]`, nats."""
        return self.prior.log_pmf(self.size_at(size[0]))

    def log_mass(self, corner: Size) -> float:
        """Return the log prior mass of all sizes at or above the rung n = `corner[0]` in every variable, nats.

        It is −inf beyond the last rung.
        """
        if self.largest is not None and corner[0] > max(self.largest):
            return -math.inf
        return self.prior.log_mass(self.size_at(corner[0]))


@dataclass(frozen=True)
class Hidden:
    """An untried size, and the log of prior times evidence that it and the untried sizes around it may have, nats."""

    size: Size
    log_weight: float


def hidden_in_lattice(
    tried: Sequence[Size],
    known: Mapping[Size, float],
    counting: Sequence[Size],
    prior: SizePrior,
    largest: Size | None,
    slack: float,
) -> list[Hidden]:
    """Return untried sizes that may hold probability, on the ladder (n, …, n) and on lines through notable sizes.

    tried: the tried sizes.
    known: log evidence of those tried sizes that have any, {size: nats}.
    counting: the sizes of notable probability; a line along each variable goes through each.
    prior: the prior over sizes.
    largest: the largest size to try, or None.
    slack: nats added to the evidence that neighbouring tried sizes suggest.
    """
    ladder = Ladder(prior, largest)
    rungs = sorted(max(size) for size in tried if ladder.size_at(max(size)) == size)
    on_ladder = {n: known[ladder.size_at(n)] for n in rungs if ladder.size_at(n) in known}
    further = gap_beyond(rungs, on_ladder, ladder, None if largest is None else max(largest), slack)
    found = [] if further is None else [Hidden(ladder.size_at(further.size), further.log_weight)]
    lines = dict.fromkeys(
        Line(prior, (*size[:axis], 1, *size[axis + 1 :]), axis) for size in counting for axis in range(prior.dimension)
    )
    for line in lines:
        on_line = sorted(size[line.axis] for size in tried if line.holds(size))
        evidence = {n: known[line.size_at(n)] for n in on_line if line.size_at(n) in known}
        end = None if largest is None else largest[line.axis]
        each: list[Gap] = gaps(on_line, evidence, line, end, slack)
        found += [Hidden(line.size_at(gap.size), gap.log_weight) for gap in each]
    return found
