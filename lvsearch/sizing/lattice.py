"""Several size variables: where probability may hide in their lattice.

Along every line that moves one variable through a size that counts, what `gaps` says of one variable; and, since sizes
may be worth nothing until several of them grow together (a chess-board has neither row nor column clusters alone), the
ladder (1, …, 1), (2, …, 2), (4, …, 4), … for as long as what lies above its last rung in all variables may count.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lvsearch.sizing.gaps import Gap, beyond, gaps
from lvsearch.sizing.sizes import OpenSize, Size, SizePrior


@dataclass(frozen=True)
class Line:
    """The sizes through `through` along one variable, `axis`: a `OneSize`."""

    prior: SizePrior
    through: Size
    axis: int

    def at(self, number: int) -> Size:
        """The size whose moving variable is `number`."""
        return (*self.through[: self.axis], number, *self.through[self.axis + 1 :])

    def holds(self, size: Size) -> bool:
        """Whether a size is on the line."""
        return self.at(size[self.axis]) == size

    def log_pmf(self, size: Size) -> float:
        """log p of the size on the line, nats."""
        return self.prior.log_pmf(self.at(size[0]))

    def log_mass(self, corner: Size) -> float:
        """log of the prior mass on the line from there on, nats."""
        ends: OpenSize = tuple(None if axis == self.axis else n + 1 for axis, n in enumerate(self.through))
        return self.prior.log_box(self.at(corner[0]), ends)


@dataclass(frozen=True)
class Ladder:
    """The sizes (n, …, n), each variable stopping at its largest: a `OneSize` whose masses are of all sizes above."""

    prior: SizePrior
    largest: Size | None

    def at(self, number: int) -> Size:
        """The rung where no variable stopped is `number`."""
        if self.largest is None:
            return (number,) * self.prior.dimension
        return tuple(min(number, most) for most in self.largest)

    def log_pmf(self, size: Size) -> float:
        """log p of the rung, nats."""
        return self.prior.log_pmf(self.at(size[0]))

    def log_mass(self, corner: Size) -> float:
        """log of the prior mass from the rung on in all variables, nats; none beyond the last rung."""
        if self.largest is not None and corner[0] > max(self.largest):
            return -math.inf
        return self.prior.log_mass(self.at(corner[0]))


@dataclass(frozen=True)
class Hidden:
    """A size to try, and log of what it and others like it may weigh, nats."""

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
    """What may hide above the ladder's last rung and on each line through a size of `counting`, nearest first.

    known: size -> log evidence (nats) of those tried that have any. largest: to try. slack: as for `gaps`.
    """
    ladder = Ladder(prior, largest)
    rungs = sorted(max(size) for size in tried if ladder.at(max(size)) == size)
    on_ladder = {n: known[ladder.at(n)] for n in rungs if ladder.at(n) in known}
    further = beyond(rungs, on_ladder, ladder, None if largest is None else max(largest), slack)
    found = [] if further is None else [Hidden(ladder.at(further.size), further.log_weight)]
    lines = dict.fromkeys(
        Line(prior, (*size[:axis], 1, *size[axis + 1 :]), axis) for size in counting for axis in range(prior.dimension)
    )
    for line in lines:
        on_line = sorted(size[line.axis] for size in tried if line.holds(size))
        evidence = {n: known[line.at(n)] for n in on_line if line.at(n) in known}
        end = None if largest is None else largest[line.axis]
        each: list[Gap] = gaps(on_line, evidence, line, end, slack)
        found += [Hidden(line.at(gap.size), gap.log_weight) for gap in each]
    return found
