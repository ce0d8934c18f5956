"""How long is the first fit of a process, with nothing compiled yet and with what an earlier process compiled?

    python tests/benchmarks/first_call.py [--models LDA HDP …]
    python tests/benchmarks/first_call.py --searches [iris galaxy …]

Every row is two processes, one after another, with a folder of compiled programs that is empty at first: seconds
of the processor, of all threads, in the first `lv.fit` on some dozens of units, and in the second fit of the same
process, which compiles nothing. Imports are before all of them.

With `--searches` a row is the first `lv.search` of a process, by chains over partitions, on a data set of dpmix or on
iris (from scikit-learn), under priors with hyper-priors (`weak`) and under one of fixed numbers (`scaled_to`).
"""

import argparse
import os
import subprocess
import sys
import tempfile

CHILD = """
import time
import numpy as np
import lvsearch as lv
m, random = lv.models, np.random.default_rng(0)
rows = random.normal(0, 1, (60, 3)) + 4 * (np.arange(60) % 2)[:, None]
counts = random.poisson(1.0, (40, 30))
groups = [rows[:20], rows[20:40], rows[40:]]
pairs = ([rows[3 * i : 3 * i + 3] for i in range(20)], [["sea", "sky"] if i % 2 else ["tree"] for i in range(20)])
fit, model, data = lv.fit, {model}, {data}  # names are imported when they are first asked for
def seconds():
    began = time.process_time()
    fit(model, data, size={size}, seed=0)
    return time.process_time() - began
print(seconds(), seconds())
"""
MODELS = {
    "LDA": ("m.LDA()", "counts", 3),
    "MixtureOfUnigrams": ("m.MixtureOfUnigrams()", "counts", 3),
    "PLSI": ("m.PLSI()", "counts", 3),
    "FiniteMixture": ("m.FiniteMixture()", "rows", 2),
    "FiniteMixture, full": ("m.FiniteMixture(m.FullCovarianceComponents())", "rows", 2),
    "IndependentNormalMixture": ("m.IndependentNormalMixture()", "rows", 2),
    "DPMixture": ("m.DPMixture()", "rows", 4),
    "HDP": ("m.HDP()", "counts", 4),
    "HDPMixture": ("m.HDPMixture()", "groups", 4),
    "HLDA": ("m.HLDA(2)", "counts", 3),
    "IBP": ("m.IBP()", "rows", 3),
    "HiddenMarkov": ("m.HiddenMarkov()", "groups", 2),
    "PoissonFactorization": ("m.PoissonFactorization()", "counts", 3),
    "LatentBlockModel": ("m.LatentBlockModel()", "(rows > 2).astype(float)", (2, 2)),
    "GMMixture": ("m.GMMixture()", "pairs", 2),
    "GMLDA": ("m.GMLDA()", "pairs", 2),
    "CorrLDA": ("m.CorrLDA()", "pairs", 2),
}


SEARCH = """
import os, time
from pathlib import Path
import numpy as np
import lvsearch as lv
m, folder = lv.models, Path(os.environ.get("LVSEARCH_DATA", "")) / "dpmix"
if {data!r} == "iris":
    from sklearn.datasets import load_iris
    rows = load_iris().data
else:
    rows = np.loadtxt(folder / "mixAK_{file}.csv").reshape(-1, 1)
search, model = lv.search, m.FiniteMixture(m.{kind}(rows))  # names are imported when they are first asked for
began = time.process_time()
chains = search(model, rows, seed={seed}, progress=False).partitions
print(time.process_time() - began, chains.size_chances.max(), chains.largest_error, chains.rhat, chains.sweeps)
"""
SEARCHED = ("iris", "galaxy", "acidity", "enzyme")
PRIORS = ("DiagonalComponents.weak", "FullCovarianceComponents.weak", "FullCovarianceComponents.scaled_to")


def in_process(code: str, cache: str) -> list[float]:
    """Return the numbers that a new process prints last. It keeps compiled programs in the folder `cache`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_COMPILATION")}
    environment |= {"LVSEARCH_CACHE": cache, "JAX_PLATFORMS": "cpu"}
    child = [sys.executable, "-c", code]
    printed = subprocess.run(child, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(word) for word in printed.splitlines()[-1].split()]


def seconds(name: str, cache: str) -> tuple[float, float]:
    """Return the processor seconds of the first fit of a process, and of its second."""
    model, data, size = MODELS[name]
    first, second = in_process(CHILD.format(model=model, data=data, size=size), cache)
    return first, second


def searches(names: list[str], priors: list[str], seed: int) -> None:
    """Print a row for each data set and prior: the first search of a process, with nothing compiled and again."""
    print("| data | prior | nothing compiled | programs kept | largest p(K) | largest error | R-hat | sweeps |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        for kind in priors:
            code = SEARCH.format(data=name, file=name.capitalize(), kind=kind, seed=seed)
            with tempfile.TemporaryDirectory(prefix="lvsearch-first-call-") as cache:
                (cold, *_), (warm, *found) = in_process(code, cache), in_process(code, cache)
            chance, error, rhat, sweeps = found
            times, precision = f"{cold:.1f} | {warm:.1f}", f"{chance:.3f} | {error:.3f} | {rhat:.2f}"
            print(f"| {name} | `{kind}` | {times} | {precision} | {sweeps:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--searches", nargs="*", choices=SEARCHED, help="searches, not fits; by default of all data")
    parser.add_argument("--priors", nargs="*", choices=PRIORS, default=list(PRIORS), help="of searches")
    parser.add_argument("--seed", type=int, default=0, help="of searches")
    arguments = parser.parse_args()
    if arguments.searches is not None:
        searches(arguments.searches or list(SEARCHED), arguments.priors, arguments.seed)
        return
    print("| model | first fit, nothing compiled | first fit, programs kept | second fit |\n|---|---|---|---|")
    for name in arguments.models:
        with tempfile.TemporaryDirectory(prefix="lvsearch-first-call-") as cache:
            (cold, again), (warm, _) = seconds(name, cache), seconds(name, cache)
        print(f"| `{name}` | {cold:.1f} | {warm:.1f} | {again:.2f} |", flush=True)


if __name__ == "__main__":
    main()
