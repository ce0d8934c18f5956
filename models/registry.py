"""The registry of a user's own classes (models, kinds of components, families, priors) that searches can be saved with.

Saved folders hold no code. A class outside lvsearch is found again only if the process that reads the folder has
registered it. Nothing is ever imported because a file names it.
"""

import inspect
from dataclasses import fields
from typing import Any, TypeVar

import equinox as eqx

C = TypeVar("C", bound=type)
_REGISTERED: dict[str, type] = {}


def register(cls: C) -> C:
    """Let searches that use a class be saved and loaded, and return the class. It works as a decorator too.

    cls: an `eqx.Module` (a model, a kind of component, a family) or a NamedTuple of hyper-parameters. Its constructor
        takes its fields by name and converts their values, since fields are stored as numbers and lists of numbers. A
        class is stored and found by its name alone, so that a newer version of it reads what an older one wrote.

    Raises ValueError for another kind of class, for a constructor that does not take the fields, and for a name that
    another class already has.
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
    _REGISTERED[cls.__name__] = cls  # replaces a class that is defined again, as in a notebook
    return cls


def registered(name: str) -> type | None:
    """Return the class that was registered under `name`, or None."""
    return _REGISTERED.get(name)
