"""Log evidence of public tables and texts at several sizes, from below and from above, as a file.

    python tests/benchmarks/log_evidence.py --out docs/static/log_evidence.csv    # all problems, an hour of one core
    python tests/benchmarks/log_evidence.py carcinoma women                       # some of them, printed

Each problem states rows, model and prior in numbers (docs/benchmark.md has them in formulas), so that any program can
be scored against the file. The evidence of each size is annealed there and back, by two halves of four groups of
particles each. Where chains over partitions know the same model, they say the logarithm of each size's probability over
that of the most probable size, under a flat prior over sizes, independently of the annealing.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import networkx
import numpy as np
import pandas as pd
from corpora import corpus_named
from sklearn.datasets import load_iris, load_wine

import lvsearch as lv
from lvsearch.data.kinds import data_for
from lvsearch.inference.allocation_chains import has_allocation_chain
from lvsearch.inference.evidence import Effort, both_ways, evidence_chain, temperature_profile
from lvsearch.models.components import (
    BernoulliComponents,
    DiagonalComponents,
    FullCovarianceComponents,
)
from lvsearch.sizing.evidence import Bracket

ALONG_ROWS = Effort(288, 4, 128)
"""The length of paths from row to row, and how many particles they have."""
ALONG_TEMPERATURES, ALONG_TOKENS = Effort(1000, 4, 32), Effort(1000, 2, 8)
"""The same for paths from temperature to temperature, and for those that draw thousands of words at each."""
PRECISE, SWEEPS = 0.005, 1024
"""The Monte Carlo error that is asked of the chains over partitions, and the most sweeps that they make for it."""
LEAST_PROBABILITY = 0.01
"""Chains over partitions say nothing of sizes that are less probable: they visit them too rarely."""
LEAST_ERROR = 0.001
"""The standard error of an evidence that is known in closed form, for rounding."""


@dataclass(frozen=True)
class Problem:
    """Data, and a model with its prior in numbers.

    | field | meaning |
    |---|---|
    | `data` | returns the rows or documents |
    | `model` | the model |
    | `largest` | the largest number of components; of row clusters and of column clusters |
    | `work` | the length and the number of the paths |
    """

    data: Callable[[], Any]
    model: lv.models.Model
    largest: tuple[int, ...]
    work: Effort = ALONG_ROWS


def table(folder: str, name: str) -> pd.DataFrame:
    """Return a table of LVSEARCH_DATA."""
    return pd.read_csv(Path(os.environ["LVSEARCH_DATA"]) / folder / f"{name}.csv")


def column(name: str) -> np.ndarray:
    """Return one column of numbers from −1/2 to 1/2, (row, 1): what is left of the midpoint, over the range."""
    numbers = np.loadtxt(Path(os.environ["LVSEARCH_DATA"]) / "dpmix" / f"{name}.csv").reshape(-1, 1)
    low, high = numbers.min(), numbers.max()
    return (numbers - (low + high) / 2) / (high - low)


def standardised(rows: np.ndarray) -> np.ndarray:
    """Return columns of mean 0 and variance 1 (divisor: the number of rows)."""
    return (rows - rows.mean(0)) / rows.std(0)


def faithful() -> np.ndarray:
    """Return eruptions and waiting times of Old Faithful, standardised, (272, 2)."""
    return standardised(table("dpmix", "mixAK_Faithful").to_numpy(float))


def first_abstracts() -> lv.Corpus:
    """Return the first 60 abstracts of Cora, with the whole vocabulary."""
    return corpus_named("cora").select(range(60))


def women() -> np.ndarray:
    """Return who came to which of 14 social events, 18 women × 14 events (Davis, Gardner & Gardner 1941)."""
    graph = networkx.davis_southern_women_graph()
    names = graph.graph["top"], graph.graph["bottom"]
    return np.asarray(networkx.bipartite.biadjacency_matrix(graph, *names).todense(), float)


def answers(name: str, answered: int = 2) -> np.ndarray:
    """Return yes-or-no columns as 1 where the answer is `answered`, else 0."""
    return (table("latent_class", name).to_numpy() == answered).astype(float)


YES_OR_NO = BernoulliComponents(1.0, 1.0)
DIAGONAL = DiagonalComponents(pseudo_count=0.1, shape=2.0, rate=0.5)
RANGES = lv.models.IndependentNormalMixture()
FULL = FullCovarianceComponents(pseudo_count=0.1, excess_degrees=4.0, spread=0.5)

PROBLEMS = {
    "carcinoma": Problem(lambda: answers("carcinoma"), lv.models.FiniteMixture(YES_OR_NO), (5,)),
    "values": Problem(lambda: answers("values"), lv.models.FiniteMixture(YES_OR_NO), (5,)),
    "galaxy": Problem(lambda: column("mixAK_Galaxy"), RANGES, (7,)),
    "acidity": Problem(lambda: column("mixAK_Acidity"), RANGES, (6,)),
    "enzyme": Problem(lambda: column("mixAK_Enzyme"), RANGES, (5,)),
    "faithful": Problem(faithful, lv.models.FiniteMixture(FULL), (5,)),
    "iris": Problem(lambda: standardised(load_iris().data), lv.models.FiniteMixture(FULL), (5,)),
    "iris-tied": Problem(lambda: standardised(load_iris().data), lv.models.TiedMixture(FULL), (6,)),
    "iris-diagonal": Problem(lambda: standardised(load_iris().data), lv.models.FiniteMixture(DIAGONAL), (7,)),
    "wine": Problem(lambda: standardised(load_wine().data), lv.models.FiniteMixture(DIAGONAL), (3,)),
    "women": Problem(women, lv.models.LatentBlockModel(YES_OR_NO), (2, 2), ALONG_TEMPERATURES),
    "abstracts": Problem(first_abstracts, lv.models.LDA(1.0, 0.05), (4,), ALONG_TOKENS),
}


def annealed(name: str, size: tuple[int, ...], seed: int) -> dict[str, float]:
    """Return the log evidence of one size with its standard error and both ends, nats."""
    problem = PROBLEMS[name]
    data = data_for(problem.model, problem.data()).dataset()
    chain = evidence_chain(problem.model, data, size, None)
    key_pilot, key_paths = jax.random.split(jax.random.fold_in(jax.random.key(seed), sum(size)))
    ends, _ = both_ways(chain, key_paths, problem.work, temperature_profile(chain, key_pilot, problem.work))
    there, back = tuple(ends.forward.tolist()), tuple(ends.backward.tolist())
    bracket = Bracket(there, back, problem.work.steps, problem.work.islands * problem.work.particles)
    return {
        "log_evidence": bracket.estimate,
        "standard_error": max(bracket.standard_error, LEAST_ERROR),
        "lower": bracket.lower,
        "upper": bracket.upper,
    }


def by_partitions(problem: Problem, seed: int) -> dict[str, np.ndarray]:
    """Return log p(size) − log p(best size) from chains over partitions under a flat prior, and its standard error."""
    prior = lv.sizes.Uniform(problem.largest[0])
    found = lv.mixture_posterior(
        problem.model, problem.data(), prior=prior, precision=PRECISE, sweeps=SWEEPS, seed=seed
    )
    chance, error = (found.posterior()[name].to_numpy() for name in ("probability", "monte_carlo_error"))
    best, known = int(np.argmax(chance)), chance > LEAST_PROBABILITY
    safe = np.where(known, chance, 1.0)
    relative = np.where(np.arange(len(chance)) == best, 0.0, np.hypot(error / safe, error[best] / chance[best]))
    return {
        "log_ratio": np.where(known, np.log(safe / chance[best]), np.nan),
        "ratio_error": np.where(known, relative, np.nan),
    }


def solve(name: str, seed: int) -> pd.DataFrame:
    """Return the rows of the file for one problem."""
    problem, start = PROBLEMS[name], time.process_time()
    sizes = list(itertools.product(*(range(1, largest + 1) for largest in problem.largest)))
    found = pd.DataFrame([annealed(name, size, seed) for size in sizes])
    found.insert(0, "problem", name)
    found.insert(1, "size", [" x ".join(map(str, size)) for size in sizes])
    if has_allocation_chain(problem.model):
        found = found.assign(**by_partitions(problem, seed))
    print(f"\n{name}: {problem.model.describe()}; {time.process_time() - start:.0f} processor seconds")
    print(found.round(3).to_string(index=False), flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=f"of {', '.join(PROBLEMS)}; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    tables = []
    for each in arguments.problems or PROBLEMS:
        tables.append(solve(each, arguments.seed))
        if arguments.out:
            pd.concat(tables).round(3).to_csv(arguments.out, index=False)
