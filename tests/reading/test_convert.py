"""Every reader, a block at a time: the corpus on disk is the one that `Corpus.open` reads whole."""

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.io import mmwrite
from scipy.sparse import coo_array, csc_array

import lvsearch as lv
from lvsearch.command.cli import main
from lvsearch.reading import blocks
from lvsearch.reading.document_table import BlockKind, joined_kind
from lvsearch.texts.choosing import WordFrequencies, WordFrequency

WORDS = ("apple", "pear", "plum", "iron", "größe", "zinc", "robin", "wren", "tin")
N_DOCUMENTS = 41
COLUMNS = {"text": "body", "id": "id", "label": "kind"}


@pytest.fixture(autouse=True)
def small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks of few documents, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(blocks, "DOCUMENTS", 7)
    monkeypatch.setattr(blocks, "LINES_AT_ONCE", 5)
    monkeypatch.setattr(blocks, "ENTRIES_AT_ONCE", 40)


def texts() -> list[str]:
    random = np.random.default_rng(2)
    return [" ".join(random.choice(WORDS, random.integers(0, 9))) for _ in range(N_DOCUMENTS)]


def table() -> pd.DataFrame:
    """Columns whose kind shows in some blocks only, and one that is never known."""
    rows = range(N_DOCUMENTS)
    return pd.DataFrame(
        {
            "id": [f"{row:03d}" for row in rows],
            "body": texts(),
            "kind": [("a", "b")[row % 2] for row in rows],
            "year": [1990 + row for row in rows],
            "score": [2.5 if row == 20 else row for row in rows],
            "late": [None if row < 12 else row for row in rows],
            "mixed": [str(row) if row < 20 else f"x{row}" for row in rows],
            "flag": [row % 3 == 0 for row in rows],
            "never": [None] * N_DOCUMENTS,
        }
    )


def counts() -> np.ndarray:
    found = np.random.default_rng(5).poisson(0.3, (N_DOCUMENTS, 30))
    found[3], found[-1], found[:, 11], found[0, 29] = 0, 0, 0, 12
    return found


def write_table(name: str) -> dict[str, Any]:
    ending = name.removesuffix(".gz").partition(".")[2]
    if ending in ("csv", "tsv"):
        table().to_csv(name, index=False, sep="\t" if ending == "tsv" else ",")
    elif ending == "jsonl":
        content = "".join(json.dumps(row) + "\n" for row in table().to_dict("records"))
        Path(name).write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    elif ending == "parquet":
        table().to_parquet(name)
    elif ending == "feather":
        table().to_feather(name)
    else:
        import pyarrow as pa

        arrow = pa.Table.from_pandas(table())
        with pa.OSFile(name, "wb") as file, pa.ipc.new_stream(file, arrow.schema) as stream:
            stream.write_table(arrow, max_chunksize=9)
    return COLUMNS


def write_texts(name: str) -> dict[str, Any]:
    if name.endswith(".txt"):
        Path(name).write_text("\r\n".join(texts()) + "\r\n")
        return {}
    for row, text in enumerate(texts()):
        path = Path(name, ("a", "b")[row % 2], f"{row}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {}


def write_counts(name: str) -> dict[str, Any]:
    """Entries of Matrix Market a word after the other, of UCI in no order and one of them in two parts."""
    ending = name.removesuffix(".gz").partition(".")[2]
    if ending == "mtx":
        mmwrite("plain.mtx", counts().astype(float) if name.startswith("dense") else csc_array(counts()))
        content = Path("plain.mtx").read_bytes()
        Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return {}
    if name.startswith("docword"):
        entries = coo_array(counts())
        rows = [(d + 1, w + 1, c) for d, w, c in zip(entries.row, entries.col, entries.data, strict=True)]
        largest = int(np.argmax(entries.data))
        rows[largest] = (*rows[largest][:2], rows[largest][2] - 1)
        rows.append((*rows[largest][:2], 1))
        order = np.random.default_rng(1).permutation(len(rows))
        lines = "".join(f"{' '.join(map(str, rows[place]))}\n" for place in order)
        Path(name).write_text(f"{N_DOCUMENTS}\n30\n{len(rows)}\n{lines}")
        return {"vocabulary": [f"word{number}" for number in range(30)]}
    lines = []
    for number, row in enumerate(counts()):
        first, pairs = (str((row > 0).sum()), 0) if ending == "ldac" else (str(number % 3), 1)
        lines.append(" ".join([first, *(f"{word + pairs}:{row[word]}" for word in np.flatnonzero(row))]))
    Path(name).write_text("\n".join(lines) + "\n\n" * (ending == "ldac"))
    return {}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "write"),
    [
        *(
            (name, write_table)
            for name in ("x.csv", "x.csv.gz", "x.tsv", "x.jsonl", "x.jsonl.gz", "x.parquet", "x.feather", "x.arrow")
        ),
        *((name, write_texts) for name in ("x.txt", "folder")),
        *((name, write_counts) for name in ("x.mtx", "x.mtx.gz", "dense.mtx", "docword.x.txt", "x.ldac", "x.svmlight")),
    ],
)
def test_every_reader(name, write):
    if name.endswith((".parquet", ".feather", ".arrow")):
        pytest.importorskip("pyarrow")
    options = write(name)
    whole = lv.Corpus.open(name, **options)
    found = lv.Corpus.open(lv.convert(name, "corpus", **options), verify=True)
    assert found == whole  # counts, words, names, classes, metadata
    assert found.notes == whole.notes
    assert found.analyzer == whole.analyzer
    if whole.metadata is not None:
        pd.testing.assert_frame_equal(found.metadata, whole.metadata)
    assert not list(Path().glob(".*"))


