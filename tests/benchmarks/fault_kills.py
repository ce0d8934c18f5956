"""Kills, full disks, read-only folders and pairs of processes: what a search keeps of what it has finished.

A search of 40 documents is made once without disturbance; the state of its folder after every write is its history.
Whatever happens to another one, its folder must be in some state of that history, never in an earlier one than before,
and end in the last. Most trials replay the fits of the undisturbed search, so that nearly all of their time is spent
where files are written; `real` ones are processes of the command line, from their first import on.
"""

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fault_trials import LIMIT, Child, Ended, Row, state_of

import lvsearch as lv
from lvsearch import api
from lvsearch.command import cli
from lvsearch.files import storage
from lvsearch.reports import report
from lvsearch.results import heldout
from lvsearch.searching.evaluators import ModelEvaluator

SEEDS = (0, 1)
REST = 0.01  # seconds that a replayed fit takes
LEGS = 3  # at most so many kills of one search: of itself, of its resumption, and of that one's
REPORTED = ("summary.md", "posterior.csv", "posterior.png", "starts.csv")


# ── the undisturbed search ──────────────────────────────────────────────────────────────────────────────────────────


def search_arguments(work: Path, out: Path, seed: int) -> list[str]:
    """A search by the mean-field bound, a tenth of its documents held out."""
    fixed = ["--evidence", "bound", "--max-size", "4", "--starts", "2", "--prior", "poisson:3", "--quiet"]
    cache = ["--cache", str(work / "cache")]
    return ["search", "--texts", str(work / "docs.txt"), "--out", str(out), "--seed", str(seed), *fixed, *cache]


def resume_arguments(work: Path, out: Path) -> list[str]:
    return ["resume", str(out), "--quiet", "--cache", str(work / "cache")]


def prepare(work: Path) -> None:
    """The documents, and for every seed the undisturbed search, its fits and its history. In a process of its own."""
    random = np.random.default_rng(0)
    kinds = ("apple pear plum cherry quince", "iron tin zinc copper nickel", "robin wren finch heron stork")
    lines = [" ".join(random.choice(kinds[i % 3].split(), 12)) for i in range(40)]
    (work / "docs.txt").write_text("\n".join(lines) + "\n")
    evaluate, write = ModelEvaluator.evaluate, api.save_search
    for seed in SEEDS:
        fits: dict[Any, Any] = {}
        history: list[str | None] = []
        out = work / f"reference-{seed}"

        def recorded(self: Any, size: Any, start: Any, trial: int = 0, fits: dict[Any, Any] = fits) -> Any:
            fit = evaluate(self, size, start, trial)
            fits[size, trial, None if start is None else start.size] = fit
            return fit

        def noted(result: Any, folder: Path, history: list[str | None] = history) -> None:
            write(result, folder)
            history.append(state_of(folder))

        ModelEvaluator.evaluate, api.save_search = recorded, noted  # pyright: ignore[reportAttributeAccessIssue]
        try:
            if cli.main(search_arguments(work, out, seed)):
                raise SystemExit("the undisturbed search failed")
        finally:
            ModelEvaluator.evaluate, api.save_search = evaluate, write
        (work / f"reference-{seed}.pickle").write_bytes(pickle.dumps((fits, history)))


