"""Samplers that go token by token, or row by row, run on the CPU where programs would go elsewhere."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import programs
import pytest

import lvsearch as lv
from lvsearch.inference import sharding
from lvsearch.inference.allocation_chains import allocation_chain
from lvsearch.inference.allocation_chains import run as allocation_chains
from lvsearch.inference.annealing import particles, prefixes
from lvsearch.inference.feature_samplers import collapsed as features
from lvsearch.inference.feature_samplers import collapsed_gibbs as feature_gibbs
from lvsearch.inference.mixture_samplers.sweeps import blocked_gibbs
from lvsearch.inference.mixtures import estimator as mixtures
from lvsearch.inference.topic_samplers import collapsed as topics
from lvsearch.inference.topic_samplers import size_gain
from lvsearch.inference.trees import corpus as trees
from lvsearch.models.kernels import goes_to_cpu

ROWS = np.random.default_rng(0).normal(size=(12, 2))
COUNTS = np.random.default_rng(1).poisson(1.0, (6, 5))
m = lv.models
sampling = importlib.import_module("lvsearch.inference.sampling.run")  # its package has a function of that name


class Reached(Exception):
    """A loop was about to begin."""


def test_the_cpu_is_named_where_programs_would_go_elsewhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert sharding.device_of_loops() is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert sharding.device_of_loops() == jax.devices("cpu")[0]

    def none(backend: str) -> list[Any]:
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "local_devices", none)  # JAX_PLATFORMS=cuda
    assert sharding.device_of_loops() is None


def device_at(module: Any, name: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Any:
    """JAX's default device where `use` calls this kernel for the first time."""
    seen = []

    def reached(*args: Any, **kwargs: Any) -> Any:
        seen.append(jax.config.jax_default_device)
        raise Reached

    reached.eval_shape = getattr(module, name).eval_shape
    with monkeypatch.context() as patch:
        patch.setattr(module, name, reached)
        with pytest.raises(Reached):
            use()
    return seen[0]


def chain(model: Any, data: Any) -> Callable[[], object]:
    return lambda: lv.sample(model, data, chains=1, draws=1, warmup=0, progress=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "name", "use"),
    [
        (topics, "_sweep", lambda: topics.collapsed_gibbs(m.LDA(), documents(), 2, sweeps=1, key=jax.random.key(0))),
        (trees, "tree_sweep", lambda: lv.fit_tree(m.HLDA(2), COUNTS, sweeps=1)),
        (mixtures, "sequential_pass", lambda: lv.fit(m.FiniteMixture(), ROWS, size=2)),
        (features, "_sweep_rows", lambda: feature_samples()),
        (sampling, "_init", chain(m.DPMixture(), ROWS)),
        (sampling, "_init", chain(m.HDP(), COUNTS)),
        (size_gain, "settle", lambda: programs.gain_of_a_topic()),
        (allocation_chains, "advance", lambda: partitions_of_rows()),
        (particles, "draw_from_q", lambda: programs.annealed(m.LDA(), COUNTS, 2)),
    ],
)
def test_loops_run_there(module: Any, name: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch):
    cpu = jax.devices("cpu")[0]
    monkeypatch.setattr(sharding, "device_of_loops", lambda: None)
    assert device_at(module, name, use, monkeypatch) is None
    monkeypatch.setattr(sharding, "device_of_loops", lambda: cpu)
    assert device_at(module, name, use, monkeypatch) is cpu


def test_sweeps_of_all_rows_at_once_stay_where_programs_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharding, "device_of_loops", lambda: jax.devices("cpu")[0])
    data = lv.Points.from_array(ROWS).dataset()
    use = lambda: blocked_gibbs(m.DPMixture(), data, key=jax.random.key(0), sweeps=1, truncation=4)  # noqa: E731
    assert device_at(sampling, "_init", use, monkeypatch) is None


def test_paths_of_all_rows_at_once_stay_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharding, "device_of_loops", lambda: jax.devices("cpu")[0])
    use = partial(programs.annealed, m.HiddenMarkov(), [ROWS[:6], ROWS[6:]], 2)
    assert device_at(prefixes, "_grow", use, monkeypatch) is None


def test_programs_on_the_cpu_of_a_machine_with_a_gpu_are_compiled_as_elsewhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert goes_to_cpu()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not goes_to_cpu()
    for device in (jax.devices("cpu")[0], "cpu"):
        with jax.default_device(device):
            assert goes_to_cpu()


def partitions_of_rows() -> object:
    make = partial(allocation_chain, m.FiniteMixture(), lv.Points.from_array(ROWS).dataset(), np.zeros(2))
    return allocation_chains.run_one_more_block(make, jax.random.key(0), None, precision=0.1)


def feature_samples() -> Any:
    return feature_gibbs(ROWS, key=jax.random.key(0), alpha=1.0, sigma_x=1.0, sigma_a=1.0, sweeps=1, compiled=True)


def documents() -> Any:
    return lv.Corpus.from_matrix(COUNTS).dataset()
