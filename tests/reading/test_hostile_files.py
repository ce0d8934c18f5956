"""Files and arguments that other people, other programs and damaged disks produce: one readable error, nothing lost."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_searches import PRIOR, corpus, rewritten, searched

import lvsearch as lv
from lvsearch.command import cli
from lvsearch.command.external_topics import ExternalTopics, load_topics
from lvsearch.data.kinds import data_for, require_model
from lvsearch.files.packed_files import read_text
from lvsearch.files.storage import CorruptFolderError, read_folder, write_folder
from lvsearch.files.untrusted_files import read_arrays
from lvsearch.models.plain_arguments import LARGEST_SEED, checked_seed
from lvsearch.reading.counts import read_ldac
from lvsearch.reading.opening import documents_in
from lvsearch.reading.vocabulary import read_lines


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a command that ends with status 2."""
    assert cli.main([*arguments, "--no-cache"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lvsearch: error: ")
    assert error.count("\n") == 1
    return error


# ── texts and LDA-C ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("space", ["\u00a0", "\f", "\v", "\u2003", "\u2028"])
@pytest.mark.parametrize("form", ["1 0:1{}", "2 0:1{}1:1", "1{} 0:1", "{}1 0:1"])
def test_white_space_that_is_none_in_ldac_is_shown(space: str, form: str, tmp_path: Path):
    path = tmp_path / "corpus.ldac"
    path.write_text(f"1 0:1\n{form.format(space)}\n1 0:1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"corpus\.ldac, line 2: got '"):
        read_ldac(path, None)


def test_a_number_too_long_to_read_is_refused_with_its_line(tmp_path: Path):
    (tmp_path / "corpus.ldac").write_text("9" * 5000 + " 0:1\n")
    with pytest.raises(ValueError, match=r"line 1: got '999.*expected N"):
        read_ldac(tmp_path / "corpus.ldac", None)


@pytest.mark.parametrize("character", ["\f", "\v", "\x1c", "\x85", "\u2028", "\u2029"])
def test_documents_end_at_line_feeds_alone(character: str, tmp_path: Path):
    path = tmp_path / "docs.txt"
    path.write_text(f"one{character}more\ntwo\r\n\nfour\n\n", encoding="utf-8", newline="")
    assert documents_in(read_text(path)) == [f"one{character}more", "two", "", "four", ""]
    (tmp_path / "words.txt").write_text(f"one{character}more\ntwo\n\n", encoding="utf-8")
    assert len(read_lines(tmp_path / "words.txt")) == 2


def test_documents_without_a_last_line_feed_and_with_a_byte_order_mark(tmp_path: Path):
    (tmp_path / "docs.txt").write_bytes(b"\xef\xbb\xbfone\ntwo")
    assert documents_in(read_text(tmp_path / "docs.txt")) == ["one", "two"]
    (tmp_path / "empty.txt").write_bytes(b"")
    assert documents_in(read_text(tmp_path / "empty.txt")) == []


def test_texts_in_another_encoding_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "docs.txt").write_bytes("größer\n".encode("latin-1"))
    error = fails(capsys, "search", "--texts", str(tmp_path / "docs.txt"), "--out", str(tmp_path / "run"))
    assert f"{tmp_path / 'docs.txt'}: got bytes that are not UTF-8" in error
    assert not (tmp_path / "run").exists()


# ── archives ────────────────────────────────────────────────────────────────────────────────────────────────────────


def archive(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def crafted(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(name, content)
    return buffer.getvalue()


GOOD = archive(topics=np.ones((2, 3)), alpha=np.ones(2), vocabulary=np.array(["a", "b", "c"]))
DAMAGED = {
    "empty": b"",
    "text": b"topics",
    "the beginning of a zip": b"PK\x03\x04",
    "cut": GOOD[: len(GOOD) // 2],
    "flipped": GOOD[:60] + bytes(byte ^ 255 for byte in GOOD[60:120]) + GOOD[120:],
    "an array without end": crafted("topics.npy", b"\x93NUMPY\x01\x00"),
    "a header that is no header": crafted("topics.npy", b"\x93NUMPY\x01\x00\x04\x00[[[["),
    "one array": (lambda b: (np.save(b, np.ones(3)), b.getvalue())[1])(io.BytesIO()),
    "pickled": (lambda b: (np.savez(b, x=np.array([{}], dtype=object)), b.getvalue())[1])(io.BytesIO()),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_archives_are_refused_in_one_way(content: bytes, tmp_path: Path):
    with pytest.raises(ValueError, match=r"file: got no readable archive"):
        read_arrays(content, "file")
    (tmp_path / "topics.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"topics\.npz: got no readable archive"):
        load_topics(tmp_path / "topics.npz")


def test_a_file_of_another_kind_is_not_taken_for_a_pickle_and_words_as_objects_say_how_to_save_them():
    """It advised to "load it unsafely" where a table or a picture stood in the place of topics."""
    with pytest.raises(ValueError, match="first bytes are not those of an archive") as told:
        read_arrays(b"title,body\n1,apple\n", "docs.csv")
    assert "unsafe" not in str(told.value)
    with pytest.raises(ValueError, match=r"Object arrays.*numpy\.array\(words, dtype=str\)"):
        read_arrays(DAMAGED["pickled"], "topics.npz")


def test_sound_archives_are_read(tmp_path: Path):
    (tmp_path / "topics.npz").write_bytes(GOOD)
    assert load_topics(tmp_path / "topics.npz").vocabulary == ("a", "b", "c")
    path = tmp_path / "points.npy"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"points\.npy: .*written by numpy\.save"):
        lv.Points.from_npy(path)
    np.save(path, np.eye(2))
    assert lv.Points.from_npy(path).shape == (2, 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"topics": np.array([["a", "b", "c"]] * 2)},
        {"topics": np.ones((2, 3)) + 1j},
        {"topics": np.zeros((2, 3), "M8[s]")},
        {"topics": np.full((2, 3), 1e308)},
        {"topics": np.zeros((2, 3), [("x", float)])},
        {"alpha": np.array(["1", "1"])},
        {"alpha": np.zeros(2, "m8[s]")},
        {"alpha": np.ones((2, 2))},
        {"vocabulary": np.array("abc")},
        {"vocabulary": np.array([b"a", b"b", b"c"])},
        {"vocabulary": np.arange(3)},
        {"vocabulary": np.array([["a", "b", "c"]])},
    ],
)
def test_topics_of_another_type_are_one_line_of_evaluate(changed: dict[str, np.ndarray], tmp_path: Path, capsys):
    sound = {"topics": np.ones((2, 3)), "alpha": np.ones(2), "vocabulary": np.array(["a", "b", "c"])}
    np.savez(tmp_path / "topics.npz", **{**sound, **changed})
    (tmp_path / "corpus.ldac").write_text("1 0:1\n1 1:2\n")
    (tmp_path / "words.txt").write_text("a\nb\n")
    corpus_files = ("--corpus", str(tmp_path / "corpus.ldac"), "--vocabulary", str(tmp_path / "words.txt"))
    assert "expected" in fails(capsys, "evaluate", "--topics", str(tmp_path / "topics.npz"), *corpus_files)


def test_a_table_per_document_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine.csv").write_text("mine")
    ExternalTopics(np.eye(2), np.ones(2), ("a", "b"), "ours").save(tmp_path / "topics.npz")
    (tmp_path / "corpus.ldac").write_text("1 0:1\n1 1:2\n")
    (tmp_path / "words.txt").write_text("a\nb\n")
    files = ("--topics", "topics.npz", "--corpus", "corpus.ldac", "--vocabulary", "words.txt")
    paths = [argument if argument.startswith("--") else str(tmp_path / argument) for argument in files]
    error = fails(capsys, "evaluate", *paths, "--per-document", str(tmp_path / "mine.csv"))
    assert "choose another name for --per-document" in error
    assert (tmp_path / "mine.csv").read_text() == "mine"


# ── manifests ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_manifest_nested_without_end_is_refused(tmp_path: Path):
    (tmp_path / "manifest.json").write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(CorruptFolderError, match="damaged or foreign"):
        read_folder(tmp_path)


def set_visits(body: dict) -> None:
    body["visits"] = {"a": 1}


CRAFTED: dict[str, Callable[[dict], object]] = {
    "a model that is text": lambda body: body.update(model="LDA"),
    "fields that are a list": lambda body: body["model"].update(fields=[1]),
    "data that are a list": lambda body: body.update(data=[]),
    "held-out data that are text": lambda body: body.update(held_out="all"),
    "visits that are a table": set_visits,
    "a prior that is a number": lambda body: body.update(prior=3),
    "settings that are a list": lambda body: body.update(settings=[1]),
    "kept fits that are text": lambda body: body.update(kept="none"),
    "an audit that is text": lambda body: body.update(audit="fine"),
}


@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED)
def test_crafted_manifests_are_refused(change: Callable[[dict], object], tmp_path: Path):
    """With sound checksums, so that only their content gives them away."""
    searched("bound").save(tmp_path / "run")
    folder = rewritten(tmp_path / "run", tmp_path / "crafted", lambda body, _: change(body))
    with pytest.raises(ValueError, match=r"."):
        lv.load(folder)


def test_a_damaged_archive_with_a_sound_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lvsearch.files.storage._npz", lambda content: b"PK\x03\x04")
    write_folder(tmp_path, 1, {"a": {}})
    with pytest.raises(CorruptFolderError, match=r"no readable archive of arrays.*restore it"):
        read_folder(tmp_path)


# ── seeds, models, hyper-parameters ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", [-1, LARGEST_SEED + 1, 99999999999999999999, True, 1.0, "1", None])
def test_seeds_out_of_range_are_refused(seed: object):
    with pytest.raises(ValueError, match="expected a whole number from 0 to 4294967295"):
        checked_seed(seed)  # pyright: ignore[reportArgumentType]


def test_seeds_in_range_are_kept():
    assert [checked_seed(seed) for seed in (0, np.int64(7), LARGEST_SEED)] == [0, 7, LARGEST_SEED]


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_the_command_line_refuses_them_whatever_is_held_out(seed: str, tmp_path: Path, capsys):
    (tmp_path / "docs.txt").write_text("boat sail wind\ncat dog mouse\n" * 10)
    for held_out in ("0", "0.1"):
        arguments = ("--texts", str(tmp_path / "docs.txt"), "--held-out", held_out, "--out", str(tmp_path / "run"))
        assert f"got seed={seed}" in fails(capsys, "search", *arguments, "--seed", seed)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "ask",
    [
        lambda: lv.search(lv.models.LDA(), corpus(), prior=PRIOR, max_size=1, seed=-1, progress=False),
        lambda: lv.fit(lv.models.LDA(), corpus(), size=1, seed=-1),
        lambda: lv.sample(lv.models.LDA(), corpus(), size=1, seed=-1, progress=False),
        lambda: lv.occupied(lv.models.HDP(), corpus(), seed=-1, progress=False),
        lambda: lv.fit_tree(lv.models.HLDA(), corpus(), seed=-1),
    ],
)
def test_so_does_every_entry(ask: Callable[[], object]):
    with pytest.raises(ValueError, match="got seed=-1"):
        ask()


def test_a_negative_budget_is_refused_before_there_is_a_folder(tmp_path: Path, capsys):
    (tmp_path / "docs.txt").write_text("boat sail wind\ncat dog mouse\n" * 10)
    arguments = ("--texts", str(tmp_path / "docs.txt"), "--seconds", "-1", "--out", str(tmp_path / "run"))
    assert "seconds=-1" in fails(capsys, "search", *arguments)
    assert not (tmp_path / "run").exists()


def test_a_class_is_no_model():
    """Not through `lv.fit`, whose arguments' types are checked in tests."""
    for ask in (require_model, lambda model: data_for.__wrapped__(model, corpus())):
        with pytest.raises(ValueError, match=r"got the class LDA, expected a model .* \(with its parentheses\)"):
            ask(lv.models.LDA)


@pytest.mark.parametrize(
    "make",
    [
        lambda value: lv.models.LDA(value),
        lambda value: lv.models.LDA(1.0, value),
        lambda value: lv.models.FiniteMixture(concentration=value),
        lambda value: lv.models.DPMixture(concentration=value),
        lambda value: lv.models.HDP(topic_concentration=value),
        lambda value: lv.models.HLDA(levels=value),
    ],
)
def test_concentrations_beyond_single_precision_are_refused(make: Callable[[float], object]):
    make(1e6)
    with pytest.raises(ValueError, match=r"got \w+=1e\+30, expected at most 1e\+06"):
        make(1e30)


# ── pairs, and masks ────────────────────────────────────────────────────────────────────────────────────────────────


def pairs(folder: Path, regions: str, captions: str) -> lv.PairedCorpus:
    (folder / "regions.csv").write_text(regions, encoding="utf-8")
    (folder / "captions.csv").write_text(captions, encoding="utf-8")
    return lv.PairedCorpus.from_csv(folder / "regions.csv", folder / "captions.csv")


@pytest.mark.parametrize("other", ["x3", "7", ""])
def test_names_of_images_are_compared_as_they_are_written(other: str, tmp_path: Path):
    """A column of numbers in one file is one of strings in the other once a single name is no number."""
    extra = f"{other},sky\n" if other else ""
    read = pairs(tmp_path, "image,x,y\n1,0.5,2\n007,1.5,3\n", f"image,word\n1,sea\n007,tree\n{extra}")
    assert read.captions.document_names == ("1", "007", *([other] if other else []))
    assert [read.caption(i) for i in range(2)] == [("sea",), ("tree",)]
    assert read.region_counts.tolist()[:2] == [1, 1]
    np.testing.assert_array_equal(read.regions, [[0.5, 2], [1.5, 3]])


def test_words_and_images_that_pandas_takes_for_missing_are_words(tmp_path: Path):
    read = pairs(tmp_path, "image,x\nNA,1\nnull,2\n", "image,word\nNA,null\nnull,nan\n")
    assert read.captions.document_names == ("NA", "null")
    assert read.vocabulary == ("nan", "null")


def test_names_are_compared_without_the_white_space_around_them(tmp_path: Path):
    assert len(pairs(tmp_path, "image, x\n1 ,1\n", "image,word\n 1,sea\n")) == 1


def test_tokens_are_kept_as_they_are_written(tmp_path: Path):
    read = pairs(tmp_path, "image,token\na,007\na,7\nb,x\n", "image,word\na,sea\n")
    assert read.region_names == ("007", "7", "x")


@pytest.mark.parametrize(
    ("regions", "captions", "said"),
    [
        ("image,x\n,1\nb,2\n", "image,word\nb,sea\n", "1 empty cells in the column 'image', the first in row 1"),
        ("image,x\nb,1\n", "image,word\nb,sea\n,sky\n", "1 empty cells in the column 'image', the first in row 2"),
        ("image,x\nb,1\n", "image,word\nb,\n", "empty cells in the column 'word'"),
        ("image,token\na,x\na,\n", "image,word\na,sea\n", "empty token"),
        ("image,x\n1,1\n", "image,word\nimg1,sea\n", "none in both"),
        ("image,x\na,1,2\n", "image,word\na,sea\n", "more values than the header"),
        ("image,x,y\na,1,1_0\n", "image,word\na,sea\n", "the column 'y' without numbers"),
        ("image,x,y\na,1,2\u0661\n", "image,word\na,sea\n", "the column 'y' without numbers"),
    ],
)
def test_pairs_that_cannot_be_told_are_refused(regions: str, captions: str, said: str, tmp_path: Path):
    with pytest.raises(ValueError, match=said):
        pairs(tmp_path, regions, captions)


@pytest.mark.parametrize("first", ["0,1", "7,9"])
def test_a_column_without_a_name_is_not_dropped(first: str, tmp_path: Path):
    """Also where its numbers are those that rows have anyway."""
    one, two = first.split(",")
    (tmp_path / "points.csv").write_text(f"x,y\n{one},1.5,2\n{two},3,4\n")
    with pytest.raises(ValueError, match="more values than the header has names"):
        lv.Points.from_csv(tmp_path / "points.csv")
    with pytest.raises(ValueError, match="more values than the header has names"):
        pairs(tmp_path, f"image,x\n{one},a,1\n{two},b,2\n", "image,word\na,sea\n")


@pytest.mark.parametrize("last", ["", "9"])
def test_a_first_line_longer_than_the_header_is_refused(last: str, tmp_path: Path):
    """pandas takes an empty last value for the end of the line, and the others for names of rows."""
    (tmp_path / "points.csv").write_text(f"x,y\n0,1.5,{last}\n1,2\n")
    with pytest.raises(ValueError, match="more values than the header has names"):
        lv.Points.from_csv(tmp_path / "points.csv")


@pytest.mark.parametrize(("header", "place"), [("x_,y,", 3), (",x,y", 1), ("x, ,y", 2)])
def test_a_column_without_a_name_is_refused(header: str, place: int, tmp_path: Path):
    """pandas calls it "Unnamed: 2"; mostly it is the index of a data frame, and no number to cluster by."""
    (tmp_path / "points.csv").write_text(f"{header}\n1,2,3\n4,5,6\n")
    with pytest.raises(ValueError, match=f"no name for column {place} .* row_names=0"):
        lv.Points.from_csv(tmp_path / "points.csv")
    with pytest.raises(ValueError, match="no name for column 2"):
        pairs(tmp_path, "image,,y\na,1,2\n", "image,word\na,sea\n")


def test_the_index_of_a_data_frame_names_the_rows(tmp_path: Path):
    (tmp_path / "points.csv").write_text(",x,y\nfirst,1,2\nsecond,3,4\n")
    points = lv.Points.from_csv(tmp_path / "points.csv", row_names=0)
    assert (points.columns, points.row_names) == (("x", "y"), ("first", "second"))


@pytest.mark.parametrize("shape", ["(4, 399999999999999999999)", "(4, 39999999999999)", "(-4, 3)"])
def test_shapes_beyond_all_memory_are_refused(shape: str, tmp_path: Path):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    (tmp_path / "points.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    with pytest.raises(ValueError, match="expected a matrix written"):
        lv.Points.from_npy(tmp_path / "points.npy")


def test_a_name_twice_in_a_header_is_refused(tmp_path: Path):
    (tmp_path / "points.csv").write_text("x,y,x\n1,2,3\n")
    with pytest.raises(ValueError, match="'x' twice"):
        lv.Points.from_csv(tmp_path / "points.csv")
    with pytest.raises(ValueError, match="'x' twice"):
        pairs(tmp_path, "image,x,x\na,1,2\n", "image,word\na,sea\n")


def test_numbers_are_read_to_their_last_bit(tmp_path: Path):
    numbers = np.random.default_rng(0).normal(0, 1e5, 2000)
    (tmp_path / "points.csv").write_text("x\n" + "\n".join(map(repr, numbers.tolist())) + "\n")
    read = lv.Points.from_csv(tmp_path / "points.csv").values[:, 0]
    np.testing.assert_allclose(read, numbers, rtol=1e-15 if pd.__version__ < "3" else 0)


def test_masked_cells_are_never_read_through_their_mask():
    masked = np.ma.masked_equal(np.array([[1, 2], [3, 9]]), 9)
    with pytest.raises(ValueError, match="1 masked cells; a missing value is not a count"):
        lv.Corpus.from_matrix(masked)
    assert lv.Corpus.from_matrix(np.ma.array([[1, 2]])).n_tokens == 3
    with pytest.raises(ValueError, match="1 masked cells; expected features"):
        lv.PairedCorpus.from_arrays([masked.astype(float)], [["sea"]])
    groups = lv.Groups.from_arrays([masked.astype(float), [[5.0, 6.0]]])
    np.testing.assert_array_equal(groups.rows.observed, [[True, True], [True, False], [True, True]])


def test_a_table_of_pandas_keeps_its_missing_counts_apart():
    with pytest.raises(ValueError, match="finite count"):
        lv.Corpus.from_matrix(pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [1, 2]}))


def test_json_of_a_manifest_is_not_trusted_for_its_numbers(tmp_path: Path):
    """Infinity and NaN are no JSON, but Python reads them: a size of them is no size."""
    searched("bound").save(tmp_path / "run")

    def change(body: dict, _: object) -> None:
        body["visits"][0]["size"] = [json.loads("Infinity")]

    with pytest.raises(ValueError, match=r"."):
        lv.load(rewritten(tmp_path / "run", tmp_path / "crafted", change)).posterior()
