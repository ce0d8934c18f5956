"""Match the components of a fit to those of another fit or to known distributions, and draw what split and merged.

A component is a topic, a cluster or a feature; a unit is one document or row of the data.

`component_map` matches the components of two runs of one size, or of two sizes, where components split and merge. They
are matched by the units that they share. Let r_nj be the share of component j of the first fit in unit n, and s_nk that
of component k of the second (rows sum to 1). The overlap of j and k is Σ_n r_nj s_nk, a number of units. The matching
maximises the sum of overlap / (units in either component). It is an assignment problem, so no component is used twice.
`draw_component_map` draws the result.

`match_references` matches topics to known distributions over the same words, such as published topics or mutational
signatures, by the cosine. This too is an assignment problem.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from lvsearch.files.plain_text import visible
from lvsearch.models.plain_arguments import numbers, shortened_repr
from lvsearch.pictures.style import Caption, palette_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes


SHARE = 0.15
"""The smallest part of a component, as a share of its units, that counts in a split or merger.

Where a component has no large part, smaller ones count: see `OF_LARGEST`.
"""
OF_LARGEST = 0.5
"""A part with at least this share of the units of the component's largest part counts too, however small it is."""
WHOLE = 0.99
"""The share of a component's units above which the parts that are named count as the whole component."""


@dataclass(frozen=True)
class ComponentMap:
    """A map between the components of two fits of the same units. Components go by their numbers, from 0.

    | field | meaning |
    |---|---|
    | `overlap` | the number of units shared: a row per component of the first fit, a column per one of the second |
    | `matched` | pairs (component of the first fit, component of the second fit): the best assignment |
    | `parts` | {component of the first: the components of the second that are its parts, largest first} |

    A part has at least 15 % of the units of the component, or at least half as many as its largest part.
    """

    overlap: pd.DataFrame
    matched: tuple[tuple[int, int], ...]
    parts: dict[int, tuple[int, ...]]

    @property
    def splits(self) -> dict[int, tuple[int, ...]]:
        """The components of the first fit that split, as {component: its two or more parts in the second fit}."""
        return {one: several for one, several in self.parts.items() if len(several) > 1}

    @property
    def merges(self) -> dict[int, tuple[int, ...]]:
        """The components of the second fit that merge several, as {component: two or more of the first fit}."""
        sources: dict[int, list[int]] = {}
        for one, several in self.parts.items():
            for other in several:
                sources.setdefault(other, []).append(one)
        return {other: tuple(ones) for other, ones in sources.items() if len(ones) > 1}

    def describe(self) -> str:
        """Return the map in words, such as "0 → 2, 1 → 0 + 3 (51%, 39%) and others (10%), 2 → 1".

        The numbers before an arrow are components of the first fit, those behind it components of the second.
        """
        words = []
        for one, several in self.parts.items():
            if not several:
                words.append(f"{one} holds no units")
                continue
            shares = [self.overlap.loc[one, other] / float(self.overlap.loc[one].sum()) for other in several]
            each = f" ({', '.join(f'{share:.0%}' for share in shares)})" if len(several) > 1 else ""
            rest = f" and others ({1 - sum(shares):.0%})" if sum(shares) < WHOLE else ""
            words.append(f"{one} → {' + '.join(map(str, several))}{each}{rest}")
        return ", ".join(words)

    def order(self) -> np.ndarray:
        """Return the numbers of the second fit's components, each at the position of its partner in the first fit.

        Components without a partner come last. Shape (components of the second fit,).
        """
        partner = [second for _, second in self.matched]
        return np.array([*partner, *(k for k in range(self.overlap.shape[1]) if k not in partner)])


