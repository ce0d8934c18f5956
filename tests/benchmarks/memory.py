"""How much memory does a fit take at its peak, and does the stated plan say so? 16 × AP, K = 400.

    python tests/benchmarks/memory.py [--scale 16] [--topics 400] [--passes 2] [--halvings 0]

Each measurement is a process of its own: the most memory it ever held (`ru_maxrss`), less what it held at most before
the fit began (interpreter, libraries, the simulated corpus, the bucketed data). The simulation is run beforehand, in
another process. The bar: the plan within 25 % of what was measured.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from scipy.sparse import csr_array, load_npz, save_npz

MIB = 2**20


def peak_bytes() -> int:
    """The most memory that this process has held so far (ru_maxrss: KiB on Linux, bytes on macOS)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def measure(path: Path, n_topics: int, passes: int, halvings: int) -> None:
    """One fit in this process; prints before, peak, the plan's bytes and, a line each, its parts."""
    import jax

    import lvsearch as lv
    from lvsearch.inference.data.documents import documents
    from lvsearch.inference.topics.estimator import TopicEstimator, TopicSettings

    data = documents(csr_array(load_npz(path)))
    settings = replace(TopicSettings(), collapsed_passes=passes, mean_field_passes=passes, final_sweeps=1)
    estimator = TopicEstimator(lv.models.LDA(), data, settings)
    estimator = estimator.with_chunks(estimator.chunks._replace(halvings=halvings))
    jax.block_until_ready(jax.numpy.zeros(1))  # starts the device, which is not the fit's doing
    before = peak_bytes()
    estimator.fit((n_topics,), jax.random.key(0), None)
    plan = estimator.memory_plan((n_topics,))
    print(before, peak_bytes(), plan.peak_bytes)
    print(plan.describe(f"{n_topics} topics"))
    for part in plan.parts:
        print(f"  {part.name:<22} {part.n_bytes / MIB:8,.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--topics", type=int, default=400)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--halvings", type=int, default=0, help="of the number of batches")
    parser.add_argument("--step", choices=["simulate", "measure"], help="for the processes that this program starts")
    parser.add_argument("--counts", type=Path)
    options = parser.parse_args()
    if options.step == "simulate":
        from corpora import simulated

        save_npz(options.counts, simulated(options.scale))
        return
    if options.step == "measure":
        measure(options.counts, options.topics, options.passes, options.halvings)
        return
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, __file__, "--counts", f"{scratch}/counts.npz", "--scale", str(options.scale)]
        command += ["--topics", str(options.topics), "--passes", str(options.passes)]
        command += ["--halvings", str(options.halvings), "--step"]
        subprocess.run([*command, "simulate"], check=True)
        counts = load_npz(f"{scratch}/counts.npz")
        print(
            f"×{options.scale}: {counts.shape[0]:,} documents, {counts.sum():,} tokens, K = {options.topics}",
            flush=True,
        )
        done = subprocess.run([*command, "measure"], check=True, stdout=subprocess.PIPE, text=True)
    numbers, *stated = done.stdout.splitlines()
    before, peak, planned = map(int, numbers.split())
    print(f"before the fit {before / MIB:8,.0f} MiB\npeak           {peak / MIB:8,.0f} MiB")
    print(f"the fit        {(peak - before) / MIB:8,.0f} MiB")
    ratio = planned / (peak - before)
    verdict = "met" if abs(ratio - 1) <= 0.25 else "MISSED"
    print(f"planned        {planned / MIB:8,.0f} MiB   {ratio:.2f} × measured; bar within 25 %: {verdict}")
    print("\nStated: " + "\n".join(stated))


if __name__ == "__main__":
    main()
