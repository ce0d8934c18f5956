"""A document whose words are coloured by the topic that they most probably came from."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption, write_caption
from lvsearch.pictures.style import LIGHT, in_house_style, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE, ROW = 10.0, 19.0
"""The size of the words in the picture, and the height of a line, in points."""
OPACITY = "33"
"""The opacity of the colour behind a word, in hexadecimal: light and dark text can be read on it."""


@dataclass(frozen=True)
class ColouredWord:
    """A word of a document, with the topic that it most probably came from.

    `text`: the word.
    `count`: how often the document has it.
    `topic`: the number of the topic.
    `probability`: the probability that the word came from this topic.
    """

    text: str
    count: int
    topic: int
    probability: float


@dataclass(frozen=True)
class ColouredDocument:
    """A document as a bag of coloured words, the words of its largest topic first. It shows itself in a notebook.

    Each word carries the number of its topic, so that colours are never the only sign.

    `title`: the name of the document.
    `words`: its words with their topics.
    `shares`, `names`: the share and the name of each topic, by its number.
    """

    title: str
    words: tuple[ColouredWord, ...]
    shares: Mapping[int, float]
    names: Mapping[int, str]

    @property
    def topics(self) -> tuple[int, ...]:
        """The numbers of the topics that any word of the document came from, the largest share first."""
        used = {word.topic for word in self.words}
        return tuple(sorted(used, key=lambda topic: (-self.shares[topic], topic)))

    def to_html(self) -> str:
        """Return the document as HTML, with all texts escaped."""
        legend = ", ".join(
            f"{_word_html(visible(self.names[topic]), topic)} {self.shares[topic]:.0%}" for topic in self.topics
        )
        words = " ".join(
            _word_html(visible(word.text) + (f" ×{word.count}" if word.count > 1 else ""), word.topic)
            for word in self.words
        )
        title = html.escape(visible(self.title))
        return f"<div class='lv-document'><p><b>{title}</b>: {legend}</p><p style='line-height:1.9'>{words}</p></div>"

    def _repr_html_(self) -> str:
        """Return the document as HTML, for notebooks (`to_html`)."""
        return self.to_html()

    def __str__(self) -> str:
        """Return the document as text: a line for each topic, with its share and its words."""
        return "\n".join(
            f"{topic}: {visible(self.names[topic])} ({self.shares[topic]:.0%}): "
            + " ".join(visible(word.text) for word in self.words if word.topic == topic)
            for topic in self.topics
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the words of the document line by line, and return the axes. The caption says how many words had no
        room.

        ax: axes to draw on; None makes new ones.
        """
        axes = in_house_style(ax)
        palette = palette_of(axes)
        axes.set_axis_off()
        box = axes.get_window_extent()
        width, height = (72 * side / axes.figure.dpi for side in (box.width, box.height))
        x, y, left_out = 0.0, height - ROW, 0
        for word in self.words:
            text = visible(word.text) + (f"×{word.count}" if word.count > 1 else "")
            wide = _width(text) + _width(str(word.topic)) * 0.7 + 12
            # a new line if the word does not fit; words below the axes are counted instead of drawn
            if x + wide > width and x > 0:
                x, y = 0.0, y - ROW
            if y < 0:
                left_out += 1
                continue
            colour = palette.colour_of_part(word.topic)
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


def _word_html(text: str, topic: int) -> str:
    """Return a word as HTML, with the colour and the number of its topic."""
    colour = LIGHT.colour_of_part(topic)
    style = f"background:{colour}{OPACITY};border-bottom:2px solid {colour};padding:0 .15em"
    return f"<span style='{style}' title='topic {topic}'>{html.escape(text)}<sub>{topic}</sub></span>"


def _width(text: str) -> float:
    """Return the width of a text in points, at the size of the words in the picture."""
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text.replace("$", "S") or " ", size=SIZE, usetex=False).get_extents().width)
