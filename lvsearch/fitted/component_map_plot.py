"""The picture of what split and what merged between the fits of two sizes."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.fitted.alignment import ComponentMap
from lvsearch.pictures.captions import Caption
from lvsearch.pictures.style import palette_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

BAR, GAP = 0.06, 0.22
"""Width of a bar, and the space between bars as a share of the whole height."""
FAINTEST = 0.05
"""Of a component's units: a smaller part is not drawn."""


def draw_component_map(
    found: ComponentMap, axes: "Axes", names: "tuple[Sequence[str], Sequence[str]] | None" = None
) -> Caption:
    """Components of one fit at the left, of the other at the right, as tall as the units they hold; bands are the units
    that both have. names: of the components on each side, by default their numbers. Returns the caption."""
    palette, overlap = palette_of(axes), found.overlap.to_numpy()
    total = max(float(overlap.sum()), 1e-12)
    left = np.arange(overlap.shape[0])
    right = _beside(overlap)
    tops_left, tops_right = _tops(overlap.sum(1)[left] / total), _tops(overlap.sum(0)[right] / total)
    at_left, at_right = tops_left.copy(), tops_right.copy()
    heights = overlap / total
    for row in left:
        for place, column in enumerate(right):
            height = heights[row, column]
            if overlap[row, column] >= FAINTEST * max(overlap[row].sum(), 1e-12):
                _band(axes, float(at_left[row]), float(at_right[place]), float(height), palette.of_part(int(row)))
            at_left[row] -= height
            at_right[place] -= height
    sides = ((0.0, left, tops_left, overlap.sum(1)), (1.0, right, tops_right, overlap.sum(0)))
    for side, (x, order, tops, units) in enumerate(sides):
        for place, part in enumerate(order):
            height = units[part] / total
            colour = palette.of_part(int(part)) if side == 0 else palette.muted
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


def _beside(overlap: Float[np.ndarray, "component other"]) -> np.ndarray:
    """The right side's components, each as near as can be to those it shares units with."""
    weights = overlap / np.maximum(overlap.sum(axis=0), 1e-12)
    return np.argsort(weights.T @ np.arange(overlap.shape[0]), kind="stable")


def _tops(heights: Float[np.ndarray, " bars"]) -> Float[np.ndarray, " bars"]:
    """The upper ends of bars below each other, the space between them shared out."""
    gap = GAP / max(1, len(heights) - 1)
    return 1 + GAP - np.concatenate([[0.0], np.cumsum(heights[:-1] + gap)])


def _band(axes: "Axes", left: float, right: float, height: float, colour: str) -> None:
    x = np.linspace(0.0, 1.0, 40)
    bend = x * x * (3 - 2 * x)
    top = left + (right - left) * bend
    axes.fill_between(BAR / 2 + x * (1 - BAR), top - height, top, color=colour, alpha=0.45, linewidth=0, zorder=2)
