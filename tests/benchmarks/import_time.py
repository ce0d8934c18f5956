"""How long does `import lvsearch` take beside `import jax`, and how long its first use? The bar: 1.2 times as long.

    python tests/benchmarks/import_time.py [--runs 9]

Fresh interpreters, the statements in turn; medians over the runs, after one run each that fills the disk cache. Public
names of lvsearch are imported when they are first used, so the third statement uses one.
"""

import argparse
import statistics
import subprocess
import sys

TIMED = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
STATEMENTS = ("import jax", "import lvsearch", "import lvsearch; lvsearch.search")


def seconds(statement: str) -> float:
    """One fresh interpreter's time for the statement alone."""
    timed = [sys.executable, "-c", TIMED.format(statement)]
    return float(subprocess.run(timed, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    for statement in STATEMENTS:
        seconds(statement)
    measured = [[seconds(statement) for statement in STATEMENTS] for _ in range(runs)]
    for statement, times in zip(STATEMENTS, zip(*measured, strict=True), strict=True):
        print(f"{statement:33s} median {statistics.median(times):.3f} s  (min {min(times):.3f}, max {max(times):.3f})")
    ratio = statistics.median(ours / jax for jax, ours, _ in measured)
    print(f"lvsearch over jax: median {ratio:.2f} times; bar 1.2 times: {'met' if ratio < 1.2 else 'MISSED'}")


if __name__ == "__main__":
    main()
