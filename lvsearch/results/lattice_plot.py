"""Draw the posterior over two size variables as a lattice with a square for each size."""

from typing import TYPE_CHECKING

import numpy as np

from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption
from lvsearch.pictures.style import palette_of
from lvsearch.results.findings import Findings
from lvsearch.results.wording import limit_in_words, probability_in_words, short_answer
from lvsearch.sizing.posterior import format_probability, posterior
from lvsearch.sizing.sizes import Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WRITTEN = 0.01
"""The smallest probability that is written into its square."""
MOST_WRITTEN = 14
"""The most squares along the longer side for which probabilities are written into the squares."""


def draw_lattice(result: Findings, axes: "Axes") -> Caption:
    """Draw the probability of each size of two size variables as a shaded square, and return a caption.

    Sizes that were tried are marked, and the best one is framed. The caption is not drawn.

    result: the search. axes: matplotlib axes to draw on.

    Raises ValueError unless the model has two size variables.
    """
    names = result.evaluator.size_names
    if len(names) != 2:
        raise ValueError(f"got {len(names)} size variable(s), expected two: use plot_posterior")
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    palette, chances, best = palette_of(axes), _chances(result), result.best_size
    tried = [visit.size for visit in result.visits]
    rows, columns = (max(size[axis] for size in tried) for axis in (0, 1))
    shown = np.full((rows, columns), np.nan)
    for size, chance in chances.items():
        shown[size[0] - 1, size[1] - 1] = chance
    shades = LinearSegmentedColormap.from_list(
        "probability", [palette.background, palette.band, palette.main]
    ).with_extremes(bad=palette.background)
    top = max(0.05, float(np.sqrt(max(chances.values()))))
    edges = np.arange(columns + 1) + 0.5, np.arange(rows + 1) + 0.5
    # a square root: sizes that hold a few hundredths are seen beside those that hold most
    axes.pcolormesh(*edges, np.sqrt(shown), cmap=shades, vmin=0.0, vmax=top, edgecolors=palette.grid, linewidth=0.6)
    for size in tried:
        chance = chances.get(size, 0.0)
        if chance < WRITTEN:
            axes.plot(size[1], size[0], marker="o", markersize=3.2, color=palette.faint, linewidth=0)
        elif max(rows, columns) <= MOST_WRITTEN:
            colour = palette.background if np.sqrt(chance) > 0.75 * top else palette.ink
            text = format_probability(chance)[:4] if chance < 0.995 else format_probability(chance)
            axes.text(size[1], size[0], text, ha="center", va="center", fontsize=8.5, color=colour)
    for size in result.estimated.indistinguishable if not result.evaluator.nested else ():
        axes.add_patch(
            Rectangle((size[1] - 0.5, size[0] - 0.5), 1, 1, fill=False, edgecolor=palette.ink, linewidth=1.2)
        )
    axes.add_patch(
        Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor=palette.accent, linewidth=2.6, zorder=5)
    )
    axes.grid(visible=False)
    for axis, number, name in ((axes.xaxis, columns, names[1]), (axes.yaxis, rows, names[0])):
        axis.set_ticks(np.arange(1, number + 1, max(1, -(-number // MOST_WRITTEN))))
        axis.set_label_text(f"number of {visible(name).replace('_', ' ')}", parse_math=False)
    axes.set_aspect("equal")
    return _caption(result, len(tried))


def _caption(result: Findings, n_tried: int) -> Caption:
    """Return the caption of the picture of two size variables. n_tried: the number of sizes that were tried."""
    if result.evaluator.nested:
        text = f"Shade: the least that is proved of each size ({posterior(result.certified()).basis})."
        title = f"{'×'.join(map(str, result.best_size))} has the largest prior × evidence"
    else:
        together = len(result.estimated.indistinguishable)
        framed = f" Framed thinly: the {together} that the evidence cannot choose between." if together > 1 else ""
        text = f"Shade: probability among the sizes tried, {probability_in_words(result)}.{framed}"
        title = short_answer(result)
    limit = limit_in_words(result)
    text = f"{text} Dots: below .01. Blank: not tried ({n_tried} were). Framed: the most probable."
    return Caption(title, f"{text}\n{limit}" if limit else text)


def _chances(result: Findings) -> dict[Size, float]:
    """Return {size: posterior probability}; for plug-in evidence the proved lower end of the probability."""
    if result.evaluator.nested:
        rows = posterior(result.certified()).rows[:-1]
        return {row.size: row.probability_lower for row in rows if row.size is not None}
    return dict(zip(result.estimated.sizes, result.estimated.probability.tolist(), strict=True))
