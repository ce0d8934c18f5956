"""A text with its words coloured by the topics that they are from (Blei 2004, Figure 3.7)."""

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float64
from scipy.sparse import csr_array
from scipy.special import digamma

from lvsearch.inference.likelihood import dirichlet_posterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#c2410c", "#1f4e79", "#15803d", "#7e22ce", "#b45309", "#0e7490", "#be185d", "#4d7c0f")
PLAIN = "#8a94a0"
WORD = re.compile(r"\w+(?:['’]\w+)*|\W+")
LINE = 0.055
"""Height of a line of text, of the axes."""


@dataclass(frozen=True)
class ColouredText:
    """A text cut into pieces, and what each is from. Shows itself in a notebook; `plot` draws it.

    | field | meaning |
    |---|---|
    | `words` | a row for each word of the text in its order: `word`, `topic` (−1 where it is not in the vocabulary), |
    | | `probability` of that topic, `known` |
    | `topics` | a row for each topic that is coloured, most of the text first: `topic`, its top `words`, and the |
    | | expected number of `tokens` (γ − α) |
    | `pieces` | the text: words, and what is between them |
    | `threshold` | a word is coloured where its topic has at least this probability |
    """

    words: pd.DataFrame
    topics: pd.DataFrame
    pieces: tuple[str, ...]
    threshold: float

    def colours(self) -> list[str | None]:
        """Of each piece; None where it has none."""
        of_topic = dict(zip(self.topics["topic"], COLOURS, strict=False))
        rows = iter(self.words.itertuples(index=False))
        out: list[str | None] = []
        for piece in self.pieces:
            row = next(rows) if piece[0].isalnum() or piece[0] == "_" else None
            sure = row is not None and row.probability >= self.threshold  # pyright: ignore[reportAttributeAccessIssue]
            out.append(of_topic.get(row.topic) if sure else None)  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
        return out

    def _legend(self) -> list[str]:
        columns = (self.topics[name] for name in ("topic", "tokens", "words"))
        return [f"topic {topic} ({tokens:.1f} tokens): {words}" for topic, tokens, words in zip(*columns, strict=True)]

    def _repr_html_(self) -> str:
        legend = " ".join(
            f'<p style="color:{colour}">{html.escape(line)}</p>'
            for line, colour in zip(self._legend(), COLOURS, strict=False)
        )
        body = "".join(
            html.escape(piece) if colour is None else f'<span style="color:{colour}">{html.escape(piece)}</span>'
            for piece, colour in zip(self.pieces, self.colours(), strict=True)
        )
        return f"<div>{legend}<p>{body}</p></div>"

    def plot(self, ax: "Axes | None" = None, line: int = 100) -> "Axes":
        """Draw the text, `line` characters wide, under its topics. Returns the axes."""
        from matplotlib import pyplot as plt

        axes = plt.subplots(figsize=(11, 4.5))[1] if ax is None else ax
        axes.set_axis_off()
        height, width = 1.0, 1.0 / line
        for text, colour in zip(self._legend(), COLOURS, strict=False):
            axes.text(0, height, text, color=colour, family="monospace", fontsize=8, parse_math=False)
            height -= LINE
        height, column = height - LINE, 0
        for piece, colour in zip(self.pieces, self.colours(), strict=True):
            if column + len(piece) > line:
                height, column = height - LINE, 0
            drawn = axes.text(column * width, height, piece, family="monospace", fontsize=8, parse_math=False)
            drawn.set_color(PLAIN if colour is None else colour)
            drawn.set_fontweight("normal" if colour is None else "bold")
            column += len(piece)
        return axes


def coloured(
    text: str,
    topics: Float64[np.ndarray, "topic word"],
    alpha: Float64[np.ndarray, " topic"],
    vocabulary: tuple[str, ...],
    top_words: list[str],
    *,
    n_topics: int,
    threshold: float,
) -> ColouredText:
    """`FittedTopics.coloured`. top_words: of each topic, by its number."""
    pieces = tuple(WORD.findall(text))
    words = [piece for piece in pieces if piece[0].isalnum() or piece[0] == "_"]
    number = {word: i for i, word in enumerate(vocabulary)}
    ids = np.array([number.get(word.lower(), -1) for word in words], int)
    if not (ids >= 0).any():
        raise ValueError(
            f"got a text of {len(words)} words, none in the vocabulary; expected some that the model knows"
        )
    counts = np.bincount(ids[ids >= 0], minlength=len(vocabulary))
    gamma = dirichlet_posterior(topics, alpha, csr_array(counts[None]))[0]
    weights = np.where(alpha > 0, np.exp(digamma(np.where(alpha > 0, gamma, 1.0))), 0.0)
    share = weights * topics[:, np.maximum(ids, 0)].T
    share /= np.maximum(share.sum(1, keepdims=True), 1e-300)
    chosen = np.where(ids >= 0, share.argmax(1), -1)
    probability = np.where(ids >= 0, share.max(1), 0.0)
    table = pd.DataFrame({"word": words, "topic": chosen, "probability": probability, "known": ids >= 0})
    most = np.argsort(-(gamma - alpha), kind="stable")[:n_topics]
    legend = pd.DataFrame(
        {"topic": most, "words": [top_words[topic] for topic in most], "tokens": (gamma - alpha)[most]}
    )
    return ColouredText(table, legend, pieces, threshold)
