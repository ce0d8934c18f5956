"""Traced programs kept on disk, so that a later process need not trace them again.

JAX keeps compiled programs on disk. It finds one only after it has run the Python code of the program (tracing) and
turned the result into XLA's language (lowering). For the chains over partitions of rows that takes two seconds, and for
the fits of a mixture as long again. So programs marked `kept` (`kernels.kernel`) are also kept in the form that they
have after these two steps, by `jax.export`. The next process reads them, and JAX's cache has the compiled program.

A stale program is never used. The name of a file has a digest of everything that a program depends on:

- the contents of all source files of this package, and the versions of Python, JAX, NumPy and Equinox;
- the settings of JAX, such as its floating-point precision, and the kind of device;
- the function, and its static arguments;
- the types, static fields, shapes and dtypes of its other arguments.

A program whose arguments have parts of other types than those that `_describe` knows, such as classes of a user's own,
is not kept. No program is written or read if a source file was changed less than a minute before this process began, or
later, since the process may have loaded the file as it was before. A process that replaces functions of this package
while it runs has to switch the folder off (LVSEARCH_CACHE=off).

A file begins with its checksum. It is written under another name first and then renamed. It holds no pickle: the
program is what `jax.export` serializes, for which the package `flatbuffers` has to be installed, and the structure of
its result is JSON. Without `flatbuffers` every process traces its programs.
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

PACKAGE = Path(__file__).parent.parent
"""The folder of this package."""
ENDING = ".traced"
"""The ending of the names of files with traced programs."""
JUST_CHANGED = 60.0
"""Seconds before this process began from which on a change of a source file may have been too late to be loaded."""
MOST_PROGRAMS = 64
"""The most programs of one function that are held in memory."""
OF_FILES = ("jax_compilation_cache", "jax_persistent_cache")
"""How the names of those settings of JAX begin that say where compiled programs are kept, and change no program."""

_began = time.time()
_folder: Path | None = None
_report_read: Callable[[Callable[..., Any]], None] | None = None


class Unkept(Exception):
    """Raised for a program that cannot be kept on disk."""


class TracedProgram(NamedTuple):
    """A program after tracing and lowering, as a function of the arrays of its arguments.

    | field | meaning |
    |---|---|
    | `exported` | the program, a `jax.export.Exported` from arrays to a list of arrays |
    | `outcome` | the pytree of the result with the number 0 in place of each array |
    """

    exported: Any
    outcome: Any


def keep_traces_in(folder: Path | None, report_read: Callable[[Callable[..., Any]], None] | None = None) -> None:
    """Keep traced programs in a folder from now on; None keeps none.

    report_read: called with the function of each program that is read and not traced.
    """
    global _folder, _report_read
    _folder, _report_read = folder, report_read


class KeptTraces:
    """The traced programs of one function that are kept on disk, and those of them that this process uses.

    function: the function to trace.
    static_argnames: the names of its static arguments, which are passed by name.
    """

    def __init__(self, function: Callable[..., Any], static_argnames: Sequence[str]) -> None:
        self._function, self._static = function, tuple(static_argnames)
        self._programs: dict[tuple[str, ...], Callable[..., Any] | None] = {}  # None for those that cannot be kept

    def call(self, platform: str, options: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the function's result for these arguments.

        platform: the kind of device that programs run on, such as "cpu". options: the options of XLA's compiler.

        Raises Unkept if the program cannot be kept; then nothing was computed.
        """
        static = {name: kwargs[name] for name in self._static if name in kwargs}
        traced = args, {name: each for name, each in kwargs.items() if name not in static}
        leaves = jax.tree.leaves(traced)
        if _folder is None:
            raise Unkept("there is no folder to keep programs in")
        if any(isinstance(leaf, jax.Array) and len(leaf.devices()) > 1 for leaf in leaves):
            raise Unkept("arguments lie on several devices")
        about = _describe(traced, is_static=False), _describe(static, is_static=True), platform, _settings()
        if about not in self._programs:
            if len(self._programs) >= MOST_PROGRAMS:
                self._programs.clear()
            self._programs[about] = None
            self._programs[about] = self._find_or_trace(_folder, about, platform, options, traced, static)
        program = self._programs[about]
        if program is None:
            raise Unkept("it was found before that this program cannot be kept")
        return program(leaves)

    def _find_or_trace(
        self,
        folder: Path,
        about: tuple[str, ...],
        platform: str,
        options: Mapping[str, Any],
        traced: tuple[Sequence[Any], dict[str, Any]],
        static: Mapping[str, Any],
    ) -> Callable[..., Any]:
        """Return the program as a function of the arrays of its arguments, read from the folder or traced now.

        about: the description of everything beside the code that the program depends on.
        traced: the arguments that are traced, as (positional ones, those by name). static: the static arguments.

        Raises Unkept if the program cannot be kept.
        """
        code = _digest_of_code()
        if code is None or _has_changed_sources():
            raise Unkept("it is not known which source files this process has loaded, or flatbuffers is missing")
        name = f"{self._function.__module__}.{self._function.__qualname__}"
        digest = hashlib.sha256("\n".join([code, name, *about]).encode()).hexdigest()
        path = folder / f"{self._function.__name__}-{digest}{ENDING}"
        program = _read(path)
        if program is None:
            program = self._traced(platform, traced, static)
            _write(path, program)
        elif _report_read is not None:
            _report_read(self._function)
        structure = jax.tree.structure(program.outcome)
        run = jax.jit(program.exported.call, compiler_options=dict(options))
        return lambda leaves: jax.tree.unflatten(structure, run(*leaves))

    def _traced(
        self, platform: str, traced: tuple[Sequence[Any], dict[str, Any]], static: Mapping[str, Any]
    ) -> TracedProgram:
        """Return the function traced and lowered for these arguments.

        Raises Unkept if that fails, or if its result cannot be rebuilt in another process.
        """
        leaves, structure = jax.tree.flatten(traced)
        outcome: Any = None

        def of_leaves(*leaves: Any) -> list[Any]:
            nonlocal outcome
            args, kwargs = jax.tree.unflatten(structure, leaves)
            result = self._function(*args, **kwargs, **static)
            outcome = jax.tree.map(lambda _: 0, result)
            return jax.tree.leaves(result)

        of_leaves.__name__ = self._function.__name__
        try:
            exported = _export().export(jax.jit(of_leaves), platforms=[platform])(*leaves)
        except Exception as error:  # of whatever kind: the caller traces the function itself, which says what is wrong
            raise Unkept("it could not be traced by itself") from error
        if any(aval.weak_type for aval in exported.out_avals):
            raise Unkept("a result has a weak type, which is forgotten on disk")
        return TracedProgram(exported, _decoded(_encoded(outcome)))


