"""Files of documents: every form that `Corpus.open` and the command line read, and what is wrong with one, said."""

import argparse
import gzip
import io
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.io import mmwrite
from scipy.sparse import csr_array

import lvsearch as lv
from lvsearch.command.arguments import Runs, parser
from lvsearch.command.cli import main
from lvsearch.command.sources import check_sources, read_corpus
from lvsearch.reading import blocks

TEXTS = ["apple pear plum", "", 'iron, NA "tin"\nzinc', "größe wren robin"]
FRAME = pd.DataFrame({"id": ["007", "NA", "c", "d"], "body": TEXTS, "year": [1, 2, 3, 4], "tags": [[1]] * 4})
COUNTS = np.array([[2, 0, 1], [0, 0, 0], [0, 3, 0], [1, 1, 1]])
WORDS = ["gene", "cell", "worm"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(name: str, content: str, encoding: str = "utf-8") -> str:
    packed = content.encode(encoding)
    Path(name).write_bytes(gzip.compress(packed) if name.endswith(".gz") else packed)
    return name


def table(name: str, encoding: str = "utf-8") -> str:
    """FRAME in a file, in the form that its ending says."""
    if ".jsonl" in name:
        return written(name, "".join(json.dumps(row) + "\n\n" for row in FRAME.to_dict("records")), encoding)
    return written(name, FRAME.drop(columns="tags").to_csv(sep="\t" if ".tsv" in name else ",", index=False), encoding)


# -- tables -------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["docs.csv", "docs.tsv", "docs.jsonl", "DOCS.CSV.gz", "docs.jsonl.gz"])
def test_tables(name):
    corpus = lv.Corpus.open(table(name), text="body", id="id")
    assert corpus.document_names == ("007", "NA", "c", "d")  # as they stand
    assert_array_equal(corpus.counts.toarray(), lv.Corpus.from_texts(TEXTS).counts.toarray())
    assert corpus.metadata["year"].tolist() == [1, 2, 3, 4]
    assert lv.Corpus.open(name, text="body", keep=[]).metadata.shape == (4, 0)


@pytest.mark.parametrize("name", ["docs.csv", "docs.tsv", "docs.jsonl"])
def test_a_table_says_its_columns(name):
    with pytest.raises(ValueError, match=rf"{name}: got a table with the columns 'id', 'body', 'year'.*--text-column"):
        lv.Corpus.open(table(name))
    with pytest.raises(ValueError, match=rf"{name}: got text='words' .*expected one of its columns: 'id', 'body'"):
        lv.Corpus.open(name, text="words")
    with pytest.raises(ValueError, match=r"got id='words' \(--id-column\)"):
        lv.Corpus.open(name, text="body", id="words")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "", "x.csv: No columns"),
        ("x.csv", "id,body\n1,apple\n2,pear,more\n", "x.csv: .*line 3.*first line names its columns"),
        ("x.csv", "id,body\n1,apple,more\n2,pear,more\n", "more values than the header has names"),
        ("x.csv", "id,body\n1\n2,\n", "2 texts without a single word"),
        ("x.jsonl", '{"body": "apple"}\nbody\n', "x.jsonl, line 2: .*expected a JSON object on every line"),
        ("x.jsonl", '{"body": "apple"}\n\n["pear"]\n', "x.jsonl, line 3: got a list; expected a JSON object"),
        ("x.jsonl", '{"body": 3}\n', r"got 3 \(int\) as document 0"),
        ("x.parquet", "no parquet", "x.parquet: "),
    ],
)
def test_tables_that_are_refused(name, content, message):
    with pytest.raises(ValueError, match=message):
        lv.Corpus.open(written(name, content), text="body")


def test_a_text_that_is_missing_is_an_empty_one():
    corpus = lv.Corpus.open(written("x.jsonl", '{"body": "apple"}\n{"body": null}\n{"other": 1}\n'), text="body")
    assert corpus.document_lengths.tolist() == [1, 0, 0]


def test_parquet():
    pytest.importorskip("pyarrow")
    FRAME.to_parquet("docs.parquet")
    corpus = lv.Corpus.open("docs.parquet", text="body", id="id")
    assert corpus.document_names == ("007", "NA", "c", "d")
    assert corpus.metadata["year"].tolist() == [1, 2, 3, 4]


