"""Every claim of this project by one command: a page with our figure, the figure on record, the bar, and the machine.

    python tests/benchmarks/reproduce.py quick [--out claims.md]    # small problems, ten minutes on two cores at most
    python tests/benchmarks/reproduce.py full  [--out claims.md]    # the problems of the figures on record: days
    python tests/benchmarks/reproduce.py quick --list               # what would be run
    python tests/benchmarks/reproduce.py full --only growth.py memory.py

The rows are in `claims.py`. Each is one of the scripts of this folder, in a process of its own that is ended when its
time is over. The page is written after every row, so that a run can be cut off. Run it alone on the machine.

A quick figure is of a smaller problem than the figure beside it: it shows that the claim can be checked and how, not
that the figure is the same. A full figure is of the same problem.
"""

import argparse
import importlib.util
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from claims import CLAIMS, Claim

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = ("lvsearch", "jax", "jaxlib", "equinox", "numpyro", "numpy", "scipy", "scikit-learn", "gensim", "tomotopy")
MOST_LINES = 12
"""Lines of one script's output that the page shows."""


@dataclass(frozen=True)
class Row:
    """What became of one claim: `state` in words, the lines that hold the figure, and the seconds that it took."""

    claim: Claim
    command: str
    state: str
    figure: tuple[str, ...] = ()
    seconds: float = 0.0


