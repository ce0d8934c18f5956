"""The content of the report's page as plain data, and its section on a fitted model, by the model's type.

The template turns the data into HTML. The section shows topics, clusters or features, or else the fit's tables. A part
is a component of a model: a topic, a cluster or a feature. A unit is a document or a row of the data.
"""

from dataclasses import dataclass
from functools import partial, singledispatch
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lvsearch.data.points import Points
from lvsearch.fitted.blocks import FittedBlocks
from lvsearch.fitted.clusters import FittedMixture
from lvsearch.fitted.features import FittedFeatures, draw_loadings
from lvsearch.fitted.model import FittedModel
from lvsearch.pictures.inline_svg import PAGE_HEIGHT, PAGE_WIDTH, inline_svg
from lvsearch.pictures.style import Caption, in_house_style
from lvsearch.sizing.words import with_noun
from lvsearch.topics.readable_topics import ReadableTopics
from lvsearch.topics.topic_map import draw_topic_map

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Drawing:
    """A picture with its title and the lines of its caption. `svg` is trusted markup; everything else is text."""

    title: str
    lines: tuple[str, ...]
    svg: str


@dataclass(frozen=True)
class Grid:
    """A table of texts, with one text per column in each row. `note` says what was left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class PartRow:
    """A row of the table of topics, clusters or features: one of them.

    number: its number, from 0
    name: a few words that distinguish it from the others
    share: its share of the data, in [0, 1]
    facts: further texts, one for each of `Parts.columns`
    units: the numbers of the documents or rows that show it best
    """

    number: int
    name: str
    share: float
    facts: tuple[str, ...]
    units: tuple[int, ...] = ()


@dataclass(frozen=True)
class Piece:
    """A word of a document or a cell of a row.

    text: how it is written
    part: the number of the topic or cluster from which it most probably came; None if cells come from none
    """

    text: str
    part: int | None


@dataclass(frozen=True)
class Unit:
    """A document or a row to look at.

    number, name, label: its number from 0, its name, and its class ("" if there is none)
    shares: the topics or clusters with the largest shares in it, as (number, share in [0, 1])
    pieces: its words or cells
    """

    number: int
    name: str
    label: str
    shares: tuple[tuple[int, float], ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Explorer:
    """Documents or rows to look through on the page.

    noun, nouns: the word for one and for several of them, such as "document" and "documents"
    units: the documents or rows
    note: how they were chosen, in words
    """

    noun: str
    nouns: str
    units: tuple[Unit, ...]
    note: str


@dataclass(frozen=True)
class Parts:
    """The section of the page on the components of the most probable size.

    title, noun: its title and the word for one component, such as "Topics" and "topic"
    share_of: what shares are shares of, such as "of the tokens"
    columns, rows: the table of the components
    drawings, grids: pictures and further tables
    explorer: documents or rows to look through, or None
    """

    title: str
    noun: str
    share_of: str
    columns: tuple[str, ...] = ()
    rows: tuple[PartRow, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    grids: tuple[Grid, ...] = ()
    explorer: Explorer | None = None


@dataclass(frozen=True)
class Entry:
    """A fact in words with its name, such as ("seed", "0")."""

    name: str
    text: str


@dataclass(frozen=True)
class Page:
    """The whole page.

    | field | meaning |
    |---|---|
    | `title`, `answer` | the answer in one sentence, as a title and as text |
    | `warning` | a warning if the largest size allowed may be too small; else "" |
    | `key_facts` | the facts at the top |
    | `lead` | pictures of how sure the answer is, which stand below the components |
    | `sizes` | the table of sizes near the answer |
    | `parts` | the section on the components of the best size, or None |
    | `between` | the picture of which components split and merged between two sizes, or None |
    | `evidence` | pictures of the evidence on which the answer rests |
    | `facts`, `settings`, `versions` | further facts, the settings of the search, versions of packages |
    | `fingerprint` | a hash of the data; "" without data |
    """

    title: str
    answer: str
    warning: str
    key_facts: tuple[Entry, ...]
    lead: tuple[Drawing, ...]
    sizes: Grid
    parts: Parts | None
    between: Drawing | None
    evidence: tuple[Drawing, ...]
    facts: tuple[Entry, ...]
    settings: tuple[Entry, ...]
    versions: tuple[Entry, ...]
    fingerprint: str


MOST_UNITS, UNITS_OF_A_PART, MOST_PIECES, MOST_SHARES = 150, 5, 60, 4
"""The most units to look through, examples of a part, words or cells of a unit, and shares of a unit that are shown."""
MOST_ROWS, MOST_COLUMNS, MOST_GRIDS = 40, 8, 6
"""The largest numbers of rows and columns of a table, and of tables."""
TOP_WORDS, DISTINCTIVE_WORDS = 10, 5
"""The numbers of most probable and of most distinctive words that are shown of a topic."""


@singledispatch
def parts_of(fitted: FittedModel | ReadableTopics) -> Parts | None:
    """Return the section of the page on a fitted model: its tables of parameters; None if it has none.

    Topic models, mixtures, block models and feature models have sections of their own.
    """
    assert isinstance(fitted, FittedModel)  # topics have a section of their own
    # a column of the data may have the name of the index, such as "state"
    tables = {name: table.reset_index(allow_duplicates=True) for name, table in fitted.tables().items()}
    grids = tuple(grid_of(name, table) for name, table in tables.items())
    return Parts("Parameters", "component", "", grids=grids[:MOST_GRIDS]) if grids else None


@parts_of.register
def _parts_of_topics(fitted: ReadableTopics) -> Parts:
    """Return the section on a topic model: a table of the topics, a map of them, and documents to look through."""
    # 1. a row for each topic
    table, sketches = fitted.topics(TOP_WORDS), {sketch.topic: sketch for sketch in fitted.sketches}
    coherence = fitted.coherence(TOP_WORDS) if len(fitted.training.entries["word"]) > 1 else None
    with_labels, with_names = "label" in table, "name" in table
    places = fitted.topic_map()
    representative = dict(zip(fitted.topic_numbers, _representative(fitted.proportions), strict=True))
    rows = tuple(
        PartRow(
            topic,
            str(table["name"].loc[topic]) if with_names else " ".join(sketches[topic].distinctive[:3]),
            sketches[topic].share,
            (
                *([str(table["name"].loc[topic])] if with_names else []),
                " ".join(sketches[topic].words[:TOP_WORDS]),
                " ".join(sketches[topic].distinctive[:DISTINCTIVE_WORDS]),
                "" if coherence is None else f"{coherence.loc[topic]:.2f}".replace("-", "−"),
                *([str(table["label"].loc[topic])] if with_labels else []),
            ),
            representative[topic],
        )
        for topic in table.index.tolist()
    )
    # 2. the map of topics, and documents to look through
    drawing = draw_with_caption(
        partial(draw_topic_map, places, float(places.attrs["shown"])),
        "topicmap",
        "Map of topics by the words they share",
        4.0,
    )
    columns = (
        *(["name"] if with_names else []),
        "most probable words",
        "most distinctive words",
        "coherence (NPMI)",
        *(["label"] if with_labels else []),
    )
    chosen, note = _choose_units(tuple(representative.values()), fitted.training.n_units, "documents", "topic")
    units = tuple(_document(fitted, number) for number in chosen)
    explorer = Explorer("document", "documents", units, note)
    return Parts("Topics", "topic", "of the tokens", columns, rows, (drawing,), explorer=explorer)


@parts_of.register
def _parts_of_blocks(fitted: FittedBlocks) -> Parts:
    """Return the section on a block model: the picture of the sorted matrix, and a table of the means of its blocks."""
    drawing = draw_with_caption(fitted.draw_blocks, "blocks", "The matrix in the order of its clusters", 6.4)
    return Parts(
        "Blocks", "block", "", drawings=(drawing,), grids=(grid_of("Means", fitted.block_means().reset_index()),)
    )


@parts_of.register
def _parts_of_mixture(fitted: FittedMixture) -> Parts:
    """Return the section on a mixture: a table of clusters, a picture of the rows, and rows to look through."""
    # 1. a line for each cluster, the largest first
    shares, weights, means = fitted.memberships().to_numpy(), fitted.weights(), fitted.means()
    representative = _representative(shares)
    rows = _rows_of_parts("cluster", weights, means, representative)
    # 2. a picture, which needs two columns, and rows to look through
    points = fitted.training
    assert isinstance(points, Points)
    drawings = ()
    if len(points.columns) > 1:
        drawings = (
            draw_with_caption(
                fitted.draw_clusters, "clusters", "Rows in the first two columns, by their component", 4.2
            ),
        )
    chosen, note = _choose_units(representative, points.n_units, "rows", "cluster")
    units = tuple(_row(points, number, shares[number], chosen_part=True) for number in chosen)
    return Parts(
        "Clusters",
        "cluster",
        "expected share",
        ("mean of each column",),
        rows,
        drawings,
        explorer=Explorer("row", "rows", units, note),
    )


@parts_of.register
def _parts_of_features(fitted: FittedFeatures) -> Parts:
    """Return the section on a feature model: a table and a picture of the loadings, and rows to look through."""
    # 1. a line for each feature, the most frequent first
    loadings, has = fitted.loadings(), np.asarray(fitted.transform(fitted.training), np.float64)
    shares = pd.Series(has.mean(axis=0), index=loadings.index)
    representative = _representative(has)
    rows = _rows_of_parts("feature", shares, loadings, representative)
    # 2. a picture, and rows to look through
    drawing = draw_with_caption(
        partial(draw_loadings, loadings, shares), "loadings", "Loadings of each feature on each column", 3.6
    )
    points = fitted.training
    assert isinstance(points, Points)
    chosen, note = _choose_units(representative, points.n_units, "rows", "feature")
    units = tuple(_row(points, number, has[number], chosen_part=False) for number in chosen)
    return Parts(
        "Features",
        "feature",
        "of the rows",
        ("what it adds to each column",),
        rows,
        (drawing,),
        explorer=Explorer("row", "rows", units, note),
    )


# ── drawings, tables ────────────────────────────────────────────────────────────────────────────────────────────────


def _rows_of_parts(
    noun: str, shares: pd.Series, table: pd.DataFrame, representative: tuple[tuple[int, ...], ...]
) -> tuple[PartRow, ...]:
    """Return a row for each cluster or feature, the largest share first.

    noun: the word for one of them
    shares: the share of each in the data, (parts,)
    table: its numbers in the columns of the data, (parts, columns)
    representative: for each, the numbers of the rows that show it best
    """
    return tuple(
        PartRow(
            k,
            f"{noun} {k}",
            float(shares.iloc[k]),
            (", ".join(f"{name} {_number(value)}" for name, value in table.loc[k].iloc[:MOST_COLUMNS].items()),),
            representative[k],
        )
        for k in np.argsort(-shares.to_numpy(), kind="stable").tolist()
    )


def draw_with_caption(draw: "Callable[[Axes], Caption]", name: str, label: str, height: float = PAGE_HEIGHT) -> Drawing:
    """Draw a picture for the page, and return it with its caption as text.

    draw: a function that draws on matplotlib axes and returns the caption
    name: the name of the picture on the page, unique there
    label: what the picture shows, for screen readers
    height: the height of the picture, in inches
    """
    captions: list[Caption] = []

    def dressed_and_drawn(axes: "Axes") -> None:
        """Style the axes, call `draw` on them, and keep the caption that it returns."""
        captions.append(draw(in_house_style(axes)))

    svg = inline_svg(dressed_and_drawn, name, label, PAGE_WIDTH, height)
    return Drawing(captions[0].title, tuple(captions[0].text.split("\n")), svg)


def grid_of(title: str, table: pd.DataFrame) -> Grid:
    """Return the first rows and columns of a table as texts, with a note on how many were left out."""
    shown = table.iloc[:MOST_ROWS, :MOST_COLUMNS]
    rows = tuple(tuple(_cell(value) for value in row) for row in shown.itertuples(index=False))
    whole = shown.shape == table.shape
    note = (
        ""
        if whole
        else f"the first {len(shown)} of {len(table):,} rows, {shown.shape[1]} of {table.shape[1]:,} columns"
    )
    return Grid(title, tuple(map(str, shown.columns)), rows, note)


def _cell(value: object) -> str:
    """Return a cell of a table as text."""
    return _number(value) if isinstance(value, float | np.floating) else str(value)


def _number(value: float | np.floating) -> str:
    """Return a number with four significant digits and a true minus sign."""
    return f"{value:,.4g}".replace("-", "−")


# ── units ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _representative(shares: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return, for each part, the numbers of the units in which its share is largest, the largest first.

    shares: the share of each part in each unit, (units, parts)
    """
    order = np.argsort(-shares, axis=0, kind="stable")[:UNITS_OF_A_PART]
    return tuple(tuple(column) for column in order.T.tolist())


