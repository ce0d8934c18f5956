"""What the library is made of and brings with it: no network, stated licences, a wheel that is the same twice.

That the oldest and the newest allowed dependencies pass the fast tier is asked by `benchmarks/dependencies.py`.
"""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import dependencies
import pytest
from test_structure import ROOT

FREE = re.compile(r"Apache|MIT|BSD|MPL|Python Software Foundation|ISC")
EPOCH = "1700000000"

GUARDED = """
import socket, sys

def refused(*_, **__):
    sys.exit("a socket was opened")

for name in ("connect", "connect_ex", "bind", "sendto"):
    setattr(socket.socket, name, refused)
socket.getaddrinfo = socket.create_connection = refused
{statement}
print("done")
"""

RUN = """
import numpy as np
import lvsearch as lv
result = lv.search(lv.models.LDA(), np.eye(6, 5, dtype=int) + 1, prior=lv.sizes.Poisson(2), evidence="bound",
                   max_size=2, starts=1, progress=False)
str(result), result.posterior(), result.best.topics()
"""


def guarded(statement: str) -> subprocess.CompletedProcess[str]:
    """Run in a process in which every use of a network ends it."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    code = GUARDED.replace("{statement}", statement)
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.thorough
def test_neither_import_nor_search_uses_a_network():
    done = guarded(RUN)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


@pytest.mark.parametrize(
    "statement", ["import urllib.request as u; u.urlopen('http://127.0.0.1:9')", "socket.socket().bind(('', 0))"]
)
def test_the_guard_sees_what_does(statement: str):
    done = guarded(statement)
    assert done.returncode == 1
    assert "a socket was opened" in done.stderr


def test_every_dependency_has_a_lower_bound_that_is_met():
    stated = dependencies.dependencies()
    for requirement, pin in zip(stated, dependencies.oldest(stated), strict=True):
        name, _, least = pin.partition("==")
        assert requirement.startswith(name)
        assert numbers(metadata.version(name)) >= numbers(least)
    with pytest.raises(ValueError, match="lower bound"):
        dependencies.oldest(["numpy"])


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def test_every_licence_is_stated_and_free():
    rows = dependencies.licences().splitlines()[2:]
    assert len(rows) == len(dependencies.dependencies())
    for row in rows:
        assert FREE.search(row), row


def wheel(folder: Path) -> bytes:
    """The bytes of a wheel built into a folder, from a copy of what git knows."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", source], input=archive, check=True)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", folder, source]
    subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH})
    (built,) = folder.glob("lvsearch-*.whl")
    return built.read_bytes()


@pytest.mark.slow
def test_a_wheel_built_twice_is_the_same(tmp_path: Path):
    if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no git checkout")
    assert wheel(tmp_path / "first") == wheel(tmp_path / "second")
