"""Units over several devices: the numbers of one device. Fits run in a process that has four devices of the host."""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from test_structure import ROOT

import lvsearch as lv
from lvsearch.inference.sharding import devices_at_work, mesh_for, n_shares, on_mesh, split, units_of

SHARED = [ROOT / "tests" / folder for folder in ("cases", "oracles")]
CHILD = SHARED[0] / "mesh_child.py"
RELATIVE = 1e-5


@cache
def in_child() -> dict[str, Any]:
    """What the child prints, by name."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    path = os.pathsep.join([str(ROOT), *map(str, SHARED), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, CHILD],
        env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
def test_units_are_split_over_the_devices():
    """Documents' proportions lie on four devices, in quarters, and so do the rows of a matrix."""
    assert in_child()["shares"]["found"] == [4, 4.0, 4.0]


@pytest.mark.slow
def test_devices_exchange_sums_and_no_rows():
    sums, moved = in_child()["collectives"]["found"]
    assert sums >= 1
    assert moved == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["LDA", "LDA, plug-in", "mixture", "HDP", "Corr-LDA", "annealed LDA", "annealed mixture"]
)
def test_four_devices_find_what_one_finds(name: str):
    found = in_child()[name]
    assert np.all(np.isfinite(found["one"]))
    np.testing.assert_allclose(found["several"], found["one"], rtol=RELATIVE)


def test_on_one_device_nothing_is_split():
    values = np.zeros((4, 2))
    with on_mesh(jax.make_mesh((1,), ("documents",))):
        assert split(values, 0) is values
        assert (n_shares(), devices_at_work(), mesh_for(4)) == (1, (), None)
    assert n_shares() == 1


def test_arguments_of_a_kernel_are_found_by_name_and_it_keeps_its_own():
    calls = []

    @units_of("rows")
    def kernel(scale: float, rows: Any, *, sweeps: int = 1) -> float:
        calls.append((scale, rows, sweeps))
        return scale

    assert kernel(2.0, rows=[1], sweeps=3) == kernel(2.0, [1], sweeps=3) == 2.0
    assert calls == [(2.0, [1], 3)] * 2
    assert kernel.__name__ == "kernel"


def test_a_mesh_and_workers_together_are_refused():
    mesh = jax.make_mesh((1,), ("documents",))
    with lv.WorkerPool(1) as pool, pytest.raises(ValueError, match="expected one of them"):
        lv.search(lv.models.LDA(), np.eye(3, dtype=int), executor=pool, mesh=mesh)
    with pytest.raises(ValueError, match="got a mesh for"):
        lv.search(lv.from_function(lambda size: 0.0), mesh=mesh)
