"""The samplers of topic trees for `lvsearch.occupied` and `lvsearch.sample`: numbers of nodes at each level, and
trees.
"""

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
    """Return the hyper-parameters γ, α and η of a model, as numbers.

    Raises ValueError for a model whose paths have several lengths, because the sampler's paths all reach the deepest
    level.
    """
    if model.lengths != (model.depth,):
        raise ValueError(
            f"got paths of {', '.join(map(str, model.lengths))} levels; the sampler's all reach level {model.depth}: "
            "leave lengths out, or use lv.fit"
        )
    return tree_hyper(model.depth, float(model.branching), model.levels, model.topics)


def level_names(depth: int) -> tuple[str, ...]:
    """Return names of the numbers counted in a tree of `depth` levels: the nodes of each level below the root (level
    0).
    """
    return tuple(f"nodes at level {level}" for level in range(1, depth))


@occupied_sampler.register
def occupied_nodes(model: HLDA, data: Dataset) -> OccupiedSampler:
    """Return the sampler of how many nodes at each level some document's path passes. Levels are numbered from the
    root, 0.

    Chain 0 begins with a dendrogram's tree, chain 1 with one path for all documents, chain 2 with many branches, chain
    3 with a tree drawn from the prior.

    Raises ValueError for a tree of one level, and for paths of several lengths.
    """
    hyper, corpus = hyper_of(model), TreeCorpus.from_counts(counts_of(data))
    if hyper.depth < 2:
        raise ValueError("got a tree of depth 1, expected at least 2: the root alone has no branches to count")

    def chain(key: Array, number: int, sweeps: int) -> Int[np.ndarray, "sweep name"]:
        key_start, key_sweeps = jax.random.split(key)
        sampler = TreeSampler(corpus, hyper, (_start_of_chain(corpus, hyper, key_start, number),))
        record = TreeRecorder.for_sampler(sampler, units=False)
        trace = run(sampler, key_sweeps, chains=1, draws=sweeps, warmup=0, recorder=record)
        if trace.draws < sweeps:
            raise KeyboardInterrupt  # the loop was interrupted: a caller that asked for a whole chain cannot use a part
        return trace["nodes"][0, :, 1:].astype(np.int64)

    def log_prior(most: int) -> tuple[LogPrior, ...]:
        """Return for each level the log prior of 1, …, `most` nodes in nats; None below the first level, where none is
        known.
        """
        first = log_block_count_prior(corpus.counts.shape[0], hyper.branching, most)
        return (first, *[None] * (hyper.depth - 2))

    return OccupiedSampler(level_names(hyper.depth), chain, log_prior)


@process_sampler.register
def trees(model: HLDA, data: Dataset, key: Array, *, chains: int, units: bool) -> tuple[TreeSampler, TreeRecorder]:
    """Return the collapsed Gibbs sampler of trees with all chains side by side, and the recorder of its draws.

    Chains 0, 1, 2 and 3 begin as those of `occupied_nodes`: dendrogram, one path, many branches, draw from the prior.

    key: the random key of the starts.
    chains: how many chains run.
    units: True to record the levels of all tokens and the paths of all documents too.

    Raises ValueError for paths of several lengths.
    """
    hyper, corpus = hyper_of(model), TreeCorpus.from_counts(counts_of(data))
    starts = (_start_of_chain(corpus, hyper, jax.random.fold_in(key, number), number) for number in range(chains))
    sampler = TreeSampler(corpus, hyper, tuple(starts))
    return sampler, TreeRecorder.for_sampler(sampler, units=units)


def _start_of_chain(corpus: TreeCorpus, hyper: TreeHyper, key: Array, number: int) -> Allocation:
    """Return the paths and levels that chain `number` begins with: from a dendrogram (number 0), or drawn."""
    if number == 0 and corpus.counts.shape[0] <= MOST_DOCUMENTS:
        return agglomerated_start(corpus.counts, hyper)
    # γ of the paths drawn: the prior's, one that gives a single path, one that gives many branches
    branchings = (None, 1e-9, max(10.0, 10 * hyper.branching), None)
    return draw_start(generator(key), corpus.counts, hyper, branchings[number % len(branchings)])
