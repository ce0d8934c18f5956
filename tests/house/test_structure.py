"""The rules of the house, checked: who may import whom, what an import costs, what is documented, what is enforced."""

import ast
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from checked_calls import checks_of, jaxtyped
from jaxtyping import Array, Float, TypeCheckError

import lvsearch

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"models": ROOT / "models", "inference": ROOT / "inference", "lvsearch": ROOT / "lvsearch"}
MAY_IMPORT = {
    "models": {"lvsearch.models"},
    "inference": {"lvsearch.models", "lvsearch.inference"},
    "lvsearch": {"lvsearch"},
}
JAX_FAMILY = {"jax", "jaxlib", "equinox", "numpyro", "optax"}
TOP_LEVEL = {
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "SECURITY.md",
    "lvsearch",
    "models",
    "inference",
    "tests",
    "notebooks",
    "examples",
    "docs",
}


def source_files(room: str) -> list[Path]:
    """The files of one room; the links from lvsearch/ into the other two are not followed."""
    folder = ROOMS[room]
    nested = {folder / "models", folder / "inference"} if room == "lvsearch" else set()
    return sorted(p for p in folder.rglob("*.py") if not nested & set(p.parents))


def module_name(room: str, path: Path) -> str:
    parts = path.relative_to(ROOMS[room]).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(("lvsearch", *(() if room == "lvsearch" else (room,)), *parts))


@cache
def imported_modules(path: Path, name: str) -> set[str]:
    """Every module that a file imports anywhere, relative imports resolved, `from a import b` as both a and a.b."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = importlib.util.resolve_name("." * node.level + base, package)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


FILES = [(room, path) for room in ROOMS for path in source_files(room)]
FILE_IDS = [str(path.relative_to(ROOT)) for _, path in FILES]
MODULES = [module_name(room, path) for room, path in FILES]


# --- Who may import whom ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("room", "path"), FILES, ids=FILE_IDS)
def test_imports_point_one_way(room, path):
    """lvsearch → inference → models, always under the name lvsearch."""
    for imported in imported_modules(path, module_name(room, path)):
        top = imported.partition(".")[0]
        assert top not in ("models", "inference"), f"import lvsearch.{imported}, not {imported}"
        if top == "lvsearch" and imported != "lvsearch":
            allowed = MAY_IMPORT[room]
            assert any(imported == a or imported.startswith(a + ".") for a in allowed), (
                f"{room}/ may not import {imported}"
            )
        if room != "lvsearch":
            assert imported != "lvsearch", f"{room}/ may not import the package above it"


def test_the_import_reader_sees_every_form(tmp_path):
    """The checker is checked: plain, from, relative, and nested imports."""
    file = tmp_path / "example.py"
    file.write_text(
        "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\ndef h():\n    import models.lda\n"
    )
    found = imported_modules(file, "lvsearch.inference.example")
    assert {"a.b", "c", "c.d", "lvsearch.inference.e", "lvsearch.f", "lvsearch.f.g", "models.lda"} <= found


def reachable(name: str) -> set[str]:
    """All modules outside lvsearch that importing `name` can reach through lvsearch's own modules (packages apart)."""
    paths = dict(zip(MODULES, (path for _, path in FILES), strict=True))
    seen, waiting, outside = set(), [name], set()
    while waiting:
        current = waiting.pop()
        if current in seen or current not in paths:
            continue
        seen.add(current)
        for imported in imported_modules(paths[current], current):
            if imported.startswith("lvsearch."):
                waiting.append(imported)
            else:
                outside.add(imported.partition(".")[0])
    return outside


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("lvsearch.sizing.")])
def test_search_arithmetic_needs_no_jax(name):
    assert not reachable(name) & JAX_FAMILY


def imports() -> dict[str, set[str]]:
    """Return the modules of ours, and the faces of rooms, that each module imports. A face only hands names on."""
    paths = dict(zip(MODULES, (path for _, path in FILES), strict=True))
    faces = {name for name, path in paths.items() if path.name == "__init__.py"}
    whole = {"lvsearch", "lvsearch.inference", "lvsearch.models"}  # whose faces have names of all rooms
    return {
        name: imported_modules(path, name) & (paths.keys() - whole - {name})
        for name, path in paths.items()
        if name not in faces
    }


def room_of(name: str) -> str:
    """The folder in which a module lies, or the module where that is one of the three top folders."""
    parts = name.split(".")
    return ".".join(parts[: 3 if parts[1] == "inference" else 2])


def imported_rooms() -> dict[str, set[str]]:
    """Return the other rooms that each room imports."""
    rooms: dict[str, set[str]] = {}
    for name, imported in imports().items():
        rooms.setdefault(room_of(name), set()).update({room_of(other) for other in imported} - {room_of(name)})
    return rooms


