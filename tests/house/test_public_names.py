"""Public names and their signatures are those of the list beside this file, so that none changes unseen."""

import difflib
import enum
from dataclasses import dataclass
from typing import NamedTuple

from public_signatures import LIST, arguments, described, public_lines

ADVICE = (
    "Public names differ from tests/house/public_names.txt (-: only there, +: only in the code). A change must be told "
    "in CHANGELOG.md, and a name that goes warns first (CONTRIBUTING.md, When something goes). Then run "
    "`python tests/house/public_signatures.py` to write the file anew."
)


def differences(written: list[str], found: list[str]) -> str:
    """Return what differs between two lists of names, with what to do, or "" where nothing does."""
    changed = [
        line
        for line in difflib.unified_diff(written, found, lineterm="", n=0)
        if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    return "\n".join([ADVICE, *changed]) if changed else ""


def test_public_names_are_those_of_the_list():
    found = differences(LIST.read_text(encoding="utf-8").splitlines(), public_lines())
    assert not found, found


def test_the_list_holds_what_people_use():
    written = LIST.read_text(encoding="utf-8").splitlines()
    for name in (
        "lvsearch.search(",
        "lvsearch.Corpus.from_texts(",
        "lvsearch.SearchResult.save(",
        "lvsearch.results.findings.Findings.posterior(",
        "lvsearch.FittedModel.save(",
        "lvsearch.models.LDA(",
        "lvsearch.sizes.Poisson(",
        "lvsearch.inference.document_likelihood(",
        "lvsearch.sklearn.TopicSearch(",
        "lvsearch.topics.readable_topics.ReadableTopics.topics(",
    ):
        assert [line for line in written if line.startswith(name)], f"{name} is not listed"


class Kind(enum.Enum):
    """An enumeration."""

    ROUND = 1


class Pair(NamedTuple):
    """A named tuple."""

    left: int
    right: int = 2


@dataclass(frozen=True)
class Base:
    """A listed class."""

    width: float

    def area(self, scale: float = 1.0, *, kind: Kind = Kind.ROUND) -> float:
        """Return a number."""
        return self.width * scale


@dataclass(frozen=True)
class Larger(Base):
    """A class that adds a member."""

    @property
    def height(self) -> float:
        """A number."""
        return self.width

    @classmethod
    def of_width(cls, width: float) -> "Larger":
        """Return one."""
        return cls(width)


def test_every_kind_of_change_is_seen(monkeypatch):
    """The checker is checked: arguments, defaults, members, and members of bases that are listed or are not."""
    for each in (Base, Larger, Pair, Kind):
        monkeypatch.setattr(each, "__module__", "lvsearch.example")
    assert arguments(lambda a, /, b=(1, "x"), *, c=Kind.ROUND: None) == "(a, /, b=(1, 'x'), *, c=…)"
    lines = list(described("lv.Base", Base, {Base, Larger}, promised=True))
    assert lines == ["lv.Base(width) class", "lv.Base.width field", "lv.Base.area(self, scale=1.0, *, kind=…)"]
    own = ["lv.Larger.height attribute", "lv.Larger.of_width(cls, width) classmethod"]
    found = list(described("lv.Larger", Larger, {Base, Larger}, promised=False))
    assert found == ["lv.Larger class with all of Base", *own]
    alone = set(described("lv.Larger", Larger, {Larger}, promised=False))
    assert alone == {
        "lv.Larger class",
        *own,
        "lv.Larger.width field",
        "lv.Larger.area(self, scale=1.0, *, kind=…)",
    }
    assert list(described("lv.Kind", Kind, {Kind}, promised=True)) == ["lv.Kind class", "lv.Kind.ROUND field"]
    assert list(described("lv.Pair", Pair, {Pair}, promised=True))[:3] == [
        "lv.Pair(left, right=2) class",
        "lv.Pair.left field",
        "lv.Pair.right field",
    ]


def test_a_difference_is_told_in_words():
    told = differences(["lv.fit(model)", "lv.old()"], ["lv.fit(model, data)"])
    assert told.splitlines()[1:] == ["-lv.fit(model)", "-lv.old()", "+lv.fit(model, data)"]
    assert "CHANGELOG.md" in told
    assert not differences(["lv.fit(model)"], ["lv.fit(model)"])
