"""Define the house style of all pictures: colours for light and dark pages, axes, and captions.

Pictures are readable without colour vision. A picture is drawn in the palette that suits the background of its axes. So
`plt.style.use("dark_background")`, `with style.with_palette(style.DARK):` and a notebook's own settings all work:

    from lvsearch.pictures import style
    plt.rcParams.update(style.LIGHT.settings())   # everything after it in the house style

A caption stands above a picture: a title of one line, and below it a text that says what the picture shows.
"""

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lvsearch.files.plain_text import visible
from lvsearch.models.plain_arguments import shortened_repr

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDTH, HEIGHT = 7.6, 4.6
"""The size of a picture on a page of its own, in inches."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers used together with the colours of `Palette.series`, for black and white, and for people who cannot tell the
colours apart."""


@dataclass(frozen=True)
class Palette:
    """Colours by their purpose, as "#rrggbb", all distinct within a palette.

    `ink` and `muted` are for text, `faint` and `grid` for lines in the background, `band` for areas. `main` is for the
    subject of a picture, `accent` for the one thing to look at. `series` tells topics or clusters apart: the colours of
    Okabe & Ito (2008), darkened or lightened until each has a contrast of at least 3 to 1 with the background.
    """

    background: str
    ink: str
    muted: str
    faint: str
    grid: str
    main: str
    accent: str
    band: str
    series: tuple[str, ...]

    def colour_of_part(self, number: int) -> str:
        """Return the colour of topic or cluster `number`, from 0; the colours of the series repeat."""
        return self.series[number % len(self.series)]

    def settings(self) -> "dict[Any, Any]":
        """Return settings of matplotlib (`rcParams`) for this palette."""
        from cycler import cycler

        return {
            "figure.facecolor": self.background,
            "axes.facecolor": self.background,
            "savefig.facecolor": self.background,
            "text.color": self.ink,
            "axes.labelcolor": self.ink,
            "axes.titlecolor": self.ink,
            "axes.edgecolor": self.faint,
            "xtick.color": self.muted,
            "ytick.color": self.muted,
            "grid.color": self.grid,
            "grid.linewidth": 0.7,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlelocation": "left",
            "axes.titleweight": "bold",
            "axes.titlesize": 12,
            "legend.frameon": False,
            "font.size": 10,
            "axes.prop_cycle": cycler(color=self.series),
            "lines.markersize": 5,
        }


LIGHT = Palette(
    background="#ffffff",
    ink="#1c2530",
    muted="#4b5563",
    faint="#7a8694",
    grid="#e3e7ec",
    main="#1f5a96",
    accent="#b34700",
    band="#d6e4f2",
    series=("#0072b2", "#cc5500", "#008a65", "#b0478f", "#8a6d00", "#4a5560", "#2b8fc4"),
)
DARK = Palette(
    background="#14181d",
    ink="#e8ecf1",
    muted="#aab4c0",
    faint="#7d8896",
    grid="#2a313a",
    main="#6fb1ee",
    accent="#ff9b52",
    band="#22384f",
    series=("#4db2f0", "#ff8f40", "#3fcf9f", "#e89ad0", "#e5c04a", "#b8c2cc", "#93d5ff"),
)


@contextmanager
def with_palette(palette: Palette) -> Iterator[None]:
    """Give pictures made inside of the context this palette; afterwards matplotlib's settings are as before."""
    import matplotlib

    with matplotlib.rc_context(palette.settings()):
        yield


def palette_of(axes: "Axes") -> Palette:
    """Return `DARK` if the background of axes is dark, else `LIGHT`. Behind transparent axes the figure's counts."""
    from matplotlib.colors import to_rgba

    shown = next(  # the first background of the two that is not transparent, as (red, green, blue)
        (
            colour[:3]
            for part in (axes, axes.figure)
            if (colour := to_rgba(part.get_facecolor()))[3] > 0.5  # pyright: ignore[reportArgumentType]
        ),
        (1.0, 1.0, 1.0),
    )
    return DARK if sum(weight * part for weight, part in zip((0.21, 0.72, 0.07), shown, strict=True)) < 0.4 else LIGHT


def checked_axes(ax: Any) -> "Axes":
    """Return `ax` itself. Raises ValueError for anything but matplotlib axes."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise ValueError(
            f"got ax={shortened_repr(ax)}, expected matplotlib axes, such as plt.subplots()[1], or None for a new "
            "figure"
        )
    return ax


def in_house_style(ax: "Axes | None", width: float = WIDTH, height: float = HEIGHT) -> "Axes":
    """Return axes in the house style: the given axes, or those of a new figure.

    ax: matplotlib axes to style, or None for a new figure
    width, height: the size of a new figure, in inches

    Raises ValueError for anything but axes and None.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(width, height), dpi=150, layout="constrained")[1]
    checked_axes(ax)
    palette = palette_of(ax)
    ax.spines[["top", "right"]].set_visible(False)
    for spine in ax.spines.values():
        spine.set_color(palette.faint)
    ax.grid(axis="y", color=palette.grid, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=10, colors=palette.muted)
    ax.xaxis.label.set_color(palette.ink)
    ax.yaxis.label.set_color(palette.ink)
    return ax


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


def draw_captioned(
    ax: "Axes | None", draw: "Callable[[Axes], Caption]", width: float = WIDTH, height: float = HEIGHT
) -> "Axes":
    """Draw a picture with its caption on axes in the house style, and return the axes.

    ax: matplotlib axes to draw on, or None for a new figure
    draw: a function that draws on axes and returns the caption without drawing it
    width, height: the size of a new figure, in inches

    Raises ValueError for axes that are none.
    """
    axes = in_house_style(ax, width, height)
    write_caption(axes, draw(axes))
    return axes


def lay_out(axes: "Axes") -> None:
    """Lay out the figure of existing axes, so that their width is the one that the finished picture has.

    Lines of a caption are as long as the axes are wide, and names beside the axes take room.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes always have a figure
    figure.draw_without_rendering()


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
