"""Compare posteriors of the number of components with independent samplers, under Richardson & Green's prior (1997).

    python tests/benchmarks/galaxy.py [--along rows] [--islands 8] [--particles 2048] [--largest 14] [--seed 0]
    python tests/benchmarks/galaxy.py --data enzyme --along partitions
    python tests/benchmarks/galaxy.py --along search [--steps 3200] [--particles 64] …
    python tests/benchmarks/galaxy.py --along draws [--chains 64] [--draws 1000] [--thin 10] …
    python tests/benchmarks/galaxy.py --along partitions [--seed 0]

The evidence of each number of components: along the rows, one after another, forward alone, the logarithm of the
average over islands (unbiased on p, and the islands say how far it may be off); or as a search has it, there and back,
the middle of both ends. Or from chains over partitions, all numbers at once (`lv.mixture_posterior`). Or from posterior
draws at each number, by
`lv.sample`: neighbours differ by how many components are empty under the larger one (`from_draws`), which says no
evidence but ratios of it to a fraction of a per cent. For the 82 galaxy velocities (thousands of km/s) there stands
beside it what an independent sampler says (4 million sweeps, standard errors of .002 at most): p(k | y) with k uniform
on 1 … 30, and the log evidence at k = 2 and 3. For 155 lakes (log acidity) and 245 enzyme activities there stands p
too (four chains of labels, weights, means, precisions and β, with k drawn given the partition: 12 million sweeps, its
standard errors at most .002 and .004), and the log evidence by tempered sequential Monte Carlo of labels, means and
precisions, with its standard error. Chains over
partitions know the evidence up to a constant, so that their differences to the first number that is known are compared.
Beyond `--largest`, p is taken to fall by the ratio of the last two.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.special import gammaln

import lvsearch as lv
from lvsearch.inference.evidence import Effort, both_ways, evidence_chain, grow, sequential, temperature_profile
from lvsearch.sizing.evidence import Bracket

FILES = {"acidity": "mixAK_Acidity.csv", "enzyme": "mixAK_Enzyme.csv"}
KNOWN = {
    "galaxy": dict(enumerate((0.061, 0.133, 0.188, 0.196, 0.158, 0.109, 0.068, 0.040, 0.022, 0.012), start=3)),
    "acidity": dict(enumerate((0.075, 0.238, 0.242, 0.183, 0.118, 0.069, 0.037, 0.019, 0.010, 0.005, 0.002), start=2)),
    "enzyme": dict(enumerate((0.022, 0.279, 0.323, 0.210, 0.098, 0.041, 0.016, 0.006, 0.002, 0.001, 0.000), start=2)),
}
"""p(k | rows) by number of components, k uniform on 1 … 30, by an independent sampler."""
KNOWN_EVIDENCE = {
    "galaxy": {2: (-235.25, 0.0), 3: (-226.68, 0.0)},
    "acidity": {3: (-198.22, 0.03)},
    "enzyme": {2: (-76.65, 0.12), 3: (-74.13, 0.11), 4: (-73.63, 0.23)},
}
"""Log evidence and its standard error by number of components, nats; an error of 0 was not recorded."""
MOST = 30


def column(name: str) -> np.ndarray:
    """(row, 1): thousands of km/s, log acidity or enzymatic activity."""
    folder = Path(os.environ["LVSEARCH_DATA"]) / "dpmix"
    if name in FILES:
        return np.loadtxt(folder / FILES[name]).reshape(-1, 1)
    # with the misprint of R's MASS, on which the independent sampler ran
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


def there_and_back(chain: Any, key: Any, work: Effort) -> tuple[float, float]:
    """(log evidence, its standard error), nats."""
    key_pilot, key_paths = jax.random.split(key)
    ends, _ = both_ways(chain, key_paths, work, temperature_profile(chain, key_pilot, work))
    there, back = tuple(ends.forward.tolist()), tuple(ends.backward.tolist())
    bracket = Bracket(there, back, work.steps, work.islands * work.particles)
    return bracket.estimate, bracket.standard_error


def from_draws(
    model: Any, rows: np.ndarray, largest: int, chains: int, draws: int, thin: int, seed: int
) -> list[float]:
    """log p(rows | k) − log p(rows | 3) of k = 1 … largest, nats; −∞ below 3, worth less than a thousandth of it.

    A partition C of n rows into K₊ groups has the same density p(rows | C) at every k, and under Dirichlet(a, …, a)
    weights p(C | k) ∝ k! / (k − K₊)! · Γ(ka) / Γ(ka + n). So draws at k + 1 components know what k would have been
    worth (after Nobile 2004): p(rows | k) / p(rows | k + 1) is the posterior mean there of

        p(C | k) / p(C | k + 1) = (k + 1 − K₊) / (k + 1) · Γ(ka) Γ((k + 1)a + n) / (Γ(ka + n) Γ((k + 1)a)).
    """
    a, n = float(model.concentration), len(rows)
    found = [-np.inf, -np.inf, 0.0]
    for larger in range(4, largest + 1):
        trace = lv.sample(
            model,
            lv.Points.from_array(rows),
            size=larger,
            chains=chains,
            draws=draws,
            thin=thin,
            seed=seed,
            progress=False,
        )
        empty = larger - np.asarray(trace["occupied"])
        by_chain = empty.mean(axis=1)
        k = larger - 1
        priors = gammaln(k * a) + gammaln(larger * a + n) - gammaln(k * a + n) - gammaln(larger * a)
        found.append(found[-1] - float(np.log(by_chain.mean() / larger) + priors))
        error = by_chain.std(ddof=1) / by_chain.mean() / np.sqrt(chains)
        print(f"{larger}: {found[-1]:+.3f} nats above 3, the last step ± {error:.3f}; {trace.describe()}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="galaxy", choices=("galaxy", *FILES))
    parser.add_argument("--along", default="rows", choices=("rows", "search", "draws", "partitions"))
    parser.add_argument("--steps", type=int, default=3200, help="temperatures")
    parser.add_argument("--islands", type=int, default=8, help="along rows")
    parser.add_argument("--particles", type=int, help="of an island: 2,048 along rows, 64 as a search")
    parser.add_argument("--chains", type=int, default=64, help="along draws")
    parser.add_argument("--draws", type=int, default=1000, help="of each chain")
    parser.add_argument("--thin", type=int, default=10, help="sweeps from one draw to the next")
    parser.add_argument(
        "--precision", type=float, default=0.01, help="along partitions: the Monte Carlo error of p(k | y)"
    )
    parser.add_argument("--largest", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = column(arguments.data)
    model = lv.models.IndependentNormalMixture.scaled_to(rows)
    if arguments.along == "partitions":
        found = lv.mixture_posterior(
            model, rows, prior=lv.sizes.Uniform(MOST), precision=arguments.precision, seed=arguments.seed
        )
        print(found, flush=True)
        estimates = found.log_evidence.tolist()
        compare_evidence(found.log_evidence, found.log_evidence_error, KNOWN_EVIDENCE[arguments.data])
    elif arguments.along == "draws":
        given = arguments.chains, arguments.draws, arguments.thin, arguments.seed
        estimates = from_draws(model, rows, arguments.largest, *given)
    else:
        estimates = annealed(model, rows, arguments)
    compare(np.array(estimates), KNOWN[arguments.data])


def annealed(model: Any, rows: np.ndarray, arguments: argparse.Namespace) -> list[float]:
    """log p(rows | k) of k = 1 … largest, nats."""
    data, estimates, began = lv.Points.from_array(rows).dataset(), [], time.perf_counter()
    for size in range(1, arguments.largest + 1):
        key = jax.random.fold_in(jax.random.key(arguments.seed), size)
        chain = evidence_chain(model, data, (size,), None)
        if arguments.along == "rows":
            estimate, error = along_rows(chain, key, arguments.islands, arguments.particles or 2048)
        else:
            estimate, error = there_and_back(chain, key, Effort(arguments.steps, 2, arguments.particles or 64))
        estimates.append(estimate)
        of_data = KNOWN_EVIDENCE[arguments.data]
        known = f", known {in_words(*of_data[size])}" if size in of_data else ""
        seconds = time.perf_counter() - began
        print(f"{size}: {estimate:.2f} ± {error:.2f}{known} ({seconds:.0f} s)", flush=True)
    return estimates


def in_words(value: float, error: float) -> str:
    """A known log evidence, with its standard error where that was recorded."""
    return f"{value:.2f} ± {error:.2f}" if error else f"{value:.2f} (its error was not recorded)"


def compare_evidence(log_evidence: np.ndarray, error: np.ndarray, known: dict[int, tuple[float, float]]) -> None:
    """Differences of log evidence to the smallest number that is known, in nats and in joint standard errors."""
    first, *others = sorted(size for size in known if np.isfinite(log_evidence[size - 1])) or [0]
    if not others:
        print("log evidence: fewer than two known sizes were drawn, nothing to compare")
    for size in others:
        difference, truth = log_evidence[size - 1] - log_evidence[first - 1], known[size][0] - known[first][0]
        joint = np.sqrt(error[size - 1] ** 2 + error[first - 1] ** 2 + known[size][1] ** 2 + known[first][1] ** 2)
        print(
            f"log evidence of {size} above {first}: {difference:+.2f}, known {truth:+.2f}: "
            f"{(difference - truth) / joint:+.1f} joint standard errors ({joint:.2f})"
        )


def compare(estimates: np.ndarray, known: dict[int, float]) -> None:
    """p(k | y), k uniform on 1 … 30, beside what is known."""
    fall = min(0.0, estimates[-1] - estimates[-2])
    beyond = estimates[-1] + np.arange(1, MOST - len(estimates) + 1) * fall
    weights = np.exp(np.append(estimates, beyond) - np.max(estimates))
    probability = weights / weights.sum()
    found = [probability[k - 1] for k in known]
    table = pd.DataFrame({"found": found, "known": list(known.values())}, index=list(known))
    table["difference"] = table["found"] - table["known"]
    print(table.round(3).to_string())
    print(f"largest difference {table['difference'].abs().max():.3f}")


if __name__ == "__main__":
    main()
