"""Models, families and hyper-parameters as class names and numbers, for folders, and back."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import equinox as eqx
import numpy as np

import lvsearch.models as models
from lvsearch.files.storage import CorruptFolderError
from lvsearch.models import families
from lvsearch.models.contract import Model
from lvsearch.models.registry import registered


def encode_module(module: Any) -> dict[str, Any]:
    """A model, a family or a NamedTuple of hyper-parameters as its class name and its fields, which its constructor
    takes by name.

    Raises ValueError for a class that `decode_module` would not know: a model of one's own that is not registered.
    """
    stored_as = type(module).__name__
    known = class_named(stored_as)
    if known is not type(module):
        remedy = (
            f"Register it, lv.models.register({stored_as}), here and wherever it is loaded"
            if known is None
            else f"{known.__module__}.{stored_as} has its name: give it another, and register it"
        )
        raise ValueError(
            f"got a model of class {type(module).__qualname__!r}, expected one of lvsearch.models or a registered one: "
            f"code is not stored (no pickle). {remedy}, or leave out= away"
        )
    names = getattr(module, "_fields", None) or tuple(entry.name for entry in fields(module))
    taken = inspect.signature(type(module)).parameters  # what a constructor works out from the rest is not stored
    content = {}
    for name in names:
        if name not in taken:
            continue
        value = getattr(module, name)
        content[name] = _encoded(value)
    return {"class": stored_as, "fields": content}


def _encoded(value: Any) -> Any:
    if isinstance(value, eqx.Module) or hasattr(value, "_fields"):
        return encode_module(value)
    if isinstance(value, tuple) and not all(isinstance(each, int | float) for each in value):
        return [_encoded(each) for each in value]
    return np.asarray(value).tolist()


def _decoded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return decode_module(value)
    return [_decoded(each) for each in value] if isinstance(value, list) else value


def decode_module(encoded: Mapping[str, Any]) -> Any:
    """The inverse of `encode_module`. Classes outside `lvsearch.models` are found where they are registered, never
    imported."""
    known = class_named(encoded["class"])
    if known is None:
        raise CorruptFolderError(
            f"got a model of class {encoded['class']!r}, which this version of lvsearch.models does not have; read the "
            "folder with the version that wrote it, or, if the class is your own, register it first: "
            f"lv.models.register({encoded['class']})"
        )
    return known(**{key: _decoded(value) for key, value in encoded["fields"].items()})


def decode_model(encoded: Mapping[str, Any]) -> Model:
    """As `decode_module`, for what must be a model."""
    model = decode_module(encoded)
    if not isinstance(model, Model):
        raise CorruptFolderError(f"got {encoded['class']!r} where a model was expected; was it written by lvsearch?")
    return model


def class_named(name: str) -> type | None:
    """The class of lvsearch.models, or the registered one, that folders know by this name; None where there is none."""
    for where in (models, families):
        known = getattr(where, name, None)
        if isinstance(known, type) and (issubclass(known, eqx.Module) or hasattr(known, "_fields")):
            return known
    return registered(name)
