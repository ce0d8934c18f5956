"""A corpus on disk with one bit changed, or cut off anywhere: refused, naming the file; never another corpus unsaid."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_stored_corpus import resigned

import lvsearch as lv
from lvsearch.files.storage import CorruptFolderError
from lvsearch.reading import stored_corpus

N_DOCUMENTS, N_WORDS = 9, 6


def small() -> lv.Corpus:
    """Few bytes, and an array of every kind among them: names, classes, and metadata of numbers, times and texts."""
    random = np.random.default_rng(4)
    rows = range(N_DOCUMENTS)
    return lv.Corpus.from_matrix(
        random.poisson(0.7, (N_DOCUMENTS, N_WORDS)) + np.eye(N_DOCUMENTS, N_WORDS, dtype=int),
        [f"wört{word}" for word in range(N_WORDS)],
        document_names=[f"paper {row}" for row in rows],
        document_labels=[("a", "bc")[row % 2] for row in rows],
        metadata=pd.DataFrame(
            {
                "year": [1990 + row for row in rows],
                "score": [row / 7 for row in rows],
                "when": pd.date_range("2020-01-01", periods=N_DOCUMENTS, freq="D"),
                "remark": [None if row % 3 == 0 else f"größe {row}" for row in rows],
            }
        ),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small().save(tmp_path / "corpus")
    return tmp_path / "corpus"


EVERY = pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 5])


def flips(folder: Path, every: int) -> Iterator[tuple[Path, int]]:
    """The folder once for so many-th bytes of its arrays and of its manifest, one bit of that byte changed; then it is
    whole again. Manifests are seven times as long."""
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for place in range(0, len(content), every * (7 if path.suffix == ".json" else 1)):
            changed = bytearray(content)
            changed[place] ^= 1 << ((place * 5 + 3) % 8)
            path.write_bytes(bytes(changed))
            yield path, place
        path.write_bytes(content)


def content(corpus: lv.Corpus) -> tuple[object, ...]:
    """Everything that a search or a person reads of it, by the ways that go to SciPy and by those that do not."""
    metadata = corpus.metadata
    assert metadata is not None
    times = metadata.pop("when").to_numpy("int64")  # a fingerprint has them as doubles, to 256 nanoseconds
    return (
        corpus.counts[np.arange(len(corpus))].toarray().tolist(),
        np.asarray(corpus.counts.sum(axis=0)).tolist(),
        corpus.document_lengths.tolist(),
        corpus.n_tokens,
        corpus.vocabulary,
        tuple(corpus.document_names or ()),
        tuple(corpus.document_labels or ()),
        repr(metadata.to_dict("list")),
        times.astype(float).tolist(),
    )


def require_named(error: ValueError, folder: Path, where: str) -> None:
    """A refusal says which folder it is of."""
    assert str(folder) in str(error), f"{where}: {error!r}"


@EVERY
def test_one_bit_anywhere_is_refused_or_changes_nothing(folder: Path, every: int):
    """What a manifest says in other white space is still what it says."""
    whole, refused, tried = content(small()), 0, 0
    for path, place in flips(folder, every):
        tried += 1
        try:
            opened = lv.Corpus.open(folder)
        except ValueError as error:
            require_named(error, folder, f"{path.name}, byte {place}")
            refused += 1
        else:
            assert path.name == "manifest.json", f"{path.name}, byte {place}: opened"
            assert content(opened) == whole, f"{path.name}, byte {place}: another corpus"
    assert tried > 1000 / every
    assert refused > 0.8 * tried


@pytest.mark.thorough
@EVERY
def test_one_bit_that_no_checksum_looks_at_is_refused_or_makes_another_corpus(folder: Path, every: int):
    """As folders are opened that are too large for their checksums: nothing is the undamaged corpus but what is."""
    kept, whole = small(), content(small())
    for path, place in flips(folder, every):
        where = f"{path.name}, byte {place}"
        try:
            opened = lv.Corpus.open(folder, verify=False)
            same, read = opened == kept, content(opened)
        except ValueError as error:
            require_named(error, folder, where)
        else:
            assert same == (read == whole), where


def test_cut_off_anywhere_is_refused(folder: Path):
    for path in sorted(folder.iterdir()):
        bytes_of = path.read_bytes()
        for length in {*range(0, len(bytes_of), 17), len(bytes_of) - 1}:
            path.write_bytes(bytes_of[:length])
            with pytest.raises(CorruptFolderError, match=path.stem):
                lv.Corpus.open(folder, verify=False)
        path.write_bytes(bytes_of)


def test_totals_are_compared_whatever_the_size(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """One bit of a count: 64 tokens more, which no range of numbers tells."""
    monkeypatch.setattr(stored_corpus, "VERIFIED_BYTES", 0)
    path = folder / "counts.bin"
    changed = bytearray(path.read_bytes())
    changed[0] ^= 0x40
    path.write_bytes(bytes(changed))
    with pytest.raises(CorruptFolderError, match=r"counts\.bin: got counts of [\d,]+ tokens, expected [\d,]+"):
        lv.Corpus.open(folder)


def test_a_fingerprint_that_a_manifest_claims_makes_no_corpus_equal(folder: Path):
    """Somebody may write a manifest whose checksums are right and whose fingerprint is another corpus'."""
    other = folder.with_name("other")
    lv.Corpus.from_matrix(np.eye(4, 3, dtype=int)).save(other)
    claimed = small().fingerprint
    resigned(other, lambda manifest: manifest["body"].update(fingerprint=claimed))
    opened = lv.Corpus.open(other)
    assert opened != small()
    with pytest.raises(CorruptFolderError, match=r"other: .* differ from those that were written there"):
        opened.to_storage()


def test_a_damaged_corpus_is_not_searched(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where it is too large for checksums: before a fit is made, or a folder."""
    monkeypatch.setattr(stored_corpus, "VERIFIED_BYTES", 0)
    path = folder / "names.text.bin"
    path.write_bytes(path.read_bytes().replace(b"paper 0", b"paper 8", 1))
    opened = lv.Corpus.open(folder)
    with pytest.raises(CorruptFolderError, match="differ from those that were written there"):
        lv.search(lv.models.LDA(), opened, max_size=2, evidence="bound", out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_a_search_finds_the_corpus_changed(folder: Path, tmp_path: Path):
    opened = lv.Corpus.open(folder)
    found = lv.search(lv.models.LDA(), opened, max_size=2, starts=1, evidence="bound", progress=False)
    found.save(tmp_path / "run")
    shutil.rmtree(folder)
    small().select(range(N_DOCUMENTS - 1)).save(folder)
    with pytest.raises(CorruptFolderError, match="the data differ from those searched"):
        lv.load(tmp_path / "run")