def test_how_texts_are_cut_can_be_said():
    write_texts("x.txt")
    options: dict[str, Any] = {
        "stop_words": ["apple", "tin"],
        "minimum_document_frequency": 9,
        "maximum_document_fraction": 0.4,
        "token_pattern": r"\w+",
    }
    whole = lv.Corpus.from_texts(texts(), **options)
    found = lv.Corpus.open(lv.convert("x.txt", "corpus", **options))
    assert found == whole
    assert found.notes == whole.notes
    assert 0 < whole.n_terms < 7


def test_words_beyond_memory_go_to_files():
    """The same frequencies, in the same order, however many words are kept at hand."""
    random = np.random.default_rng(8)
    blocks = [
        [WordFrequency(f"w\n{word}", int(random.integers(1, 4)), int(random.integers(4, 9))) for word in chosen]
        for chosen in (random.choice(50, 20, replace=False) for _ in range(12))
    ]
    found = []
    for most in (3, 30, 10**6):
        with WordFrequencies(most) as frequencies:
            for block in blocks:
                frequencies.add(block)
            assert (len(frequencies._runs) > 1) == (most < 50)
            found.append(list(frequencies.all()))
    assert found[0] == found[1] == found[2]
    assert [each.word for each in found[0]] == sorted({each.word for block in blocks for each in block})
    assert sum(each.tokens for each in found[0]) == sum(each.tokens for block in blocks for each in block)


@pytest.mark.thorough
@pytest.mark.parametrize("first", [[1, 2], [1.5, 2.0], [True, False], ["a", "b"], [None, None]])
@pytest.mark.parametrize("second", [[3, 4], [2.5, None], [True, True], ["c", None], [None, None]])
def test_a_column_has_the_kind_that_the_whole_has(first, second):
    """Each block by itself, and all together as pandas reads them."""
    rows = [*first, *second]
    frame = pd.DataFrame({"body": ["apple"] * 4, "x": rows})
    frame.to_csv("x.csv", index=False)
    blocks.DOCUMENTS, before = 2, blocks.DOCUMENTS
    found = lv.Corpus.open(lv.convert("x.csv", "corpus", text="body"))
    blocks.DOCUMENTS = before
    pd.testing.assert_frame_equal(found.metadata, lv.Corpus.open("x.csv", text="body").metadata)


def test_a_column_that_files_cannot_keep():
    kinds = [BlockKind("text", True), BlockKind(None, True), BlockKind("whole", True)]
    assert joined_kind(kinds) is None
    records = [{"body": "apple", "tags": [1] if row == 9 else 3} for row in range(20)]
    Path("x.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    found = lv.Corpus.open(lv.convert("x.jsonl", "corpus", text="body"))
    assert found == lv.Corpus.open("x.jsonl", text="body")
    assert "metadata without 'tags', whose values files cannot keep" in found.notes
    with pytest.raises(ValueError, match="got the column 'tags', whose values"):
        lv.convert("x.jsonl", "other", text="body", keep=["tags"])


@pytest.mark.parametrize("lines", ["1 1 1\n2 2 2\n\n", "1 1 1\n\n2 2 2\n"])
def test_blank_lines_of_matrix_market_files_are_none(lines):
    Path("x.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n" + lines)
    assert lv.Corpus.open(lv.convert("x.mtx", "corpus")) == lv.Corpus.open("x.mtx")


@pytest.mark.parametrize("documents", ["rows", "columns"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("coordinate integer symmetric\n3 3 4\n1 1 2\n2 1 3\n3 1 1\n3 3 5\n", [[2, 3, 1], [3, 0, 0], [1, 0, 5]]),
        ("coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n", [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
        ("array real symmetric\n3 3\n1\n2\n3\n4\n5\n6\n", [[1, 2, 3], [2, 4, 5], [3, 5, 6]]),
    ],
)
def test_of_symmetric_matrices_both_halves_are_read(content, expected, documents, monkeypatch):
    monkeypatch.setattr(blocks, "ENTRIES_AT_ONCE", 2)
    Path("x.mtx").write_text("%%MatrixMarket matrix " + content)
    found = lv.Corpus.open(lv.convert("x.mtx", "corpus", documents=documents))
    assert found == lv.Corpus.open("x.mtx", documents=documents)
    assert found.counts.toarray().tolist() == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "array real skew-symmetric\n2 2\n1\n",
            "got a skew-symmetric matrix of real numbers; expected a general or symm",
        ),
        ("array real symmetric\n2 3\n1\n1\n1\n", "got a symmetric matrix of 2 × 3; expected a square one"),
        ("coordinate complex general\n1 1 1\n1 1 1 0\n", "got a general matrix of complex numbers"),
        ("array pattern general\n1 1\n1\n", "got a general matrix of pattern numbers"),
        ("coordinate real general\n1 b 1\n1 1 1\n", "line 2: .*'b'; expected the sizes of a matrix"),
    ],
)
def test_matrices_that_hold_no_counts_are_refused_in_both_ways(content, message):
    Path("x.mtx").write_text("%%MatrixMarket matrix " + content)
    for read in (lv.Corpus.open, partial(lv.convert, folder="corpus")):
        with pytest.raises(ValueError, match=message):
            read("x.mtx")


