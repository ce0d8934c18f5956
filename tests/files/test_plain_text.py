"""Words, labels and names of other people in every sink: shown as they are, obeyed by none."""

import csv
import html.parser
import inspect
import io
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_searches import corpus, searched

import lvsearch as lv
from lvsearch.command import cli
from lvsearch.command.evaluate import _show
from lvsearch.files.plain_text import markdown, spreadsheet, visible
from lvsearch.reports import report
from lvsearch.reports.report import _markdown, write_report
from lvsearch.results.card import card, summary
from lvsearch.results.plots import plot_posterior
from lvsearch.tables import table_files
from lvsearch.tables.table_files import write_table
from lvsearch.trees.topic_tree import TopicTree, TreeNode

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "\x9b2J",
    "bell\x07",
    "two\nlines",
    "\u202etxt.exe",
    "\x00",
    "![x](http://evil/x.png)",
    "[click](javascript:alert(1))",
    "<img src=x onerror=alert(1)>",
    "https://evil.example/x",
    "www.evil.example",
    "a@evil.example",
    "&lt;b&gt;",
    "`code`",
    "|cell|",
    "$E=mc^2$",
    '=cmd|"/C calc"!A0',
    "@SUM(1)",
    "+1",
    "-1",
    '"]; evil [label="',
)


def searched_over(words: tuple[str, ...]) -> lv.SearchResult:
    """The small search, its documents over these words and labels."""
    data = corpus()
    vocabulary = (*words, *data.vocabulary[len(words) :])
    labels = [words[i % len(words)] for i in range(len(data))]
    hostile = replace(data, vocabulary=vocabulary, document_labels=tuple(labels), notes=words)
    return replace(searched("bound"), training=hostile)


@pytest.fixture(scope="module")
def result() -> lv.SearchResult:
    return searched_over(HOSTILE)


def obeyed(text: str) -> set[str]:
    """Characters that a terminal would obey, line ends aside."""
    return {c for c in text if not c.isprintable()} - {"\n"}


def test_what_is_obeyed_or_unseen_is_spelled_out():
    assert visible("plain – größer 本") == "plain – größer 本"
    assert visible("\x1b[31m\n\u202e\ud800") == r"\x1b[31m\n\u202e\ud800"
    assert visible("می\u200cخواهم") == "می\u200cخواهم"
    assert not any(obeyed(visible(word)) or "\n" in visible(word) for word in HOSTILE)


# ── terminal ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_obeyed_by_a_terminal(result: lv.SearchResult, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("lvsearch.reports.report.write_report", lambda *_, **__: "summary.md")
    cli._conclude(result, tmp_path)
    _show("set \x1b[31m of\ntopics")
    for text in (summary(result), result.training.summary(), repr(result), capsys.readouterr().out):
        assert not obeyed(text)
    assert r"\x1b[31mred" in summary(result)


def test_nor_in_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "corpus.ldac").write_text("1 0:\x1b[31m\n")
    cli.main(["search", "--corpus", str(tmp_path / "corpus.ldac"), "--out", str(tmp_path / "run"), "--no-cache"])
    assert not obeyed(capsys.readouterr().err)


# ── Markdown, spreadsheets ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("word", HOSTILE)
def test_markdown_shows_words_as_they_are(word: str):
    """Every character that could begin markup is escaped, so that taking the backslashes away gives the word."""
    written = markdown(word)
    bare = written.replace("\\\\", "\x00")
    for character in "`*_|<[]&~$@":
        assert bare.count(character) == bare.count(f"\\{character}")
    assert "http://" not in written
    assert "https://" not in written
    assert "www." not in written
    unescaped = "".join(part.replace("\\", "") for part in bare.split("\x00")) if "\x00" not in word else ""
    if visible(word) == word:
        assert unescaped == word


def test_headers_and_cells_of_tables_are_escaped():
    lines = _markdown(pd.DataFrame({"a|b": ["c|d", "\x1b"]}))
    assert lines == ["| a\\|b |", "|---|", "| c\\|d |", "| \\\\x1b |"]


