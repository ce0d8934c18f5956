"""Topics as places: near each other where they use the same words."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.pictures.captions import Caption
from lvsearch.pictures.style import palette_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = 1500.0
"""Square points of the circle of a topic that has all tokens."""
MOST_NAMES = 14
"""Topics whose words stand beside their number, the largest; the others have their number alone."""


def topic_places(topic_word: Float[np.ndarray, "topic word"]) -> tuple[Float[np.ndarray, "topic two"], float]:
    """Coordinates of each topic in two dimensions, and the share of the squared distances that they show.

    Classical scaling (Torgerson 1952) of Jensen–Shannon distances, the square roots of divergences in nats: the two
    leading eigenvectors of −½ J D² J, the largest coordinate of each positive. One topic is at the origin.
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
    """Circles whose area is the share of tokens, numbers, and words beside the largest. table: x, y, prevalence, name;
    a row per topic. shown: the share of squared distances that two dimensions show. Returns the caption."""
    palette = palette_of(axes)
    prevalence = table["prevalence"].to_numpy()
    area = LARGEST * prevalence / max(prevalence.max(), 1e-12) * 0.6
    axes.scatter(table["x"], table["y"], s=area, color=palette.main, alpha=0.25, linewidths=0, zorder=2)
    axes.scatter(table["x"], table["y"], s=area, facecolors="none", edgecolors=palette.main, linewidths=1, zorder=3)
    large = set(table["prevalence"].nlargest(MOST_NAMES).index)
    for number, row in table.iterrows():
        at = float(row["x"]), float(row["y"])
        axes.annotate(
            str(number), at, ha="center", va="center", fontsize=8.5, weight="bold", color=palette.ink, zorder=5
        )
        if number in large:
            words = " ".join(visible(row["name"]).split()[:2])
            axes.annotate(
                words,
                at,
                (0, -9),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=7.5,
                color=palette.muted,
                parse_math=False,
                zorder=4,
            )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.18)
    return Caption(
        "Map of topics",
        "topics that use the same words are near each other (Jensen–Shannon distances, of whose squares this plane "
        f"shows {shown:.0%}); areas are shares of the tokens",
    )