def test_parquet_without_its_reader(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(FileNotFoundError, match=r"docs\.parquet"):
        lv.Corpus.open("docs.parquet", text="body")
    written("docs.parquet", "what no reader gets to see")
    with pytest.raises(ValueError, match=r"need pyarrow: pip install 'lvsearch\[parquet\]'"):
        lv.Corpus.open("docs.parquet", text="body")


IDENTIFIERS = [2**60 + 1, None, 5]
"""Whole numbers that float64 would round, and one that is missing."""


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.parquet", "x.feather", "x.xlsx"])
def test_no_digit_of_a_whole_number_is_lost(name):
    pytest.importorskip("openpyxl" if name == "x.xlsx" else "pyarrow" if name in ("x.parquet", "x.feather") else "json")
    frame = pd.DataFrame({"body": ["apple", "pear", "plum"], "year": pd.array([1990, None, 2000], dtype="Int64")})
    frame["reply"] = pd.array([15, None, 5] if name == "x.xlsx" else IDENTIFIERS, dtype="Int64")  # Excel has no more
    frame["code"] = ["007", "010", "3"]
    write = {
        ".json": frame.to_json,
        ".jsonl": frame.to_json,
        ".parquet": frame.to_parquet,
        ".feather": frame.to_feather,
    }
    options = {"orient": "records", "lines": name == "x.jsonl"} if "json" in name else {}
    write.get(Path(name).suffix, partial(frame.to_excel, index=False))(name, **options)
    whole, stored = lv.Corpus.open(name, text="body"), lv.Corpus.open(lv.convert(name, "corpus", text="body"))
    assert whole == stored
    table = whole.metadata
    assert table["code"].tolist() == ["007", "010", "3"]
    assert_array_equal(table["year"], [1990, np.nan, 2000])
    assert table["reply"].dropna().tolist() == ([15, 5] if name == "x.xlsx" else [str(2**60 + 1), "5"])


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["01234", "90210", "12345"], ["01234", "90210", "12345"]),
        (["90210", "NA", "007"], ["90210", None, "007"]),
        ([str(2**60 + 1), "", "5"], [str(2**60 + 1), None, "5"]),
        ([str(2**60 + 1), "5", "1.5"], [str(2**60 + 1), "5", "1.5"]),
        ([str(2**63), "5", str(2**63 + 1)], [str(2**63), "5", str(2**63 + 1)]),
        (["-" + "9" * 400, "5", "6"], ["-" + "9" * 400, "5", "6"]),
        ([str(2**60 + 1), "-5", "+6"], [2**60 + 1, -5, 6]),
        ([str(2**60), "", "0.5"], [2.0**60, None, 0.5]),
        (["0", "0.5", "-0.25"], [0.0, 0.5, -0.25]),
        (["10", "", "1e5"], [10.0, None, 1e5]),
        (["True", "false", "TRUE"], [True, False, True]),
        (["True", "", "false"], ["True", None, "false"]),
    ],
)
def test_cells_of_metadata_become_numbers_only_if_nothing_is_lost(cells, expected, monkeypatch):
    monkeypatch.setattr(blocks, "DOCUMENTS", 1)
    lines = zip(["apple", "pear", "plum"], cells, strict=True)
    name = written("x.csv", "body,x\n" + "".join(f"{text},{cell}\n" for text, cell in lines))
    for corpus in (lv.Corpus.open(name, text="body"), lv.Corpus.open(lv.convert(name, "corpus", text="body"))):
        found = [None if pd.isna(value) else value for value in corpus.metadata["x"].tolist()]
        assert found == expected
        assert list(map(type, found)) == list(map(type, expected))


# -- texts --------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_lines_and_folders():
    assert len(lv.Corpus.open(written("docs.txt", "apple pear\n\niron tin\n"))) == 3
    for name in ("b/iron.txt", "a/pear.txt", "a/deep/plum.txt", "a/not.md"):
        Path("folder", name).parent.mkdir(parents=True, exist_ok=True)
        written(f"folder/{name}", f"{Path(name).stem}\napple")
    corpus = lv.Corpus.open("folder")
    assert corpus.document_names == ("a/deep/plum.txt", "a/pear.txt", "b/iron.txt")
    assert corpus.document_labels == ("a", "a", "b")
    assert corpus.n_tokens == 6
    written("folder/zero.txt", "zero")
    assert lv.Corpus.open("folder").document_labels is None  # a file that is in no class
    Path("empty").mkdir()
    for path, message in (
        ("empty", "a folder without .txt files"),
        ("docs.doc", "got the ending '.doc'; expected"),
    ):
        with pytest.raises(ValueError, match=message):
            lv.Corpus.open(path)
    with pytest.raises(ValueError, match="a document per line; expected no names of columns"):
        lv.Corpus.open("docs.txt", text="body")
    with pytest.raises(ValueError, match="bring their own words"):
        lv.Corpus.open("docs.txt", vocabulary=WORDS)
    with pytest.raises(FileNotFoundError):
        lv.Corpus.open("absent.txt")