def missing(needs: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return in words what a claim needs and is not there.

    needs: as `Claim.needs`.
    environment: variables, of which LVSEARCH_DATA names the folder of corpora.
    """
    absent = []
    for need in needs:
        kind, _, name = need.partition(":")
        if kind == "package" and importlib.util.find_spec(name) is None:
            absent.append(f"the package {name}")
        if kind == "data" and not (Path(environment.get("LVSEARCH_DATA", "/nowhere")) / name).is_dir():
            absent.append(f"the corpus {name} in LVSEARCH_DATA")
    return absent


def read_figure(output: str, pattern: str) -> tuple[str, ...]:
    """Return the lines of a script's output that hold its answer, the last ones if there are too many.

    pattern: a regular expression, as `Claim.figure`.
    """
    found = [line.strip() for line in output.splitlines() if re.search(pattern, line)]
    return tuple(found[-MOST_LINES:])


def plan(is_full: bool, only: Sequence[str] = (), patience: float = 1.0) -> list[tuple[Claim, tuple[str, ...], float]]:
    """Return (claim, arguments of its script, seconds it may take) of every row, in their order.

    is_full: whether the problems are those of the figures on record.
    only: names of scripts; all if there are none.
    patience: a factor of every limit, for slow or busy machines.

    Raises ValueError for a name that is no script of any claim.
    """
    unknown = set(only) - {claim.script for claim in CLAIMS}
    if unknown:
        raise ValueError(f"got {', '.join(sorted(unknown))}, expected scripts of claims.py, such as {CLAIMS[0].script}")
    rows = []
    for claim in CLAIMS:
        if only and claim.script not in only:
            continue
        if is_full:
            rows.append((claim, claim.full, patience * 60 * claim.full_minutes))
        elif claim.quick is not None:
            rows.append((claim, claim.quick, patience * claim.quick_seconds))
    return rows


def run_script(command: Sequence[str], seconds: float, environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Run a command, and end it and all that it started when its time is over.

    Returns (exit status, or None if its time was over; what it printed until then).
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=dict(environment), start_new_session=True
        )
        status: int | None = None
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if status is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        file.seek(0)
        return status, file.read()


def measure(claim: Claim, arguments: Sequence[str], seconds: float, needs: Sequence[str]) -> Row:
    """Run one claim's script and read its figure."""
    shown = f"{claim.script} {' '.join(arguments)}".strip()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    absent = missing(needs, environment)
    if absent:
        return Row(claim, shown, f"not run: {' and '.join(absent)} missing")
    began = time.perf_counter()
    status, output = run_script([sys.executable, str(HERE / claim.script), *arguments], seconds, environment)
    took = time.perf_counter() - began
    figure = read_figure(output, claim.figure)
    if status is None:
        return Row(claim, shown, f"ended after {seconds:.0f} s, its limit", figure, took)
    if status:
        return Row(claim, shown, f"failed with exit status {status}", tuple(output.splitlines()[-3:]), took)
    return Row(claim, shown, "done" if figure else f"done, but no line matches {claim.figure!r}", figure, took)


def about_the_machine() -> list[tuple[str, str]]:
    """Return (what, value) of the machine, the versions and the state of the checkout."""
    cpu = platform.processor() or "unknown"
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        names = re.findall(r"^model name\s*: (.+)$", facts.read_text(), re.MULTILINE)
        cpu = names[0] if names else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES if importlib.util.find_spec(module_of(name))]
    return [
        ("when", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("machine", f"{cpu}, {cores} of {os.cpu_count()} cores, {memory:.0f} GiB, load {os.getloadavg()[0]:.1f}"),
        ("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}"),
        ("versions", ", ".join(versions)),
        ("commit", commit()),
    ]


def module_of(package: str) -> str:
    """Return the name that a package is imported by."""
    return {"scikit-learn": "sklearn"}.get(package, package)


def commit() -> str:
    """Return the commit of the checkout, and whether files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no git checkout"


def cell(text: str) -> str:
    """Return text as one cell of a Markdown table."""
    return text.strip("| ").replace("|", "·").replace("\n", " ") or "–"


def page(rows: Sequence[Row], facts: Sequence[tuple[str, str]], is_full: bool) -> str:
    """Return the page, Markdown."""
    size = (
        "the problems of the figures on record" if is_full else "smaller problems than those of the figures on record"
    )
    done = sum(row.state == "done" for row in rows)
    lines = ["# What is claimed, measured here", "", f"{done} of {len(rows)} rows were measured, on {size}.", ""]
    lines += ["| | |", "|---|---|", *(f"| {what} | {cell(value)} |" for what, value in facts), ""]
    lines += ["| question | here | on record | bar | seconds | state |", "|---|---|---|---|---|---|"]
    for row in rows:
        here = "<br>".join(cell(line) for line in row.figure) or "–"
        parts = [row.claim.question, here, row.claim.documented, row.claim.bar]
        cells = [parts[0], here, cell(parts[2]), cell(parts[3]), f"{row.seconds:.0f}", cell(row.state)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Commands, in `tests/benchmarks`:", "", *(f"    python {row.command}" for row in rows), ""]
    return "\n".join(lines)


def main() -> None:
    """Run the rows in their order, and write the page after each."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("which", choices=("quick", "full"))
    parser.add_argument("--out", type=Path, default=Path("claims.md"))
    parser.add_argument("--only", nargs="*", default=[], help="names of scripts")
    parser.add_argument("--minutes", type=float, help="after which no row goes on: 10 for quick, no limit for full")
    parser.add_argument(
        "--patience", type=float, default=1.0, help="a factor of all limits, for a slow or busy machine"
    )
    parser.add_argument("--list", action="store_true", help="print the commands and their limits, and run nothing")
    asked = parser.parse_args()
    if asked.out.is_dir():
        parser.error(f"got --out {asked.out}, a folder; expected the name of the file to write")
    is_full = asked.which == "full"
    rows_to_run = plan(is_full, asked.only, asked.patience)
    if asked.list:
        for claim, arguments, seconds in rows_to_run:
            print(f"{seconds:6.0f} s at most: python {claim.script} {' '.join(arguments)}")
        return
    minutes = asked.minutes if asked.minutes is not None else float("inf") if is_full else 10.0 * asked.patience
    facts, rows, ends = about_the_machine(), [], time.perf_counter() + 60 * minutes
    for claim, arguments, limit in rows_to_run:
        left = ends - time.perf_counter()
        if left <= 0:
            rows.append(Row(claim, f"{claim.script} {' '.join(arguments)}", f"not run: {minutes:g} minutes were over"))
        else:
            needs = claim.needs + (claim.full_needs if is_full else ())
            rows.append(measure(claim, arguments, min(limit, left), needs))
        print(f"{rows[-1].command}: {rows[-1].state}, {rows[-1].seconds:.0f} s", flush=True)
        asked.out.write_text(page(rows, facts, is_full), encoding="utf-8")
    print(f"written: {asked.out}")


if __name__ == "__main__":
    main()
