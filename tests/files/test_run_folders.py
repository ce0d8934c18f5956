"""The folder of a search between processes: one writer, held-out data bound to it, nothing stale, nothing half read."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_searches import PRIOR, corpus, earlier_held_out, rewritten, searched

import lvsearch as lv
from lvsearch import api
from lvsearch.command import cli
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
from lvsearch.results.heldout import load_held_out
from lvsearch.searching.controller import SearchState

QUICK = ["--evidence", "bound", "--max-size", "2", "--starts", "1", "--no-cache", "--quiet"]
HOLDER = """
import sys
from pathlib import Path
from lvsearch.files.storage import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of a search that has not begun, with three documents held out."""
    result = replace(searched("bound"), state=SearchState(), held_out=corpus().select([0, 1, 2]))
    result.save(tmp_path / "run")
    return tmp_path / "run"


# ── held-out data ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n_documents", [1, 2, 14])
def test_of_so_few_documents_none_are_held_out(n_documents: int, capsys):
    """A tenth of them is one document at most, on which no two sizes can be compared."""
    few = corpus().select(range(n_documents))
    assert cli._hold_documents_out(few, 0.1, seed=0) == (few, None)
    assert f"0.1 of {n_documents} document(s) is too little" in capsys.readouterr().err


def test_of_fifteen_documents_two_are_held_out():
    assert [len(side) for side in cli._hold_documents_out(corpus().select(range(15)), 0.1, seed=0)] == [13, 2]


def test_a_search_of_twelve_documents_ends_well(tmp_path: Path):
    lines = [f"{'boat sail wind' if i % 2 else 'cat dog mouse'} word{'abcdefghijkl'[i]}" for i in range(12)]
    (tmp_path / "docs.txt").write_text("\n".join(lines) + "\n")
    out = tmp_path / "run"
    assert cli.main(["search", "--texts", str(tmp_path / "docs.txt"), "--out", str(out), *QUICK]) == 0
    result = lv.load(out)
    assert (result.held_out, len(result.training)) == (None, 12)


def test_a_document_held_out_by_an_earlier_version_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lvsearch.reports.report.write_report", lambda *_, **__: str(tmp_path / "summary.md"))
    monkeypatch.setattr("lvsearch.reports.report.topics_table", lambda *_: pd.DataFrame())
    replace(searched("bound"), held_out=corpus().select([3])).save(tmp_path / "run")
    assert cli.main(["report", str(tmp_path / "run"), "--no-cache"]) == 0


def test_too_little_held_out_is_refused_before_anything_is_fitted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lv.searching.evaluators.ModelEvaluator, "evaluate", lambda *_: pytest.fail("fitted"))
    with pytest.raises(ValueError, match="expected at least two documents"):
        lv.search(lv.models.LDA(), corpus(), prior=PRIOR, held_out=corpus().select([0]), progress=False)
    function = lv.from_function(lambda size: 0.0, ceiling=0.0)
    with pytest.raises(ValueError, match="nothing can be held out"):
        lv.search(function, prior=PRIOR, held_out=corpus(), progress=False)


def test_held_out_data_are_safe_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A copy of the folder when the first fit begins stands for a process killed in it."""

    def killed(*_: object, **__: object) -> None:
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        raise SystemExit

    monkeypatch.setattr(api, "run", killed)
    train, test = corpus().split(0.2, seed=3)
    with pytest.raises(SystemExit):
        lv.search(lv.models.LDA(), train, prior=PRIOR, held_out=test, out=tmp_path / "run", progress=False)
    assert lv.load(tmp_path / "copy").held_out == test


def test_the_command_line_keeps_them_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "docs.txt").write_text("boat sail wind\ncat dog mouse\n" * 15)

    def killed(*_: object) -> None:
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        raise SystemExit

    monkeypatch.setattr(lv.searching.evaluators.ModelEvaluator, "evaluate", killed)
    with pytest.raises(SystemExit):
        cli.main(["search", "--texts", str(tmp_path / "docs.txt"), "--out", str(tmp_path / "run"), *QUICK])
    kept = lv.load(tmp_path / "copy").held_out
    assert kept is not None
    assert len(kept) == 3


def test_held_out_data_of_another_run_are_refused(stored: Path, tmp_path: Path):
    other = replace(lv.load(stored), held_out=corpus().select([4, 5, 6]))
    other.save(tmp_path / "other")
    (ours,), (theirs,) = stored.glob("held-out-*.npz"), (tmp_path / "other").glob("held-out-*.npz")
    shutil.copyfile(theirs, ours)
    with pytest.raises(CorruptFolderError, match=r"held-out-.*checksum differs"):
        lv.load(stored)


