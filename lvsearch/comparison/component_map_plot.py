"""The picture of which components split and merge between the fits of two sizes."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from lvsearch.comparison.alignment import ComponentMap
from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption
from lvsearch.pictures.style import palette_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

BAR, GAP = 0.06, 0.22
"""The width of a bar, and the total space between bars, as a share of the height of all bars."""
FAINTEST = 0.05
"""The smallest part of a component, as a share of its units, that is drawn as a band."""


def draw_component_map(
    found: ComponentMap, axes: "Axes", names: "tuple[Sequence[str], Sequence[str]] | None" = None
) -> Caption:
    """Draw the components of two fits as bars, with bands for the units that are in both; return the caption.

    The first fit is at the left, the second at the right. A bar is as tall as the units it holds.

    found: the map between the components of the two fits
    axes: matplotlib axes to draw on
    names: the names of the components of the first and of the second fit; by default only their numbers are written
    """
    palette, overlap = palette_of(axes), found.overlap.to_numpy()
    total = max(float(overlap.sum()), 1e-12)
    left = np.arange(overlap.shape[0])
    right = _right_order(overlap)
    tops_left, tops_right = _bar_tops(overlap.sum(1)[left] / total), _bar_tops(overlap.sum(0)[right] / total)
    at_left, at_right = tops_left.copy(), tops_right.copy()
    heights = overlap / total
    # bands are stacked from the top of each bar downwards, on both sides
    for row in left:
        for place, column in enumerate(right):
            height = heights[row, column]
            if overlap[row, column] >= FAINTEST * max(overlap[row].sum(), 1e-12):
                _draw_band(
                    axes, float(at_left[row]), float(at_right[place]), float(height), palette.colour_of_part(int(row))
                )
            at_left[row] -= height
            at_right[place] -= height
    sides = ((0.0, left, tops_left, overlap.sum(1)), (1.0, right, tops_right, overlap.sum(0)))
    for side, (x, order, tops, units) in enumerate(sides):
        for place, part in enumerate(order):
            height = units[part] / total
            colour = palette.colour_of_part(int(part)) if side == 0 else palette.muted
            axes.bar(x, -height, BAR, tops[place], color=colour, linewidth=0, zorder=3)
            text = str(part) if names is None else visible(f"{part} {names[side][part]}")
            axes.annotate(
                text if len(text) < 28 else f"{text[:26]}…",
                (x + (-BAR if side == 0 else BAR), tops[place] - height / 2),
                ha="right" if side == 0 else "left",
                va="center",
                fontsize=8.5,
                color=palette.ink,
                parse_math=False,
                zorder=4,
            )
    axes.set_axis_off()
    room = 0.1 if names is None else 0.62
    axes.set_xlim(-BAR - room, 1 + BAR + room)
    axes.set_ylim(-0.02, 1 + GAP + 0.02)
    several = ", ".join(f"{one} → {' + '.join(map(str, parts))}" for one, parts in found.splits.items())
    return Caption(
        f"From {overlap.shape[0]} to {overlap.shape[1]}: what split, what merged",
        f"bars are as tall as the units they hold, bands are units in both; split: {several or 'none'}",
    )


def _right_order(overlap: Float[np.ndarray, "component other"]) -> np.ndarray:
    """Return the numbers of the right components, each near the left ones with which it shares units, (components,).

    overlap: the number of units that a left and a right component share, (left components, right components)
    """
    weights = overlap / np.maximum(overlap.sum(axis=0), 1e-12)
    return np.argsort(weights.T @ np.arange(overlap.shape[0]), kind="stable")


def _bar_tops(heights: Float[np.ndarray, " bars"]) -> Float[np.ndarray, " bars"]:
    """Return the upper ends of bars that are stacked downwards, with the space `GAP` divided evenly between them.

    heights: the heights of the bars, which sum to 1, (bars,)
    """
    gap = GAP / max(1, len(heights) - 1)
    return 1 + GAP - np.concatenate([[0.0], np.cumsum(heights[:-1] + gap)])


def _draw_band(axes: "Axes", left: float, right: float, height: float, colour: str) -> None:
    """Draw the band of the units that two components share, from the left bar to the right one.

    axes: matplotlib axes to draw on
    left, right: the upper ends of the band at the two sides, in data units of the axes
    height: the height of the band, in data units of the axes
    colour: the colour of the band, "#rrggbb"
    """
    x = np.linspace(0.0, 1.0, 40)
    bend = x * x * (3 - 2 * x)
    top = left + (right - left) * bend
    axes.fill_between(BAR / 2 + x * (1 - BAR), top - height, top, color=colour, alpha=0.45, linewidth=0, zorder=2)
