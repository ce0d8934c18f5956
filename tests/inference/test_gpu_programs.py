"""Passes of fits compiled for an NVIDIA GPU on machines that have none: what XLA makes of them (`gpu_child`).

JAX's CUDA plugin is installed in a folder of this test, with NVIDIA's compiler beside it, some 400 MB; unless the
environment variable LVSEARCH_CUDA names a folder where they are already.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (f"jax-cuda12-plugin=={jax.__version__}", f"jax-cuda12-pjrt=={jax.__version__}")
COMPILER = ("nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink-cu12", "nvidia-cuda-runtime-cu12")

LAUNCHES = {
    ("LDA", "inference.topics.kernel.memoized_passes"): 70,
    ("PLSI", "inference.word_mixtures.plsi.aspect_passes"): 55,
    ("HDP", "inference.topics.kernel.memoized_passes"): 70,
    ("FiniteMixture", "inference.mixtures.kernel.ascend_rows"): 70,
}
"""What a whole program may start on a GPU, its loops' bodies counted once: 62, 47, 62, 63 with jaxlib 0.10.2."""


class Compiled(NamedTuple):
    """facts, plans: of `gpu_child`; programs: where XLA left what it made."""

    facts: dict[str, list[dict[str, Any]]]
    plans: dict[str, int]
    programs: Path

    def atomics(self, fact: dict[str, Any]) -> set[str]:
        """Atomic instructions in one program's PTX."""
        texts = [path.read_text() for path in self.programs.glob(f"*jit_{fact['program']}.*ptx")]
        assert texts, f"XLA left no PTX of {fact['program']}"
        return {found for text in texts for found in re.findall(r"\b(?:atom|red)\.[\w.]*(?:add|cas|exch)[\w.]*", text)}

    def started_by_host(self, fact: dict[str, Any]) -> list[str]:
        """Return what the host starts when it calls one program, by XLA's names, those of loops' bodies once."""
        (path,) = self.programs.glob(f"*jit_{fact['program']}.thunk_sequence_after_thunk_passes.txt")
        return re.findall(r"^\d+: (k\w+)", path.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of the CUDA plugin; "" where it is installed anyhow."""
    if importlib.util.find_spec("jax_plugins") and importlib.util.find_spec("jax_plugins.xla_cuda12"):
        return ""
    if os.environ.get("LVSEARCH_CUDA"):
        return os.environ["LVSEARCH_CUDA"]
    folder = tmp_path_factory.mktemp("cuda")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *PACKAGES, *COMPILER]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        pytest.skip(f"JAX's CUDA plugin is not to be had: {done.stderr.strip().splitlines()[-1]}")
    return str(folder)


@pytest.fixture(scope="module")
def compiled(plugin: str, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder = tmp_path_factory.mktemp("programs")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")} | {
        "XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_module_re=jit_gpu_.*",
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # of versions that a driver would have to say
        "LVSEARCH_CACHE": "off",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [plugin])]),
    }
    found = folder / "facts.json"
    child = [sys.executable, str(Path(__file__).with_name("gpu_child.py")), str(found)]
    done = subprocess.run(child, env=environment, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return Compiled(**json.loads(found.read_text()), programs=folder)


def test_no_program_calls_back_and_no_product_loses_bits(compiled):
    facts = [fact for each in compiled.facts.values() for fact in each]
    assert not [fact for fact in facts if any("callback" in name for name in fact["calls"])]
    assert sum(fact["products"] for fact in facts) > 3
    assert not {fact["kernel"]: fact["rounded"] for fact in facts if fact["rounded"]}


def test_sums_of_topics_are_atomic_and_what_the_docs_say_of_flags_is_so(compiled):
    """In float32 XLA makes loops of compare-and-swap of them unless subnormal numbers may be flushed."""
    (plain,) = [f for f in compiled.facts["LDA"] if f["program"].endswith("memoized_passes_32")]
    (flushing,), (ordered,) = compiled.facts["flushing"], compiled.facts["ordered"]
    assert any("cas" in name for name in compiled.atomics(plain))
    assert {name.rsplit(".", 2)[1] for name in compiled.atomics(flushing)} == {"add"}
    assert not compiled.atomics(ordered)


def test_mixtures_have_no_atomics(compiled):
    for fact in compiled.facts["FiniteMixture"]:
        assert not compiled.atomics(fact), fact["kernel"]


def test_passes_start_few_kernels(compiled):
    for (name, kernel), most in LAUNCHES.items():
        found = [fact["launches"] for fact in compiled.facts[name] if fact["kernel"] == kernel]
        assert found
        assert max(found) <= most, (name, kernel, found)


def test_a_step_over_a_wide_group_of_tokens_starts_few_kernels(compiled):
    """A sweep has as many such steps as the longest document has tokens. Each is 24 kernels under the posterior with
    jaxlib 0.10.2, and 29 on the path, where the loop over temperatures has a larger body around it."""
    found = {fact["kernel"].rsplit(".", 1)[1]: fact["launches_of_loops"] for fact in compiled.facts["gain"]}
    assert found["settle"][0] <= 28
    assert found["_advance_serially"][1] <= 34


def test_all_sweeps_over_wide_groups_are_one_launch(compiled):
    """By default the host would start the loop over sweeps itself, and in it that over groups."""
    for fact in compiled.facts["gain"]:
        assert compiled.started_by_host(fact) == ["kCommandBuffer"]
    for fact in compiled.facts["gain_by_default"]:
        assert "kWhile" in compiled.started_by_host(fact)


def test_temporaries_are_within_the_memory_plan(compiled):
    for name, plan in compiled.plans.items():
        worst = max(fact["temporary_bytes"] for fact in compiled.facts[name])
        assert 0 < worst <= plan, (name, worst, plan)
