"""What the page of a search says, as plain data: the template turns it into HTML and decides nothing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Drawing:
    """A picture with its words. `svg` is an element of ours; everything else is text."""

    title: str
    lines: tuple[str, ...]
    svg: str


@dataclass(frozen=True)
class Grid:
    """A table: `rows` of texts, one per column; `note` says what was left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class PartRow:
    """A topic, cluster or feature: its number, its share of the data in [0, 1], and what tells it from the others.

    `facts` are further texts, one per `Parts.columns`; `units` the numbers of units that show it best.
    """

    number: int
    name: str
    share: float
    facts: tuple[str, ...]
    units: tuple[int, ...] = ()


@dataclass(frozen=True)
class Piece:
    """A word or a cell of a unit; `part` is where it most probably came from, None where cells have none."""

    text: str
    part: int | None


@dataclass(frozen=True)
class Unit:
    """A document or a row: its number, what people call it, its largest parts and their shares, its pieces."""

    number: int
    name: str
    label: str
    shares: tuple[tuple[int, float], ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Explorer:
    """Units to look through; `note` says how they were chosen."""

    noun: str
    nouns: str
    units: tuple[Unit, ...]
    note: str


@dataclass(frozen=True)
class Parts:
    """What the most probable size is made of. `noun`: "topic", "cluster"; `share_of`: what shares are of."""

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
    """The whole page. `lead` are the pictures of the answer, `evidence` those of what it rests on."""

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
