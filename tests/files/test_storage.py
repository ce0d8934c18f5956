"""A folder is always the old state or the new one, and nothing that was not written here is believed."""

import json
from pathlib import Path

import numpy as np
import pytest

from lvsearch.files import storage
from lvsearch.files.storage import CorruptFolderError, read_folder, refuse_existing, write_folder, write_text

OLD = {
    "a": {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "µ": np.array(0.1)},
    "b": {"words": np.array(["ä", ""])},
}
NEW = {"a": {"x": np.arange(6, dtype=np.float32).reshape(2, 3) + 1}, "c": {"n": np.array([], np.int64)}}


def assert_holds(folder: Path, body: object, arrays: dict[str, dict[str, np.ndarray]]) -> None:
    found, groups = read_folder(folder)
    assert found == body
    assert set(groups) == set(arrays)
    for group, content in arrays.items():
        assert set(groups[group]) == set(content)
        for name, array in content.items():
            got = groups[group][name]
            assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_what_is_written_is_read_and_stale_files_go(tmp_path: Path):
    folder = tmp_path / "deep" / "run"
    write_folder(folder, {"n": [1, None, 0.1, float("inf")]}, OLD)
    assert_holds(folder, {"n": [1, None, 0.1, float("inf")]}, OLD)
    write_folder(folder, "second", NEW)
    assert_holds(folder, "second", NEW)
    assert sorted(path.name.split("-")[0] for path in folder.iterdir()) == ["a", "c", "manifest.json"]


def test_unchanged_arrays_are_not_written_again(tmp_path: Path):
    write_folder(tmp_path, 1, OLD)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    write_folder(tmp_path, 2, OLD)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")} == before
    assert_holds(tmp_path, 2, OLD)


@pytest.mark.parametrize("where", ["before the bytes are safe", "before the rename", "after the rename"])
@pytest.mark.parametrize("write", [0, 1, 2])
def test_a_crash_at_any_write_leaves_the_old_state_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int, where: str
):
    """Writes 0 and 1 are arrays, 2 is the manifest. The crash is as sudden as a kill: no clean-up runs."""
    write_folder(tmp_path, "old", OLD)
    real_replace, seen = Path.replace, []

    def crash(*_: object, **__: object) -> None:
        raise SystemExit

    def counted(self: Path, target: Path) -> Path:
        seen.append(target)
        if len(seen) - 1 == write:
            if where == "after the rename":
                real_replace(self, target)
            crash()
        return real_replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda self, missing_ok=False: crash())  # a killed process removes nothing
        if where == "before the bytes are safe":
            patched.setattr(storage.os, "fsync", lambda handle: seen.append(handle) or len(seen) <= write or crash())
        else:
            patched.setattr(Path, "replace", counted)
        with pytest.raises(SystemExit):
            write_folder(tmp_path, "new", NEW)
    done = (write, where) == (2, "after the rename")
    assert_holds(tmp_path, "new" if done else "old", NEW if done else OLD)
    write_folder(tmp_path, "new", NEW)  # and the next write goes through, and tidies up
    assert_holds(tmp_path, "new", NEW)
    assert len(list(tmp_path.iterdir())) == 3


def test_an_exception_while_writing_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_folder(tmp_path, "old", OLD)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(storage.os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_folder(tmp_path, "new", NEW)
    assert sorted(tmp_path.iterdir()) == before
    assert_holds(tmp_path, "old", OLD)


def test_files_of_other_people_stay(tmp_path: Path):
    write_folder(tmp_path, 1, OLD)
    for name in ("mine.npz", "notes.txt", ".hidden", "summary.md"):
        (tmp_path / name).write_text("mine")
    write_folder(tmp_path, 2, NEW)
    assert all((tmp_path / name).read_text() == "mine" for name in ("mine.npz", "notes.txt", ".hidden", "summary.md"))


def test_every_damaged_byte_of_the_manifest_is_noticed(tmp_path: Path):
    """Each byte in turn is changed: refused, or (white space) read as the same thing."""
    write_folder(tmp_path, {"size": [3], "lower": -1.5, "name": "ä"}, OLD)
    path, wanted = tmp_path / "manifest.json", read_folder(tmp_path)[0]
    good = path.read_bytes()
    refused = 0
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 1 + position % 127
        path.write_bytes(damaged)
        try:
            assert_holds(tmp_path, wanted, OLD)
        except CorruptFolderError:
            refused += 1
    assert refused > 0.7 * len(good)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.99])
