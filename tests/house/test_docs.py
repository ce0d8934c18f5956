"""The documentation: docstrings say what a reader must know, the reference holds every name, pages build and run.

What is checked of docstrings are facts that a reader cannot find out otherwise: errors that are raised in the function
itself, sources of models. How well they read is no test: `words.py` counts what a reader may stumble over.
"""

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from test_structure import ROOT

import lvsearch
from lvsearch.models import Component, Model

DOCS = ROOT / "docs"
SOURCE = re.compile(r"\(\d{4}\)|[A-Z]\w+ \d{4}|Eq\. |§")


def extension(name: str):
    """A module of docs/extensions, which is no package of ours."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "extensions" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


public_modules = extension("public_names").public_modules
restructured = extension("plain_docstrings").restructured


class Documented(NamedTuple):
    """A function, and all that the reference prints about it: its docstring, those it overrides, its class's, its
    module's."""

    name: str
    function: object
    own: str
    everything: str


def methods(owner: type) -> Iterator[tuple[str, object]]:
    for name, value in vars(owner).items():
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        if not name.startswith("_") and callable(value):
            yield name, inspect.unwrap(value)


def inherited_doc(owner: type, name: str) -> str:
    return " ".join(inspect.getdoc(vars(base)[name]) or "" for base in owner.__mro__ if name in vars(base))


def documented() -> Iterator[Documented]:
    """Every function of the reference, methods and properties among them, whose docstring it prints."""
    for page in public_modules():
        for name in set(page.names) - set(page.elsewhere):
            value = getattr(page.module, name)
            about = " ".join((inspect.getdoc(value) or "", inspect.getdoc(inspect.getmodule(value)) or ""))
            if inspect.isclass(value):
                for method, function in methods(value):
                    own = inherited_doc(value, method)
                    if own.strip() and inspect.isfunction(function):
                        yield Documented(f"{page.name}.{name}.{method}", function, own, f"{own} {about}")
            elif inspect.isfunction(inspect.unwrap(value)):
                own = inspect.getdoc(value) or ""
                yield Documented(f"{page.name}.{name}", inspect.unwrap(value), own, f"{own} {about}")


FUNCTIONS = tuple(documented())


# --- What docstrings say ----------------------------------------------------------------------------------------------


def raised(function: object) -> set[str]:
    """The exceptions that a function raises by itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # pyright: ignore[reportArgumentType]
    calls = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call))
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def test_errors_are_named():
    silent = {each.name: raised(each.function) for each in FUNCTIONS}
    texts = {each.name: each.everything for each in FUNCTIONS}
    missing = {name: {error for error in errors if error not in texts[name]} for name, errors in silent.items()}
    assert not {name: errors for name, errors in missing.items() if errors}


@pytest.mark.parametrize("name", sorted(lvsearch.models.__all__))
def test_models_name_their_source(name):
    value = getattr(lvsearch.models, name)
    if not (inspect.isclass(value) and issubclass(value, Model)) or value in (Model, Component):
        pytest.skip("no model")
    told = " ".join((inspect.getdoc(value) or "", inspect.getdoc(inspect.getmodule(value)) or ""))
    assert SOURCE.search(told), f"{name} says nowhere whose model it is, nor where it departs"


def test_the_readers_of_docstrings_can_fail():
    """Each check is checked, on functions that should not pass."""

    def silent(values: "numpy.ndarray") -> float:
        """Something."""
        raise ValueError("got nothing")

    assert raised(silent) == {"ValueError"}
    assert not SOURCE.search("A model of 2 parts")
    assert SOURCE.search("Source: Blei (2004)")


def test_docstrings_as_the_reference_reads_them():
    written = restructured(
        [
            "The x_ of `a`s, p(x | y) * 2.",
            "rate: of it.",
            "",
            "    y = x",
            "",
            "| a | b |",
            "|---|---|",
            "| 1 | p | q |",
        ],
        ["rate"],
    )
    assert written[0] == "The x\\_ of ``a``\\ s, p(x \\| y) \\* 2."
    assert "- ``rate``: of it." in written
    assert written[written.index(".. code-block:: none") + 2] == "    y = x"
    assert written[-4:-2] == ["   * - 1", "     - p \\| q"]


def test_indented_lines_continue_an_argument():
    written = restructured(
        ["Return y.", "", "rate: of it,", "    per row.", "size: of it.", "", "Returns: y,", "    twice."]
    )
    assert ".. code-block:: none" not in written
    assert "per row." in " ".join(written)
    displayed = restructured(["The value:", "    y = x"])
    assert ".. code-block:: none" in displayed


# --- What the reference holds -----------------------------------------------------------------------------------------


def promised() -> set[str]:
    """By the `__all__`s that people read, without the code that writes the reference."""
    named = {f"lvsearch.{name}" for name in lvsearch.__all__}
    for room in ("models", "inference", "sizes"):
        named |= {f"lvsearch.{room}.{name}" for name in getattr(lvsearch, room).__all__}
    return {name for name in named if not inspect.ismodule(resolve(name))}


def resolve(name: str) -> object:
    value: object = lvsearch
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


def test_every_promised_name_has_a_place():
    pages = public_modules()
    stands = {f"{page.name}.{name}" for page in pages for name in page.names}
    assert promised() <= stands
    elsewhere = {full for page in pages for full in page.elsewhere.values()}
    assert elsewhere <= stands


def inventory(built: Path) -> set[str]:
    """The objects that the built pages can be linked at (Sphinx's objects.inv, version 2)."""
    packed = (built / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split(" ")[0] for line in lines if " py:" in line}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The site, by README's command but for the folder."""
    pytest.importorskip("sphinx", reason='needs pip install ".[docs]"')
    folder = tmp_path_factory.mktemp("docs")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        folder / "doctrees",
        DOCS,
        folder / "html",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_holds_every_name(built):
    objects = inventory(built)
    homes = {f"{page.name}.{name}": full for page in public_modules() for name, full in page.elsewhere.items()}
    constants = {name for name in promised() if not callable(resolve(name))}
    missing = {name for name in promised() - constants if homes.get(name, name) not in objects}
    assert not missing
    assert {
        "lvsearch.SearchResult.posterior",
        "lvsearch.Corpus.from_texts",
        "lvsearch.models.Model.log_unit",
    } <= objects


@pytest.mark.slow
def test_pages_are_linked_and_pictures_are_there(built):
    """Sphinx warns of what it resolves itself; here the rest: local targets of links and images in the HTML."""
    broken = set()
    for page in built.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#?:]+)[#?"]', page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.add(f"{page.relative_to(built)} → {target}")
    assert not broken
