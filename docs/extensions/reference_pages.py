"""Writes the reference: a page for every public module, with every name (`public_names`).

Pages are written when the build begins, into `reference/`, which git ignores. A literal such as `lv.search`,
in a docstring or on a page, becomes a link to what it names.
"""

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from plain_docstrings import inline, restructured
from public_names import RETURNED, PublicModule, defining_module, public_modules
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

import lvsearch
from lvsearch.models import Component, Model

INHERITED_FROM = "tuple, object, Protocol, Module, Model, Component, Mixture, TopicModel, Data, ValueError, str"
"""Members of these are on their own pages, not on every subclass's."""
INTRODUCTION = """\
Made from the docstrings. Log-probabilities are in nats and higher is better; sizes are tuples with a number for each
size variable; annotations such as ``Float[Array, "docs topic"]`` name the axes of an array. A member that a class
inherits stands with the class that has it.
"""
NAME = re.compile(r"(?:lv|lvsearch)((?:\.\w+)+)(?:\(.*\))?")


def setup(app: Sphinx) -> dict[str, bool]:
    """Pages at the start, links after parsing."""
    app.connect("builder-inited", write_reference)
    app.add_transform(LiteralsToLinks)
    return {"parallel_read_safe": True}


def write_reference(app: Sphinx) -> None:
    """All pages anew; one whose text is the same keeps its time, so that it is not read again."""
    folder, pages = Path(app.srcdir) / "reference", public_modules()
    wanted = {folder / f"{page.name}.rst": module_page(page) for page in pages}
    wanted[folder / "index.rst"] = index_page(pages)
    folder.mkdir(parents=True, exist_ok=True)
    for old in set(folder.glob("*.rst")) - set(wanted):
        old.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def index_page(pages: list[PublicModule]) -> str:
    """What is promised; what calls return; what is underneath."""
    groups = {
        "What you import": [page for page in pages if page.promised and page.name.count(".") <= 1],
        "What calls return": [page for page in pages if page.name.startswith(RETURNED) and page.name.count(".") > 1],
    }
    shown = [page for group in groups.values() for page in group]
    groups["Underneath"] = [page for page in pages if page not in shown]
    lines = [_title("Reference"), INTRODUCTION]
    for caption, group in groups.items():
        lines += ["", f".. rubric:: {caption}", "", ".. list-table::", "   :widths: 35 65", ""]
        for page in group:
            lines += [f"   * - :py:mod:`{page.name}`", f"     - {_first_sentence(page.module)}"]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {page.name}" for page in group)]
    return "\n".join([*lines, ""])


def module_page(page: PublicModule) -> str:
    """The module's docstring, a table of its names with their first lines, and every object with its members."""
    lines = [_title(page.name.removeprefix("lvsearch.")), f".. py:module:: {page.name}", ""]
    if page.name != page.name.removeprefix("lvsearch."):
        lines += [f"``import lvsearch as lv``, then ``lv.{page.name.removeprefix('lvsearch.')}``.", ""]
    lines += restructured((inspect.getdoc(page.module) or "").splitlines())
    lines += [".. list-table::", "   :widths: 30 70", ""]
    for name in page.names:
        target = page.elsewhere.get(name, f"{page.name}.{name}")
        lines += [f"   * - :py:obj:`{name} <{target}>`", f"     - {_first_line(page.module, name)}"]
    told = {page.module}
    for name in page.names:
        if name not in page.elsewhere:
            lines += ["", *_object(page, name, told)]
    return "\n".join([*lines, ""])


def _object(page: PublicModule, name: str, told: set[ModuleType]) -> list[str]:
    """told: modules whose docstring stands on the page already; that of the defining one is added."""
    value, full = getattr(page.module, name), f"{page.name}.{name}"
    if inspect.isclass(value):
        lines = [f".. autoclass:: {full}", "   :members:", "   :show-inheritance:"]
        lines += [f"   :inherited-members: {INHERITED_FROM}"] if value not in (Model, Component) else []
    elif inspect.isroutine(inspect.unwrap(value)):
        lines = [f".. autofunction:: {full}"]
    else:
        return [f".. autodata:: {defining_module(page.module, name)}.{name}"]
    return [*lines, "", *_story(value, told)]


def _story(value: Any, told: set[ModuleType]) -> list[str]:
    """The docstring of the module that an object was written in: its generative story, its equations, its source."""
    module = inspect.getmodule(inspect.unwrap(value))
    doc = (inspect.getdoc(module) or "").splitlines() if module not in told else []
    if module is None or len(doc) < 2:
        return []
    told.add(module)
    return [f"   {line}" if line else "" for line in restructured(doc)]


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n"


def _first_line(module: ModuleType, name: str) -> str:
    value: Any = getattr(module, name)
    if not (inspect.isclass(value) or inspect.isroutine(inspect.unwrap(value))):
        return f"``{value!r}``" if len(repr(value)) < 80 else ""
    return _first_sentence(value)


def _first_sentence(value: Any) -> str:
    paragraph = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return inline(re.split(r"(?<=[\w)\]`])[.:](?= |$)", paragraph)[0])


class LiteralsToLinks(SphinxTransform):
    """`lv.search(…)` in the text: a link to the page of `lvsearch.search`."""

    default_priority = 300

    def apply(self, **kwargs: Any) -> None:
        """Every literal that is not a link already and whose name can be resolved."""
        for literal in list(self.document.findall(nodes.literal)):
            match = NAME.fullmatch(literal.astext())
            if match is None or isinstance(literal.parent, (addnodes.pending_xref, nodes.reference)):
                continue
            target = f"lvsearch{match.group(1)}"
            if not _exists(match.group(1)[1:].split(".")):
                continue
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refwarn=False
            )
            link["refdoc"] = self.env.docname
            literal.replace_self(link)
            link += literal


def _exists(parts: list[str]) -> bool:
    value: Any = lvsearch
    for part in parts:
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True
