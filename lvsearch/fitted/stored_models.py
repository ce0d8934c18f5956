"""Convert models, exponential families and hyper-parameters to class names and numbers (JSON data), and back."""

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
    """Return an object as JSON data, {"class": its class name, "fields": {name: value}}.

    module: a model, an exponential family, or a NamedTuple of hyper-parameters. Fields that its constructor does not
        take are left out, because they are computed from the others.

    Raises ValueError for a class that `decode_module` would not know: a user's model that is not registered.
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
    # a field that the constructor does not take is computed from the others, and is not stored
    parameters = inspect.signature(type(module)).parameters
    content = {}
    for name in names:
        if name not in parameters:
            continue
        value = getattr(module, name)
        content[name] = _encode(value)
    return {"class": stored_as, "fields": content}


def _encode(value: Any) -> Any:
    """Return the value of a field as JSON data: nested objects as dictionaries, arrays as nested lists of numbers."""
    if isinstance(value, eqx.Module) or hasattr(value, "_fields"):
        return encode_module(value)
    if isinstance(value, tuple) and not all(isinstance(each, int | float) for each in value):
        return [_encode(each) for each in value]
    return np.asarray(value).tolist()


def _decode(value: Any) -> Any:
    """Return the value of a field from JSON data: dictionaries become objects; lists and numbers stay as they are."""
    if isinstance(value, Mapping):
        return decode_module(value)
    return [_decode(each) for each in value] if isinstance(value, list) else value


def decode_module(encoded: Mapping[str, Any]) -> Any:
    """Return the model, family or hyper-parameters that `encode_module` encoded.

    encoded: {"class": class name, "fields": {name: value}}. A class outside `lvsearch.models` must be registered
        (`lv.models.register`), because nothing is imported.

    Raises `CorruptFolderError` for an unknown class.
    """
    known = class_named(encoded["class"])
    if known is None:
        raise CorruptFolderError(
            f"got a model of class {encoded['class']!r}, which this version of lvsearch.models does not have; read the "
            "folder with the version that wrote it, or, if the class is your own, register it first: "
            f"lv.models.register({encoded['class']})"
        )
    return known(**{key: _decode(value) for key, value in encoded["fields"].items()})


def decode_model(encoded: Mapping[str, Any]) -> Model:
    """Return the model that `encode_module` encoded. Raises `CorruptFolderError` for anything but a model."""
    model = decode_module(encoded)
    if not isinstance(model, Model):
        raise CorruptFolderError(f"got {encoded['class']!r} where a model was expected; was it written by lvsearch?")
    return model


def class_named(name: str) -> type | None:
    """Return the class of this name from `lvsearch.models` or among the registered classes; None if there is none."""
    for where in (models, families):
        known = getattr(where, name, None)
        if isinstance(known, type) and (issubclass(known, eqx.Module) or hasattr(known, "_fields")):
            return known
    return registered(name)
