"""Long annealing from the prior beside the search: how much of its calibration is left to gain?

    pip install numba
    python tests/benchmarks/long_annealing.py topics-hard --sets 40 [--steps 20000] [--paths 2] --out long.jsonl
    python tests/benchmarks/long_annealing.py --report long.jsonl --search hard.jsonl

The corpora of `calibration.py`, set by set, every size from 1 to the largest, by an annealed importance sampler that
shares no line with the library: sequential collapsed Gibbs sweeps (Griffiths & Steyvers 2004) at `steps` temperatures,
evenly spaced, from the prior to the posterior, one weight a path (Neal 2001), paths averaged. One topic needs none: its
evidence is a ratio of gamma functions. The report puts the search's answers on the same sets (`calibration.py --out`)
beside: mean log probability of the truth, nats; by how much the evidence of the sizes that matter differs.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numba
import numpy as np
from calibration import REGIMES, Regime
from scipy.special import gammaln, logsumexp

import lvsearch as lv

MATTERS = 0.01
"""Probability from which a size's evidence is compared."""


@numba.njit(cache=True)
def _one_path(document, word, n_documents, n_words, alpha, eta, temperatures, seed):
    """log of the weight of one path, nats. alpha: (topic,)."""
    np.random.seed(seed)  # noqa: NPY002 — numba's own generator
    n_tokens, n_topics = len(word), len(alpha)
    assigned = np.empty(n_tokens, np.int64)
    of_document = np.zeros((n_documents, n_topics))
    of_word = np.zeros((n_words, n_topics), np.int64)
    totals = np.zeros(n_topics, np.int64)
    ends = np.empty(n_topics)
    log_words = 0.0  # log p(w | z, η), up to what does not depend on z
    for token in range(n_tokens):  # a draw from the prior: every document an urn
        d, w = document[token], word[token]
        total = 0.0
        for k in range(n_topics):
            total += of_document[d, k] + alpha[k]
            ends[k] = total
        limit, new = np.random.random() * total, 0  # noqa: NPY002
        while ends[new] <= limit and new < n_topics - 1:
            new += 1
        log_words += math.log((of_word[w, new] + eta) / (totals[new] + n_words * eta))
        assigned[token] = new
        of_document[d, new] += 1
        of_word[w, new] += 1
        totals[new] += 1
    most = 1
    for w in range(n_words):
        most = max(most, of_word[w].sum())
    log_of_word = np.log(np.arange(most + 1) + eta)
    log_of_total = np.log(np.arange(n_tokens + 1) + n_words * eta)
    log_weight, before = 0.0, 0.0
    for t in temperatures:
        log_weight += (t - before) * log_words
        before = t
        power_of_word, power_of_total = np.exp(t * log_of_word), np.exp(-t * log_of_total)
        for token in range(n_tokens):
            d, w, old = document[token], word[token], assigned[token]
            of_document[d, old] -= 1
            of_word[w, old] -= 1
            totals[old] -= 1
            total = 0.0
            for k in range(n_topics):
                total += (of_document[d, k] + alpha[k]) * power_of_word[of_word[w, k]] * power_of_total[totals[k]]
                ends[k] = total
            limit, new = np.random.random() * total, 0  # noqa: NPY002
            while ends[new] <= limit and new < n_topics - 1:
                new += 1
            if new != old:
                log_words += log_of_word[of_word[w, new]] - log_of_total[totals[new]]
                log_words -= log_of_word[of_word[w, old]] - log_of_total[totals[old]]
                assigned[token] = new
            of_document[d, new] += 1
            of_word[w, new] += 1
            totals[new] += 1
    return log_weight


def log_evidence(
    corpus: lv.Corpus, n_topics: int, total: float, eta: float, steps: int, seeds: list[int]
) -> list[float]:
    """Of each path, nats; for one topic the exact value."""
    counts = corpus.counts
    n_documents, n_words = counts.shape
    if n_topics == 1:
        of_word = np.asarray(counts.sum(0)).ravel()
        everything = gammaln(n_words * eta) - gammaln(n_words * eta + of_word.sum())
        return [float(everything + (gammaln(eta + of_word) - gammaln(eta)).sum())]
    document = np.repeat(np.repeat(np.arange(n_documents), np.diff(counts.indptr)), counts.data)
    word = np.repeat(counts.indices, counts.data).astype(np.int64)
    temperatures = np.arange(1, steps + 1) / steps
    alpha = np.full(n_topics, total / n_topics)
    return [_one_path(document, word, n_documents, n_words, alpha, eta, temperatures, seed) for seed in seeds]


