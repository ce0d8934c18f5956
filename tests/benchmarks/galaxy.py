"""How many components do the 82 galaxy velocities support, under the prior of Richardson & Green (1997)?

    python tests/benchmarks/galaxy.py [--steps 3200] [--particles 64] [--largest 14] [--seed 0]

The evidence of each number of components is annealed from the prior and back. Beside it stands what an independent
sampler says (4 million sweeps, standard errors of .002 at most): p(k | y) with k uniform on 1 … 30, and the log
evidence at k = 2 and 3 in thousands of km/s. Beyond `--largest`, p is taken to fall by the ratio of the last two.
"""

import argparse
import os
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import lvsearch as lv
from lvsearch.inference.evidence import Effort, both_ways, evidence_chain, pace
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3200)
    parser.add_argument("--particles", type=int, default=64, help="in each of four islands")
    parser.add_argument("--largest", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = velocities()
    model, data = lv.models.IndependentNormalMixture.scaled_to(rows), lv.Points.from_array(rows).dataset()
    work = Effort(arguments.steps, 2, arguments.particles)
    estimates, errors, began = [], [], time.perf_counter()
    for size in range(1, arguments.largest + 1):
        key_pilot, key = jax.random.split(jax.random.fold_in(jax.random.key(arguments.seed), size))
        chain = evidence_chain(model, data, (size,), None)
        ends, _ = both_ways(chain, key, work, pace(chain, key_pilot, work))
        there, back = tuple(ends.forward.tolist()), tuple(ends.backward.tolist())
        bracket = Bracket(there, back, work.steps, work.islands * work.particles)
        estimates.append(bracket.estimate)
        errors.append(bracket.standard_error)
        known = f", known {KNOWN_EVIDENCE[size]}" if size in KNOWN_EVIDENCE else ""
        seconds = time.perf_counter() - began
        print(f"{size}: {bracket.estimate:.2f} ± {bracket.standard_error:.2f}{known} ({seconds:.0f} s)", flush=True)
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
