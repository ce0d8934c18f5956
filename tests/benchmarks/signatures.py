"""How many mutational signatures, where the noise is not the model's: ours, with and without noise, beside other ways.

    python tests/benchmarks/signatures.py                                 # all ways, 500 tumours × 96 kinds, 20 planted
    python tests/benchmarks/signatures.py --ways noisy --out noisy.jsonl  # one of them, its answer kept
    python tests/benchmarks/signatures.py --tumours 100 --planted 5 --largest 10    # to see it run

Catalogues are drawn so (`catalogue`): signatures from Dirichlet(0.1) over the kinds, every third one flat, from
Dirichlet(0.5); a tumour has each with its prevalence, four on average, in shares that are Gamma(1)'s; burdens are
log-normal; and every cell's mean is multiplied by a Gamma of mean 1 and shape `--noise` before its Poisson is drawn. No
way is told the shape or the number.

| way | what it is |
|---|---|
| `noisy` | `PoissonFactorization` whose cells have noise of an inferred shape: the annealed posterior over sizes |
| `poisson` | the same without noise |
| `lda` | `LDA(1.0, 0.2)` by its mean-field bound, which is no posterior; annealing draws every single mutation |
| `hdp` | `HDP()` with 50 places: its topics that hold a thousandth of the mutations |
| `nmf` | the customary rule, with scikit-learn: `silhouettes` of factorisations of bootstrapped catalogues |

`nmf`: of each number ten factorisations (Kullback–Leibler, multiplicative updates), each of a bootstrapped catalogue,
their signatures clustered one to one around those of the first; named is the largest number whose clusters have a mean
silhouette above .8, and none of them one below .2.

Printed for each: the number named, the set that holds 90 % of the probability, precision (share of its signatures that
have a planted partner, one to one, at cosine > .9) and recall (share of planted ones that have one), processor seconds.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

import lvsearch as lv

ACTIVE, RAREST = 4.0, 0.05
"""Signatures of a tumour on average; the least prevalence of one."""
CLEAR = 0.9
PLACES, LEAST = 50, 1e-3
BOOTSTRAPS, STABLE, LEAST_STABLE = 10, 0.8, 0.2


class Catalogue(NamedTuple):
    """counts: (tumour, kind); planted: (signature, kind), rows summing to 1."""

    counts: np.ndarray
    planted: np.ndarray


class Answer(NamedTuple):
    """The number named; the set of sizes with 90 % of the probability, empty where a way gives none; its signatures."""

    number: int
    together: tuple[int, ...]
    signatures: np.ndarray


def catalogue(tumours: int, kinds: int, planted: int, noise: float, burden: float, seed: int) -> Catalogue:
    """burden: the median number of mutations of a tumour; their logarithm's standard deviation is 1."""
    rng = np.random.default_rng(seed)
    flat = np.arange(planted) % 3 == 2
    signatures = np.array([rng.dirichlet(np.full(kinds, 0.5 if one else 0.1)) for one in flat])
    drawn = rng.beta(1.0, 2.0, planted)
    prevalence = np.clip(ACTIVE * drawn / drawn.sum(), RAREST, 0.9)
    has = rng.random((tumours, planted)) < prevalence
    without = ~has.any(axis=1)
    has[without, rng.choice(planted, without.sum(), p=prevalence / prevalence.sum())] = True
    shares = np.where(has, rng.gamma(1.0, 1.0, has.shape), 0.0)
    totals = burden * np.exp(rng.normal(size=tumours))
    mean = (totals / shares.sum(axis=1))[:, None] * (shares @ signatures)
    counts = rng.poisson(mean * rng.gamma(noise, 1 / noise, mean.shape))
    return Catalogue(counts.astype(np.float64), signatures)


def matched(found: np.ndarray, planted: np.ndarray) -> tuple[float, float]:
    """(precision, recall) at cosine > .9, pairs one to one."""
    one, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (found, planted))
    cosine = one @ other.T
    rows, columns = linear_sum_assignment(-cosine)
    pairs = int((cosine[rows, columns] > CLEAR).sum())
    return pairs / len(found), pairs / len(planted)


# ── ways ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def factorised(counts: np.ndarray, largest: int, seed: int, noise: Any) -> Answer:
    model = lv.models.PoissonFactorization.scaled_to(counts, noise_shape=noise)
    result = lv.search(model, counts, max_size=largest, starts=2, seed=seed, progress=False)
    print(result.posterior().to_string(), str(result).splitlines()[0], sep="\n", flush=True)
    return Answer(result.best_size[0], ninety(result), result.best.signatures().to_numpy())


def noisy(counts: np.ndarray, largest: int, seed: int) -> Answer:
    """The prior of the shape is as wide as what may be: a tenth to a hundred."""
    return factorised(counts, largest, seed, lv.models.GammaPrior(1.0, 0.05))


def poisson(counts: np.ndarray, largest: int, seed: int) -> Answer:
    return factorised(counts, largest, seed, None)