def one_set(regime: Regime, number: int, steps: int, paths: int) -> dict[str, Any]:
    truth, corpus = regime.set_of(number, 0)
    total, eta = regime.model.numbers()
    found = [
        log_evidence(
            corpus, size, float(total), float(eta), steps, [1 + number * 1000 + size * 10 + p for p in range(paths)]
        )
        for size in regime.sizes
    ]
    return {"number": number, "truth": truth, "sizes": regime.sizes, "paths": found}


def log_posterior(entry: dict[str, Any], prior: lv.sizes.SizePrior) -> np.ndarray:
    each = [logsumexp(paths) - np.log(len(paths)) for paths in entry["paths"]]
    joint = np.array(each) + [prior.log_pmf(size) for size in entry["sizes"]]
    return joint - logsumexp(joint)


def beside(long: list[dict[str, Any]], searched: dict[int, dict[str, Any]], prior: lv.sizes.SizePrior) -> str:
    """What both say of the sets that both have."""
    both = [(entry, searched[entry["number"]]) for entry in long if entry["number"] in searched]
    ours, theirs, apart, spread = [], [], [], []
    for entry, answer in both:
        log_p = log_posterior(entry, prior)
        place = entry["sizes"].index(entry["truth"])
        theirs.append(log_p[place])
        of = dict(zip(answer["sizes"], answer["probability"], strict=True))
        ours.append(math.log(max(of.get(entry["truth"], 0.0), 1e-12)))
        known = dict(zip(answer["sizes"], answer["log_evidence"], strict=True))
        for size, paths, log_probability in zip(entry["sizes"], entry["paths"], log_p, strict=True):
            if size in known and size > 1 and log_probability > math.log(MATTERS):
                apart.append(known[size] - (logsumexp(paths) - math.log(len(paths))))
                spread.append(np.std(paths, ddof=1) if len(paths) > 1 else math.nan)
    difference = np.array(ours) - np.array(theirs)
    error = difference.std(ddof=1) / math.sqrt(len(difference))
    deviation = np.sqrt(np.mean(np.square(spread)))
    return (
        f"{len(both)} sets: mean log p(truth) of the search {np.mean(ours):.3f}, of long annealing "
        f"{np.mean(theirs):.3f}; difference {difference.mean():+.3f} ± {error:.3f} nats\n"
        f"  log evidence of the {len(apart)} sizes that matter: search minus long annealing {np.mean(apart):+.2f} on "
        f"average, {np.mean(np.abs(apart)):.2f} without sign; standard deviation of its paths {deviation:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("regime", nargs="?", choices=("topics-hard", "topics-easy"), default="topics-hard")
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first set")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--paths", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path, nargs="+")
    parser.add_argument("--search", type=Path, nargs="+", help="answers of the search on the same sets")
    arguments = parser.parse_args()
    regime = REGIMES[arguments.regime]()
    if arguments.report and not arguments.search:
        parser.error("--report needs the answers of the search on the same sets: --search FILE")
    if arguments.report:
        long = [json.loads(line) for path in arguments.report for line in path.read_text().splitlines()]
        answers = [json.loads(line) for path in arguments.search for line in path.read_text().splitlines()]
        print(beside(long, {answer["number"]: answer for answer in answers}, regime.prior))
        return
    known = set()
    if arguments.out is not None and arguments.out.exists():
        known = {json.loads(line)["number"] for line in arguments.out.read_text().splitlines()}
    for number in range(arguments.first, arguments.first + arguments.sets):
        if number in known:
            continue
        entry = json.dumps(one_set(regime, number, arguments.steps, arguments.paths))
        print(entry)
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.write(entry + "\n")


if __name__ == "__main__":
    main()