@dataclass
class Bench:
    """The undisturbed searches, and a folder to work in."""

    work: Path
    fits: dict[int, dict[Any, Any]] = field(default_factory=dict)
    history: dict[int, list[str]] = field(default_factory=dict)
    made: int = 0

    @classmethod
    def ready(cls, work: Path) -> "Bench":
        """Prepared in another process: this one must start no device, since it forks."""
        command = [sys.executable, str(Path(__file__)), str(work)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        bench = cls(work)
        for seed in SEEDS:
            bench.fits[seed], bench.history[seed] = pickle.loads((work / f"reference-{seed}.pickle").read_bytes())
        return bench

    def new(self) -> Path:
        """The name of a folder that does not exist."""
        self.made += 1
        return self.work / f"trial-{self.made}" / "run"

    def place(self, folder: Path, seed: int = 0) -> int | None:
        """Where in the history a folder is, from 0; −1 without a manifest, None where it is nowhere in it."""
        state = state_of(folder)
        if state is None:
            return -1
        known = self.history[seed]
        return len(known) - 1 - known[::-1].index(state) if state in known else None


def replaying(bench: Bench, arguments: list[str], seed: int = 0, kill_at_write: int | None = None) -> Callable[[], int]:
    """A task: the command line with the fits of the undisturbed search, and pictures of no content.

    kill_at_write: kill the process when it has written the bytes of so many files, the last not yet renamed.
    """

    def fit(self: Any, size: Any, start: Any, trial: int = 0) -> Any:
        time.sleep(REST)
        return bench.fits[seed][size, trial, None if start is None else start.size]

    def picture(path: Path, draw: object) -> None:
        storage.write_bytes(path, b"picture" * 5000)

    def task() -> int:
        ModelEvaluator.evaluate = fit  # pyright: ignore[reportAttributeAccessIssue]
        report._write_picture, report._best_model = picture, lambda result: None  # pyright: ignore
        report.topics_table = lambda fitted: pd.DataFrame()  # pyright: ignore[reportAttributeAccessIssue]
        heldout.held_out_comparison = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue]
        if kill_at_write is not None:
            kill_after(kill_at_write)
        return cli.main([*arguments, "--no-cache"])

    return task


def kill_after(writes: int) -> None:
    fsync, seen = os.fsync, [0]

    def counted(handle: int) -> None:
        fsync(handle)
        seen[0] += 1
        if seen[0] == writes:
            os.kill(os.getpid(), signal.SIGKILL)

    storage.os.fsync = counted


# ── kills ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Kills:
    """Rows of kills, by what was killed."""

    search: Row = field(default_factory=lambda: Row("kill during a search"))
    resume: Row = field(default_factory=lambda: Row("kill during a resumption"))
    again: Row = field(default_factory=lambda: Row("kill during the resumption of a resumption"))
    report: Row = field(default_factory=lambda: Row("kill during a report"))
    real: Row = field(default_factory=lambda: Row("kill of a process of the command line, from its start on"))

    @property
    def rows(self) -> list[Row]:
        return [self.search, self.resume, self.again, self.report, self.real]


def killed_searches(bench: Bench, random: np.random.Generator, kills: int, rows: Kills) -> None:
    """Until so many were killed: a search, killed, resumed, killed, resumed, killed, resumed, reported, killed, …"""
    folder = bench.new()
    began = time.monotonic()
    ended = Child(replaying(bench, search_arguments(bench.work, folder, 0)), folder.parent / "logs").end()
    whole = time.monotonic() - began
    if ended.status != 0 or bench.place(folder) != len(bench.history[0]) - 1:
        rows.search.note("wrong", f"a replayed search that nobody killed: {ended}")
        return
    writes = 3 * len(bench.history[0])
    while sum(row.tried for row in rows.rows[:4]) < kills:
        one_search(bench, random, whole, writes, rows)


