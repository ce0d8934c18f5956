"""How often the number of clusters, or of features, found by a search with its defaults is the planted one.

    python tests/benchmarks/planted_clusters.py [--features | --gaps] [--tables 40] [--seed 0] [--minutes 25]

Every table is drawn from the model and the prior that it is then searched with: the number of components from
1 + Poisson(3), weights from a symmetric Dirichlet(1), each column of each component its own Gaussian under the
Normal–Gamma prior of `lv.models.DiagonalComponents`, 300 to 2,000 rows (evenly on a logarithmic scale), 2 to 10
columns. With `--features`: the number of features from 1 + Poisson(5), the rest from the priors of `FEATURES`, 40 to
400 rows, 5 to 25 columns; with probability ½ a tenth of the cells is missing. With `--gaps`: clusters with a full
covariance each under the Normal–Wishart prior of `GAPPED`, and a tenth of the cells is missing in every table. One line
a table: the planted number of components K, how many of them some row is in (or has, K₊), what the search says of both,
and its processor seconds. At the end: how often the range that is named with 95 % holds the planted number, and how
many answers with a probability above .95 were wrong, of K and of K₊. The same is counted of answers that have an error
planted: evidence that is 3 nats too high for every further component (`--error`). A check that these answers pass as
well would be no check.
"""

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import wishart

import lvsearch as lv

PRIOR = lv.sizes.Poisson(3, shifted=True)
MODEL = lv.models.FiniteMixture(lv.models.DiagonalComponents(0.0, 1.0, 0.1, 2.0, 0.5))
FEATURE_PRIOR = lv.sizes.Poisson(5, shifted=True)
FEATURES = lv.models.IBP(
    concentration=lv.models.GammaPrior(4.0, 2.0),
    loading_precision=lv.models.GammaPrior(3.0, 3.0),
    noise_precision=lv.models.GammaPrior(3.0, 1.0),
)
"""The model of `--features`: on average two features a row, loadings of about 1, and noise of about .6."""
GAPPED = lv.models.FiniteMixture(
    lv.models.FullCovarianceComponents(0.0, 1.0, 0.1, excess_degrees=4.0, spread=2.0, partial_rows=True)
)
"""The model of `--gaps`: covariances are about I on average, and means some three standard deviations apart."""
HELD = 0.95


@dataclass(frozen=True)
class Answer:
    """What a search says of a number: the most probable one, its probability, and the range that holds 95 %."""

    best: int
    probability: float
    first: int
    last: int

    def holds(self, planted: int) -> bool:
        """Whether the planted number lies in the range."""
        return self.first <= planted <= self.last

    def is_wrong(self, planted: int) -> bool:
        """Whether another number than the planted one has more than `HELD`."""
        return self.probability > HELD and self.best != planted

    def __str__(self) -> str:
        return f"{self.best} ({self.probability:.2f}); {self.first}–{self.last}"


@dataclass(frozen=True)
class Row:
    """One table: the planted numbers, what was found of both, and what it took."""

    components: int
    occupied: int
    found: Answer
    found_occupied: Answer
    with_error: Answer
    is_settled: bool
    seconds: float


def draw_table(rng: np.random.Generator, most_rows: int) -> tuple[np.ndarray, int, int]:
    """Draw (rows (row, column), components, components that some row is in) from prior and model."""
    components = 1 + int(rng.poisson(3))
    n_rows = int(np.exp(rng.uniform(np.log(300), np.log(most_rows))))
    n_columns = int(rng.integers(2, 11))
    labels = rng.choice(components, n_rows, p=rng.dirichlet(np.ones(components)))
    precision = rng.gamma(2.0, 1 / 0.5, (components, n_columns))
    means = rng.normal(0.0, 1 / np.sqrt(0.1 * precision))
    rows = rng.normal(means[labels], 1 / np.sqrt(precision[labels]))
    return rows, components, len(np.unique(labels))


def draw_features(rng: np.random.Generator, most_rows: int) -> tuple[np.ndarray, int, int]:
    """Draw (rows (row, column), NaN where missing, features, features that some row has) from prior and model."""
    n_features = 1 + int(rng.poisson(5))
    n_rows = int(np.exp(rng.uniform(np.log(40), np.log(most_rows))))
    n_columns = int(rng.integers(5, 26))
    alpha, loading, noise = rng.gamma([4.0, 3.0, 3.0]) / [2.0, 3.0, 1.0]
    features = rng.random((n_rows, n_features)) < rng.beta(alpha / n_features, 1.0, n_features)
    loadings = rng.normal(0.0, loading**-0.5, (n_features, n_columns))
    rows = features @ loadings + rng.normal(0.0, noise**-0.5, (n_rows, n_columns))
    missing = (rng.random(rows.shape) < 0.1) & (rng.random() < 0.5)
    return np.where(missing, np.nan, rows), n_features, int(features.any(0).sum())


