"""Convert the MCMC chains over partitions of a search to JSON data and arrays, which its folder stores, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lvsearch.files.declared import conforms
from lvsearch.inference.partition_chains import PartitionRun
from lvsearch.searching.guided import PartitionProgress

HYPER = "hyper-"
"""The beginning of the name of an array of hyper-parameters in a folder."""


def encode_progress(progress: PartitionProgress) -> dict[str, Any]:
    """Return the settings of the chains over partitions as JSON data; `progress_arrays` returns their arrays.

    The keys are `places` (array slots for components), `spent` (blocks of sweeps run) and `hyper` (names of the
    hyper-parameters).
    """
    run = progress.run
    return {"places": run.places, "spent": run.spent, "hyper": list(run.log_hyper)}


def progress_arrays(progress: PartitionProgress) -> dict[str, np.ndarray]:
    """Return the states and the recorded draws of the chains over partitions, and the prior, as {name: array}."""
    run = progress.run
    hyper = {f"{HYPER}{name}": np.asarray(each) for name, each in run.log_hyper.items()}
    return {
        "log_prior": progress.log_prior,
        "labels": run.labels,
        "parts": run.parts,
        "log_rows": run.log_rows,
        "size_probability": run.size_probability,
        **hyper,
    }


def decode_progress(entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PartitionProgress:
    """Return the chains over partitions that `encode_progress` and `progress_arrays` took apart.

    entry: the JSON data of `encode_progress`. arrays: {name: array} of `progress_arrays`.

    Raises TypeError or KeyError where something is missing or does not fit together.
    """
    if not conforms(dict(entry), dict[str, Any]) or not isinstance(entry["places"], int):
        raise TypeError("'partitions' is no description of chains")
    names = ("labels", "parts", "log_rows", "size_probability")
    labels, parts, log_rows, size_probability = (np.asarray(arrays[name]) for name in names)
    n_chains = labels.shape[1]
    if parts.shape != log_rows.shape or parts.shape[2] != n_chains or size_probability.shape[:2] != parts.shape[::2]:
        raise TypeError("the arrays of chains over partitions do not belong together")
    hyper = {name: np.asarray(arrays[f"{HYPER}{name}"]) for name in entry["hyper"]}
    run = PartitionRun(labels, hyper, entry["places"], parts, log_rows, size_probability, int(entry["spent"]))
    return PartitionProgress(run, np.asarray(arrays["log_prior"]))
