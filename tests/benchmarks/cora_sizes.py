"""Does the posterior's mode lie where held-out likelihood is good? Five seeds and splits of Cora.

    LVSEARCH_DATA=… python tests/benchmarks/cora_sizes.py [--seeds 5] [--max-size 40] [--samples 100]
        [--topic-concentration 0.05] [--concentration 5]

For each seed: split off 10 % of the documents, search the rest under marginal evidence (topic concentration η = 0.05,
total document concentration 5 spread evenly, both fixed in advance and equal to the defaults), score every size visited
on the held-out documents by annealed importance sampling at its posterior-mean topics, and print the mode's shortfall
to the best size visited. The bar: 0.02 nats per token. Nothing is asserted; the table is the result.
"""

import argparse
import time

import pandas as pd

import lvsearch as lv
from lvsearch.results.heldout import WITHIN, held_out_comparison


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-size", type=int, default=40)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--topic-concentration", type=float, default=0.05)
    parser.add_argument("--concentration", type=float, default=5.0)
    arguments = parser.parse_args()
    corpus = lv.datasets.load("cora")
    rows = []
    for seed in range(arguments.seeds):
        train, test = corpus.split(test_fraction=0.1, seed=seed)
        began = time.perf_counter()
        result = lv.search(
            lv.models.LDA(arguments.concentration, arguments.topic_concentration),
            train,
            prior=lv.sizes.Poisson(10),
            evidence="bound",
            max_size=arguments.max_size,
            seed=seed,
            keep=10 * arguments.max_size,
            progress=False,
        )
        seconds = time.perf_counter() - began
        held_out = held_out_comparison(result, test, samples=arguments.samples).set_index("size")
        scores, errors = held_out["log_p_per_token"], held_out["standard_error"]
        mode, best = result.best_size[0], int(scores.idxmax())
        near = [size[0] for size in result.estimated.indistinguishable]
        rows.append(
            {
                "seed": seed,
                "mode": mode,
                "log evidence at mode": max(visit.estimate for visit in result.visits if visit.size == (mode,)),
                "cannot be told apart": f"{min(near)}–{max(near)}",
                "held-out at mode": scores[mode],
                "best size held out": best,
                "held-out at best": scores[best],
                "shortfall": scores[best] - scores[mode],
                "paired standard error": errors[best],
                "sizes": len(scores),
                "fits": len(result.starts()),
                "seconds": round(seconds, 1),
            }
        )
        print(pd.DataFrame(rows[-1:]).to_string(index=False), flush=True)
        print("   " + "  ".join(f"{size}:{score:.4f}" for size, score in scores.items()), flush=True)
    table = pd.DataFrame(rows)
    print()
    print(table.to_string(index=False, float_format="%.4f"))
    print(f"shortfall within {WITHIN} nats per token in {(table.shortfall <= WITHIN).sum()} of {len(table)}")


if __name__ == "__main__":
    main()
