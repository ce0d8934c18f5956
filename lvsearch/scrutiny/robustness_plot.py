"""Draw which sizes different numbers of units (documents, rows) support."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int

from lvsearch.files.plain_text import visible
from lvsearch.pictures.style import palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_robustness(
    units: Int[np.ndarray, " mark"],
    probability: Float64[np.ndarray, "mark size"],
    supported: Int[np.ndarray, " mark"],
    size: int,
    names: tuple[str, str],
    axes: "Axes",
) -> None:
    """Draw the probability of each size given m units as shades, and the largest supported size as a line.

    The line is thick where it is `size`.

    units: the numbers of units m, increasing.
    probability: of each size 1, 2, … given m units.
    supported: the largest size that m units support.
    size: the size that is supported over the longest stretch.
    names: the plural nouns of units and components, such as ("rows", "components").
    """
    from matplotlib.colors import LinearSegmentedColormap

    palette, n_sizes = palette_of(axes), probability.shape[1]
    shades = LinearSegmentedColormap.from_list("probability", [palette.background, palette.band, palette.main])
    edges = np.append(units, units[-1] * 1.05)
    # the square root makes sizes with a probability of a few hundredths visible
    axes.pcolormesh(
        edges, np.arange(n_sizes + 1) + 0.5, np.sqrt(probability.T), cmap=shades, vmin=0.0, vmax=1.3, linewidth=0
    )
    axes.step(edges, np.append(supported, supported[-1]), where="post", color=palette.ink, linewidth=1.4, zorder=4)
    held = np.where(supported == size, float(size), np.nan)
    axes.step(
        edges,
        np.append(held, held[-1]),
        where="post",
        color=palette.accent,
        linewidth=4.5,
        zorder=5,
        solid_capstyle="butt",
    )
    axes.grid(visible=False)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_yticks(np.arange(1, n_sizes + 1))
    axes.set_ylim(0.5, n_sizes + 0.5)
    axes.set_xlim(units[0], edges[-1])
    axes.set_xlabel(f"number of {visible(names[0])} taken", parse_math=False)
    axes.set_ylabel(f"number of {visible(names[1])}", parse_math=False)
