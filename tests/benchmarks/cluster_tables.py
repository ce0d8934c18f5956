"""How many clusters are in tables whose clusters are known, and do they agree with ours?

    python tests/benchmarks/cluster_tables.py [iris faithful wine …] [--max-size 8] [--starts 1] [--rows 300]

A line for each table as it is done: BIC over scikit-learn's `GaussianMixture` of every covariance type, its
`BayesianGaussianMixture` (full, truncation 10, components that some row is most probably in), and
`lv.sklearn.MixtureSearch`: "full", the default; "auto", which takes the kind of the highest evidence of full, tied,
diagonal and low-rank Gaussians and Student's t; and of the default the number that holds over the longest stretch of
rows (`result.robustness()`). Of each the number, the adjusted Rand index with the known clusters (of `faithful`,
eruptions above and below 3 minutes) where there are any, and of ours in brackets the sizes that cannot be told apart,
log p(rows) over all sizes, the numbers of occupied components that hold 95 %, and processor seconds. Columns are
standardised for scikit-learn. Tables with more rows than `--rows` are cut to so many, drawn at random; of `digits` the
first 8 principal components, of `animals` (50 × 85 yes-or-no attributes) Bernoulli components, with BIC and the process
on its first 5 principal components. `faithful`, `galaxy`, `acidity`, `enzyme` and `animals` need `LVSEARCH_DATA`. The
simulated sets are Gaussians that overlap, Gaussians of unequal width, skewed clusters, heavy-tailed ones, and wine as
it would be if its cultivars were Gaussian.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import lvsearch as lv
from lvsearch.models import BernoulliComponents, FiniteMixture
from lvsearch.sklearn import MixtureSearch

Labelled = tuple[np.ndarray, np.ndarray | None]
"""Rows, and the known cluster of each where there are any."""


def dpmix(name: str) -> np.ndarray:
    path = Path(os.environ["LVSEARCH_DATA"]) / "dpmix" / f"{name}.csv"
    rows = np.genfromtxt(path, delimiter=",", ndmin=2)
    return rows[~np.isnan(rows).any(1)]  # the names of columns, where there are any


def faithful() -> Labelled:
    rows = dpmix("mixAK_Faithful")
    return rows, (rows[:, 0] > 3).astype(int)


def digits() -> Labelled:
    rows, labels = load_digits(return_X_y=True)
    return PCA(8, random_state=0).fit_transform(rows), labels


def animals() -> Labelled:
    """50 animals × 85 attributes; nobody says which are alike."""
    path = Path(os.environ["LVSEARCH_DATA"]) / "ibp" / "awa_predicate-matrix-binary.txt"
    bits = np.loadtxt(path)
    return bits[:, (bits.mean(0) > 0) & (bits.mean(0) < 1)], None


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
    "galaxy": lambda: (dpmix("mixAK_Galaxy"), None),
    "acidity": lambda: (dpmix("mixAK_Acidity"), None),
    "enzyme": lambda: (dpmix("mixAK_Enzyme"), None),
    "animals": animals,
    "digits": digits,
    "overlapping": overlapping,
    "widths": widths,
    "skewed": skewed,
    "heavy": heavy,
    "gaussian-wine": gaussian_wine,
    "wine": lambda: load_wine(return_X_y=True),
}
BINARY = ("animals",)


def agreement(labels: np.ndarray | None, found: np.ndarray) -> str:
    return "" if labels is None else f", ARI {adjusted_rand_score(labels, found):.2f}"


def by_bic(rows: np.ndarray, labels: np.ndarray | None, most: int) -> str:
    fits = [
        GaussianMixture(size, covariance_type=shape, n_init=5, random_state=0).fit(rows)
        for shape in ("full", "tied", "diag", "spherical")
        for size in range(1, most + 1)
    ]
    best = min(fits, key=lambda fit: fit.bic(rows))
    return f"{best.n_components} {best.covariance_type}{agreement(labels, best.predict(rows))}"


def by_process(rows: np.ndarray, labels: np.ndarray | None) -> str:
    fit = BayesianGaussianMixture(n_components=10, n_init=5, max_iter=1000, random_state=0).fit(rows)
    found = fit.predict(rows)
    return f"{len(np.unique(found))}{agreement(labels, found)}"


def told(result: lv.SearchResult, labels: np.ndarray | None) -> str:
    """What was found, and how many are occupied."""
    table = result.posterior()
    evidence = float(np.logaddexp.reduce(table["log_evidence"] + table["log_prior"]))
    beside = result.occupied_under_fits().sort_values("occupied_under_fits", ascending=False)
    held = beside["components"][: int(np.searchsorted(beside["occupied_under_fits"].cumsum(), 0.95)) + 1]
    open_ = ", ".join(map(str, sorted(size[0] for size in result.estimated.indistinguishable)))
    occupied = ", ".join(map(str, sorted(held)))
    found = agreement(labels, result.best.predict())
    return f"{result.best_size[0]} [{open_}]{found}, log p {evidence:.0f}, occupied {occupied}"


def one_table(name: str, most: int, starts: int, n_rows: int, orders: int) -> None:
    """Prints a block of lines."""
    rows, labels = SETS[name]()
    if len(rows) > n_rows:
        chosen = np.sort(np.random.default_rng(0).choice(len(rows), n_rows, replace=False))
        rows, labels = rows[chosen], None if labels is None else labels[chosen]
    standard = (rows - rows.mean(0)) / rows.std(0)
    if name in BINARY:
        standard = PCA(5, random_state=0).fit_transform(rows)
    true = "" if labels is None else f", {len(np.unique(labels))} known clusters"
    print(f"{name}: {len(rows)} rows × {rows.shape[1]}{true}")
    print(f"  BIC: {by_bic(standard, labels, most)}")
    print(f"  BayesianGaussianMixture: {by_process(standard, labels)}", flush=True)
    settings: dict[str, Any] = {"max_size": most, "starts": starts}
    model = FiniteMixture(BernoulliComponents(1.0, 1.0)) if name in BINARY else None
    began = time.process_time()
    search = MixtureSearch(model, covariance_type="full" if name in BINARY else "auto", **settings).fit(rows)
    seconds = time.process_time() - began
    if name in BINARY:
        plain = search.result_
        print(f"  Bernoulli: {told(plain, labels)}")
    else:
        plain = search.results_["full"]
        print(f"  full (the default): {told(plain, labels)}")
        print(f"  auto: {search.kinds_.index[0]}: {told(search.result_, labels)}")
        each = zip(search.kinds_.index, search.kinds_["log_evidence"], search.kinds_["best_size"], strict=True)
        print("    " + "; ".join(f"{kind} {evidence:.1f} ({size})" for kind, evidence, size in each))
    began_robust = time.process_time()
    robust = plain.robustness(orders=orders, progress=False)
    print(f"  robust: {robust.size} [{', '.join(map(str, robust.together))}]")
    print(f"  {seconds:.0f} + {time.process_time() - began_robust:.0f} processor seconds", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--max-size", type=int, default=8)
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--orders", type=int, default=2, help="of the rows, for robustness")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    for name in arguments.sets:
        one_table(name, arguments.max_size, arguments.starts, arguments.rows, arguments.orders)


if __name__ == "__main__":
    main()
