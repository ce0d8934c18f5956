"""A corpus in a folder: it comes back as it went in, stays on disk, and says which of its files is damaged."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import lvsearch as lv
from lvsearch.files.array_folders import FORMAT, new_array_folder
from lvsearch.files.storage import CorruptFolderError, read_folder, write_folder
from lvsearch.inference.data.mapped import files_of, runs_of
from lvsearch.reading.stored_corpus import corpus_fingerprint

N_DOCUMENTS, N_WORDS = 57, 23


def corpus() -> lv.Corpus:
    """Names, classes and metadata of every kind; an empty document, a word that stands nowhere, characters beyond
    ASCII."""
    random = np.random.default_rng(3)
    counts = random.poisson(0.4, (N_DOCUMENTS, N_WORDS)) * random.integers(1, 50, (N_DOCUMENTS, N_WORDS))
    counts[5], counts[:, 4] = 0, 0
    rows = range(N_DOCUMENTS)
    metadata = pd.DataFrame(
        {
            "year": [1990 + row for row in rows],
            "score": [None if row % 3 else row / 7 for row in rows],
            "known": [row % 2 == 0 for row in rows],
            "when": pd.date_range("2020-01-01", periods=N_DOCUMENTS, freq="D"),
            "remark": [None if row % 5 == 0 else f"größe {row}" for row in rows],
        },
        index=pd.Index([f"row {row}" for row in rows], name="key"),
    )
    return lv.Corpus.from_matrix(
        counts,
        [f"wört{word}" for word in range(N_WORDS)],
        document_names=[f"document {row} \u00fc\n" for row in rows],
        document_labels=[("a", "b", "")[row % 3] for row in rows],
        metadata=metadata,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus().save(tmp_path / "corpus")
    return tmp_path / "corpus"


def test_it_comes_back_as_it_went_in(folder):
    kept, opened = corpus(), lv.Corpus.open(folder, verify=True)
    assert opened == kept
    assert opened.summary() == kept.summary()
    assert opened.document_names == kept.document_names
    assert opened.document_labels == kept.document_labels
    assert opened.vocabulary == kept.vocabulary
    pd.testing.assert_frame_equal(opened.metadata, kept.metadata)
    assert (opened.counts != kept.counts).nnz == 0
    table = opened.document_table
    # the fingerprint is taken from the manifest: here it is made of what lies in the files
    names, labels = opened.document_names, opened.document_labels
    assert corpus_fingerprint(opened.counts, opened.vocabulary, names, labels, table) == kept.fingerprint
    texts = lv.Corpus.from_texts(["apple pear plum apple", "iron tin", "apple tin"])
    texts.save(folder.parent / "texts")
    again = lv.Corpus.open(folder.parent / "texts")
    assert again.analyzer == texts.analyzer
    assert again.encode(["pear pear"]).counts.sum() == 2


def test_its_arrays_are_maps_and_nothing_else_is_left_beside(folder):
    opened = lv.Corpus.open(folder)
    assert all(
        isinstance(array, np.memmap) for array in (opened.counts.data, opened.counts.indices, opened.counts.indptr)
    )
    assert opened.counts.indptr.dtype == opened.counts.indices.dtype
    with pytest.raises(ValueError, match="read-only"):
        opened.counts.data[0] = 1
    assert [path.name for path in folder.parent.iterdir()] == ["corpus"]


def test_parts_of_it(folder):
    """They lie in memory and are what parts of the corpus at hand are."""
    opened, kept = lv.Corpus.open(folder), corpus()
    for mine, its in zip(opened.split(seed=2), kept.split(seed=2), strict=True):
        assert mine == its
        assert files_of(mine.counts) is None
        pd.testing.assert_frame_equal(mine.metadata, its.metadata)
    assert opened.select([3, 3, 0]) == kept.select([3, 3, 0])
    np.testing.assert_array_equal(opened.document_lengths, kept.document_lengths)
    np.testing.assert_array_equal(opened.term_totals, kept.term_totals)


@pytest.mark.parametrize("most_pairs", [1, 7, 40, 10**6])
def test_runs_hold_every_document_once(folder, most_pairs):
    """Of files and of counts at hand alike; a document with more pairs than that is a run of its own."""
    kept, files = corpus().counts, files_of(lv.Corpus.open(folder).counts)
    assert files is not None
    for runs in (runs_of(kept, most_pairs), runs_of(lv.Corpus.open(folder).counts, most_pairs)):
        found = list(runs)
        assert sum(run.shape[0] for run in found) == N_DOCUMENTS
        assert all(run.nnz <= most_pairs or run.shape[0] == 1 for run in found)
        np.testing.assert_array_equal(np.concatenate([run.toarray() for run in found]), kept.toarray())


@pytest.mark.thorough
def test_a_search_keeps_where_it_lies(folder, tmp_path):
    """Not another copy of it; a search loaded again finds it there, or says where it was."""
    opened = lv.Corpus.open(folder)
    result = lv.search(
        lv.models.LDA(),
        opened,
        max_size=2,
        starts=1,
        evidence="bound",
        out=tmp_path / "run",
        report=False,
        progress=False,
    )
    loaded = lv.load(tmp_path / "run")
    assert loaded.training == opened
    assert files_of(loaded.training.counts) is not None
    assert loaded.best_size == result.best_size
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match=str(folder)):
        lv.load(tmp_path / "run")


# ── folders that are refused ────────────────────────────────────────────────────────────────────────────────────────


def changed(folder: Path, name: str, at: int, by: int) -> None:
    content = bytearray((folder / name).read_bytes())
    content[at] ^= by
    (folder / name).write_bytes(content)


@pytest.mark.parametrize("name", ["word_ids.bin", "counts.bin", "names.text.bin", "metadata.1.bin", "row_starts.bin"])
def test_files_cut_off_left_out_or_changed_are_named(folder, name):
    path, content = folder / name, (folder / name).read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(CorruptFolderError, match=rf"{name}: got .* bytes, expected"):
        lv.Corpus.open(folder)
    path.unlink()
    with pytest.raises(CorruptFolderError, match=f"{name} is missing"):
        lv.Corpus.open(folder)
    path.write_bytes(content)
    changed(folder, name, 9, 1)
    with pytest.raises(CorruptFolderError, match=rf"{name} was damaged or changed \(checksum differs\)"):
        lv.Corpus.open(folder, verify=True)


@pytest.mark.parametrize(
    ("name", "at", "by", "message"),
    [
        ("word_ids.bin", 3, 0x80, "word ids from -"),
        ("word_ids.bin", 4, 0x40, "word ids from 0 to"),
        ("counts.bin", 7, 0x80, "a count of -"),
        ("row_starts.bin", 5, 0x7F, "row starts that do not ascend"),
    ],
)
def test_numbers_that_no_counts_have_are_found_without_checksums(folder, name, at, by, message):
    """When the folder is opened; and where it is damaged afterwards, when they are read: a fit must not go on."""
    opened = lv.Corpus.open(folder)
    changed(folder, name, at, by)
    found = rf"{name}: got {message}.*the file is damaged"
    with pytest.raises(CorruptFolderError, match=found):
        lv.Corpus.open(folder, verify=False)
    with pytest.raises(ValueError, match=found):
        list(runs_of(opened.counts))


def test_manifests_that_are_refused(folder):
    path = folder / "manifest.json"
    right = json.loads(path.read_text())
    for change, message in (
        ({"body": {**right["body"], "tokens": 1}}, "changed after it was written"),
        ({"format": "another"}, rf"has format 'another', expected '{FORMAT}'"),
        ({"arrays": 3}, "changed after it was written"),
    ):
        path.write_text(json.dumps({**right, **change}))
        with pytest.raises(CorruptFolderError, match=message):
            lv.Corpus.open(folder)
    for text in ("", "[]", "{}", "\x00"):
        path.write_text(text)
        with pytest.raises(CorruptFolderError, match=r"manifest\.json is damaged or foreign"):
            lv.Corpus.open(folder)
    path.write_text(json.dumps(right))
    with pytest.raises(ValueError, match="holds a corpus; expected no text="):
        lv.Corpus.open(folder, text="body")


def resigned(folder, change):
    """The manifest changed and its checksum made right again, as somebody would who knows how it is made."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    content = {key: manifest[key] for key in ("arrays", "body")}
    manifest["sha256"] = hashlib.sha256(json.dumps(content, indent=1, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest["arrays"]["word_ids"].update(dtype="<f4"), "word_ids.* of type float32"),
        (lambda manifest: manifest["arrays"].pop("vocabulary.ends"), "lacks what a corpus needs"),
        (lambda manifest: manifest["body"].pop("notes"), "lacks what a corpus needs"),
        (lambda manifest: manifest["body"].update(kind="fit"), "holds no corpus"),
    ],
)
def test_crafted_manifests_are_refused(folder, change, message):
    resigned(folder, change)
    with pytest.raises(CorruptFolderError, match=message):
        lv.Corpus.open(folder)


