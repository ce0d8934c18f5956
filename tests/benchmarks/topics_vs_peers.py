"""Topics from lvsearch, scikit-learn, gensim and tomotopy: how fast, and how good on the same held-out documents?

    LVSEARCH_DATA=… python tests/benchmarks/topics_vs_peers.py --corpus ap --topics 100 [--repeats 3]
        [--peers tomotopy sklearn gensim] [--peer-seconds 60] [--our-seconds 30] [--samples 64] [--snapshots N]
        [--concentration 10] [--topic-concentration 0.01]

Every library trains in a process of its own (`peers.py`, which states its settings), one after another, on 90 % of the
documents. All topics and α are then scored by one evaluator: annealed importance sampling on the other 10 %, with the
same key for all, so differences are paired document by document. Words that the training documents lack are dropped.

Columns: seconds of training, compiled; those of a first call with the compilation cache cold and warm (ours alone: what
the first fit of a process takes longer than the second is added, cold in a process with an empty cache folder, warm in
the next one); the total of α; held-out nats per token; the difference to tomotopy after 500 sweeps and its
standard error over documents. "Reaches" means: not worse by one standard error of the paired difference. Seeds differ
between repeats, the split does not; medians over repeats. Nothing is asserted, nothing is kept.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from corpora import corpus_named
from peers import LIBRARIES, SKLEARN_ITERATIONS, TOMOTOPY_SWEEPS, Snapshot, read
from scipy.sparse import csr_array, save_npz

import lvsearch as lv

TOMOTOPY_TARGET = ("tomotopy", f"{TOMOTOPY_SWEEPS} sweeps")
SKLEARN_TARGET = ("sklearn", f"{SKLEARN_ITERATIONS} iterations")


@dataclass(frozen=True)
class Scored:
    """One snapshot: seconds of training (with a first call's compilation, where that was measured), nats per document.

    `first_cold`, `first_warm` equal `seconds` where nothing is compiled.
    """

    library: str
    label: str
    seconds: float
    first_cold: float
    first_warm: float
    alpha_total: float
    log_likelihood: np.ndarray


@dataclass(frozen=True)
class Difference:
    """first − second in nats per token, and its standard error over documents (of a ratio: lengths vary too)."""

    per_token: float
    standard_error: float


def difference(first: Scored, second: Scored, lengths: np.ndarray) -> Difference:
    """Paired document by document."""
    gain = first.log_likelihood - second.log_likelihood
    per_token = gain.sum() / lengths.sum()
    residual = gain - per_token * lengths
    spread = (residual**2).sum() * len(gain) / (len(gain) - 1)
    return Difference(float(per_token), float(np.sqrt(spread) / lengths.sum()))


def of_known_words(train: csr_array, test: csr_array) -> tuple[csr_array, csr_array]:
    """Counts (documents, words) without the words that the training documents lack, nor test documents left empty."""
    known = np.flatnonzero(np.asarray(train.sum(axis=0)).ravel())
    held_out = csr_array(test[:, known])
    return csr_array(train[:, known]), csr_array(held_out[np.flatnonzero(held_out.sum(axis=1))])


def train_all(
    counts: csr_array, libraries: tuple[str, ...], seed: int, options: argparse.Namespace
) -> dict[str, list[Snapshot]]:
    """Each library in a fresh process; ours twice, with an empty and then a filled compilation cache."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        save_npz(root / "counts.npz", counts)
        cache = {
            "JAX_COMPILATION_CACHE_DIR": str(root / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for library in libraries:
            folder = root / library
            folder.mkdir()
            limit = options.our_seconds if library.startswith("lvsearch") else options.peer_seconds
            command = [sys.executable, str(Path(__file__).with_name("peers.py")), library]
            command += [str(root / "counts.npz"), str(folder), "--topics", str(options.topics)]
            command += ["--seed", str(seed), "--seconds", str(limit)]
            if options.snapshots:
                command += ["--snapshots", str(options.snapshots)]
            command += ["--concentration", str(options.concentration)]
            command += ["--topic-concentration", str(options.topic_concentration)]
            subprocess.run(command, check=True, env={**os.environ, **cache})
            found[library] = read(folder)
    return found


def score_all(found: dict[str, list[Snapshot]], test: csr_array, samples: int) -> list[Scored]:
    """Every snapshot under the one evaluator; first calls give their seconds alone."""
    warm = next(s.seconds for s in found["lvsearch"] if s.first_call)
    cold = found["lvsearch-first-call"][0].seconds
    scored = []
    for library, snapshots in found.items():
        ours = library == "lvsearch"
        for snapshot in (s for s in snapshots if not s.first_call):
            result = lv.inference.document_likelihood(
                snapshot.topics, snapshot.alpha, test, samples=samples, key=jax.random.key(0), certify=False
            )
            seconds = snapshot.seconds
            scored.append(
                Scored(
                    library,
                    snapshot.label,
                    seconds,
                    seconds + cold * ours,
                    seconds + warm * ours,
                    float(snapshot.alpha.sum()),
                    result.log_likelihood,
                )
            )
        print(f"    scored {library}", flush=True)
    return scored


def find(scored: list[Scored], target: tuple[str, str]) -> Scored | None:
    return next((s for s in scored if (s.library, s.label) == target), None)


def reaching(scored: list[Scored], target: Scored, lengths: np.ndarray) -> Scored | None:
    """The first of ours, by time, that is not worse by one standard error."""
    for ours in sorted((s for s in scored if s.library == "lvsearch"), key=lambda s: s.seconds):
        gap = difference(ours, target, lengths)
        if gap.per_token >= -gap.standard_error:
            return ours
    return None


def best_within(scored: list[Scored], library: str, seconds: float) -> Scored | None:
    """The best of a library's snapshots that took at most `seconds`, ours with the first call from a warm cache."""
    quick = [s for s in scored if s.library == library and s.first_warm <= seconds]
    return max(quick, key=lambda s: s.log_likelihood.sum(), default=None)


def report(runs: list[list[Scored]], lengths: np.ndarray) -> pd.DataFrame:
    """A row per snapshot: medians over the runs that have it."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for scored in runs:
        target = find(scored, TOMOTOPY_TARGET)
        for one in scored:
            gap = Difference(np.nan, np.nan) if target is None else difference(one, target, lengths)
            rows.setdefault((one.library, one.label), []).append(
                {
                    "seconds": one.seconds,
                    "first call, cold": one.first_cold,
                    "cache warm": one.first_warm,
                    "Σα": one.alpha_total,
                    "nats per token": one.log_likelihood.sum() / lengths.sum(),
                    "over tomotopy": gap.per_token,
                    "± s.e.": gap.standard_error,
                }
            )
    return pd.DataFrame(
        [
            {"library": library, "after": label, "runs": len(of_one), **pd.DataFrame(of_one).median().to_dict()}
            for (library, label), of_one in rows.items()
        ]
    )


def answer_reaching(runs: list[list[Scored]], target: tuple[str, str], lengths: np.ndarray, bar: float) -> None:
    """Seconds of ours to reach a peer's score, over the peer's seconds."""
    name = f"{target[0]} after {target[1]}"
    theirs = [find(scored, target) for scored in runs]
    if any(one is None for one in theirs):
        print(f"\n{name}: not run")
        return
    reached = [reaching(s, t, lengths) for s, t in zip(runs, theirs, strict=True) if t is not None]
    print(f"\nSeconds to reach {name} ({statistics.median(t.seconds for t in theirs if t):.2f} s):")
    good = [(o, t) for o, t in zip(reached, theirs, strict=True) if o is not None and t is not None]
    if len(good) < len(runs):
        print(f"  reached in {len(good)} of {len(runs)} runs only")
        return
    for column, seconds_of in (
        ("compiled", lambda one: one.seconds),
        ("first call, cache warm", lambda one: one.first_warm),
        ("first call, cold", lambda one: one.first_cold),
    ):
        seconds = statistics.median(seconds_of(ours) for ours, _ in good)
        ratio = statistics.median(seconds_of(ours) / peer.seconds for ours, peer in good)
        verdict = f"bar {bar:.3f}: {'met' if ratio <= bar else 'MISSED'}" if column != "first call, cold" else ""
        print(f"  {column:24s} {seconds:8.2f} s   ratio {ratio:.3f}   {verdict}")
    print(f"  by: {', '.join(ours.label for ours, _ in good)}")


def answer_best(
    runs: list[list[Scored]], peers: tuple[str, ...], lengths: np.ndarray, ours: float, peer: float
) -> None:
    """The best score within a time budget, against every peer's within its own."""
    print(f"\nBest of ours within {ours:g} s (cache warm) over a peer's best within {peer:g} s, nats per token:")
    for library in peers:
        gaps = []
        for scored in runs:
            mine, theirs = best_within(scored, "lvsearch", ours), best_within(scored, library, peer)
            if mine is not None and theirs is not None:
                gaps.append((difference(mine, theirs, lengths), mine, theirs))
        if not gaps:
            print(f"  {library}: nothing to compare within these times")
            continue
        gain = statistics.median(gap.per_token for gap, *_ in gaps)
        error = statistics.median(gap.standard_error for gap, *_ in gaps)
        verdict = "better" if gain > error else "worse" if gain < -error else "cannot be told apart"
        print(f"  {library:16s} {gain:+.4f} ± {error:.4f}  {verdict}  ({gaps[0][1].label}; {gaps[0][2].label})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="ap", help="ap, cora, another folder of LVSEARCH_DATA, or a path")
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=1)
    everyone = tuple(name for name in LIBRARIES if not name.startswith("lvsearch"))
    parser.add_argument("--peers", nargs="*", default=["tomotopy", "sklearn", "gensim"], choices=everyone)
    parser.add_argument("--peer-seconds", type=float, default=60.0)
    parser.add_argument("--our-seconds", type=float, default=30.0)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--concentration", type=float, default=10.0, help="of ours: Σα")
    parser.add_argument("--topic-concentration", type=float, default=0.01, help="of ours: η")
    parser.add_argument("--snapshots", type=int, help="only so many per library, to see that everything runs")
    parser.add_argument("--no-gibbs", action="store_true", help="leave our collapsed Gibbs sampler out")
    options = parser.parse_args()

    train, test = corpus_named(options.corpus).split(test_fraction=0.1, seed=0)
    counts, held_out = of_known_words(train.counts, test.counts)
    lengths = np.asarray(held_out.sum(axis=1), np.float64).ravel()
    dropped = test.n_tokens - lengths.sum()
    print(
        f"{options.corpus}, K = {options.topics}: {counts.shape[0]:,} documents, {counts.shape[1]:,} words, "
        f"{counts.sum():,} tokens to train on; {len(lengths):,} documents, {lengths.sum():,.0f} tokens held out "
        f"({dropped:,.0f} of words unknown to the others dropped)",
        flush=True,
    )
    ours = ("lvsearch-first-call", "lvsearch", *(() if options.no_gibbs else ("lvsearch-gibbs",)))
    runs = []
    for repeat in range(options.repeats):
        print(f"  run {repeat + 1} of {options.repeats}", flush=True)
        found = train_all(counts, (*ours, *options.peers), repeat, options)
        runs.append(score_all(found, held_out, options.samples))

    print("\n" + report(runs, lengths).to_string(index=False, float_format="%.3f"))
    answer_reaching(runs, TOMOTOPY_TARGET, lengths, 1 / 3)
    answer_reaching(runs, SKLEARN_TARGET, lengths, 1 / 20)
    answer_best(runs, tuple(options.peers), lengths, options.our_seconds, options.peer_seconds)


if __name__ == "__main__":
    main()
