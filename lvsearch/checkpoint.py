"""Searches on disk: everything `SearchResult` holds, in a folder of `lvsearch.storage`."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

import lvsearch.models as models
from lvsearch import sizes
from lvsearch.audit import Audit
from lvsearch.bracket import Bracket
from lvsearch.controller import SearchSettings, SearchState
from lvsearch.corpus import Corpus
from lvsearch.data import Data
from lvsearch.evaluators import ModelEvaluator
from lvsearch.evidence import Evidence
from lvsearch.fit import Fit, FitInfo
from lvsearch.inference.estimator import Estimate
from lvsearch.inference.memory import Chunks
from lvsearch.kinds import KINDS
from lvsearch.ledger import Trial, Visit
from lvsearch.models import families
from lvsearch.models.contract import Model
from lvsearch.result import SearchResult
from lvsearch.storage import CorruptFolderError, read_folder, refuse_existing, write_folder

PACKAGES = ("lvsearch", "jax", "jaxlib", "equinox", "numpyro", "numpy", "scipy")


def save_result(result: SearchResult, folder: Path) -> None:
    """Write a result to a new folder."""
    refuse_existing(folder)
    save_search(result, folder)


def save_search(result: SearchResult, folder: Path) -> None:
    """Write or overwrite the state of a search in its own folder; atomic."""
    if not isinstance(result.evaluator, ModelEvaluator) or result.training is None:
        raise ValueError(
            "got a search over a plain function, expected one over a model of lvsearch.models: code is not stored (no "
            "pickle). Leave out= away, and keep result.posterior(), result.bounds() and result.starts() as tables"
        )
    data, data_arrays = encode_data(result.training)
    body = {
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
        "audit": None if result.audited is None else result.audited.to_json(),
    }
    arrays = {
        f"fit-{_name(size)}": _fit_arrays(fit) for size, fit in result.state.kept.items() if fit.state is not None
    }
    write_folder(folder, body, {"data": data_arrays, **arrays})


def load_result(folder: Path) -> SearchResult:
    """Read what `save_search` wrote. Raises FileNotFoundError or `CorruptFolderError`, saying what is wrong."""
    body, arrays = read_folder(folder)
    try:
        training = decode_data(body["data"], arrays["data"], folder)
        settings = _decode_settings(body["settings"])
        model = decode_model(body["model"])
        scale = float(training.n_observations) if settings.per_token else 1.0
        data = training.dataset()
        chunks = Chunks(**body["chunks"]) if "chunks" in body else None  # older folders know of none
        evaluator = ModelEvaluator(
            model, data, evidence=settings.evidence, seed=settings.seed, scale=scale, chunks=chunks
        )
        visits = tuple(_decode_visit(entry) for entry in body["visits"])
        kept = {}
        for entry in body["kept"]:
            fit = _decode_fit(entry, arrays.get(f"fit-{_name(tuple(entry['size']))}"))
            kept[fit.size] = fit
        state = SearchState(visits, kept, body["stopped"])
        prior, compiles = sizes.from_json(body["prior"]), body.get("compiles", {})
        audit = body.get("audit")  # older folders know of none
        audited = None if audit is None else Audit.from_json(audit)
        return SearchResult(evaluator, prior, settings, state, training, body["seconds"], compiles, audited)
    except (KeyError, TypeError, IndexError) as error:
        raise CorruptFolderError(
            f"{folder} lacks what a search needs ({error!r}); was it written by lvsearch?"
        ) from error


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers, and the device."""
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {"device": jax.devices()[0].device_kind}


# ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_module(module: Any) -> dict[str, Any]:
    """A model, a family or a NamedTuple of hyper-parameters as its class name and its fields, which its constructor
    takes by name.

    Raises ValueError for a class that `decode_module` would not know, such as a model of one's own.
    """
    if _known(type(module).__name__) is not type(module):
        raise ValueError(
            f"got a model of class {type(module).__qualname__!r}, expected one of lvsearch.models: code is not stored "
            "(no pickle), so a search over a model of one's own cannot be saved. Leave out= away"
        )
    names = getattr(module, "_fields", None) or tuple(entry.name for entry in fields(module))
    content = {}
    for name in names:
        value = getattr(module, name)
        has_fields = isinstance(value, eqx.Module | tuple)
        content[name] = encode_module(value) if has_fields else np.asarray(value).tolist()
    return {"class": type(module).__name__, "fields": content}


def decode_module(encoded: Mapping[str, Any]) -> Any:
    """The inverse of `encode_module`. Classes outside `lvsearch.models` are refused, never imported."""
    known = _known(encoded["class"])
    if known is None:
        raise CorruptFolderError(
            f"got a model of class {encoded['class']!r}, which this version of lvsearch.models does not have; "
            "read the folder with the version that wrote it"
        )
    content = {
        key: decode_module(value) if isinstance(value, Mapping) else value for key, value in encoded["fields"].items()
    }
    return known(**content)


def decode_model(encoded: Mapping[str, Any]) -> Model:
    """As `decode_module`, for what must be a model."""
    model = decode_module(encoded)
    if not isinstance(model, Model):
        raise CorruptFolderError(f"got {encoded['class']!r} where a model was expected; was it written by lvsearch?")
    return model


