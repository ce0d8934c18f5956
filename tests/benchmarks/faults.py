"""What gets lost when things go wrong? Kills, damaged and crafted folders, full and read-only disks, mutated files;
corpora on disk, special files, threads that search at once, hostile text.

    python tests/benchmarks/faults.py [--kills 120] [--real 12] [--damaged 1000] [--crafted 1000] [--files 6000]
                                      [--disks 30] [--pairs 30] [--corpora 1000] [--special 300] [--threads 10]
                                      [--hostile 60] [--seed 0] [--only files]

Prints a table: what was tried, and how often something finished was lost, a result was wrong and did not say so, or an
end was not explained in one line (a traceback, a hang). All three are to be 0. Small disks and read-only ones need the
right to mount, and are left out, and said so, where there is none. Exits with 1 unless all are 0.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
from fault_corpora import adversarial_reports, damaged_corpora, special_files, threads
from fault_folders import crafted, damaged
from fault_inputs import mutated_files
from fault_kills import Bench, Kills, full_disks, killed_searches, pairs, read_only_disks, real_kills, small_disks
from fault_trials import Row, table

PARTS = ("kills", "real", "folders", "disks", "pairs", "corpora", "special", "threads", "hostile", "files")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in {
        "kills": 120, "real": 12, "damaged": 1000, "crafted": 1000, "files": 6000, "disks": 30, "pairs": 30,
        "corpora": 1000, "special": 300, "threads": 10, "hostile": 60, "seed": 0,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    return parser.parse_args()


def campaign(asked: argparse.Namespace, work: Path) -> list[Row]:
    """Every part that is asked for; a row each."""
    chosen = asked.only or PARTS
    random = np.random.default_rng(asked.seed)
    rows: list[Row] = []
    if set(chosen) - {"files"}:
        bench = Bench.ready(work)
        kills = Kills()
        if "kills" in chosen:
            killed_searches(bench, random, asked.kills, kills)
            rows += kills.rows[:4]
            said(rows)
        if "real" in chosen:
            real_kills(bench, random, asked.real, kills)
            rows.append(kills.real)
            said(rows)
        if "folders" in chosen:
            rows += [Row("damaged folder"), Row("crafted folder, sound checksums")]
            damaged(work, asked.seed, asked.damaged, rows[-2])
            crafted(work, asked.seed, asked.crafted, rows[-1])
            said(rows)
        if "disks" in chosen:
            rows += [
                Row("disk full from the nth write on"),
                Row("disk too small (mounted)"),
                Row("disk read-only (mounted)"),
            ]
            full_disks(bench, asked.disks, rows[-3])
            small_disks(bench, [8 * (i + 1) for i in range(asked.disks // 2)], rows[-2])
            read_only_disks(bench, asked.disks // 3, rows[-1])
            said(rows)
        if "pairs" in chosen:
            rows.append(Row("two searches and a reader in one folder"))
            pairs(bench, asked.pairs, random, rows[-1])
            said(rows)
        for part, name, trial, trials in (
            ("corpora", "damaged corpus on disk", damaged_corpora, asked.corpora),
            ("special", "special file in the place of a file", special_files, asked.special),
            ("threads", "threads that search at once", threads, asked.threads),
            ("hostile", "hostile text in a report", adversarial_reports, asked.hostile),
        ):
            if part in chosen:
                rows.append(Row(name))
                trial(work, asked.seed, trials, rows[-1])
                said(rows)
    if "files" in chosen:
        rows += mutated_files(work, asked.seed, asked.files)
    return rows


def said(rows: list[Row]) -> None:
    print(f"# {rows[-1].name}: {rows[-1].tried} tried, {sum(row.failed for row in rows)} failures so far", flush=True)


def main() -> int:
    asked, began = options(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lvsearch-faults-") as work:
        rows = campaign(asked, Path(work))
    for row in rows:
        for note in row.notes:
            print(f"\n{note}")
    seconds, load = time.monotonic() - began, os.getloadavg()[2]
    print(f"\n{table(rows)}\n\n{seconds:,.0f} s; load of the machine over a quarter of an hour {load:.1f}")
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
