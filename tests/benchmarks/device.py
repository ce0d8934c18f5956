"""The first minutes on a GPU: are its numbers right, and how near to its limits does it come? One command, one page.

    python tests/benchmarks/device.py [--out device.md] [--minutes 10]    # on a machine with a GPU
    python tests/benchmarks/device.py --dry-run                           # tiny sizes on a CPU: everything runs

Needs `pip install -e ".[cuda12,test]"`; with LVSEARCH_DATA the search is of Cora, else of simulated abstracts.

| part | what is measured |
|---|---|
| `agreement` | every program that some fits and estimates call, on GPU and CPU, with the same arguments |
| `ceilings` | how fast memory is copied, and matrices are multiplied, at each precision |
| `passes` | passes of LDA at K = 100 and 1,000: pairs of word and topic a second, memory beside the plan |
| `large`, `large_cpu` | fits of several models of many rows or documents, on the GPU and on all cores of its machine |
| `evidence` | annealed evidence of LDA, which runs on the CPU: seconds a temperature, its two ends |
| `gains` | a gain of LDA between sizes, in small groups of tokens on the CPU and in wide ones on the GPU |
| `search` | a search of LDA over K = 1 … 150 |
| `plain`, `ordered`, `flushing` | one fit twice, without and with XLA's flags for ordered and for native sums |

Each part is a process of its own, which is ended when its share of the time is over; rows it has printed stay. A part
that fails is a row too, and the next one is begun. The page has a roofline table: what was reached beside what the
measured ceilings allow.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.extend(sorted({str(file.parent) for file in Path(__file__).parents[1].rglob("*.py")}))  # as conftest.py

from reproduce import ROOT, about_the_machine, cell, run_script

LEAST_BYTES = 12
"""What a pass of LDA moves at least for one distinct word of a document and one topic: the topic's weight is read, the
old expected count is read, the new one is written, 4 bytes each."""
LEAST_OPERATIONS = 12
"""And what it computes at least: of the rules in `inference/topics/kernel.py`, one sweep."""


class Sizes(NamedTuple):
    """How large everything is: tiny, to see that it runs, or such that a GPU has work."""

    copied_mib: int
    matrix: int
    documents: int
    length: int
    topics: tuple[int, ...]
    passes: int
    repeats: int
    rows: int
    temperatures: int
    largest: int
    search_seconds: float


REAL = Sizes(1024, 8192, 9000, 194, (100, 1000), 40, 3, 100_000, 20, 150, 150.0)
TINY = Sizes(1, 64, 30, 20, (4, 9), 2, 1, 60, 2, 3, 60.0)


@dataclass(frozen=True)
class Part:
    """One part: what it does with the sizes, its share of the time, flags of XLA, and whether it has the CPU alone."""

    make: Callable[[Sizes], Iterator[dict[str, Any]]]
    share: float
    flags: str = ""
    on_cpu: bool = False


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def row(what: str, value: float | str, unit: str = "", note: str = "", **numbers: float) -> dict[str, Any]:
    """Return one line of the page. `numbers` are for the roofline table alone."""
    return {"what": what, "value": value, "unit": unit, "note": note, **numbers}


def agreement(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Run programs on the default device and on the CPU, with the same arguments, and yield how far results differ."""
    import programs

    m, found = programs.m, {}
    for name, places in programs.kernels().items():
        watched = compared(name, places[0][2], found)
        for module, attribute, _ in places:
            setattr(module, attribute, watched)
    chosen = (m.LDA, m.MixtureOfUnigrams, m.PLSI, m.HDP, m.FiniteMixture, m.HiddenMarkov, m.PoissonFactorization)
    calls = {
        name: call for name, call in programs.fits().items() if name.split()[0] in {each.__name__ for each in chosen}
    }
    calls |= {"likelihood by annealing": programs.QUICK["annealed"], "completion": programs.QUICK["completion"]}
    for model, data, size in ((m.LDA(), programs.COUNTS, 3), (m.FiniteMixture(), programs.ROWS, 2)):
        calls[f"evidence of {type(model).__name__}"] = partial(programs.annealed, model, data, size)
    for title, call in calls.items():
        before = set(found)
        try:
            call()
        except Exception as error:  # one model that fails does not hide the others
            yield row(title, "FAILED", note=f"{type(error).__name__}: {error}"[:300])
        for name, double in sorted(found.keys() - before):
            floats, others, seconds = found[name, double]
            words = f"others differ in {others:.1%}" if others else ""
            yield row(f"`{name}`", floats, "of the largest", f"{64 if double else 32} bits; {seconds:.2f} s; {words}")


