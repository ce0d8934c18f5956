"""Does the size that holds over the longest stretch of units survive models that are wrong on purpose?

    python tests/benchmarks/robustness.py skewed --sets 50 [--first 0] [--out skewed.jsonl]
    python tests/benchmarks/robustness.py --report skewed.jsonl
    python tests/benchmarks/robustness.py --wine

Data are drawn from mixtures and topics one level off the model that is searched: `REGIMES` says how. Each set is a
search and a `result.robustness()`, a line of the file. Counted: how often the planted size is the best of the search
and among those it cannot tell apart, how often it is the size of the longest stretch and among those that hold 90 % of
it, how many these are, and by how many the search and the longest stretch are off on average.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import lvsearch as lv

ROWS, COLUMNS, APART = 200, 2, 5.0
DOCUMENTS, TOKENS, WORDS = 60, 60, 40
PLANTED = (1, 2, 3, 4)


def centres(rng: np.random.Generator, size: int) -> np.ndarray:
    """(component, column), at least `APART` from each other, no farther than that takes."""
    spread = APART
    while True:
        drawn = rng.normal(size=(size, COLUMNS)) * spread
        gaps = np.linalg.norm(drawn[:, None] - drawn, axis=-1) + 1e9 * np.eye(size)
        if gaps.min() > APART:
            return drawn
        spread *= 1.02


def rows(noise: Callable[[np.random.Generator, np.ndarray], np.ndarray]) -> Callable[[int, int], Any]:
    """noise: (rng, labels) -> (row, column), of standard deviation about 1. -> (size, seed) -> (model, rows)."""

    def draw(size: int, seed: int) -> tuple[lv.models.Model, np.ndarray]:
        rng = np.random.default_rng((seed, size))
        labels = rng.choice(size, ROWS, p=rng.dirichlet(np.full(size, 10.0)))
        values = centres(rng, size)[labels] + noise(rng, labels)
        return lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(values)), values

    return draw


def skewed(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    return rng.gamma(2.0, np.sqrt(0.5), (len(labels), COLUMNS)) - np.sqrt(2.0)


def heavy(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    return rng.standard_t(4, (len(labels), COLUMNS)) / np.sqrt(2.0)


def clouds(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Each cluster is ten small ones, one level below those that are planted."""
    small = 0.8 * rng.normal(size=(labels.max() + 1, 10, COLUMNS))
    return small[labels, rng.choice(10, len(labels))] + 0.6 * rng.normal(size=(len(labels), COLUMNS))


def normal(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    return rng.normal(size=(len(labels), COLUMNS))


def topics(size: int, seed: int) -> tuple[lv.models.Model, lv.Corpus]:
    """Every document has topics of its own, around those that are planted: Dirichlet(50 · topic)."""
    rng = np.random.default_rng((seed, size))
    planted = rng.dirichlet(np.full(WORDS, 0.1), size)
    counts = np.zeros((DOCUMENTS, WORDS), np.int32)
    for row in counts:
        own = np.array([rng.dirichlet(50.0 * topic + 1e-3) for topic in planted])
        row += rng.multinomial(TOKENS, rng.dirichlet(np.full(size, 1.0 / size)) @ own).astype(np.int32)
    return lv.models.LDA(1.0, 0.1), lv.Corpus.from_matrix(csr_array(counts))


REGIMES: dict[str, Callable[[int, int], Any]] = {
    "normal": rows(normal),
    "skewed": rows(skewed),
    "heavy": rows(heavy),
    "clouds": rows(clouds),
    "topics": topics,
}


def one_set(regime: str, number: int) -> dict[str, Any]:
    """One search and what is robust of it."""
    planted = PLANTED[number % len(PLANTED)]
    model, data = REGIMES[regime](planted, number)
    began = time.process_time()
    result = lv.search(model, data, max_size=planted + 6, starts=2, seed=number, progress=False)
    searched = time.process_time()
    found = result.robustness(seed=number, progress=False)
    return {
        "regime": regime,
        "number": number,
        "planted": planted,
        "best": result.best_size[0],
        "undecided": [size for (size,) in result.estimated.indistinguishable],
        "size": found.size,
        "together": list(found.together),
        "confidence": found.confidence,
        "share": found.share.round(4).tolist(),
        "searched": searched - began,
        "seconds": time.process_time() - searched,
    }


def report(entries: list[dict[str, Any]]) -> None:
    """A line for each regime."""
    for regime in dict.fromkeys(entry["regime"] for entry in entries):
        these = [entry for entry in entries if entry["regime"] == regime]

        def mean(value: Callable[[dict[str, Any]], float], these: list[dict[str, Any]] = these) -> float:
            return float(np.mean([value(entry) for entry in these]))

        print(
            f"{regime}, {len(these)} sets: search: best is planted {mean(lambda e: e['best'] == e['planted']):.0%}, "
            f"undecided hold it {mean(lambda e: e['planted'] in e['undecided']):.0%}, too many by "
            f"{mean(lambda e: e['best'] - e['planted']):+.2f}; longest stretch: is planted "
            f"{mean(lambda e: e['size'] == e['planted']):.0%}, 90 % hold it "
            f"{mean(lambda e: e['planted'] in e['together']):.0%} with {mean(lambda e: len(e['together'])):.1f} sizes, "
            f"too many by {mean(lambda e: e['size'] - e['planted']):+.2f}; processor seconds "
            f"{np.median([e['searched'] for e in these]):.0f} + {np.median([e['seconds'] for e in these]):.0f}"
        )


def wine() -> None:
    """178 wines of three cultivars, thirteen measurements, standardised: what the search says, and what is robust."""
    from sklearn.datasets import load_wine

    values = load_wine().data
    values = (values - values.mean(0)) / values.std(0)
    model = lv.models.FiniteMixture(lv.models.DiagonalComponents.weak(values))
    result = lv.search(model, values, max_size=10, starts=2, progress=False)
    print(result.summary().splitlines()[0])
    print(result.robustness(orders=4, progress=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("regime", nargs="?", choices=sorted(REGIMES))
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="number of the first set")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path, nargs="+")
    parser.add_argument("--wine", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report([json.loads(line) for path in arguments.report for line in path.read_text().splitlines()])
        return
    if arguments.wine:
        wine()
        return
    entries = []
    for number in range(arguments.first, arguments.first + arguments.sets):
        entries.append(one_set(arguments.regime, number))
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.write(json.dumps(entries[-1]) + "\n")
    report(entries)


if __name__ == "__main__":
    main()
