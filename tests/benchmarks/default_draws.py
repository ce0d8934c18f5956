"""Compare draws of mixtures of three components by `lv.sample` with its defaults to those of one draw a sweep.

    python tests/benchmarks/default_draws.py [galaxies acidity …] [--seeds 0 1]

Every row is one data set under one prior. First come R-hat and effective draws of four chains of 1,000 draws with
`thin=1`. Then come the same by default, where chains are lengthened until R-hat is at most 1.02, with the sweeps from
one draw to the next and the seconds of the processor; the run before has compiled what they need. R-hat is the largest,
and effective draws the fewest, of all quantities that have them.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_iris

import lvsearch as lv

FILES = {"galaxies": "MASS_galaxies.csv", "acidity": "mixAK_Acidity.csv", "enzyme": "mixAK_Enzyme.csv"}
N_COMPONENTS = 3


def rows_of(name: str) -> np.ndarray:
    """Return a data set, (row, column)."""
    if name == "iris":
        return load_iris().data
    return np.loadtxt(Path(os.environ["LVSEARCH_DATA"]) / "dpmix" / FILES[name]).reshape(-1, 1)


def quality(trace: Any) -> str:
    """Return R-hat and effective draws as cells of a table."""
    table = trace.diagnostics()
    return f"{table['rhat'].max():.3f} | {table['effective_sample_size'].min():.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["iris", *FILES], help=", ".join(["iris", *FILES]))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    print("| data | prior | seed | R-hat | effective draws | by default: R-hat | effective draws | thin | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.data:
        rows = rows_of(name)
        for prior in ("weak", "scaled_to"):
            model = lv.models.FiniteMixture(getattr(lv.models.FullCovarianceComponents, prior)(rows))
            for seed in given.seeds:
                short = lv.sample(model, rows, size=N_COMPONENTS, thin=1, seed=seed, progress=False)
                began = time.process_time()
                found = lv.sample(model, rows, size=N_COMPONENTS, seed=seed, progress=False)
                seconds = time.process_time() - began
                cells = f"{quality(short)} | {quality(found)} | {found.thin} | {seconds:.1f}"
                print(f"| {name} | `{prior}` | {seed} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
