"""Does the time of a pass grow no faster than tokens × K? Simulated corpora of AP's shape, ×1, ×4, ×16; K = 25 … 400.

    python tests/benchmarks/growth.py [--scales 1 4 16] [--topics 25 100 400] [--repeats 3] [--passes 3]

Seconds per pass: the difference between a fit of 1 + `passes` passes and one of a single pass, divided by `passes`, so
that what is done once (compiling, bucketing, the bound at the end) drops out; medians over `--repeats` pairs. The ratio
is seconds per (token · topic) over those of the smallest corpus and K; the bar: at most 1.2. The collapsed passes
and the mean-field passes are timed apart.
"""

import argparse
import math
import statistics
import time
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
from corpora import simulated

import lvsearch as lv
from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import documents
from lvsearch.inference.topics.estimator import TopicEstimator, TopicSettings

ONCE = replace(TopicSettings(), collapsed_passes=1, mean_field_passes=0, final_sweeps=1, tolerance=-math.inf)
"""One collapsed pass and no early end."""


def seconds_of(data: Dataset, n_topics: int, settings: TopicSettings) -> float:
    """One fit, from an estimator that has the data."""
    estimator = TopicEstimator(lv.models.LDA(), data, settings)
    began = time.perf_counter()
    estimator.fit((n_topics,), jax.random.key(0), None)
    return time.perf_counter() - began


def seconds_per_pass(data: Dataset, n_topics: int, more: TopicSettings, passes: int, repeats: int) -> float:
    """The median extra seconds of `more` over `ONCE`, per pass; the first, which compiles, is not counted."""
    for settings in (ONCE, more):
        seconds_of(data, n_topics, settings)
    pairs = [seconds_of(data, n_topics, more) - seconds_of(data, n_topics, ONCE) for _ in range(repeats)]
    return statistics.median(pairs) / passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scales", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--topics", type=int, nargs="+", default=[25, 100, 400])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    kinds = {
        "collapsed": replace(ONCE, collapsed_passes=1 + options.passes),
        "mean field": replace(ONCE, mean_field_passes=options.passes),
    }
    rows = []
    for scale in options.scales:
        counts = simulated(scale)
        data, n_tokens = documents(counts), int(np.asarray(counts.sum()))
        for n_topics in options.topics:
            for kind, settings in kinds.items():
                seconds = seconds_per_pass(data, n_topics, settings, options.passes, options.repeats)
                rows.append({"pass": kind, "scale": scale, "tokens": n_tokens, "K": n_topics, "seconds": seconds})
                print(f"  ×{scale}, K = {n_topics}, {kind}: {seconds:.3f} s per pass", flush=True)
    table = pd.DataFrame(rows)
    table["ns per token·topic"] = 1e9 * table["seconds"] / (table["tokens"] * table["K"])
    first = table.groupby("pass")["ns per token·topic"].transform("first")
    table["over linear"] = table["ns per token·topic"] / first
    print("\n" + table.to_string(index=False, float_format="%.3f"))
    for kind, part in table.groupby("pass"):
        worst = part["over linear"].max()
        print(f"{kind}: at most {worst:.2f} × linear in tokens × K; bar 1.20: {'met' if worst <= 1.2 else 'MISSED'}")


if __name__ == "__main__":
    main()
