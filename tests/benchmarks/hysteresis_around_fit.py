"""Measure how far annealed evidence of a factorisation around a fit is from the best known, in shares of hysteresis.

    python tests/benchmarks/hysteresis_around_fit.py                                     # 200 tumours, 9 planted
    python tests/benchmarks/hysteresis_around_fit.py --sizes 9 12 --fits 1 --long 2880   # beside one long annealing

The catalogues are those of `signatures.py`. Of each size several fits are made from nothing, and each is annealed with
240 temperatures, as the first annealing of a search is. Printed for each: the middle between the forward and the
backward estimate, the hysteresis (their distance), and how far the middle is below the highest one of the size, divided
by the hysteresis. It is what `SHARE_AROUND_FIT` counts as standard error.
"""

import argparse

import numpy as np
from signatures import catalogue

import lvsearch as lv
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.evidence import Effort, anneal, temperature_profile
from lvsearch.inference.factorizations.anchored import TEMPERATURES, near_fit
from lvsearch.inference.generators import fold_in, key_of


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tumours", type=int, default=200)
    parser.add_argument("--kinds", type=int, default=96, help="kinds of mutations")
    parser.add_argument("--planted", type=int, default=9)
    parser.add_argument("--noise", type=float, default=20.0, help="shape of the Gamma that multiplies each cell's mean")
    parser.add_argument("--burden", type=float, default=2000.0, help="median mutations of a tumour")
    parser.add_argument("--seed", type=int, default=103)
    parser.add_argument("--sizes", type=int, nargs="+", default=[9, 10, 12, 16])
    parser.add_argument("--fits", type=int, default=3, help="fits of each size")
    parser.add_argument("--long", type=int, help="temperatures of one more annealing of each fit")
    arguments = parser.parse_args()
    drawn = (arguments.tumours, arguments.kinds, arguments.planted, arguments.noise, arguments.burden, arguments.seed)
    counts = catalogue(*drawn).counts
    model = lv.models.PoissonFactorization.scaled_to(counts, noise_shape=lv.models.GammaPrior(1.0, 0.05))
    data = lv.Points.from_array(counts).dataset()
    lengths = [TEMPERATURES, *([] if arguments.long is None else [arguments.long])]
    for size in arguments.sizes:
        found = []
        for number in range(arguments.fits):
            key = fold_in(key_of(arguments.seed), size, number)
            chain = near_fit(model, data, size, estimator(model, data).fit((size,), key, None))
            for steps in lengths:
                work = Effort(steps, 1, 1)
                (ends,) = anneal(chain, fold_in(key, steps), work, temperature_profile(chain, key, work))
                forward, backward = float(np.mean(ends.forward)), float(np.mean(ends.backward))
                found.append((number, steps, (forward + backward) / 2, backward - forward))
        best = max(middle for *_, middle, _ in found)
        for number, steps, middle, hysteresis in found:
            share = (best - middle) / hysteresis
            print(f"{size} factors, fit {number}, {steps}: {middle:.1f}, {hysteresis:.1f} apart, share {share:.2f}")


if __name__ == "__main__":
    main()
