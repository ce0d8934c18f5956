"""Which size does a search by prediction recommend, beside what was planted, and what does it lose in prediction?

    python tests/benchmarks/recommended.py                              # every regime, two sets each
    python tests/benchmarks/recommended.py --regimes topics --sets 8
    python tests/benchmarks/recommended.py --regimes --corpora cora reuters395 jacm ap

A row for each data set: what was planted; the recommended size and the sizes within one standard error; the size that
predicted best; nats per token (cell) of held-out data that the recommended size loses against the best one, paired, ±
its standard error; where coherence and recurrence of topics stop gaining; processor seconds, compiling included.

`topics`: 1,000 documents of 100 words on average, drawn from LDA (`corpora.drawn_documents`), 5 to 40 topics.
`bursty`: the same, but words that a document has used come back in it more often than its topics say, as words do: a
token repeats an earlier one of its document the more often, the more there were. `clusters`, `skewed`: 1,000 rows of
normal clusters in two columns, and of clusters that lean to one side (`robustness.py`), 3 to 8 of them, searched by
normal clusters. LDA is at its defaults.
"""

import argparse
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
from corpora import corpus_named, drawn_documents
from robustness import centres, normal, skewed
from scipy.sparse import csr_array

import lvsearch as lv

DOCUMENTS, LENGTH, ROWS = 1_000, 100.0, 1_000
BURST = 50.0
"""Tokens of a document after which the next one is as likely a repetition of these as a fresh draw."""

Drawn = tuple[lv.models.Model, Any, int]
"""A model, data, and the planted size."""


def topics(number: int) -> Drawn:
    planted = int(np.random.default_rng([number, 1]).integers(5, 41))
    counts = drawn_documents(DOCUMENTS, LENGTH, planted, (number, 2))
    return lv.models.LDA(), lv.Corpus.from_matrix(_used(counts)), planted


def bursty(number: int) -> Drawn:
    """The documents of `topics`, each token a repetition of an earlier one of its document with probability
    n / (n + BURST) after n of them."""
    planted = int(np.random.default_rng([number, 1]).integers(5, 41))
    counts = drawn_documents(DOCUMENTS, LENGTH, planted, (number, 2))
    random = np.random.default_rng([number, 3])
    repeated = csr_array((DOCUMENTS, counts.shape[1]), dtype=np.int32).tolil()
    for document in range(DOCUMENTS):
        row = counts[[document]]
        tokens = random.permutation(np.repeat(row.indices, row.data))
        for place in range(1, len(tokens)):
            if random.random() < place / (place + BURST):
                tokens[place] = tokens[random.integers(place)]
        words, times = np.unique(tokens, return_counts=True)
        repeated[document, words] = times
    return lv.models.LDA(), lv.Corpus.from_matrix(_used(csr_array(repeated))), planted


def rows(noise: Callable[[np.random.Generator, np.ndarray], np.ndarray]) -> Callable[[int], Drawn]:
    def draw(number: int) -> Drawn:
        random = np.random.default_rng([number, 4])
        planted = int(random.integers(3, 9))
        labels = random.choice(planted, size=ROWS, p=random.dirichlet(np.full(planted, 3.0)))
        values = centres(random, planted)[labels] + noise(random, labels)
        return lv.models.FiniteMixture(lv.models.DiagonalComponents.scaled_to(values)), values, planted

    return draw


REGIMES: dict[str, Callable[[int], Drawn]] = {
    "topics": topics,
    "bursty": bursty,
    "clusters": rows(normal),
    "skewed": rows(skewed),
}


def _used(counts: csr_array) -> csr_array:
    """Without the words that no document holds."""
    return csr_array(counts[:, np.flatnonzero(counts.sum(axis=0))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--regimes", nargs="*", default=list(REGIMES), choices=list(REGIMES))
    parser.add_argument("--sets", type=int, default=2, help="of each regime")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--corpora", nargs="*", default=[], help="real ones, by name (LVSEARCH_DATA)")
    options = parser.parse_args()
    print("| data | planted | recommended | within 1 s.e. | best | lost, nats | coherent | recurring | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for number in range(options.first, options.first + options.sets):
        for regime in options.regimes:
            print(_row(f"{regime} {number}", *REGIMES[regime](number)), flush=True)
    for name in options.corpora:
        corpus = corpus_named(name)
        print(_row(f"{name}, {corpus.n_tokens:,} tokens", lv.models.LDA(), corpus, None), flush=True)


def _row(name: str, model: lv.models.Model, data: Any, planted: int | None) -> str:
    began = _seconds()
    found = lv.search(model, data, evidence="predictive", progress=False).recommended
    assert found is not None
    own = next(outcome for outcome in found.outcomes if outcome.size == found.size)
    within = [size for (size,) in found.within]
    cells = [
        name,
        "–" if planted is None else str(planted),
        str(found.size[0]),
        f"{within[0]}–{within[-1]}",
        f"{found.best[0]}{' (the largest)' if found.still_rising else ''}",
        f"{-own.difference:.4f} ± {own.standard_error:.4f}",
        "–" if found.most_coherent is None else str(found.most_coherent[0]),
        "–" if found.most_recurring is None else str(found.most_recurring[0]),
        f"{_seconds() - began:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _seconds() -> float:
    """Of the processor, this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
