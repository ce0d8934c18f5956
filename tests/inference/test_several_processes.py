"""Several processes that search together: the numbers of one, and what happens when one of them is lost."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from small_searches import corpus
from test_structure import ROOT

import lvsearch as lv
from lvsearch.inference.several_processes import (
    ProcessLostError,
    broadcast_from_first,
    check_in_first_process,
    check_same,
    is_writing_process,
    reporting_lost_processes,
    spans_processes,
)
from lvsearch.inference.sharding import on_host

SHARED = [ROOT / "tests" / folder for folder in ("cases", "oracles")]
RELATIVE = 1e-5
NAMES = ("LDA", "LDA, plug-in", "mixture", "HDP", "Corr-LDA", "annealed LDA", "annealed mixture")
TIMEOUT = 10
"""Seconds after which a lost process is given up."""
LONG = 600
"""Seconds after which a test gives up, of a machine that is busy with others."""
MPIEXEC = shutil.which("mpiexec")


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def environment(n_devices: int = 2) -> dict[str, str]:
    flags = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={n_devices}"
    path = os.pathsep.join([str(ROOT), *map(str, SHARED), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": path}


def in_processes(commands: Sequence[Sequence[Any]]) -> list[tuple[int, str, str]]:
    """Of each command, all of them at once: exit status, standard output, standard error."""
    begun = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    try:
        said = [process.communicate(timeout=LONG) for process in begun]
    finally:
        for process in begun:
            process.kill()
    return [(process.returncode, *each) for process, each in zip(begun, said, strict=True)]


@cache
def in_two() -> list[dict[str, dict[str, Any]]]:
    """What each of two processes found, by name."""
    coordinator = free_port()
    ended = in_processes([[SHARED[0] / "processes_child.py", coordinator, 2, n, *NAMES] for n in (0, 1)])
    for status, _, errors in ended:
        assert status == 0, errors
    lines = [[json.loads(line) for line in out.splitlines() if line.startswith("{")] for _, out, _ in ended]
    return [{line["name"]: line for line in each} for each in lines]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_of_two_devices_find_what_one_finds(name: str):
    first, second = (found[name] for found in in_two())
    assert first["devices"] == 4
    assert np.all(np.isfinite(first["one"]))
    np.testing.assert_allclose(first["several"], first["one"], rtol=RELATIVE)
    assert second["several"] == first["several"]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_lost_process_ends_the_other_and_the_search_goes_on_afterwards(killed: int, tmp_path: Path):
    folder, coordinator = tmp_path / "run", free_port()
    child = SHARED[0] / "lost_process_child.py"
    ended = in_processes([[child, coordinator, n, folder, TIMEOUT, killed] for n in (0, 1)])
    assert ended[killed][0] == -9, ended[killed][2]
    status, _, errors = ended[1 - killed]
    assert status not in (0, -9)
    assert re.search("got no answer from another one|another task died", errors), errors
    before = lv.load(folder)
    assert before.state.stopped is None
    assert len(before.visits) == 2

    coordinator = free_port()
    resumed = ["-m", "lvsearch", "resume", folder, "--quiet", "--coordinator", coordinator, "--num-processes", 2]
    ended = in_processes([[*resumed, "--process-id", n] for n in (0, 1)])
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert ["Report:" in out for _, out, _ in ended] == [True, False]
    after = lv.load(folder)
    alone = lv.search(
        lv.models.LDA(), corpus(), evidence="bound", max_size=4, starts=1, seed=0, report=False, progress=False
    )
    assert after.state.stopped == "finished"
    assert [visit.size for visit in after.visits] == [visit.size for visit in alone.visits]
    ends = [[visit.evidence.lower for visit in result.visits] for result in (after, alone)]
    np.testing.assert_allclose(*ends, rtol=RELATIVE)


@pytest.mark.slow
@pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec: pip install mpich brings one")
def test_mpiexec_says_which_process_is_which(tmp_path: Path):
    words = ("apple pear plum cherry", "iron tin zinc copper")
    (tmp_path / "docs.txt").write_text("\n".join(words[i % 2] for i in range(40)))
    command = [MPIEXEC, "-n", "2", sys.executable, "-m", "lvsearch", "search", "--texts", tmp_path / "docs.txt"]
    command += ["--evidence", "bound", "--max-size", "2", "--starts", "1", "--quiet", "--out", tmp_path / "run"]
    command += ["--coordinator", free_port()]
    done = subprocess.run(list(map(str, command)), env=environment(), capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Report:") == 1
    assert lv.load(tmp_path / "run").state.stopped == "finished"


@pytest.mark.slow
def test_other_data_in_another_process_are_refused_in_both(tmp_path: Path):
    script = tmp_path / "other.py"
    script.write_text(
        "import sys, jax, numpy as np, lvsearch as lv\n"
        "lv.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))\n"
        "mesh = jax.make_mesh((4,), ('units',))\n"
        "lv.fit(lv.models.LDA(), np.eye(3, dtype=int) + int(sys.argv[2]), size=2, mesh=mesh)\n"
    )
    coordinator = free_port()
    for status, _, errors in in_processes([[script, coordinator, n] for n in (0, 1)]):
        assert status == 1
        assert "got another model and data in process [1] than in process 0" in errors


# --- in one process --------------------------------------------------------------------------------------------------


def test_a_process_by_itself_is_the_first_and_agrees_with_itself():
    mesh = jax.make_mesh((1,), ("documents",))
    assert not spans_processes(None)
    assert not spans_processes(mesh)
    assert is_writing_process(mesh)
    said = {"sizes": (1, 2), "values": np.arange(3.0) / 3}
    np.testing.assert_equal(broadcast_from_first(said), said)
    np.testing.assert_array_equal(on_host(jax.numpy.arange(3)), [0, 1, 2])
    check_same(mesh, "data", lambda: "never asked" + 1)  # pyright: ignore[reportOperatorIssue]
    with pytest.raises(FileExistsError):
        check_in_first_process(mesh, lambda: (_ for _ in ()).throw(FileExistsError()))


def test_errors_of_collectives_say_what_to_do_where_there_are_others(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    gloo = jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
    with pytest.raises(jax.errors.JaxRuntimeError), reporting_lost_processes(None):
        raise gloo
    monkeypatch.setattr("lvsearch.inference.several_processes.spans_processes", lambda mesh: True)
    with pytest.raises(ProcessLostError, match=r"lv\.resume"), reporting_lost_processes(None):
        raise gloo
    assert "lv.resume" in capsys.readouterr().err
    with pytest.raises(jax.errors.JaxRuntimeError, match="bad program"), reporting_lost_processes(None):
        raise jax.errors.JaxRuntimeError("INTERNAL: bad program")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"timeout": 0}, "got timeout=0, expected a whole number of at least 1"),
        ({"coordinator": "node1"}, 'expected "host:port"'),
        (
            {"coordinator": "node1:9000", "num_processes": 2, "process_id": 2},
            "got process_id=2, expected a whole number from 0 to 1",
        ),
    ],
)
def test_what_cannot_be_begun_is_refused(given: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        lv.distributed.initialize(**given)