@pytest.mark.parametrize("name", ["docs.csv", "docs.jsonl", "docs.csv.gz"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_encodings(name, encoding):
    if name.endswith(".jsonl"):
        written(name, "\n".join(json.dumps({"body": text}, ensure_ascii=False) for text in TEXTS), encoding)
    else:
        table(name, encoding)
    corpus = lv.Corpus.open(name, text="body", encoding=encoding)
    assert "größe" in corpus.vocabulary
    with pytest.raises(ValueError, match=rf"{name}: got bytes that are not UTF-8: 0x"):
        lv.Corpus.open(name, text="body")


def test_bytes_of_another_encoding_are_named_with_their_place():
    written("docs.txt", "apple\npear größe\n", "latin-1")
    with pytest.raises(ValueError, match=r"docs.txt: .* not UTF-8: 0xf6 in line 2, byte 8; .*'latin-1' or 'cp1252'"):
        lv.Corpus.open("docs.txt")
    with pytest.raises(ValueError, match=r"docs.txt: .* not ASCII: 0xf6 in line 2, byte 8"):
        lv.Corpus.open("docs.txt", encoding="ascii")
    with pytest.raises(ValueError, match="encoding='klingon', which Python does not know"):
        lv.Corpus.open("docs.txt", encoding="klingon")
    written("wide.txt", "apple pear größe", "utf-16")
    with pytest.raises(ValueError, match="it begins as UTF-16 does: encoding='utf-16'"):
        lv.Corpus.open("wide.txt")
    written("numbers.csv", "größe,b\n1,2\n", "latin-1")
    with pytest.raises(ValueError, match=r"numbers.csv: got bytes that are not UTF-8: 0xf6 in line 1, byte 3"):
        lv.Points.from_csv("numbers.csv")
    assert lv.Points.from_csv("numbers.csv", encoding="latin-1").columns == ("größe", "b")
    Path("bad.txt.gz").write_bytes(b"apple")
    with pytest.raises(ValueError, match=r"bad.txt.gz: Not a gzipped file"):
        lv.Corpus.open("bad.txt.gz")


# -- counts -------------------------------------------------------------------------------------------------------


UCI = "4\n3\n6\n1 1 2\n1 3 1\n3 2 3\n4 1 1\n4 2 1\n4 3 1\n"


@pytest.mark.smoke
def test_labels_of_svmlight_stay_apart():
    written("x.svmlight", "1000001 1:2\n1000002 2:1\n0.1234567 1:1\n-1e-9 1:1\n-1 2:2\n")
    expected = ("1000001", "1000002", "0.1234567", "-1e-09", "-1")
    assert lv.Corpus.open("x.svmlight").document_labels == expected
    assert lv.Corpus.open(lv.convert("x.svmlight", "corpus")).document_labels == expected
    with pytest.raises(ValueError, match="got 1 documents with the label NaN; expected a number for each"):
        lv.Corpus.open(written("y.svmlight", "1 1:2\nnan 2:1\n"))


def test_counts_of_other_programs():
    mmwrite("counts.mtx", csr_array(COUNTS))
    written("docword.nips.txt.gz", UCI)
    written("counts.uci", UCI)
    written("counts.svmlight", "1 1:2 3:1\n-1\n1 2:3\n2.5 1:1 2:1 3:1\n")
    written("words.txt", "\n".join(WORDS))
    for name in ("counts.mtx", "docword.nips.txt.gz", "counts.uci", "counts.svmlight"):
        for words in ("words.txt", WORDS):
            corpus = lv.Corpus.open(name, vocabulary=words)
            assert_array_equal(corpus.counts.toarray(), COUNTS)
            assert corpus.vocabulary == tuple(WORDS)
    assert corpus.document_labels == ("1", "-1", "1", "2.5")
    assert lv.Corpus.open("counts.mtx").vocabulary == ("term0", "term1", "term2")
    with pytest.raises(ValueError, match="4 terms for counts with 3 columns"):
        lv.Corpus.open("counts.mtx", vocabulary=[*WORDS, "neuron"])
    with pytest.raises(ValueError, match="holds counts; expected no text="):
        lv.Corpus.open("counts.mtx", text="body")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.mtx", "apple pear", "x.mtx: .*expected a Matrix Market file"),
        ("x.mtx", "%%MatrixMarket matrix coordinate real general\n1 2 1\n1 1 0.5\n", "got 0.5 in document 0.*TF-IDF"),
        ("x.uci", "4\n3\n", "x.uci: got '4 / 3 / ' first; expected three lines"),
        ("x.uci", "4\n3\n2\n1 1 2\n", "got 1 lines of 3 numbers after the third, which says 2.*cut off"),
        ("x.uci", "4\n3\n2\n1 1 2\n1 4 2\n", r"x.uci, line 5: got 1 4 2; expected .*a word from 1 to 3"),
        ("x.uci", "4\n3\n2\n1 1 2\n0 1 2\n", "x.uci, line 5: got 0 1 2; expected a document from 1 to 4"),
        ("x.uci", "4\n3\n1\n1 1 apple\n", "x.uci: .*document word count"),
        ("x.uci", "4\n3\n0\n", "without a single token"),
        ("x.svm", "apple 1:2\n", "x.svm: .*expected lines `label id:count"),
        ("x.svm", "1 1:0.5\n", "got 0.5 in document 0"),
    ],
)
def test_counts_that_are_refused(name, content, message):
    with pytest.raises(ValueError, match=message):
        lv.Corpus.open(written(name, content))


