"""Draw the posterior over sizes: as estimates, or as intervals that are proved or assumed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption
from lvsearch.pictures.size_axis import SizeAxis, size_text
from lvsearch.pictures.style import palette_of
from lvsearch.recommending.differences_plot import draw_recommendation
from lvsearch.results.findings import Findings
from lvsearch.results.wording import (
    best_estimate,
    bounds_in_words,
    kind_of,
    limit_in_words,
    probability_in_words,
    scale_in_words,
    short_answer,
    unit_name,
)
from lvsearch.sizing.posterior import Posterior, format_probability, posterior
from lvsearch.sizing.words import sizes_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEGLIGIBLE = 1e-3
"""Sizes whose 95 % point lies below this probability are left out of the picture."""
NEIGHBOURS = 2
"""How many sizes of negligible probability are still shown on each side."""


def draw_posterior(result: Findings, axes: "Axes", kind: str | None = None) -> Caption:
    """Draw the probability of each size on existing axes, and return a caption without drawing it.

    For a search by prediction, which has no posterior, the held-out score of each size is drawn.

    result: the search.
    axes: matplotlib axes.
    kind: "estimate", "certified" (proved intervals) or "diminishing" (intervals that assume diminishing gains); None
        for the default of the result.

    Raises ValueError for a kind that the result does not have.
    """
    if result.by_prediction and result.recommended is not None:
        return draw_recommendation(result.recommended, axes)
    kind = kind_of(result, kind)
    if kind == "estimate":
        return _draw_estimate(result, axes)
    return _draw_intervals(result, posterior(result.certified() if kind == "certified" else result.diminishing()), axes)


def size_label(unit: str) -> str:
    """Return the label of the axis of sizes: "number of topics" for the plural noun "topics", "size" for "size"."""
    return f"number of {visible(unit)}" if unit != "size" else "size"


def _draw_estimate(result: Findings, axes: "Axes") -> Caption:
    # No error bars: where the evidence is uncertain they would reach from 0 to 1 on every size. The band says what is
    # known: these sizes together hold the probability.
    """Draw the estimated probability of each size on existing axes, and return a caption without drawing it."""
    found, palette = result.estimated, palette_of(axes)
    together = found.indistinguishable
    high = found.probability_upper.tolist()
    # leave out sizes of negligible probability, except those that may be the best and their neighbours
    shown = _with_neighbours([p >= NEGLIGIBLE or s in together for s, p in zip(found.sizes, high, strict=True)])
    sizes = [size for size, one in zip(found.sizes, shown, strict=True) if one]
    mean = found.probability[np.array(shown)]
    where = SizeAxis.from_sizes(sizes)
    at = where.positions(sizes)
    where.shade(axes, together)
    colours = [palette.accent if s == found.best else palette.main if s in together else palette.faint for s in sizes]
    axes.vlines(at, 0.0, mean, color=colours, linewidth=2.4, zorder=3)
    axes.scatter(at, mean, s=42, c=colours, zorder=4, linewidths=0)
    best = sizes.index(found.best)
    text = f"{size_text(found.best)}: {format_probability(float(mean[best]))}"
    _annotate_point(axes, float(at[best]), float(mean[best]), text, leftwards=best > len(sizes) / 2)
    where.ticks(axes, found.best)
    axes.set_ylim(0.0, 1.05 if mean.max() > 0.5 else 1.3 * float(mean.max()))
    axes.set_ylabel("probability among the sizes tried")
    axes.set_xlabel(size_label(unit_name(result)), parse_math=False)
    left_out = len(found.sizes) - len(sizes)
    parts = [
        f"{best_estimate(result)}.",
        f"Shaded: {sizes_in_words(together)}, which hold 95 % between them or cannot be told from the best."
        if len(together) > 1
        else "",
        f"{_basis(result)}: {probability_in_words(result)}.",
        f"{left_out} other sizes tried: each below 0.001." if left_out else "",
    ]
    limit = limit_in_words(result)
    text = " ".join(part for part in parts if part)
    return Caption(short_answer(result), f"{text}\n{limit}" if limit else text)


def _basis(result: Findings) -> str:
    """Return a phrase that says what the probabilities of an estimated posterior come from."""
    if result.partitions is not None:
        return "From chains over partitions of the data, all sizes at once"
    return f"An estimate over the sizes tried, averaged over the errors of their {result.settings.evidence} evidence"


def _with_neighbours(worth: Sequence[bool]) -> list[bool]:
    """Return True for each size to show: all from the first to the last True in `worth`, and two more on each side."""
    first, last = worth.index(True), len(worth) - 1 - list(reversed(worth)).index(True)
    return [first - NEIGHBOURS <= position <= last + NEIGHBOURS for position in range(len(worth))]


def _draw_intervals(result: Findings, table: Posterior, axes: "Axes") -> Caption:
    """Draw the interval of the probability of each size as a bar, and return a caption without drawing it.

    table: the intervals, with a last row for all sizes that were not tried.
    """
    palette, rows = palette_of(axes), table.rows[:-1]
    sizes = [row.size for row in rows if row.size is not None]
    where = SizeAxis.from_sizes(sizes, reserved=True)
    rest = where.beyond
    if table.is_vacuous:
        _shade_from_zero(axes, where, table)
    else:
        places = [where.edges(size) for size in sizes]
        middle = [(0.19 * low + 0.81 * high, 0.81 * low + 0.19 * high) for low, high in places]
        _draw_bars(axes, middle, [(r.probability_lower, r.probability_upper) for r in rows], palette.main)
        wide = where.edges(sizes[-1])[1] - where.edges(sizes[-1])[0]
        ends = table.unvisited.probability_lower, table.unvisited.probability_upper
        _draw_bars(axes, [(rest - 0.31 * wide, rest + 0.31 * wide)], [ends], palette.faint)
    border = (
        float(where.positions([sizes[-1]])[0] * rest) ** 0.5
        if where.logarithmic
        else (where.positions(sizes).max() + rest) / 2
    )
    axes.axvline(border, color=palette.faint, linewidth=0.8, linestyle=":", zorder=1)
    where.ticks(axes, extra={float(rest): "un-\nvisited"})
    axes.set_ylim(-0.02, 1.05)
    axes.set_ylabel("probability of the size: from … to")
    axes.set_xlabel(size_label(unit_name(result)), parse_math=False)
    return Caption(
        "Probability of each size: from … to",
        f"intervals {table.basis}{scale_in_words(result)}; {result.settings.evidence} evidence; "
        f"{bounds_in_words(result, table.kind)}",
    )


def _draw_bars(
    axes: "Axes", places: Sequence[tuple[float, float]], ends: Sequence[tuple[float, float]], colour: str
) -> None:
    """Draw a bar from the lower to the upper end of each interval.

    The two ends are drawn as lines, so that an interval of no width can be seen too.

    places: (left, right) of each bar, on the axis of sizes.
    ends: (lower, upper) of each interval.
    colour: the colour of the bars.
    """
    left, right = np.array(places).T
    low, high = np.array(ends).T
    axes.bar(left, high - low, right - left, low, align="edge", color=colour, alpha=0.7, linewidth=0, zorder=3)
    axes.hlines([*low, *high], [*left, *left], [*right, *right], color=colour, linewidth=1.4, zorder=4)


def _shade_from_zero(axes: "Axes", where: SizeAxis, table: Posterior) -> None:
    """Shade the intervals of all sizes as one area with a note, for intervals that all begin at probability 0.

    Bars would look like knowledge: no single size is proved to have any probability.

    where: the axis of sizes. table: the intervals.
    """
    palette, at = palette_of(axes), np.array([where.edges(size) for size in where.sizes]).ravel()
    high = np.repeat([row.probability_upper for row in table.rows[:-1]], 2)
    axes.fill_between(at, 0.0, high, color=palette.band, linewidth=0, zorder=1)
    axes.vlines(where.beyond, 0.0, table.unvisited.probability_upper, color=palette.band, linewidth=9, zorder=1)
    axes.text(
        0.5,
        0.5,
        "No single size is proved any probability:\neach may have none (shaded: what it may\nhave at most)",
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=10,
        color=palette.accent,
        bbox={"boxstyle": "round,pad=0.5", "facecolor": palette.background, "edgecolor": palette.accent, "alpha": 0.95},
        zorder=6,
    )


def _annotate_point(axes: "Axes", x: float, y: float, text: str, leftwards: bool) -> None:
    """Write `text` beside the point (x, y), in the colour of the best size, to its left or to its right."""
    palette = palette_of(axes)
    axes.annotate(
        text,
        (x, y),
        (-9 if leftwards else 9, 5),
        textcoords="offset points",
        ha="right" if leftwards else "left",
        fontsize=10,
        color=palette.accent,
        fontweight="bold",
        bbox={"boxstyle": "round,pad=0.15", "facecolor": palette.background, "edgecolor": "none", "alpha": 0.85},
        zorder=7,
        parse_math=False,
    )
