"""Pictures as part of a page: SVG with the page's own colours, so that one picture serves light and dark pages.

Every colour of the palette is written as a variable of the page's style sheet (`colour_variables`). Text stays text.
Nothing in the picture names an address on a network.
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
"""The size of a picture in inches. It is narrow, so that its type can be read on a telephone too; wide pages show two
pictures beside each other."""
DROPPED = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")
"""Only tags are changed. What is outside of tags is text, which may come from other people, and is left alone."""
NAMESPACE = re.compile(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"')
OPENING = re.compile(r"<svg\b[^>]*?viewBox=\"(?P<box>[^\"]*)\"[^>]*>")


def colour_variables(palette: Palette) -> dict[str, str]:
    """Return the variables of the page's style sheet, as {name: colour}."""
    named = {f"--{field.name}": getattr(palette, field.name) for field in fields(palette) if field.name != "series"}
    return named | {f"--series-{number}": colour for number, colour in enumerate(palette.series)}


def inline_svg(
    draw: "Callable[[Axes], object]", name: str, label: str, width: float = PAGE_WIDTH, height: float = PAGE_HEIGHT
) -> str:
    """Draw a picture and return it as an `<svg>` element.

    draw: a function that draws on axes.
    name: letters and digits, unique on the page; identifiers begin with it.
    label: a description for people who do not see the picture.
    width, height: inches.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    settings: dict[Any, Any] = {
        **LIGHT.settings(),
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
    """Return the SVG with colours as variables, and identifiers that are unique on the page."""
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
