"""Write captions above pictures: a title of one line, and below it a text that says what the picture shows."""

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvsearch.files.plain_text import visible
from lvsearch.pictures.style import palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHARACTERS_PER_INCH = 15.5  # of a caption's text, in its small type
BOUND = "\x00"
"""A character that stands for a space at which a line must not be broken."""
LARGEST, SMALLEST = 12.5, 8.5
"""The largest and smallest type of a title, in points; a title is as large as fits on one line."""


@dataclass(frozen=True)
class Caption:
    """The words of a picture: `title` is a short line; `text` may have several lines, separated by line breaks."""

    title: str
    text: str


def write_caption(axes: "Axes", caption: Caption) -> None:
    """Write the title and the text of a caption above axes.

    The title stays on one line: its type shrinks to fit. If it would have to be below 8.5 points, the title is
    shortened, and the full title begins the text.
    """
    # a layout that is still to be made may change this width a little, which does not matter for breaking lines
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
    wrapped = [visible(line) for part in text.split("\n") for line in _wrap(part, width)]
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


def _wrap(text: str, width: int) -> list[str]:
    """Return a text broken into lines of at most `width` characters.

    A number and its per cent sign stay on one line.
    """
    return [line.replace(BOUND, " ") for line in textwrap.wrap(text.replace(" %", f"{BOUND}%"), width)]


def _width(text: str, points: float) -> float:
    """Return the width of one line of text in bold type, in points (1/72 inch).

    Dollar signs, which would begin a formula, count like an S.

    points: the size of the type
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    bold = FontProperties(weight="bold")
    return float(
        TextPath((0, 0), text.replace("$", "S") or " ", size=points, prop=bold, usetex=False).get_extents().width
    )
