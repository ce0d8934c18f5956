"""Draw how surely each component exists: the similarity of its partners in other fits, in a row per component."""

import textwrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import in_house_style, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 40
"""The largest number of components drawn; those that persist least are left out."""
ROW, MARGIN, LEAST = 0.42, 1.7, 3.2
"""The height of a row, the space around all rows, and the smallest height of a picture, in inches."""
LONGEST, LINES = 30, 2
"""The largest numbers of characters in a line of a name, and of its lines."""
SPREAD = 0.22
"""Half the height over which the dots of a row are spread, as a share of the row."""
TEXT_AT, RIGHT = 1.045, 1.3
"""The position of the probabilities, and the right end of the picture, on the axis of similarities."""


class Similarities(NamedTuple):
    """The similarity of each component to its partner in other fits, from 0 (chance) to 1 (the same).

    samples: in fits of resampled data.
    starts: in fits of the same data from other starts.
    sizes: in fits of the same data at other sizes.
    """

    samples: Float[np.ndarray, "sample component"]
    starts: Float[np.ndarray, "start component"]
    sizes: Float[np.ndarray, "size component"]


def plot_persistence(
    table: pd.DataFrame, found: Similarities, threshold: float, kind: str, ax: "Axes | None"
) -> "Axes":
    """Draw the similarity of each component's partners in other fits, in a row per component, and return the axes.

    table: the table of a `Persistence`, with a row per component in the order in which they are drawn.
    found: the similarities in the other fits.
    threshold: the similarity above which a component exists in another fit.
    kind: the plural noun for components, such as "topics".
    ax: the axes to draw on; None for a new figure.
    """
    rows = min(len(table), MOST_ROWS)
    axes = in_house_style(ax, height=max(LEAST, MARGIN + ROW * rows))
    write_caption(axes, draw_persistence(table, found, threshold, kind, axes))
    return axes


def draw_persistence(table: pd.DataFrame, found: Similarities, threshold: float, kind: str, axes: "Axes") -> Caption:
    """Draw the similarity of each component's partners on existing axes, and return a caption without drawing it.

    table: the table of a `Persistence`, with a row per component in the order in which they are drawn.
    found: the similarities in the other fits.
    threshold: the similarity above which a component exists in another fit; the area above it is shaded.
    kind: the plural noun for components, such as "topics".
    """
    palette = palette_of(axes)
    order = table.index.to_numpy()[:MOST_ROWS]
    axes.axvspan(threshold, 1.02, color=palette.band, linewidth=0, zorder=0)
    axes.hlines(np.arange(len(order) - 1) + 0.5, -0.02, RIGHT, color=palette.grid, linewidth=0.7, zorder=1)
    for row, component in enumerate(order):
        # other starts below the middle of the row and other sizes above it, since the axis runs downwards
        colour = palette.colour_of_part(int(component))
        for others, marker, size, below in ((found.starts, "|", 6.0, 0.3), (found.sizes, "D", 4.0, -0.3)):
            values = others[:, component]
            axes.plot(
                values,
                np.full(len(values), row + below),
                marker,
                color=palette.muted,
                markersize=size,
                markerfacecolor="none",
                zorder=2,
            )
        values = np.sort(found.samples[:, component])
        axes.plot(values, row + _spread(len(values)), "o", color=colour, markersize=4.5, alpha=0.65, zorder=3)
        at = table.loc[component]
        axes.annotate(
            f"{at['probability']:.2f} ({at['lower']:.2f}–{at['upper']:.2f})",
            (TEXT_AT, row),
            va="center",
            fontsize=8.5,
            color=palette.ink,
            parse_math=False,
        )
    axes.set_xlim(-0.02, RIGHT)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_xlabel("similarity of the partner: 0 chance, 1 the same")
    axes.xaxis.set_label_coords(0.5 / RIGHT, -0.12 if len(order) < 8 else -0.06)
    axes.set_yticks(range(len(order)), [_label(int(k), str(table.loc[k, "name"])) for k in order])
    for tick in axes.get_yticklabels():
        tick.set_parse_math(False)
        tick.set_fontsize(8.5)
    left_out = f"; {len(table) - len(order)} more are left out" if len(table) > len(order) else ""
    return Caption(
        f"Which of {len(table)} {kind} come back",
        "dots: fits of samples of the data, at sizes drawn from the posterior; | other starts, ◇ other sizes of the "
        "same data. Where it is shaded a component counts as the same; beside it the probability of that in one more "
        f"sample, with its 90 % interval{left_out}",
    )


def _spread(n: int) -> Float[np.ndarray, " dot"]:
    """Return vertical offsets for n dots of one row, (n,), as shares of the row; neighbouring dots get different ones.

    Every third dot has the same offset.
    """
    return (np.arange(n) % 3 - 1) * SPREAD / 2


def _label(number: int, name: str) -> str:
    """Return the number and the name of a component, broken into at most two lines of 30 characters."""
    lines = textwrap.wrap(visible(f"{number}  {name}"), LONGEST, drop_whitespace=False)
    return "\n".join(line.strip() for line in lines[:LINES]) + ("…" if len(lines) > LINES else "")
