"""Small files as people bring them (`cases/`): what each gives, in Python and on the command line."""

import gzip
import json
import re
import shutil
import sys
import unicodedata
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import mmwrite
from scipy.sparse import csr_array, save_npz

import lvsearch as lv
from lvsearch.command.arguments import Runs, parser
from lvsearch.command.cli import main
from lvsearch.command.sources import check_sources, read_corpus

CASES = Path(__file__).parent / "cases"
METALS = ("copper", "iron", "nickel", "tin", "zinc")
WORDS = tuple(sorted((*METALS, "apple", "cherry", "pear", "plum", "quince")))


def options(*arguments: str) -> Namespace:
    """The options of `lvsearch search` with these arguments."""
    nothing: Any = lambda options: 0  # noqa: E731
    given = ["search", *arguments, "--out", "run"]
    found = parser(given, Runs(*[nothing] * 6)).parse_args(given)
    check_sources(found)
    return found


def both(name: str, arguments: tuple[str, ...] = (), what: str = "--texts", **chosen: Any) -> lv.Corpus:
    """A corpus in Python, the same on the command line and out of a folder that it was converted into."""
    corpus = lv.Corpus.open(CASES / name, **chosen)
    said = read_corpus(options(what, str(CASES / name), *arguments))
    assert said == corpus
    assert said.notes == corpus.notes
    return corpus


def converted(folder: Path, name: str, **chosen: Any) -> lv.Corpus:
    found = lv.Corpus.open(lv.convert(CASES / name, folder / "corpus", **chosen), verify=True)
    assert found == lv.Corpus.open(CASES / name, **chosen)
    assert found.notes == lv.Corpus.open(CASES / name, **chosen).notes
    return found


# -- tables of texts ----------------------------------------------------------------------------------------------


def test_a_lone_quote_swallows_no_rows(tmp_path):
    table = {"text": "text", "id": "id"}
    corpus = both("tsv_lone_quotes.tsv", ("--text-column", "text", "--id-column", "id"), **table)
    assert corpus.document_names == tuple(map(str, range(24)))
    assert corpus.n_tokens == 288
    assert corpus.notes[0] == "quotes are part of the texts: the one in line 5 does not enclose a value"
    converted(tmp_path, "tsv_lone_quotes.tsv", **table)


def test_quoted_line_breaks_are_read_as_a_spreadsheet_does(tmp_path):
    corpus = both("multiline.csv", ("--text-column", "text"), text="text")
    assert corpus.vocabulary == ("apple", "iron", "pear", "plum", "quoted", "tin", "zinc")
    assert corpus.document_lengths.tolist() == [5, 2, 0, 0]
    assert "left out 1 token of 1 word of fewer than 3 letters: na (1)" in corpus.notes
    assert "2 of 4 documents are empty; kept in place" in corpus.notes
    converted(tmp_path, "multiline.csv", text="text")


QUOTES = {
    "apostrophes.csv": (
        'id,text\n1,"apple"\n2,5" pear\n3,plum "ripe" iron\n',
        3,
        True,
    ),  # quotes inside values: as ever
    "lone.csv": ('id,text\n1,apple\n2,"pear\n3,plum\n4,iron"\n', 4, False),  # would close, two lines later
    "end.csv": ('id,text\n1,apple\n2,pear\n3,"plum\n', 3, False),  # never closes
    "long.tsv": (f'id\ttext\n1\t{"apple " * 30_000}\n2\t"pear" plum\n', 2, False),
    "one_column.csv": ('text\n"apple\npear"\nplum\n', 2, True),
    "semicolons.csv": ('id;text\n1;"apple, pear; plum"\n2;iron, tin\n', 2, True),
}


@pytest.mark.parametrize("name", QUOTES)
def test_quotes(name, tmp_path):
    content, n_documents, quoted = QUOTES[name]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    corpus = lv.Corpus.open(path, text="text")
    assert len(corpus) == n_documents
    assert any("quotes are part of the texts" in note for note in corpus.notes) != quoted
    assert any("separated by semicolons" in note for note in corpus.notes) == (name == "semicolons.csv")
    found = lv.Corpus.open(lv.convert(path, tmp_path / "corpus", text="text"))
    assert (found, found.notes) == (corpus, corpus.notes)


