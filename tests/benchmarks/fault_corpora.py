"""Damaged corpora on disk, special files in the place of files, threads that search at once, and hostile text.

A damaged corpus is refused, naming its folder, or is what it was: never another one unsaid. A pipe, a device, a link or
a folder where a file is expected is refused at once. Searches in threads of one process find what each finds alone. A
report obeys no text: no cell of a table begins a formula, and no line of the summary holds what a terminal obeys.
"""

import csv
import os
import shutil
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fault_folders import KINDS, damage
from fault_trials import READING, Row, refusal, trials_in_children, within

import lvsearch as lv
from lvsearch.files.storage import CorruptFolderError
from lvsearch.reports import report

CORPUS = "corpus"
THREADS = 4
PIECES = (
    *(
        "=1+1",
        "＝cmd",
        "+x",
        "-x",
        "@SUM(1)",
        "\r",
        "\n",
        "\r\n",
        "\t",
        "\x1b[31m",
        "\x00",
        "\u202e",
        "\u2028",
        "\x9b2J",
    ),
    *(
        "<script>alert(1)</script>",
        "</style>",
        "javascript:",
        "](http://x)",
        "|",
        "`",
        "$x$",
        "&lt;",
        '"',
        "'",
        ",",
        ";",
    ),
    *("word", "größe", "\ud800", " ", "\xa0", "\u3000", "－1", "﹣2"),
)


def made_up() -> lv.Corpus:
    """Few documents with names, classes and metadata of every kind."""
    random = np.random.default_rng(5)
    counts = random.poisson(0.6, (24, 11)) + np.eye(24, 11, dtype=int)
    metadata = pd.DataFrame(
        {
            "year": range(1990, 2014),
            "score": random.normal(size=24),
            "known": random.random(24) < 0.5,
            "remark": [None if row % 4 == 0 else f"größe {row}" for row in range(24)],
        }
    )
    names = [f"paper {row}" for row in range(24)]
    return lv.Corpus.from_matrix(
        counts, [f"wört{word}" for word in range(11)], document_names=names, document_labels=names, metadata=metadata
    )


def content(corpus: lv.Corpus) -> tuple[Any, ...]:
    """Everything that is read of a corpus."""
    metadata = corpus.metadata
    return (
        corpus.counts[np.arange(len(corpus))].toarray().tolist(),
        corpus.vocabulary,
        tuple(corpus.document_names or ()),
        tuple(corpus.document_labels or ()),
        repr(None if metadata is None else metadata.to_dict("list")),
    )


def damaged_corpora(work: Path, seed: int, trials: int, row: Row) -> None:
    """Copies of a corpus, damaged once or twice, and opened: with checksums, and as one too large for them is."""
    kept = made_up()
    kept.save(work / CORPUS)
    whole = content(kept)

    def trial(number: int) -> tuple[str, str] | None:
        random = np.random.default_rng([seed, number, 3])
        folder, verify = work / f"corpus-{number}", (None, False)[number % 2]
        shutil.copytree(work / CORPUS, folder)
        try:
            what = [damage(folder, work / CORPUS, random) for _ in range(random.integers(1, 3))]
            with within(READING):
                try:
                    opened = lv.Corpus.open(folder, verify=verify)
                    equal, read = opened == kept, content(opened)
                except BaseException as error:
                    wrong = refusal(error)
                    return None if wrong is None else ("unexplained", f"{number} {what}: {wrong}")
            if verify is None:
                return None if read == whole else ("wrong", f"{number} {what}: opened")
            return None if equal == (read == whole) else ("wrong", f"{number} {what}: equal is {equal}")
        finally:
            shutil.rmtree(folder)

    trials_in_children(trial, trials, work / "logs-corpora", row)


# ── special files ───────────────────────────────────────────────────────────────────────────────────────────────────


def a_socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "folder": Path.mkdir,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link out of the folder": lambda path: path.symlink_to("/etc/hostname"),
    "socket": a_socket,
}


