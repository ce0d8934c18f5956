"""The house style: colours that can be told apart, titles of one line, an axis for sizes, pictures that fit a page."""

import io
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lvsearch.pictures.inline_svg import colour_variables, inline_svg
from lvsearch.pictures.size_axis import SizeAxis
from lvsearch.pictures.style import (
    DARK,
    LARGEST,
    LIGHT,
    SMALLEST,
    Caption,
    Palette,
    in_house_style,
    palette_of,
    with_palette,
    write_caption,
)
from lvsearch.progress import progress_bar


def axes(**options) -> Axes:
    figure = Figure(figsize=(7, 4.4), layout="constrained", **options)
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def contrast(one: str, other: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""

    def luminance(colour: str) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return float(np.dot([0.2126, 0.7152, 0.0722], parts))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_stand_out(palette: Palette):
    for colour in (palette.ink, palette.muted, palette.main, palette.accent):
        assert contrast(colour, palette.background) >= 4.5
        assert contrast(palette.ink, palette.band) >= 4.5
    for colour in (*palette.series, palette.faint):
        assert contrast(colour, palette.background) >= 3
    assert len(set(colour_variables(palette).values())) == len(colour_variables(palette))


def test_a_picture_takes_the_palette_of_its_background():
    assert palette_of(axes()) is LIGHT
    with with_palette(DARK):
        assert palette_of(axes()) is DARK
        assert in_house_style(axes()).xaxis.label.get_color() == DARK.ink
    with plt.style.context("dark_background"):
        assert palette_of(axes()) is DARK
    clear = axes(facecolor="none")
    clear.set_facecolor("none")
    assert palette_of(clear) is LIGHT
    assert matplotlib.rcParams["figure.facecolor"] != DARK.background


@pytest.mark.parametrize("words", [3, 12, 60])
def test_a_title_stays_on_one_line_inside_the_picture(words: int):
    ax, title = axes(), " ".join(["probable"] * words)
    write_caption(ax, Caption(title, "what it rests on"))
    ax.figure.canvas.draw()
    shown = ax.get_title(loc="left")
    assert "\n" not in shown
    assert ax._left_title.get_window_extent().x1 <= ax.figure.bbox.x1 + 8  # pyright: ignore
    assert SMALLEST <= ax._left_title.get_fontsize() <= LARGEST  # pyright: ignore[reportAttributeAccessIssue]
    assert (shown == title) or title in " ".join(ax.texts[0].get_text().split())


def test_a_number_and_its_per_cent_stay_on_one_line():
    for length in range(10, 40):
        figure, axes = plt.subplots(figsize=(4.0, 3.0))
        write_caption(axes, Caption("title", "x" * length + " ellipses hold 90 % of a component, 5 % to 95 % of it"))
        lines = axes.texts[0].get_text().splitlines()
        assert not any(line.startswith("%") for line in lines)
        assert " ".join(lines) == "x" * length + " ellipses hold 90 % of a component, 5 % to 95 % of it"
        plt.close(figure)


def test_doubled_sizes_stand_on_a_logarithmic_axis():
    doubled, all_of_them = [(2**k,) for k in range(7)], [(k,) for k in range(1, 20)]
    assert SizeAxis.from_sizes(doubled).logarithmic
    assert not SizeAxis.from_sizes(all_of_them).logarithmic
    assert not SizeAxis.from_sizes([(30,), (31,), (33,)]).logarithmic
    assert not SizeAxis.from_sizes([(1, 2), (64, 3)]).logarithmic
    ax = axes()
    SizeAxis.from_sizes([*doubled, (33,), (34,), (35,)]).ticks(ax, (33,))
    assert ax.get_xscale() == "log"
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert "33" in labels
    assert not {"32", "34"} & set(labels)  # they would stand on it
    assert {"1", "2", "4", "8", "16", "64"} <= set(labels)


def test_the_band_covers_what_cannot_be_told_apart_and_no_more():
    ax, where = axes(), SizeAxis.from_sizes([(k,) for k in (1, 2, 4, 8, 16)])
    where.shade(ax, [(4,), (8,)])
    (band,) = ax.patches
    low, high = band.get_x(), band.get_x() + band.get_width()
    assert 2 < low < 4
    assert 8 < high < 16
    ax, where = axes(), SizeAxis.from_sizes([(k,) for k in (3, 4, 5, 6, 7)])
    where.shade(ax, [(3,), (4,), (6,)])
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches]
    np.testing.assert_allclose(spans, [(2.5, 4.5), (5.5, 6.5)])
    where.shade(alone := axes(), [(5,)])
    assert not alone.patches


HOSTILE = '<script> id="x" #1f5a96 $\\frac$ xmlns="http://evil" -->'


def test_a_picture_on_a_page_is_one_element_with_the_colours_of_the_page():
    def draw(ax: Axes) -> None:
        in_house_style(ax).plot([0, 1], [0, 1], color=LIGHT.main, clip_on=True)
        ax.text(0.1, 0.5, HOSTILE, parse_math=False, color=LIGHT.ink)

    svg = inline_svg(draw, "one", 'a "label" <b>')
    assert svg.startswith('<svg class="picture" role="img" aria-label="a &quot;label&quot; &lt;b&gt;"')
    assert "var(--main)" in svg
    text = svg[svg.index("&lt;script") :]
    assert text.startswith('&lt;script&gt; id="x" #1f5a96 $\\frac$ xmlns="http://evil" --&gt;')  # as it was
    rest = svg.replace(text[: text.index("</text>")], "")
    assert "http" not in rest
    assert not [colour for colour in colour_variables(LIGHT).values() if colour in rest]
    assert 'id="one-' in rest
    assert 'id="figure' not in rest
    assert svg == inline_svg(draw, "one", 'a "label" <b>')


def test_a_bar_is_seen_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, wanted, seen in ((io.StringIO(), True, False), (Terminal(), True, True), (Terminal(), False, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar(3, "search", "fit", wanted=wanted) as bar:
            bar.update(2)
        assert bool(stream.getvalue()) is seen


def test_no_bar_is_drawn_where_standard_error_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs without a console have None, and a logger may stand in its place that only writes."""

    class Log:
        def write(self, text: str) -> int:
            pytest.fail(f"got {text!r}, expected nothing")

        def flush(self) -> None:
            pass

    closed = io.StringIO()
    closed.close()
    for stream in (None, Log(), closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar(3, "search", "fit") as bar:
            bar.set_postfix_str("status")
            bar.update(2)
