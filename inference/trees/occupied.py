"""Nodes of a tree of topics that some document passes, level by level, and draws of trees, by collapsed Gibbs
sampling."""

import jax
import numpy as np
from jaxtyping import Array, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.generators import generator
from lvsearch.inference.mixtures.partitions import log_block_count_prior
from lvsearch.inference.processes import LogPrior, OccupiedSampler, occupied_sampler, process_sampler
from lvsearch.inference.sampling import run
from lvsearch.inference.trees.agglomerate import MOST_DOCUMENTS, agglomerated_start
from lvsearch.inference.trees.chain import draw_start
from lvsearch.inference.trees.corpus import TreeCorpus
from lvsearch.inference.trees.density import Allocation
from lvsearch.inference.trees.hyper import TreeHyper, tree_hyper
from lvsearch.inference.trees.sampler import TreeRecorder, TreeSampler
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
    hyper, corpus = hyper_of(model), TreeCorpus.of(counts_of(data))
    if hyper.depth < 2:
        raise ValueError("got a tree of depth 1, expected at least 2: the root alone has no branches to count")

    def chain(key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
        key_start, key_sweeps = jax.random.split(key)
        sampler = TreeSampler(corpus, hyper, (_start(corpus, hyper, key_start, number),))
        record = TreeRecorder.of(sampler, units=False)
        trace = run(sampler, key_sweeps, chains=1, draws=sweeps, warmup=0, recorder=record)
        if trace.draws < sweeps:
            raise KeyboardInterrupt  # who asked for a whole chain cannot go on with a part of it
        return trace["nodes"][0, :, 1:].astype(np.int64)

    def log_prior(most: int) -> tuple[LogPrior, ...]:
        """Of branches below the root, one table each; deeper levels have no closed form."""
        first = log_block_count_prior(corpus.counts.shape[0], hyper.branching, most)
        return (first, *[None] * (hyper.depth - 2))

    return OccupiedSampler(level_names(hyper.depth), chain, log_prior)


@process_sampler.register
def trees(model: HLDA, data: Dataset, key: Array, *, chains: int, units: bool) -> tuple[TreeSampler, TreeRecorder]:
    """Collapsed Gibbs sampling from the same starts. Raises ValueError as `hyper_of` does."""
    hyper, corpus = hyper_of(model), TreeCorpus.of(counts_of(data))
    starts = (_start(corpus, hyper, jax.random.fold_in(key, number), number) for number in range(chains))
    sampler = TreeSampler(corpus, hyper, tuple(starts))
    return sampler, TreeRecorder.of(sampler, units=units)


def _start(corpus: TreeCorpus, hyper: TreeHyper, key: Array, number: int) -> Allocation:
    """Of chain `number`."""
    if number == 0 and corpus.counts.shape[0] <= MOST_DOCUMENTS:
        return agglomerated_start(corpus.counts, hyper)
    branchings = (None, 1e-9, max(10.0, 10 * hyper.branching), None)  # few, and γ log(documents / γ) at first
    return draw_start(generator(key), corpus.counts, hyper, branchings[number % len(branchings)])