def component_map(
    first: Float[np.ndarray, "units component"], second: Float[np.ndarray, "units other"]
) -> ComponentMap:
    """Match the components of two fits by their shares of the same units.

    first, second: the share of each component in each unit, such as `transform` returns, (units, components)

    Returns a `ComponentMap`: which components are partners, which split and which merge.
    Raises ValueError for different numbers of units, and for shares that are negative or not finite.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    for name, shares in (("first", first), ("second", second)):
        if shares.ndim != 2 or not np.all(shares >= 0):  # True for NaN too
            raise ValueError(f"got {name} of shape {shares.shape}, expected shares ≥ 0, (units, components)")
    if len(first) != len(second):
        raise ValueError(f"got shares of {len(first)} and of {len(second)} units, expected the same units in both")
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    overlap = first.T @ second
    either = first.sum(0)[:, None] + second.sum(0) - overlap
    rows, columns = linear_sum_assignment(-overlap / np.maximum(either, 1e-12))
    parts = {}
    for one, shared in enumerate(overlap):
        smallest = min(SHARE * shared.sum(), OF_LARGEST * shared.max(initial=0.0))
        large = np.flatnonzero(shared >= max(smallest, 1e-12))
        parts[one] = tuple(int(k) for k in large[np.argsort(-shared[large], kind="stable")])
    return ComponentMap(pd.DataFrame(overlap), tuple(zip(rows.tolist(), columns.tolist(), strict=True)), parts)


BAR, GAP = 0.06, 0.22
"""The width of a bar, and the total space between bars, as a share of the height of all bars."""
FAINTEST = 0.05
"""The smallest share of a component's units that is drawn as a band; `ComponentMap.parts` are drawn in any case."""


def draw_component_map(
    found: ComponentMap,
    axes: "Axes",
    names: "tuple[Sequence[str], Sequence[str]] | None" = None,
    title: str | None = None,
) -> Caption:
    """Draw the components of two fits as bars, with bands for the units that are in both; return the caption.

    The first fit is at the left, the second at the right. A bar is as tall as the units it holds.

    found: the map between the components of the two fits
    axes: matplotlib axes to draw on
    names: the names of the components of the first and of the second fit; by default only their numbers are written
    title: the title of the caption; by default it has the numbers of components of the two fits
    """
    palette, overlap = palette_of(axes), found.overlap.to_numpy()
    total = max(float(overlap.sum()), 1e-12)
    left = np.arange(overlap.shape[0])
    right = _right_order(overlap)
    tops_left, tops_right = _bar_tops(overlap.sum(1)[left] / total), _bar_tops(overlap.sum(0)[right] / total)
    at_left, at_right = tops_left.copy(), tops_right.copy()
    heights = overlap / total
    # bands are stacked from the top of each bar downwards, on both sides
    for row in left:
        for place, column in enumerate(right):
            height = heights[row, column]
            is_part = int(column) in found.parts[int(row)]
            if is_part or overlap[row, column] >= FAINTEST * max(overlap[row].sum(), 1e-12):
                _draw_band(
                    axes, float(at_left[row]), float(at_right[place]), float(height), palette.colour_of_part(int(row))
                )
            at_left[row] -= height
            at_right[place] -= height
    sides = ((0.0, left, tops_left, overlap.sum(1)), (1.0, right, tops_right, overlap.sum(0)))
    for side, (x, order, tops, units) in enumerate(sides):
        for place, part in enumerate(order):
            height = units[part] / total
            colour = palette.colour_of_part(int(part)) if side == 0 else palette.muted
            axes.bar(x, -height, BAR, tops[place], color=colour, linewidth=0, zorder=3)
            text = str(part) if names is None else visible(f"{part} {names[side][part]}")
            axes.annotate(
                text if len(text) < 28 else f"{text[:26]}…",
                (x + (-BAR if side == 0 else BAR), tops[place] - height / 2),
                ha="right" if side == 0 else "left",
                va="center",
                fontsize=8.5,
                color=palette.ink,
                parse_math=False,
                zorder=4,
            )
    axes.set_axis_off()
    room = 0.1 if names is None else 0.62
    axes.set_xlim(-BAR - room, 1 + BAR + room)
    axes.set_ylim(-0.02, 1 + GAP + 0.02)
    several = ", ".join(f"{one} → {' + '.join(map(str, parts))}" for one, parts in found.splits.items())
    return Caption(
        title or f"From {overlap.shape[0]} to {overlap.shape[1]}: what split, what merged",
        f"bars are as tall as the units they hold, bands are units in both; split: {several or 'none'}",
    )


def _right_order(overlap: Float[np.ndarray, "component other"]) -> np.ndarray:
    """Return the numbers of the right components, each near the left ones with which it shares units, (components,).

    overlap: the number of units that a left and a right component share, (left components, right components)
    """
    weights = overlap / np.maximum(overlap.sum(axis=0), 1e-12)
    return np.argsort(weights.T @ np.arange(overlap.shape[0]), kind="stable")


