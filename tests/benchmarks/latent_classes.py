"""Latent classes: are the highest published likelihoods reached, and by what share of starts?

    LVSEARCH_DATA=/folder/of/corpora python tests/benchmarks/latent_classes.py [--starts 100]

Three data sets of poLCA (Linzer & Lewis 2011) and the optima published for them. Every start is one plug-in fit from
scratch with a key of its own. Printed are the published maximum, the highest of ours, the share of starts within .001
nats of the published one, and seconds a fit after compiling. poLCA's own share, 258 of 500, is for three classes of
gss82. Nothing is timed but fits.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd

import lvsearch as lv

PUBLISHED = {
    "carcinoma": {2: -317.2568, 3: -293.705, 4: -289.2858},
    "values": {1: -543.6498, 2: -504.4677, 3: -503.3011},
    "gss82": {2: -2783.268, 3: -2754.545, 4: -2746.621},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=100)
    starts = parser.parse_args().starts
    folder = Path(os.environ["LVSEARCH_DATA"]) / "latent_class"
    for name, optima in PUBLISHED.items():
        points = lv.Points.from_categories(pd.read_csv(folder / f"{name}.csv"))
        model = lv.models.FiniteMixture(lv.models.CategoricalComponents.from_columns(points.columns)).plug_in()
        for size, published in optima.items():
            lv.fit(model, points, size=size)
            began = time.perf_counter()
            found = np.array([lv.fit(model, points, size=size, seed=seed).evidence.lower for seed in range(starts)])
            seconds = (time.perf_counter() - began) / starts
            share = np.mean(np.abs(found - published) < 1e-3)
            print(
                f"{name:>9}, {size} classes: published {published:.4f}, highest {found.max():.4f}, "
                f"{share:.0%} of {starts} starts, {seconds:.2f} s a fit",
                flush=True,
            )


if __name__ == "__main__":
    main()
