"""The content of the page of a search, as plain data; the template turns it into HTML and decides nothing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Drawing:
    """A picture with its title and caption. `svg` is trusted markup; everything else is text."""

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
    """A topic, cluster or feature in the table of parts.

    number, name: its number, and what distinguishes it from the others
    share: its share of the data, in [0, 1]
    facts: further texts, one per `Parts.columns`
    units: the numbers of units that show it best
    """

    number: int
    name: str
    share: float
    facts: tuple[str, ...]
    units: tuple[int, ...] = ()


@dataclass(frozen=True)
class Piece:
    """A word or a cell of a unit. `part` is where it most probably came from; None if cells have no part."""

    text: str
    part: int | None


@dataclass(frozen=True)
class Unit:
    """A document or a row to look at.

    number, name, label: its number, what people call it, and its class
    shares: its largest parts as (part, share)
    pieces: its words or cells
    """

    number: int
    name: str
    label: str
    shares: tuple[tuple[int, float], ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Explorer:
    """Units to look through. `note` says how they were chosen."""

    noun: str
    nouns: str
    units: tuple[Unit, ...]
    note: str


@dataclass(frozen=True)
class Parts:
    """The components of the most probable size.

    title, noun: such as "Topics" and "topic"
    share_of: what shares are shares of, such as "of the tokens"
    columns, rows: the table of the components
    drawings, grids: pictures and further tables
    explorer: units to look through, or None
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
    """A named fact."""

    name: str
    text: str


@dataclass(frozen=True)
class Page:
    """The whole page. `lead` has the pictures of the answer, `evidence` the pictures of what it rests on."""

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
