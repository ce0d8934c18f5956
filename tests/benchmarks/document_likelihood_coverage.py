"""How often the stated errors of document likelihoods are true: a table of coverage, and of seconds per document.

Documents are drawn from their own model: 50 topics of 200 words, topics ~ Dirichlet(η), η = .1 and .5, proportions
~ Dirichlet(α), α = .01, .1 and 1, of 30 to 300 tokens. The truth is a long annealed run (`Truth`), which itself is held
against enumeration in `tests/inference/likelihood/test_annealed.py`. An estimate counts as covered when it lies within
2 errors of the truth, where the error is the stated one and the truth's in quadrature.

    nice -n 19 python tests/benchmarks/document_likelihood_coverage.py [--methods ais mfi lrs] [--documents 40]
        [--store FOLDER] [--seconds-at 50 100 400] [--enumerated]

With --enumerated the table is that of small α, where the truth is the exact sum.
"""

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from lvsearch.inference.likelihood import document_likelihood
from lvsearch.inference.likelihood.annealed import AnnealedImportance
from lvsearch.inference.likelihood.documents import read_counts, read_topics

N_TOPICS, N_WORDS = 50, 200
ALPHAS, ETAS = (0.01, 0.1, 1.0), (0.1, 0.5)
LENGTHS = (30, 30, 30, 30, 60, 60, 60, 100, 100, 300)
"""Tokens of documents in turn: a tenth are long, as they cost ten times as much."""

TRUTH = AnnealedImportance(samples=512, islands=16, steps=100)
"""The long run: four times the particles, twice the steps and twice the islands of the estimator that it judges."""


@dataclass(frozen=True)
class Case:
    """One cell of the table: topics (topic, word), α of every topic, and documents (document, word)."""

    alpha: float
    eta: float
    topics: Float64[np.ndarray, "topic word"]
    documents: Int64[np.ndarray, "document word"]


def draw_topics(eta: float, n_topics: int = N_TOPICS) -> Float64[np.ndarray, "topic word"]:
    """Draw topics from Dirichlet(η)."""
    return np.random.default_rng([5, 1]).dirichlet(np.full(N_WORDS, eta), n_topics)


def draw_document(topics: np.ndarray, alpha: float, length: int, seed: Sequence[int]) -> Int64[np.ndarray, " word"]:
    """Draw the counts of one document of `length` tokens, its proportions from Dirichlet(α)."""
    random = np.random.default_rng(seed)
    n_topics, n_words = topics.shape
    proportions = random.dirichlet(np.full(n_topics, alpha))
    chosen = random.choice(n_topics, p=proportions, size=length)
    words = [random.choice(n_words, p=topics[topic]) for topic in chosen]
    return np.bincount(words, minlength=n_words)


def draw_case(alpha: float, eta: float, n_documents: int) -> Case:
    """Draw the documents of one cell: the same first ones for every number of documents."""
    topics = draw_topics(eta)
    documents = [draw_document(topics, alpha, LENGTHS[i % len(LENGTHS)], [61, i]) for i in range(n_documents)]
    return Case(alpha, eta, topics, np.array(documents))


def truths(case: Case, seed: int = 1000) -> pd.DataFrame:
    """Return the long run's log-likelihood and standard error of every document, nats."""
    topic_set = read_topics(case.topics, np.full(len(case.topics), case.alpha))
    counts = read_counts(case.documents, case.topics.shape[1])
    found = TRUTH.estimate(topic_set, counts, TRUTH.samples, jax.random.key(seed))
    return pd.DataFrame({"truth": found.log_likelihood, "truth_error": found.standard_error})


def estimates(case: Case, method: str, seed: int = 0) -> pd.DataFrame:
    """Return a method's log-likelihood and stated error of every document, nats, and CPU seconds per document."""
    alpha = np.full(len(case.topics), case.alpha)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that estimates miss their intervals is what is counted
        found = document_likelihood(
            case.topics, alpha, case.documents, method=method, key=jax.random.key(seed), certify=False
        )
    seconds = (time.process_time() - began) / len(case.documents)
    return pd.DataFrame({"value": found.log_likelihood, "error": found.standard_error, "seconds": seconds})


def judge(case: Case, method: str, truth: pd.DataFrame, found: pd.DataFrame) -> dict[str, float | str]:
    """Return one row of the table: coverage at 2 and at 4 errors, the root mean square of z, error and difference."""
    total = np.hypot(found["error"], truth["truth_error"])
    difference = found["value"] - truth["truth"]
    z = (difference / total).to_numpy()
    return {
        "alpha": case.alpha,
        "eta": case.eta,
        "method": method,
        "documents": len(z),
        "within_2": float(np.mean(np.abs(z) <= 2)),
        "within_4": float(np.mean(np.abs(z) <= 4)),
        "rms_z": float(np.sqrt(np.mean(z**2))),
        "mean_difference": float(difference.mean()),
        "median_error": float(found["error"].median()),
        "truth_error": float(truth["truth_error"].median()),
        "nats_per_token": float(difference.sum() / case.documents.sum()),
        "seconds": float(found["seconds"].iloc[0]),
    }


