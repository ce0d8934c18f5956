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
"""Points of the words of the picture, and of a line of them."""
OPACITY = "33"
"""Of the colour behind a word, in hexadecimal: text of either brightness can be read on it."""


@dataclass(frozen=True)
class ColouredWord:
    """`count` occurrences of a word, the topic that they most probably came from, and the probability of that topic."""

    text: str
    count: int
    topic: int
    probability: float


@dataclass(frozen=True)
class ColouredDocument:
    """A document as a bag of coloured words, the words of its largest topic first. `names` are those of its topics.

    Shows itself in a notebook; colours are never alone: each word carries the number of its topic.
    """

    title: str
    words: tuple[ColouredWord, ...]
    shares: Mapping[int, float]
    names: Mapping[int, str]

    @property
    def topics(self) -> tuple[int, ...]:
        """Topics that any of its words came from, the largest share first."""
        used = {word.topic for word in self.words}
        return tuple(sorted(used, key=lambda topic: (-self.shares[topic], topic)))

    def to_html(self) -> str:
        """The document as HTML, words of other people as text."""
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
        """The words as a picture, line by line. Words that have no room are left out, and how many is said."""
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
    colour = LIGHT.of_part(topic)
    style = f"background:{colour}{OPACITY};border-bottom:2px solid {colour};padding:0 .15em"
    return f"<span style='{style}' title='topic {topic}'>{html.escape(text)}<sub>{topic}</sub></span>"


def _width(text: str) -> float:
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text.replace("$", "S") or " ", size=SIZE, usetex=False).get_extents().width)
