"""A text, or a document of a corpus, with its words coloured by the topics that they most probably come from (Blei
2004, Figure 3.7).
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int
from scipy.sparse import csr_array
from scipy.special import digamma

from lvsearch.files.plain_text import visible
from lvsearch.inference.likelihood import dirichlet_posterior
from lvsearch.models.plain_arguments import whole_number
from lvsearch.pictures.style import LIGHT, Caption, checked_axes, in_house_style, palette_of, write_caption
from lvsearch.texts.analyzer import Analyzer
from lvsearch.texts.counting import term_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COLOURS = ("#c2410c", "#1f4e79", "#15803d", "#7e22ce", "#b45309", "#0e7490", "#be185d", "#4d7c0f")
PLAIN = "#8a94a0"
LINE = 0.055
"""The height of a line of text, as a share of the axes."""


@dataclass(frozen=True)
class ColouredText:
    """A text in pieces, with the topic of each word. It shows itself in a notebook; `plot` draws it.

    | field | meaning |
    |---|---|
    | `words` | a row for each word of the text in its order, see below |
    | `topics` | a row for each topic that is coloured, the one with most of the text first, see below |
    | `pieces` | the text: words, and what is between them |
    | `threshold` | a word is coloured if its topic has at least this probability |
    | `is_word` | for each piece, True for a word |

    Columns of `words` are `word`, `topic` (−1 for a word outside the vocabulary), `probability` of this topic, and
    `known` (True for a word of the vocabulary). Columns of `topics` are `topic`, its top `words`, and the expected
    number of `tokens` of the text that it wrote.
    """

    words: pd.DataFrame
    topics: pd.DataFrame
    pieces: tuple[str, ...]
    threshold: float
    is_word: tuple[bool, ...]

    def colours(self) -> list[str | None]:
        """Return the colour of each piece of text, or None if its topic is not shown or not probable enough."""
        of_topic = dict(zip(self.topics["topic"].tolist(), COLOURS, strict=False))
        sure = (self.words["probability"] >= self.threshold).tolist()
        of_word = iter(
            [of_topic.get(topic) if clear else None for topic, clear in zip(self.words["topic"], sure, strict=True)]
        )
        return [next(of_word) if is_word else None for is_word in self.is_word]

    def legend(self) -> list[tuple[str, str]]:
        """Return (description of a topic, its colour) for each topic that is coloured."""
        columns = (self.topics[name].tolist() for name in ("topic", "tokens", "words"))
        told = [f"topic {topic} ({tokens:.1f} tokens): {words}" for topic, tokens, words in zip(*columns, strict=True)]
        return list(zip(told, COLOURS, strict=False))

    def _repr_html_(self) -> str:
        """Return the text and the legend of its topics as HTML, for notebooks."""
        legend = "".join(f'<p style="color:{colour}">{html.escape(told)}</p>' for told, colour in self.legend())
        body = "".join(
            html.escape(piece) if colour is None else f'<span style="color:{colour}">{html.escape(piece)}</span>'
            for piece, colour in zip(self.pieces, self.colours(), strict=True)
        )
        return f"<div>{legend}<p>{body}</p></div>"

    def plot(self, ax: "Axes | None" = None, line: int = 100) -> "Axes":
        """Draw the text below the legend of its topics, and return the axes.

        ax: axes to draw on; None makes new ones.
        line: the width of the text in characters.

        Raises ValueError for axes that are none, and for a width below 1.
        """
        from matplotlib import pyplot as plt

        line = whole_number("line", line, least=1)
        axes = plt.subplots(figsize=(11, 4.5))[1] if ax is None else checked_axes(ax)
        axes.set_axis_off()
        height, width = 1.0, 1.0 / line
        for told, colour in self.legend():
            axes.text(0, height, told, color=colour, family="monospace", fontsize=8, parse_math=False)
            height -= LINE
        height, column = height - LINE, 0
        for piece, colour in zip(self.pieces, self.colours(), strict=True):
            if column + len(piece) > line:
                height, column = height - LINE, 0
            axes.text(
                column * width,
                height,
                piece,
                color=PLAIN if colour is None else colour,
                weight="normal" if colour is None else "bold",
                family="monospace",
                fontsize=8,
                parse_math=False,
            )
            column += len(piece)
        return axes


def colour_text(
    text: str | Sequence[str],
    topics: Float64[np.ndarray, "topic word"],
    alpha: Float64[np.ndarray, " topic"],
    vocabulary: tuple[str, ...],
    top_words: Sequence[str],
    analyzer: Analyzer,
    *,
    n_topics: int,
    threshold: float,
) -> ColouredText:
    """Return a text with its words coloured by their most probable topics: the work of `FittedTopics.coloured`.

    text: the text, or its words.
    topics: the probability of each word in each topic.
    alpha: the concentration of a document's proportions on each topic.
    vocabulary: the words, in the order of the columns of `topics`.
    top_words: the most probable words of each topic, as one text each.
    analyzer: the rules by which the text is cut into words and terms.
    n_topics: how many topics are coloured, those with most of the text.
    threshold: a word is coloured if its topic has at least this probability.

    Raises ValueError for a text without a known word.
    """
    shown, found = analyzer.find_words(text)
    pieces, is_word = _pieces(shown, [(start, end) for _, start, end in found])
    words = [shown[start:end] for _, start, end in found]
    ids, counts = _terms_of_words([word for word, _, _ in found], vocabulary, analyzer)
    if not (ids >= 0).any():
        raise ValueError(
            f"got a text of {len(words)} words, none in the vocabulary; expected some that the model knows"
        )
    # q(θ) = Dirichlet(γ) of this text, then p(topic | word) ∝ exp(E[log θ]) p(word | topic)
    gamma = dirichlet_posterior(topics, alpha, csr_array(counts[None]))[0]
    weights = np.where(alpha > 0, np.exp(digamma(np.where(alpha > 0, gamma, 1.0))), 0.0)
    share = weights * topics[:, np.maximum(ids, 0)].T
    share /= np.maximum(share.sum(1, keepdims=True), 1e-300)
    chosen = np.where(ids >= 0, share.argmax(1), -1)
    probability = np.where(ids >= 0, share.max(1), 0.0)
    table = pd.DataFrame({"word": words, "topic": chosen, "probability": probability, "known": ids >= 0})
    tokens = np.maximum(gamma - alpha, 0.0)  # rounding takes topics without tokens below 0
    most = np.argsort(-tokens, kind="stable")[:n_topics]
    legend = pd.DataFrame({"topic": most, "words": [top_words[topic] for topic in most], "tokens": tokens[most]})
    return ColouredText(table, legend, pieces, threshold, is_word)


def _pieces(text: str, places: Sequence[tuple[int, int]]) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """Return a text in pieces, its words and what is between them, and for each piece whether it is a word.

    places: (start, end) of each word.
    """
    pieces, last = [], 0
    for start, end in places:
        pieces += [(text[last:start], False), (text[start:end], True)]
        last = end
    filled = [(piece, is_word) for piece, is_word in (*pieces, (text[last:], False)) if piece]
    return tuple(piece for piece, _ in filled), tuple(is_word for _, is_word in filled)


def _terms_of_words(
    words: Sequence[str], vocabulary: Sequence[str], analyzer: Analyzer
) -> tuple[Int[np.ndarray, " word"], Int[np.ndarray, " term"]]:
    """Return the shortest known term that each word of a text is part of, −1 for none, and the count of each term.

    words: the words in order. vocabulary: the terms. analyzer: says which words count, and how many make a term.
    """
    columns, (shortest, longest) = term_columns(vocabulary, analyzer), analyzer.ngram_range
    folded = [analyzer.fold(word) for word in words]
    kept = [place for place, word in enumerate(folded) if analyzer.rule(word) is None]
    ids, counts = np.full(len(words), -1), np.zeros(len(vocabulary), int)
    for size in range(longest, shortest - 1, -1):  # from the longest terms, so that shorter ones replace them
        for first in range(len(kept) - size + 1):
            run = kept[first : first + size]
            column = columns.get(" ".join(folded[place] for place in run), -1)
            if column >= 0:
                counts[column] += 1
                ids[run] = column
    return ids, counts


# ── one document ──────────────────────────────────────────────────────────────────────────────────────────────────────


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
