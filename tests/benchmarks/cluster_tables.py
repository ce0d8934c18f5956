"""How many clusters are in tables whose clusters are known, and do they agree with ours?

    python tests/benchmarks/cluster_tables.py [iris faithful wine overlapping …] [--max-size 8] [--starts 1]

A table: BIC over scikit-learn's `GaussianMixture` of every covariance type, its `BayesianGaussianMixture` (full,
truncation 10, components that some row is most probably in), `FullCovarianceComponents.scaled_to` with its fixed
numbers, and `.weak` with hyper-priors; of each the number, the adjusted Rand index with the known clusters (of
`faithful`, eruptions above and below 3 minutes), and of ours the sizes that cannot be told apart, log p(rows) over all
sizes, and the numbers of occupied components that hold 95 %. Columns are standardised for scikit-learn. `faithful`
needs `LVSEARCH_DATA`. The simulated sets are Gaussians that overlap, Gaussians of unequal width, skewed clusters,
heavy-tailed ones, and wine as it would be if its cultivars were Gaussian.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import lvsearch as lv
from lvsearch.models import FiniteMixture, FullCovarianceComponents

Labelled = tuple[np.ndarray, np.ndarray]
"""Rows, and the known cluster of each."""


def faithful() -> Labelled:
    path = Path(os.environ["LVSEARCH_DATA"]) / "dpmix" / "mixAK_Faithful.csv"
    rows = np.loadtxt(path, delimiter=",", skiprows=1)
    return rows, (rows[:, 0] > 3).astype(int)


def covariance(rng: np.random.Generator, n_dims: int) -> np.ndarray:
    root = rng.standard_normal((n_dims, n_dims))
    return root @ root.T / n_dims + 0.3 * np.eye(n_dims)


def overlapping() -> Labelled:
    rng = np.random.default_rng(1)
    labels, means = np.repeat([0, 1, 2], [60, 50, 40]), 2.0 * rng.standard_normal((3, 4))
    shared = covariance(rng, 4)
    return np.array([rng.multivariate_normal(means[k], shared) for k in labels]), labels


def widths() -> Labelled:
    rng = np.random.default_rng(2)
    labels, means = np.repeat([0, 1, 2], 60), 2.5 * rng.standard_normal((3, 3))
    each = [scale * covariance(rng, 3) for scale in (0.15, 1.0, 3.0)]
    return np.array([rng.multivariate_normal(means[k], each[k]) for k in labels]), labels


def skewed() -> Labelled:
    rng = np.random.default_rng(3)
    labels, means = np.repeat([0, 1, 2], [70, 50, 40]), np.array([[0, 0, 0], [5, 1, 0], [1, 5, 3.0]])
    return means[labels] + rng.gamma(2.0, 0.8, size=(160, 3)), labels


def heavy() -> Labelled:
    rng = np.random.default_rng(4)
    labels, means = np.repeat([0, 1, 2], 60), 3.5 * rng.standard_normal((3, 4))
    each = [covariance(rng, 4) for _ in range(3)]
    tails = np.sqrt(rng.gamma(2.5, 1 / 2.5, size=len(labels)))
    noise = np.array([rng.multivariate_normal(np.zeros(4), each[k]) for k in labels])
    return means[labels] + noise / tails[:, None], labels


def gaussian_wine() -> Labelled:
    """Rows drawn from three Gaussians with the means and covariances of wine's three cultivars, as many of each."""
    rows, labels = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    means = [rows[labels == k].mean(0) for k in range(3)]
    each = [np.cov(rows[labels == k].T) for k in range(3)]
    return np.array([rng.multivariate_normal(means[k], each[k]) for k in labels]), labels


SETS: dict[str, Callable[[], Labelled]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "faithful": faithful,
    "overlapping": overlapping,
    "widths": widths,
    "skewed": skewed,
    "heavy": heavy,
    "wine": lambda: load_wine(return_X_y=True),
    "gaussian-wine": gaussian_wine,
}


def by_bic(rows: np.ndarray, labels: np.ndarray, most: int) -> str:
    fits = [
        GaussianMixture(size, covariance_type=shape, n_init=5, random_state=0).fit(rows)
        for shape in ("full", "tied", "diag", "spherical")
        for size in range(1, most + 1)
    ]
    best = min(fits, key=lambda fit: fit.bic(rows))
    ari = adjusted_rand_score(labels, best.predict(rows))
    return f"{best.n_components} {best.covariance_type}, {ari:.2f}"


def by_process(rows: np.ndarray, labels: np.ndarray) -> str:
    fit = BayesianGaussianMixture(n_components=10, n_init=5, max_iter=1000, random_state=0).fit(rows)
    found = fit.predict(rows)
    return f"{len(np.unique(found))}, {adjusted_rand_score(labels, found):.2f}"


def ours(kind: Any, rows: np.ndarray, labels: np.ndarray, most: int, starts: int) -> tuple[str, str]:
    """(What was found, how many are occupied)."""
    began = time.process_time()
    result = lv.search(FiniteMixture(kind), rows, max_size=most, starts=starts, progress=False)
    table = result.posterior()
    evidence = float(np.logaddexp.reduce(table["log_evidence"] + table["log_prior"]))
    ari = adjusted_rand_score(labels, result.best.predict())
    beside = result.occupied_under_fits().sort_values("occupied_under_fits", ascending=False)
    held = beside["components"][: int(np.searchsorted(beside["occupied_under_fits"].cumsum(), 0.95)) + 1]
    print(f"  {result.summary()}\n  {time.process_time() - began:.0f} CPU seconds", flush=True)
    sizes = ", ".join(map(str, sorted(size[0] for size in result.estimated.indistinguishable)))
    return f"{result.best_size[0]} ({sizes}), {ari:.2f}, {evidence:.0f}", ", ".join(map(str, sorted(held)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--max-size", type=int, default=8)
    parser.add_argument("--starts", type=int, default=1)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    found = []
    for name in arguments.sets:
        rows, labels = SETS[name]()
        standard = (rows - rows.mean(0)) / rows.std(0)
        before, _ = ours(FullCovarianceComponents.scaled_to(rows), rows, labels, arguments.max_size, arguments.starts)
        after, occupied = ours(FullCovarianceComponents.weak(rows), rows, labels, arguments.max_size, arguments.starts)
        found.append(
            {
                "data": name,
                "BIC": by_bic(standard, labels, arguments.max_size),
                "BayesianGaussianMixture": by_process(standard, labels),
                "fixed numbers": before,
                "hyper-priors": after,
                "occupied": occupied,
            }
        )
        print(pd.DataFrame(found).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