def _bar_tops(heights: Float[np.ndarray, " bars"]) -> Float[np.ndarray, " bars"]:
    """Return the upper ends of bars that are stacked downwards, with the space `GAP` divided evenly between them.

    heights: the heights of the bars, which sum to 1, (bars,)
    """
    gap = GAP / max(1, len(heights) - 1)
    return 1 + GAP - np.concatenate([[0.0], np.cumsum(heights[:-1] + gap)])


def _draw_band(axes: "Axes", left: float, right: float, height: float, colour: str) -> None:
    """Draw the band of the units that two components share, from the left bar to the right one.

    axes: matplotlib axes to draw on
    left, right: the upper ends of the band at the two sides, in data units of the axes
    height: the height of the band, in data units of the axes
    colour: the colour of the band, "#rrggbb"
    """
    x = np.linspace(0.0, 1.0, 40)
    bend = x * x * (3 - 2 * x)
    top = left + (right - left) * bend
    axes.fill_between(BAR / 2 + x * (1 - BAR), top - height, top, color=colour, alpha=0.45, linewidth=0, zorder=2)


def match_references(topic_word: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Match each topic to the known distribution (reference) that it is most similar to, by the cosine.

    Pairs are one to one, with the greatest total of cosines.

    topic_word: (topic, word), a row for each topic.
    references: (word, reference), a row for each word and a column for each reference, as COSMIC publishes signatures.
        Words may be in any order.

    The result has a row for each topic:

    | column | meaning |
    |---|---|
    | `reference` | the partner: one to one; None for topics beyond the number of references |
    | `cosine` | of topic and partner, 0 to 1; NaN without one. Above .9 they are usually called the same |
    | `nearest`, `nearest_cosine` | the most similar of all references, which another topic may have as its partner |

    Raises ValueError for references that are no table of numbers, lack a word of the topics or have one twice, have no
    column, or have a column that is all zero, negative or not finite.
    """
    from scipy.optimize import linear_sum_assignment  # a tenth of a second that only this needs

    known = _checked_references(topic_word, references)
    topics = topic_word.to_numpy(np.float64)
    topics = topics / np.linalg.norm(topics, axis=1, keepdims=True)
    cosine = topics @ (known / np.linalg.norm(known, axis=0))
    rows, columns = linear_sum_assignment(-cosine)
    partner, alike = np.full(len(topics), None, dtype=object), np.full(len(topics), np.nan)
    names = np.asarray(references.columns, dtype=object)
    partner[rows], alike[rows] = names[columns], cosine[rows, columns]
    return pd.DataFrame(
        {
            # without dtype=object None would become NaN
            "reference": pd.Series(partner, topic_word.index, dtype=object),
            "cosine": alike,
            "nearest": names[cosine.argmax(1)],
            "nearest_cosine": cosine.max(1),
        },
        index=topic_word.index,
    )


def _checked_references(topic_word: pd.DataFrame, references: pd.DataFrame) -> np.ndarray:
    """Return the references as an array (word, reference), with words in the topics' order.

    Raises ValueError for references that are no table of numbers, lack a word of the topics or have one twice, have no
    column, or have a column that is all zero, negative or not finite.
    """
    if not isinstance(references, pd.DataFrame):
        raise ValueError(
            f"got references={shortened_repr(references)}, expected a pandas.DataFrame with a row for each word (words "
            "as the index) and a column for each reference: pandas.read_csv(…, index_col=0), or "
            "pandas.DataFrame(array, index=words)"
        )
    if references.shape[1] == 0:
        raise ValueError("got references without a column, expected one for each reference, a row for each word")
    if not references.index.is_unique:
        raise ValueError(f"got the word {references.index[references.index.duplicated()][0]!r} twice in the references")
    missing = topic_word.columns.difference(references.index)
    if len(missing):
        raise ValueError(
            f"got references without {len(missing):,} of {topic_word.shape[1]:,} words, such as {missing[0]!r}; "
            "expected a row for each word, words as the index: pandas.read_csv(…, index_col=0)"
        )
    known = numbers("references", references.loc[topic_word.columns])
    bad = ~np.isfinite(known).all(0) | (known < 0).any(0) | ~(known > 0).any(0)
    if bad.any():
        raise ValueError(
            f"got the reference {references.columns[bad.argmax()]!r} with values that are negative, not finite or all "
            "zero; expected weights of words"
        )
    return known