class Dictionary(dict):
    """As gensim's: id to word, a mapping."""


@pytest.mark.parametrize(
    "vocabulary", [WORDS, Dictionary(enumerate(WORDS)), {word: place for place, word in enumerate(WORDS)}]
)
def test_gensim_bags(vocabulary):
    bags = [[(0, 2), (2, 1)], [], [(1, 1), (1, 2)], [(np.int64(0), 1), (1, 1.0), (2, 1)]]
    corpus = lv.Corpus.from_bags(iter(bags), vocabulary, document_names=list("abcd"))
    assert_array_equal(corpus.counts.toarray(), COUNTS)
    assert corpus.vocabulary == tuple(WORDS)
    assert lv.Corpus.from_bags(bags).vocabulary == ("term0", "term1", "term2")


def test_gensim_bags_that_are_refused():
    gap = lv.Corpus.from_bags([[(0, 1)]], {0: "gene", 2: "worm"})
    assert gap.vocabulary == ("gene", "term1", "worm")
    for bags, vocabulary, message in (
        ([[(0, 1)], [(3, 1)]], WORDS, "id 3 in document 1 with a vocabulary of 3 words"),
        ([[(0, 1)], [(-1, 1)]], None, "id -1 in document 1; expected whole numbers"),
        ([[(0, 1)], [("gene", 1)]], None, "id 'gene' in document 1"),
        ([[(0, 1)], [0, 1]], None, r"got \[0, 1\] as document 1; expected a list of pairs"),
        ([[(0, 1)], [(1, -2)]], None, "got -2 in document 1"),
        ([[(0, 1)]], {"a": "b"}, "neither id to word nor word to id"),
        ([[(0, 1), (1, 1)]], {0: "bank", 1: "bank"}, "got the term 'bank' twice in the vocabulary"),
        ([[(0, 1)]], {"bank": 0, "shore": 0}, "the id 0 of 'bank' and of 'shore'; expected one word for each"),
        ([[(0, 1)]], {0: "bank", -1: "shore"}, "got the id -1 of the word 'shore'; expected whole numbers from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            lv.Corpus.from_bags(bags, vocabulary)


class Annotated:
    """As much of an AnnData as is looked at."""

    def __init__(self, X, layers):
        self.X, self.layers = X, layers
        self.obs = pd.DataFrame({"tissue": list("rrss")}, index=[f"cell{n}" for n in range(4)])
        self.var = pd.DataFrame(index=WORDS)
        self.obs_names, self.var_names = self.obs.index, self.var.index


def test_anndata():
    data = Annotated(csr_array(np.log1p(COUNTS)), {"counts": csr_array(COUNTS)})
    corpus = lv.Corpus.from_anndata(data, layer="counts")
    assert_array_equal(corpus.counts.toarray(), COUNTS)
    assert corpus.vocabulary == tuple(WORDS)
    assert corpus.document_names == ("cell0", "cell1", "cell2", "cell3")
    assert corpus.select([3]).metadata.to_dict("list") == {"tissue": ["s"]}
    assert lv.Corpus.from_any(Annotated(COUNTS, {})) == corpus
    with pytest.raises(ValueError, match=r"whole numbers;.*layer= says where the counts are \('counts'\)"):
        lv.Corpus.from_any(data)
    with pytest.raises(ValueError, match="layer='raw', expected one of 'counts'"):
        lv.Corpus.from_anndata(data, layer="raw")
    with pytest.raises(ValueError, match="expected an AnnData"):
        lv.Corpus.from_anndata(COUNTS)


def test_new_data_with_names_are_compared_by_name():
    training = lv.Corpus.from_anndata(Annotated(COUNTS, {}))
    other = Annotated(COUNTS[:, ::-1], {})
    other.var = other.var.iloc[::-1]
    other.var_names = other.var.index
    with pytest.raises(ValueError, match=r"in another order: column 0 is '.*', expected '.*'"):
        training.like_this(other)
    assert training.like_this(Annotated(COUNTS, {})) == training
    assert training.like_this(COUNTS).n_terms == training.n_terms  # a matrix brings no names
    words = (list(training.vocabulary[:1]), list(training.vocabulary))
    assert training.like_this(words) == training.like_this(list(words)) == training.encode(words)


# -- the command line ---------------------------------------------------------------------------------------------


def corpus_of(*arguments: str) -> lv.Corpus:
    def run(options: argparse.Namespace) -> int:
        return 0

    line = ["search", *arguments, "--out", "run"]
    options = parser(line, Runs(*[run] * len(Runs._fields))).parse_args(line)
    check_sources(options)
    return read_corpus(options)


def test_tables_on_the_command_line():
    table("docs.csv")
    corpus = corpus_of("--texts", "docs.csv", "--text-column", "body", "--id-column", "id", "--label-column", "year")
    assert corpus == lv.Corpus.open("docs.csv", text="body", id="id", label="year")
    written("data", Path("docs.csv").read_text(encoding="utf-8").replace(",", "\t"), "latin-1")
    arguments = ("--texts", "data", "--format", "tsv", "--encoding", "latin-1")
    assert corpus_of(*arguments, "--text-column", "body").vocabulary == corpus.vocabulary
    written("plain.dat", "apple pear\niron tin\n")
    assert len(corpus_of("--texts", "plain.dat")) == 2  # any other file: a document per line


def test_counts_on_the_command_line():
    mmwrite("counts.mtx", csr_array(COUNTS))
    written("words.txt", "\n".join(WORDS))
    written("corpus.any", "2 0:2 2:1\n0\n1 1:3\n3 0:1 1:1 2:1\n")
    for name in ("counts.mtx", "corpus.any"):
        corpus = corpus_of("--corpus", name, "--vocabulary", "words.txt")
        assert_array_equal(corpus.counts.toarray(), COUNTS)
        assert corpus.vocabulary == tuple(WORDS)


def test_standard_input(monkeypatch: pytest.MonkeyPatch):
    def given(content: str, encoding: str = "utf-8") -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode(encoding))))

    given("apple pear\n\niron tin\n")
    assert len(corpus_of("--texts", "-")) == 3
    given(json.dumps({"body": "größe"}, ensure_ascii=False), "latin-1")
    arguments = ("--texts", "-", "--format", "jsonl", "--text-column", "body")
    assert corpus_of(*arguments, "--encoding", "latin-1").vocabulary == ("größe",)
    given("größe", "latin-1")
    with pytest.raises(ValueError, match="standard input: got bytes that are not UTF-8"):
        corpus_of("--texts", "-")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--texts", "docs.csv"], "docs.csv: got a table with the columns 'id', 'body', 'year'"),
        (["--texts", "docs.csv", "--text-column", "words"], "expected one of its columns: 'id', 'body', 'year'"),
        (["--texts", "-", "--text-column", "body"], "a document per line; expected no names of columns"),
        (["--texts", "counts.mtx"], "a file of counts by its name; expected texts: say --corpus"),
        (["--texts", "."], "got a folder without .txt files"),
        (["--texts", ".", "--format", "csv"], "for a folder"),
        (["--corpus", "counts.mtx", "--text-column", "body"], "they are of --texts"),
        (["--texts", "docs.csv", "--vocabulary", "counts.mtx"], "texts bring their own words"),
        (["--texts", "absent.csv"], "no file absent.csv"),
    ],
)
def test_mistakes_on_the_command_line_end_in_one_line(arguments, message, capsys, monkeypatch):
    table("docs.csv")
    mmwrite("counts.mtx", csr_array(COUNTS))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"apple")))
    assert main(["search", *arguments, "--out", "run", "--no-cache", "--quiet"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert not Path("run").exists()
