"""Read and write searches: everything that a `SearchResult` holds, in a folder of `lvsearch.files.storage`.

MCMC chains over partitions are converted to JSON data and arrays, and back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lvsearch.data.base import Data
from lvsearch.data.kinds import decode_data, encode_data
from lvsearch.files.storage import CorruptFolderError, new_folder, read_folder, versions, write_folder
from lvsearch.files.untrusted_files import as_declared, conforms
from lvsearch.fitted.stored_fits import (
    decode_estimate,
    decode_model,
    encode_estimate,
    encode_evidence,
    encode_module,
    estimate_arrays,
)
from lvsearch.inference.allocation_chains import NO_DRAWS, AllocationDraws, AllocationRun
from lvsearch.inference.engine.estimate import Estimate
from lvsearch.inference.engine.estimator import Chunks
from lvsearch.recommending.evaluator import model_evaluator
from lvsearch.results.findings import Findings
from lvsearch.results.heldout import load_held_out
from lvsearch.scrutiny.scrutiny import Scrutiny
from lvsearch.searching.controller import SearchSettings, SearchState
from lvsearch.searching.evaluators import ModelEvaluator
from lvsearch.searching.guided import AllocationProgress
from lvsearch.sizing import sizes
from lvsearch.sizing.evidence import Bracket, Evidence
from lvsearch.sizing.fit import Fit, FitInfo, HeldOutScores, TopicQuality, is_by_gains
from lvsearch.sizing.gains import SizeGain
from lvsearch.sizing.ledger import Trial, Visit, with_evidence_from_gains
from lvsearch.topics.readable_topics import Arrangement

Paths = TypeVar("Paths", Bracket, SizeGain)


def save_result(result: Findings, folder: Path) -> None:
    """Write a finished search to a new folder: either the whole folder appears or none.

    Raises FileExistsError if the folder exists. Raises ValueError for parts that cannot be stored: plain functions, and
    models, priors or data that are not from lvsearch.
    """
    content = encode_search(result)
    with new_folder(folder):
        write_folder(folder, *content)


def save_search(result: Findings, folder: Path) -> None:
    """Write the present state of a search to its folder, replacing the former state in one atomic step.

    Raises ValueError for parts that cannot be stored: plain functions, and models, priors or data that are not from
    lvsearch.
    """
    write_folder(folder, *encode_search(result))


def encode_search(result: Findings) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Return everything that a search holds as (body, arrays), the two parts of a stored folder.

    `body` is a JSON-like dictionary. `arrays` maps a group name, such as "data" or "fit-3", to named arrays.
    Raises ValueError for parts that cannot be stored: plain functions, and models, priors or data that are not from
    lvsearch.
    """
    if not isinstance(result.evaluator, ModelEvaluator) or result.training is None:
        raise ValueError(
            "got a search over a plain function, expected one over a model of lvsearch.models: code is not stored (no "
            "pickle). Leave out= away, and keep result.posterior(), result.bounds() and result.starts() as tables"
        )
    # numbers and names go into the JSON body, arrays into named groups beside it
    data, data_arrays = encode_data(result.training)
    scrutiny, scrutiny_arrays = result.scrutiny.to_stored()
    progress = result.state.partitions
    body = {
        "partitions": None if progress is None else encode_progress(progress),
        "model": encode_module(result.evaluator.base_model),
        "prior": result.prior.to_json(),
        "settings": asdict(result.settings),
        "visits": [_encode_visit(visit) for visit in result.state.visits],
        "kept": [_encode_fit(fit) for fit in result.state.kept.values()],
        "stopped": result.state.stopped,
        "seconds": result.seconds,
        "compiles": dict(result.compiles),
        "chunks": result.evaluator.chunks._asdict(),
        "data": data,
        "versions": versions(),
        **scrutiny,
        "held_out": None,
        "arrangement": None if result.arrangement is None else result.arrangement.to_json(),
    }
    held_out_arrays = {}
    if result.held_out is not None:
        body["held_out"], held_out_arrays["held-out"] = encode_data(result.held_out)
    arrays = {
        f"fit-{_name(size)}": estimate_arrays(fit.state)
        for size, fit in result.state.kept.items()
        if fit.state is not None
    }
    if progress is not None:
        arrays["partitions"] = progress_arrays(progress)
    return body, {"data": data_arrays, **held_out_arrays, **scrutiny_arrays, **arrays}


