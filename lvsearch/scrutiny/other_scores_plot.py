"""Draw scores of the number of topics, in a row for each score, since no two scores have a scale in common."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.pictures.size_axis import SizeAxis
from lvsearch.pictures.style import palette_of
from lvsearch.sizing.sizes import Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, MARGIN = 0.46, 1.8
"""The height of a row, and the space around all rows, in inches."""
HEIGHT = 0.72
"""The height of the curve in a row, as a share of the row."""


def draw_other_scores(
    rows: Mapping[str, Float[np.ndarray, " size"]],
    sizes: Sequence[Size],
    together: Sequence[Size],
    size_name: str,
    axes: "Axes",
) -> None:
    """Draw a curve over sizes in a row for each score, the first on top, from its smallest value to its largest.

    A dot marks the largest value, in another colour where it is not at a size in `together`. NaN is left out.

    rows: {name of the score: values, (sizes,), larger is better}.
    sizes: the sizes of the values.
    together: the sizes that are shaded, which the posterior does not rule out.
    size_name: the plural noun that sizes count, such as "topics".
    """
    palette, where = palette_of(axes), SizeAxis.from_sizes(sizes)
    at = where.positions(sizes)
    for size in set(together) & set(sizes):
        axes.axvspan(*where.edges(size), color=palette.band, linewidth=0, zorder=0)
    for row, values in enumerate(rows.values()):
        known = np.isfinite(values)
        if not known.any():
            continue
        low, high = values[known].min(), values[known].max()
        height = (values - low) / (high - low) if high > low else np.where(known, 0.5, np.nan)
        y = row + HEIGHT * (0.5 - height)
        colour = palette.main if row == 0 else palette.faint
        axes.plot(at[known], y[known], "-", marker=".", markersize=3, color=colour, linewidth=1.2, zorder=2)
        best = int(np.flatnonzero(known)[np.argmax(values[known])])
        dot = palette.main if sizes[best] in together else palette.accent
        axes.plot(at[best], y[best], "o", color=dot, markersize=7, zorder=4)
    axes.set_yticks(range(len(rows)), [visible(name) for name in rows], parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    where.ticks(axes)
    axes.hlines(np.arange(len(rows) - 1) + 0.5, *axes.get_xlim(), color=palette.grid, linewidth=0.7, zorder=1)
    axes.grid(visible=False)
    axes.set_xlabel(f"number of {visible(size_name.replace('_', ' '))}", parse_math=False)
