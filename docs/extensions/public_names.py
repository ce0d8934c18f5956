"""Which names the reference holds: found by importing lvsearch, so that what is added there appears here.

| module | names |
|---|---|
| with an `__all__` | those that it lists |
| that another `__all__` lists, without one of its own (`lv.datasets`) | the functions and classes defined in it |
| of the rooms that `RETURNED` names: what calls hand to people | the classes defined in it |
| that `BY_FULL_NAME` names: where pages send people | the functions and classes defined in it |
"""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import lvsearch

RETURNED = (
    "lvsearch.comparison",
    "lvsearch.data",
    "lvsearch.fitted",
    "lvsearch.reading",
    "lvsearch.results",
    "lvsearch.scrutiny",
    "lvsearch.sizing",
    "lvsearch.topics",
    "lvsearch.trees",
)
"""Rooms whose objects people hold in their hands, without importing them."""
BY_FULL_NAME = (
    "lvsearch.command.external_topics",
    "lvsearch.inference.chains",
    "lvsearch.inference.diagnostics",
    "lvsearch.inference.engine.describing",
    "lvsearch.inference.engine.estimate",
    "lvsearch.inference.engine.estimator",
    "lvsearch.inference.engine.gibbs",
    "lvsearch.inference.engine.meanfield",
    "lvsearch.inference.processes",
    "lvsearch.inference.topic_samplers.collapsed",
)
"""Modules that pages of the documentation send people to."""


class PublicModule(NamedTuple):
    """One page of the reference: `name` as people write it, `names` in alphabetical order, whether they are promised
    (by an `__all__`) or only handed over, and those that another page shows: name -> the full name there."""

    name: str
    module: ModuleType
    names: tuple[str, ...]
    promised: bool
    elsewhere: dict[str, str]


def _modules() -> list[ModuleType]:
    found = [lvsearch]
    for entry in pkgutil.walk_packages(lvsearch.__path__, "lvsearch."):
        if not entry.name.endswith("__main__"):
            found.append(importlib.import_module(entry.name))
    return found


def _defined(module: ModuleType) -> tuple[str, ...]:
    """The public functions and classes that were written in this module."""
    return tuple(
        sorted(
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and getattr(value, "__module__", None) == module.__name__
            and (inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value)))
        )
    )


def public_modules() -> list[PublicModule]:
    """Every page of the reference, promised ones first. An object stands on the page with the shortest name."""
    modules = _modules()
    face = {getattr(lvsearch, name): f"lvsearch.{name}" for name in lvsearch.__all__ if _is_module(lvsearch, name)}
    promised: dict[str, tuple[ModuleType, tuple[str, ...]]] = {}
    for module in modules:
        if hasattr(module, "__all__"):
            names = tuple(sorted(name for name in module.__all__ if not _is_module(module, name)))
            promised[face.get(module, module.__name__)] = module, names
        elif module in face:
            promised[face[module]] = module, _defined(module)
    home: dict[int, str] = {}
    pages = []
    for name, (module, names) in sorted(promised.items(), key=lambda item: (item[0].count("."), item[0])):
        pages.append(_page(name, module, names, home, promised=True))
    shown = [module for module, _ in promised.values()]
    for module in modules:
        room = module.__name__.startswith(tuple(f"{room}." for room in RETURNED))
        if module not in shown and (room or module.__name__ in BY_FULL_NAME):
            names = [name for name in _defined(module) if id(getattr(module, name)) not in home]
            if room:
                names = [name for name in names if inspect.isclass(getattr(module, name))]
            if names:
                pages.append(_page(module.__name__, module, tuple(names), home, promised=False))
    return sorted(pages, key=lambda page: (not page.promised, page.name))


def _page(
    name: str, module: ModuleType, names: tuple[str, ...], home: dict[int, str], *, promised: bool
) -> PublicModule:
    """`home`: where objects that have an identity stand already; filled in."""
    elsewhere = {}
    for each in names:
        value = getattr(module, each)
        if inspect.isclass(value) or inspect.isroutine(inspect.unwrap(value)):
            full = home.setdefault(id(value), f"{name}.{each}")
            if full != f"{name}.{each}":
                elsewhere[each] = full
    return PublicModule(name, module, names, promised, elsewhere)


def _is_module(module: ModuleType, name: str) -> bool:
    return inspect.ismodule(getattr(module, name))


def defining_module(module: ModuleType, name: str) -> str:
    """Where a constant was written, whose value does not say: the import statements are followed."""
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return defining_module(importlib.import_module(node.module), alias.name)
    return module.__name__
