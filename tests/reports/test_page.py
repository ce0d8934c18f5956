"""The page of a search: what is on it, that words are text, and that it needs nothing from elsewhere."""

import base64
import hashlib
import html.parser
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from small_searches import searched
from test_plain_text import HOSTILE, searched_over

import lvsearch as lv
from lvsearch.api import _finish_report
from lvsearch.files.plain_text import visible
from lvsearch.pictures.inline_svg import colour_variables
from lvsearch.pictures.style import LIGHT
from lvsearch.reports.page import page_of, render, write_page
from lvsearch.results.card import headline

VOID = {"meta", "br", "input", "img", "link"}
WORDS = (*HOSTILE[:17], "<script>alert(1)</script>", "</style><script>", "{{ 7*7 }}", "$x$", "a\nb")


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, the text outside script and style, and that all that is opened is closed."""

    def __init__(self, page: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def result() -> lv.SearchResult:
    found = searched_over(WORDS)
    assert found.training is not None
    return replace(found, held_out=found.training.select(range(10)))


@pytest.fixture(scope="module")
def page(result: lv.SearchResult) -> Reader:
    return Reader(render(page_of(result, result.compare_held_out(samples=20))))


def test_the_page_answers_first_and_holds_what_decided_it(result: lv.SearchResult, page: Reader):
    text = " ".join(" ".join(page.text).split())
    shown = (
        headline(result),
        "Topics, the largest first",
        "Map of topics",
        "How sure the number is",
        "Held-out documents: which size predicts best",
        "Sizes near the answer",
        "all 31 documents",
        "Estimated evidence for each size",
        "Settings of the search",
    )
    main = text[text.index(headline(result), text.index("Skip to the answer")) :]  # after the title and the links
    places = [main.index(part) for part in shown]
    assert places == sorted(places)  # the number and the topics first, the evidence after
    for said in (
        "Estimated evidence for each size",
        "Evidence against time",
        "Map of topics",
        "Between sizes",
        "coherence (NPMI)",
        "zero-truncated Poisson, rate 3",
        result.training.fingerprint,
        "numpy",
        "all 31 documents",
    ):
        assert said in text
    assert len(page.all("details")) == 31
    assert len([a for a in page.all("tr") if a.get("role") == "row"]) == 1 + result.best_size[0]
    titles = [attributes["aria-label"] for attributes in page.all("svg")]
    assert [title for title in titles if title is not None and "each size" in title][:2] == [
        "Held-out score of each size",
        "Probability of each size",
    ]


def test_every_table_scrolls_by_itself(result: lv.SearchResult):
    """A wide table must not make the page of a phone wider."""
    raw = render(page_of(result))
    assert raw.count("<table") > 1
    assert len(re.findall(r'<div class="scroll"[^>]*>\s*<table', raw)) == raw.count("<table")
    assert ".scroll { overflow-x: auto;" in raw


def test_words_of_other_people_are_text(page: Reader):
    text = "".join(page.text)
    shown = [word for word in WORDS if visible(word) in text]
    assert {"<script>alert(1)</script>", "{{ 7*7 }}", "$x$", "a\nb", "<img src=x onerror=alert(1)>"} <= set(shown)
    assert "49" not in text.split("{{ 7*7 }}")[0][-5:]
    assert not [c for c in text if not c.isprintable() and c not in "\n"]
    assert not page.all("img")
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_nothing_comes_from_elsewhere_and_only_our_script_may_run(result: lv.SearchResult, page: Reader):
    for _, attributes in page.elements:
        for name in ("href", "src", "action", "data", "poster", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/png;base64,")), value
        assert "url(" not in (attributes.get("style") or "").replace("url(#", "")
    assert not page.all("link")
    (script,) = page.scripts
    (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert "default-src 'none'" in policy
    raw = render(page_of(result))
    style = raw[raw.index("<style>") : raw.index("</style>")]
    assert "@import" not in style
    assert "url(" not in style


def test_it_can_be_read_without_a_mouse_and_without_colours(page: Reader):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes in page.all("a")]
    assert {link[1:] for link in links if link} <= set(ids)
    assert all(attributes.get("aria-label") for attributes in page.all("svg"))
    assert [attributes.get("lang") for attributes in page.all("html")] == ["en"]
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for region in ("scroll", "units"):
        found = [a for _, a in page.elements if a.get("class") == region]
        assert found
        assert all(a.get("tabindex") == "0" and a.get("aria-label") for a in found)
    assert "topic" in "".join(page.text)


def test_pictures_follow_the_scheme(result: lv.SearchResult):
    """Every house colour inside a picture is a variable of the style sheet, which has both palettes."""
    raw = render(page_of(result))
    assert "prefers-color-scheme: dark" in raw
    for picture in re.findall(r"<svg.*?</svg>", raw, re.DOTALL):
        marks = re.sub(r"data:image/png;base64,[^\"]*", "", picture)
        assert not [colour for colour in colour_variables(LIGHT).values() if f"{colour};" in marks]


def test_a_search_over_a_function_has_a_page():
    found = lv.search(
        lv.from_function(lambda size: -20.0 / size[0], nested=True, ceiling=0.0),
        prior=lv.sizes.Poisson(4),
        max_size=5,
        progress=False,
    )
    text = "".join(Reader(render(page_of(found))).text)
    assert "Bounds against time" in text
    assert "a function of the size" in text
    assert "Topics" not in text


def test_a_search_with_a_folder_leaves_a_page_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    done = searched("bound")
    folder = tmp_path / "my run"
    assert _finish_report(done, folder, True, True, None) is done
    written = folder / "report" / "index.html"
    assert written.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert f"report: {written.resolve().as_uri()}\n" in capsys.readouterr().err
    assert "%20" in written.resolve().as_uri()
    before = written.read_bytes()
    write_page(done, folder / "report")
    assert written.read_bytes() == before
    assert _finish_report(done, tmp_path / "none", False, True, None) is done
    assert not (tmp_path / "none").exists()
    empty = replace(done, state=replace(done.state, visits=()))
    _finish_report(empty, tmp_path / "none", True, True, None)
    assert not (tmp_path / "none").exists()