def load_findings(folder: Path) -> Findings:
    """Read the search in a folder that `save_result` or `save_search` wrote.

    Raises FileNotFoundError if there is no such folder, and `CorruptFolderError`, with the reason, if it is damaged.
    """
    body, arrays = read_folder(folder)
    if isinstance(body, dict) and "kind" in body:
        raise CorruptFolderError(
            f"got {folder}, which holds a {body['kind']}, expected a search: lv.load_fit, lv.load_tree or "
            "lv.load_trace reads it"
        )
    try:
        training = decode_data(body["data"], arrays["data"], folder)
        settings = _decode_settings(body["settings"])
        model = decode_model(body["model"])
        chunks = as_declared(Chunks(**body["chunks"])) if "chunks" in body else None  # older folders know of none
        held_out = _held_out(body, arrays, training, folder)
        evaluator = model_evaluator(model, training, held_out, settings, chunks=chunks)
        visits = tuple(_decode_visit(entry) for entry in body["visits"])
        kept = {}
        for entry in body["kept"]:
            fit = _decode_fit(entry, arrays.get(f"fit-{_name(tuple(entry['size']))}"))
            kept[fit.size] = fit
        prior, compiles = sizes.from_json(body["prior"]), body.get("compiles", {})
        if is_by_gains(evaluator):
            visits = with_evidence_from_gains(visits, prior, settings.largest, evaluator.scale)
        state = as_declared(SearchState(visits, kept, body["stopped"]))
        if body.get("partitions") is not None:  # older folders know of none
            state = replace(state, partitions=decode_progress(body["partitions"], arrays["partitions"]))
        scrutiny = Scrutiny.from_stored(body, arrays)
        limit = set() if settings.max_size is None else {settings.max_size}
        named = limit | {*kept, *(visit.size for visit in visits)}
        if any(len(size) != len(model.size_names) or min(size) < 1 for size in named):
            raise TypeError(f"sizes that are not one positive number for each of {', '.join(model.size_names)}")
        if not conforms(compiles, dict[str, int]) or not conforms(body["seconds"], float):
            raise TypeError("'compiles' or 'seconds' are no numbers")
        shown = body.get("arrangement")  # older folders know of none
        return Findings(
            evaluator,
            prior,
            settings,
            state,
            training,
            body["seconds"],
            compiles,
            scrutiny,
            held_out,
            None if shown is None else Arrangement.from_json(shown),
        )
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError, ArithmeticError) as error:
        raise CorruptFolderError(
            f"{folder} lacks what a search needs ({error!r}); was it written by lvsearch?"
        ) from error


def _held_out(
    body: Mapping[str, Any], arrays: Mapping[str, Mapping[str, np.ndarray]], training: Data, folder: Path
) -> Data | None:
    """Return the held-out data that were stored with a search, or None if there are none.

    body: the JSON data of the folder. arrays: its arrays, by group and name.
    training: the training data, whose words or columns the held-out data share.
    folder: the folder of the search, in which older versions stored held-out data in a subfolder.
    """
    if "held_out" not in body:
        return load_held_out(training, folder / "held-out")
    if body["held_out"] is None:
        return None
    return training.like_this(decode_data(body["held_out"], arrays["held-out"], folder))


# ── fits and visits ─────────────────────────────────────────────────────────────────────────────────────────────────


def _name(size: tuple[int, ...]) -> str:
    """Return a size as text for names of array groups, such as "3x2"."""
    return "x".join(map(str, size))


def _encode_visit(visit: Visit) -> dict[str, Any]:
    """Return the record of one size that the search tried (a visit), with all its fits, as a JSON-like dictionary."""
    return {
        "size": visit.size,
        "trials": [{**asdict(trial), "evidence": encode_evidence(trial.evidence)} for trial in visit.trials],
        "evidence": encode_evidence(visit.evidence),
        "log_symmetry": visit.log_symmetry,
        "replaced_by": visit.replaced_by,
        "bounds": [visit.log_lower, visit.log_upper],
    }


def _decode_visit(entry: Mapping[str, Any]) -> Visit:
    """Return the record of one size that the search tried, which `_encode_visit` encoded as a dictionary.

    Raises `CorruptFolderError` for a size without a fit: a search records a size with its first one.
    """
    trials = tuple(
        Trial(
            t["start"],
            Evidence(*t["evidence"]),
            t["log_symmetry"],
            t["seconds"],
            t["failure"],
            _decode_paths(Bracket, t["brackets"]),
            _decode_paths(SizeGain, t.get("gains", [])),  # older folders have none
            _decode_scores(t.get("scores")),  # older folders know of none
            t.get("bend"),
        )
        for t in entry["trials"]
    )
    if not trials:
        raise CorruptFolderError(f"size {entry['size']} was tried, but has no fit; restore the folder from a copy")
    replaced_by = None if entry["replaced_by"] is None else tuple(entry["replaced_by"])
    evidence = Evidence(*entry["evidence"])
    return Visit(tuple(entry["size"]), trials, evidence, entry["log_symmetry"], replaced_by, *entry["bounds"])


