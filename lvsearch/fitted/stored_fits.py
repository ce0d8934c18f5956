"""Write a single fit with its data to a folder and read it; and convert fits of a search to JSON data and arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from lvsearch.data.base import Data
from lvsearch.data.stored import decode_data, encode_data
from lvsearch.files.declared import as_declared
from lvsearch.files.storage import CorruptFolderError, new_folder, read_folder, write_folder
from lvsearch.files.versions import versions
from lvsearch.fitted.stored_models import decode_model, encode_module
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.sizing.evidence import Evidence
from lvsearch.sizing.sizes import Size

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


def save_parts(fit: FitParts, folder: Path) -> None:
    """Write a fit with its data to a new folder: either the whole folder appears or none.

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
    }
    with new_folder(folder):
        write_folder(folder, body, {"data": data_arrays, "fit": estimate_arrays(fit.estimate)})


def load_parts(folder: Path) -> FitParts:
    """Return the fit that `save_parts` wrote to a folder.

    Raises FileNotFoundError if there is no such folder, `CorruptFolderError` if it holds no fit or is damaged.
    """
    body, arrays = read_folder(folder)
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise CorruptFolderError(f"got {folder}, which holds no single fit; expected one written by fit.save")
    try:
        training = decode_data(body["data"], arrays["data"], folder)
        estimate = decode_estimate(body["state"], arrays["fit"])
        return as_declared(FitParts(tuple(body["size"]), Evidence(*body["evidence"]), estimate, training))
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
    }


def estimate_arrays(estimate: Estimate) -> dict[str, np.ndarray]:
    """Return the natural parameters of the fitted variational distribution as {name: array}.

    A name is the latent variable's, such as "topic_word". If its parameters have several fields, the field follows
    after a full stop, as in "components.log_precision".
    """
    leaves = jax.tree_util.tree_leaves_with_path(estimate.natural)
    return {_array_name(path): np.asarray(leaf) for path, leaf in leaves}


def decode_estimate(entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Estimate:
    """Return the estimate that `encode_estimate` and `estimate_arrays` took apart.

    entry: the JSON data of `encode_estimate`. arrays: {name: array} of natural parameters from `estimate_arrays`.

    Raises KeyError or TypeError where something is missing.
    """
    model = decode_model(entry["model"])
    blank = {name: site.family.zeros((1,) * len(site.axes), np.float32) for name, site in model.globals().items()}
    natural = jax.tree_util.tree_map_with_path(lambda path, _: arrays[_array_name(path)], blank)
    low, high = entry["bounds"]
    return Estimate(model, tuple(entry["size"]), natural, low, high, entry["passes"])


def _array_name(path: tuple) -> str:
    """Return the name of one array of natural parameters, such as "components.log_precision".

    path: the position of the array in the pytree of natural parameters, as JAX' key path.
    """
    return jax.tree_util.keystr(path, simple=True, separator=".")
