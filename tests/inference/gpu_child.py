"""What XLA makes of kernels for an NVIDIA GPU that is not here: facts of each, in a file.

    python tests/inference/gpu_child.py FACTS

Needs JAX's CUDA plugin and NVIDIA's compiler on the path of modules, no driver and no device: XLA is told what the GPU
is like (`H100`) and compiles ahead of time. XLA_FLAGS says where it leaves the programs of the GPU (`--xla_dump_to`).
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.extend(sorted({str(file.parent) for file in Path(__file__).parents[1].rglob("*.py")}))  # as conftest.py

import jax
import numpy as np
import pytest
from jax.experimental import topologies
from programs import Watch, dataset

import lvsearch as lv
from lvsearch.inference.engine.estimator import estimator
from lvsearch.inference.topic_samplers.size_gain import GainEffort, gain_of_last_topics
from lvsearch.models.kernels import ONE_LAUNCH

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84929347584
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  driver_version: "12.8.0"
}
runtime_version { major: 12 minor: 8 }
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
m = lv.models
RANDOM = np.random.default_rng(0)
WORDS = RANDOM.poisson(0.05, (600, 3_000))
POINTS = RANDOM.normal(0, 1, (5_000, 6))
PASSES: dict[str, tuple[Any, Any, int]] = {
    "LDA": (m.LDA(), WORDS, 64),
    "PLSI": (m.PLSI(), WORDS, 64),
    "HDP": (m.HDP(), WORDS, 64),
    "FiniteMixture": (m.FiniteMixture(), POINTS, 16),
}
"""Fits of some size, whose passes are most of the work."""
PASSED = {
    "inference.topics.kernel.memoized_passes",
    "inference.topics.kernel.document_pass",
    "inference.topics.kernel.document_bounds",
    "inference.word_mixtures.plsi.aspect_passes",
    "inference.hdp.kernel.settle_documents",
    "inference.mixtures.kernel.ascend_rows",
    "inference.mixtures.kernel.survey",
}
"""Those passes."""


GAIN = {"inference.topic_samplers.size_gain.settle", "inference.annealing.particles._advance_serially"}
"""Sweeps of a gain between numbers of topics: under the posterior, and on the path."""


class Fact(NamedTuple):
    """What is known of one compiled program.

    | field | meaning |
    |---|---|
    | `program` | its name among what XLA left behind |
    | `launches` | operations outside of fusions that start something on the GPU |
    | `launches_of_loops` | the same of each loop's body alone, the most first |
    | `calls` | names of the libraries' and the host's functions that it calls |
    | `products` | matrix products of floats |
    | `rounded` | those of them whose factors lose bits |
    | `temporary_bytes` | beside arguments and results |
    """

    program: str
    kernel: str
    launches: int
    launches_of_loops: list[int]
    calls: list[str]
    products: int
    rounded: list[str]
    temporary_bytes: int


LAUNCHES = ("fusion", "custom-call", "copy", "sort", "scatter", "dot", "reduce", "concatenate", "cholesky", "transpose")


def top_level(text: str) -> Iterator[tuple[str, str]]:
    """(computation, instruction) for those outside of fusions and of what is applied to single elements."""
    computation, inside = "", False
    for line in text.splitlines():
        if line.startswith(("%", "ENTRY")):
            computation = line.split("(")[0].strip()
            inside = line.startswith(("%fused", "%wrapped", "%gemm_fusion")) and "->" in line
        elif not inside and " = " in line:
            yield computation, line


def fact(program: str, kernel: str, compiled: Any) -> Fact:
    text = compiled.as_text()
    named = list(top_level(text))
    lines = [line for _, line in named]
    started = Counter(name for name, line in named if re.search(rf" ({'|'.join(LAUNCHES)})\(", line))
    bodies = set(re.findall(r"body=(%[\w.]+)", text))
    products = [line for line in text.splitlines() if re.search(r" = (f|bf)\d+\[.*? (dot|convolution)\(", line)]
    libraries = [line for line in lines if '"__cublas' in line]
    rounded = [line for line in products if "operand_precision={highest,highest}" not in line]
    rounded += [line for line in libraries if line.count('"HIGHEST"') < 2]
    return Fact(
        program,
        kernel,
        started.total(),
        sorted((number for name, number in started.items() if name in bodies), reverse=True),
        sorted(set(re.findall(r'custom_call_target="([^"]*)"', text))),
        len(products) + len(libraries),
        [line.strip()[:300] for line in rounded],
        compiled.memory_analysis().temp_size_in_bytes,
    )


def compiled_for(device: Any, program: str, trace: Any, **options: bool | str) -> Any:
    closed, place = trace.jaxpr, jax.sharding.SingleDeviceSharding(device)

    def again(*leaves: Any) -> Any:
        return jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *leaves)

    again.__name__ = program
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, sharding=place) for v in closed.jaxpr.invars]
    return jax.jit(again, compiler_options=dict(options)).trace(*shapes).lower().compile()


def followed(calls: dict[str, Callable[[], object]]) -> dict[tuple[str, bool], Any]:
    """The first program of each kernel and precision."""
    found = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        watch = Watch(monkeypatch)
        watch.follow(calls)
        for (kernel, *_, double), trace in watch.traces.items():
            found.setdefault((kernel, double), trace)
    return found


def main(path: str) -> None:
    device = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1").devices[0]
    found: dict[str, list[Any]] = {}

    def add(title: str, kernel: str, double: bool, trace: Any, **options: bool | str) -> None:
        program = f"gpu_{title}_{kernel.replace('.', '_')}_{64 if double else 32}"
        with jax.enable_x64(double):
            compiled = compiled_for(device, program, trace, **options)
        found.setdefault(title, []).append(fact(program, kernel, compiled)._asdict())

    for name, (model, data, size) in PASSES.items():
        for (kernel, double), trace in followed({name: partial(lv.fit, model, data, size=size, seed=0)}).items():
            if kernel in PASSED:
                add(name, kernel, double, trace)
                if name == "LDA" and not double and kernel == "inference.topics.kernel.memoized_passes":
                    add("flushing", kernel, double, trace, xla_gpu_ftz=True)
                    add("ordered", kernel, double, trace, xla_gpu_deterministic_ops=True)
    data, work = dataset(m.LDA(), WORDS), GainEffort(2, 1, 1, 1, groups=1, particles=2, wide=True)
    fitted = lv.fit(m.LDA(), WORDS, size=64, seed=0)
    for (kernel, double), trace in followed(
        {"gain": lambda: gain_of_last_topics(m.LDA(), data, (64,), fitted.estimate, jax.random.key(0), work, 10)}
    ).items():
        if kernel in GAIN:
            add("gain", kernel, double, trace, **ONE_LAUNCH)
            add("gain_by_default", kernel, double, trace)
    plans = {
        name: estimator(model, dataset(model, data)).memory_plan((size,)).peak_bytes
        for name, (model, data, size) in PASSES.items()
    }
    Path(path).write_text(json.dumps({"facts": found, "plans": plans}))


if __name__ == "__main__":
    main(sys.argv[1])
