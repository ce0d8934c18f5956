"""Write the list of public names and their signatures anew, after a change that the changelog tells.

    python tests/house/public_signatures.py

The list is `public_names.txt` beside this file, one name a line. `test_public_names.py` compares it with the code.

| listed | how |
|---|---|
| what the `__all__` of `lv` and of its modules promises (`lv.models`, …) | arguments, and members of classes |
| what calls hand to people: results, fits, checks, data | members of classes, whose constructors are no promise |

Of an argument stand its name, how it may be passed, and its default where that is a plain value (`…` is any other).
Types are not listed: pyright checks them.
"""

import enum
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("public_names.txt")
PLAIN = (type(None), bool, int, float, str)
PROMISED_BELOW = ("lvsearch.models.components", "lvsearch.models.families")
"""Promised modules with two dots that people import from; the others belong to one part of the inference."""
HANDED_OVER = (
    "lvsearch.comparison",
    "lvsearch.data",
    "lvsearch.fitted",
    "lvsearch.results",
    "lvsearch.scrutiny",
    "lvsearch.topics",
    "lvsearch.trees",
)
"""Rooms whose objects people hold in their hands without importing them."""


def pages() -> list:
    """Return the pages of the reference (`docs/extensions/public_names.py`) whose names are public."""
    path = ROOT / "docs" / "extensions" / "public_names.py"
    spec = importlib.util.spec_from_file_location("reference_names", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [page for page in module.public_modules() if is_public(page)]


def is_public(page) -> bool:
    """Whether the names of a page of the reference are promised to stay."""
    if page.promised:
        return page.name.count(".") <= 1 or page.name in PROMISED_BELOW
    return page.name.startswith(tuple(f"{room}." for room in HANDED_OVER))


def default(value: object) -> str:
    """Return the default of an argument as it is written, or `…` where it is no plain value."""
    if isinstance(value, PLAIN) and not isinstance(value, enum.Enum):
        return repr(value)
    if type(value) is tuple:
        return f"({', '.join(default(each) for each in value)}{',' if len(value) == 1 else ''})"
    return "…"


def arguments(function: object) -> str:
    """Return the arguments of a function or a constructor, in brackets and without types, as Python writes them."""
    signature = inspect.signature(function)  # pyright: ignore[reportArgumentType]
    plain = [
        each.replace(
            annotation=inspect.Parameter.empty,
            default=each.default if each.default is inspect.Parameter.empty else Written(default(each.default)),
        )
        for each in signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


class Written(str):
    """Text that is its own `repr`."""

    def __repr__(self) -> str:
        return str(self)


def fields(owner: type) -> list[str]:
    """Return the public fields of a frozen class or a named tuple, or the members of an enumeration, in their order."""
    if issubclass(owner, enum.Enum):
        return list(owner.__members__)
    named = getattr(owner, "_fields", None) or getattr(owner, "__dataclass_fields__", {})
    return [name for name in named if not name.startswith("_")]


def members(owner: type, listed: set[type]) -> Iterator[tuple[str, str]]:
    """Yield (name, how it is called) of all public members of a class that no listed base of it has.

    owner: the class.
    listed: the classes that are listed themselves, whose members are not listed again.
    """
    known = {name for base in owner.__mro__[1:] if base in listed for name in [*vars(base), *fields(base)]}
    for name in fields(owner):
        if name not in known:
            yield name, " field"
    seen = known | set(fields(owner))
    for base in owner.__mro__:
        if not base.__module__.startswith("lvsearch") or base in listed - {owner}:
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(value, classmethod | staticmethod):
                kind = " classmethod" if isinstance(value, classmethod) else " staticmethod"
                yield name, arguments(inspect.unwrap(value.__func__)) + kind
            elif inspect.isfunction(inspect.unwrap(value)):
                yield name, arguments(inspect.unwrap(value))
            else:
                yield name, " attribute"


def described(full: str, value: object, listed: set[type], *, promised: bool) -> Iterator[str]:
    """Yield the lines of one public name: itself, and if it is a class its members.

    full: the name as people write it.
    listed: see `members`.
    promised: whether a class may be made by calling it.
    """
    if not inspect.isclass(value):
        inner = inspect.unwrap(value) if callable(value) else value
        yield full + (arguments(inner) if inspect.isfunction(inner) else " value")
        return
    is_called = promised and not issubclass(value, enum.Enum) and not getattr(value, "_is_protocol", False)
    bases = [base.__name__ for base in value.__mro__[1:] if base in listed]
    yield f"{full}{arguments(value) if is_called else ''} class" + (f" with all of {', '.join(bases)}" if bases else "")
    for name, rest in members(value, listed):
        yield f"{full}.{name}{rest}"


def public_lines() -> list[str]:
    """Return the lines of the list, in alphabetical order."""
    places = {}
    for page in pages():
        for name in page.names:
            if name not in page.elsewhere:
                places[f"{page.name}.{name}"] = getattr(page.module, name), page.promised
    listed = {value for value, _ in places.values() if inspect.isclass(value)}
    return sorted(
        line for full, (value, promised) in places.items() for line in described(full, value, listed, promised=promised)
    )


if __name__ == "__main__":
    LIST.write_text("\n".join(public_lines()) + "\n", encoding="utf-8")
