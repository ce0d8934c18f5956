"""Trees of topics: hierarchical LDA with the nested Chinese restaurant process, by collapsed Gibbs sampling.

| function | what it does |
|---|---|
| `tree_hyper`, `hyper_of` | checked hyper-parameters: γ, level prior, η; those of a model |
| `sample_tree`, `run_chain` | chains over trees and allocations of the given counts |
| `TreeSampler` | these chains as the one run loop (`lvsearch.inference.sampling`) takes them, several side by side |
| `TreeCorpus`, `swept` | counts at hand for sweeps; one sweep |
| `log_joint` | log p(w, z, c) of anybody's allocation |
| `occupied_nodes` | how many nodes each level has, from chains of several starts |
| `agglomerated_start` | a start without sampling, from a dendrogram of the documents |
| `climb` | a start by hill climbing, paths and levels together |
| `merge_siblings` | hill climbing: siblings merged where that gains |
| `settle_levels` | the same paths, their levels optimised |
| `tree_topics`, `describe_documents` | new documents: paths, levels, log p with a standard error |
| `draw_corpus` | documents from the prior |
"""

from lvsearch.inference.trees.agglomerate import MOST_DOCUMENTS, agglomerated_start
from lvsearch.inference.trees.chain import (
    TreeTrace,
    draw_paths,
    draw_start,
    run_chain,
    sample_tree,
    settle_levels,
)
from lvsearch.inference.trees.climb import climb
from lvsearch.inference.trees.corpus import TreeCorpus, swept
from lvsearch.inference.trees.density import Allocation, LogJoint, log_joint
from lvsearch.inference.trees.hyper import DirichletLevels, GEMLevels, TreeHyper, tree_hyper
from lvsearch.inference.trees.merge import merge_siblings
from lvsearch.inference.trees.occupied import hyper_of, level_names, occupied_nodes
from lvsearch.inference.trees.predict import NEW, DocumentPaths, TreeTopics, describe_documents, tree_topics
from lvsearch.inference.trees.sampler import TreeSampler
from lvsearch.inference.trees.simulate import draw_corpus
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
    "swept",
    "tree_hyper",
    "tree_topics",
]
