"""Draw the answers of a search under changed hyper-parameters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lvsearch.files.plain_text import visible
from lvsearch.pictures.style import palette_of
from lvsearch.sizing.posterior import EstimatedPosterior
from lvsearch.sizing.sizes import Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = 260.0
"""The area of a dot of probability 1, in square points."""
SHOWN = 0.003
"""The smallest probability that gets a dot."""


def draw_sensitivity(
    names: Sequence[str],
    posteriors: Sequence[EstimatedPosterior],
    surviving: Sequence[Size],
    size_name: str,
    axes: "Axes",
) -> None:
    """Draw a row of dots for each posterior, the first on top, with areas that are the probabilities of sizes.

    names: the label of each row. posteriors: the posterior over sizes of each row.
    surviving: the sizes that are shaded, which may be the best in every row.
    size_name: the plural noun that sizes count, such as "components".
    """
    from matplotlib.ticker import MaxNLocator

    palette = palette_of(axes)
    for (size,) in surviving:
        axes.axvspan(size - 0.5, size + 0.5, color=palette.band, linewidth=0, zorder=0)
    shown: list[int] = []
    for row, found in enumerate(posteriors):
        sizes, probability = np.array(found.sizes)[:, 0], found.probability
        kept = probability >= SHOWN
        colours = [palette.accent if (size,) == found.best else palette.main for size in sizes[kept].tolist()]
        axes.scatter(
            sizes[kept], np.full(kept.sum(), row), s=LARGEST * probability[kept], c=colours, linewidths=0, zorder=3
        )
        shown += sizes[kept].tolist()
    axes.set_yticks(range(len(names)), [visible(name) for name in names], parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(min(shown) - 0.8, max(shown) + 0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="x", visible=False)
    axes.set_xlabel(f"number of {visible(size_name.replace('_', ' '))}", parse_math=False)