# ── what a program depends on ─────────────────────────────────────────────────────────────────────────────────────────


def _describe(value: Any, *, is_static: bool) -> str:
    """Return a text that is the same for two arguments exactly if they lead to the same program.

    is_static: whether numbers are part of the program themselves; otherwise their type alone is.

    Raises Unkept for values of other types than those below.
    """
    kind, describe = type(value), partial(_describe, is_static=is_static)
    if value is None or (is_static and kind in (bool, int, str)):
        return f"{kind.__name__} {value!r}"
    if is_static and kind is float:
        return f"float {value.hex()}"
    if is_static and isinstance(value, jax.tree_util.PyTreeDef):
        return _describe_structure(value)
    if not is_static and (kind in (bool, int, float) or isinstance(value, jax.Array | np.ndarray | np.generic)):
        aval = jax.typeof(value)
        return f"{aval.shape} {aval.dtype} {aval.weak_type}"
    if kind is dict and all(type(key) is str for key in value):
        return f"dict({', '.join(f'{key!r}: {describe(each)}' for key, each in value.items())})"
    if kind in (tuple, list):
        return f"{kind.__name__}({', '.join(map(describe, value))})"
    if _is_named_tuple(kind):
        return f"{_name_of(kind)}({', '.join(map(describe, value))})"
    if isinstance(value, eqx.Module):
        parts = []
        for field in dataclasses.fields(value):
            is_fixed = is_static or bool(field.metadata.get("static"))
            parts.append(f"{field.name}={_describe(getattr(value, field.name), is_static=is_fixed)}")
        return f"{_name_of(kind)}({', '.join(parts)})"
    raise Unkept(f"an argument has a part of the type {kind.__qualname__}")


