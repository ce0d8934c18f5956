"""Write a single fit with its data to a folder and read it; convert fits and models to JSON data and arrays, and back.

Models, exponential families and hyper-parameters become class names and numbers.
"""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

import lvsearch.models as models
from lvsearch.data.base import Data
from lvsearch.data.kinds import decode_data, encode_data
from lvsearch.files.storage import CorruptFolderError, new_folder, read_folder, versions, write_folder
from lvsearch.files.untrusted_files import as_declared
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.models import families
from lvsearch.models.contract import Model
from lvsearch.models.registry import registered
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.sizes import Size


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


KIND = "fit"


class FitParts(NamedTuple):
    """The fields of a `FittedModel`: a fit without the methods of its type of model.

    | field | meaning |
    |---|---|
    | `size` | the size asked for, one number per size variable |
    | `evidence` | lower and upper end of log p(training data | size), nats |
    | `estimate` | the fitted variational distribution of the parameters |
    | `training` | the data that the model was fitted to |
    """

    size: Size
    evidence: Evidence
    estimate: Estimate
    training: Data


ARRANGEMENT = "arrangement"
"""The name under which a folder holds how the topics of the fit are shown, if somebody arranged them."""


def save_parts(fit: FitParts, folder: Path, arrangement: Mapping[str, Any] | None = None) -> None:
    """Write a fit with its data to a new folder: either the whole folder appears or none.

    arrangement: how the topics of the fit are shown, as JSON data; None where nobody arranged them.

    Raises FileExistsError if the folder exists already, ValueError for a model or data that cannot be stored.
    """
    data, data_arrays = encode_data(fit.training)
    body = {
        "kind": KIND,
        "size": fit.size,
        "evidence": encode_evidence(fit.evidence),
        "state": encode_estimate(fit.estimate),
        "data": data,
        "versions": versions(),
        **({} if arrangement is None else {ARRANGEMENT: dict(arrangement)}),
    }
    with new_folder(folder):
        write_folder(folder, body, {"data": data_arrays, "fit": estimate_arrays(fit.estimate)})


def load_parts(folder: Path) -> tuple[FitParts, Any]:
    """Return the fit that `save_parts` wrote to a folder, and the JSON data of its arrangement; None without one.

    Raises FileNotFoundError if there is no such folder, `CorruptFolderError` if it holds no fit or is damaged.
    """
    body, arrays = read_folder(folder)
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise CorruptFolderError(f"got {folder}, which holds no single fit; expected one written by fit.save")
    try:
        training = decode_data(body["data"], arrays["data"], folder)
        estimate = decode_estimate(body["state"], arrays["fit"])
        parts = as_declared(FitParts(tuple(body["size"]), Evidence(*body["evidence"]), estimate, training))
        return parts, body.get(ARRANGEMENT)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise CorruptFolderError(f"{folder} lacks what a fit needs ({error!r}); was it written by lvsearch?") from error


def encode_evidence(evidence: Evidence) -> list[float]:
    """Return [lower end, upper end, standard error] of the log evidence, nats; `Evidence(*numbers)` restores it."""
    return [evidence.lower, evidence.upper, evidence.standard_error]


def encode_estimate(estimate: Estimate) -> dict[str, Any]:
    """Return the model, size, bounds (nats) and number of passes of an estimate as JSON data, without its arrays.

    `estimate_arrays` returns the arrays, which are stored apart.
    """
    return {
        "model": encode_module(estimate.model),
        "size": estimate.size,
        "bounds": [estimate.log_lower, estimate.log_upper],
        "passes": estimate.passes,
        "bend": estimate.bend,
    }


def estimate_arrays(estimate: Estimate) -> dict[str, np.ndarray]:
    """Return the natural parameters of the fitted variational distribution as {name: array}.

    A name is the latent variable's, such as "topic_word". If its parameters have several fields, the field follows
    after a full stop, as in "components.log_precision".
    """
    leaves = jax.tree_util.tree_leaves_with_path(estimate.natural)
    return {path_name(path): np.asarray(leaf) for path, leaf in leaves}


def decode_estimate(entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Estimate:
    """Return the estimate that `encode_estimate` and `estimate_arrays` took apart.

    entry: the JSON data of `encode_estimate`. arrays: {name: array} of natural parameters from `estimate_arrays`.

    Raises KeyError or TypeError where something is missing.
    """
    model = decode_model(entry["model"])
    blank = {name: site.family.zeros((1,) * len(site.axes), np.float32) for name, site in model.globals().items()}
    natural = jax.tree_util.tree_map_with_path(lambda path, _: arrays[path_name(path)], blank)
    low, high = entry["bounds"]
    bend = entry.get("bend")  # older folders have none
    return Estimate(model, tuple(entry["size"]), natural, low, high, entry["passes"], bend)


def path_name(path: tuple) -> str:
    """Return the name of an array in a pytree of parameters, or of a number in a model: "components.log_precision".

    path: the position of the array in the pytree, as JAX' key path.
    """
    return jax.tree_util.keystr(path, simple=True, separator=".")
