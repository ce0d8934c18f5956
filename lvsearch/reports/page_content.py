"""Hold the content of the report's page as plain data, which the template turns into HTML.

A part is a component of a model: a topic, a cluster or a feature. A unit is a document or a row of the data.
"""

from dataclasses import dataclass


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
