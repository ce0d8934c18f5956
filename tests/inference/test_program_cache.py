"""Compiled programs are kept where one says, and nowhere where one says so. A process decides once: what the
environment says is tried in one process that forgets its decision, the rest in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lvsearch.inference.compiles import remove_oldest_files

SCRIPT = """
import jax, numpy as np
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
before = jax.jit(lambda x: x + 1)(1.0)  # JAX has decided by then whether it keeps programs
import lvsearch as lv
{first}
{work}
print(jax.config.jax_compilation_cache_dir, sum(event.endswith("/cache_hits") for event in hits))
"""
FIT = "lv.fit(lv.models.LDA(), np.eye(4, 3, dtype=int) + 1, size=2, seed=0)"
BEGIN = "from lvsearch.inference.compiles import prepare_programs; prepare_programs()"
"""What every fit, search and sampling begins with."""
DRAW = f"{BEGIN}; jax.jit(lambda x: jax.random.gamma(jax.random.key(0), x, (3,)))(1.0)"
COMMAND = "from lvsearch.command import cli; cli.main(['report', 'nothing', {!r}, {!r}][:{}])"


def bare(home: Path) -> dict[str, str]:
    """The environment of a user with this home, who has set nothing."""
    given = ("JAX_", "LVSEARCH_", "XDG_", "XLA_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(given)}
    return variables | {"HOME": str(home), "JAX_PLATFORMS": "cpu"}


def run(home: Path, first: str = "", work: str = BEGIN, **environment: str) -> tuple[str, int, str]:
    """(JAX's folder, programs read from it, what was said) of a process whose user has this home."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(first=first, work=work)],
        env=bare(home) | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    folder, hits = done.stdout.split()
    said = [line for line in done.stderr.splitlines() if "compiled programs" in line]
    return folder, int(hits), "\n".join(said)


@pytest.mark.thorough
@pytest.mark.parametrize("work", [DRAW, pytest.param(FIT, marks=pytest.mark.slow)], ids=["draw", "fit"])
def test_the_second_process_reads_what_the_first_compiled(tmp_path: Path, work: str):
    home = tmp_path / ".cache" / "lvsearch"
    folder, hits, said = run(tmp_path, work=work)
    assert Path(folder).parent == home
    assert str(home) in said
    assert "LVSEARCH_CACHE=off" in said
    kept = set(Path(folder).iterdir())
    assert kept
    again, more, silent = run(tmp_path, work=work)
    assert (again, silent) == (folder, "")
    assert more > hits + len(kept) / 2
    assert kept <= set(Path(folder).iterdir())


AGAIN = """
import json, os, sys
import jax
from lvsearch.inference import compiles
folders = []
for environment in json.loads(sys.argv[1]):
    os.environ.update(environment)
    jax.config.update("jax_compilation_cache_dir", environment.get("JAX_COMPILATION_CACHE_DIR"))  # as JAX reads it
    compiles._decided = False
    compiles.keep_programs()
    folders.append(jax.config.jax_compilation_cache_dir)
    for name in environment:
        del os.environ[name]
print(json.dumps(folders))
"""


@pytest.mark.thorough
def test_the_folder_is_the_one_that_is_named_and_none_where_somebody_said_so(tmp_path: Path):
    """One that cannot be made is done without; JAX's own stays."""
    (tmp_path / "file").write_text("")
    places = {name: str(tmp_path / name) for name in ("own", "user", "jax", "file/folder")}
    environments = [
        {"LVSEARCH_CACHE": places["own"]},
        {"XDG_CACHE_HOME": places["user"]},
        {"LVSEARCH_CACHE": "off"},
        {"JAX_COMPILATION_CACHE_DIR": places["jax"]},
        {"LVSEARCH_CACHE": places["file/folder"]},
    ]
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, json.dumps(environments)],
        env=bare(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    own, user, off, jax, impossible = json.loads(done.stdout)
    assert Path(own).parent == tmp_path / "own"
    assert Path(user).parent == tmp_path / "user" / "lvsearch"
    assert jax == places["jax"]
    assert off is impossible is None
    assert not (tmp_path / ".cache").exists()
    said = [line for line in done.stderr.splitlines() if "compiled programs" in line]
    assert len(said) == 2  # where a folder was made, and nowhere else


@pytest.mark.slow
def test_the_command_line_has_the_last_word(tmp_path: Path):
    given = str(tmp_path / "given")
    folder, _, _ = run(tmp_path, COMMAND.format("--cache", given, 4), LVSEARCH_CACHE="off")
    assert Path(folder).parent == Path(given)
    folder, _, said = run(tmp_path, COMMAND.format("--no-cache", "", 3))
    assert (folder, said) == ("None", "")
    folder, _, _ = run(tmp_path, COMMAND.format("", "", 2), work="")  # a report fits nothing
    assert Path(folder).parent == tmp_path / ".cache" / "lvsearch"


def test_what_was_used_last_stays(tmp_path: Path):
    for age, name in enumerate("abc"):
        path = tmp_path / name
        path.write_bytes(bytes(100))
        os.utime(path, (10**9 - age, 10**9 - age))
    remove_oldest_files(tmp_path, 250)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    remove_oldest_files(tmp_path, 0)
    assert not list(tmp_path.iterdir())
