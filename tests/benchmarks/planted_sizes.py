"""How often the number of topics found by a search with its defaults is the planted one, at 10⁵ tokens.

    python tests/benchmarks/planted_sizes.py --corpora 40 --seed 0

Every corpus is drawn from LDA itself: the number of topics uniformly from 5 to 40, η from 0.02 to 0.1, the total of α
from 2 to 10 (both evenly on a logarithmic scale), 1,000 documents of 100 words on average, 2,000 words. The search
knows η and α, and nothing else. One line a corpus, and at the end how often the range that is named with 95 % holds the
planted number, how wide it is, and how many answers with a probability above .95 were wrong.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

import lvsearch as lv


@dataclass(frozen=True)
class Row:
    """What one search said of one corpus."""

    planted: int
    best: int
    first: int
    last: int
    probability: float
    measured: int
    seconds: float
    processor: float

    @property
    def holds(self) -> bool:
        """Whether the planted number lies in the range that is named with 95 %."""
        return self.first <= self.planted <= self.last


def draw_corpus(rng: np.random.Generator, length: int = 100) -> tuple[np.ndarray, int, float, float]:
    """Draw (counts (1,000 documents, 2,000 words), number of topics, total of α, η).

    length: mean number of words of a document.
    """
    n_topics = int(rng.integers(5, 41))
    eta, total = (float(np.exp(rng.uniform(*np.log(ends)))) for ends in ((0.02, 0.1), (2.0, 10.0)))
    topics = rng.dirichlet(np.full(2000, eta), n_topics)
    proportions = rng.dirichlet(np.full(n_topics, total / n_topics), 1000)
    lengths = np.maximum(1, rng.poisson(length, 1000))
    counts = np.stack([rng.multinomial(n, p @ topics) for n, p in zip(lengths, proportions, strict=True)])
    return counts, n_topics, total, eta


def search_one(counts: np.ndarray, planted: int, total: float, eta: float, seed: int) -> Row:
    """Search with the defaults and these hyper-parameters."""
    began, processor = time.perf_counter(), time.process_time()
    result = lv.search(lv.models.LDA(total, eta), lv.Corpus.from_matrix(counts), seed=seed, progress=False)
    found = result.estimated
    (first,), (last,) = found.indistinguishable[0], found.indistinguishable[-1]
    chance = float(found.probability[found.sizes.index(found.best)])
    measured = sum(visit.gain is not None for visit in result.visits)
    took = time.perf_counter() - began, time.process_time() - processor
    return Row(planted, found.best[0], first, last, chance, measured, *took)


def main() -> None:
    """Draw, search and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the first corpus; the others follow")
    parser.add_argument("--length", type=int, default=100, help="mean number of words of a document")
    settings = parser.parse_args()
    rows = []
    print("| planted | best | 95 % | probability | holds it | sizes measured | seconds | of the processor |")
    print("|---|---|---|---|---|---|---|---|")
    for seed in range(settings.seed, settings.seed + settings.corpora):
        row = search_one(*draw_corpus(np.random.default_rng([seed, 0x9A]), settings.length), seed)
        rows.append(row)
        print(
            f"| {row.planted} | {row.best} | {row.first}–{row.last} | {row.probability:.2f} | "
            f"{'yes' if row.holds else 'no'} | {row.measured} | {row.seconds:.0f} | {row.processor:.0f} |",
            flush=True,
        )
    width = np.median([(row.last - row.first) / row.planted for row in rows])
    seconds, processor, measured = (
        np.median([getattr(row, name) for row in rows]) for name in ("seconds", "processor", "measured")
    )
    wrong = sum(row.probability > 0.95 and row.best != row.planted for row in rows)
    print(
        f"\n{len(rows)} corpora: the range holds the planted number in {sum(row.holds for row in rows)}, is as wide as "
        f"{width:.0%} of it in the median; {wrong} wrong answers above .95; "
        f"{seconds:.0f} seconds in the median, {processor:.0f} of the processor, {measured:.0f} sizes measured"
    )


if __name__ == "__main__":
    main()
