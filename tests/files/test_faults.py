"""The reduced fault campaign, and that it would notice: its comparisons on what they are there to find."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import fault_corpora
import fault_folders
import fault_inputs
import numpy as np
import pytest
from fault_trials import Ended, Row, TooLongError, refusal, state_of, table
from test_structure import ROOT

from lvsearch.files.storage import write_folder


@pytest.mark.slow
def test_nothing_is_lost_wrong_or_unexplained(tmp_path: Path):
    """In a process of its own, which starts no device before it forks."""
    few = ("--kills", "24", "--real", "3", "--damaged", "200", "--crafted", "200", "--disks", "6", "--pairs", "5")
    few = (*few, "--corpora", "300", "--special", "80", "--threads", "2", "--hostile", "10")
    command = [sys.executable, "tests/benchmarks/faults.py", *few, "--files", "1200", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "| **all** |" in done.stdout


# ── readers: quick enough for every day ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reader", fault_inputs.READERS, ids=lambda reader: reader.name)
def test_mutated_files_are_refused_or_read_as_they_are(reader: fault_inputs.Reader, tmp_path: Path):
    for name, content in reader.files.items():
        (tmp_path / name).write_bytes(content)
    assert fault_inputs.verdict(reader, tmp_path) is None
    assert fault_inputs.sound(reader, tmp_path)
    for number in range(60):
        random = np.random.default_rng([99, number])
        chosen = sorted(reader.files)[number % len(reader.files)]
        (tmp_path / chosen).write_bytes(fault_inputs.mutated(reader.files[chosen], random))
        found = fault_inputs.verdict(reader, tmp_path)
        assert found is None, f"{number} {(tmp_path / chosen).read_bytes()!r}: {found}"
        (tmp_path / chosen).write_bytes(reader.files[chosen])


def test_a_reader_that_drops_something_is_noticed(tmp_path: Path):
    reader = fault_inputs.READERS[0]
    (tmp_path / "docs.txt").write_bytes(reader.files["docs.txt"])
    for read, kind in (
        (lambda path: reader.read(path)[:-1], "wrong"),
        (lambda path: [line.upper() for line in reader.read(path)], "wrong"),
        (lambda path: 1 / 0, "unexplained"),
    ):
        found = fault_inputs.verdict(dataclasses.replace(reader, read=read), tmp_path)
        assert found is not None
        assert found[0] == kind


# ── the campaign's own rules ────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_an_explanation():
    assert refusal(ValueError("got 1, expected 2")) is None
    for error in (
        KeyError("x"),
        TooLongError("6 s"),
        ValueError(" "),
        ValueError("<a object at 0x7f>"),
        TypeError("no"),
    ):
        assert refusal(error) is not None
    assert Ended(0, "", "").explained
    assert Ended(2, "", "lvsearch: error: no file\n").explained
    for status, errors in ((2, ""), (1, "Traceback"), (2, "lvsearch: error: x\nTraceback"), (None, ""), (-11, "")):
        assert not Ended(status, "", errors).explained


def test_a_table_adds_up():
    rows = [Row("a", 3), Row("b", 4)]
    rows[1].note("lost", "a size")
    rows[0].note("unexplained", "hung")
    assert table(rows).splitlines()[-1] == "| **all** | 7 | 1 | 0 | 1 |"
    assert [row.failed for row in rows] == [1, 1]


def test_states_of_folders_differ_where_it_matters(tmp_path: Path):
    def state(body: object, value: float) -> str | None:
        write_folder(tmp_path, body, {"a": {"x": np.array([value])}})
        return state_of(tmp_path)

    assert state_of(tmp_path) is None
    first = state({"visits": [{"seconds": 1.0, "size": [2]}]}, 1.0)
    assert first == state({"visits": [{"seconds": 2.0, "size": [2]}]}, 1.0)
    assert first != state({"visits": [{"seconds": 1.0, "size": [3]}]}, 1.0)
    assert first != state({"visits": [{"seconds": 1.0, "size": [2]}]}, 2.0)


def test_every_way_of_damage_changes_a_folder(tmp_path: Path):
    """But for exchanges of a file with itself: a campaign of no-ops would find nothing either."""
    changed = 0
    for number in range(60):
        folder = tmp_path / str(number)
        write_folder(folder, {"a": list(range(50))}, {"x": {"y": np.arange(200)}})
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        fault_folders.damage(folder, folder, np.random.default_rng(number))
        after = {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}
        changed += before != after
    assert changed > 45


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics.csv", 'a,b\n"=1+1",2\n'),
        ("topics.csv", 'a,b\n"x\r=1",2\n'),
        ("topics.csv", "a,b\n＝1,2\n"),
        ("summary.md", "a \x1b[31m"),
        ("summary.md", "[x](http://evil)"),
        ("index.html", "<script>alert(1)</script>"),
    ],
)
def test_what_somebody_would_obey_is_noticed(name: str, text: str, tmp_path: Path):
    for path, sound in (("topics.csv", "a,b\n'=1+1,-2\n"), ("summary.md", "# a"), ("index.html", "<p>a")):
        (tmp_path / path).write_text(sound)
    assert fault_corpora.obeyed(tmp_path) is None
    (tmp_path / name).write_text(text)
    assert fault_corpora.obeyed(tmp_path) is not None


def test_every_special_file_is_no_ordinary_one(tmp_path: Path):
    """But for a link to somebody's file, which is one with another content."""
    for name, make in fault_corpora.SPECIAL.items():
        path = tmp_path / name.replace(" ", "-")
        make(path)
        assert not path.is_file() or path.is_symlink(), name