def _decode_paths(kind: type[Paths], entries: Sequence[Mapping[str, Any]]) -> tuple[Paths, ...]:
    """Return what a fit measured by annealing forward and backward, nats, from stored dictionaries.

    kind: `Bracket` (log evidence) or `SizeGain` (log evidence over that of the next smaller size).
    """
    return tuple(
        kind(**{**entry, "forward": tuple(entry["forward"]), "backward": tuple(entry["backward"])}) for entry in entries
    )


def _decode_scores(entry: Mapping[str, Any] | None) -> HeldOutScores | None:
    """Return the scores of a fit on held-out units from their stored dictionary; None if there were none."""
    if entry is None:
        return None
    topics = None if entry["topics"] is None else TopicQuality(**entry["topics"])
    return as_declared(HeldOutScores(**{**entry, "per_unit": tuple(entry["per_unit"]), "topics": topics}))


def _encode_fit(fit: Fit) -> dict[str, Any]:
    """Return one fit, which the search kept, as a JSON-like dictionary without its arrays, which are stored apart."""
    state: Estimate | None = fit.state
    return {
        **asdict(replace(fit, state=None)),
        "evidence": encode_evidence(fit.evidence),
        "state": None if state is None else encode_estimate(state),
    }


def _decode_fit(entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None) -> Fit:
    """Return the fit that `_encode_fit` encoded as a dictionary.

    entry: the dictionary. arrays: the natural parameters by name; None if the folder has none for this fit.

    Raises `CorruptFolderError` if the fit needs arrays and there are none.
    """
    state = None
    if entry["state"] is not None:
        if arrays is None:
            raise CorruptFolderError(
                f"the arrays of the fit of size {entry['size']} are missing; restore them from a copy"
            )
        state = decode_estimate(entry["state"], arrays)
    evidence = Evidence(*entry["evidence"])
    brackets, scores = _decode_paths(Bracket, entry["brackets"]), _decode_scores(entry.get("scores"))
    info, gains = FitInfo(**entry["info"]), _decode_paths(SizeGain, entry.get("gains", []))
    size, log_symmetry, bend = tuple(entry["size"]), entry["log_symmetry"], entry.get("bend")
    return Fit(size, evidence, log_symmetry, state, info, brackets, gains, scores, bend)


# ── settings ───────────────────────────────────────────────────────────────────────────────────────────────


def _decode_settings(entry: Mapping[str, Any]) -> SearchSettings:
    """Return the settings of a search from their stored dictionary."""
    max_size = entry["max_size"]
    return as_declared(SearchSettings(**{**entry, "max_size": None if max_size is None else tuple(max_size)}))


# ── chains over partitions ────────────────────────────────────────────────────────────────────────────────────────────


HYPER = "hyper-"
DRAWN = "drawn-"
"""The beginnings of the names of arrays of hyper-parameters in a folder: of the present states, and of all draws."""
CELLS, DRAWN_CELLS = "cells", "drawn-cells"
"""The names of the arrays of the cells of rows that lack some, of the present states and of all draws.

They are there where missing cells are latent variables. A hyper-parameter cannot be called "cells".
"""


def encode_progress(progress: AllocationProgress) -> dict[str, Any]:
    """Return the settings of the chains over partitions as JSON data; `progress_arrays` returns their arrays.

    The keys are `places` (array slots for components), `spent` (blocks of sweeps run), `has_warm_up` (whether the
    chains make a warm-up), `warm_up_left` (blocks of it to come) and `hyper` (names of the hyper-parameters).
    """
    run = progress.run
    return {
        "places": run.places,
        "spent": run.spent,
        "has_warm_up": run.has_warm_up,
        "warm_up_left": run.warm_up_left,
        "hyper": list(run.log_hyper),
    }