def test_a_report_holds_nothing_to_obey(result: lv.SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lvsearch.reports.report._write_picture", lambda *_: None)
    text = write_report(result, tmp_path).read_text(encoding="utf-8")
    assert not obeyed(text)
    assert "](http" not in text.replace("\\]", "")
    assert "https://" not in text
    with (tmp_path / "topic_words.csv").open(encoding="utf-8", newline="") as file:
        words = {row["word"] for row in csv.DictReader(file)}
    assert {'\'=cmd|"/C calc"!A0', "'+1", "'-1", "'@SUM(1)"} <= words
    for path in tmp_path.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [c for c in cells if c[:1] in "=+-@\t\r" and c and not c.lstrip("+-").replace(".", "").isalnum()]


def test_numbers_in_a_spreadsheet_stay_numbers():
    table = pd.DataFrame({"=x": [-1.0, 2.0], "word": ["-a", "b"], "some": [None, "=1"]})
    written = pd.read_csv(io.StringIO(spreadsheet(table).to_csv(index=False)))
    assert list(written.columns) == ["'=x", "word", "some"]
    assert written["'=x"].tolist() == [-1.0, 2.0]
    assert written["word"].tolist() == ["'-a", "b"]
    assert table.columns[0] == "=x"  # the table itself is as it was


SIGNS = "=+-@＝＋－＠﹦﹢﹣﹫"
ENDS = ("\r", "\n", "\r\n", "\t", "\v", "\f", "\x85", "\u2028", "\u2029", "\x1c")


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("before", ["", " ", "\xa0", "\u3000", *ENDS, *(f"harmless{end}" for end in ENDS)], ids=repr)
def test_no_cell_and_no_line_of_one_begins_with_a_formula(sign: str, before: str, tmp_path: Path):
    """Some programs cut a cell where a line ends in it, and some turn full-width signs into plain ones."""
    text = f"{before}{sign}1+cmd|'/C calc'!A0"
    path = tmp_path / "table.csv"
    write_table(path, pd.DataFrame({text: [text, "plain"], "number": [-1, 2]}))
    content = path.read_bytes().decode("utf-8")
    lines = list(csv.reader(content.splitlines()))
    assert len(lines) == 3
    assert [line[1] for line in lines] == ["number", "-1", "2"]
    for cell in (lines[0][0], lines[1][0]):
        assert cell.startswith("'")
    assert lines[2][0] == "plain"


def test_signs_within_a_text_are_left_alone():
    kept = ["a=b", "a-b @c", "2−1", "größe", "x = y"]
    assert spreadsheet(pd.DataFrame({"a": kept}))["a"].tolist() == kept


def test_other_scores_are_written_so_too():
    assert inspect.getsource(report).count(".to_csv(") == 0  # all tables go through `write_table`
    written = inspect.getsource(table_files)
    assert written.count(".to_csv(") + written.count(".to_excel(") == written.count("safe.to_") == 2


# ── SVG, DOT, HTML, pictures ────────────────────────────────────────────────────────────────────────────────────────


def tree() -> TopicTree:
    words = tuple((word, 0.1) for word in HOSTILE)
    return TopicTree((TreeNode(0, None, 0, 3.0, 9.0, words, HOSTILE), TreeNode(1, 0, 1, 2.0, 4.0, words, ())))


def test_a_picture_of_a_tree_is_sound_xml():
    root = ElementTree.fromstring(tree().to_svg(n_words=len(HOSTILE)))
    assert {element.tag.rpartition("}")[2] for element in root.iter()} == {"svg", "g", "title", "rect", "text", "path"}


def test_a_tree_as_text_and_graph_obeys_nothing():
    assert not obeyed(tree().text(len(HOSTILE)))
    assert len(tree().text(len(HOSTILE)).split("\n")) == 2
    graph = tree().to_graphviz(len(HOSTILE))
    assert not obeyed(graph)
    for line in graph.split("\n"):
        assert line.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 0


def test_a_card_has_no_elements_of_other_people(result: lv.SearchResult, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lvsearch.results.card._picture", lambda _: "")
    seen = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append((tag, [name for name, _ in attrs if name.startswith("on")]))

    for page in (card(result), result.training._repr_html_()):
        Reader().feed(page)
    assert not [entry for entry in seen if entry[1]]
    assert sum(tag == "img" for tag, _ in seen) == 1


@pytest.mark.parametrize("name", ["$", "$x", "$\\frac$", "a $ b $ c", "\x1b[31m"])
def test_names_of_sizes_are_no_formulas(name: str):
    function = lv.from_function(lambda size: -abs(size[0] - 2.0), size_names=(name,), ceiling=0.0)
    found = lv.search(function, prior=lv.sizes.Poisson(2), max_size=3, progress=False)
    axes = plot_posterior(found)
    axes.figure.canvas.draw()
    assert not obeyed(axes.get_xlabel() + axes.get_title(loc="left"))
    assert np.isfinite(axes.get_xlim()).all()
