"""Is LDA ahead of tomotopy on short and long documents, with few topics and many?

    python tests/benchmarks/topic_grid.py [--tokens 50 200 1300] [--topics 50 100 400] [--our-seconds 60]

For each number of tokens a document and each number of topics K a corpus is drawn from LDA with K topics
(`corpora.drawn_documents`), and both are trained and scored as `topics_vs_peers.py` says. A row: seconds of tomotopy's
500 sweeps; seconds in which a fit of ours is not worse by one standard error of the paired difference, compiled, over
those (the bar is 1/3); the best of ours minus tomotopy's best within 60 s, nats per token, held out. Quiet cores.
"""

import argparse

import numpy as np
from corpora import drawn_documents
from scipy.sparse import csr_array
from topics_vs_peers import (
    TOMOTOPY_TARGET,
    best_within,
    difference,
    find,
    of_known_words,
    reaching,
    score_all,
    train_all,
)

DOCUMENTS = {50: 6_000, 200: 2_500, 1_300: 1_740}
"""How many documents of so many tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="*", default=list(DOCUMENTS), choices=list(DOCUMENTS))
    parser.add_argument("--topics", dest="sizes", type=int, nargs="*", default=[50, 100, 400])
    parser.add_argument("--peer-seconds", type=float, default=60.0)
    parser.add_argument("--our-seconds", type=float, default=60.0)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--concentration", type=float, default=10.0, help="of ours: Σα")
    parser.add_argument("--topic-concentration", type=float, default=0.01, help="of ours: η")
    parser.add_argument("--snapshots", type=int, help="only so many of each, to see that everything runs")
    options = parser.parse_args()
    print("| tokens | K | tomotopy's 500 sweeps, s | as good after, s | ratio | best of ours − its best |")
    print("|---|---|---|---|---|---|")
    for tokens in options.tokens:
        for size in options.sizes:
            options.topics = size  # which `train_all` reads
            print(_row(tokens, options), flush=True)


def _row(tokens: int, options: argparse.Namespace) -> str:
    counts = drawn_documents(DOCUMENTS[tokens], tokens, options.topics, (0, tokens))
    held_out = np.arange(counts.shape[0]) % 10 == 0
    train, test = of_known_words(csr_array(counts[~held_out]), csr_array(counts[held_out]))
    lengths = np.asarray(test.sum(axis=1), np.float64).ravel()
    found = train_all(train, ("lvsearch-first-call", "lvsearch", "tomotopy"), 0, options)
    scored = score_all(found, test, options.samples)
    target = find(scored, TOMOTOPY_TARGET)
    ours = best_within(scored, "lvsearch", np.inf)
    theirs = best_within(scored, "tomotopy", np.inf)
    if ours is None or theirs is None:
        raise RuntimeError("got no snapshot of one of the two")
    gap = difference(ours, theirs, lengths)
    reached = None if target is None else reaching(scored, target, lengths)
    cells = [f"{tokens:,}", f"{options.topics}", "not run" if target is None else f"{target.seconds:.1f}"]
    if target is None or reached is None:
        cells += ["never", ""]
    else:
        cells += [f"{reached.seconds:.1f}", f"{reached.seconds / target.seconds:.2f}"]
    cells.append(f"{gap.per_token:+.4f} ± {gap.standard_error:.4f} ({ours.label}; {theirs.label})")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
