"""Chains over trees of topics from beginning to end: their starts, temperatures, best states and traces.

The samplers for `lvsearch.occupied` (numbers of nodes at each level) and for `lvsearch.sample` (trees) are here. They
run such chains from several starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from lvsearch.inference.data.dataset import Dataset
from lvsearch.inference.data.documents import counts_of
from lvsearch.inference.generators import generator
from lvsearch.inference.mixtures.partitions import log_block_count_prior
from lvsearch.inference.processes import LogPrior, OccupiedSampler
from lvsearch.inference.sampling import Trace, run_one_chain
from lvsearch.inference.trees.allocated_tree import AllocatedTree, relevel, relevel_anew
from lvsearch.inference.trees.corpus import TreeCorpus, sweep_documents
from lvsearch.inference.trees.density import Allocation, GEMLevels, TreeHyper, check_allocation, log_joint, tree_hyper
from lvsearch.inference.trees.sampler import TreeRecorder, Trees, TreeSampler, split_chains
from lvsearch.inference.trees.starts import MOST_DOCUMENTS, agglomerated_start
from lvsearch.inference.trees.updates import FIXED, TreePriors
from lvsearch.models.hlda import HLDA

SETTLED_SHARE = 0.05
"""A word that this share of the documents have starts at the root with probability 1/2."""


@dataclass(frozen=True)
class TreeTrace:
    """The states that a chain over trees visited. Arrays have one entry per *scored* state, the start first.

    | field | meaning |
    |---|---|
    | `sweep` | sweeps before each scored state |
    | `log_joint` | log p(words, levels, paths), plus the log prior of hyper-parameters that are drawn, nats |
    | `nodes` | (scored, level): nodes that some document's path passes |
    | `seconds` | of sampling, and of the scores in between, up to each scored state |
    | `best`, `best_hyper`, `best_log_joint` | the best scored state, its hyper-parameters, its `log_joint` |
    | `last`, `last_hyper` | the state in which the chain ended, and its hyper-parameters |
    | `nodes_each` | (sweep, level): nodes in use after *every* sweep |
    | `kept` | (allocation, hyper) after every `keep`-th sweep; empty unless asked for |
    | `trace` | the chain in the form of the one run loop: one chain, a draw for every sweep |
    """

    sweep: np.ndarray
    log_joint: np.ndarray
    nodes: np.ndarray
    seconds: np.ndarray
    best: Allocation
    best_hyper: TreeHyper
    best_log_joint: float
    last: Allocation
    last_hyper: TreeHyper
    nodes_each: np.ndarray
    kept: tuple[tuple[Allocation, TreeHyper], ...]
    trace: Trace


def draw_paths(rng: np.random.Generator, n_docs: int, depth: int, branching: float) -> np.ndarray:
    """Draw a path through a tree for each document from the nested Chinese restaurant process, (document, level).

    Entries are numbers of nodes, in order of appearance; the root is 0.

    depth: how many levels the tree has.
    branching: γ, the concentration; larger values open more branches.
    """
    paths = np.zeros((n_docs, depth), np.int64)
    customers, children = [0], [[]]
    for d in range(n_docs):
        node = 0
        customers[0] += 1
        for level in range(1, depth):
            tables = children[node]
            weights = np.array([*(customers[t] for t in tables), branching], np.float64)
            chosen = int(rng.choice(len(weights), p=weights / weights.sum()))
            if chosen == len(tables):
                tables.append(len(customers))
                customers.append(0)
                children.append([])
            node = tables[chosen]
            customers[node] += 1
            paths[d, level] = node
    return paths


def draw_start(
    rng: np.random.Generator, counts: scipy.sparse.csr_array, hyper: TreeHyper, branching: float | None = None
) -> Allocation:
    """Draw a state to start a chain from: paths from the prior, and words that many documents share at the root.

    A token of a word that a share f of the documents have starts at the root with probability f / (f + 0.05), else at
    any deeper level. Without this, function words take hundreds of sweeps to leave the leaves.

    counts: the count of each word in each document, (document, word).
    hyper: the hyper-parameters.
    branching: γ of the paths drawn; None for that of `hyper`. A larger one starts from more, narrower topics.
    """
    n_docs, depth = counts.shape[0], hyper.depth
    share = np.bincount(counts.indices, minlength=counts.shape[1]) / n_docs
    level_counts = np.zeros((len(counts.data), depth), np.int64)
    if depth == 1:
        level_counts[:, 0] = counts.data
    else:
        at_root = share[counts.indices]
        at_root = at_root / (at_root + SETTLED_SHARE)
        copies = np.asarray(counts.data, np.int64)
        level_counts[:, 0] = rng.binomial(copies, at_root)
        level_counts[:, 1:] = rng.multinomial(copies - level_counts[:, 0], np.full(depth - 1, 1 / (depth - 1)))
    return Allocation(draw_paths(rng, n_docs, depth, hyper.branching if branching is None else branching), level_counts)


def run_chain(
    counts: scipy.sparse.csr_array,
    hyper: TreeHyper,
    key: Array,
    *,
    sweeps: int,
    start: Allocation | None = None,
    start_branching: float | None = None,
    priors: TreePriors = FIXED,
    temperatures: Sequence[float] | Float[np.ndarray, " sweeps"] = (),
    score_every: int = 10,
    keep: int = 0,
    merge_every: int = 0,
) -> TreeTrace:
    """Make `sweeps` sweeps of one chain over trees, and return the states it visited.

    counts: the count of each word in each document, (document, word), whole numbers.
    hyper: the hyper-parameters to begin with.
    key: the random key of the chain.
    start: paths and levels to begin with; None draws them by `draw_start` with `start_branching`.
    start_branching: γ of a drawn start; None for that of `hyper`.
    priors: hyper-parameters with a prior are drawn after every sweep.
    temperatures: of the first sweeps, one each. 1 draws from the posterior, more flattens it (annealing).
    score_every: the state is scored every so many sweeps and at the end, and the best one is kept.
    keep: keep the allocation after every `keep`-th sweep, 0 for none.
    merge_every: after every `merge_every`-th sweep, merge siblings if that raises the joint probability, 0 for never.
        This finds modes, but draws are then not from the posterior.

    Raises ValueError for bad counts, starts and settings.
    """
    if sweeps < 0 or score_every < 1 or keep < 0 or merge_every < 0:
        raise ValueError(
            f"got sweeps={sweeps}, score_every={score_every}, keep={keep}, merge_every={merge_every}; "
            "expected ≥ 0, ≥ 1, ≥ 0, ≥ 0"
        )
    if any(not temperature > 0 for temperature in temperatures):
        raise ValueError(f"got temperatures {list(temperatures)}, expected positive numbers")
    corpus = TreeCorpus.from_counts(counts)
    key_start, key_sweeps = jax.random.split(key)
    if start is None:
        start = draw_start(generator(key_start), corpus.counts, hyper, start_branching)
    check_allocation(corpus.counts, start, hyper.depth)
    sampler = TreeSampler(
        corpus, hyper, (start,), priors, tuple(float(t) for t in temperatures), merge_every, score_every
    )
    record = TreeRecorder.for_sampler(sampler, units=keep > 0)
    trace, seconds = run_one_chain(sampler, key_sweeps, sweeps, record)
    (begin,) = split_chains(sampler.init(key, 1))
    (end,) = split_chains(jax.tree.unflatten(jax.tree.structure(begin), trace.state))
    scores = np.concatenate([sampler.log_density(sampler.init(key, 1)), trace.log_density[0]])
    scored = np.unique([*range(0, sweeps, score_every), sweeps])
    best, best_score = (end.now, scores[-1]) if scores[-1] > end.best_log_joint else (end.best, end.best_log_joint)
    allocation, best_hyper = sampler.read(best)
    last, last_hyper = sampler.read(end.now)
    nodes = trace["nodes"][0].astype(np.int64)
    first = [len(np.unique(column)) for column in start.paths.T]
    return TreeTrace(
        scored,
        scores[scored],
        np.concatenate([[first], nodes])[scored],
        np.cumsum([0.0, *seconds])[scored],
        allocation,
        best_hyper,
        float(best_score),
        last,
        last_hyper,
        nodes,
        tuple(sampler.read(one) for one in _read_kept(trace, end.now, keep)) if keep else (),
        trace,
    )


def _read_kept(trace: Trace, end: Trees, keep: int) -> list[Trees]:
    """Return the states of one chain after every `keep`-th sweep."""
    drawn = {name: trace[name][0, keep - 1 :: keep] for name in Trees._fields if name in trace.names}
    return [end._replace(**{name: values[i] for name, values in drawn.items()}) for i in range(trace.draws // keep)]


COOLING = (*np.linspace(1.0, 0.1, 10).tolist(), *(0.05,) * 5)
"""The temperatures of the sweeps by which levels are cooled."""


def settle_levels(
    counts: scipy.sparse.csr_array, hyper: TreeHyper, allocation: Allocation, key: Array, passes: int = 4
) -> Allocation:
    """Optimise the levels of all tokens at fixed paths, and return the state with the highest density.

    It makes two trees comparable: both get the same treatment. Blocks of levels come first (`relevel_anew`). Then,
    `passes` times, sweeps of levels alone are cooled to almost no temperature, and blocks follow again.

    counts: the count of each word in each document, (document, word).
    hyper: the hyper-parameters.
    allocation: the state to start from.
    key: the random key of the sweeps.
    """
    corpus = TreeCorpus.from_counts(counts)
    tree = AllocatedTree(corpus.counts, hyper, allocation)
    relevel_anew(tree)
    best = max([allocation, tree.allocation], key=lambda each: log_joint(corpus.counts, each, hyper).total)
    score = log_joint(corpus.counts, best, hyper).total
    levels, paths, sticks = corpus.levels(best), best.paths, isinstance(hyper.levels, GEMLevels)
    cooled = [corpus.tables(hyper, 1 / temperature) for temperature in COOLING]
    for number in range(passes):
        for position, tables in enumerate(cooled):
            one = jax.random.fold_in(key, number * len(COOLING) + position)
            levels, paths = sweep_documents(corpus, levels, paths, tables, one, sticks=sticks, paths_fixed=True)
        tree.load(corpus.allocation(levels, paths))
        relevel(tree)
        if tree.score() > score:
            best, score = tree.allocation, tree.score()
    return best


def sample_tree(
    counts: scipy.sparse.csr_array,
    hyper: TreeHyper,
    key: Array,
    *,
    sweeps: int,
    chains: int = 1,
    priors: TreePriors = FIXED,
    temperatures: Sequence[float] = (),
    starts: Sequence[Allocation] = (),
    start_branchings: Sequence[float | None] = (None,),
    keep: int = 0,
    merge_every: int = 0,
) -> tuple[TreeTrace, ...]:
    """Run several chains over trees, each from its own start, and return their traces, the one with the best state
    first.

    counts: the count of each word in each document, (document, word), whole numbers.
    hyper: the hyper-parameters to begin with.
    key: the random key of all chains.
    sweeps: how many sweeps each chain makes.
    chains: how many chains there are.
    priors: hyper-parameters with a prior are drawn after every sweep.
    temperatures: of the first sweeps, one each; above 1 flattens the posterior.
    starts: of the first chains, such as `agglomerated_start`. The others draw their own.
    start_branchings: the γ of the paths of drawn starts, taken in turn.
    keep: keep the allocation after every `keep`-th sweep, 0 for none.
    merge_every: sweeps between merges of siblings, 0 for none; draws are then not from the posterior.

    Raises ValueError for fewer than one chain, no entry of `start_branchings`, and bad counts, starts and settings.
    """
    if chains < 1:
        raise ValueError(f"got chains={chains}, expected at least 1")
    if not len(start_branchings):
        raise ValueError("got no start_branchings, expected at least one: a γ, or None for that of `hyper`")
    traces = [
        run_chain(
            counts,
            hyper,
            jax.random.fold_in(key, number),
            sweeps=sweeps,
            start=starts[number] if number < len(starts) else None,
            start_branching=start_branchings[number % len(start_branchings)],
            priors=priors,
            temperatures=temperatures,
            keep=keep,
            merge_every=merge_every,
        )
        for number in range(chains)
    ]
    return tuple(sorted(traces, key=lambda trace: -trace.best_log_joint))


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
        trace, _ = run_one_chain(sampler, key_sweeps, sweeps, record)
        return trace["nodes"][0, :, 1:].astype(np.int64)

    def log_prior(most: int) -> tuple[LogPrior, ...]:
        """Return for each level the log prior of 1, …, `most` nodes in nats; None below the first level, where none is
        known.
        """
        first = log_block_count_prior(corpus.counts.shape[0], hyper.branching, most)
        return (first, *[None] * (hyper.depth - 2))

    return OccupiedSampler(level_names(hyper.depth), chain, log_prior)


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
