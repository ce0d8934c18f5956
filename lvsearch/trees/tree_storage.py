"""Store fitted trees of topics in a folder, and load them: the model, the corpus and what every chain visited."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lvsearch.data.corpus import Corpus
from lvsearch.data.kinds import decode_data, encode_data
from lvsearch.files.storage import CorruptFolderError, new_folder, read_folder, versions, write_folder
from lvsearch.files.untrusted_files import as_declared
from lvsearch.fitted.stored_fits import decode_model, encode_module
from lvsearch.inference.sampling import Trace
from lvsearch.inference.trees import Allocation, DirichletLevels, TreeHyper, TreeTrace
from lvsearch.models.hlda import HLDA
from lvsearch.models.plain_arguments import as_path

KIND = "fitted tree"
ALONG = ("sweep", "log_joint", "nodes", "seconds", "nodes_each")
"""The names of the arrays of a chain that are stored unchanged."""


class TreeParts(NamedTuple):
    """The fields of a `FittedTree`, in the form in which they are stored.

    `model`: the model that was fitted.
    `training`: the corpus.
    `traces`: what each chain visited.
    `burn_in`: sweeps at the beginning of each chain that do not count as draws.
    `inferred`: True if hyper-parameters were drawn too.
    """

    model: HLDA
    training: Corpus
    traces: tuple[TreeTrace, ...]
    burn_in: int
    inferred: bool


def save_parts(tree: TreeParts, folder: str | Path) -> None:
    """Write a fitted tree to a new folder, completely or not at all.

    Raises FileExistsError if something is there already, ValueError for a folder that is no path.
    """
    folder = as_path("folder", folder)
    data, data_arrays = encode_data(tree.training)
    arrays, traces = {"data": data_arrays}, []
    for number, chain in enumerate(tree.traces):
        settings, groups = chain.trace.to_storage()
        traces.append(settings)
        arrays[f"chain-{number}"] = _chain_arrays(chain)
        arrays |= {f"{name}-{number}": group for name, group in groups.items()}
    body = {
        "kind": KIND,
        "model": encode_module(tree.model),
        "data": data,
        "traces": traces,
        "burn_in": tree.burn_in,
        "inferred": tree.inferred,
        "versions": versions(),
    }
    with new_folder(folder):
        write_folder(folder, body, arrays)


def load_parts(folder: str | Path) -> TreeParts:
    """Return the fitted tree that `save_parts` wrote to a folder.

    Raises FileNotFoundError if there is no such folder, ValueError if it holds no tree or is damaged.
    """
    folder = as_path("folder", folder)
    body, arrays = read_folder(folder)
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise CorruptFolderError(f"got {folder}, which holds no fitted tree; expected one written by FittedTree.save")
    try:
        model, training = decode_model(body["model"]), decode_data(body["data"], arrays["data"], folder)
        if not isinstance(model, HLDA) or not isinstance(training, Corpus):
            raise CorruptFolderError(f"{folder} holds no tree of topics of a corpus; restore it from a copy")
        traces = tuple(
            _decode_chain(
                arrays[f"chain-{number}"],
                Trace.from_storage(settings, {name: arrays[f"{name}-{number}"] for name in ("draws", "position")}),
            )
            for number, settings in enumerate(body["traces"])
        )
        parts = as_declared(TreeParts(model, training, traces, body["burn_in"], body["inferred"]))
        if not parts.traces or not all(_is_consistent(chain, parts) for chain in parts.traces):
            raise TypeError("chains that are not of its corpus and depth")
        return parts
    except (KeyError, TypeError, AttributeError, RecursionError, IndexError, OverflowError) as error:
        raise CorruptFolderError(f"{folder} is damaged ({error!r}); restore it from a copy") from error


def _is_consistent(chain: TreeTrace, parts: TreeParts) -> bool:
    """Return True if a loaded chain fits its corpus and model.

    Arrays must have the right shape and type, and levels of tokens must add up to the counts of the corpus. Each node
    number stands at one level, there is one root, at least one sweep is scored, and the burn-in is shorter than the
    chain.
    """
    depth, scored, sweeps = parts.model.depth, len(chain.log_joint), len(chain.nodes_each)
    corpus = parts.training.counts
    shapes = [(chain.sweep, (scored,)), (chain.log_joint, (scored,)), (chain.seconds, (scored,))]
    shapes += [(chain.nodes, (scored, depth)), (chain.nodes_each, (sweeps, depth))]
    if chain.nodes.dtype.kind != "i" or chain.nodes_each.dtype.kind != "i":
        return False
    for allocation, hyper in ((chain.best, chain.best_hyper), (chain.last, chain.last_hyper)):
        assert isinstance(hyper.levels, DirichletLevels)  # `_decode_state` makes no others
        shapes += [(hyper.levels.alpha, (depth,)), (hyper.topics, (depth,))]
        shapes += [(allocation.paths, (corpus.shape[0], depth)), (allocation.level_counts, (corpus.nnz, depth))]
        if allocation.paths.dtype.kind != "i" or allocation.level_counts.dtype.kind != "i":
            return False
        if np.any(allocation.level_counts < 0) or np.any(allocation.level_counts.sum(1) != corpus.data):
            return False
        levels = [set(column.tolist()) for column in allocation.paths.T]
        if len(set().union(*levels)) < sum(map(len, levels)) or len(levels[0]) != 1:
            return False
    numbers = all(array.shape == shape and array.dtype.kind in "if" for array, shape in shapes)
    return numbers and scored > 0 and 0 <= parts.burn_in < sweeps


def _chain_arrays(chain: TreeTrace) -> dict[str, np.ndarray]:
    """Return the arrays of a chain by name, for storage."""
    arrays = {name: getattr(chain, name) for name in ALONG}
    states = (("best", chain.best, chain.best_hyper), ("last", chain.last, chain.last_hyper))
    for name, allocation, hyper in states:
        assert isinstance(hyper.levels, DirichletLevels)  # the only ones that a model has
        parts = {**allocation._asdict(), "branching": hyper.branching, "alpha": hyper.levels.alpha, "eta": hyper.topics}
        arrays |= {f"{name}.{part}": np.asarray(value) for part, value in parts.items()}
    return {**arrays, "best_log_joint": np.asarray(chain.best_log_joint)}


def _decode_chain(arrays: Mapping[str, np.ndarray], trace: Trace) -> TreeTrace:
    """Return what a chain visited, from its stored arrays and its trace."""
    (best, best_hyper), (last, last_hyper) = _decode_state(arrays, "best"), _decode_state(arrays, "last")
    return TreeTrace(
        **{name: arrays[name] for name in ALONG},
        best=best,
        best_hyper=best_hyper,
        best_log_joint=float(arrays["best_log_joint"]),
        last=last,
        last_hyper=last_hyper,
        kept=(),  # `fit_tree` keeps no states besides
        trace=trace,
    )


def _decode_state(arrays: Mapping[str, np.ndarray], name: str) -> tuple[Allocation, TreeHyper]:
    """Return (allocation, hyper-parameters) of one stored state of a chain.

    arrays: the stored arrays by name. name: "best" or "last".
    """
    hyper = TreeHyper(
        float(arrays[f"{name}.branching"]), DirichletLevels(arrays[f"{name}.alpha"]), arrays[f"{name}.eta"]
    )
    return Allocation(arrays[f"{name}.paths"], arrays[f"{name}.level_counts"]), hyper
