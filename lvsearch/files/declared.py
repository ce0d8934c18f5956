"""Check that objects made from JSON, which may hold anything, have fields of the types that their classes declare."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints


def as_declared(value: Any) -> Any:
    """Return `value`, a dataclass or NamedTuple, if its fields have the types that its class declares.

    Numbers, texts, truth values, and tuples, dictionaries and dataclasses of these are checked, at any depth. Other
    fields, such as lists and arrays, are not. Raises TypeError
    naming the first field of another type.
    """
    hints = get_type_hints(type(value))
    names = getattr(value, "_fields", None) or [entry.name for entry in fields(value)]
    for name in names:
        held = getattr(value, name)
        if not conforms(held, hints[name]):
            raise TypeError(f"{type(value).__name__}.{name} is {str(held)[:40]!r}, of type {type(held).__name__}")
    return value


def conforms(value: Any, hint: Any) -> bool:
    """Return True if a value is of a declared type.

    value: any object
    hint: the type as annotated, such as `tuple[int, ...]` or `str | None`. An int is accepted for a float; a bool is
        accepted for neither. Types that are not checked, such as arrays, accept everything
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(conforms(value, each) for each in inner)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return isinstance(value, tuple) and all(conforms(each, inner[0]) for each in value)
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(conforms, value, inner))
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            conforms(key, inner[0]) and conforms(each, inner[1]) for key, each in value.items()
        )
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        if not isinstance(value, hint):
            return False
        as_declared(value)
    return True