def _known(name: str) -> type | None:
    known = getattr(models, name, None) or getattr(families, name, None)
    if not isinstance(known, type):
        return None
    return known if issubclass(known, eqx.Module) or hasattr(known, "_fields") else None


# ── fits and visits ─────────────────────────────────────────────────────────────────────────────────────────────────


def _name(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))


def _encode_evidence(evidence: Evidence) -> list[float]:
    return [evidence.lower, evidence.upper, evidence.standard_error]


def _encode_visit(visit: Visit) -> dict[str, Any]:
    return {
        "size": visit.size,
        "trials": [
            {
                "start": trial.start,
                "evidence": _encode_evidence(trial.evidence),
                "log_symmetry": trial.log_symmetry,
                "seconds": trial.seconds,
                "failure": trial.failure,
                "brackets": [asdict(bracket) for bracket in trial.brackets],
            }
            for trial in visit.trials
        ],
        "evidence": _encode_evidence(visit.evidence),
        "log_symmetry": visit.log_symmetry,
        "replaced_by": visit.replaced_by,
        "bounds": [visit.log_lower, visit.log_upper],
    }


def _decode_visit(entry: Mapping[str, Any]) -> Visit:
    trials = tuple(
        Trial(
            t["start"],
            Evidence(*t["evidence"]),
            t["log_symmetry"],
            t["seconds"],
            t["failure"],
            _decode_brackets(t["brackets"]),
        )
        for t in entry["trials"]
    )
    replaced_by = None if entry["replaced_by"] is None else tuple(entry["replaced_by"])
    evidence = Evidence(*entry["evidence"])
    return Visit(tuple(entry["size"]), trials, evidence, entry["log_symmetry"], replaced_by, *entry["bounds"])


def _decode_brackets(entries: Sequence[Mapping[str, Any]]) -> tuple[Bracket, ...]:
    return tuple(
        Bracket(**{**entry, "forward": tuple(entry["forward"]), "backward": tuple(entry["backward"])})
        for entry in entries
    )


def _encode_fit(fit: Fit) -> dict[str, Any]:
    state: Estimate | None = fit.state
    return {
        "size": fit.size,
        "evidence": _encode_evidence(fit.evidence),
        "log_symmetry": fit.log_symmetry,
        "info": asdict(fit.info),
        "brackets": [asdict(bracket) for bracket in fit.brackets],
        "state": None
        if state is None
        else {
            "model": encode_module(state.model),
            "size": state.size,
            "bounds": [state.log_lower, state.log_upper],
            "passes": state.passes,
        },
    }


def _fit_arrays(fit: Fit) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(fit.state.natural)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def _decode_fit(entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None) -> Fit:
    state = None
    if entry["state"] is not None:
        if arrays is None:
            raise CorruptFolderError(
                f"the arrays of the fit of size {entry['size']} are missing; restore them from a copy"
            )
        model = decode_model(entry["state"]["model"])
        natural = {}
        for name, site in model.globals().items():
            kind = site.family.statistics_type
            natural[name] = arrays[name] if kind is None else kind(*[arrays[f"{name}.{f}"] for f in kind._fields])
        low, high = entry["state"]["bounds"]
        state = Estimate(model, tuple(entry["state"]["size"]), natural, low, high, entry["state"]["passes"])
    evidence = Evidence(*entry["evidence"])
    brackets = _decode_brackets(entry["brackets"])
    return Fit(tuple(entry["size"]), evidence, entry["log_symmetry"], state, FitInfo(**entry["info"]), brackets)


# ── settings and data ───────────────────────────────────────────────────────────────────────────────────────────────


def _decode_settings(entry: Mapping[str, Any]) -> SearchSettings:
    max_size = entry["max_size"]
    return SearchSettings(**{**entry, "max_size": None if max_size is None else tuple(max_size)})


def encode_data(data: Data) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Data as what it is, its fingerprint and its settings, for JSON, and as arrays.

    Raises ValueError for a kind of data that `decode_data` would not know.
    """
    if type(data) not in KINDS:
        raise ValueError(
            f"got data of class {type(data).__qualname__!r}, expected one of "
            f"{', '.join(kind.__name__ for kind in KINDS)}: code is not stored. Leave out= away"
        )
    settings, arrays = data.to_storage()
    return {"kind": type(data).__name__, "fingerprint": data.fingerprint, **settings}, arrays


def decode_data(entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray], folder: Path) -> Data:
    """The inverse of `encode_data`; `folder` is named in errors."""
    name = entry.get("kind", Corpus.__name__)  # a folder from before there were other kinds holds a corpus
    known = {kind.__name__: kind for kind in KINDS}
    if name not in known:
        raise CorruptFolderError(
            f"{folder}: got data of kind {name!r}, which this version of lvsearch does not have; read the folder with "
            "the version that wrote it"
        )
    data = known[name].from_storage(entry, arrays)
    if data.fingerprint != entry["fingerprint"]:
        raise CorruptFolderError(f"{folder}: the data differ from those searched; restore the folder from a copy")
    return data