def test_comments_of_matrix_market_files_may_be_in_any_encoding():
    Path("x.mtx").write_bytes(b"%%MatrixMarket matrix coordinate real general\n% gr\xf6\xdfe\n1 2 1\n1 1 2\n")
    assert lv.Corpus.open(lv.convert("x.mtx", "corpus")) == lv.Corpus.open("x.mtx")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "x.mtx",
            "%%MatrixMarket matrix coordinate real general\n2 2 1\nnan 2 2\n",
            "got nan 2 2; expected a document",
        ),
        ("x.ldac", "1 0:1\n" * 7 + "2 0:1\n", r"x\.ldac, line 8: got N = 2"),
        ("x.ldac", "1 0:1\n\n1 0:1\n", r"x\.ldac, line 2: got an empty line"),
        ("x.ldac", "", "got no documents"),
        ("docword.x.txt", "2\n2\n3\n1 1 1\n2 2 1\n", "got 2 entries, expected 3.*cut off"),
        ("docword.x.txt", "2\n2\n2\n1 1 1\n3 2 1\n", "line 5: got 3 2 1; expected a document from 1 to 2"),
        ("docword.x.txt", "2\n2\n2\n1 1 1\n2 2 0\n", "line 5: got 2 2 0; expected .* a count of 1 or more"),
        ("docword.x.txt", "2\n2\n1\n1 1 x\n", "expected 3 numbers on every line after line 3"),
        ("docword.x.txt", "2\nb\n", "expected three lines with a whole number each"),
        ("x.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1.5\n", "got 1.5 in document 0.*whole"),
        ("x.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1\n", "expected 3 numbers on every line"),
        ("x.mtx", "no matrix\n", "expected a Matrix Market file"),
        ("x.svmlight", "1 1:2\n1 x\n", "expected lines `label id:count …`"),
        ("x.csv", "body,id\napple,1,2\n", "more values than the header has names"),
        ("x.csv", "id,words\n1,apple\n", "got text='body'"),
        ("x.jsonl", '{"body": "apple"}\n' * 9 + "body\n", r"x\.jsonl, line 10: .*expected a JSON object"),
        ("x.jsonl", '{"body": "apple"}\n' * 9 + '{"body": 3}\n', r"got 3 \(int\) as document"),
        ("x.txt", "", "got no texts"),
        ("x.txt", "a b c\n" * 20, "20 texts without a single word"),
        ("x.parquet", "no parquet", "expected a Parquet file"),
        ("x.arrow", "no arrow", "expected a Arrow file"),
        ("x.doc", "apple", "got the ending '.doc'; expected"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_left(name, content, message):
    if name.endswith((".parquet", ".arrow")):
        pytest.importorskip("pyarrow")
    Path(name).write_text(content)
    options = {"text": "body"} if name.endswith((".csv", ".jsonl", ".parquet", ".arrow")) else {}
    with pytest.raises(ValueError, match=message):
        lv.convert(name, "corpus", **options)
    assert [path.name for path in Path().iterdir()] == [name]


def test_encodings():
    Path("x.txt").write_bytes("größe apple\n".encode("latin-1") * 9)
    assert lv.Corpus.open(lv.convert("x.txt", "corpus", encoding="latin-1")).vocabulary == ("apple", "größe")
    with pytest.raises(ValueError, match=r"x\.txt: got bytes that are not UTF-8: 0xf6"):
        lv.convert("x.txt", "other")
    with pytest.raises(ValueError, match="got encoding='klingon', which Python does not know"):
        lv.convert("x.txt", "other", encoding="klingon")


def test_the_command_line(capsys: pytest.CaptureFixture[str]):
    write_table("x.csv")
    names = ["--text-column", "body", "--id-column", "id", "--label-column", "kind"]
    assert main(["convert", "x.csv", *names, "--out", "corpus"]) == 0
    assert capsys.readouterr().out.startswith(f"{N_DOCUMENTS} documents (")
    assert lv.Corpus.open("corpus") == lv.Corpus.open("x.csv", **COLUMNS)
    for line, message in (
        (["convert", "x.csv", *names, "--out", "corpus"], "exists and is not empty"),
        (["convert", "absent.csv", "--out", "other"], "no file absent.csv"),
        (["convert", "corpus", "--out", "other"], "is written by lvsearch already"),
        (["search", "--corpus", ".", "--out", "run"], "expected one that lvsearch convert wrote"),
    ):
        assert main(line) == 2
        assert message in capsys.readouterr().err
