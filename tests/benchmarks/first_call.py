"""How long is the first fit of a process, with nothing compiled yet and with what an earlier process compiled?

    python tests/benchmarks/first_call.py [--models LDA HDP …]

Every row is two processes, one after another, with a folder of compiled programs that is empty at first: seconds
of the processor, of all threads, in the first `lv.fit` on some dozens of units, and in the second fit of the same
process, which compiles nothing. Imports are before all of them.
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
def seconds():
    began = time.process_time()
    lv.fit({model}, {data}, size={size}, seed=0)
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


def seconds(name: str, cache: str) -> tuple[float, float]:
    """Of the first fit of a process, and of its second."""
    model, data, size = MODELS[name]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_COMPILATION")}
    environment |= {"LVSEARCH_CACHE": cache, "JAX_PLATFORMS": "cpu"}
    child = [sys.executable, "-c", CHILD.format(model=model, data=data, size=size)]
    printed = subprocess.run(child, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    first, second = map(float, printed.split()[-2:])
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    print("| model | first fit, nothing compiled | first fit, programs kept | second fit |\n|---|---|---|---|")
    for name in parser.parse_args().models:
        with tempfile.TemporaryDirectory(prefix="lvsearch-first-call-") as cache:
            (cold, again), (warm, _) = seconds(name, cache), seconds(name, cache)
        print(f"| `{name}` | {cold:.1f} | {warm:.1f} | {again:.2f} |", flush=True)


if __name__ == "__main__":
    main()