def test_a_folder_of_held_out_data_that_the_manifest_does_not_know_is_not_believed(tmp_path: Path):
    replace(searched("bound"), state=SearchState()).save(tmp_path / "run")
    earlier_held_out(corpus().select([0, 1]), tmp_path / "run" / "held-out")
    assert lv.load(tmp_path / "run").held_out is None


def test_held_out_data_beside_an_earlier_search_are_found(tmp_path: Path):
    replace(searched("bound"), state=SearchState()).save(tmp_path / "new")
    old = rewritten(tmp_path / "new", tmp_path / "old", lambda body, _: body.pop("held_out"))
    assert lv.load(old).held_out is None
    test = corpus().select([0, 1])
    earlier_held_out(test, old / "held-out")
    assert lv.load(old).held_out == load_held_out(corpus(), old / "held-out") == test


# ── one writer ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_in_use_by_another_process_is_left_to_it(stored: Path, tmp_path: Path, capsys):
    before = (stored / "manifest.json").read_bytes()
    root = str(Path(lv.__file__).parents[1])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(stored)],
        stdin=subprocess.PIPE,  # held until this process kills it or is no more
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": root},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FolderInUseError, match=rf"in use by process {holder.pid} on .*choose another"):
            lv.resume(stored, progress=False)
        assert cli.main(["resume", str(stored), "--no-cache"]) == 2
        assert "is in use by process" in capsys.readouterr().err
        assert len(lv.load(stored).visits) == 0  # who only reads may
    finally:
        holder.kill()
        holder.communicate()
    assert (stored / "manifest.json").read_bytes() == before
    with known_folder(stored):  # the lock went with the process
        pass


def test_a_search_holds_its_folder_from_the_first_write_to_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def step(*arguments: object, **settings: object) -> SearchState:
        with pytest.raises(FolderInUseError):
            lv.resume(tmp_path / "run", progress=False)
        asked.append(arguments)
        return SearchState()

    monkeypatch.setattr(api, "run", step)
    lv.search(lv.models.LDA(), corpus(), prior=PRIOR, out=tmp_path / "run", progress=False)
    lv.resume(tmp_path / "run", progress=False)
    assert len(asked) == 2


def test_two_searches_into_one_new_folder(tmp_path: Path):
    """The second comes between the first one's look and its lock."""
    with new_folder(tmp_path / "run"):
        with pytest.raises(FolderInUseError), new_folder(tmp_path / "run"):
            pass
        write_folder(tmp_path / "run", 1, {})
    with pytest.raises(FileExistsError), new_folder(tmp_path / "run"):
        pass


def test_no_lock_is_put_into_other_peoples_folders(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    for enter, refusal in ((new_folder, FileExistsError), (known_folder, CorruptFolderError)):
        with pytest.raises(refusal), enter(tmp_path):
            pass
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_file_system_without_locks_is_written_to_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fcntl = pytest.importorskip("fcntl")

    def missing(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    with hold_lock(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")


# ── stale files, and files replaced while they are read ─────────────────────────────────────────────────────────────


def test_what_killed_processes_leave_goes_when_the_folder_is_opened(stored: Path):
    (stored / "report").mkdir()
    stale = [stored / ".manifest.json-abcd1234.tmp", stored / "report" / ".summary.md-abcd_234.tmp"]
    mine = [stored / ".mine.tmp", stored / "report" / ".notes.txt-abcd1234.tmp"]
    for path in (*stale, *mine):
        path.write_text("half")
    with known_folder(stored):
        assert [path.exists() for path in stale] == [False, False]
    assert all(path.exists() for path in mine)


def test_the_names_of_temporary_files_are_those_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = []
    monkeypatch.setattr(Path, "chmod", lambda self, mode: seen.append(self.name))
    write_folder(tmp_path, 1, {"a": {"x": np.arange(3)}})
    for name in ("summary.md", "posterior.csv", "posterior.png"):
        storage.write_text(tmp_path / name, "")
    assert len(seen) == 5
    assert all(storage.TEMPORARY.fullmatch(name) for name in seen)


def test_reading_while_a_search_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Between the manifest and the arrays the search makes another step, which removes these arrays."""
    write_folder(tmp_path, "old", {"a": {"x": np.zeros(2)}})
    real = storage._read_group

    def late(path: Path, expected: str) -> dict[str, np.ndarray]:
        monkeypatch.setattr(storage, "_read_group", real)
        write_folder(tmp_path, "new", {"a": {"x": np.ones(2)}})
        return real(path, expected)

    monkeypatch.setattr(storage, "_read_group", late)
    body, arrays = read_folder(tmp_path)
    assert body == "new"
    np.testing.assert_array_equal(arrays["a"]["x"], np.ones(2))
