"""Traced programs are read by whoever needs the same program, by nobody else, and damage costs a trace.

Each test makes functions that note when they are traced. A second `kernel` of the same function stands for a second
process.
"""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvsearch.inference.engine.meanfield import Beliefs
from lvsearch.models import kept_traces
from lvsearch.models.hyperpriors import GammaPrior
from lvsearch.models.kept_traces import keep_traces_in
from lvsearch.models.kernels import kernel

pytestmark = pytest.mark.skipif(importlib.util.find_spec("flatbuffers") is None, reason="needs flatbuffers")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in which traced programs are kept during the test, as if no source file had changed lately."""
    monkeypatch.setattr(kept_traces, "_began", kept_traces._began + 1e9)
    keep_traces_in(tmp_path)
    yield tmp_path
    keep_traces_in(None)


class Noted(NamedTuple):
    """A function, and the list to which it adds an entry each time that it is traced."""

    call: Callable[..., Any]
    traces: list[str]

    def in_new_process(self) -> Callable[..., Any]:
        """Return the function compiled anew, as a process does that has not called it yet."""
        return kernel(kept=True, once=True, static_argnames=("power",))(self.call)


def noted() -> Noted:
    """Return a function of two arguments and a static one."""
    traces: list[str] = []

    def weighed(prior: Any, values: Any, *, power: int = 1) -> Any:
        traces.append("traced")
        rate = jax.tree.leaves(prior)[-1]
        return {"beliefs": Beliefs({"a": values * rate}, {}), "both": (None, [jnp.exp(values) ** power])}

    return Noted(weighed, traces)


ARGUMENTS = (GammaPrior(np.float64(2.0), np.float64(3.0)), np.linspace(0, 1, 5))


def test_a_second_process_reads_the_program_and_has_the_same_bits(folder: Path):
    function = noted()
    first = function.in_new_process()(*ARGUMENTS)
    second = function.in_new_process()(*ARGUMENTS)
    assert function.traces == ["traced"]
    assert len(list(folder.iterdir())) == 1
    keep_traces_in(None)
    plain = function.in_new_process()(*ARGUMENTS)
    assert len(function.traces) == 2
    assert jax.tree.structure(first) == jax.tree.structure(second) == jax.tree.structure(plain)
    for one, other, usual in zip(*map(jax.tree.leaves, (first, second, plain)), strict=True):
        np.testing.assert_array_equal(one, usual)
        np.testing.assert_array_equal(other, usual)


def test_programs_that_were_read_are_reported(folder: Path):
    read: list[Any] = []
    keep_traces_in(folder, read.append)
    function = noted()
    function.in_new_process()(*ARGUMENTS)
    assert not read
    function.in_new_process()(*ARGUMENTS)
    assert [each.__name__ for each in read] == ["weighed"]


class Scaled(eqx.Module):
    """A class that is not of the package, although its name may be made to say so."""

    factor: Any
    offset: float = eqx.field(static=True)


def other_arguments() -> dict[str, Callable[[Callable[..., Any]], Any]]:
    """Return calls that need other programs than that of `ARGUMENTS`."""
    prior, values = ARGUMENTS
    return {
        "static argument": lambda call: call(prior, values, power=2),
        "shape": lambda call: call(prior, values[:4]),
        "dtype": lambda call: call(prior, values.astype(np.int32)),
        "Python number": lambda call: call(GammaPrior(2.0, 3.0), values),
        "structure": lambda call: call([prior], values),
    }


@pytest.mark.parametrize("name", other_arguments())
def test_another_program_is_traced(folder: Path, name: str):
    function = noted()
    function.in_new_process()(*ARGUMENTS)
    other_arguments()[name](function.in_new_process())
    assert len(function.traces) == 2
    assert len(list(folder.iterdir())) == 2
    other_arguments()[name](function.in_new_process())
    assert len(function.traces) == 2


def test_another_precision_or_setting_is_another_program(folder: Path):
    function = noted()
    call = function.in_new_process()
    assert call(*ARGUMENTS)["beliefs"].natural["a"].dtype == np.float32
    with jax.enable_x64(True):
        assert call(*ARGUMENTS)["beliefs"].natural["a"].dtype == np.float64
        with jax.numpy_rank_promotion("warn"):
            call(*ARGUMENTS)
    assert len(function.traces) == 3
    assert len(list(folder.iterdir())) == 3


def test_other_code_is_another_program(folder: Path, monkeypatch: pytest.MonkeyPatch):
    function = noted()
    function.in_new_process()(*ARGUMENTS)
    monkeypatch.setattr(kept_traces, "_digest_of_code", lambda: "of other code")
    function.in_new_process()(*ARGUMENTS)
    assert len(function.traces) == 2


def test_the_digest_of_the_code_depends_on_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def digest() -> str | None:
        kept_traces._sources.cache_clear()
        kept_traces._digest_of_code.cache_clear()
        return kept_traces._digest_of_code()

    found = [digest()]
    with monkeypatch.context() as patched:
        patched.setattr(kept_traces, "PACKAGE", tmp_path)
        found.append(digest())
        for name, text in (("a.py", "x = 1"), ("b.py", "y = 2"), ("b.py", "y = 3"), ("c.txt", "not code")):
            (tmp_path / name).write_text(text)
            found.append(digest())
    assert found[1] is None  # no sources: nothing is kept
    assert len({*found}) == 5
    assert found[-1] == found[-2]
    assert digest() == found[0]


def test_nothing_is_kept_where_sources_changed_lately(folder: Path, monkeypatch: pytest.MonkeyPatch):
    newest = max(path.stat().st_mtime for path in kept_traces._sources())
    monkeypatch.setattr(kept_traces, "_began", newest)  # the process began when a file had just been written
    function = noted()
    for _ in range(2):
        function.in_new_process()(*ARGUMENTS)
    assert len(function.traces) == 2
    assert not list(folder.iterdir())


def test_classes_of_a_users_own_are_not_kept(folder: Path):
    function = noted()
    call = function.in_new_process()
    for _ in range(2):
        found = call(Scaled(np.float64(3.0), 1.0), ARGUMENTS[1])
    np.testing.assert_allclose(found["beliefs"].natural["a"], 3 * ARGUMENTS[1])
    assert len(function.traces) == 1
    assert not list(folder.iterdir())


def test_results_of_weak_types_are_not_kept(folder: Path):
    call = kernel(kept=True, once=True)(lambda values: (values, jnp.asarray(2)))
    assert call(ARGUMENTS[1])[1] == 2
    assert not list(folder.iterdir())


def test_errors_are_those_of_the_function(folder: Path):
    def refuses(values: Any) -> Any:
        raise ValueError("got nothing that can be done")

    with pytest.raises(ValueError, match="got nothing that can be done"):
        kernel(kept=True, once=True)(refuses)(ARGUMENTS[1])
    assert not list(folder.iterdir())


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_traced_anew(folder: Path, damage: str):
    function = noted()
    expected = function.in_new_process()(*ARGUMENTS)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    path.write_bytes({"cut": whole[:middle], "flipped": flipped, "empty": b""}[damage])
    found = function.in_new_process()(*ARGUMENTS)
    assert len(function.traces) == 2
    np.testing.assert_array_equal(found["beliefs"].natural["a"], expected["beliefs"].natural["a"])
    function.in_new_process()(*ARGUMENTS)  # written again
    assert len(function.traces) == 2


def test_a_folder_that_is_gone_costs_a_trace(folder: Path):
    keep_traces_in(folder / "gone")
    function = noted()
    function.in_new_process()(*ARGUMENTS)
    assert len(function.traces) == 1
    assert not list(folder.iterdir())


def test_a_class_outside_of_the_package_is_not_loaded():
    with pytest.raises(ValueError, match="expected one of this package"):
        kept_traces._decoded({"os:system": []})
