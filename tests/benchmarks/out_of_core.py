"""Is memory independent of the number of documents, and what does streaming cost? LDA on 200 tokens a document.

    python tests/benchmarks/out_of_core.py [--documents 2000] [--scales 1 4 16] [--topics 100] [--passes 2]

For each number of documents they are drawn onto disk a block at a time, and a process of its own opens that corpus and
fits it streamed: packing, the passes, a last visit of every document, and the bound in float64. Shown are the most
memory that it ever held (`ru_maxrss`, of which `before` is what interpreter and libraries take), and processor
nanoseconds for each token and pass. At the smallest number another process fits the same corpus read into memory.

The bars: peak memory grows by less than a tenth from the first scale to the last, and time for each token is within
20 % of that in memory. A million documents under 4 GiB:

    python tests/benchmarks/out_of_core.py --documents 1000000 --scales 1 --passes 1 --at-hand-documents 20000
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

MIB = 2**20
TOKENS, BLOCK = 200, 2000


def peak_bytes() -> int:
    """The most memory that this process has held so far (ru_maxrss: KiB on Linux, bytes on macOS)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def simulate(folder: Path, n_documents: int, n_words: int, n_topics: int = 50) -> None:
    """Documents of LDA onto disk: topics Dirichlet(0.05), proportions Dirichlet(0.1), `TOKENS` words each."""
    from lvsearch.files.array_folders import new_array_folder
    from lvsearch.reading.counts import canonical_counts
    from lvsearch.reading.stored_corpus import CorpusWriter

    random = np.random.default_rng(0)
    ends = np.cumsum(random.dirichlet(np.full(n_words, 0.05), n_topics), axis=1)
    with new_array_folder(folder) as writer:
        into = CorpusWriter(writer)
        for first in range(0, n_documents, BLOCK):
            rows = min(BLOCK, n_documents - first)
            topics = np.repeat(np.arange(n_topics)[None], rows, 0)
            per_topic = random.multinomial(TOKENS, random.dirichlet(np.full(n_topics, 0.1), rows))
            documents = np.repeat(np.repeat(np.arange(rows)[:, None], n_topics, 1).ravel(), per_topic.ravel())
            of = np.repeat(topics.ravel(), per_topic.ravel())
            words = np.empty(len(of), np.int64)
            for topic in range(n_topics):
                here = of == topic
                words[here] = np.searchsorted(ends[topic], random.random(here.sum()) * ends[topic, -1])
            ones = np.ones(len(words), np.int64)
            into.add(canonical_counts(csr_array((ones, (documents, words)), shape=(rows, n_words))))
        into.finish([f"term{number}" for number in range(n_words)])


def measure(folder: Path, n_topics: int, passes: int, at_hand: bool) -> None:
    """One fit in this process; prints memory before, peak, plan (bytes), processor seconds and wall seconds."""
    import jax

    import lvsearch as lv
    from lvsearch.inference.data.documents import documents
    from lvsearch.inference.engine.estimator import estimator
    from lvsearch.inference.topics.estimator import TopicEstimator, TopicSettings

    settings = replace(TopicSettings(), collapsed_passes=passes, mean_field_passes=passes, final_sweeps=1)

    def fit(counts: csr_array) -> tuple[float, float, int]:
        began, wall = time.process_time(), time.perf_counter()
        fitting = estimator(lv.models.LDA(), documents(counts))
        assert isinstance(fitting, TopicEstimator)
        fitting.settings = settings
        fitting.fit((n_topics,), jax.random.key(0), None)
        plan = fitting.memory_plan((n_topics,)).peak_bytes
        return time.process_time() - began, time.perf_counter() - wall, plan

    counts = lv.Corpus.open(folder).counts
    if at_hand:
        counts = csr_array((np.array(counts.data), np.array(counts.indices), np.array(counts.indptr)), counts.shape)
    jax.block_until_ready(jax.numpy.zeros(1))
    before = peak_bytes()
    fit(counts)  # compiles
    peak = peak_bytes()
    seconds, wall, plan = fit(counts)
    print(before, peak, plan, seconds, wall)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--scales", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--passes", type=int, default=2, help="by each of the two rules")
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--step", choices=["simulate", "streamed", "at-hand"], help="for the processes that it starts")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--at-hand-documents", type=int, help="of the fit in memory (default: the smallest scale's)")
    options = parser.parse_args()
    if options.step == "simulate":
        simulate(options.folder, options.documents, options.words)
        return
    if options.step:
        measure(options.folder, options.topics, options.passes, options.step == "at-hand")
        return
    rows: list[tuple[str, int, list[float]]] = []
    wanted = [("streamed", options.documents * scale) for scale in sorted(options.scales)]
    wanted.insert(0, ("at-hand", options.at_hand_documents or options.documents * min(options.scales)))
    print(
        f"K = {options.topics}, V = {options.words:,}, {TOKENS} tokens a document, {options.passes} + {options.passes}"
    )
    print(f"{'':<9} {'documents':>10} {'before':>8} {'peak':>8} {'plan':>8}   ns/token/pass (processor, wall)")
    for step, n_documents in wanted:
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, __file__, "--folder", f"{scratch}/corpus", "--documents", str(n_documents)]
            command += ["--topics", str(options.topics), "--passes", str(options.passes)]
            command += ["--words", str(options.words), "--step"]
            subprocess.run([*command, "simulate"], check=True)
            done = subprocess.run([*command, step], check=True, stdout=subprocess.PIPE, text=True)
        found = [float(number) for number in done.stdout.split()]
        rows.append((step, n_documents, found))
        per_token = 1e9 / (n_documents * TOKENS * 2 * options.passes)
        print(
            f"{step:<9} {n_documents:>10,} {found[0] / MIB:>8,.0f} {found[1] / MIB:>8,.0f} {found[2] / MIB:>8,.0f}"
            f"   {found[3] * per_token:.0f}, {found[4] * per_token:.0f}",
            flush=True,
        )
    (_, few, at_hand), streamed = rows[0], rows[1:]
    cost = (streamed[0][2][3] / streamed[0][1]) / (at_hand[3] / few) - 1
    growth = streamed[-1][2][1] / streamed[0][2][1] - 1
    print(f"processor time a token against in memory: {100 * cost:+.0f} %, bar within 20 %: {_met(cost < 0.2)}")
    print(f"peak memory, last scale against first: {100 * growth:+.0f} %, bar below 10 %: {_met(growth < 0.1)}")


def _met(holds: bool) -> str:
    return "met" if holds else "missed"


if __name__ == "__main__":
    main()
