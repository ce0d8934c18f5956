"""Searches on disk: everything `SearchResult` holds, in a folder of `lvsearch.storage`."""

import importlib.metadata
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from scipy.sparse import csr_array

import lvsearch.models as models
from lvsearch import sizes
from lvsearch.controller import SearchSettings, SearchState
from lvsearch.corpus import Corpus
from lvsearch.evaluators import ModelEvaluator
from lvsearch.evidence import Evidence
from lvsearch.fit import Fit, FitInfo
from lvsearch.inference.data import documents
from lvsearch.inference.estimator import Estimate
from lvsearch.ledger import Trial, Visit
from lvsearch.models import families
from lvsearch.models.contract import Model
from lvsearch.result import SearchResult
from lvsearch.storage import CorruptFolderError, read_folder, refuse_existing, write_folder
from lvsearch.vocabulary import Analyzer

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
    body = {
        "model": encode_module(result.evaluator.base_model),
        "prior": result.prior.to_json(),
        "settings": asdict(result.settings),
        "visits": [_encode_visit(visit) for visit in result.state.visits],
        "kept": [_encode_fit(fit) for fit in result.state.kept.values()],
        "stopped": result.state.stopped,
        "seconds": result.seconds,
        "data": {"fingerprint": result.training.fingerprint, "analyzer": _encode_analyzer(result.training)},
        "versions": versions(),
    }
    arrays = {
        f"fit-{_name(size)}": _fit_arrays(fit) for size, fit in result.state.kept.items() if fit.state is not None
    }
    write_folder(folder, body, {"data": _corpus_arrays(result.training), **arrays})


def load_result(folder: Path) -> SearchResult:
    """Read what `save_search` wrote. Raises FileNotFoundError or `CorruptFolderError`, saying what is wrong."""
    body, arrays = read_folder(folder)
    try:
        training = _decode_corpus(arrays["data"], body["data"]["analyzer"])
        if training.fingerprint != body["data"]["fingerprint"]:
            raise CorruptFolderError(f"{folder}: the data differ from those searched; restore the folder from a copy")
        settings = _decode_settings(body["settings"])
        model = decode_model(body["model"])
        scale = float(training.n_tokens) if settings.per_token else 1.0
        data = documents(training.counts)
        evaluator = ModelEvaluator(model, data, evidence=settings.evidence, seed=settings.seed, scale=scale)
        visits = tuple(_decode_visit(entry) for entry in body["visits"])
        kept = {}
        for entry in body["kept"]:
            fit = _decode_fit(entry, arrays.get(f"fit-{_name(tuple(entry['size']))}"))
            kept[fit.size] = fit
        state = SearchState(visits, kept, body["stopped"])
        return SearchResult(evaluator, sizes.from_json(body["prior"]), settings, state, training, body["seconds"])
    except (KeyError, TypeError, IndexError) as error:
        raise CorruptFolderError(
            f"{folder} lacks what a search needs ({error!r}); was it written by lvsearch?"
        ) from error


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers, and the device."""
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {"device": jax.devices()[0].device_kind}


# ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_module(module: eqx.Module) -> dict[str, Any]:
    """A model or family as its class name and its fields, which its constructor takes by name.

    Raises ValueError for a class that `decode_module` would not know, such as a model of one's own.
    """
    if _known(type(module).__name__) is not type(module):
        raise ValueError(
            f"got a model of class {type(module).__qualname__!r}, expected one of lvsearch.models: code is not stored "
            "(no pickle), so a search over a model of one's own cannot be saved. Leave out= away"
        )
    content = {}
    for entry in fields(module):
        value = getattr(module, entry.name)
        content[entry.name] = encode_module(value) if isinstance(value, eqx.Module) else np.asarray(value).tolist()
    return {"class": type(module).__name__, "fields": content}


def decode_module(encoded: Mapping[str, Any]) -> eqx.Module:
    """The model or family again. Only classes of `lvsearch.models` are known: others are refused, never imported."""
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


def _known(name: str) -> type[eqx.Module] | None:
    known = getattr(models, name, None) or getattr(families, name, None)
    return known if isinstance(known, type) and issubclass(known, eqx.Module) else None


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
        Trial(t["start"], Evidence(*t["evidence"]), t["log_symmetry"], t["seconds"], t["failure"])
        for t in entry["trials"]
    )
    replaced_by = None if entry["replaced_by"] is None else tuple(entry["replaced_by"])
    evidence = Evidence(*entry["evidence"])
    return Visit(tuple(entry["size"]), trials, evidence, entry["log_symmetry"], replaced_by, *entry["bounds"])


def _encode_fit(fit: Fit) -> dict[str, Any]:
    state: Estimate | None = fit.state
    return {
        "size": fit.size,
        "evidence": _encode_evidence(fit.evidence),
        "log_symmetry": fit.log_symmetry,
        "info": asdict(fit.info),
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
    return Fit(tuple(entry["size"]), evidence, entry["log_symmetry"], state, FitInfo(**entry["info"]))


# ── settings and data ───────────────────────────────────────────────────────────────────────────────────────────────


def _decode_settings(entry: Mapping[str, Any]) -> SearchSettings:
    max_size = entry["max_size"]
    return SearchSettings(**{**entry, "max_size": None if max_size is None else tuple(max_size)})


def _corpus_arrays(corpus: Corpus) -> dict[str, np.ndarray]:
    counts = csr_array(corpus.counts)
    arrays = {"data": counts.data, "indices": counts.indices, "indptr": counts.indptr}
    arrays["vocabulary"] = np.array(corpus.vocabulary, dtype=np.str_)
    arrays["notes"] = np.array(corpus.notes, dtype=np.str_)
    for name, values in (("names", corpus.document_names), ("labels", corpus.document_labels)):
        if values is not None:
            arrays[name] = np.array(values, dtype=np.str_)
    return arrays


def _decode_corpus(arrays: Mapping[str, np.ndarray], analyzer: Mapping[str, Any] | None) -> Corpus:
    def texts(name: str) -> tuple[str, ...] | None:
        return tuple(arrays[name].tolist()) if name in arrays else None

    return Corpus.from_csr(
        arrays["data"],
        arrays["indices"],
        arrays["indptr"],
        texts("vocabulary") or (),
        document_names=texts("names"),
        document_labels=texts("labels"),
        notes=texts("notes") or (),
        analyzer=None if analyzer is None else _decode_analyzer(analyzer),
    )


def _encode_analyzer(corpus: Corpus) -> dict[str, Any] | None:
    return None if corpus.analyzer is None else asdict(corpus.analyzer)


def _decode_analyzer(entry: Mapping[str, Any]) -> Analyzer:
    stop_words = entry["stop_words"]
    return Analyzer(**{**entry, "stop_words": tuple(stop_words) if isinstance(stop_words, list) else stop_words})