@pytest.mark.smoke
def test_no_file_and_no_room_imports_itself_through_others():
    """TopologicalSorter raises CycleError, which names the circle."""
    files = imports()
    tuple(TopologicalSorter({name: found & files.keys() for name, found in files.items()}).static_order())
    tuple(TopologicalSorter(imported_rooms()).static_order())


def test_the_page_for_developers_lists_every_room_above_what_it_imports():
    page = (ROOT / "docs" / "developers.md").read_text()
    for top in ("lvsearch", "lvsearch.inference"):
        table = page.partition(f"| room of `{top.removeprefix('lvsearch.')}/`")[2].partition("\n\n")[0]
        row_of = {
            f"{top}.{room}": number
            for number, row in enumerate(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
            for room in re.findall(r"`(\w+)/`", row)
        }
        folders = {path.name for path in ROOMS[top.rpartition(".")[2]].iterdir() if (path / "__init__.py").exists()}
        assert {room.rpartition(".")[2] for room in row_of} == folders - {"models", "inference"}
        for room, imported in imported_rooms().items():
            for other in imported & row_of.keys():
                assert room not in row_of or row_of[room] < row_of[other], f"{room} imports {other}"


@pytest.mark.smoke
def test_one_file_is_one_module():
    """After importing everything, no file has been loaded under two names."""
    for name in MODULES:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    assert not [key for key in sys.modules if re.match(r"(models|inference)(\.|$)", key)]
    loaded: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("lvsearch") and getattr(module, "__file__", None):
            real = os.path.realpath(module.__file__)
            assert loaded.setdefault(real, name) == name
    assert {m.name for m in pkgutil.walk_packages(lvsearch.__path__, "lvsearch.")} == set(MODULES) - {"lvsearch"}


def test_no_module_hides_the_search_function():
    assert not [path for _, path in FILES if path.name == "search.py"]


def test_links_reach_the_other_rooms():
    for room in ("models", "inference"):
        link = ROOMS["lvsearch"] / room
        assert link.is_symlink()
        assert os.readlink(link) == f"../{room}"


def test_top_level_holds_exactly_the_rooms():
    """Tracked files only: what builds and runs leave behind is ignored."""
    git = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if git.returncode:
        pytest.skip("not a git checkout")
    entries = {line.split("/")[0] for line in git.stdout.splitlines()}
    assert {entry for entry in entries if not entry.startswith(".")} <= TOP_LEVEL


SHARED_BY_TESTS = {"house", "cases", "oracles", "benchmarks", "scikit_learn"}
"""Folders of tests that are no rooms: the rules, what tests share, scripts; `sklearn` would be the library's name."""


def test_tests_lie_in_the_rooms_of_what_they_test():
    """tests/inference/topics/ holds what is asked of inference/topics/, tests/sizing/ of lvsearch/sizing/."""
    tests = ROOT / "tests"
    files = sorted(tests.rglob("*.py"))
    assert [file.name for file in files if file.parent == tests] == ["conftest.py"]
    rooms = {str(path.parent.relative_to(ROOMS[room] if room == "lvsearch" else ROOT)) for room, path in FILES}
    folders = {str(file.parent.relative_to(tests)) for file in files if file.parent != tests}
    assert folders <= rooms | SHARED_BY_TESTS, "name the folder after the room"
    names = Counter(file.name for file in files)
    assert not {name: times for name, times in names.items() if times > 1}, "files are imported by name"


# --- What an import costs ---------------------------------------------------------------------------------------------


def test_import_allocates_nothing_and_changes_nothing():
    """A fresh interpreter imports everything: no array lives on any device, no warning, x64 untouched."""
    program = f"""
import importlib, jax
for name in {[n for n in MODULES if not n.endswith("__main__")]!r}:
    importlib.import_module(name)
assert not jax.live_arrays(), jax.live_arrays()
assert not jax.config.jax_enable_x64
assert not jax.config.jax_numpy_rank_promotion == "raise"
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


# --- What is documented -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name):
    """Modules, and the public classes, functions and methods defined in them."""
    module = importlib.import_module(name)
    assert inspect.getdoc(module), f"{name} has no docstring"
    undocumented = []
    for public, value in vars(module).items():
        if public.startswith("_") or getattr(value, "__module__", None) != name:
            continue
        if (inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))) and not own_doc(value):
            undocumented.append(f"{name}.{public}")
    assert not undocumented


def own_doc(value) -> str | None:
    """A docstring that was written: NamedTuples and dataclasses invent one from their fields."""
    doc = value.__dict__.get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
    return None if doc and inspect.isclass(value) and doc.startswith(f"{value.__name__}(") else doc


def test_promised_names_exist_and_are_documented():
    for name in getattr(lvsearch, "__all__", ()):
        assert inspect.getdoc(getattr(lvsearch, name)), f"lvsearch.{name} has no docstring"


# --- What is enforced -------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_canary_wrong_shapes_and_types_raise():
    """The shape checks are on, in each room: without this, annotations rot unseen."""
    from lvsearch.inference.data.dataset import Batch, Dataset
    from lvsearch.models.families import Categorical, Dirichlet, PointSimplex
    from lvsearch.sizing.sizes import Poisson

    Dirichlet().mean(jnp.zeros((2, 3)))
    with pytest.raises(TypeCheckError):  # no event axis
        Dirichlet().mean(jnp.zeros(()))
    with pytest.raises(TypeCheckError):  # integers
        Categorical().mean(jnp.zeros((2, 3), jnp.int32))
    with pytest.raises(TypeCheckError):  # a mask of another event
        Dirichlet().mean(jnp.zeros((2, 3)), jnp.ones(4, bool))
    with pytest.raises(TypeCheckError):
        PointSimplex(smoothing="much")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeCheckError):  # inference/, reached through its link
        Dataset.of_batches(batches=(Batch(0, jnp.ones(1)),), unit_ids=7, extents={}, n_units=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeCheckError):  # lvsearch/ itself
        Poisson("ten")  # pyright: ignore[reportArgumentType]


def test_canary_what_is_returned_is_checked_with_the_arguments():
    @jaxtyped
    def shortened(values: Float[Array, " place"], by: int = 1) -> Float[Array, " place"]:
        return values[by:]

    assert shortened(jnp.ones(3), 0).shape == (3,)
    assert shortened(jnp.ones(2), by=0).shape == (2,)  # another call, another number of places
    with pytest.raises(TypeCheckError):
        shortened(jnp.ones(3))


def test_canary_functions_made_anew_are_checked_about_themselves():
    """Their checks are written once: each is still called with what it closes over, and a change of hints is seen."""

    def made(by: float, hint: type) -> Any:
        @jaxtyped
        def scaled(
            values: Float[Array, " place"], other: Float[Array, " place"], power: hint
        ) -> Float[Array, " place"]:  # pyright: ignore
            return by * values**power + other

        return scaled

    double, triple = made(2.0, int), made(3.0, int)
    assert float(double(jnp.ones(2), jnp.zeros(2), 1)[0]) == 2
    assert float(triple(jnp.ones(2), jnp.zeros(2), 1)[0]) == 3
    for one in (double, triple):
        with pytest.raises(TypeCheckError):
            one(jnp.ones(2), jnp.zeros(3), 1)
        with pytest.raises(TypeCheckError):
            one(jnp.ones(2), jnp.zeros(2), 1.5)
    assert float(made(2.0, float)(jnp.ones(2), jnp.zeros(2), 1.5)[0]) == 2


def test_canary_two_threads_may_be_the_first_to_call(monkeypatch):
    both = threading.Barrier(2, timeout=60)

    def at_once(function: Any) -> Any:
        both.wait()
        return checks_of(function)

    monkeypatch.setattr("checked_calls.checks_of", at_once)

    @jaxtyped
    def doubled(value: int) -> int:
        return 2 * value

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(doubled, (1, 2))) == [2, 4]
    with pytest.raises(TypeCheckError):
        doubled("1")  # pyright: ignore


@pytest.mark.smoke
def test_warnings_are_errors():
    import warnings

    with pytest.raises(UserWarning, match="canary"):
        warnings.warn("canary", stacklevel=1)


# --- What is shipped --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wheel_holds_every_module(tmp_path):
    """Built in isolation (needs a package index): the links are resolved into files."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("lvsearch-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "lvsearch/py.typed" in names
    packed = {name for name in names if name.endswith(".py")}
    expected = {
        "/".join(("lvsearch", *(() if r == "lvsearch" else (r,)), *p.relative_to(ROOMS[r]).parts)) for r, p in FILES
    }
    assert packed == expected


# --- Names of their own -----------------------------------------------------------------------------------------------


def defined(*kinds: type[ast.AST]) -> list[tuple[Path, Any]]:
    return [
        (p, node) for _, p in FILES for node in ast.walk(ast.parse(p.read_text("utf-8"))) if isinstance(node, kinds)
    ]


def test_no_type_has_the_name_of_another():
    names = Counter(node.name for _, node in defined(ast.ClassDef) if not node.name.startswith("_"))
    assert not {name: times for name, times in names.items() if times > 1}
