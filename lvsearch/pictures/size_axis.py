"""The axis of sizes in a picture: whole numbers, on a logarithmic scale where a search doubled them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from lvsearch.pictures.style import palette_of
from lvsearch.sizing.sizes import Size
from lvsearch.sizing.words import size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TICKS_PER_INCH = 2.4
"""The largest number of labels per inch of the axis."""
WIDE = 4
"""An axis is logarithmic if the largest size is at least this many times the smallest, and few sizes between them are
shown."""
STEPS = (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 10**9)
"""The distances between labels that an axis without logarithm may have."""


@dataclass(frozen=True)
class SizeAxis:
    """The positions of sizes (numbers of components) on the horizontal axis of a picture.

    A size is at its value if there is one size variable; sizes of several variables are side by side, one unit apart.

    sizes: the sizes that are shown, in increasing order
    reserved: True if the picture also shows something beyond the largest size, at `beyond`
    """

    sizes: tuple[Size, ...]
    reserved: bool = False

    @classmethod
    def from_sizes(cls, sizes: Sequence[Size], reserved: bool = False) -> "SizeAxis":
        """Return the axis of these sizes, given in any order. reserved: True to show something beyond the largest."""
        return cls(tuple(sorted(set(sizes))), reserved)

    @property
    def by_value(self) -> bool:
        """True if sizes are at their value, because there is one size variable; False if they are side by side."""
        return all(len(size) == 1 for size in self.sizes)

    @property
    def logarithmic(self) -> bool:
        """True if the axis is logarithmic: its range is wide and few of the sizes in it are shown."""
        if not self.by_value:
            return False
        first, last = self.sizes[0][0], self.sizes[-1][0]
        return last >= WIDE * first and len(self.sizes) < (last - first + 1) / 2

    def positions(self, sizes: Sequence[Size]) -> Float[np.ndarray, " sizes"]:
        """Return the position of each size on the axis, in data units, (sizes,)."""
        if self.by_value:
            return np.array([size[0] for size in sizes], np.float64)
        return np.array([self.sizes.index(size) for size in sizes], np.float64)

    @property
    def beyond(self) -> float:
        """The position on the axis, beyond the largest size, for what the picture shows besides the sizes."""
        first, last = self._ends
        return last * 1.7 if self.logarithmic else last + max(2.0, 0.06 * (last - first))

    def edges(self, size: Size) -> tuple[float, float]:
        """Return the left and the right edge of the band of a size on the axis, in data units.

        They are half-way to its neighbours on a logarithmic axis, else its position ± ½. There the size itself need
        not be one of those that are shown.
        """
        (at,) = self.positions([size])
        if not self.logarithmic:
            return float(at - 0.5), float(at + 0.5)
        shown = self.positions(self.sizes)
        before = max(shown[shown < at], default=at / 1.6)
        after = min(shown[shown > at], default=at * 1.6)
        return math.sqrt(at * before), math.sqrt(at * after)

    def shade(self, axes: "Axes", together: Sequence[Size]) -> None:
        """Draw a coloured band behind several sizes, one for each run of neighbours; nothing for a single size.

        axes: matplotlib axes to draw on
        together: the sizes to shade, such as those that the evidence cannot choose between
        """
        runs: list[list[float]] = []
        for size in sorted(together) if len(together) > 1 else ():
            low, high = self.edges(size)
            if runs and math.isclose(low, runs[-1][1], rel_tol=1e-9):
                runs[-1][1] = high
            else:
                runs.append([low, high])
        for low, high in runs:
            axes.axvspan(low, high, color=palette_of(axes).band, linewidth=0, zorder=0)

    def ticks(self, axes: "Axes", first: Size | None = None, extra: Mapping[float, str] | None = None) -> None:
        """Label sizes on the horizontal axis, as many as have room.

        axes: matplotlib axes to draw on
        first: a size that is labelled in any case on a logarithmic axis
        extra: {position: label} of further ticks
        """
        extra = {} if extra is None else dict(extra)
        most = max(4, int(axes.get_window_extent().width / axes.figure.dpi * TICKS_PER_INCH))
        low, high = self._ends
        if self.logarithmic:
            from matplotlib.ticker import NullLocator

            axes.set_xscale("log", base=2)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xlim(low / 1.3, max([high, *extra]) * 1.3)
            wanted = self._sizes_with_room(most, first)
            labels = [f"{tick:.0f}" for tick in wanted]
        elif self.by_value:
            step = next(s for s in STEPS if (high - low) / s < most)
            wanted = np.arange(math.ceil(low / step) * step, high + 1, step)
            labels = [f"{tick:.0f}" for tick in wanted]
            axes.set_xlim(low - 0.8, max([high, *extra]) + 0.8)
        else:
            every = max(1, math.ceil(len(self.sizes) / most))
            shown = self.sizes[::every]
            wanted, labels = self.positions(shown), [size_text(size) for size in shown]
            axes.tick_params(axis="x", labelrotation=45 if len(shown) > 6 else 0)
        axes.set_xticks([*wanted, *extra], [*labels, *extra.values()])

    @property
    def _ends(self) -> tuple[float, float]:
        """The positions of the smallest and of the largest size."""
        first, last = self.positions([self.sizes[0], self.sizes[-1]]).tolist()
        return first, last

    def _sizes_with_room(self, most: int, first: Size | None) -> Float[np.ndarray, " ticks"]:
        """Return the sizes whose labels have room on a logarithmic axis, increasing, (ticks,).

        Room is given to `first`, then to powers of two, then to the others.

        most: the largest number of labels
        first: a size that is labelled in any case, or None
        """
        low, high = np.log(self._ends)
        room = 1.15 * (high - low) / most
        powers = [size for size in self.sizes if size[0].bit_count() == 1]
        taken: list[float] = []
        for size in [*([] if first is None else [first]), *powers, *self.sizes]:
            if all(abs(math.log(size[0] / other)) >= room for other in taken):
                taken.append(float(size[0]))
        return np.array(sorted(taken))