def test_truncated_files_are_refused(tmp_path: Path, fraction: float):
    write_folder(tmp_path, 1, OLD)
    for path in (tmp_path / "manifest.json", next(tmp_path.glob("a-*.npz"))):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(fraction * len(whole))])
        with pytest.raises(CorruptFolderError, match=r"damaged.*restore it from a copy"):
            read_folder(tmp_path)
        path.write_bytes(whole)
    assert_holds(tmp_path, 1, OLD)


def test_a_flipped_byte_in_the_arrays_is_refused(tmp_path: Path):
    write_folder(tmp_path, 1, OLD)
    path = next(tmp_path.glob("b-*.npz"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFolderError, match=r"b-.*checksum differs.*restore it from a copy"):
        read_folder(tmp_path)


def test_a_missing_array_file_is_refused(tmp_path: Path):
    write_folder(tmp_path, 1, OLD)
    next(tmp_path.glob("a-*.npz")).unlink()
    with pytest.raises(CorruptFolderError, match=r"a-.*is missing.*incomplete"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[1, 2]",
        '"text"',
        '{"topics": 3}',
        '{"format": 1, "sha256": 2, "files": [], "body": 3}',
        "\x00\x01",
        "{",
    ],
)
def test_foreign_manifests_are_refused(tmp_path: Path, text: str):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CorruptFolderError, match=r"manifest\.json is damaged or foreign.*copy"):
        read_folder(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    (tmp_path / "manifest.json").write_bytes(b'{"format": "\xff\xfe"}')
    with pytest.raises(CorruptFolderError, match="damaged or foreign"):
        read_folder(tmp_path)


def test_foreign_and_missing_folders(tmp_path: Path):
    with pytest.raises(CorruptFolderError, match=r"holds no manifest\.json.*did not write"):
        read_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere.*expected one written by"):
        read_folder(tmp_path / "nowhere")


def test_a_future_format_says_so(tmp_path: Path):
    write_folder(tmp_path, 1, {})
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"format": "lvsearch folder, version 2"}))
    with pytest.raises(CorruptFolderError, match=r"version 2.*expected 'lvsearch folder, version 1'.*that wrote it"):
        read_folder(tmp_path)


def test_no_file_outside_the_folder_is_read(tmp_path: Path):
    inner = tmp_path / "run"
    write_folder(tmp_path, 1, OLD)
    write_folder(inner, 1, OLD)
    path = inner / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["a"]["file"] = f"../{manifest['files']['a']['file']}"
    path.write_text(json.dumps(manifest))
    with pytest.raises(CorruptFolderError, match="not ours"):
        read_folder(inner)


def test_objects_are_not_pickled(tmp_path: Path):
    with pytest.raises(ValueError, match="allow_pickle"):
        write_folder(tmp_path / "run", 1, {"a": {"x": np.array([{}, []], dtype=object)}})
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_folders_that_hold_something_are_refused(tmp_path: Path):
    refuse_existing(tmp_path / "new")
    refuse_existing(tmp_path)  # empty
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"exists and is not empty: choose another folder.*lv\.resume"):
        refuse_existing(tmp_path)
    with pytest.raises(FileExistsError, match=r"thesis\.tex is a file and is left alone: choose another folder"):
        refuse_existing(tmp_path / "thesis.tex")
    with pytest.raises(NotADirectoryError, match=r"thesis\.tex is a file, so that there can be no .*run in it"):
        refuse_existing(tmp_path / "thesis.tex" / "run")


def test_text_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_text(tmp_path / "a" / "summary.md", "größer")
    monkeypatch.setattr(storage.os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_text(tmp_path / "a" / "summary.md", "new")
    assert (tmp_path / "a" / "summary.md").read_text(encoding="utf-8") == "größer"
