"""A document whose words are coloured by the topic that they most probably came from."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import LIGHT, dressed, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE, ROW = 10.0, 19.0
"""The size of the words in the picture, and the height of a line, in points."""
OPACITY = "33"
"""The opacity of the colour behind a word, in hexadecimal: light and dark text can be read on it."""


@dataclass(frozen=True)
class ColouredWord:
    """A word of a document: its `count`, the topic that it most probably came from, and the probability of that
    topic.
    """

    text: str
    count: int
    topic: int
    probability: float


@dataclass(frozen=True)
class ColouredDocument:
    """A document as a bag of coloured words, the words of its largest topic first.

    `shares` and `names` are the share and the name of each topic. It shows itself in a notebook. Each word carries the
    number of its topic, so that colours are never the only sign.
    """

    title: str
    words: tuple[ColouredWord, ...]
    shares: Mapping[int, float]
    names: Mapping[int, str]

    @property
    def topics(self) -> tuple[int, ...]:
        """The topics that any of its words came from, the largest share first."""
        used = {word.topic for word in self.words}
        return tuple(sorted(used, key=lambda topic: (-self.shares[topic], topic)))

    def to_html(self) -> str:
        """Return the document as HTML, with all texts escaped."""
        legend = ", ".join(
            f"{_marked(visible(self.names[topic]), topic)} {self.shares[topic]:.0%}" for topic in self.topics
        )
        words = " ".join(
            _marked(visible(word.text) + (f" ×{word.count}" if word.count > 1 else ""), word.topic)
            for word in self.words
        )
        title = html.escape(visible(self.title))
        return f"<div class='lv-document'><p><b>{title}</b>: {legend}</p><p style='line-height:1.9'>{words}</p></div>"

    def _repr_html_(self) -> str:
        return self.to_html()

    def __str__(self) -> str:
        return "\n".join(
            f"{topic}: {visible(self.names[topic])} ({self.shares[topic]:.0%}): "
            + " ".join(visible(word.text) for word in self.words if word.topic == topic)
            for topic in self.topics
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the words line by line, and return the axes. The caption says how many words had no room."""
        axes = dressed(ax)
        palette = palette_of(axes)
        axes.set_axis_off()
        box = axes.get_window_extent()
        width, height = (72 * side / axes.figure.dpi for side in (box.width, box.height))
        x, y, left_out = 0.0, height - ROW, 0
        for word in self.words:
            text = visible(word.text) + (f"×{word.count}" if word.count > 1 else "")
            wide = _width(text) + _width(str(word.topic)) * 0.7 + 12
            if x + wide > width and x > 0:
                x, y = 0.0, y - ROW
            if y < 0:
                left_out += 1
                continue
            colour = palette.of_part(word.topic)
            plate = {
                "boxstyle": "round,pad=0.2",
                "facecolor": f"{colour}{OPACITY}",
                "edgecolor": colour,
                "linewidth": 0.8,
            }
            place = x / width, y / height
            common = {"xycoords": "axes fraction", "parse_math": False, "color": palette.ink}
            axes.annotate(f"{text} {word.topic}", place, fontsize=SIZE * 0.9, bbox=plate, **common)
            x += wide
        largest = "; ".join(f"{t}: {self.names[t]} ({self.shares[t]:.0%})" for t in self.topics[:4])
        rest = f"; {left_out} words have no room" if left_out else ""
        write_caption(
            axes, Caption(self.title, f"words by the topic that they most probably came from{rest}\n{largest}")
        )
        return axes


def _marked(text: str, topic: int) -> str:
    """Return a word as HTML, with the colour and the number of its topic."""
    colour = LIGHT.of_part(topic)
    style = f"background:{colour}{OPACITY};border-bottom:2px solid {colour};padding:0 .15em"
    return f"<span style='{style}' title='topic {topic}'>{html.escape(text)}<sub>{topic}</sub></span>"


def _width(text: str) -> float:
    """Return the width of a text in points."""
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text.replace("$", "S") or " ", size=SIZE, usetex=False).get_extents().width)
