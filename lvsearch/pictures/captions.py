"""What a picture says in words: a title of one line, and below it what the picture rests on."""

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvsearch.files.plain_text import visible
from lvsearch.pictures.style import palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHARACTERS_PER_INCH = 15.5  # of a caption in its small type
BOUND = "\x00"
"""In the place of a space where no line may end."""
LARGEST, SMALLEST = 12.5, 8.5
"""Points of a title: as large as fits on one line."""


@dataclass(frozen=True)
class Caption:
    """`title` is a short line; `text` may have several, ended by line breaks."""

    title: str
    text: str


def write_caption(axes: "Axes", caption: Caption) -> None:
    """Write title and text above the axes. The title stays on one line: its type shrinks, and below 8.5 points it is
    cut, its words leading the text then."""
    # Not the final width where the layout is still to be made, but near enough for breaking lines.
    inches = axes.get_window_extent().width / axes.figure.dpi
    palette, title, text = palette_of(axes), visible(caption.title), caption.text
    needed = _width(title, LARGEST)
    size = min(LARGEST, LARGEST * inches * 72 / max(needed, 1.0))
    if size < SMALLEST:
        text, size = f"{title}.\n{text}", SMALLEST
        title = textwrap.shorten(
            title, max(8, int(len(title) * inches * 72 / _width(title, SMALLEST))), placeholder="…"
        )
    width = max(30, int(inches * CHARACTERS_PER_INCH))
    wrapped = [visible(line) for part in text.split("\n") for line in _wrapped(part, width)]
    axes.annotate(
        "\n".join(wrapped),
        (0, 1),
        (0, 6),
        "axes fraction",
        "offset points",
        fontsize=8.5,
        color=palette.muted,
        va="bottom",
        ha="left",
        parse_math=False,
    )
    axes.set_title(
        title,
        loc="left",
        fontsize=size,
        fontweight="bold",
        color=palette.ink,
        pad=9 + 11.5 * len(wrapped),
        parse_math=False,
    )


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many characters, a number and its per cent on one."""
    return [line.replace(BOUND, " ") for line in textwrap.wrap(text.replace(" %", f"{BOUND}%"), width)]


def _width(text: str, points: float) -> float:
    """Points that a bold line takes; dollar signs, which would begin a formula, as wide as an S."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    bold = FontProperties(weight="bold")
    return float(
        TextPath((0, 0), text.replace("$", "S") or " ", size=points, prop=bold, usetex=False).get_extents().width
    )
