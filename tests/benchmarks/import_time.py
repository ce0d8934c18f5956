"""How much longer does `import lvsearch` take than `import jax`? The bar: under 1 s.

    python tests/benchmarks/import_time.py [--runs 9]

Fresh interpreters, the two statements in turn; medians over the runs, after one run each that fills the disk cache.
"""

import argparse
import statistics
import subprocess
import sys

TIMED = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"
MODULES = ("jax", "lvsearch")


def seconds(module: str) -> float:
    """One fresh interpreter's time for the import alone (lvsearch's includes JAX's)."""
    done = subprocess.run([sys.executable, "-c", TIMED.format(module)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    for module in MODULES:
        seconds(module)
    measured = [[seconds(module) for module in MODULES] for _ in range(runs)]
    for module, times in zip(MODULES, zip(*measured, strict=True), strict=True):
        print(
            f"import {module:9s} median {statistics.median(times):.3f} s  (min {min(times):.3f}, max {max(times):.3f})"
        )
    more = statistics.median(ours - theirs for theirs, ours in measured)
    print(f"lvsearch over jax: median {more:.3f} s; bar 1 s: {'met' if more < 1 else 'MISSED'}")


if __name__ == "__main__":
    main()
