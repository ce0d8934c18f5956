"""`benchmarks/device.py` before there is a device: its page, its arithmetic, and (slow) all of it on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import device
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from device import PARTS, compared, difference, environment_of, page, read_rows, roofline, row


def test_shares_of_the_time_add_up():
    assert sum(part.share for part in PARTS.values()) == pytest.approx(1.0)
    assert PARTS["ordered"].flags != PARTS["plain"].flags == ""


def test_rows_are_read_from_what_a_part_printed():
    good = json.dumps(row("copy", 3.5, "GB/s", bytes_a_second=3.5e9))
    output = f"W0000 some warning of XLA\n{good}\n" + good[: len(good) // 2]
    (found,) = read_rows(output)
    assert found["value"] == 3.5
    assert found["bytes_a_second"] == 3.5e9


def test_the_roofline_is_the_lower_ceiling():
    rows = [
        row("copy", 120.0, bytes_a_second=120e9),
        row("matrix product", 60.0, operations_a_second=60e9),
        row("matrix product, fewer bits", 900.0, operations_a_second=900e9),
        row("pass", 1.0, pairs=1e9),
    ]
    table = roofline(rows)
    assert "memory allows 10 billion" in table[0]
    assert "arithmetic 5." in table[0]
    assert table[-1] == "| pass | 1 | 5 | 20.0% |"
    assert "no roofline" in roofline(rows[:3])[0]
    assert "no roofline" in roofline(rows[1:])[0]


def test_the_page_has_what_failed_and_what_was_cut_off():
    found = {"ceilings": [row("copy", 2.0, "GB/s", "a | b")], "search": []}
    states = {"ceilings": "ENDED after 36 s, its share of the time", "search": "FAILED with exit status 1: Error: x"}
    text = page(found, states, [("device", "gpu")])
    assert "| copy | 2 | GB/s | a · b |" in text
    assert "ENDED after 36 s" in text
    assert "FAILED with exit status 1: Error: x." in text


def test_parts_have_the_gpu_and_the_cpu_and_their_flags(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    real = environment_of(PARTS["ordered"], is_dry=False)
    assert "JAX_PLATFORMS" not in real
    assert real["XLA_FLAGS"] == "--xla_a=1 --xla_gpu_deterministic_ops=true"
    assert environment_of(PARTS["plain"], is_dry=True)["JAX_PLATFORMS"] == "cpu"


def test_differences_of_results():
    one = {"a": jnp.array([1.0, jnp.nan, jnp.inf, 4.0]), "b": jnp.array([1, 2, 3, 4]), "key": jax.random.key(0)}
    assert difference(one, one) == (0.0, 0.0)
    other = {"a": jnp.array([1.0, jnp.nan, jnp.inf, 3.0]), "b": jnp.array([1, 2, 3, 5]), "key": jax.random.key(0)}
    floats, rest = difference(one, other)
    assert floats == pytest.approx(1 / 3)
    assert rest == pytest.approx(1 / 6)  # of 4 whole numbers and the 2 words of a key
    assert not np.isfinite(difference({"a": jnp.array([jnp.nan])}, {"a": jnp.array([1.0])})[0])


def test_a_kernel_that_differs_is_seen_once_and_given_arguments_stay():
    calls = []

    def uneven(x: jax.Array, *, shift: float) -> jax.Array:
        calls.append(x)
        return x + shift * len(calls)

    found: dict[tuple[str, bool], tuple[float, float, float]] = {}
    watched = compared("uneven", uneven, found)
    given = jnp.array([1.0, 2.0])
    assert watched(given, shift=1.0).tolist() == [2.0, 3.0]
    assert found["uneven", False][0] == pytest.approx(1 / 4)
    assert calls[1].unsafe_buffer_pointer() != given.unsafe_buffer_pointer()
    watched(given, shift=1.0)
    assert len(calls) == 3
    jax.jit(lambda x: watched(x, shift=1.0))(given)  # inside another program it is not compared
    assert set(found) == {("uneven", False)}


@pytest.mark.slow
def test_everything_runs_on_a_cpu(tmp_path: Path):
    out = tmp_path / "device.md"
    command = [sys.executable, device.__file__, "--dry-run", "--minutes", "60", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text(encoding="utf-8")
    assert "FAILED" not in text
    assert "same bits" in text
    assert "pass of LDA, collapsed" in text
    assert "search of simulated" in text