def _choose_units(
    representative: "Sequence[tuple[int, ...]]", n_units: int, nouns: str, noun: str
) -> tuple[list[int], str]:
    """Choose the units to look through on the page.

    They are all units if there are few, else those that show a part best, and others evenly spread.

    representative: for each part, the numbers of the units that show it best
    n_units: the number of all units
    nouns: the word for units, such as "documents"
    noun: the word for a part, such as "topic"

    Returns (numbers of the units, how they were chosen in words).
    """
    if n_units <= MOST_UNITS:
        return list(range(n_units)), f"all {n_units:,} {nouns}"
    first = list(dict.fromkeys(number for numbers in zip(*representative, strict=True) for number in numbers))
    spread = np.linspace(0, n_units - 1, MOST_UNITS).astype(int).tolist()
    taken = list(dict.fromkeys([*first[:MOST_UNITS], *spread]))[: max(MOST_UNITS, len(first[:MOST_UNITS]))]
    return sorted(taken), (
        f"{len(taken):,} of {n_units:,} {nouns}: those with the largest share of each {noun}, and others evenly spread"
    )


def _largest_shares(values: np.ndarray, at_least: float = 0.01) -> tuple[tuple[int, float], ...]:
    """Return the four largest shares of one unit as (number of the part, share), without those below `at_least`.

    values: the share of each part in the unit, (parts,)
    """
    order = np.argsort(-values, kind="stable")[:MOST_SHARES].tolist()
    return tuple((part, float(values[part])) for part in order if values[part] >= at_least)


