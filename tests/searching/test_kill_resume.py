"""A search killed with SIGKILL goes on to the result of one that was not, bit for bit but for the seconds.

The child inherits the environment and so the XLA flags of this session: both sides of a comparison are compiled alike.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_searches import KINDS, assert_same_search, searched
from test_structure import ROOT

import lvsearch as lv
from lvsearch.files.storage import MANIFEST

CHILD = ROOT / "tests" / "cases" / "kill_child.py"
PATIENCE = 1800
"""Seconds after which a child hangs; a busy machine lets it wait for minutes."""


def child(folder: Path, evidence: str, counted: str, last: int, rest: float = 0.0) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    arguments = [str(folder), evidence, counted, str(last), str(rest)]
    return subprocess.Popen([sys.executable, str(CHILD), *arguments], env=environment, stderr=subprocess.PIPE)


def wait_for_kill(process: subprocess.Popen[bytes]) -> None:
    """Fails if the child did not get as far as its kill, or ended otherwise."""
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL, errors.decode()


@pytest.fixture(scope="module")
def killed_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One kill for each kind of evidence, at the same time: in the middle of a write, and before a fit."""
    folders = {evidence: tmp_path_factory.mktemp("killed") / "run" for evidence in KINDS}
    points = {"bound": ("writes", 8), "plug-in": ("fits", 4)}
    processes = [child(folders[evidence], evidence, *points[evidence]) for evidence in KINDS]
    for process in processes:
        wait_for_kill(process)
    return folders


@pytest.mark.parametrize("evidence", KINDS)
def test_killed_and_resumed(evidence: str, killed_folders: dict[str, Path]):
    folder = killed_folders[evidence]
    cut = lv.load(folder)
    assert cut.state.stopped is None
    assert 0 < len(cut.visits) < len(searched(evidence).visits)
    assert_same_search(lv.resume(folder, report=False, progress=False), searched(evidence))
    assert_same_search(lv.load(folder), searched(evidence))
    assert not list(folder.glob(".*.tmp"))  # what the killed process left half-written is gone


@pytest.mark.slow
def test_killed_during_the_very_first_write_says_so(tmp_path: Path):
    """Nothing was fitted: there is nothing to lose, and the message says what to do."""
    wait_for_kill(child(tmp_path / "run", "bound", "writes", 1))
    with pytest.raises(FileNotFoundError, match=r"holds nothing to read yet.*killed before its first state"):
        lv.resume(tmp_path / "run", report=False, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("evidence", KINDS)
def test_killed_again_and_again_at_random_points(evidence: str, seed: int, tmp_path: Path):
    """Up to three kills at points drawn at random (seeded), in the middle of writing or before a fit."""
    random = np.random.default_rng([seed, KINDS.index(evidence)])
    for _ in range(3):
        counted = str(random.choice(["fits", "writes"]))
        process = child(tmp_path / "run", evidence, counted, int(random.integers(2, 9)))
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
        if not (tmp_path / "run" / MANIFEST).exists():
            return  # killed in its very first write: see above
    assert_same_search(lv.resume(tmp_path / "run", report=False, progress=False), searched(evidence))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("evidence", KINDS)
def test_killed_from_outside_after_a_while(evidence: str, seed: int, tmp_path: Path):
    """The parent waits for the first checkpoint and then for a random while (seeded) in which several fits are made."""
    wait = float(np.random.default_rng([seed, 7]).uniform(0.0, 3.0))
    process = child(tmp_path / "run", evidence, "nothing", 0, rest=0.3)
    give_up = time.monotonic() + PATIENCE
    while not (tmp_path / "run" / MANIFEST).exists():
        assert process.poll() is None, "the child ended before it wrote anything"
        assert time.monotonic() < give_up
        time.sleep(0.02)
    time.sleep(wait)
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert_same_search(lv.resume(tmp_path / "run", report=False, progress=False), searched(evidence))
