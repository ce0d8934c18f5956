"""Draw pictures as SVG inside a page, in the page's own colours, so that one picture serves light and dark pages.

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
"""Matches attributes of a tag that an SVG inside a page does not need."""
OPENING = re.compile(r"<svg\b[^>]*?viewBox=\"(?P<box>[^\"]*)\"[^>]*>")
"""Matches the opening tag of a picture; the group `box` is its view box."""


def colour_variables(palette: Palette) -> dict[str, str]:
    """Return the colours of a palette as variables of a style sheet, {"--ink": "#1c2530", …, "--series-0": …}."""
    named = {f"--{field.name}": getattr(palette, field.name) for field in fields(palette) if field.name != "series"}
    return named | {f"--series-{number}": colour for number, colour in enumerate(palette.series)}


def inline_svg(
    draw: "Callable[[Axes], object]", name: str, label: str, width: float = PAGE_WIDTH, height: float = PAGE_HEIGHT
) -> str:
    """Draw a picture and return it as the text of an `<svg>` element.

    draw: a function that draws on matplotlib axes
    name: letters and digits, unique on the page; identifiers inside the picture begin with it
    label: a description for people who do not see the picture
    width, height: the size of the picture, in inches
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
    return _as_page_element(buffer.getvalue(), name, label)


def _as_page_element(svg: str, name: str, label: str) -> str:
    """Return matplotlib's SVG as an element of a page: colours become variables, and identifiers begin with `name`.

    svg: the text of a whole SVG file
    name: letters and digits, unique on the page
    label: a description for people who do not see the picture
    """
    variables = {colour: variable for variable, colour in colour_variables(LIGHT).items()}

    def rewrite_tag(match: re.Match[str]) -> str:
        """Return one tag with its identifiers and colours replaced."""
        text = NAMESPACE.sub("", match[0]).replace("xlink:href", "href")
        for before in ('id="', "url(#", 'href="#'):
            text = re.sub(rf"(?<!\w){re.escape(before)}", f"{before}{name}-", text)
        return re.sub(r"#[0-9a-f]{6}\b", lambda c: f"var({variables[c[0]]})" if c[0] in variables else c[0], text)

    svg = TAG.sub(rewrite_tag, DROPPED.sub("", svg).strip())
    box = OPENING.search(svg)
    assert box is not None  # matplotlib's pictures have one
    opening = f'<svg class="picture" role="img" aria-label="{html.escape(label)}" viewBox="{box["box"]}">'
    return svg[: box.start()] + opening + svg[box.end() :]