def compared(name: str, kernel: Any, found: dict[tuple[str, bool], tuple[float, float, float]]) -> Callable[..., Any]:
    """Return a kernel that is also run on the CPU the first time it is called in each precision.

    found: (name, whether in double precision) -> (largest difference of floats, share of other results that differ,
        seconds of the first call), filled in.
    """
    import jax

    def call(*args: Any, **kwargs: Any) -> Any:
        key = name, bool(jax.config.jax_enable_x64)
        leaves, structure = jax.tree.flatten((args, kwargs))
        if key in found or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return kernel(*args, **kwargs)
        cpu = jax.local_devices(backend="cpu")[0]
        again, named = jax.tree.unflatten(structure, [copied_to(leaf, cpu) for leaf in leaves])
        began = time.perf_counter()
        value = jax.block_until_ready(kernel(*args, **kwargs))
        seconds = time.perf_counter() - began
        with jax.default_device(cpu):
            found[key] = (*difference(value, kernel(*again, **named)), seconds)
        return value

    for attribute in ("eval_shape", "trace", "lower"):
        if hasattr(kernel, attribute):
            setattr(call, attribute, getattr(kernel, attribute))
    return call


def copied_to(leaf: Any, device: Any) -> Any:
    """Return a copy of an array of JAX on a device, which shares no memory with it; anything else as it is."""
    import jax
    import numpy as np

    if not isinstance(leaf, jax.Array):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = jax.device_put(np.array(jax.random.key_data(leaf)), device)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    return jax.device_put(np.array(leaf), device)


def difference(value: Any, other: Any) -> tuple[float, float]:
    """Return how far two results of one program are apart: (floats, over the largest of each array; share of the rest).

    Places where both are the same, infinite ones among them, are no difference.
    """
    import jax
    import numpy as np

    floats, wrong, rest = 0.0, 0, 0
    for one, two in zip(jax.tree.leaves(value), jax.tree.leaves(other), strict=True):
        if isinstance(one, jax.Array) and jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, two = jax.random.key_data(one), jax.random.key_data(two)
        a, b = np.asarray(one), np.asarray(two)
        if not np.issubdtype(a.dtype, np.inexact):
            wrong, rest = wrong + int((a != b).sum()), rest + a.size
            continue
        differs = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if differs.any():
            largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
            apart = np.abs(a[differs].astype(np.float64) - b[differs]).max()
            share = float(apart / max(largest, 1e-300))
            floats = max(floats, math.inf if math.isnan(share) else share)
    return floats, wrong / max(rest, 1)