def draw_gaps(rng: np.random.Generator, most_rows: int) -> tuple[np.ndarray, int, int]:
    """Draw (rows (row, column), NaN where missing, components, components that some row is in) from prior and model."""
    components = 1 + int(rng.poisson(3))
    n_rows = int(np.exp(rng.uniform(np.log(300), np.log(most_rows))))
    n_columns = int(rng.integers(2, 11))
    labels = rng.choice(components, n_rows, p=rng.dirichlet(np.ones(components)))
    rows = np.empty((n_rows, n_columns))
    for component in range(components):
        precision = np.atleast_2d(wishart(3.0 + n_columns, np.eye(n_columns) / 2).rvs(random_state=rng))
        covariance = np.linalg.inv(precision)
        mean = rng.multivariate_normal(np.zeros(n_columns), covariance / 0.1)
        own = np.flatnonzero(labels == component)
        rows[own] = rng.multivariate_normal(mean, covariance, len(own))
    return np.where(rng.random(rows.shape) < 0.1, np.nan, rows), components, len(np.unique(labels))


def answer_of(probability: np.ndarray, first: int = 1) -> Answer:
    """Return the answer of probabilities of `first`, …, (number,): the most probable ones that hold 95 %."""
    order = np.argsort(-probability, kind="stable")
    held = order[: int(np.searchsorted(np.cumsum(probability[order]), HELD)) + 1] + first
    return Answer(int(order[0]) + first, float(probability.max()), int(held.min()), int(held.max()))


def with_planted_error(sizes: tuple[tuple[int, ...], ...], probability: np.ndarray, error: float) -> np.ndarray:
    """Return the probabilities of 1, 2, … that the sizes would have if evidence were `error` nats too high for every
    further part, (number,)."""
    log_weight = np.full(max(size for (size,) in sizes), -np.inf)
    with np.errstate(divide="ignore"):
        for (size,), chance in zip(sizes, probability, strict=True):
            log_weight[size - 1] = np.log(chance) + error * size
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def search_one(
    model: Any, prior: lv.sizes.SizePrior, rows: np.ndarray, components: int, occupied: int, seed: int, error: float
) -> Row:
    """Search with the defaults, under the model and the prior that the table was drawn from."""
    began = time.process_time()
    points = lv.Points.from_array(rows, missing="nan")
    result = lv.search(model, points, prior=prior, seed=seed, progress=False)
    seconds, found = time.process_time() - began, result.estimated
    assert result.partitions is not None
    (first,), (last,) = found.indistinguishable[0], found.indistinguishable[-1]
    best = Answer(found.best[0], float(found.probability.max()), first, last)
    others = answer_of(result.partitions.occupied_probability, result.partitions.fewest_occupied)
    spoilt = answer_of(with_planted_error(found.sizes, found.probability, error))
    return Row(components, occupied, best, others, spoilt, result.partitions.is_settled, seconds)


def main() -> None:
    """Draw, search and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the first table; the others follow")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no further table is begun")
    of_data = parser.add_mutually_exclusive_group()
    of_data.add_argument("--features", action="store_true", help="features of rows, instead of clusters")
    of_data.add_argument("--gaps", action="store_true", help="clusters with full covariances, and missing cells")
    parser.add_argument("--most-rows", type=int, help="by default 2,000 for clusters, 400 for features")
    parser.add_argument("--error", type=float, default=3.0, help="nats by which each further component is too probable")
    settings = parser.parse_args()
    model, prior, draw, usual = MODEL, PRIOR, draw_table, 2000
    if settings.features:
        model, prior, draw, usual = FEATURES, FEATURE_PRIOR, draw_features, 400
    elif settings.gaps:
        model, draw = GAPPED, draw_gaps
    rows, began = [], time.perf_counter()
    print(
        "| rows × columns | K | found | holds | K₊ | found | holds | settled | seconds |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for seed in range(settings.seed, settings.seed + settings.tables):
        if time.perf_counter() - began > 60 * settings.minutes:
            break
        table, components, occupied = draw(np.random.default_rng([seed, 0x7AB]), settings.most_rows or usual)
        row = search_one(model, prior, table, components, occupied, seed, settings.error)
        rows.append(row)
        words = ["yes" if one else "no" for one in (row.found.holds(components), row.found_occupied.holds(occupied))]
        print(
            f"| {table.shape[0]} × {table.shape[1]} | {components} | {row.found} | {words[0]} | {occupied} | "
            f"{row.found_occupied} | {words[1]} | {'yes' if row.is_settled else 'no'} | {row.seconds:.0f} |",
            flush=True,
        )
    held = sum(row.found.holds(row.components) for row in rows)
    held_occupied = sum(row.found_occupied.holds(row.occupied) for row in rows)
    wrong = sum(row.found.is_wrong(row.components) for row in rows)
    wrong_occupied = sum(row.found_occupied.is_wrong(row.occupied) for row in rows)
    print(
        f"\n{len(rows)} tables, {sum(row.is_settled for row in rows)} settled: the range holds K in {held} and K₊ in "
        f"{held_occupied}; wrong answers above .95: {wrong} of K, {wrong_occupied} of K₊; "
        f"{np.median([row.seconds for row in rows]):.0f} processor seconds in the median"
    )
    print(
        f"with evidence {settings.error:g} nats too high for every further component: the range holds K in "
        f"{sum(row.with_error.holds(row.components) for row in rows)}; wrong answers above .95: "
        f"{sum(row.with_error.is_wrong(row.components) for row in rows)} of K"
    )


if __name__ == "__main__":
    main()
