"""Search real texts for their number of topics by default, with several seeds.

    python tests/benchmarks/default_topics.py [cora ap nematode] [--seeds 3]

For each corpus and seed a line: the answer of `lv.search` with its defaults, how many sizes were measured, and seconds
of the processor and by the clock. Then what one more topic gains at each size that was measured, in nats with its
standard error: a mean over several topics from 48 topics on, which belongs to the middle of the sizes that it spans.
"""

import argparse
import time

from corpora import corpus_named

import lvsearch as lv


def gains(result: lv.SearchResult) -> list[str]:
    """Return a line of a table for each size whose gain was measured: size, middle of the sizes, gain."""
    measured = [(visit.size[0], visit.gain) for visit in result.visits if visit.gain is not None]
    return [
        f"| {size} | {size - (gain.sizes - 1) / 2:g} | {gain.estimate:,.0f} ± {gain.standard_error:,.0f} |"
        for size, gain in sorted(measured, key=lambda each: each[0])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="*", default=["cora", "ap", "nematode"], metavar="CORPUS")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.corpora:
        corpus = corpus_named(name)
        print(f"\n{name}: {corpus.n_documents:,} documents, {corpus.n_terms:,} words, {corpus.n_tokens:,} tokens\n")
        for seed in range(options.seeds):
            clock, processor = time.perf_counter(), time.process_time()
            result = lv.search(lv.models.LDA(), corpus, seed=seed, progress=False)
            spent = f"{time.process_time() - processor:,.0f} s | {time.perf_counter() - clock:,.0f} s"
            print(f"| {name}, seed {seed} | {result.summary().splitlines()[0]} | {len(result.visits)} | {spent} |")
            print("\n".join(gains(result)), flush=True)


if __name__ == "__main__":
    main()