def progress_arrays(progress: AllocationProgress) -> dict[str, np.ndarray]:
    """Return the states and the recorded draws of the chains over partitions, and the prior, as {name: array}."""
    run = progress.run
    hyper = {f"{HYPER}{name}": np.asarray(each) for name, each in run.log_hyper.items()}
    drawn = {f"{DRAWN}{name}": np.asarray(each) for name, each in run.draws.log_hyper.items()}
    return {
        "log_prior": progress.log_prior,
        "labels": run.labels,
        "parts": run.parts,
        "log_rows": run.log_rows,
        "size_probability": run.size_probability,
        "groups": np.asarray(run.draws.groups),
        **({} if run.cells is None else {CELLS: run.cells}),
        **({} if run.draws.cells is None else {DRAWN_CELLS: np.asarray(run.draws.cells)}),
        **hyper,
        **drawn,
    }


def decode_progress(entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> AllocationProgress:
    """Return the chains over partitions that `encode_progress` and `progress_arrays` took apart.

    entry: the JSON data of `encode_progress`. arrays: {name: array} of `progress_arrays`.

    Raises TypeError or KeyError where something is missing or does not fit together.
    """
    if not conforms(dict(entry), dict[str, Any]) or not isinstance(entry["places"], int):
        raise TypeError("'partitions' is no description of chains")
    names = ("labels", "parts", "log_rows", "size_probability")
    labels, parts, log_rows, size_probability = (np.asarray(arrays[name]) for name in names)
    n_chains, log_prior = labels.shape[-1], np.asarray(arrays["log_prior"])
    if parts.ndim == 3:  # older folders have an axis of sides only where there are two
        parts = parts[:, :, None]
    n_blocks, n_sweeps, *_ = parts.shape
    of_parts, of_rows = (n_blocks, n_sweeps, log_prior.ndim, n_chains), (n_blocks, n_sweeps, n_chains)
    of_sizes = (n_blocks, n_chains, *log_prior.shape)
    if (parts.shape, log_rows.shape, size_probability.shape) != (of_parts, of_rows, of_sizes):
        raise TypeError("the arrays of chains over partitions do not belong together")
    hyper = {name: np.asarray(arrays[f"{HYPER}{name}"]) for name in entry["hyper"]}
    draws = _decoded_draws(arrays, hyper, labels, entry["places"])
    spent, warm_up_left = int(entry["spent"]), int(entry.get("warm_up_left", 0))  # older folders know of no warm-up
    cells = arrays.get(CELLS)
    if cells is not None and not (cells.ndim == 3 and cells.shape[2] == n_chains and np.isfinite(cells).all()):
        raise TypeError("the cells of rows with missing ones do not belong to the chains")
    # in older folders chains with a warm-up are those over features, whose labels have an axis of places
    has_warm_up = bool(entry.get("has_warm_up", labels.ndim == 3))
    of_run = parts, log_rows, size_probability, spent, warm_up_left, draws, cells, has_warm_up
    run = AllocationRun(labels, hyper, entry["places"], *of_run)
    return AllocationProgress(run, log_prior)


def _decoded_draws(
    arrays: Mapping[str, np.ndarray], hyper: Mapping[str, np.ndarray], labels: np.ndarray, places: int
) -> AllocationDraws:
    """Return the recorded draws of chains over partitions.

    arrays: {name: array} of `progress_arrays`; older folders have no draws, or draws without hyper-parameters.
    hyper: {name: (number, chain)}, the hyper-parameters of the present states.
    labels: the present allocations, rows first and chains last. places: the number of array slots for components.

    Raises TypeError where draws do not belong to the chains.
    """
    groups = np.asarray(arrays.get("groups", NO_DRAWS.groups))
    drawn = {name: np.asarray(arrays[f"{DRAWN}{name}"]) for name in hyper if f"{DRAWN}{name}" in arrays}
    n_rows, n_chains = len(labels), labels.shape[-1]
    belong = groups.ndim == 3 and (not len(groups) or (groups.shape[1] <= n_rows and groups.shape[2] == n_chains))
    if not belong or any(each.shape != (len(groups), *hyper[name].shape) for name, each in drawn.items()):
        raise TypeError("the draws of partitions do not belong to the chains")
    if groups.size and not (groups.min() >= 0 and groups.max() < places):
        raise TypeError("the draws of partitions name components that the chains have no places for")
    if not all(np.isfinite(each).all() for each in drawn.values()):
        raise TypeError("the hyper-parameters of draws of partitions are not finite numbers")
    cells, present = arrays.get(DRAWN_CELLS), arrays.get(CELLS)
    of_present = () if present is None else present.shape
    if cells is not None and not (cells.shape == (len(groups), *of_present) and np.isfinite(cells).all()):
        raise TypeError("the cells of draws of partitions do not belong to the chains")
    return AllocationDraws(groups, drawn, cells)
