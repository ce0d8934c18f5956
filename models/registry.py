"""Classes of one's own that may be stored by name and read back: models, kinds of components, families, priors.

Folders hold no code. A class outside lvsearch is found again only where its author has registered it in the process
that reads the folder; nothing is ever imported because a file names it.
"""

import inspect
from dataclasses import fields
from typing import Any, TypeVar

import equinox as eqx

C = TypeVar("C", bound=type)
_REGISTERED: dict[str, type] = {}


def register(cls: C) -> C:
    """Let searches over models of this class, or with it as a part, be saved and loaded. Also a decorator.

    cls: an `eqx.Module` (a model, a kind of component, a family) or a NamedTuple of hyper-parameters, whose constructor
    takes its fields by name and converts what it is given: fields are stored as numbers and lists of numbers. Stored
    and found by its name alone, so that a newer version of the class reads what an older one wrote.

    Returns the class. Raises ValueError for another kind of class, for a constructor that does not take the fields, and
    for a name that another class has.
    """
    kind: Any = cls
    if not isinstance(kind, type) or not (issubclass(kind, eqx.Module) or hasattr(kind, "_fields")):
        raise ValueError(f"got {cls!r}, expected a class: an eqx.Module such as a model, or a NamedTuple")
    names = getattr(kind, "_fields", None) or tuple(entry.name for entry in fields(kind))
    parameters = inspect.signature(cls).parameters
    missing = [name for name in names if name not in parameters]
    if missing:
        raise ValueError(
            f"got {cls.__name__}, whose constructor does not take {', '.join(missing)}: expected one that takes each "
            "field by its name, since that is how it is made again from a folder"
        )
    other = _REGISTERED.get(cls.__name__)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(
            f"got {cls.__module__}.{cls.__qualname__}, but {other.__module__}.{other.__qualname__} is registered as "
            f"{cls.__name__!r}: expected a name of its own, since folders hold the name alone"
        )
    _REGISTERED[cls.__name__] = cls  # a class that is defined again, as in a notebook, takes the place of the old one
    return cls


def registered(name: str) -> type | None:
    """The class registered under this name; None where none is."""
    return _REGISTERED.get(name)