def special_files(work: Path, seed: int, trials: int, row: Row) -> None:
    """One file of a folder of every kind, the lock among them, is something else."""
    made_up().save(work / "special-corpus")
    kinds = (*((kind.name, kind.load) for kind in KINDS), ("special-corpus", lv.Corpus.open))

    def trial(number: int) -> tuple[str, str] | None:
        random = np.random.default_rng([seed, number, 4])
        name, load = kinds[number % len(kinds)]
        what = list(SPECIAL)[random.integers(len(SPECIAL))]
        folder = work / f"special-{number}"
        shutil.copytree(work / name, folder)
        files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
        path = folder / files[random.integers(len(files))]
        path.unlink()
        SPECIAL[what](path)
        where = f"{number} {name}: {path.name} a {what}"
        try:
            with within(READING):
                load(folder)
                if name == "reference-0":
                    lv.resume(folder, seconds=0, progress=False, report=False)
        except CorruptFolderError:
            return None
        except BaseException as error:
            wrong = refusal(error)
            return None if wrong is None else ("unexplained", f"{where}: {wrong}")
        finally:
            shutil.rmtree(folder)
        unread = path.name == ".lock" or "report" in path.parts
        return None if unread else ("wrong", f"{where}: loaded")

    trials_in_children(trial, trials, work / "logs-special", row)


# ── threads ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def searched(seed: int, out: Path | None) -> list[tuple[tuple[int, ...], float]]:
    found = lv.search(
        lv.models.LDA(),
        made_up(),
        prior=lv.sizes.Poisson(2),
        evidence="bound",
        max_size=3,
        starts=1,
        seed=seed,
        out=out,
        report=False,
        progress=False,
    )
    return [(visit.size, visit.evidence.lower) for visit in found.visits]


def threads(work: Path, seed: int, trials: int, row: Row) -> None:
    """Searches of different seeds at once, each in a thread and a folder of its own: the bits of each alone."""

    def trial(number: int) -> tuple[str, str] | None:
        seeds = [1000 * seed + THREADS * number + thread for thread in range(THREADS)]
        folders = [work / f"thread-{each}" for each in seeds]
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                together = list(pool.map(searched, seeds, folders))
            alone = [searched(each, None) for each in seeds]
            stored = [[(v.size, v.evidence.lower) for v in lv.load(folder).visits] for folder in folders]
        except BaseException as error:
            return "unexplained", f"{number}: {type(error).__name__}: {error}"
        return None if together == alone == stored else ("wrong", f"{number}: {together}, {stored}, alone {alone}")

    trials_in_children(trial, trials, work / "logs-threads", row, each=5)


# ── hostile text ────────────────────────────────────────────────────────────────────────────────────────────────────


def hostile(random: np.random.Generator, least: int = 1) -> str:
    return "".join(PIECES[place] for place in random.integers(len(PIECES), size=random.integers(least, 5)))


def adversarial_reports(work: Path, seed: int, trials: int, row: Row) -> None:
    """The report of a search whose words, names and classes are hostile; pictures are left out."""

    def trial(number: int) -> tuple[str, str] | None:
        random = np.random.default_rng([seed, number, 5])
        report._write_picture = lambda *_, **__: None  # pyright: ignore[reportAttributeAccessIssue]
        result = lv.load(work / "reference-0")
        data = result.training
        assert isinstance(data, lv.Corpus)
        words = tuple(f"{hostile(random)}{place}" for place in range(data.n_terms))
        labels = tuple(hostile(random, 0) for _ in range(len(data)))
        other = replace(data, vocabulary=words, document_labels=labels, document_names=labels, notes=words[:5])
        folder = work / f"hostile-{number}"
        try:
            report.write_report(replace(result, training=other, held_out=None), folder)
            found = obeyed(folder)
            return None if found is None else ("wrong", f"{number}: {found}")
        except BaseException as error:
            return "unexplained", f"{number}: {type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    trials_in_children(trial, trials, work / "logs-hostile", row, each=10)


def obeyed(folder: Path) -> str | None:
    """What somebody's program would obey in a report; None where there is nothing."""
    for path in folder.glob("*.csv"):
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            for cells in csv.reader(file):
                for cell in cells:
                    lines = [line.strip() for line in cell.replace("\t", "\n").splitlines()]
                    if any(line[:1] in tuple("=@＝＋－＠﹦﹢﹣﹫") for line in lines if line):
                        return f"{path.name}: the cell {cell!r}"
    summary = (folder / "summary.md").read_text(encoding="utf-8", errors="surrogateescape")
    seen = {sign for sign in summary if not sign.isprintable()} - {"\n"}
    if seen or "](http:" in summary.replace("\\]", ""):
        return f"summary.md: {seen or 'a link'}"
    page = (folder / "index.html").read_text(encoding="utf-8", errors="surrogateescape")
    return "index.html: a script" if "<script>alert" in page else None
