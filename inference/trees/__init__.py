"""Trees of topics: hierarchical LDA with the nested Chinese restaurant process, by collapsed Gibbs sampling.

Each document has a path from the root to a leaf, and each of its tokens comes from the topic of one node on that path.
An allocation says which: paths of documents, levels of tokens.

| function | what it does |
|---|---|
| `tree_hyper`, `hyper_of` | return checked hyper-parameters (γ, level prior, η); those of a model |
| `sample_tree`, `run_chain` | run chains over trees and allocations of the given counts |
| `TreeSampler` | runs such chains in the one run loop (`lvsearch.inference.sampling`), several side by side |
| `TreeCorpus`, `sweep_documents` | prepare counts for sweeps; make one sweep |
| `log_joint` | returns log p(words, levels, paths) of any allocation |
| `occupied_nodes` | counts the nodes of each level, in chains from several starts |
| `agglomerated_start` | finds a start without sampling, from a dendrogram of the documents |
| `climb` | finds a start by hill climbing, paths and levels together |
| `merge_siblings` | merges siblings if that raises the joint probability, by hill climbing |
| `settle_levels` | optimises the levels at the same paths |
| `tree_topics`, `describe_documents` | describe new documents: paths, levels, log p with a standard error |
| `draw_corpus` | draws documents from the prior |
"""

import warnings
from typing import Any

from lvsearch.inference.trees.chain import (
    TreeTrace,
    draw_paths,
    draw_start,
    hyper_of,
    level_names,
    occupied_nodes,
    run_chain,
    sample_tree,
    settle_levels,
)
from lvsearch.inference.trees.corpus import TreeCorpus, sweep_documents
from lvsearch.inference.trees.density import (
    Allocation,
    DirichletLevels,
    GEMLevels,
    LogJoint,
    TreeHyper,
    log_joint,
    tree_hyper,
)
from lvsearch.inference.trees.predict import NEW, DocumentPaths, TreeTopics, describe_documents, tree_topics
from lvsearch.inference.trees.sampler import TreeSampler, merge_siblings
from lvsearch.inference.trees.simulate import draw_corpus
from lvsearch.inference.trees.starts import MOST_DOCUMENTS, agglomerated_start, climb
from lvsearch.inference.trees.updates import TreePriors

__all__ = [
    "MOST_DOCUMENTS",
    "NEW",
    "Allocation",
    "DirichletLevels",
    "DocumentPaths",
    "GEMLevels",
    "LogJoint",
    "TreeCorpus",
    "TreeHyper",
    "TreePriors",
    "TreeSampler",
    "TreeTopics",
    "TreeTrace",
    "agglomerated_start",
    "climb",
    "describe_documents",
    "draw_corpus",
    "draw_paths",
    "draw_start",
    "hyper_of",
    "level_names",
    "log_joint",
    "merge_siblings",
    "occupied_nodes",
    "run_chain",
    "sample_tree",
    "settle_levels",
    "sweep_documents",
    "tree_hyper",
    "tree_topics",
]


def __getattr__(name: str) -> Any:
    """Return `sweep_documents` under its former name `swept`, which is deprecated: it warns."""
    if name == "swept":
        warnings.warn("trees.swept is called trees.sweep_documents now", DeprecationWarning, stacklevel=2)
        return sweep_documents
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