def lda(counts: np.ndarray, largest: int, seed: int) -> Answer:
    corpus = lv.Corpus.from_matrix(counts.astype(np.int64))
    result = lv.search(
        lv.models.LDA(1.0, 0.2), corpus, max_size=largest, evidence="bound", starts=2, seed=seed, progress=False
    )
    return Answer(result.best_size[0], (), result.best.table("topic_word").to_numpy())


def hdp(counts: np.ndarray, largest: int, seed: int) -> Answer:
    """All places are there from the start; `largest` is not asked."""
    corpus = lv.Corpus.from_matrix(counts.astype(np.int64))
    fit = lv.fit(lv.models.HDP(), corpus, size=PLACES, seed=seed)
    topics = fit.table("topic_word").to_numpy()
    held = counts.sum(axis=1) @ np.asarray(fit.transform(corpus))
    used = topics[held / held.sum() > LEAST]
    return Answer(len(used), (), used)


def nmf(counts: np.ndarray, largest: int, seed: int) -> Answer:
    from sklearn.decomposition import NMF

    rng, best = np.random.default_rng(seed), Answer(1, (), counts.sum(axis=0, keepdims=True))
    for size in range(2, largest + 1):
        runs = []
        for run in range(BOOTSTRAPS):
            bootstrapped = rng.poisson(counts)
            fit = NMF(size, solver="mu", beta_loss="kullback-leibler", init="random", max_iter=300, random_state=run)
            fit.fit(bootstrapped + 1e-10)
            runs.append(fit.components_ / np.linalg.norm(fit.components_, axis=1, keepdims=True))
        clustered = np.stack([rows[linear_sum_assignment(-(runs[0] @ rows.T))[1]] for rows in runs])
        silhouette = silhouettes(clustered)
        print(f"  nmf {size}: silhouette {silhouette.mean():.3f}, least {silhouette.min():.3f}", flush=True)
        if silhouette.mean() > STABLE and silhouette.min() > LEAST_STABLE:
            best = Answer(size, (), clustered.mean(axis=0))
    return best


def silhouettes(clustered: np.ndarray) -> np.ndarray:
    """Mean silhouette of each cluster, (signature,), by cosine distance. clustered: (run, signature, kind), unit
    rows."""
    runs, size, _ = clustered.shape
    distance = 1 - np.einsum("akv,blv->akbl", clustered, clustered)
    own = np.einsum("akbk->ak", distance) / (runs - 1)  # that of a row to itself is 0
    others = distance.mean(axis=2)
    others[:, np.arange(size), np.arange(size)] = np.inf
    nearest = others.min(axis=2)
    return ((nearest - own) / np.maximum(nearest, own)).mean(axis=0)


def ninety(result: lv.SearchResult) -> tuple[int, ...]:
    """The most probable sizes that hold 90 % between them."""
    table = result.posterior().sort_values("probability", ascending=False)
    before = table["probability"].cumsum() - table["probability"]
    return tuple(sorted(int(size) for size in table["size"][before < 0.9]))


WAYS: dict[str, Callable[[np.ndarray, int, int], Answer]] = {
    "noisy": noisy,
    "poisson": poisson,
    "lda": lda,
    "hdp": hdp,
    "nmf": nmf,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--tumours", type=int, default=500)
    parser.add_argument("--kinds", type=int, default=96, help="kinds of mutations")
    parser.add_argument("--planted", type=int, default=20)
    parser.add_argument("--noise", type=float, default=20.0, help="shape of the Gamma that multiplies each cell's mean")
    parser.add_argument("--burden", type=float, default=2000.0, help="median mutations of a tumour")
    parser.add_argument("--largest", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a line for each answer, appended")
    arguments = parser.parse_args()
    data = catalogue(
        arguments.tumours, arguments.kinds, arguments.planted, arguments.noise, arguments.burden, arguments.seed
    )
    tumours, kinds = data.counts.shape
    print(f"{tumours} × {kinds}, {int(data.counts.sum()):,} mutations, {arguments.planted} planted")
    for way in arguments.ways:
        began = time.process_time()
        answer = WAYS[way](data.counts, arguments.largest, arguments.seed)
        seconds = time.process_time() - began
        precision, recall = matched(answer.signatures, data.planted)
        held = ", ".join(map(str, answer.together)) or "none given"
        print(
            f"{way}: {answer.number}; 90 %: {held}; precision {precision:.2f}, recall {recall:.2f}; "
            f"{seconds:.0f} processor seconds",
            flush=True,
        )
        if arguments.out is not None:
            entry = {"way": way, "seconds": seconds, "precision": precision, "recall": recall}
            settings = {name: value for name, value in vars(arguments).items() if name not in ("ways", "out")}
            with arguments.out.open("a") as file:
                file.write(json.dumps({**settings, **entry, "number": answer.number, "ninety": answer.together}) + "\n")


if __name__ == "__main__":
    main()
