"""Plug-in evidence: how many fits of a size does it take until the best of them is as good as any?

    python tests/benchmarks/plug_in_starts.py [--seeds 20] [--starts 10]

Three corpora of three obvious kinds of documents, LDA with as many topics. Of each seed the first fit is grown from
that of one topic fewer, as in a search, and the others begin with documents. Printed are the share of seeds whose best
of the first n fits is within 1 and within 30 nats (proved lower ends) of the best of all that were made, and within 1
of the best one that began with documents; and how many of these ended more than 30 nats below it.
"""

import argparse

import jax
import numpy as np

import lvsearch as lv
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.topics.estimator import TopicEstimator

SHOWN = (1, 2, 3, 5, 10)


def obvious(mixed: float) -> lv.Corpus:
    """60 documents of 40 words from three topics that share none, but for a share `mixed` of words from all."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(3), np.full(10, 0.1))
    counts = [rng.multinomial(40, (1 - mixed) * topics[kind % 3] + mixed / 30) for kind in range(60)]
    return lv.Corpus.from_matrix(np.stack(counts))


def texts() -> lv.Corpus:
    """The example of the README: 180 documents, each mostly of one of three kinds."""
    kinds = [
        kind.split()
        for kind in ("apple pear plum cherry quince", "iron tin zinc copper nickel", "robin wren finch heron stork")
    ]
    return lv.Corpus.from_texts(
        [" ".join([*(a[i % 5] for i in range(j, j + 9)), b[j % 5]]) for j in range(20) for a in kinds for b in kinds]
    )


def ends(estimator: TopicEstimator, seed: int, starts: int) -> list[float]:
    """Lower ends of `starts` fits of three topics, nats; the first grown from one of two, itself grown from one."""

    def fit(size: int, trial: int, start: Estimate | None) -> Estimate:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), size), trial)
        return estimator.fit((size,), key, start)

    grown = fit(3, 0, fit(2, 0, fit(1, 0, None)))
    return [each.log_lower for each in (grown, *(fit(3, trial, None) for trial in range(1, starts)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--starts", type=int, default=10)
    arguments = parser.parse_args()
    for name, corpus in (("nothing shared", obvious(0.0)), ("3 % shared", obvious(0.03)), ("README", texts())):
        estimator = TopicEstimator(lv.models.LDA(1.0).plug_in(), corpus.dataset())
        found = np.array([ends(estimator, seed, arguments.starts) for seed in range(arguments.seeds)])
        scratch = found[:, 1:]
        print(f"{name}: best {found.max():.1f}, best from documents {scratch.max():.1f} nats")
        print(
            f"  from documents: {(scratch < scratch.max() - 30).sum()} of {scratch.size} more than 30 nats below that"
        )
        for n in (n for n in SHOWN if n <= arguments.starts):
            best = found[:, :n].max(1)
            shares = (best >= found.max() - 1, best >= found.max() - 30, best >= scratch.max() - 1)
            print(
                f"  {n:2d} fits: within 1 nat {{:.0%}}, 30 nats {{:.0%}}; 1 nat of the latter {{:.0%}}".format(
                    *map(np.mean, shares)
                )
            )


if __name__ == "__main__":
    main()
