"""How wide is the bracket on the evidence of Cora at one number of topics, after how many seconds? Both directions.

    python tests/benchmarks/cora_bracket.py [--topics 36] [--temperatures 20 40 300]

LDA with η = 0.05 and α = 5 in total, on the abstracts that the other scripts train on; paths from the responsibilities
of a fit (lower end) and back from a converged chain (upper end), two side by side, compiled before the clock starts.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import jax

import lvsearch as lv
from lvsearch.inference.evidence import Effort, both_ways, evidence_chain, temperature_profile


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--topics", type=int, default=36)
    parser.add_argument("--temperatures", type=int, nargs="+", default=[20, 40, 300])
    options = parser.parse_args()
    if "LVSEARCH_DATA" not in os.environ:
        sys.exit("set LVSEARCH_DATA to the folder that holds cora/")
    folder = Path(os.environ["LVSEARCH_DATA"]) / "cora"
    corpus = lv.Corpus.from_ldac(folder / "corpus.ldac", vocabulary=folder / "vocab.txt")
    abstracts, _ = corpus.split(test_fraction=0.1, seed=0)
    model, size = lv.models.LDA(5.0, 0.05), (options.topics,)
    fit = lv.fit(model, abstracts, size=options.topics, seed=0)
    print(f"{abstracts.describe()}; {options.topics} topics; mean-field bound {fit.estimate.log_lower:,.0f} nats")
    chain = evidence_chain(model, abstracts.dataset(), size, fit.estimate)
    key_pilot, key = jax.random.split(jax.random.key(0))
    print(f"{'temperatures':>12} {'seconds a direction':>20} {'lower end':>12} {'upper end':>12}")
    for temperatures in (1, *options.temperatures):
        work = Effort(temperatures, 1, 1)
        path = temperature_profile(chain, key_pilot, work)
        began = time.perf_counter()
        ends, _ = both_ways(chain, key, work, path)
        seconds = (time.perf_counter() - began) / 2
        if temperatures > 1:  # the first one compiled
            lower, upper = max(ends.forward.tolist()), min(ends.backward.tolist())
            print(f"{temperatures:12} {seconds:20.1f} {lower:12,.0f} {upper:12,.0f}", flush=True)


if __name__ == "__main__":
    main()