def test_nothing_of_anybodys_is_overwritten(folder):
    with pytest.raises(FileExistsError, match="exists and is not empty"):
        corpus().save(folder)
    assert lv.Corpus.open(folder, verify=True) == corpus()


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    def begun_and_left() -> None:
        with new_array_folder(tmp_path / "corpus") as writer:
            writer.append("counts", np.arange(5))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        begun_and_left()
    assert not list(tmp_path.iterdir())


def test_counts_at_hand_are_still_copied():
    """Only those of a folder are taken as they stand."""
    counts = csr_array(np.array([[1, 0, 2]], np.int32))
    kept = lv.Corpus.from_matrix(counts)
    counts.data[0] = 9
    assert kept.counts.data[0] == 1


def test_a_search_and_a_corpus_in_each_others_place_are_named_and_not_said_to_be_damaged(tmp_path):
    """It said "damaged or foreign (KeyError('files')); restore it from a copy" of folders that were in order."""
    lv.Corpus.from_texts(["apple pear", "iron tin"]).save(tmp_path / "corpus")
    with pytest.raises(CorruptFolderError, match=r"expected 'lvsearch folder.*is read by lvsearch search --corpus"):
        read_folder(tmp_path / "corpus")
    write_folder(tmp_path / "run", {"x": 1}, {})
    with pytest.raises(CorruptFolderError, match=r"expected 'lvsearch arrays.*is read by lv\.load or lv\.load_fit"):
        lv.Corpus.open(tmp_path / "run")
