"""How many components do the 82 galaxy velocities support, under the prior of Richardson & Green (1997)?

    python tests/benchmarks/galaxy.py [--along rows] [--islands 8] [--particles 2048] [--largest 14] [--seed 0]
    python tests/benchmarks/galaxy.py --along temperatures [--steps 3200] [--particles 64] …

The evidence of each number of components: along the rows, one after another, forward alone, the logarithm of the
average over islands (unbiased on p, and the islands say how far it may be off); or along temperatures from the prior
and back, as a search has it, the middle of both ends in four islands. Beside it stands what an independent
sampler says (4 million sweeps, standard errors of .002 at most): p(k | y) with k uniform on 1 … 30, and the log
evidence at k = 2 and 3 in thousands of km/s. Beyond `--largest`, p is taken to fall by the ratio of the last two.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import lvsearch as lv
from lvsearch.inference.evidence import Effort, both_ways, evidence_chain, grow, pace, sequential
from lvsearch.sizing.bracket import Bracket

KNOWN = dict(zip(range(3, 13), (0.061, 0.133, 0.188, 0.196, 0.158, 0.109, 0.068, 0.040, 0.022, 0.012), strict=True))
KNOWN_EVIDENCE = {2: -235.25, 3: -226.68}
MOST = 30


def velocities() -> np.ndarray:
    """(82, 1), thousands of km/s."""
    folder = Path(os.environ["LVSEARCH_DATA"]) / "dpmix"
    file = next(path for path in folder.iterdir() if "MASS" in path.name and "galax" in path.name.lower())
    numbers = pd.read_csv(file, header=None).select_dtypes("number").to_numpy(float)[:, -1:]
    return numbers[~np.isnan(numbers[:, 0])] / 1000


def along_rows(chain: Any, key: Any, islands: int, particles: int) -> tuple[float, float]:
    """(log evidence, its standard error), nats; a sweep after every row, another order of the rows in every island."""
    found = []
    for island in range(islands):
        key_order, key_path = jax.random.split(jax.random.fold_in(key, island))
        sampler = sequential(chain, key_order)
        grown = grow(sampler, key_path, int(sampler.n_units), islands=1, particles=particles)
        found.append(grown.log_evidence[-1, 0])
    ratios = np.exp(found - np.max(found))
    error = ratios.std(ddof=1) / ratios.mean() / np.sqrt(islands)
    return float(np.max(found) + np.log(ratios.mean())), float(error)


def along_temperatures(chain: Any, key: Any, work: Effort) -> tuple[float, float]:
    """(log evidence, its standard error), nats."""
    key_pilot, key_paths = jax.random.split(key)
    ends, _ = both_ways(chain, key_paths, work, pace(chain, key_pilot, work))
    there, back = tuple(ends.forward.tolist()), tuple(ends.backward.tolist())
    bracket = Bracket(there, back, work.steps, work.islands * work.particles)
    return bracket.estimate, bracket.standard_error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--along", default="rows", choices=("rows", "temperatures"))
    parser.add_argument("--steps", type=int, default=3200, help="temperatures")
    parser.add_argument("--islands", type=int, default=8, help="along rows")
    parser.add_argument("--particles", type=int, help="of an island: 2,048 along rows, 64 along temperatures")
    parser.add_argument("--largest", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = velocities()
    model, data = lv.models.IndependentNormalMixture.scaled_to(rows), lv.Points.from_array(rows).dataset()
    estimates, errors, began = [], [], time.perf_counter()
    for size in range(1, arguments.largest + 1):
        key = jax.random.fold_in(jax.random.key(arguments.seed), size)
        chain = evidence_chain(model, data, (size,), None)
        if arguments.along == "rows":
            estimate, error = along_rows(chain, key, arguments.islands, arguments.particles or 2048)
        else:
            estimate, error = along_temperatures(chain, key, Effort(arguments.steps, 2, arguments.particles or 64))
        estimates.append(estimate)
        errors.append(error)
        known = f", known {KNOWN_EVIDENCE[size]}" if size in KNOWN_EVIDENCE else ""
        seconds = time.perf_counter() - began
        print(f"{size}: {estimate:.2f} ± {error:.2f}{known} ({seconds:.0f} s)", flush=True)
    fall = min(0.0, estimates[-1] - estimates[-2])
    beyond = estimates[-1] + np.arange(1, MOST - arguments.largest + 1) * fall
    weights = np.exp(np.array([*estimates, *beyond]) - np.max(estimates))
    probability = weights / weights.sum()
    table = pd.DataFrame({"annealed": [probability[k - 1] for k in KNOWN], "known": KNOWN.values()}, index=list(KNOWN))
    table["difference"] = table["annealed"] - table["known"]
    print(table.round(3).to_string())
    print(f"largest difference {table['difference'].abs().max():.3f}")


if __name__ == "__main__":
    main()