def _describe_structure(structure: Any) -> str:
    """Return a text that describes the structure of a pytree of tuples, lists, dictionaries and named tuples."""
    node = structure.node_data()
    if node is None:
        return "leaf" if structure.num_leaves else "None"
    kind, about = node
    children = ", ".join(map(_describe_structure, structure.children()))
    if kind in (tuple, list, type(None)):
        return f"{kind.__name__}({children})"
    if kind is dict:
        return f"dict {about!r} ({children})"
    if _is_named_tuple(kind):
        return f"{_name_of(kind)}({children})"
    raise Unkept(f"an argument holds the structure of a pytree of the type {kind.__qualname__}")


def _is_named_tuple(kind: type) -> bool:
    """Return True for a class that `NamedTuple` made."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _name_of(kind: type) -> str:
    """Return module and name of a class of this package, by which another process finds it.

    Raises Unkept for other classes.
    """
    module, name = kind.__module__, kind.__qualname__
    if module.split(".")[0] != __name__.split(".")[0] or getattr(sys.modules.get(module), name, None) is not kind:
        raise Unkept(f"the class {module}.{name} is not one of this package")
    return f"{module}:{name}"


def _settings() -> str:
    """Return the settings of JAX as a text, but for those that only say where compiled programs are kept."""
    values = {**jax.config.values, "mesh": jax.sharding.get_abstract_mesh()}
    return ";".join(f"{name}={each}" for name, each in values.items() if not name.startswith(OF_FILES))


@cache
def _digest_of_code() -> str | None:
    """Return a digest of all source files of this package and of the versions of what they call; None if unknown."""
    paths = _sources()
    if not paths or importlib.util.find_spec("flatbuffers") is None:
        return None
    versions = [sys.version, *(f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy", "equinox"))]
    code = hashlib.sha256("\n".join(versions).encode())
    for path in paths:
        content = path.read_bytes()
        code.update(f"\n{path.relative_to(PACKAGE)} {len(content)}\n".encode() + content)
    return code.hexdigest()


@cache
def _sources() -> tuple[Path, ...]:
    """Return the source files of this package, in order."""
    folders = sorted(os.walk(PACKAGE, followlinks=True))
    return tuple(Path(folder, name) for folder, _, names in folders for name in sorted(names) if name.endswith(".py"))


def _has_changed_sources() -> bool:
    """Return True if a source file is not surely as this process loaded it."""
    try:
        return max(path.stat().st_mtime for path in _sources()) > _began - JUST_CHANGED
    except OSError:
        return True


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _export() -> Any:
    """Return the module `jax.export`, which is imported when it is first needed."""
    return importlib.import_module("jax.export")


def _read(path: Path) -> TracedProgram | None:
    """Return the program in a file; None if there is no such file, or if it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, content = content[:32], content[32:]
    if hashlib.sha256(content).digest() != checksum:
        return None
    header, _, program = content.partition(b"\n")
    return TracedProgram(_export().deserialize(bytearray(program)), _decoded(json.loads(header)))


def _write(path: Path, program: TracedProgram) -> None:
    """Write a program to a file, under another name at first. Nothing happens where the folder cannot be written to."""
    header = json.dumps(_encoded(program.outcome)).encode()
    content = header + b"\n" + bytes(program.exported.serialize())
    try:
        number, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
        with os.fdopen(number, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(name, path)
    except OSError:
        return


def _encoded(outcome: Any) -> Any:
    """Return a pytree of tuples, lists, dictionaries and named tuples of this package in the form of JSON.

    Raises Unkept for pytrees of other types.
    """
    kind = type(outcome)
    if outcome is None or kind is int:
        return outcome
    if kind is dict and all(type(key) is str for key in outcome):
        return {"dict": [[key, _encoded(each)] for key, each in outcome.items()]}
    if kind in (tuple, list):
        return {kind.__name__: list(map(_encoded, outcome))}
    if _is_named_tuple(kind):
        return {_name_of(kind): list(map(_encoded, outcome))}
    raise Unkept(f"a result has a part of the type {kind.__qualname__}")


def _decoded(encoded: Any) -> Any:
    """Return the pytree that `_encoded` was given."""
    if not isinstance(encoded, dict):
        return encoded
    ((kind, parts),) = encoded.items()
    if kind == "dict":
        return {key: _decoded(each) for key, each in parts}
    children = list(map(_decoded, parts))
    if kind in ("tuple", "list"):
        return tuple(children) if kind == "tuple" else children
    module, name = kind.split(":")
    if module.split(".")[0] != __name__.split(".")[0]:
        raise ValueError(f"got the class {kind} in a file of traced programs, expected one of this package")
    return getattr(importlib.import_module(module), name)(*children)
