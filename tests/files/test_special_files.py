"""Pipes, devices, links and archives that swell, where a file is expected: refused at once, in words; nothing beside
the folder is read or emptied."""

import io
import os
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from small_searches import corpus, searched
from test_stored_corpus import resigned

import lvsearch as lv
from lvsearch.command import cli
from lvsearch.command.external_topics import load_topics
from lvsearch.files import storage
from lvsearch.files.storage import (
    LOCK,
    CorruptFolderError,
    FolderInUseError,
    hold_lock,
    known_folder,
    new_folder,
    read_folder,
    write_folder,
)
from lvsearch.files.untrusted_files import read_arrays

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and devices are files on POSIX only")


@contextmanager
def at_once(path: Path) -> Iterator[None]:
    """Who waits for a writer of the pipe `path` gets one after a while, and the test fails instead of hanging."""
    late = threading.Event()

    def rescue() -> None:
        if not late.wait(20):
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    thread = threading.Thread(target=rescue, daemon=True)
    thread.start()
    try:
        yield
        assert thread.is_alive(), "somebody waited for the pipe"
    finally:
        late.set()
        thread.join()


def pipe(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


READERS: dict[str, Callable[[Path], object]] = {
    "docs.txt": lv.Corpus.open,
    "docs.csv": lambda path: lv.Corpus.open(path, text="text"),
    "docs.parquet": lambda path: lv.Corpus.open(path, text="text"),
    "counts.mtx": lv.Corpus.open,
    "counts.svmlight": lv.Corpus.open,
    "counts.ldac": lv.Corpus.open,
    "docword.x": lv.Corpus.open,
    "points.npy": lv.Points.from_npy,
    "points.csv": lv.Points.from_csv,
    "topics.npz": load_topics,
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_or_a_device_in_the_place_of_a_file_is_refused(name: str, tmp_path: Path):
    path = pipe(tmp_path / name)
    with at_once(path), pytest.raises(ValueError, match=rf"{name}: got a pipe, expected an ordinary file"):
        READERS[name](path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=rf"{name}: got a device, expected an ordinary file"):
        READERS[name](path)


@pytest.mark.parametrize("name", ["docs.txt", "docs.csv", "counts.mtx", "counts.svmlight", "counts.ldac"])
def test_neither_is_converted(name: str, tmp_path: Path):
    path = pipe(tmp_path / name)
    options = {"text": "text"} if name.endswith("csv") else {}
    with at_once(path), pytest.raises(ValueError, match="got a pipe"):
        lv.convert(path, tmp_path / "out", **options)


def test_the_files_of_a_folder_are_ordinary_ones(tmp_path: Path):
    write_folder(tmp_path, {}, {"data": {"x": np.arange(3)}})
    (path,) = tmp_path.glob("data-*.npz")
    pipe(path)
    with at_once(path), pytest.raises(CorruptFolderError, match="got a pipe"):
        read_folder(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(CorruptFolderError, match="got a device"):
        read_folder(tmp_path)
    manifest = pipe(tmp_path / "manifest.json")
    with at_once(manifest), pytest.raises(CorruptFolderError):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "counts.bin", "vocabulary.text.bin", "names.ends.bin"])
def test_those_of_a_corpus_are_too(name: str, tmp_path: Path):
    corpus().save(tmp_path / "corpus")
    path = pipe(tmp_path / "corpus" / name)
    entry = {"folder": str(tmp_path / "corpus")}
    with at_once(path), pytest.raises(CorruptFolderError, match=path.stem):
        lv.Corpus.from_storage(entry, {})


# ── archives ────────────────────────────────────────────────────────────────────────────────────────────────────────


def zipped(*members: bytes, how: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", how) as archive:
        for number, member in enumerate(members):
            archive.writestr(f"a{number}.npy", member)
    return content.getvalue()


def array_file(values: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def test_compressed_archives_are_refused_unread(monkeypatch: pytest.MonkeyPatch):
    content = zipped(array_file(np.zeros(1_000_000)), how=zipfile.ZIP_DEFLATED)
    assert len(content) < 10_000
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_, **__: pytest.fail("a member was opened"))
    with pytest.raises(ValueError, match=r"bomb\.npz: .*compressed members"):
        read_arrays(content, "bomb.npz")


def test_members_that_share_their_bytes_are_refused():
    """A thousand names for one member: nothing is compressed, and a thousand times as much comes out."""
    content = io.BytesIO(zipped(array_file(np.zeros(1000)), how=zipfile.ZIP_STORED))
    with zipfile.ZipFile(content, "a") as archive:
        member = archive.infolist()[0]
        for number in range(1, 1000):
            again = zipfile.ZipInfo(f"b{number}.npy")
            for field in ("header_offset", "CRC", "compress_size", "file_size", "compress_type"):
                setattr(again, field, getattr(member, field))
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
        archive._didModify = True
    with pytest.raises(ValueError, match=r"members of .* bytes in an archive of"):
        read_arrays(content.getvalue(), "bomb.npz")


def test_what_numpy_writes_is_read():
    content = io.BytesIO()
    np.savez(content, a=np.arange(4), b=np.array(["x"]), c=np.zeros((0, 3)))
    assert sorted(read_arrays(content.getvalue(), "good.npz")) == ["a", "b", "c"]


# ── names and links that leave the folder ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("group", ["../x", "a/../../x", "..\\x", "c:x", "/x"])
def test_groups_whose_names_leave_the_folder_are_refused(group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The checksums are right: somebody wrote the manifest so. What lies outside is not even read."""
    folder = tmp_path / "run"
    monkeypatch.setattr(storage, "write_bytes", lambda path, data: path.write_bytes(data))
    (folder / "a").mkdir(parents=True)
    if group == "/x":
        monkeypatch.setattr(storage, "_file_name", lambda group, digest: f"{tmp_path}/x-{digest[:16]}.npz")
    write_folder(folder, {}, {group: {"x": np.arange(3)}})
    with pytest.raises(CorruptFolderError, match="which is not ours"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["../counts", "a\\counts", "c:counts"])
def test_arrays_whose_names_leave_the_folder_are_refused(name: str, tmp_path: Path):
    corpus().save(tmp_path / "corpus")
    resigned(tmp_path / "corpus", lambda manifest: manifest["arrays"].update({name: manifest["arrays"]["counts"]}))
    with pytest.raises(CorruptFolderError, match="not ours"):
        lv.Corpus.open(tmp_path / "corpus")


def test_a_folder_of_texts_does_not_read_files_of_others(tmp_path: Path):
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("wind and sail")
    (folder / "b.txt").symlink_to(folder / "sub" / "a.txt")  # stays inside: a document under two names
    assert lv.Corpus.open(folder).document_names == ("b.txt", "sub/a.txt")
    (tmp_path / "secret.txt").write_text("password")
    (folder / "c.txt").symlink_to(tmp_path / "secret.txt")
    for read in (lv.Corpus.open, lambda path: lv.convert(path, tmp_path / "out")):
        with pytest.raises(ValueError, match=r"c\.txt: got a link out of the folder, to .*secret\.txt"):
            read(folder)
    (folder / "c.txt").unlink()
    path = pipe(folder / "d.txt")
    with at_once(path), pytest.raises(ValueError, match=r"d\.txt: got a pipe"):
        lv.Corpus.open(folder)


# ── locks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lock_that_is_a_link_empties_no_file(tmp_path: Path):
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(mine)
    with pytest.raises(OSError, match=r"\.lock"), hold_lock(tmp_path / "run"):
        pass
    assert mine.read_text() == "precious"
    (tmp_path / "run" / LOCK).unlink()
    path = pipe(tmp_path / "run" / LOCK)
    with at_once(path), pytest.raises(ValueError, match="got a pipe"), hold_lock(tmp_path / "run"):
        pass


def test_a_folder_that_was_removed_is_made_again_with_its_lock(tmp_path: Path):
    folder = tmp_path / "run"
    with new_folder(folder):
        write_folder(folder, 1, {})
        shutil.rmtree(folder)
        write_folder(folder, 2, {})
        with pytest.raises(FolderInUseError), known_folder(folder):
            pass
    with known_folder(folder):
        assert read_folder(folder)[0] == 2


def test_a_folder_that_somebody_else_made_meanwhile_is_left_to_them(tmp_path: Path):
    folder = tmp_path / "run"
    with new_folder(folder):
        write_folder(folder, 1, {})
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(FolderInUseError):
            write_folder(folder, 2, {})
        os.close(handle)
        assert not (folder / "manifest.json").exists()


def test_a_reader_of_a_folder_that_is_being_made_hears_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Before the lock, with it, and with the arrays that come before the first manifest."""
    folder = tmp_path / "run"
    seen = []

    def manifest_comes(path: Path, data: bytes) -> None:
        if path.name == "manifest.json":
            with pytest.raises(FileNotFoundError, match="holds nothing to read yet"):
                lv.load(folder)
            seen.append(path)
        path.write_bytes(data)

    monkeypatch.setattr(storage, "write_bytes", manifest_comes)
    with new_folder(folder):
        with pytest.raises(FileNotFoundError, match="holds nothing to read yet"):
            lv.load(folder)
        write_folder(folder, {}, {"data": {"x": np.arange(3)}})
    assert seen


def test_a_report_waits_for_nobody_and_takes_no_folder_from_its_search(tmp_path: Path, capsys):
    searched("bound").save(tmp_path / "run")
    with known_folder(tmp_path / "run"):
        assert cli.main(["report", str(tmp_path / "run"), "--no-cache"]) == 2
        assert "is in use by" in capsys.readouterr().err
        assert not (tmp_path / "run" / "report").exists()
        assert cli.main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report"), "--no-cache"]) == 0
    assert (tmp_path / "report" / "summary.md").is_file()
