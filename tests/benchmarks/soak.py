"""Does a process that searches again and again grow? Searches of the same shapes, or of ever new ones.

    python tests/benchmarks/soak.py [--minutes 20]          # the same corpus, rows and draws, round after round
    python tests/benchmarks/soak.py --shapes 40 [--unbounded]   # a corpus of another shape each time

The first prints resident memory through the run, its slope in MiB an hour with a standard error (least squares over the
rounds after the second, errors from ten blocks), and how many programs were compiled after the first round, to be 0.
The second prints memory and memory maps with programs let go as `lvsearch.inference.compiles` does, or kept.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np

import lvsearch as lv
from lvsearch.inference import compiles

BLOCKS = 10
SEEDS = (0, 1)
COMPILED = "/jax/core/compile/backend_compile_duration"


def resident() -> float:
    """MiB of this process in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def maps() -> int:
    return Path("/proc/self/maps").read_bytes().count(b"\n")


def work(seed: int) -> None:
    """Searches by bound and by annealing, a posterior over components, draws: the same data whatever the seed."""
    random = np.random.default_rng(0)
    corpus = lv.Corpus.from_matrix(random.poisson(0.8, (30, 12)))
    rows = random.normal(0, 1, (20, 2)) + 4 * random.integers(0, 2, (20, 1))
    kind = lv.models.FullCovarianceComponents()
    lda, prior = lv.models.LDA(), lv.sizes.Poisson(2)
    result = lv.search(lda, corpus, prior=prior, evidence="bound", max_size=3, seed=seed, progress=False)
    str(result), result.posterior(), result.best.topics()
    mixture = lv.models.FiniteMixture(kind)
    lv.search(mixture, rows, prior=prior, max_size=2, starts=1, seed=seed, progress=False).posterior()
    lv.occupied(lv.models.DPMixture(kind), rows, draws=20, chains=2, seed=seed, progress=False).posterior()
    lv.sample(lda, corpus, size=2, draws=10, chains=2, seed=seed, progress=False).diagnostics()


def slope(minutes: np.ndarray, memory: np.ndarray) -> tuple[float, float]:
    """MiB an hour and its standard error, from the means of blocks in time."""
    parts = [np.mean(part) for part in np.array_split(minutes, BLOCKS)]
    means = [np.mean(part) for part in np.array_split(memory, BLOCKS)]
    design = np.stack([np.ones(BLOCKS), np.array(parts) / 60], axis=1)
    fit, *_ = np.linalg.lstsq(design, np.array(means), rcond=None)
    left = np.array(means) - design @ fit
    covariance = np.linalg.inv(design.T @ design) * (left @ left) / (BLOCKS - 2)
    return float(fit[1]), float(np.sqrt(covariance[1, 1]))


def one_round() -> None:
    for seed in SEEDS:
        work(seed)


def soak(minutes: float) -> None:
    made: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: made.append(event))
    began, times, memory, compiled = time.monotonic(), [], [], []
    while not times or times[-1] < minutes:
        one_round()
        times.append((time.monotonic() - began) / 60)
        memory.append(resident())
        compiled.append(made.count(COMPILED))
        if len(times) in (1, 2) or len(times) % 10 == 0:
            print(
                f"round {len(times):4d}  {times[-1]:5.1f} min  {memory[-1]:7.1f} MiB  {compiled[-1]} compiled",
                flush=True,
            )
    print(
        f"\n{len(times)} rounds in {times[-1]:.1f} min; {compiled[-1] - compiled[0]} programs compiled after the first"
    )
    if len(times) >= 3 * BLOCKS:
        steepness, error = slope(np.array(times[2:]), np.array(memory[2:]))
        print(f"memory {memory[2]:.1f} MiB after three rounds, {memory[-1]:.1f} at the end, {max(memory):.1f} at most")
        print(f"slope {steepness:+.1f} ± {error:.1f} MiB an hour")


def shapes(number: int, bounded: bool) -> None:
    if not bounded:
        compiles.MOST_TRACES = compiles.MOST_MAPS = 10**9
    random = np.random.default_rng(0)
    for i in range(number):
        counts = random.poisson(0.8, (20 + 7 * i, 11 + 5 * i))
        prior = lv.sizes.Poisson(2)
        lv.search(lv.models.LDA(), counts, prior=prior, evidence="bound", max_size=3, starts=1, progress=False)
        print(f"{i + 1:3d} shapes  {resident():7.1f} MiB  {maps():6d} maps", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--shapes", type=int)
    parser.add_argument("--unbounded", action="store_true")
    asked = parser.parse_args()
    if asked.shapes is None:
        soak(asked.minutes)
    else:
        shapes(asked.shapes, not asked.unbounded)


if __name__ == "__main__":
    main()
