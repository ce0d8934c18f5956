"""Mixtures along their rows and along temperatures: where do the two ends of the evidence meet, and after how long?

    python tests/benchmarks/along_rows.py [--rows 300] [--sizes 2 4 6] [--sweeps 8] [--temperatures 288]

Three skewed clusters, Gaussians with independent columns. Rows of the table: components; forward and backward ends of
the path along temperatures from the prior, in nats, and seconds; the same along the rows.
"""

import argparse
import time
from collections.abc import Callable

import jax
import numpy as np

import lvsearch as lv
from lvsearch.inference.annealing.prefixes import grow, shrink
from lvsearch.inference.evidence import CollapsedMixtureChain, backward, forward, pilot, schedule, sequential

ISLANDS, TEMPERED, IN_TURN = 4, 16, 64
"""Islands, and particles of each, along temperatures and along the rows."""
Ends = tuple[float, float]


def skewed(n: int) -> np.ndarray:
    """(row, column)"""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [5.0, 0.0], [2.5, 4.5]])
    return centres[rng.choice(3, n)] + rng.gamma(2.0, np.sqrt(0.5), (n, 2)) - np.sqrt(2.0)


def along_temperatures(chain: CollapsedMixtureChain, steps: int) -> Ends:
    profile = pilot(chain, jax.random.key(1), islands=ISLANDS, particles=TEMPERED)
    temperatures = schedule(profile, steps)
    there = forward(chain, jax.random.key(2), temperatures, islands=ISLANDS, particles=TEMPERED)
    back = backward(chain, jax.random.key(3), there.state, temperatures, islands=ISLANDS)
    return float(there.log_evidence.mean()), float(back.log_evidence.mean())


def along_rows(chain: CollapsedMixtureChain, sweeps: int) -> Ends:
    sampler = sequential(chain, jax.random.key(1))
    there = grow(sampler, jax.random.key(2), sweeps, islands=ISLANDS, particles=IN_TURN)
    back = shrink(sampler, jax.random.key(3), there.state, sweeps, islands=ISLANDS)
    return float(there.log_evidence[-1].mean()), float(back.log_evidence.mean())


def timed(path: Callable[[CollapsedMixtureChain, int], Ends], chain: CollapsedMixtureChain, work: int) -> str:
    """Ends and seconds of a second call, the first having compiled it."""
    path(chain, 1)
    began = time.perf_counter()
    low, high = path(chain, work)
    return f"{low:,.1f}, {high:,.1f} | {time.perf_counter() - began:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument("--sweeps", type=int, default=8)
    parser.add_argument("--temperatures", type=int, default=288)
    arguments = parser.parse_args()
    values = skewed(arguments.rows)
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(values))
    data = lv.Points.from_array(values).dataset()
    print("| components | along temperatures | seconds | along the rows | seconds |\n|---|---|---|---|---|")
    for size in arguments.sizes:
        chain = CollapsedMixtureChain.from_data(model, data, size, max(arguments.sizes))
        tempered = timed(along_temperatures, chain, arguments.temperatures)
        print(f"| {size} | {tempered} | {timed(along_rows, chain, arguments.sweeps)} |", flush=True)


if __name__ == "__main__":
    main()
