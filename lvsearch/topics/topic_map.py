"""A map of topics, in which topics that use the same words are near each other."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.pictures.style import Caption, palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = 500.0
"""The area of the largest circle, in square points."""
POINTS_PER_CHARACTER = 4.4
"""The approximate width of a character of the words beside a circle."""


def topic_places(topic_word: Float[np.ndarray, "topic word"]) -> tuple[Float[np.ndarray, "topic two"], float]:
    """Return coordinates of topics in a plane in which topics with similar words are near each other.

    The method is classical scaling (Torgerson 1952) of Jensen–Shannon distances, the square roots of divergences in
    nats. The coordinates are the two leading eigenvectors of −½ J D² J, with D the distances and J the centring matrix.
    The largest coordinate of each is positive. A single topic is at the origin.

    topic_word: the probability of each word in each topic.

    Returns: (coordinates, (topic, 2); the share of the squared distances that two dimensions show, 0 to 1).
    """
    from scipy.spatial.distance import pdist, squareform

    n = len(topic_word)
    places = np.zeros((n, 2))
    if n < 2:
        return places, 1.0
    squared = squareform(pdist(np.asarray(topic_word, np.float64), "jensenshannon")) ** 2
    centred = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centred @ squared @ centred)
    first = min(2, n - 1)
    leading = vectors[:, ::-1][:, :first] * np.sqrt(np.maximum(values[::-1][:first], 0.0))
    signs = np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(first)])
    places[:, :first] = leading * np.where(signs == 0, 1.0, signs)
    positive = np.maximum(values, 0.0)
    return places, float(positive[::-1][:first].sum() / max(positive.sum(), 1e-300))


def draw_topic_map(table: pd.DataFrame, shown: float, axes: "Axes") -> Caption:
    """Draw a map of topics on existing axes, a circle for each topic, and return the caption.

    The area of a circle is the topic's share of the tokens. Circles are numbered; words stand beside them if there is
    room, the largest circles first.

    table: columns x, y, prevalence, name; a row per topic.
    shown: the share of squared distances that two dimensions show.
    """
    palette = palette_of(axes)
    x, y, share = (table[column].to_numpy(np.float64) for column in ("x", "y", "prevalence"))
    area = LARGEST * share / max(float(share.max()), 1e-12)
    axes.scatter(x, y, s=area, color=palette.main, alpha=0.25, linewidths=0, zorder=2)
    axes.scatter(x, y, s=area, facecolors="none", edgecolors=palette.main, linewidths=1, zorder=3)
    for place, number in enumerate(table.index):
        style = {"ha": "center", "va": "center", "fontsize": 8, "weight": "bold", "color": palette.ink, "zorder": 5}
        axes.annotate(str(number), (x[place], y[place]), **style)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(True)
    for values, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
        middle, half = (values.max() + values.min()) / 2, max(np.ptp(values), 1e-3) / 2
        limit(middle - 1.3 * half, middle + 1.3 * half)
    _write_words(axes, [" ".join(visible(name).split()[:2]) for name in table["name"]], x, y, area)
    return Caption(
        "Map of topics",
        "topics that use the same words are near each other (Jensen–Shannon distances, of whose squares this plane "
        f"shows {shown:.0%}); areas are shares of the tokens; words where there is room",
    )


def _write_words(axes: "Axes", words: list[str], x: np.ndarray, y: np.ndarray, area: np.ndarray) -> None:
    """Write words beside the circles of a map: right, left, below or above of each; none if all four places are taken.

    words: the text for each circle. x, y: centres in data coordinates. area: areas of the circles in square points.
    """
    box = axes.get_window_extent()
    width, height = (72 * side / axes.figure.dpi for side in (box.width, box.height))
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    at = np.column_stack([(x - left) / (right - left) * width, (y - bottom) / (top - bottom) * height])
    radius = np.sqrt(area / np.pi)
    taken = [(*(centre - r), *(centre + r)) for centre, r in zip(at, radius, strict=True)]
    for place in np.argsort(-area, kind="stable").tolist():
        wide, r, (cx, cy) = len(words[place]) * POINTS_PER_CHARACTER, radius[place] + 2, at[place]
        spots = (("left", r, 0.0), ("right", -r, 0.0), ("center", 0.0, -r - 5), ("center", 0.0, r + 5))
        for side, dx, dy in spots:
            begin = cx + dx - {"left": 0.0, "right": wide, "center": wide / 2}[side]
            spot = (begin, cy + dy - 4.5, begin + wide, cy + dy + 4.5)
            inside = spot[0] >= 0 and spot[2] <= width and spot[1] >= 0 and spot[3] <= height
            others = [other for number, other in enumerate(taken) if number != place]
            if inside and not any(_overlap(spot, other) for other in others):
                taken.append(spot)
                style = {"ha": side, "va": "center", "fontsize": 7.5, "color": palette_of(axes).muted, "zorder": 4}
                axes.annotate(
                    words[place], (x[place], y[place]), (dx, dy), textcoords="offset points", parse_math=False, **style
                )
                break


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return True if two boxes (left, bottom, right, top) overlap."""
    return bool(one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3])
