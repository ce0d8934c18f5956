"""HDP topics from lvsearch, tomotopy and gensim: how good on the same held-out documents, after how long?

    LVSEARCH_DATA=… python tests/benchmarks/hdp_vs_peers.py --corpus cora [--truncation 100] [--seconds 20]
        [--eta 0.01] [--peers tomotopy gensim] [--samples 64] [--seed 0]

Every library trains in a process of its own, one after another, on 90 % of the documents; topics and α are then scored
by one evaluator, annealed importance sampling on the other 10 %, with one key for all: differences are paired. Words
that the training documents lack are dropped. A peer's topics and α are what its own conversion to LDA gives
(`convert_to_lda`, `hdp_to_lda`). Since tomotopy's estimate of α can collapse, every peer's snapshot is also scored
with its α rescaled to totals of 0.5, 2 and 5, and the best of all four *on the held-out documents* is shown beside: a
peer at its best by hindsight. Ours is scored with its own α alone.

Columns: seconds of training, compiled (a first call's own seconds are printed); topics that some token is in, or that a
library keeps; Σα; held-out nats per token; the same at the best total. Nothing is asserted, nothing is kept.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from corpora import corpus_named
from peers import THREADS, Snapshot, read, write
from scipy.sparse import csr_array, load_npz, save_npz
from topics_vs_peers import Scored, difference

import lvsearch as lv

TOTALS = (0.5, 2.0, 5.0)


# ── one library, in a process of its own ────────────────────────────────────────────────────────────────────────────


def tomotopy(counts: csr_array, options: argparse.Namespace) -> Iterator[Snapshot]:
    """Direct-assignment Gibbs sampling in C++, its defaults (α = γ = 0.1 to begin with, both sampled; η = 0.01)."""
    import tomotopy as tp

    warnings.filterwarnings("ignore", "The training result may differ even with fixed seed")
    model = tp.HDPModel(eta=options.eta, seed=options.seed)
    for row in range(counts.shape[0]):
        span = slice(counts.indptr[row], counts.indptr[row + 1])
        words = np.repeat(counts.indices[span], counts.data[span])
        if len(words):
            model.add_doc([str(word) for word in words])
    model.train(0)  # makes its tables; not timed
    spent, done = 0.0, 0
    for target in (10, 20, 50, 100, 200, 500, 1000, 2000):
        began = time.perf_counter()
        model.train(target - done, workers=THREADS)
        spent, done = spent + time.perf_counter() - began, target
        converted, _ = model.convert_to_lda(topic_threshold=0.0)
        topics = np.zeros((converted.k, counts.shape[1]))
        column = np.array([int(word) for word in converted.used_vocabs])
        topics[:, column] = [converted.get_topic_word_dist(topic) for topic in range(converted.k)]
        alpha = np.broadcast_to(np.array(converted.alpha, np.float64), (converted.k,))
        yield Snapshot(f"{done} sweeps", done, spent, topics, alpha)
        if spent >= options.seconds:
            return


def gensim(counts: csr_array, options: argparse.Namespace) -> Iterator[Snapshot]:
    """Online variational Bayes (Wang, Paisley & Blei 2011), its defaults (150 topics, 15 in a document, η = 0.01,
    batches of 256 documents), for so many seconds; every row is a fit from scratch."""
    from gensim.models import HdpModel

    corpus = [
        list(zip(counts.indices[a:b].tolist(), counts.data[a:b].tolist(), strict=True))
        for a, b in zip(counts.indptr[:-1], counts.indptr[1:], strict=True)
    ]
    names = {word: str(word) for word in range(counts.shape[1])}
    for limit in (options.seconds / 8, options.seconds / 2, options.seconds):
        began = time.perf_counter()
        model = HdpModel(corpus, names, max_time=limit, eta=options.eta, random_state=options.seed)
        spent = time.perf_counter() - began
        alpha, topics = model.hdp_to_lda()
        yield Snapshot(f"{limit:g} s allowed", len(corpus), spent, topics, np.asarray(alpha, np.float64))


def lvsearch(counts: csr_array, options: argparse.Namespace) -> Iterator[Snapshot]:
    """The estimator of `lv.fit` with its defaults, and stopped earlier; all compiled, after a first call."""
    from lvsearch.inference.engine.describing import site_value
    from lvsearch.inference.hdp import HDPEstimator, HDPSettings

    model, data = lv.models.HDP(), lv.Corpus.from_matrix(counts).dataset()

    def fitted(label: str, settings: HDPSettings) -> Snapshot:
        began = time.perf_counter()
        estimate = HDPEstimator(model, data, settings).fit((options.truncation,), jax.random.key(options.seed), None)
        spent = time.perf_counter() - began
        alpha = model.proportions_prior(estimate.size, estimate.natural)
        topics = np.asarray(site_value(estimate, "topic_word"), np.float64)
        return Snapshot(label, estimate.passes, spent, topics, alpha)

    first = fitted("first call", HDPSettings(rounds=(1,)))
    yield first._replace(first_call=True)
    rounds = HDPSettings().rounds
    for n in range(1, len(rounds)):
        yield fitted(f"{sum(rounds[:n])} passes", HDPSettings(rounds=rounds[:n]))
    yield fitted("lv.fit", HDPSettings())
    yield fitted("with mean field", HDPSettings(passes=6))


LIBRARIES = {library.__name__: library for library in (lvsearch, tomotopy, gensim)}


# ── all of them ─────────────────────────────────────────────────────────────────────────────────────────────────────


def train(library: str, counts: csr_array, options: argparse.Namespace) -> list[Snapshot]:
    """A library in a fresh process."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        save_npz(root / "counts.npz", counts)
        command = [sys.executable, __file__, "--library", library, "--counts", str(root / "counts.npz")]
        command += ["--folder", scratch, "--truncation", str(options.truncation), "--seed", str(options.seed)]
        command += ["--seconds", str(options.seconds), "--eta", str(options.eta)]
        subprocess.run(command, check=True, env=dict(os.environ))
        (root / "counts.npz").unlink()
        return read(root)


