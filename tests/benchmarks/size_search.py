"""What does a search over every K = 1 … 60 cost beside one fit at K = 60, and are its fits as good as cold ones?

    LVSEARCH_DATA=… python tests/benchmarks/size_search.py [--corpus cora] [--max-size 60] [--sizes 5 20 60]

The mean-field bound, every size visited once (`exhaustive=True, starts=1`); a cold fit is `lv.fit` at one size, from
scratch. Three processes, one after another, with one folder of compiled programs: the first fills it, the second times
three cold fits of each of `--sizes` (seeds 1, 2, 3; the first at the largest size comes first, so it alone traces), the
third times the search. The bars: the search takes at most 3 × one cold fit at the largest size, and at each of
`--sizes` its bound is at least the median of the three.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from corpora import corpus_named

import lvsearch as lv

BAR = 3.0


def search(corpus: lv.Corpus, max_size: int) -> dict[str, float]:
    """Seconds of the search, and the bound of every size in nats."""
    began = time.perf_counter()
    result = lv.search(
        lv.models.LDA(),
        corpus,
        prior=lv.sizes.Poisson(10),
        evidence="bound",
        max_size=max_size,
        exhaustive=True,
        starts=1,
        seed=0,
        progress=False,
    )
    seconds = time.perf_counter() - began
    bounds = {str(visit.size[0]): visit.evidence.lower for visit in result.visits}
    trials = sum(len(visit.trials) for visit in result.visits)
    return {"seconds": seconds, "fits": trials, **bounds}


def cold_fits(corpus: lv.Corpus, sizes: list[int]) -> dict[str, list[list[float]]]:
    """size -> [seconds, bound in nats] of three fits from scratch; the largest size first."""
    found = {}
    for size in sorted(sizes, reverse=True):
        found[str(size)] = []
        for seed in (1, 2, 3):
            began = time.perf_counter()
            model = lv.fit(lv.models.LDA(), corpus, size=size, seed=seed)
            found[str(size)].append([time.perf_counter() - began, model.evidence.lower])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="cora")
    parser.add_argument("--max-size", type=int, default=60)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 20, 60])
    parser.add_argument("--step", choices=["search", "fits"], help="for the processes that this program starts")
    options = parser.parse_args()
    if options.step:
        corpus = corpus_named(options.corpus)
        found = search(corpus, options.max_size) if options.step == "search" else cold_fits(corpus, options.sizes)
        print(json.dumps(found))
        return

    def run(step: str, folder: str) -> dict:
        command = [sys.executable, __file__, "--corpus", options.corpus, "--max-size", str(options.max_size)]
        command += ["--sizes", *map(str, options.sizes), "--step", step]
        cache = {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **cache})
        return json.loads(done.stdout.splitlines()[-1])

    with tempfile.TemporaryDirectory() as folder:
        cold = run("search", folder)
        print(
            f"search over 1 … {options.max_size}, cache cold: {cold['seconds']:.1f} s, {cold['fits']} fits", flush=True
        )
        run("fits", folder)
        fits = run("fits", folder)
        warm = run("search", folder)
    largest = fits[str(max(options.sizes))]
    first, compiled = largest[0][0], statistics.median(seconds for seconds, _ in largest[1:])
    print(f"search, cache warm:              {warm['seconds']:8.2f} s, {warm['fits']} fits")
    print(f"one cold fit at {max(options.sizes)}, cache warm: {first:8.2f} s   (compiled: {compiled:.2f} s)")
    ratio = warm["seconds"] / first
    print(f"ratio {ratio:.2f}; bar {BAR:g}: {_verdict(ratio <= BAR)}")
    print(f"ratio to the compiled fit {warm['seconds'] / compiled:.2f}")
    for size in options.sizes:
        bounds = sorted(bound for _, bound in fits[str(size)])
        gain = warm[str(size)] - bounds[1]
        print(
            f"K = {size:3d}: bound {warm[str(size)]:,.1f}; three cold fits {', '.join(f'{b:,.1f}' for b in bounds)}; "
            f"over their median {gain:+,.1f} nats: {_verdict(gain >= 0)}"
        )


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    main()
