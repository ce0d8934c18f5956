"""Hierarchical LDA against tomotopy's `HLDAModel`: joint log-likelihood by sweeps and by seconds, in one run.

Both have the same hyper-parameters and the same corpus (JACM abstracts, words in five documents or more). Both states
are scored by one function, `lvsearch.inference.trees.log_joint`, from their paths and the levels of their tokens.
tomotopy tells the topic of every token, so a document without a token at a level does not show its node there: it is
given the node that tomotopy's own document counts leave over. Not counted: compiling, scoring, tomotopy's start; our
start is. One thread each: both samplers are sequential.

    LVSEARCH_DATA=… python tests/benchmarks/hlda_vs_tomotopy.py --sweeps 10 30 100 300 --seeds 3
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import tomotopy

import lvsearch as lv
from lvsearch.inference.trees import (
    Allocation,
    GEMLevels,
    TreeCorpus,
    TreeHyper,
    agglomerated_start,
    log_joint,
    sweep_documents,
    tree_hyper,
)
from lvsearch.inference.trees.corpus import canonical

START_CUTS = 3


def jacm() -> lv.Corpus:
    folder = Path(os.environ["LVSEARCH_DATA"]) / "jacm"
    return lv.Corpus.from_ldac(folder / "corpus_ncrp_df5.ldac", vocabulary=folder / "vocab_ncrp_df5.txt")


def tomotopy_allocation(model: tomotopy.HLDAModel, counts: object, depth: int) -> Allocation:
    """Paths and level counts of a tomotopy state, whose words are named by their column."""
    counts = canonical(counts)
    live = [k for k in range(model.k) if model.is_live_topic(k)]
    level = {k: model.level(k) for k in live}
    parent = {k: model.parent_topic(k) for k in live if level[k] > 0}
    left = {k: model.num_docs_of_topic(k) for k in live}
    column = np.array([int(word) for word in model.used_vocabs])
    cell = {
        (d, int(w)): i
        for d in range(counts.shape[0])
        for i, w in enumerate(counts.indices[counts.indptr[d] : counts.indptr[d + 1]], counts.indptr[d])
    }
    paths = np.full((counts.shape[0], depth), -1)
    level_counts = np.zeros((len(counts.data), depth), np.int64)
    documents = [d for d in range(counts.shape[0]) if counts.indptr[d] < counts.indptr[d + 1]]
    for d, document in zip(documents, model.docs, strict=True):
        topics = np.asarray(document.topics)
        for word, topic in zip(column[np.asarray(document.words)].tolist(), topics.tolist(), strict=True):
            level_counts[cell[d, word], level[topic]] += 1
        for topic in np.unique(topics).tolist():
            while True:
                paths[d, level[topic]] = topic
                if level[topic] == 0:
                    break
                topic = parent[topic]
    for node in paths[paths >= 0].tolist():
        left[node] -= 1
    for d in range(len(paths)):
        for at in range(depth):
            if paths[d, at] < 0:
                among = [k for k in live if level[k] == at and (at == 0 or parent[k] == paths[d, at - 1])]
                paths[d, at] = max(among, key=lambda k: left[k])
                left[paths[d, at]] -= 1
    return Allocation(paths, level_counts)


def run_tomotopy(corpus: lv.Corpus, hyper: TreeHyper, seed: int, sweeps: list[int]) -> list[tuple[int, float, float]]:
    """(sweeps, seconds, log joint) at each number of sweeps."""
    model = tomotopy.HLDAModel(
        depth=hyper.depth,
        alpha=hyper.levels.alpha.tolist(),
        eta=float(hyper.topics[0]),
        gamma=hyper.branching,
        seed=seed,
    )
    counts = canonical(corpus.counts)
    for d in range(counts.shape[0]):
        cells = slice(counts.indptr[d], counts.indptr[d + 1])
        words = np.repeat(counts.indices[cells], counts.data[cells])
        if len(words):
            model.add_doc([str(word) for word in words.tolist()])
    model.train(0)
    out, seconds, done = [], 0.0, 0
    for number in sweeps:
        begun = time.perf_counter()
        model.train(number - done, workers=1)
        seconds, done = seconds + time.perf_counter() - begun, number
        out.append((number, seconds, log_joint(counts, tomotopy_allocation(model, counts, hyper.depth), hyper).total))
    return out


def run_ours(corpus: lv.Corpus, hyper: TreeHyper, seed: int, sweeps: list[int]) -> list[tuple[int, float, float]]:
    """The same for ours, its start first; every layout is compiled beforehand, by the same chain."""
    texts = TreeCorpus.of(corpus.counts)
    counts = texts.counts

    def chain() -> list[tuple[int, float, float]]:
        key = jax.random.key(seed)
        begun = time.perf_counter()
        start = agglomerated_start(counts, hyper, cuts=START_CUTS)
        levels, paths, out = texts.levels(start), start.paths, []
        tables, sticks = texts.tables(hyper), isinstance(hyper.levels, GEMLevels)
        seconds = time.perf_counter() - begun
        out.append((0, seconds, log_joint(counts, start, hyper).total))
        for number in range(1, sweeps[-1] + 1):
            begun = time.perf_counter()
            one = jax.random.fold_in(key, number)
            levels, paths = sweep_documents(texts, levels, paths, tables, one, sticks=sticks)
            seconds += time.perf_counter() - begun
            if number in sweeps:
                out.append((number, seconds, log_joint(counts, texts.allocation(levels, paths), hyper).total))
        return out

    chain()
    return chain()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, nargs="+", default=[10, 30, 100, 300])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--levels", type=float, default=10.0, help="α of every level")
    parser.add_argument("--topics", type=float, default=0.1, help="η of every level")
    parser.add_argument("--branching", type=float, default=1.0, help="γ")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="The training result may differ")
    corpus = jacm()
    hyper = tree_hyper(3, arguments.branching, arguments.levels, arguments.topics)
    n_tokens = corpus.n_observations
    print(f"{corpus.describe()}; joint log-likelihood per word, nats")
    runs = []
    for seed in range(arguments.seeds):
        theirs = run_tomotopy(corpus, hyper, seed + 1, arguments.sweeps)
        ours = run_ours(corpus, hyper, seed, arguments.sweeps)
        print(f"\nseed {seed}\n{'sweeps':>8} {'tomotopy':>10} {'seconds':>9} {'lvsearch':>10} {'seconds':>9}")
        print(f"{0:8d} {'':20} {ours[0][2] / n_tokens:10.4f} {ours[0][1]:9.2f}   from the dendrogram")
        reached = []
        for (number, t, score), (_, u, mine) in zip(theirs, ours[1:], strict=True):
            print(f"{number:8d} {score / n_tokens:10.4f} {t:9.2f} {mine / n_tokens:10.4f} {u:9.2f}")
            reached.append(next((ours_t for _, ours_t, mine in ours if mine >= score), np.inf))
        runs.append([(s, t, m, u, r) for (_, t, s), (_, u, m), r in zip(theirs, ours[1:], reached, strict=True)])
    print(f"\nmedians of {arguments.seeds}")
    print("  sweeps   ours − theirs, per word   our seconds to theirs / its seconds")
    for position, number in enumerate(arguments.sweeps):
        gap = np.median([(run[position][2] - run[position][0]) / n_tokens for run in runs])
        ratio = np.median([run[position][4] / run[position][1] for run in runs])
        print(f"{number:8d} {gap:+25.4f} {ratio:33.3f}")


if __name__ == "__main__":
    main()