def ceilings(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield the rate at which memory is copied, and those at which matrices are multiplied."""
    import jax
    import jax.numpy as jnp

    n = sizes.copied_mib * 2**20 // 4
    copy = jax.jit(lambda x: x + 1.0)
    seconds = median_seconds(copy, jnp.zeros(n, jnp.float32))
    yield row("copy", 8 * n / seconds / 1e9, "GB/s", "float32, read and written", bytes_a_second=8 * n / seconds)
    side = sizes.matrix
    for title, dtype, precision in (
        ("float32, all bits", jnp.float32, "highest"),
        ("float32 as the device likes", jnp.float32, "default"),
        ("bfloat16", jnp.bfloat16, "default"),
        ("float64", jnp.float64, "highest"),
    ):
        with jax.enable_x64(dtype == jnp.float64):
            product = jax.jit(lambda x, y, p=precision: jnp.matmul(x, y, precision=p))
            matrix = jnp.ones((side, side), dtype)
            rate = 2 * side**3 / median_seconds(product, matrix, matrix)
        yield row(f"matrix product, {title}", rate / 1e12, "TFLOP/s", f"{side} × {side}", operations_a_second=rate)


def median_seconds(function: Callable[..., Any], *args: Any, times: int = 5) -> float:
    """Return the median time of a compiled function, after one call that compiles."""
    import jax

    jax.block_until_ready(function(*args))
    measured = []
    for _ in range(times):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        measured.append(time.perf_counter() - began)
    return statistics.median(measured)


def passes(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield pairs of word and topic a second of both kinds of passes of LDA, and the memory beside the plan."""
    import jax
    from corpora import drawn_documents
    from growth import ONCE, seconds_per_pass

    import lvsearch as lv
    from lvsearch.inference.data.documents import documents
    from lvsearch.inference.topics.estimator import TopicEstimator

    counts = drawn_documents(sizes.documents, sizes.length, 10, 0)
    data = documents(counts)
    yield row("corpus", f"{counts.shape[0]:,} documents, {int(counts.sum()):,} tokens, {counts.nnz:,} distinct")
    for n_topics in sizes.topics:
        for kind, more in (
            ("collapsed", replace(ONCE, collapsed_passes=1 + sizes.passes)),
            ("mean field", replace(ONCE, mean_field_passes=sizes.passes)),
        ):
            seconds = seconds_per_pass(data, n_topics, more, sizes.passes, sizes.repeats)
            title = f"pass of LDA, {kind}, K = {n_topics}"
            if seconds <= 0:  # a difference of two fits, of which a tiny one tells nothing
                yield row(title, "too short to be timed", note=f"{seconds:.4f} s")
                continue
            rate = counts.nnz * n_topics / seconds
            yield row(title, rate / 1e9, "billion pairs/s", f"{seconds:.4f} s", pairs=rate)
        plan = TopicEstimator(lv.models.LDA(), data, ONCE).memory_plan((n_topics,)).peak_bytes
        stats = jax.local_devices()[0].memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        told = "not told by this device" if peak is None else f"{peak / 2**20:,.0f} MiB at most until here"
        yield row(f"memory, K = {n_topics}", f"{plan / 2**20:,.0f}", "MiB planned", told)


def large_fits(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield the seconds of a fit of each of some models on many rows or documents, and those of the first one."""
    import numpy as np
    from corpora import drawn_documents

    import lvsearch as lv

    random, m = np.random.default_rng(0), lv.models
    some = drawn_documents(max(sizes.documents // 4, 20), sizes.length, 40, 0)
    rows = random.normal(0, 1, (sizes.rows, 8)) + 4 * random.integers(0, 3, (sizes.rows, 8))
    length = max(sizes.rows // 200, 20)
    sequences = [random.normal(0, 1, (length, 3)) + 3 * random.integers(0, 4, (length, 1)) for _ in range(100)]
    k = sizes.topics[0]
    for what, model, data, size in (
        (f"LDA, {some.shape[0]:,} documents, K = {2 * k}", m.LDA(), some, 2 * k),
        (f"HDP, {some.shape[0]:,} documents, K = {k}", m.HDP(), some, k),
        (f"mixture, {len(rows):,} rows, K = 20", m.FiniteMixture(), rows, 20),
        ("the same, full covariances", m.FiniteMixture(m.FullCovarianceComponents()), rows, 20),
        (f"hidden Markov, 100 sequences of {length:,}, K = 6", m.HiddenMarkov(), sequences, 6),
    ):
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            fit = lv.fit(model, data, size=size, seed=0)
            seconds.append(time.perf_counter() - began)
        told = f"the first, which compiles: {seconds[0]:.2f} s; bound {fit.evidence.lower:,.1f} nats"
        yield row(f"fit of {what}", seconds[1], "s", told)


def evidence(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield the seconds of a temperature of LDA's annealed evidence, and its two ends."""
    import jax
    from corpora import drawn_documents

    import lvsearch as lv
    from lvsearch.inference.evidence import Effort, both_ways, evidence_chain, temperature_profile

    corpus = lv.Corpus.from_matrix(drawn_documents(max(sizes.documents // 4, 20), sizes.length, 10, 1))
    model, size, key = lv.models.LDA(), (sizes.topics[0],), jax.random.key(0)
    fit = lv.fit(model, corpus, size=size[0], seed=0)
    chain = evidence_chain(model, corpus.dataset(), size, fit.estimate)
    for temperatures, is_first in ((1, True), (sizes.temperatures, False)):
        work = Effort(temperatures, 1, 1)
        profile = temperature_profile(chain, key, work)
        began = time.perf_counter()
        ends, _ = both_ways(chain, key, work, profile)
        seconds = (time.perf_counter() - began) / 2
        if is_first:
            yield row("annealed evidence, first call", seconds, "s a direction", "compiling")
            continue
        told = f"ends {max(ends.forward.tolist()):,.1f} and {min(ends.backward.tolist()):,.1f} nats"
        rate = corpus.n_tokens * temperatures / seconds
        yield row(f"annealed evidence, K = {size[0]}", rate / 1e6, "million tokens swept/s", told)


def gains(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield the seconds of a gain of LDA between sizes by eight paths, in small groups and in wide ones."""
    import jax
    from corpora import drawn_documents

    import lvsearch as lv
    from lvsearch.inference.topic_samplers.size_gain import GainEffort, gain_of_last_topics

    corpus = lv.Corpus.from_matrix(drawn_documents(max(sizes.documents // 4, 20), sizes.length, 10, 1))
    model, size, key = lv.models.LDA(), (sizes.topics[0],), jax.random.key(0)
    fit = lv.fit(model, corpus, size=size[0], seed=0)
    for wide, where in ((False, "small groups, on the CPU"), (True, "wide groups, on the device")):
        seconds, work = [], GainEffort(8, 8, 4, 12, groups=1, particles=8, wide=wide)
        for _ in range(2):
            began = time.perf_counter()
            gain = gain_of_last_topics(model, corpus.dataset(), size, fit.estimate, key, work)
            seconds.append(time.perf_counter() - began)
        told = f"{gain.forward.mean():,.1f} and {gain.backward.mean():,.1f} nats; the first took {seconds[0]:.1f} s"
        yield row(f"a gain, K = {size[0]}, {where}", seconds[1], "s", told)


def search(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield the answer of a search of LDA, and its time."""
    from corpora import corpus_named, drawn_documents

    import lvsearch as lv

    folder = Path(os.environ.get("LVSEARCH_DATA", "/nowhere")) / "cora"
    if sizes is REAL and folder.is_dir():
        corpus, name = corpus_named(str(folder)), "Cora"
    else:
        corpus = lv.Corpus.from_matrix(drawn_documents(min(sizes.documents, 2400), min(sizes.length, 57), 10, 2))
        name = "simulated"
    began = time.perf_counter()
    result = lv.search(
        lv.models.LDA(), corpus, max_size=sizes.largest, seconds=sizes.search_seconds, seed=0, progress=False
    )
    took = time.perf_counter() - began
    told = f"{result.summary().splitlines()[0]}; {len(result.visits)} fits; at most {sizes.search_seconds:.0f} s asked"
    yield row(f"search of {name}, K = 1 … {sizes.largest}", took, "s", told)


def same_twice(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yield whether one fit of LDA has the same bits twice, and its seconds, under the flags of this process."""
    import jax
    import numpy as np
    from corpora import drawn_documents
    from growth import ONCE

    import lvsearch as lv
    from lvsearch.inference.data.documents import documents
    from lvsearch.inference.topics.estimator import TopicEstimator

    data = documents(drawn_documents(max(sizes.documents // 4, 20), sizes.length, 10, 3))
    settings = replace(ONCE, collapsed_passes=5, mean_field_passes=2)
    fits, seconds = [], []
    for _ in range(3):
        estimator = TopicEstimator(lv.models.LDA(), data, settings)
        began = time.perf_counter()
        found = estimator.fit((sizes.topics[0],), jax.random.key(0), None)
        fits.append([np.asarray(leaf) for leaf in jax.tree.leaves(found.natural)])
        seconds.append(time.perf_counter() - began)
    same = all(a.tobytes() == b.tobytes() for a, b in zip(fits[1], fits[2], strict=True))
    flags = os.environ.get("XLA_FLAGS", "").strip() or "no flag"
    yield row(f"a fit of LDA twice, {flags}", "same bits" if same else "other bits", note=f"{min(seconds[1:]):.3f} s")


PARTS = {
    "ceilings": Part(ceilings, 0.03),
    "agreement": Part(agreement, 0.18),
    "passes": Part(passes, 0.09),
    "large": Part(large_fits, 0.12),
    "large_cpu": Part(large_fits, 0.15, on_cpu=True),
    "plain": Part(same_twice, 0.04),
    "ordered": Part(same_twice, 0.04, "--xla_gpu_deterministic_ops=true"),
    "flushing": Part(same_twice, 0.04, "--xla_gpu_ftz=true"),
    "evidence": Part(evidence, 0.06),
    "gains": Part(gains, 0.1),
    "search": Part(search, 0.15),
}
"""In this order: what the first page cannot do without comes first. Shares of the time add up to 1."""


# ── the page ────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_rows(output: str) -> list[dict[str, Any]]:
    """Return the rows that a part has printed, one JSON object a line; other lines are passed over."""
    rows = []
    for line in output.splitlines():
        if line.startswith('{"what"'):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:  # cut off in the middle
                continue
    return rows


def roofline(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a table: pairs a second that were reached beside those that the ceilings allow."""
    bandwidth = next((each["bytes_a_second"] for each in rows if "bytes_a_second" in each), None)
    product = next((each["operations_a_second"] for each in rows if "operations_a_second" in each), None)
    reached = [each for each in rows if "pairs" in each]
    if bandwidth is None or product is None or not reached:
        return ["Ceilings or passes were not measured, so there is no roofline."]
    by_memory, by_arithmetic = bandwidth / LEAST_BYTES, product / LEAST_OPERATIONS
    lines = [
        f"A pair of word and topic moves {LEAST_BYTES} bytes and takes {LEAST_OPERATIONS} operations at least, so that "
        f"memory allows {by_memory / 1e9:.3g} billion pairs a second, and arithmetic {by_arithmetic / 1e9:.3g}.",
        "",
        "| what | billion pairs/s | the lower ceiling | reached |",
        "|---|---|---|---|",
    ]
    lowest = min(by_memory, by_arithmetic)
    for each in reached:
        lines.append(
            f"| {each['what']} | {each['pairs'] / 1e9:.3g} | {lowest / 1e9:.3g} | {each['pairs'] / lowest:.1%} |"
        )
    return lines


def shown(value: float | str) -> str:
    """Return a value as the page shows it."""
    return value if isinstance(value, str) else "NaN" if math.isnan(value) else f"{value:.4g}"


def page(found: dict[str, list[dict[str, Any]]], states: dict[str, str], facts: Sequence[tuple[str, str]]) -> str:
    """Return the page, Markdown.

    found: the rows of each part. states: what became of each part, in words. facts: machine and versions.
    """
    lines = [
        "# A device, measured",
        "",
        "| | |",
        "|---|---|",
        *(f"| {what} | {cell(value)} |" for what, value in facts),
    ]
    lines += ["", "## Roofline", "", *roofline([each for rows in found.values() for each in rows]), ""]
    for name, rows in found.items():
        lines += [f"## {name}", "", f"{states[name]}.", ""]
        if rows:
            lines += ["| what | value | unit | |", "|---|---|---|---|"]
            for each in rows:
                parts = (each["what"], shown(each["value"]), each["unit"], each["note"])
                lines.append(f"| {' | '.join(cell(part) for part in parts)} |")
            lines.append("")
    return "\n".join(lines)


def environment_of(part: Part, is_dry: bool) -> dict[str, str]:
    """Return the variables of a part's process: flags of XLA, and which devices there are."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {part.flags}".strip()
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    environment.pop("JAX_PLATFORMS", None)  # both the GPU and the CPU are needed
    if is_dry or part.on_cpu:
        environment["JAX_PLATFORMS"] = "cpu"
    return environment


DEVICES = "import jax; print('backend', jax.default_backend(), '|', [each.device_kind for each in jax.devices()])"


def main() -> int:
    """Run every part in a process of its own, and write the page after each. Returns the number that did not finish."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("device.md"))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on a CPU")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    sizes = TINY if asked.dry_run else REAL
    if asked.part:
        for each in PARTS[asked.part].make(sizes):
            print(json.dumps(each), flush=True)
        return 0
    _, told = run_script([sys.executable, "-c", DEVICES], 120.0, environment_of(Part(ceilings, 0.0), asked.dry_run))
    device = next((line for line in told.splitlines() if line.startswith("backend")), "none: " + told[-300:])
    if not asked.dry_run and not device.startswith(("backend gpu", "backend cuda", "backend rocm")):
        sys.exit(f"got the device {device}, expected a GPU. --dry-run goes through everything on a CPU")
    facts = [("device", device.removeprefix("backend ")), *about_the_machine()]
    found: dict[str, list[dict[str, Any]]] = {}
    states: dict[str, str] = {}
    for name in asked.only:
        part = PARTS[name]
        command = [sys.executable, __file__, "--part", name, *(["--dry-run"] if asked.dry_run else [])]
        began, limit = time.perf_counter(), 60 * asked.minutes * part.share
        status, output = run_script(command, limit, environment_of(part, asked.dry_run))
        found[name] = read_rows(output)
        seconds = time.perf_counter() - began
        last = " / ".join(output.strip().splitlines()[-2:])
        states[name] = (
            f"Done in {seconds:.0f} s"
            if status == 0
            else f"ENDED after {limit:.0f} s, its share of the time"
            if status is None
            else f"FAILED with exit status {status}: {last[-400:]}"
        )
        print(f"{name}: {states[name]}, {len(found[name])} rows", flush=True)
        asked.out.write_text(page(found, states, facts), encoding="utf-8")
    print(f"written: {asked.out}")
    return sum(not state.startswith("Done") for state in states.values())


if __name__ == "__main__":
    sys.exit(main())