def measure(methods: Sequence[str], n_documents: int, store: Path | None) -> pd.DataFrame:
    """The table of all cells. store: a folder in which every cell's numbers are kept, and found again."""
    rows = []
    for alpha in ALPHAS:
        for eta in ETAS:
            case = draw_case(alpha, eta, n_documents)
            label = f"{alpha}-{eta}-{n_documents}"
            truth = kept(store, f"truth-{label}", lambda case=case: truths(case))
            for method in methods:
                made = kept(store, f"{method}-{label}", lambda case=case, method=method: estimates(case, method))
                rows.append(judge(case, method, truth, made))
                print(
                    pd.DataFrame(rows[-1:]).to_string(header=len(rows) == 1, float_format="{:.3f}".format), flush=True
                )
    return pd.DataFrame(rows)


def kept(store: Path | None, name: str, make) -> pd.DataFrame:
    """Return the numbers kept under a name, or make and keep them."""
    if store is None:
        return make()
    path = store / f"{name}.json"
    if not path.exists():
        store.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(make().to_dict("list")))
    return pd.DataFrame(json.loads(path.read_text()))


def pooled(table: pd.DataFrame) -> pd.DataFrame:
    """The cells of each method together, weighted by their documents."""
    columns = ["within_2", "within_4", "mean_difference", "nats_per_token"]
    weight = table["documents"]
    together = {
        method: (rows[columns].mul(weight[rows.index], axis=0)).sum() / weight[rows.index].sum()
        for method, rows in table.groupby("method")
    }
    return pd.DataFrame(together).T.assign(documents=table.groupby("method")["documents"].sum())


def seconds_by_size(methods: Sequence[str], sizes: Sequence[int], n_documents: int = 16) -> pd.DataFrame:
    """CPU seconds per document of 100 tokens, after compilation, by number of topics (rows) and method (columns)."""
    rows = {}
    for size in sizes:
        topics = draw_topics(0.1, size)
        documents = np.array([draw_document(topics, 5.0 / size, 100, [62, i]) for i in range(n_documents)])
        case = Case(5.0 / size, 0.1, topics, documents)
        rows[size] = {}
        for method in methods:
            estimates(case, method)
            rows[size][method] = estimates(case, method, seed=1)["seconds"].iloc[0]
    return pd.DataFrame(rows).T


def enumerated_table(methods: Sequence[str], n_documents: int = 120) -> pd.DataFrame:
    """The table at small α beside the exact sum. Two documents in three have more topics than such an α calls for."""
    rows = []
    for n_topics, length, eta in ((5, 30, 1.0), (5, 30, 0.1), (8, 14, 0.3)):
        for alpha in (1e-4, 1e-3, 0.01, 0.1):
            random = np.random.default_rng([n_topics, int(1 / alpha)])
            topics = random.dirichlet(np.full(30, eta), n_topics) + 1e-9
            topics /= topics.sum(axis=1, keepdims=True)
            spread = [max(alpha, 0.003) if i % 3 == 0 else 0.3 for i in range(n_documents)]
            shares = [random.dirichlet(np.full(n_topics, each)) for each in spread]
            documents = np.array([random.multinomial(length, share @ topics) for share in shares])
            case, prior = Case(alpha, eta, topics, documents), np.full(n_topics, alpha)
            exact = [
                document_likelihood(topics, prior, documents[i : i + 20], method="exact").log_likelihood
                for i in range(0, n_documents, 20)
            ]
            truth = pd.DataFrame({"truth": np.concatenate(exact), "truth_error": 0.0})
            for method in methods:
                estimates(case, method)  # compiles
                found = estimates(case, method, seed=1)
                root = np.sqrt(np.mean((found["value"] - truth["truth"]) ** 2))
                rows.append({"topics": n_topics, **judge(case, method, truth, found), "rms_difference": root})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["ais", "mfi", "mfi2", "lrs"])
    parser.add_argument("--documents", type=int, default=40, help="of every cell; there are six")
    parser.add_argument("--store", type=Path, default=None, help="a folder in which every cell's numbers are kept")
    parser.add_argument("--seconds-at", nargs="+", type=int, default=None, help="only seconds, at so many topics")
    parser.add_argument("--enumerated", action="store_true", help="small α instead, beside the exact sum")
    given = parser.parse_args()
    if given.enumerated:
        print(enumerated_table(given.methods).round(3).to_string(index=False))
        return
    if given.seconds_at is not None:
        print(seconds_by_size(given.methods, given.seconds_at).round(4).to_string())
        return
    table = measure(given.methods, given.documents, given.store)
    print(table.round(3).to_string(index=False))
    print(pooled(table).round(4).to_string())


if __name__ == "__main__":
    main()
