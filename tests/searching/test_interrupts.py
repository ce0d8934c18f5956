"""Ctrl-C stops a search and says what is kept, also where Python swallows it."""

import gc
import io
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from small_searches import PRIOR, Fake, corpus, fake_search, searched, settings

import lvsearch as lv
from lvsearch.command import cli
from lvsearch.files.plain_text import print_any_text
from lvsearch.interrupts import postpone_interrupts, remember_interrupts, was_interrupted


@pytest.fixture(autouse=True)
def ordinary_handler():
    """That of a program that nobody watches; a runner may have put its own there."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread alone")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def swallowed() -> None:
    """Ctrl-C in a callback of the garbage collector, say."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return
    pytest.fail("no KeyboardInterrupt")


def search_pressed_at(call: int) -> Fake:
    def function(size, trial):
        if len(evaluator.calls) == call:
            swallowed()
        return -abs(size[0] - 3.0)

    evaluator = Fake(function, nested=False, repeatable=False)
    return evaluator


def test_a_search_stops_at_its_next_step():
    evaluator = search_pressed_at(2)
    with remember_interrupts():
        state = fake_search(evaluator, PRIOR, settings((4,)))[0].state
        assert (state.stopped, len(state.visits)) == ("interrupted", 2)
        assert fake_search(evaluator, PRIOR, settings((4,)), state=state)[0].state.stopped == "finished"


def test_it_waits_for_the_step_where_processes_search_together():
    with remember_interrupts(), postpone_interrupts():
        signal.raise_signal(signal.SIGINT)
        assert was_interrupted()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGINT)
        assert was_interrupted()


def test_what_nobody_swallowed_is_raised_and_heard_once():
    with remember_interrupts():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert was_interrupted()
        assert not was_interrupted()
    with remember_interrupts():
        assert not was_interrupted()


def test_the_handler_of_somebody_else_stays():
    mine = signal.getsignal(signal.SIGINT)
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    with remember_interrupts():
        signal.raise_signal(signal.SIGINT)
        assert not was_interrupted()
    signal.signal(signal.SIGINT, mine)
    assert heard == [1]


def test_other_threads_are_left_alone():
    done = []

    def work() -> None:
        with remember_interrupts():
            done.append(was_interrupted())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [False]


@pytest.mark.parametrize("swallow", [False, True])
def test_the_command_line_ends_with_130(swallow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    def interrupted(*_: object, **__: object) -> str:
        if swallow:
            swallowed()
            return str(tmp_path / "summary.md")
        raise KeyboardInterrupt

    monkeypatch.setattr("lvsearch.reports.report.write_report", interrupted)
    monkeypatch.setattr("lvsearch.reports.report.topics_table", lambda *_: pd.DataFrame())
    searched("bound").save(tmp_path / "run")
    assert cli.main(["report", str(tmp_path / "run"), "--no-cache"]) == 130
    if not swallow:
        kept = f"everything done until then is in {tmp_path / 'run'}: go on with lvsearch resume"
        assert kept in capsys.readouterr().err


def test_and_says_so_where_nothing_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    (tmp_path / "docs.txt").write_text("boat sail wind\ncat dog mouse\n" * 10)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "read_corpus", interrupted)
    arguments = ["search", "--texts", str(tmp_path / "docs.txt"), "--out", str(tmp_path / "run"), "--no-cache"]
    assert cli.main(arguments) == 130
    assert capsys.readouterr().err == "lvsearch: interrupted; nothing was written\n"


# ── before the command knows what it was asked ──────────────────────────────────────────────────────────────────────

PRESSED_AT = """
import signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    "name",
    [
        "jax",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("jax.numpy", "pandas", "lvsearch.api")),
        "lvsearch.command.cli",
    ],
)
def test_while_the_command_is_imported_one_line_is_said(name: str, tmp_path: Path):
    """Ctrl-C comes at the import of a module, as from a person in the first second."""
    (tmp_path / "sitecustomize.py").write_text(PRESSED_AT.format(name=name))
    path = os.pathsep.join([str(tmp_path), str(Path(lv.__file__).parents[1])])
    command = [sys.executable, "-m", "lvsearch", "search", "--texts", "docs.txt", "--out", "run"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "lvsearch: interrupted; nothing was written\n")


def test_a_script_that_imports_it_keeps_pythons_own_handler():
    code = "import lvsearch, signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(lv.__file__).parents[1])


def test_ctrl_c_in_a_callback_of_the_garbage_collector_is_not_printed(capsys):
    """It is remembered without noise, and nothing is raised where it would be lost."""

    def callback(phase: str, information: object) -> None:
        if phase == "start":
            signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(callback)
    try:
        with remember_interrupts():
            gc.collect()
            assert was_interrupted()
    finally:
        gc.callbacks.remove(callback)
    assert capsys.readouterr().err == ""


def test_an_interrupted_search_waits_for_no_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    result = searched("bound")
    stopped = replace(result, state=replace(result.state, stopped="interrupted"), held_out=corpus().select(range(9)))
    monkeypatch.setattr("lvsearch.results.heldout.held_out_comparison", lambda *_: pytest.fail("compared"))
    monkeypatch.setattr("lvsearch.reports.report.write_report", lambda *_, **__: str(tmp_path / "summary.md"))
    assert cli._conclude(stopped, tmp_path) == 130
    assert "interrupted: writing the report of what was found; Ctrl-C again leaves it out" in capsys.readouterr().err


# ── terminals that know few signs ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp437", "utf-8"])
def test_no_sign_fails_after_the_work_is_done(encoding: str, monkeypatch: pytest.MonkeyPatch):
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", errors)
    print_any_text()
    print("−3 ± 1 nats … ∞ 中\ud800", flush=True)
    print("−", file=sys.stderr, flush=True)
    written = out.buffer.getvalue().decode(encoding)
    assert "\n" in written
    assert "3" in written
    if encoding == "ascii":
        assert written == "-3 +/- 1 nats ... inf \\u4e2d\\ud800\n"
    if encoding == "cp1252":
        assert written.startswith("-3 ± 1 nats … inf")