def test_quotes_that_fit_no_reading_are_refused_with_their_line(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('id,text\n1,"apple, pear"\n2,"plum" iron, tin\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.csv, line 3: got a quote that does not enclose a value"):
        lv.Corpus.open(path, text="text")


def test_names_and_classes_stay_as_written_and_missing_cells_are_said(tmp_path):
    path = tmp_path / "x.csv"
    content = "id,text,land,year,code\n007,apple,NA,1990,NA\nNA,pear,DE,1991,5\n010,plum,NA,1992,7\n"
    path.write_text(content, encoding="utf-8")
    corpus = lv.Corpus.open(path, text="text", id="id", label="land")
    assert corpus.document_names == ("007", "NA", "010")
    assert corpus.document_labels == ("NA", "DE", "NA")
    assert corpus.metadata["land"].tolist() == ["NA", "DE", "NA"]
    assert_array_equal(corpus.metadata["code"], [np.nan, 5, 7])
    assert "cells taken as missing: 'NA' in the column 'code' (1)" in corpus.notes
    by_year = lv.Corpus.open(path, text="text", label="year")
    assert by_year.document_labels == ("1990", "1991", "1992")
    assert by_year.metadata["year"].tolist() == [1990, 1991, 1992]  # numbers still
    assert lv.Corpus.open(path, text="text", label="id").metadata["id"].tolist() == ["007", "NA", "010"]


# -- tables of numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "columns", "first", "notes"),
    [
        (
            "excel_de_numbers.csv",
            ("Laenge", "Breite"),
            [6.01, 1.99],
            ("values are separated by semicolons", "the decimal sign is a comma"),
        ),
        ("semicolon_points.csv", ("a", "b"), [1.31, 1.28], ("values are separated by semicolons",)),
        ("decimal_comma_quoted.csv", ("a", "b"), [0.0, 1.384], ("the decimal sign is a comma",)),
    ],
)
def test_numbers_of_other_countries(name, columns, first, notes):
    points = lv.Points.from_csv(CASES / name)
    assert points.columns == columns
    assert points.values[0].tolist() == first
    assert points.notes == notes


NUMBERS = {
    "thousands.csv": ('a,b\n"1,234.5",2\n"12,000",3\n', {}, [[1234.5, 2], [12000, 3]]),
    "german.csv": ("a;b\n1.234,5;2\n12.000,0;3\n", {}, [[1234.5, 2], [12000, 3]]),
    "semicolon_three_digits.csv": ("a;b\n1,234;2\n5,678;3\n", {}, [[1.234, 2], [5.678, 3]]),
    "said_decimal.csv": ('a,b\n"1,234",2\n', {"decimal": ","}, [[1.234, 2]]),
    "said_thousands.csv": ('a,b\n"1,234",2\n', {"thousands": ","}, [[1234, 2]]),
    "said_separator.csv": ("a|b\n1|2\n", {"separator": "|"}, [[1, 2]]),
    "bars.csv": ("a|b\n1|2\n", {}, [[1, 2]]),
    "tabs.tsv": ("a\tb\n1\t2\n", {}, [[1, 2]]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_how_numbers_are_written(name, tmp_path):
    content, chosen, expected = NUMBERS[name]
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert_allclose(lv.Points.from_csv(tmp_path / name, **chosen).values, expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n5%,2\n", r"got '5%' in the column 'a', row 0 \(line 2\).*without their sign"),
        ("a,b\n1,2\n?,3\n", r"got '\?' in the column 'a', row 1 \(line 3\).*missing_marks=\['\?'\]"),
        ("a,b\n1,2\n-,3\n", r"got '-' in the column 'a'.*missing_marks=\['-'\]"),
        ("day,b\n2020-01-01,1\n", "got '2020-01-01' in the column 'day'.*days since"),
        ("day,b\n31.12.2020,1\n", r"got '31\.12\.2020' in the column 'day'.*days since"),
        ("a,b\n3,$5\n", r"got '\$5' in the column 'b'.*currency"),
        ("a,b\n3,x\n4,y\n", r"got 'x' in the column 'b', row 0.*leave the column out"),
        ("a,b,c\n3,x,u\n", "and 1 more columns with text"),
        ('a,b\n"1,234",2\n', "got '1,234' in the column 'a', which is a decimal comma or one between thousands"),
        ('a,b\n"1,5",2.5\n', r"got '2\.5' in the column 'b'"),  # commas there, points here
    ],
)
def test_cells_that_are_no_numbers(content, message, tmp_path):
    (tmp_path / "x.csv").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        lv.Points.from_csv(tmp_path / "x.csv")


DELETED = "expected three digits behind each of these signs"


@pytest.mark.parametrize(
    ("content", "chosen", "message"),
    [
        (
            "umsatz;lat\n1.234,50;52.5200\n987,10;48.1371\n",
            {},
            rf"got '52\.5200' in the column 'lat', row 0.*{DELETED}",
        ),
        ("x;y\n0.500;1\n2,5;2\n", {}, "in the column 'x'"),
        ('x,y\n"1,5",2\n"2,75",3\n', {"thousands": ","}, rf"got '1,5' in the column 'x', row 0 \(line 2\).*{DELETED}"),
        (
            "x;y\n1.000,5;2\n3;.5\n",
            {"decimal": ",", "thousands": "."},
            rf"got '\.5' in the column 'y', row 1.*{DELETED}",
        ),
    ],
)
def test_signs_between_thousands_stand_before_three_digits(content, chosen, message, tmp_path):
    (tmp_path / "x.csv").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        lv.Points.from_csv(tmp_path / "x.csv", **chosen)


@pytest.mark.parametrize("name", ["percent.csv", "question_marks.csv", "dates.csv"])
def test_cases_that_are_no_numbers(name):
    with pytest.raises(ValueError, match=r"in the column '(a|day)', row \d+ \(line \d+\); expected numbers throughout"):
        lv.Points.from_csv(CASES / name)


@pytest.mark.parametrize("mark", ["-9", -9])
def test_marks_of_missing_cells_may_be_numbers(mark, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("x,y\n-9,2\n3,4\n")
    points = lv.Points.from_csv(path, missing="nan", missing_marks=[mark])
    assert_array_equal(points.values, [[np.nan, 2], [3, 4]])
    assert points.notes == ("cells taken as missing: '-9' in the column 'x' (1)",)


def test_marks_of_missing_cells_are_said():
    points = lv.Points.from_csv(CASES / "question_marks.csv", missing="nan", missing_marks=["?"])
    assert points.notes == ("cells taken as missing: '?' in the column 'a' (1)",)
    assert points.observed.tolist() == [[True, True], [False, True], [True, True]]


@pytest.mark.parametrize("names", [("NA", "007"), ("1e5", "True"), ("0x10", "nan"), (" x ", "y, z")])
def test_names_of_documents_stay_as_written(names, tmp_path):
    path = tmp_path / "x.csv"
    pd.DataFrame({"id": names, "text": ["apple", "pear"]}).to_csv(path, index=False)
    corpus = both(str(path), ("--text-column", "text", "--id-column", "id"), text="text", id="id")
    assert corpus.document_names == names


def test_names_of_rows_stay_as_written(tmp_path):
    assert lv.Points.from_csv(CASES / "row_name_na.csv", row_names="code").row_names == ("DE", "NA", "FR")
    assert lv.Points.from_csv(CASES / "row_name_007.csv", row_names="id").row_names == ("007", "010")
    assert lv.Points.from_csv(CASES / "row_name_007.csv", row_names=0).row_names == ("007", "010")
    for names in (("1e5", "nan"), ("1.0", "None"), ("+3", "null")):
        (tmp_path / "x.csv").write_text(f"1,{names[0]}\n2,{names[1]}\n", encoding="utf-8")
        assert lv.Points.from_csv(tmp_path / "x.csv", header=False, row_names=1).row_names == names


@pytest.mark.parametrize(
    ("cell", "said"),
    [("5%", "without their sign"), ("1,234", "thousands=','"), ("2020-01-01", "days since"), ("x", "from_categories")],
)
def test_a_frame_says_its_first_cell_that_is_no_number(cell, said):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["3", cell]})
    with pytest.raises(ValueError, match=rf"the first 'b' \(row 1: '{cell}'\).*{said}"):
        lv.Points.from_frame(frame)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("1\u00a0234.5", "nothing but point or comma between digits"),
        ("1\u202f234,5", "nothing but point or comma between digits"),
        ("1'234.5", "nothing but point or comma between digits"),
        ("1_000", "nothing but point or comma between digits"),
        ("−1", "a hyphen as minus sign"),
        ("١٢", "digits 0 to 9"),
        ("12:30", "times as numbers"),
        ("5 %", "percentages without their sign"),
        ("€5", "without the sign of their currency"),
        ("01.02.2020", "dates as numbers"),
        ("1/2/2020", "dates as numbers"),
        ("-", r"missing_marks=\['-'\]"),
        ("#DIV/0!", "leave the column out"),
    ],
)
def test_numbers_written_in_other_ways_are_named_with_what_to_write(cell, said, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(f'a,b\n1,2\n"{cell}",4\n', encoding="utf-8")
    with pytest.raises(ValueError, match=rf"in the column 'a', row 1 \(line 3\); expected numbers .*{said}"):
        lv.Points.from_csv(path)


@pytest.mark.parametrize("column", [["1", "2"], np.array([1, 2.5], object), pd.Categorical([1, 2])], ids=str)
def test_numbers_that_a_frame_keeps_as_text_or_objects_are_converted_by_the_advice(column):
    frame = pd.DataFrame({"a": column, "b": [1, 2]})
    with pytest.raises(ValueError, match=r"the first 'a', whose cells are numbers kept as text or objects.*to_numeric"):
        lv.Points.from_frame(frame)
    frame["a"] = pd.to_numeric(frame["a"])
    assert lv.Points.from_frame(frame).values.shape == (2, 2)


def test_time_differences_in_a_frame_are_named():
    with pytest.raises(ValueError, match=r"first 'a' .*times as numbers.*total_seconds"):
        lv.Points.from_frame(pd.DataFrame({"a": pd.to_timedelta([1, 2], "D")}))


def test_a_header_alone_is_no_table_of_numbers(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.csv: got the names of the columns and no row"):
        lv.Points.from_csv(path)


@pytest.mark.parametrize("line", ["sep=;", "SEP=,", '"sep=;"', "sep=;;"])
def test_the_line_that_tells_excel_the_separator_is_named(line, tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text(f"{line}\nid;text\n1;apple pear\n2;iron, tin\n", encoding="utf-8")
    message = "line 1: got .*a line for Excel alone.*delete that line"
    for read in (lv.Points.from_csv, lambda path: lv.Corpus.open(path, text="text")):
        with pytest.raises(ValueError, match=message):
            read(path)
    for command in (["convert", str(path)], ["search", "--texts", str(path)]):
        assert main([*command, "--text-column", "text", "--out", str(tmp_path / "out")]) == 2
        assert re.search(message, capsys.readouterr().err)


# -- packed files, and files that are no text ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "labels"),
    [
        (("docs/sport/a.txt", "docs/sport/b.txt", "docs/trade/c.txt"), ("sport", "sport", "trade")),
        (("sport/a.txt", "trade/old/b.txt"), ("sport", "trade")),
        (("docs/2020/sport/a.txt", "docs/2020/trade/b.txt"), ("sport", "trade")),
        (("docs/a.txt", "docs/b.txt"), None),
        (("docs/a.txt", "docs/sport/b.txt"), None),
    ],
)
def test_folders_around_all_files_of_an_archive_are_no_class(members, labels, tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "docs.zip", "w") as archive:
        for member in members:
            archive.writestr(member, "apple pear")
    corpus = lv.Corpus.open(tmp_path / "docs.zip")
    assert (corpus.document_names, corpus.document_labels) == (members, labels)
    assert lv.Corpus.open(lv.convert(tmp_path / "docs.zip", tmp_path / "corpus")) == corpus


@pytest.mark.parametrize("name", ["docs.txt.bz2", "docs.zip", "docs.json"])
def test_packed_texts(name, tmp_path):
    table: dict[str, Any] = {"text": "text"} if name.endswith(".json") else {}
    corpus = both(name, ("--text-column", "text") if table else (), **table)
    assert (len(corpus), corpus.n_tokens, corpus.vocabulary) == (24, 288, WORDS)
    converted(tmp_path, name, **table)


@pytest.mark.parametrize("name", ["x.txt.gz", "x.txt.xz", "x.txt.bz2", "x.zip"])
def test_texts_packed_in_other_ways(name, tmp_path):
    import bz2
    import lzma
    import zipfile

    content = b"apple pear\r\niron tin\r\n"  # as Windows ends lines
    packed = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    path = tmp_path / name
    if name == "x.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("deep/docs.txt", content)
    else:
        path.write_bytes(packed[path.suffix](content))
    corpus = lv.Corpus.open(path)
    assert corpus.counts.toarray().tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert read_corpus(options("--texts", str(path))) == corpus


@pytest.mark.parametrize("name", ["x.tar.gz", "x.docx", "x.pdf", "x.rds"])
def test_files_that_are_not_read_are_refused_with_what_is(name, tmp_path, capsys):
    path = tmp_path / name
    path.write_bytes(b"\x00\x01")
    with pytest.raises(ValueError, match=rf"{name}: got the ending '\.\w+'; expected one of \.txt.*from_texts"):
        lv.Corpus.open(path)
    assert main(["convert", str(path), "--out", str(tmp_path / "corpus")]) == 2
    assert "expected one of .txt" in capsys.readouterr().err


def test_texts_in_utf16_are_refused_by_what_they_are(tmp_path):
    path = CASES / "docs_utf16.txt"
    for encoding, said in (("utf-8", "begins as UTF-16 does: encoding='utf-16'"), ("latin-1", "encoding='utf-16'")):
        with pytest.raises(ValueError, match=said):
            lv.Corpus.open(path, encoding=encoding)
        with pytest.raises(ValueError, match=said):
            lv.convert(path, tmp_path / "corpus", encoding=encoding)
    assert len(both("docs_utf16.txt", ("--encoding", "utf-16"), encoding="utf-16")) == 24


def test_an_excel_file(monkeypatch):
    pytest.importorskip("openpyxl")
    corpus = both("book.xlsx", ("--text-column", "text"), text="text")
    assert corpus.vocabulary == ("apple", "pear", "tin", "zinc")


def test_an_excel_file_without_its_reader(monkeypatch):
    def missing(*_, **__):
        raise ImportError("Missing optional dependency 'openpyxl'")

    monkeypatch.setattr(pd, "read_excel", missing)
    with pytest.raises(ValueError, match=r"need openpyxl: pip install 'lvsearch\[excel\]'"):
        lv.Corpus.open(CASES / "book.xlsx", text="text")
    sheets = {"one": pd.DataFrame({"text": ["apple", None], "id": [7, 8]}), "two": pd.DataFrame()}
    monkeypatch.setattr(pd, "read_excel", lambda *_, **__: sheets)
    corpus = lv.Corpus.open(CASES / "book.xlsx", text="text", id="id")
    assert corpus.document_names == ("7", "8")
    assert corpus.notes[0] == "the first sheet, 'one', was read, and left out 'two'"


ANSWERS = pd.DataFrame(
    {
        "text": ["apple pear", None, "tin zinc"],
        "who": ["007", "NA", "x"],
        "sex": [1, 2, 1],
        "age": [30.0, np.nan, 51.0],
        "number": [7.0, 8.0, 9.0],
    }
)
LABELS = {1: "woman", 2: "man"}


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_data_set_of_stata(packed, tmp_path):
    """Numbers with labels are these; a missing text is empty, and a missing number missing."""
    plain, path = tmp_path / "plain.dta", tmp_path / f"survey.dta{packed}"
    ANSWERS.fillna({"text": ""}).to_stata(plain, write_index=False, version=118, value_labels={"sex": LABELS})
    path.write_bytes(gzip.compress(plain.read_bytes()) if packed else plain.read_bytes())
    corpus = both(path, ("--text-column", "text"), text="text")
    check_answers(corpus)
    assert lv.Corpus.open(path, text="text", id="number").document_names == ("7", "8", "9")
    by_sex = lv.Corpus.open(path, text="text", id="who", label="sex")
    assert by_sex.document_labels == ("woman", "man", "woman")
    assert by_sex.document_names == ("007", "NA", "x")
    assert lv.Corpus.open(lv.convert(path, tmp_path / "kept", text="text")) == corpus


def check_answers(corpus):
    """Every cell of ANSWERS is where it belongs, and a note says which cells are labels."""
    assert corpus.vocabulary == ("apple", "pear", "tin", "zinc")
    assert_array_equal(corpus.counts.sum(1), [2, 0, 2])
    assert corpus.metadata["sex"].tolist() == ["woman", "man", "woman"]
    assert_array_equal(corpus.metadata["age"], [30.0, np.nan, 51.0])
    assert corpus.metadata["number"].tolist() == [7, 8, 9]
    assert "cells are the labels of their numbers: 'sex'" in corpus.notes


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_data_set_of_spss(packed, tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat")
    plain, path = tmp_path / "plain.sav", tmp_path / f"survey.sav{packed}"
    pyreadstat.write_sav(ANSWERS, str(plain), variable_value_labels={"sex": LABELS})
    path.write_bytes(gzip.compress(plain.read_bytes()) if packed else plain.read_bytes())
    check_answers(lv.Corpus.open(path, text="text"))
    assert lv.Corpus.open(path, text="text", id="number").document_names == ("7", "8", "9")


def test_a_data_set_of_spss_without_its_reader(monkeypatch, tmp_path):
    def missing(*_, **__):
        raise ImportError("Missing optional dependency 'pyreadstat'")

    path = tmp_path / "survey.sav"
    path.write_bytes(b"$FL2@(#)")
    monkeypatch.setattr(pd, "read_spss", missing)
    with pytest.raises(ValueError, match=r"survey.sav: SPSS files need pyreadstat: pip install 'lvsearch\[spss\]'"):
        lv.Corpus.open(path, text="text")
    monkeypatch.setattr(pd, "read_spss", lambda path: ANSWERS.astype({"sex": "category"}).assign(read=len(path) > 0))
    assert lv.Corpus.open(path, text="text").metadata["age"].tolist()[0] == 30


@pytest.mark.parametrize(("name", "program"), [("x.dta", "Stata"), ("x.sav", "SPSS")])
def test_what_is_no_data_set_is_refused(name, program, tmp_path, monkeypatch):
    path = tmp_path / name
    path.write_bytes(b"text,id\napple,1\n")

    def refuse(path):
        raise RuntimeError("Invalid file, or file has unsupported features")

    monkeypatch.setattr(pd, "read_spss", refuse)
    with pytest.raises(ValueError, match=f"{name}: .*; expected a data set of {program}"):
        lv.Corpus.open(path, text="text")
    ANSWERS[["age"]].to_stata(tmp_path / "numbers.dta", write_index=False)
    with pytest.raises(ValueError, match=r"got text='text' .*, expected one of its columns: 'age'"):
        lv.Corpus.open(tmp_path / "numbers.dta", text="text")


def test_a_file_packed_by_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "docs.csv.zst"
    path.write_bytes(zstandard.compress(b"text\napple pear\ntin zinc\n"))
    assert len(both(path, ("--text-column", "text"), text="text")) == 2
    path.write_bytes(b"text\napple pear\n")
    with pytest.raises(ValueError, match="expected a file written by Zstandard, as its name says"):
        lv.Corpus.open(path, text="text")


def test_a_file_packed_by_zstandard_without_its_reader(tmp_path, monkeypatch):
    for name in ("zstandard", "compression.zstd", "compression"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "docs.txt.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(
        ValueError, match=r"docs.txt.zst: .zst files need zstandard: pip install 'lvsearch\[zstandard\]'"
    ):
        lv.Corpus.open(path)


FOREIGN = {
    "book.xlsx": "a ZIP archive",
    "x.pdf": "a PDF",
    "x.gz": "packed by gzip",
    "x.parquet": "a Parquet file",
    "x.npy": "an array of NumPy",
    "x.dict": "a pickle of Python",
    "x.bin": "no text in this encoding: there are NUL bytes",
}
CONTENTS = {
    "x.pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3",
    "x.gz": gzip.compress(b"apple"),
    "x.parquet": b"PAR1\x15\x04",
    "x.npy": b"\x93NUMPY\x01\x00",
    "x.dict": b"\x80\x04\x95\x00",
    "x.bin": "größe".encode("utf-16-le"),
}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_no_text_is_called_what_it_is(name, encoding, tmp_path, capsys):
    """Whatever the encoding that one is advised to say: no report of noise."""
    path = tmp_path / "docs.txt"
    path.write_bytes(CONTENTS[name] if name in CONTENTS else (CASES / name).read_bytes())
    with pytest.raises(ValueError, match=f"docs.txt: got a file that is {FOREIGN[name]}"):
        lv.Corpus.open(path, encoding=encoding)
    odd = tmp_path / "docs.data"
    shutil.copy(path, odd)
    assert main(["search", "--texts", str(odd), "--encoding", encoding, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert FOREIGN[name] in error
    assert "cp1252" not in error


def test_archives(tmp_path):
    import zipfile

    for name, members in (
        ("one.zip", {"deep/docs.csv": "text\napple pear\n", "__MACOSX/._docs.csv": "x", ".DS_Store": "x"}),
        ("many.zip", {"a/1.txt": "apple", "b/2.TXT": "pear", "b/note.md": "x"}),
        ("none.zip", {"a.md": "x", "b.md": "x"}),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
    assert lv.Corpus.open(tmp_path / "one.zip", text="text").n_tokens == 2
    many = lv.Corpus.open(tmp_path / "many.zip")
    assert many.document_names == ("a/1.txt", "b/2.TXT")
    assert many.document_labels == ("a", "b")
    assert many.notes[0] == "left out 1 files that are not .txt: b/note.md"
    assert lv.Corpus.open(lv.convert(tmp_path / "many.zip", tmp_path / "corpus")) == many
    with pytest.raises(ValueError, match=r"an archive without .txt files.*a\.md, b\.md"):
        lv.Corpus.open(tmp_path / "none.zip")
    (tmp_path / "bad.zip").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"bad\.zip: .*written by zip"):
        lv.Corpus.open(tmp_path / "bad.zip")
    (tmp_path / "bad.txt.bz2").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"bad\.txt\.bz2: .*written by bzip2"):
        lv.Corpus.open(tmp_path / "bad.txt.bz2")
    sound = (tmp_path / "many.zip").read_bytes()
    assert sound.count(b"apple") == 1
    # a byte of a text is another; the mark of encryption is set for every file, in both of its places
    locked = bytearray(sound)
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for found in re.finditer(re.escape(signature), sound):
            locked[found.start() + flags] |= 1
    for content, message in ((sound.replace(b"apple", b"appla"), "Bad CRC-32"), (locked, "password required")):
        (tmp_path / "odd.zip").write_bytes(content)
        with pytest.raises(ValueError, match=rf"odd\.zip: .*{message}.*expected an archive whose files can be read"):
            lv.Corpus.open(tmp_path / "odd.zip")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('["apple pear", "plum"]', None),
        ('[{"text": "apple pear"}, {"text": "plum"}]', None),
        ('{"text": ["apple pear", "plum"], "year": [1, 2]}', None),
        ('{"text": "apple pear"}\n{"text": "plum"}\n', None),
        ('{"text": "apple pear plum"}', None),
        ('{"text": ["apple"], "year": [1, 2]}', "arrays of different lengths"),
        ("[1, 2]", "a JSON list of other things than objects"),
        ("3", "a JSON int of other things"),
        ("[{", "expected a JSON array of objects"),
        ('[{"body": "apple"}]', "expected one of its columns: 'body'"),
    ],
)
def test_json(content, message, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    table = {} if content.startswith('["') else {"text": "text"}
    if message is None:
        assert lv.Corpus.open(path, **table).n_tokens == 3
        assert lv.Corpus.open(lv.convert(path, tmp_path / "corpus", **table)) == lv.Corpus.open(path, **table)
        return
    with pytest.raises(ValueError, match=message):
        lv.Corpus.open(path, **table)


# -- texts in other languages -------------------------------------------------------------------------------------


def test_chinese_with_blanks_between_words():
    corpus = both("zh_segmented.txt")
    assert len(corpus) == 24
    assert corpus.n_empty_documents == 0
    assert {"苹果", "水果", "学习"} <= set(corpus.vocabulary)


def test_chinese_that_is_not_cut_is_named(tmp_path):
    """Clauses between punctuation are not as long as phrases of other scripts: eight characters are several words."""
    path = tmp_path / "x.txt"
    path.write_text("苹果机器学习很好，我们学习。\n苹果水果学习！\n", encoding="utf-8")
    (note,) = [note for note in lv.Corpus.open(path).notes if "without blanks" in note]
    assert note.startswith("2 of 3 tokens in scripts without blanks between words are as long as phrases")
    assert not [note for note in lv.Corpus.open(CASES / "zh_segmented.txt").notes if "without blanks" in note]


def test_arabic_with_marks():
    corpus = both("arabic_marks.txt")
    assert corpus.n_terms == 6
    assert "مَدْرَسَةٌ" in corpus.vocabulary


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("사과 배 철", {"사과", "배", "철"}),  # Korean words of one syllable
        ("हिन्दी क्षेत्र", {"हिन्दी", "क्षेत्र"}),  # vowel signs and joined consonants
        ("שָׁלוֹם עולם", {"שָׁלוֹם", "עולם"}),  # Hebrew with points
        ("Ελλάδα ΕΛΛΆΔΑ", {"ελλάδα"}),
        ("l’été aujourd’hui", {"été", "aujourd", "hui"}),
    ],
)
def test_words_of_other_scripts_are_whole(text, words, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text(text, encoding="utf-8")
    assert set(both(str(path)).vocabulary) == {unicodedata.normalize("NFC", word) for word in words}


def test_accents_composed_and_decomposed():
    corpus = both("french_nfc.txt")
    assert both("french_nfd.txt") == corpus
    assert {"élève", "préfère", "château"} <= set(corpus.vocabulary)


# -- folders ------------------------------------------------------------------------------------------------------


def test_an_editors_copies_are_no_documents(tmp_path):
    folder = tmp_path / "texts"
    shutil.copytree(CASES / "folder_mixed", folder)
    hidden = folder / ".ipynb_checkpoints"
    hidden.mkdir()
    for number in range(3):
        shutil.copy(folder / f"doc{number}.txt", hidden / f"doc{number}-checkpoint.txt")
    corpus = lv.Corpus.open(folder)
    assert corpus.document_names == tuple(f"doc{number}.txt" for number in range(8))
    assert corpus.notes[0].startswith("left out 3 files that are hidden: .ipynb_checkpoints/doc0-checkpoint.txt")
    assert read_corpus(options("--texts", str(folder))) == corpus
    found = lv.Corpus.open(lv.convert(folder, tmp_path / "corpus"))
    assert (found, found.notes) == (corpus, corpus.notes)


def test_the_files_of_macos_beside_texts_are_named(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(4):
        shutil.copy(CASES / "folder_mixed" / f"doc{number}.txt", folder)
        (folder / f"._doc{number}.txt").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ")
    corpus = lv.Corpus.open(folder)
    assert corpus.document_names == tuple(f"doc{number}.txt" for number in range(4))
    assert corpus.notes[0] == "left out 4 files that are hidden: ._doc0.txt, ._doc1.txt, ._doc2.txt, ._doc3.txt"
    assert read_corpus(options("--texts", str(folder))) == corpus
    assert lv.Corpus.open(lv.convert(folder, tmp_path / "corpus")) == corpus


def test_what_macos_and_windows_leave_in_folders(tmp_path):
    folder = tmp_path / "texts"
    (folder / "a").mkdir(parents=True)
    for number in range(4):
        (folder / f"doc{number}.TXT").write_text("apple pear", encoding="utf-8")
        (folder / f"._doc{number}.txt").write_bytes(b"\x00\x05\x16\x07\xff")
    (folder / "a" / "notes.docx").write_bytes(b"PK")
    corpus = lv.Corpus.open(folder)
    assert len(corpus) == 4
    assert corpus.notes[:2] == (
        "left out 4 files that are hidden: ._doc0.txt, ._doc1.txt, ._doc2.txt, ._doc3.txt",
        "left out 1 files that are not .txt: a/notes.docx",
    )


# -- counts -------------------------------------------------------------------------------------------------------


def test_ids_of_svmlight_that_may_begin_with_0_or_1():
    name, words = "svm_zero_based_without_0.svmlight", CASES / "svm_vocab.txt"
    with pytest.raises(ValueError, match=r"ids from 1 to 3 with a vocabulary of 4 terms.*first_id=0 or first_id=1"):
        lv.Corpus.open(CASES / name, vocabulary=words)
    given = ("--vocabulary", str(words), "--first-id")
    zero = both(name, (*given, "0"), "--corpus", vocabulary=words, first_id=0)
    one = both(name, (*given, "1"), "--corpus", vocabulary=words, first_id=1)
    assert zero.term_totals.tolist() == [0, 3, 4, 2]
    assert one.term_totals.tolist() == [3, 4, 2, 0]
    assert zero.vocabulary == ("<pad>", "apple", "pear", "plum")
    alone = both(name, (), "--corpus")
    assert "ids are counted from 1 (none is 0)" in alone.notes
    whole = both(name, ("--first-id", "1"), "--corpus", vocabulary=None, first_id=1)
    assert whole == alone


@pytest.mark.parametrize(
    ("lines", "n_words", "first_id", "totals"),
    [("1 0:2 2:1\n", 4, None, [2, 0, 1, 0]), ("1 1:2 4:1\n", 4, None, [2, 0, 0, 1]), ("1 1:2\n", 2, 0, [0, 2])],
)
def test_ids_of_svmlight(lines, n_words, first_id, totals, tmp_path):
    path, words = tmp_path / "x.svmlight", [f"word{number}" for number in range(n_words)]
    path.write_text(lines, encoding="utf-8")
    assert lv.Corpus.open(path, vocabulary=words, first_id=first_id).term_totals.tolist() == totals
    folder = lv.convert(path, tmp_path / "corpus", vocabulary=words, first_id=first_id)
    assert lv.Corpus.open(folder).term_totals.tolist() == totals
    path.write_text("1 0:2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="got the id 0 and first_id=1"):
        lv.Corpus.open(path, first_id=1)


@pytest.mark.parametrize("name", ["gensim.mm", "comments.mtx"])
def test_matrix_market(name, tmp_path):
    corpus = both(name, (), "--corpus")
    assert corpus.counts.toarray().tolist() == [[2, 0, 0], [0, 1, 0], [0, 0, 4], [1, 2, 0]]
    turned = both(name, ("--documents", "columns"), "--corpus", documents="columns")
    assert_array_equal(turned.counts.toarray(), corpus.counts.toarray().T)
    assert converted(tmp_path, name, documents="columns") == turned
    with pytest.raises(ValueError, match=r"documents are the other axis; expected documents='columns'"):
        lv.Corpus.open(CASES / name, vocabulary=list("abcd"))
    with pytest.raises(ValueError, match="documents='across'"):
        lv.Corpus.open(CASES / name, documents="across")


def test_matrices_of_every_form_lie_either_way(tmp_path):
    counts = np.array([[2, 0, 1, 0], [0, 3, 0, 0], [1, 0, 0, 0]])
    save_npz(tmp_path / "x.npz", csr_array(counts))
    mmwrite(tmp_path / "sparse.mtx", csr_array(counts))
    mmwrite(tmp_path / "dense.mtx", counts)
    for name in ("x.npz", "sparse.mtx", "dense.mtx"):
        for documents, expected in (("rows", counts), ("columns", counts.T)):
            corpus = lv.Corpus.open(tmp_path / name, documents=documents)
            assert_array_equal(corpus.counts.toarray(), expected)
            folder = tmp_path / f"{name}.{documents}"
            assert lv.Corpus.open(lv.convert(tmp_path / name, folder, documents=documents)) == corpus
    np.savez(tmp_path / "bad.npz", a=counts)
    with pytest.raises(ValueError, match=r"bad\.npz: .*written by scipy\.sparse\.save_npz"):
        lv.Corpus.open(tmp_path / "bad.npz")


def test_a_dictionary_of_gensim_as_text(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("4\n2\tplum\t2\n0\tapple\t3\n", encoding="utf-8")
    assert lv.Corpus.open(CASES / "gensim.mm", vocabulary=path).vocabulary == ("apple", "term1", "plum")
    path.write_text("4\n2\tplum\t2\n2\tapple\t3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="the id 2 twice"):
        lv.Corpus.open(CASES / "gensim.mm", vocabulary=path)
    path.write_bytes(b"\x80\x04\x95gensim")
    with pytest.raises(ValueError, match="a pickle of Python"):
        lv.Corpus.open(CASES / "gensim.mm", vocabulary=path)


def test_a_folder_of_10x(tmp_path):
    corpus = both("tenx", (), "--corpus")
    assert corpus.counts.shape == (9, 6)
    assert corpus.vocabulary == tuple(f"Gene{number}" for number in range(6))
    assert corpus.document_names == tuple(f"AAAC{number}-1" for number in range(9))
    assert corpus.counts.toarray()[0].tolist() == [7, 2, 5, 0, 0, 0]
    assert corpus.notes == ("genes × cells, as 10x Genomics writes them: cells are documents",)
    assert both("tenx/matrix.mtx.gz", (), "--corpus") == corpus  # by its matrix, beside which the names lie
    assert converted(tmp_path, "tenx") == corpus
    with pytest.raises(ValueError, match="got vocabulary=, which such a file knows itself"):
        lv.Corpus.open(CASES / "tenx", vocabulary=list("abcdef"))


def test_folders_of_10x_of_other_makes(tmp_path):
    """Unpacked, of an older version, with a prefix; genes that share a name; other things than genes."""
    counts = np.array([[1, 0], [0, 2], [3, 0]])
    mmwrite(tmp_path / "GSM1_matrix.mtx", csr_array(counts))
    genes = "E0\tActb\tGene Expression\nE1\tActb\tGene Expression\nE2\tCD4\tAntibody Capture\n"
    (tmp_path / "GSM1_genes.tsv").write_text(genes, encoding="utf-8")
    (tmp_path / "GSM1_barcodes.tsv").write_text("A\nB\n", encoding="utf-8")
    corpus = lv.Corpus.open(tmp_path)
    assert corpus.vocabulary == ("Actb (E0)", "Actb (E1)", "CD4")
    assert corpus.counts.toarray().tolist() == [[1, 0, 3], [0, 2, 0]]
    assert "2 genes share their name with another; their ids stand behind it" in corpus.notes
    assert "of several kinds: Gene Expression (2), Antibody Capture (1)" in corpus.notes
    (tmp_path / "GSM1_barcodes.tsv").write_text("A\nB\nC\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"3 genes × 2 cells with 3 names in GSM1_genes\.tsv and 3 in GSM1_barcodes"):
        lv.Corpus.open(tmp_path)
    (tmp_path / "GSM1_barcodes.tsv").unlink()
    assert lv.Corpus.open(tmp_path / "GSM1_matrix.mtx").counts.shape == (3, 2)  # without names a matrix like others


def test_count_files_are_pruned(tmp_path):
    limits = {"minimum_document_frequency": 2, "maximum_document_fraction": 0.6}
    given = ("--minimum-document-frequency", "2", "--maximum-document-fraction", "0.6")
    for name in ("comments.mtx", "tenx"):
        corpus = both(name, given, "--corpus", **limits)
        assert corpus.n_terms == {"comments.mtx": 2, "tenx": 6}[name]
        found = lv.Corpus.open(lv.convert(CASES / name, tmp_path / name, **limits))
        assert found == corpus
        assert set(found.notes) >= {note for note in corpus.notes if note.startswith("left out ")}
    words = tmp_path / "words.txt"
    words.write_text("the\nplum\niron\n", encoding="utf-8")
    arguments = ("--corpus", str(CASES / "comments.mtx"), "--vocabulary", str(words), "--stop-words", "english")
    pruned = read_corpus(options(*arguments))
    assert pruned.vocabulary == ("plum", "iron")
    assert "left out 3 tokens of 1 word that are stop words: the (3)" in pruned.notes
    with pytest.raises(ValueError, match="expected no token_pattern="):
        lv.Corpus.open(CASES / "comments.mtx", token_pattern="a")


def test_how_words_are_cut_on_the_command_line(tmp_path, capsys):
    path, stop = tmp_path / "docs.txt", tmp_path / "stop.txt"
    path.write_text("new_york the AI apple\nthe pear of apple\n", encoding="utf-8")
    stop.write_text("the\nof\n", encoding="utf-8")
    for given, chosen in (
        (("--stop-words", "none"), {"stop_words": None}),
        (("--stop-words", str(stop)), {"stop_words": ["the", "of"]}),
        (("--token-pattern", r"\w\w+", "--ngram-range", "1,2"), {"token_pattern": r"\w\w+", "ngram_range": (1, 2)}),
        (("--minimum-document-frequency", "2"), {"minimum_document_frequency": 2}),
    ):
        corpus = lv.Corpus.open(path, **chosen)
        said = read_corpus(options("--texts", str(path), *given))
        assert (said, said.notes) == (corpus, corpus.notes)
        folder = tmp_path / given[1].replace("/", "_")
        assert main(["convert", str(path), "--out", str(folder), *given]) == 0
        assert lv.Corpus.open(folder) == corpus
        printed = capsys.readouterr().out
        assert all(note in printed for note in corpus.notes)


# -- tables of other libraries ------------------------------------------------------------------------------------


class WithoutArrow:
    """As a frame of Polars where pyarrow is not installed."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return SimpleNamespace(to_list=lambda: list(self._columns[name]))

    def to_pandas(self):
        raise ModuleNotFoundError("pyarrow is required for to_pandas()")


def test_frames_of_polars():
    numbers = WithoutArrow({"a": [1.0, 2.0], "b": [3, 4]})
    for points in (lv.Points.from_frame(numbers), lv.Points.from_any(numbers)):
        assert points.columns == ("a", "b")
        assert points.values.tolist() == [[1, 3], [2, 4]]
    texts = WithoutArrow({"body": ["apple pear", "plum"], "year": [1, 2]})
    assert lv.Corpus.from_frame(texts, text="body").metadata["year"].tolist() == [1, 2]
    counts = WithoutArrow({"gene": [1, 0], "worm": [2, 3]})
    assert lv.Corpus.from_matrix(counts).vocabulary == lv.Corpus.from_any(counts).vocabulary == ("gene", "worm")
    assert lv.Groups.from_frame(WithoutArrow({"g": ["u", "v"], "a": [1.0, 2.0]}), group="g").n_units == 2
    assert lv.Points.from_categories(WithoutArrow({"q": ["a", "b"]})).columns == ("q=a", "q=b")


def test_frames_of_polars_and_arrow_themselves():
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    for frame in (pl.DataFrame({"a": [1.0, 2.0], "b": [3, 4]}), pa.table({"a": [1.0, 2.0], "b": [3, 4]})):
        assert lv.Points.from_any(frame).columns == ("a", "b")
    for texts in (pl.Series(["apple pear", "plum"]), pa.chunked_array([["apple pear", "plum"]])):
        assert lv.Corpus.from_texts(texts).n_tokens == 3


@pytest.mark.parametrize("dtype", ["string", "object", "str"])
def test_strings_of_pandas(dtype):
    assert lv.Corpus.from_texts(pd.Series(["apple pear", "plum"], dtype=dtype)).n_tokens == 3
    assert lv.Corpus.from_any(pd.Series(["apple pear", "plum"], dtype=dtype)).n_tokens == 3


class Backed:
    """As an AnnData whose matrix lies in its file."""

    isbacked = True
    X = "a matrix in a file"
    obs = pd.DataFrame({"batch": [1, 2]}, index=["c1", "c2"])
    var = pd.DataFrame(index=["g1", "g2"])
    obs_names, var_names = obs.index, var.index
    layers: dict = {}  # noqa: RUF012

    def to_memory(self):
        return SimpleNamespace(
            X=np.array([[1, 2], [0, 3]]), obs=self.obs, var=self.var, layers={}, obs_names=self.obs_names,
            var_names=self.var_names,
        )  # fmt: skip


def test_an_anndata_that_is_backed_by_its_file():
    corpus = lv.Corpus.from_anndata(Backed())
    assert corpus.counts.toarray().tolist() == [[1, 2], [0, 3]]
    assert corpus.metadata["batch"].tolist() == [1, 2]


def test_an_anndata_by_its_path(tmp_path):
    anndata = pytest.importorskip("anndata")
    data = anndata.AnnData(
        csr_array(np.array([[0.5, 0], [1, 2]])), layers={"counts": csr_array(np.array([[1, 0], [2, 3]]))}
    )
    data.write_h5ad(tmp_path / "x.h5ad")
    corpus = lv.Corpus.open(tmp_path / "x.h5ad", layer="counts")
    assert corpus.counts.toarray().tolist() == [[1, 0], [2, 3]]
    assert lv.Corpus.open(lv.convert(tmp_path / "x.h5ad", tmp_path / "corpus", layer="counts")) == corpus


def test_an_anndata_by_its_path_without_its_reader(tmp_path):
    try:
        import anndata  # noqa: F401
    except ImportError:
        (tmp_path / "x.h5ad").write_bytes(b"\x89HDF")
        with pytest.raises(ValueError, match=r"need anndata: pip install 'lvsearch\[single-cells\]'"):
            lv.Corpus.open(tmp_path / "x.h5ad")


# -- categories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "categories"),
    [
        ({"age": [">=10", "<10"]}, (2,)),
        ({"q": ["A=low", "B=high", "C=x"]}, (3,)),
        ({"a=b": ["x", "y"], "a": ["b=x", "=y"]}, (2, 2)),
        ({"a\\": ["=", "\\="], "": ["x", "="]}, (2, 2)),
    ],
)
def test_categories_with_equals_signs(frame, categories):
    rows = {name: [values[row % len(values)] for row in range(6)] for name, values in frame.items()}
    points = lv.Points.from_categories(pd.DataFrame(rows))
    assert lv.models.CategoricalComponents.from_columns(points.columns).categories == categories


def test_numbers_with_equals_signs_beside_categories():
    frame = pd.DataFrame({"x=1": [0.5, 1.5, 2.5], "age": [">=10", "<10", ">=10"]})
    points = lv.Points.from_categories(frame, numbers=["x=1"])
    found = lv.models.MixedComponents.scaled_to(points.values, points.columns)
    assert found.columns == ((0,), (1, 2))
    parts = [(lv.models.DiagonalComponents(), ["x=1"]), (lv.models.CategoricalComponents([2]), ["age"])]
    assert lv.models.MixedComponents.from_columns(points.columns, parts).columns == ((0,), (1, 2))


def test_json_lines_that_begin_an_array_say_what_reads_them(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("[\n" + json.dumps({"text": "apple"}) + "\n]\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"an array over several lines is read from files that end in \.json"):
        lv.Corpus.open(path, text="text")


# -- rows that tables seem to lack or to have ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "totals"),
    [
        ("text\nfoo bar apple\n\nbaz qux pear\n", [3, 0, 3]),
        ("\n\ntext\n\nfoo bar\n\n\n", [0, 2]),  # blank lines around a table are no rows
        ('text\n"foo\n\nbar"\n\n""\n', [2, 0, 0]),
        ("text\nfoo bar\n", [2]),
    ],
)
def test_a_blank_line_is_an_empty_text_where_there_is_one_column(content, totals, tmp_path):
    (tmp_path / "x.csv").write_text(content)
    corpus = lv.Corpus.open(tmp_path / "x.csv", text="text")
    assert corpus.counts.sum(axis=1).tolist() == totals
    assert lv.Corpus.open(lv.convert(tmp_path / "x.csv", tmp_path / "corpus", text="text")) == corpus


def test_a_blank_line_is_a_missing_number_where_there_is_one_column(tmp_path):
    for content, header in (("x\n1\n\n3\n\n", True), ("\n1\n\n3\n", False), ("x\n1\nNA\n3", True)):
        (tmp_path / "x.csv").write_text(content)
        points = lv.Points.from_csv(tmp_path / "x.csv", header=header, missing="nan")
        assert points.observed[:, 0].tolist() == [True, False, True]
        assert points.values[[0, 2], 0].tolist() == [1, 3]
    (tmp_path / "x.csv").write_text("x;y\n\n1;2\n\n3,5;4\n")  # in other tables a blank line is none
    assert lv.Points.from_csv(tmp_path / "x.csv").values.tolist() == [[1, 2], [3.5, 4]]


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
@pytest.mark.parametrize(
    ("content", "totals", "is_noted"),
    [
        (b"text\rapple\r\rpear plum\r", [1, 0, 2], False),  # as old Macs end lines
        (b'text\r"apple\npear"\r"plum"\r', [2, 1], True),
        (b"text\napple\rpear\nplum\n", [1, 1, 1], True),
        (b'text\r\n"apple\rpear"\r\nplum\r\n', [2, 1], True),
        (b"text\r\napple\r\nplum\n", [1, 1], False),
    ],
)
def test_lines_of_a_column_that_end_in_two_ways_are_said(content, totals, is_noted, ending, tmp_path):
    path = tmp_path / f"x{ending}"
    path.write_bytes(content)
    corpus = lv.Corpus.open(path, text="text")
    assert corpus.counts.sum(axis=1).tolist() == totals
    assert any(note.startswith("some lines end in a carriage return alone") for note in corpus.notes) == is_noted
    again = lv.Corpus.open(lv.convert(path, tmp_path / "corpus", text="text"))
    assert (again, again.notes) == (corpus, corpus.notes)
    numbers = content.replace(b"apple", b"1").replace(b"pear plum", b"2").replace(b"pear", b"2").replace(b"plum", b"3")
    if b'"' not in numbers:
        path.write_bytes(numbers)
        points = lv.Points.from_csv(path, missing="nan")
        assert len(points) == len(totals)
        assert any(note.startswith("some lines end in") for note in points.notes) == is_noted


def test_rows_with_too_few_values(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b,c\n1,2,3\n4,5\n7\n")
    with pytest.raises(ValueError, match=r"got 2 rows with fewer than 3 values, the first in line 3 with 2; expected"):
        lv.Points.from_csv(path, missing="nan")
    path.write_text('id,text,year\n"a\nb",apple,1999\n1,apple\rpear,2000\n2,plum,2001\n')
    corpus = lv.Corpus.open(path, text="text", id="id")
    note = "2 rows with fewer than 3 values, the first in line 4 with 2: the values at their end are taken as missing"
    assert note in corpus.notes
    again = lv.Corpus.open(lv.convert(path, tmp_path / "corpus", text="text", id="id"))
    assert (again, again.notes) == (corpus, corpus.notes)


def test_separators_of_blanks(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a b\n1 2\n3 4\n")
    with pytest.raises(ValueError, match=r"got '1 2' .*: say separator=' ' where blanks separate the values"):
        lv.Points.from_csv(path)
    assert lv.Points.from_csv(path, separator=" ").values.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match=r"got separator='\\\\s\+'; expected one character"):
        lv.Points.from_csv(path, separator=r"\s+")
