"""How long from a file of texts to an answer, where documents are as many as those of a newsgroup collection?

    python tests/benchmarks/from_file.py [--documents 11000] [--words 61000] [--tokens 255] [--seconds 480]

A file of raw text is drawn first, not timed: topics of a Zipf-like vocabulary, a line a document. Then in one process,
timed one by one: texts read and counted (`lv.Corpus.from_texts`), `lv.search` with its defaults and this many seconds,
and its summary. Printed: seconds of each, the peak of memory, and how the summary begins beside what was planted.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import lvsearch as lv

LETTERS = str.maketrans("0123456789", "bcdfghjklm")
"""Words are letters: numbers are left out when texts are read."""


def texts(n_documents: int, n_words: int, length: float, n_topics: int, seed: int) -> list[str]:
    """Topics are Dirichlet around 1 / (rank + 10), proportions Dirichlet(5 / n_topics), lengths Gamma–Poisson."""
    rng = np.random.default_rng(seed)
    frequency = 1 / (np.arange(n_words) + 10.0)
    topics = rng.gamma(2_000 * frequency / frequency.sum() + 1e-3, size=(n_topics, n_words))
    ends = np.cumsum(topics / topics.sum(1, keepdims=True), axis=1)
    lengths = rng.poisson(rng.gamma(2.0, length / 2, n_documents)) + 1
    shares = rng.dirichlet(np.full(n_topics, 5 / n_topics), n_documents)
    lines = []
    for share, total in zip(shares, lengths, strict=True):
        drawn = [
            np.searchsorted(ends[topic], rng.random(n), side="right").clip(max=n_words - 1)
            for topic, n in enumerate(rng.multinomial(total, share))
            if n
        ]
        lines.append(" ".join(f"{word:05d}".translate(LETTERS) for word in rng.permutation(np.concatenate(drawn))))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=11_000)
    parser.add_argument("--words", type=int, default=61_000)
    parser.add_argument("--tokens", type=float, default=255.0)
    parser.add_argument("--topics", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--evidence", choices=["marginal", "bound"], default="marginal")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.txt"
        path.write_text("\n".join(texts(options.documents, options.words, options.tokens, options.topics, 0)))
        began = time.perf_counter()
        corpus = lv.Corpus.from_texts(path.read_text().splitlines())
        read = time.perf_counter()
        print(f"{corpus.n_documents:,} documents, {corpus.n_terms:,} words, {corpus.n_tokens:,} tokens")
        result = lv.search(lv.models.LDA(), corpus, evidence=options.evidence, seconds=options.seconds, progress=False)
        searched = time.perf_counter()
        summary = result.summary()
        told = time.perf_counter()
    print(f"{options.topics} planted; " + "\n".join(summary.splitlines()[:4]))
    print(f"sizes tried: {', '.join(str(visit.size[0]) for visit in result.visits)}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"read {read - began:.1f} s, searched {searched - read:.1f} s, told {told - searched:.1f} s; {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