def _document(fitted: ReadableTopics, number: int) -> Unit:
    """Return document `number` with its largest topics, and its words, each with its most probable topic."""
    document, labels = fitted.document(number), fitted.training.unit_labels
    pieces = [Piece(f"{w.text} ×{w.count}" if w.count > 1 else w.text, w.topic) for w in document.words[:MOST_PIECES]]
    left_out = len(document.words) - len(pieces)
    if left_out > 0:
        pieces.append(Piece(f"and {with_noun(left_out, 'words')} more", None))
    label = "" if labels is None else labels[number]
    numbers = fitted.topic_numbers
    shares = tuple((numbers[place], share) for place, share in _largest_shares(fitted.proportions[number]))
    return Unit(number, document.title, label, shares, tuple(pieces))


def _row(points: Points, number: int, shares: np.ndarray, *, chosen_part: bool) -> Unit:
    """Return a row of the data with its largest parts and its cells.

    points: the data
    number: the number of the row
    shares: the share of each part in the row, (parts,)
    chosen_part: True to mark every cell with the row's largest part
    """
    cells = [
        f"{name} {_number(points.values[number, place]) if points.observed[number, place] else 'missing'}"
        for place, name in enumerate(points.columns[:MOST_PIECES])
    ]
    name = f"row {number}" if points.row_names is None else points.row_names[number]
    part = int(shares.argmax()) if chosen_part else None
    return Unit(number, name, "", _largest_shares(shares), tuple(Piece(text, part) for text in cells))
