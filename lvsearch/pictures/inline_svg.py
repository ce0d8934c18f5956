"""A picture as part of a page: SVG whose colours are the page's, so that one picture serves light and dark.

Every colour of the palette is written as a variable of the page's style sheet (`colour_variables`), text stays text,
and nothing in it names an address on a network.
"""

import html
import io
import re
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from lvsearch.pictures.style import LIGHT, Palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE_WIDTH, PAGE_HEIGHT = 4.9, 3.3
"""Inches. Narrow, so that its type can be read on a telephone too; wide pages show two beside each other."""
DROPPED = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
"""What stands outside tags is text, of other people perhaps, and stays as it is."""
NAMESPACE = re.compile(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"')
OPENING = re.compile(r"<svg\b[^>]*?viewBox=\"(?P<box>[^\"]*)\"[^>]*>")


def colour_variables(palette: Palette) -> dict[str, str]:
    """Name of each variable of the style sheet -> its colour."""
    named = {f"--{field.name}": getattr(palette, field.name) for field in fields(palette) if field.name != "series"}
    return named | {f"--series-{number}": colour for number, colour in enumerate(palette.series)}


def inline_svg(
    draw: "Callable[[Axes], object]", name: str, label: str, width: float = PAGE_WIDTH, height: float = PAGE_HEIGHT
) -> str:
    """Draw on axes of a figure of so many inches and return it as an `<svg>` element.

    name: of letters and digits, its own on the page: identifiers begin with it. label: what is to be seen, for those
    who do not see it.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    settings: dict[Any, Any] = LIGHT.settings() | {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _for_a_page(buffer.getvalue(), name, label)


def _for_a_page(svg: str, name: str, label: str) -> str:
    variables = {colour: variable for variable, colour in colour_variables(LIGHT).items()}

    def tag(match: re.Match[str]) -> str:
        text = NAMESPACE.sub("", match[0]).replace("xlink:href", "href")
        for before in ('id="', "url(#", 'href="#'):
            text = re.sub(rf"(?<!\w){re.escape(before)}", f"{before}{name}-", text)
        return re.sub(r"#[0-9a-f]{6}\b", lambda c: f"var({variables[c[0]]})" if c[0] in variables else c[0], text)

    svg = TAG.sub(tag, DROPPED.sub("", svg).strip())
    box = OPENING.search(svg)
    assert box is not None  # matplotlib's pictures have one
    opening = f'<svg class="picture" role="img" aria-label="{html.escape(label)}" viewBox="{box["box"]}">'
    return svg[: box.start()] + opening + svg[box.end() :]