def one_search(bench: Bench, random: np.random.Generator, whole: float, writes: int, rows: Kills) -> None:
    folder, seen = bench.new(), -1
    for leg in range(LEGS):
        row = (rows.search, rows.resume, rows.again)[leg]
        begin = search_arguments(bench.work, folder, 0), resume_arguments(bench.work, folder)
        arguments = begin[0] if seen < 0 else begin[1]
        if random.random() < 0.5:
            task = replaying(bench, arguments, 0, int(random.integers(1, writes // (leg + 1))))
            ended = Child(task, folder.parent / "logs").end()
        else:
            task = replaying(bench, arguments)
            ended = Child(task, folder.parent / "logs").kill_at(random.uniform(0, whole))
        seen = looked_at(bench, folder, ended, seen, row)
    finish(bench, folder, seen, rows.again, replaying)
    began = time.monotonic()
    again = ["report", str(folder)]
    if random.random() < 0.5:
        ended = Child(replaying(bench, again, 0, int(random.integers(1, 7))), folder.parent / "logs").end()
    else:
        ended = Child(replaying(bench, again), folder.parent / "logs").kill_at(random.uniform(0, whole / 2))
    looked_at(bench, folder, ended, len(bench.history[0]) - 1, rows.report)
    ended = Child(replaying(bench, again), folder.parent / "logs").end()
    there = [name for name in REPORTED if not (folder / "report" / name).is_file()]
    if ended.status != 0 or there or time.monotonic() - began > LIMIT:
        rows.report.note("unexplained", f"{there} missing from the report: {ended}")
    shutil.rmtree(folder.parent)


def looked_at(bench: Bench, folder: Path, ended: Ended, seen: int, row: Row) -> int:
    """Count the trial, and compare the folder with the history. Returns its place there, −1 where it holds nothing."""
    if ended.status == -signal.SIGKILL:
        row.tried += 1
    elif not ended.explained:
        row.note("unexplained", str(ended))
    place = bench.place(folder)
    if place is None:
        row.note("wrong", f"a state that no undisturbed search had: {folder}")
        return seen
    if place < seen:
        row.note("lost", f"from state {seen} to {place}: {folder}")
    if place < 0:
        refused = Child(replaying(bench, resume_arguments(bench.work, folder)), folder.parent / "logs").end()
        if refused.status != 2 or not refused.explained:
            row.note("unexplained", f"a folder without a first state: {refused}")
        shutil.rmtree(folder, ignore_errors=True)
    else:
        loaded = Child(lambda: 0 * len(lv.load(folder).visits), folder.parent / "logs").end()
        if loaded.status != 0:
            row.note("lost", f"cannot be loaded: {loaded}")
    return place


def finish(bench: Bench, folder: Path, seen: int, row: Row, running: Callable[..., Callable[[], int]]) -> None:
    """To the end, which must be that of the undisturbed search."""
    begin = search_arguments(bench.work, folder, 0), resume_arguments(bench.work, folder)
    ended = Child(running(bench, begin[0] if seen < 0 else begin[1]), folder.parent / "logs").end()
    if ended.status != 0:
        row.note("lost", f"cannot be gone on with: {ended}")
    elif bench.place(folder) != len(bench.history[0]) - 1:
        row.note("wrong", f"another end than the undisturbed one: {folder}")
    elif list(folder.rglob("*.tmp")):
        row.note("unexplained", f"left {list(folder.rglob('*.tmp'))}")


def real_kills(bench: Bench, random: np.random.Generator, kills: int, rows: Kills) -> None:
    """Processes of the command line, killed anywhere between their first import and their last picture."""

    def run(arguments: list[str], limit: float) -> Ended:
        command = [sys.executable, "-m", "lvsearch", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
        return Ended(process.returncode, output, errors)

    began, folder = time.monotonic(), bench.new()
    run(search_arguments(bench.work, folder, 0), 10 * LIMIT)
    whole = time.monotonic() - began
    while rows.real.tried < kills:
        folder, seen = bench.new(), -1
        for _ in range(LEGS):
            begin = search_arguments(bench.work, folder, 0), resume_arguments(bench.work, folder)
            ended = run(begin[0] if seen < 0 else begin[1], random.uniform(0, whole))
            seen = looked_at(bench, folder, ended, seen, rows.real)
        ended = run((begin[0] if seen < 0 else begin[1]), 10 * LIMIT)
        if ended.status != 0:
            rows.real.note("lost", f"cannot be gone on with: {ended}")
        elif bench.place(folder) != len(bench.history[0]) - 1:
            rows.real.note("wrong", f"another end than the undisturbed one: {folder}")
        shutil.rmtree(folder.parent)


# ── full and read-only disks ────────────────────────────────────────────────────────────────────────────────────────


def full_disks(bench: Bench, trials: int, row: Row) -> None:
    """Every write from the nth on fails, for n = 1, 2, …; then there is room again."""
    for number in range(1, trials + 1):
        folder = bench.new()

        def task(number: int = number, folder: Path = folder) -> int:
            fsync, seen = os.fsync, [0]

            def full(handle: int) -> None:
                seen[0] += 1
                if seen[0] >= number:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
                fsync(handle)

            storage.os.fsync = full
            return replaying(bench, search_arguments(bench.work, folder, 0))()

        ended = Child(task, folder.parent / "logs").end()
        after_failure(bench, folder, ended, "No space left", row)


def mounted(disk: Path, options: str) -> bool:
    """Whether this process may mount a file system in memory, and did."""
    command = ["mount", "-t", "tmpfs", "-o", options, "lvsearch", str(disk)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def small_disks(bench: Bench, kilobytes: list[int], row: Row) -> None:
    """File systems in memory, too small for the whole search; then they grow. Needs the right to mount."""
    for size in kilobytes:
        folder = bench.new()
        folder.parent.mkdir(parents=True)
        disk, logs = folder.parent / "disk", bench.work / "logs"
        disk.mkdir()
        if not mounted(disk, f"size={size}k"):
            return
        try:
            run = disk / "run"
            ended = Child(replaying(bench, search_arguments(bench.work, run, 0)), logs).end()
            subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
            after_failure(bench, run, ended, "No space left", row)
        finally:
            subprocess.run(["umount", disk], check=True)


def read_only_disks(bench: Bench, trials: int, row: Row) -> None:
    """A folder whose file system is read-only: nothing can be written, everything can be read. Needs to mount."""
    for number in range(trials):
        folder = bench.new()
        disk, logs = folder.parent / "disk", bench.work / "logs"
        disk.mkdir(parents=True)
        if not mounted(disk, "size=16m"):
            return
        try:
            run, new = disk / "run", disk / "new"
            Child(replaying(bench, search_arguments(bench.work, run, 0), 0, 2 + 3 * number), logs).end()
            before = bench.place(run)
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            asked = resume_arguments(bench.work, run), search_arguments(bench.work, new, 0), ["report", str(run)]
            for arguments in asked[: 3 if before and before > 0 else 2]:
                ended = Child(replaying(bench, arguments), logs).end()
                row.tried += 1
                if ended.status != 2 or not ended.explained:
                    row.note("unexplained", f"{arguments[0]}: {ended}")
            if bench.place(run) != before:
                row.note("lost", "the folder changed")
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            if before == -1:
                shutil.rmtree(run)  # as the message says: its very first write was cut off
            finish(bench, run, -1 if before is None else before, row, replaying)
        finally:
            subprocess.run(["umount", disk], check=True)


def after_failure(bench: Bench, folder: Path, ended: Ended, said: str, row: Row) -> None:
    row.tried += 1
    if ended.status not in (0, 2) or (ended.status == 2 and said not in ended.errors) or not ended.explained:
        row.note("unexplained", str(ended))
    place = bench.place(folder)
    if place is None:
        row.note("wrong", f"a state that no undisturbed search had: {folder}")
    elif place < 0:
        shutil.rmtree(folder, ignore_errors=True)
    if place is not None:
        finish(bench, folder, place, row, replaying)


# ── pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def pairs(bench: Bench, trials: int, random: np.random.Generator, row: Row) -> None:
    """Two searches of different seeds into one folder, a moment apart, and a process that loads it again and again."""
    for _ in range(trials):
        folder = bench.new()
        logs = [folder.parent / name for name in ("first", "second", "reader")]

        def read(folder: Path = folder) -> int:
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                try:
                    lv.load(folder)
                except FileNotFoundError:  # not begun, or its first state is just being written
                    time.sleep(0.002)
            return 0

        first = Child(replaying(bench, search_arguments(bench.work, folder, 0)), logs[0])
        reader = Child(read, logs[2])
        time.sleep(random.uniform(0, 0.3) * random.integers(2))
        second = Child(replaying(bench, search_arguments(bench.work, folder, 1), 1), logs[1])
        ends = first.end(), second.end()
        row.tried += 1
        won = [seed for seed, ended in enumerate(ends) if ended.status == 0]
        if len(won) != 1 or not all(ended.explained for ended in ends):
            row.note("unexplained", str(ends))
        elif bench.place(folder, won[0]) != len(bench.history[won[0]]) - 1:
            row.note("wrong", f"not the search of seed {won[0]}: {folder}")
        seen = reader.end()
        if seen.status != 0:
            row.note("unexplained", f"while it was written: {seen}")
        shutil.rmtree(folder.parent)


if __name__ == "__main__":
    import fault_folders

    prepare(Path(sys.argv[1]))
    fault_folders.prepare(Path(sys.argv[1]))
