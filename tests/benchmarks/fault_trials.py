"""What the parts of the fault campaign share: trials in processes of their own, and the table that they fill.

Children are forked from a process that has imported everything and started no device: they cost milliseconds.
"""

import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from lvsearch.files.storage import MANIFEST

LIMIT = 120.0
"""Seconds after which a process that should have ended is taken to hang."""
READING = 5
"""Seconds of the processor that reading one small file may take."""
DAMAGE = 70
"""Exit status of a child that ended in a traceback."""


@dataclass
class Row:
    """One line of the table.

    | field | meaning |
    |---|---|
    | `lost` | something finished, once seen in the folder, was gone, or could not be gone on with |
    | `wrong` | another result than that of an undisturbed run, unsaid |
    | `unexplained` | a traceback, a hang, or an end without one readable line |
    """

    name: str
    tried: int = 0
    lost: int = 0
    wrong: int = 0
    unexplained: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, kind: str, what: str) -> None:
        """Count a failure and keep its first lines."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.notes.append(f"{self.name}: {kind}: {what[-1500:]}")

    @property
    def failed(self) -> int:
        return self.lost + self.wrong + self.unexplained


def table(rows: list[Row]) -> str:
    """Markdown, the sum last."""
    total = Row("**all**", *(sum(getattr(row, name) for row in rows) for name in ("tried", "lost", "wrong")))
    total.unexplained = sum(row.unexplained for row in rows)
    lines = ["| what | tried | lost | wrong | unexplained |", "|---|---|---|---|---|"]
    lines += [f"| {r.name} | {r.tried:,} | {r.lost} | {r.wrong} | {r.unexplained} |" for r in (*rows, total)]
    return "\n".join(lines)


@dataclass(frozen=True)
class Ended:
    """How a process ended: exit status (negative: by that signal; None: it hung and was killed), and what it said."""

    status: int | None
    output: str
    errors: str

    @property
    def explained(self) -> bool:
        """It did what it should, or said in one line why not."""
        lines = self.errors.strip().splitlines()
        refused = self.status == 2 and any(line.startswith("lvsearch: error: ") for line in lines)
        return self.status == 0 or (refused and "Traceback" not in self.errors)


class Child:
    """A forked process that runs `task`; its output goes to files."""

    def __init__(self, task: Callable[[], int], logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.paths = logs / "out", logs / "err"
        for path in self.paths:
            path.write_text("")
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            _become(task, self.paths)

    def end(self, limit: float = LIMIT) -> Ended:
        """Wait for its end."""
        status = self._wait(limit)
        if status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        return Ended(status, *(path.read_text(errors="replace") for path in self.paths))

    def kill_at(self, seconds: float) -> Ended:
        """Kill it at that age, unless it ended before."""
        status = self._wait(seconds - (time.monotonic() - self.began))
        if status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            status = -signal.SIGKILL
        return Ended(status, *(path.read_text(errors="replace") for path in self.paths))

    def _wait(self, limit: float) -> int | None:
        until = time.monotonic() + limit
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= until:
                return None
            time.sleep(0.002)


def _become(task: Callable[[], int], paths: tuple[Path, Path]) -> NoReturn:
    status = DAMAGE
    try:
        for number, path in zip((1, 2), paths, strict=True):
            os.dup2(os.open(path, os.O_WRONLY | os.O_TRUNC), number)
        status = task()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class TooLongError(Exception):
    """A read took longer than it may."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """`TooLongError` inside after so many seconds."""

    def late(*_: object) -> None:
        raise TooLongError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def refusal(error: BaseException) -> str | None:
    """None for an error that people can read; else what is wrong with it."""
    text = str(error)
    if isinstance(error, TooLongError):
        return text
    if not isinstance(error, ValueError | OSError):
        return f"{type(error).__name__}: {text}"
    if not text.strip() or re.search(r"Traceback|object at 0x", text):
        return f"{type(error).__name__} that says nothing: {text!r}"
    return None


UNSTEADY = {"seconds", "compiles", "versions"}
"""Parts of a folder's body that differ from run to run."""


def steady(body: Any) -> Any:
    """A folder's body without what differs from run to run."""
    if isinstance(body, dict):
        return {key: steady(value) for key, value in body.items() if key not in UNSTEADY}
    return [steady(value) for value in body] if isinstance(body, list) else body


def state_of(folder: Path) -> str | None:
    """What a folder holds, as text to compare: its body, and the checksums of its arrays. None without a manifest."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    manifest = json.loads(path.read_text())
    sums = {group: entry["sha256"] for group, entry in manifest["files"].items()}
    return json.dumps([steady(manifest["body"]), sums], sort_keys=True)


Trial = Callable[[int], tuple[str, str] | None]
"""A numbered trial; gives what kind of failure it was and what happened, or None."""


def trials_in_children(trial: Trial, trials: int, logs: Path, row: Row, each: int = 100) -> None:
    """Trials 0, 1, …, many to a process. One that takes its process with it is unexplained, and the next go on."""
    done = 0
    while done < trials:
        book = logs / "book"
        until = min(done + each, trials)

        def some(start: int = done, until: int = until, book: Path = book) -> int:
            with book.open("w") as file:
                for number in range(start, until):
                    found = trial(number)
                    file.write(json.dumps(found) + "\n")
                    file.flush()
            return 0

        ended = Child(some, logs).end(LIMIT + 2 * READING * each)
        entries = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
        row.tried += len(entries)
        for entry in filter(None, entries):
            row.note(*entry)
        done += len(entries)
        if ended.status != 0:
            row.tried += 1
            row.note("unexplained", f"trial {done}: {ended.status}, {ended.errors[-1200:]}")
            done += 1
