"""Draw by how much each size predicts held-out units better or worse than a reference size."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from lvsearch.pictures.captions import Caption
from lvsearch.pictures.size_axis import SizeAxis, size_text
from lvsearch.pictures.style import palette_of
from lvsearch.recommending.recommendation import Recommendation
from lvsearch.sizing.sizes import Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_differences(
    sizes: Sequence[Size],
    difference: Float[np.ndarray, " size"],
    error: Float[np.ndarray, " size"],
    axes: "Axes",
    *,
    marked: Size,
    within: float,
    label: str,
    scale: str,
) -> None:
    """Draw the score difference of each size as a dot, with a line of one standard error to both sides.

    Args:
        sizes: the sizes (numbers of components), increasing.
        difference: the held-out score of each size minus that of the reference size, nats per observation, (size,).
        error: the standard errors of the differences, nats per observation, (size,).
        axes: matplotlib axes to draw on.
        marked: the size that is drawn in orange.
        within: half the height of the shaded band, nats; sizes inside are as good as the reference. 0 draws no band.
        label: the label of the horizontal axis.
        scale: the label of the vertical axis.
    """
    palette, where = palette_of(axes), SizeAxis.from_sizes(sizes)
    at = where.positions(sizes)
    axes.axhspan(-within, within, color=palette.band, linewidth=0, zorder=0)
    axes.axhline(0.0, color=palette.faint, linewidth=0.8, zorder=1)
    axes.vlines(at, difference - error, difference + error, color=palette.main, linewidth=2.4, zorder=3)
    axes.plot(at, difference, "o-", color=palette.main, markersize=5, linewidth=1, zorder=3)
    chosen = sizes.index(marked)
    axes.plot(at[chosen], difference[chosen], "o", color=palette.accent, markersize=8, zorder=4)
    # the vertical axis shows every line whole, and keeps the reference at 0 off its edges
    low, high = float((difference - error).min()), float((difference + error).max())
    if max(-low, high, within) > 0:
        axes.set_ylim(min(1.1 * low, -1.6 * within), max(1.1 * high, 1.6 * within, -0.1 * low))
    where.ticks(axes, marked)
    axes.set_xlabel(label, parse_math=False)
    axes.set_ylabel(scale)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}".replace("-", "−"))


def draw_recommendation(found: Recommendation, axes: "Axes") -> Caption:
    """Draw how far the held-out score of each size is below that of the size that predicts best; return the caption.

    The recommended size is orange. The caption is returned, not written.

    found: the recommendation
    axes: matplotlib axes to draw on
    """
    nouns = found.nouns
    draw_differences(
        [outcome.size for outcome in found.outcomes],
        np.array([outcome.difference for outcome in found.outcomes]),
        np.array([outcome.standard_error for outcome in found.outcomes]),
        axes,
        marked=found.size,
        within=0.0,
        label=found.size_names[0].replace("_", " "),
        scale=f"nats per {nouns.observation}, above {size_text(found.best)}",
    )
    return Caption(
        f"{size_text(found.size)} {found.size_names[0]} are recommended",
        f"Held-out {nouns.units}: paired differences ± 1 standard error to {size_text(found.best)}, which predicts "
        f"best; orange: {found.rule}; {found.estimator}",
    )
