"""Seconds to score 10,000 documents of about 150 words under 10 topics: ais, 128 samples; mfi, 200; lrs, 100; bounds.

Run alone, on two cores: `python tests/benchmarks/likelihood_speed.py [method …] [--documents 10000] [--topics 10]
[--words 150] [--samples 8]`. Each method runs once on a small share first, so that compilation is reported apart.
"""

import argparse
import time

import jax
import numpy as np
from scipy import sparse

from lvsearch.inference.likelihood import document_likelihood

BUDGET = {"mfi": 10.0, "lrs": 200.0}  # seconds on two cores


def simulate(n_documents: int, n_topics: int = 10, n_words: int = 5000, length: int = 150, seed: int = 0):
    """Topics (K, V), α (K,), and counts (D, V) of Poisson(150) tokens."""
    rng = np.random.default_rng(seed)
    topics, alpha = rng.dirichlet(np.full(n_words, 0.05), n_topics), np.full(n_topics, 0.1)
    rows = [
        sparse.csr_array(rng.multinomial(rng.poisson(length), rng.dirichlet(alpha) @ topics)[None])
        for _ in range(n_documents)
    ]
    return topics, alpha, sparse.csr_array(sparse.vstack(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=["bounds", "ais", "mfi", "lrs"])
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--words", type=int, default=150, help="the mean number of words of a document")
    parser.add_argument("--samples", type=int, help="of methods that sample; by default the method's own")
    arguments = parser.parse_args()
    topics, alpha, counts = simulate(arguments.documents, arguments.topics, length=arguments.words)
    for method in arguments.methods:
        key = None if method == "bounds" else jax.random.key(0)
        start = time.perf_counter()
        share, samples = counts[: max(1, arguments.documents // 10)], None if method == "bounds" else arguments.samples
        document_likelihood(topics, alpha, share, method=method, samples=samples, key=key)
        warm = time.perf_counter() - start
        busy = time.process_time()
        result = document_likelihood(topics, alpha, counts, method=method, samples=samples, key=key)
        busy = time.process_time() - busy
        budget = f", budget {BUDGET[method]:.0f} s" if method in BUDGET else ""
        print(
            f"{method:7s} {result.seconds:7.1f} s{budget}, {busy:.1f} CPU s (a tenth with compilation: {warm:.1f} s); "
            f"{result.total / counts.sum():.5f} nats per token ± {result.total_standard_error / counts.sum():.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