def score(topics: np.ndarray, alpha: np.ndarray, held_out: csr_array, samples: int) -> np.ndarray:
    """Held-out log-likelihood of each document, nats."""
    return lv.inference.document_likelihood(
        topics, np.maximum(alpha, 1e-12), held_out, samples=samples, key=jax.random.key(0), certify=False
    ).log_likelihood


def table(library: str, snapshots: list[Snapshot], held_out: csr_array, samples: int) -> list[dict]:
    """A row per snapshot."""
    rows = []
    for snapshot in (s for s in snapshots if not s.first_call):
        own = score(snapshot.topics, snapshot.alpha, held_out, samples)
        best = own
        if library != "lvsearch":
            for total in TOTALS:
                other = score(snapshot.topics, snapshot.alpha * total / snapshot.alpha.sum(), held_out, samples)
                best = max(best, other, key=np.sum)
        rows.append(
            {
                "library": library,
                "after": snapshot.label,
                "seconds": snapshot.seconds,
                "topics": len(snapshot.topics),
                "Σα": float(snapshot.alpha.sum()),
                "own": own,
                "best": best,
            }
        )
        print(f"    scored {library} {snapshot.label}: {own.sum() / held_out.sum():.4f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="cora")
    parser.add_argument("--truncation", type=int, default=100, help="of ours")
    parser.add_argument("--peers", nargs="*", default=["tomotopy", "gensim"], choices=["tomotopy", "gensim"])
    parser.add_argument("--seconds", type=float, default=20.0, help="of a peer")
    parser.add_argument("--eta", type=float, default=0.01, help="topic concentration of a peer; 0.01 is their default")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--library", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--counts", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        counts = csr_array(load_npz(options.counts))
        snapshots = LIBRARIES[options.library](counts, options)
        for number, snapshot in enumerate(snapshots):
            write(options.folder, number, snapshot)
            print(f"    {options.library:10s} {snapshot.label:22s} {snapshot.seconds:8.2f} s", flush=True)
        return

    training, test = corpus_named(options.corpus).split(test_fraction=0.1, seed=0)
    known = np.flatnonzero(np.asarray(training.counts.sum(axis=0)).ravel())
    counts, held_out = csr_array(training.counts[:, known]), csr_array(test.counts[:, known])
    held_out = csr_array(held_out[np.flatnonzero(held_out.sum(axis=1))])
    lengths = np.asarray(held_out.sum(axis=1), np.float64).ravel()
    print(f"{options.corpus}: {counts.shape[0]:,} documents to train on, {len(lengths):,} held out", flush=True)
    rows = []
    for library in ("lvsearch", *options.peers):
        rows += table(library, train(library, counts, options), held_out, options.samples)
    frame = pd.DataFrame(rows)
    n_tokens = lengths.sum()
    per_token = {column: [each.sum() / n_tokens for each in frame[column]] for column in ("own", "best")}
    shown = frame.assign(**per_token).rename(columns={"own": "nats per token", "best": "at the best Σα"})
    print("\n" + shown.to_string(index=False, float_format="%.4f"))

    print("\nBest of ours within a peer's seconds over the peer (at its best Σα), nats per token:")
    ours, peers = frame[frame.library == "lvsearch"], frame[frame.library != "lvsearch"]
    for _, peer in peers.iterrows():
        within = ours[ours.seconds <= peer.seconds]
        if within.empty:
            print(f"  {peer.library} {peer.after} ({peer.seconds:.2f} s): nothing of ours within its time")
            continue
        mine = within.loc[within.own.map(np.sum).idxmax()]
        both = [Scored("", "", 0.0, 0.0, 0.0, 0.0, x) for x in (mine.own, peer.best)]
        gap = difference(*both, lengths)
        print(
            f"  {peer.library} {peer.after} ({peer.seconds:.2f} s): {gap.per_token:+.4f} ± {gap.standard_error:.4f}"
            f"   by {mine.after} ({mine.seconds:.2f} s)"
        )


if __name__ == "__main__":
    main()
