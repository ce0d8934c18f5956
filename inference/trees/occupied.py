"""Nodes of a tree of topics that some document passes, level by level, by collapsed Gibbs sampling."""

import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.data import Dataset
from lvsearch.inference.documents import counts_of
from lvsearch.inference.mixtures.partitions import log_block_count_prior
from lvsearch.inference.processes import LogPrior, OccupiedSampler, occupied_sampler
from lvsearch.inference.trees.agglomerate import MOST_DOCUMENTS, agglomerated_start
from lvsearch.inference.trees.chain import canonical, run_chain
from lvsearch.inference.trees.hyper import TreeHyper, tree_hyper
from lvsearch.models.hlda import HLDA


def hyper_of(model: HLDA) -> TreeHyper:
    """γ, α and η of a model. Raises ValueError for one whose paths have several lengths: the sampler's all reach the
    deepest level."""
    if model.lengths != (model.depth,):
        raise ValueError(
            f"got paths of {', '.join(map(str, model.lengths))} levels; the sampler's all reach level {model.depth}: "
            "leave lengths out, or use lv.fit"
        )
    return tree_hyper(model.depth, float(model.branching), model.levels, model.topics)


def level_names(depth: int) -> tuple[str, ...]:
    """What is counted in a tree of `depth` levels: the nodes of each but the root's, 0."""
    return tuple(f"nodes at level {level}" for level in range(1, depth))


@occupied_sampler.register
def occupied_nodes(model: HLDA, data: Dataset) -> OccupiedSampler:
    """Levels are numbered from the root, 0. Chains begin with a dendrogram's tree, one path for all, many branches, and
    a tree drawn from the prior. Raises ValueError for a tree of one level, and as `hyper_of` does."""
    hyper, counts = hyper_of(model), canonical(counts_of(data))
    if hyper.depth < 2:
        raise ValueError("got a tree of depth 1, expected at least 2: the root alone has no branches to count")
    branchings = (None, 1e-9, max(10.0, 10 * hyper.branching), None)  # few, and γ log(documents / γ) at first

    def chain(key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
        dendrogram = number == 0 and counts.shape[0] <= MOST_DOCUMENTS
        start = agglomerated_start(counts, hyper) if dendrogram else None
        branching = branchings[number % len(branchings)]
        trace = run_chain(
            counts, hyper, key, sweeps=sweeps, start=start, start_branching=branching, score_every=max(sweeps, 1)
        )
        return trace.nodes_each[:, 1:]

    def log_prior(most: int) -> tuple[LogPrior, ...]:
        """Of branches below the root, one table each; deeper levels have no closed form."""
        first = log_block_count_prior(counts.shape[0], hyper.branching, most)
        return (first, *[None] * (hyper.depth - 2))

    return OccupiedSampler(level_names(hyper.depth), chain, log_prior)
