"""Chains of sweeps: starts, growth of the layout, hyper-parameters, temperatures, restarts; the best state kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float

from lvsearch.inference.generators import generator
from lvsearch.inference.trees.books import TreeBooks
from lvsearch.inference.trees.density import Allocation, check_allocation, log_joint
from lvsearch.inference.trees.hyper import GEMLevels, TreeHyper
from lvsearch.inference.trees.merge import merge_siblings
from lvsearch.inference.trees.relevel import relevel, relevel_anew
from lvsearch.inference.trees.state import (
    Layout,
    TreeState,
    allocation_of,
    levels_of,
    room,
    state_of,
    tokens_of,
)
from lvsearch.inference.trees.sweep import tables_of, tree_sweep
from lvsearch.inference.trees.updates import FIXED, TreePriors, draw_hyper, log_hyper_prior

CELLS_STEP = 1024
SETTLED_SHARE = 0.05
"""A word in this share of the documents starts at the root with probability 1/2."""


@dataclass(frozen=True)
class TreeTrace:
    """What a chain visited; arrays have one entry per *scored* state, the start first.

    | field | meaning |
    |---|---|
    | `sweep` | sweeps before each scored state |
    | `log_joint` | log p(w, z, c) at the state's hyper-parameters, plus their log prior where drawn, nats |
    | `nodes` | (scored, level): nodes in use |
    | `seconds` | of sampling up to each scored state; scoring is not counted |
    | `best`, `best_hyper`, `best_log_joint` | the scored state of the highest `log_joint` |
    | `last`, `last_hyper` | where the chain ended |
    | `nodes_each` | (sweep, level): nodes in use after *every* sweep |
    | `kept` | (allocation, hyper) after every `keep`-th sweep; empty unless asked for |
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


class TreeSampler:
    """A corpus at hand for sweeps: its tokens, the current state and layout.

    `step` is one sweep; `allocation` is where it stands. `run_chain` and `sample_tree` are what most callers want.
    """

    def __init__(self, counts: scipy.sparse.csr_array, hyper: TreeHyper, start: Allocation):
        self.counts = canonical(counts)
        check_allocation(self.counts, start, hyper.depth)
        self.tokens = tokens_of(self.counts)
        self.state, self.layout = state_of(
            self.tokens, self.counts.shape[1], levels_of(self.counts, start.level_counts), start.paths
        )
        word_totals = np.bincount(self.tokens.word, minlength=1)
        # lengths that the corpus decides are rounded up, so that similar corpora share a program
        self._word_total, self._n_tokens = 1 << int(word_totals.max()).bit_length(), len(self.tokens.word)
        spare = -len(self.tokens.cell_word) % CELLS_STEP
        self._padded = self.tokens._replace(cell_word=np.pad(self.tokens.cell_word, (0, spare)))
        self._longest = _padded(np.diff(self.counts.indptr))
        self._most_tokens = _padded(np.diff(self.tokens.doc_tokens))
        self.set_hyper(hyper)

    def set_hyper(self, hyper: TreeHyper, inverse_temperature: float = 1.0) -> None:
        """Sweeps from here on are at these values."""
        self.hyper, self._tempered = hyper, inverse_temperature != 1.0
        n_docs, n_words = self.counts.shape[0], self.counts.shape[1]
        with jax.enable_x64(True):
            tables = tables_of(hyper, n_words, n_docs, self._word_total, self._n_tokens, inverse_temperature)
            self._tables = jax.tree.map(jax.numpy.asarray, tables)

    def step(self, key: Array, *, paths_fixed: bool = False) -> None:
        """One sweep over all documents (of their levels alone, if so); the layout grows where places run out, and
        shrinks where half of them would do.
        """
        first, n_docs = 0, self.counts.shape[0]
        with jax.enable_x64(True):
            while first < n_docs:
                state, stopped = tree_sweep(
                    key,
                    self._padded,
                    self.state,
                    self._tables,
                    np.int32(first),
                    layout=self.layout,
                    longest=self._longest,
                    most_tokens=self._most_tokens,
                    sticks=isinstance(self.hyper.levels, GEMLevels),
                    tempered=self._tempered,
                    paths_fixed=paths_fixed,
                )
                self.state, first = state, int(stopped)
                if first < n_docs:
                    self.state, self.layout = self._laid_out(self.layout)
        lengths = [b - a for a, b in zip(self.layout[:-1], self.layout[1:], strict=True)]
        if any(2 * room(n, level) <= lengths[level] for level, n in enumerate(self.nodes)):
            self.state, self.layout = self._laid_out(None)

    def restart(self, allocation: Allocation) -> None:
        """Go on from another allocation of the same corpus."""
        levels = levels_of(self.counts, allocation.level_counts)
        self.state, self.layout = state_of(
            self.tokens, self.counts.shape[1], levels, allocation.paths, least=self.layout
        )

    def _laid_out(self, least: Layout | None) -> tuple[TreeState, Layout]:
        levels, paths = np.asarray(self.state.levels), np.asarray(self.state.paths)
        return state_of(self.tokens, self.counts.shape[1], levels, paths, least=least)

    @property
    def allocation(self) -> Allocation:
        return allocation_of(self.tokens, self.state)

    @property
    def nodes(self) -> list[int]:
        """Nodes in use at each level."""
        used = np.asarray(self.state.documents) > 0
        return [int(used[a:b].sum()) for a, b in zip(self.layout[:-1], self.layout[1:], strict=True)]


def _padded(lengths: np.ndarray) -> int:
    return max(16, -(-int(lengths.max(initial=0)) // 16) * 16)


def canonical(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Counts as every function here reads them: sorted indices, no stored zeros, whole numbers ≥ 0."""
    matrix = scipy.sparse.csr_array(scipy.sparse.csr_array(counts).astype(np.int64))
    if matrix.shape[0] < 1 or matrix.shape[1] < 1:
        raise ValueError(f"got counts of shape {matrix.shape}, expected at least one document and one word")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if np.any(matrix.data < 0):
        raise ValueError("got negative counts, expected whole numbers ≥ 0")
    matrix.sort_indices()
    return matrix


def draw_paths(rng: np.random.Generator, n_docs: int, depth: int, branching: float) -> np.ndarray:
    """Paths (docs, depth) from the nested Chinese restaurant process, nodes numbered in order of appearance."""
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
    """Where a chain begins: paths from the prior, words that many documents share at the root.

    A token of a word that a share f of the documents have starts at the root with probability f / (f + 0.05), else at
    any deeper level: without it, function words take hundreds of sweeps to leave the leaves.
    branching: γ of the paths drawn, that of `hyper` where None; a larger one starts from more, narrower topics.
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
    """`sweeps` sweeps of one chain, its states scored every `score_every` and at the end.

    start: an allocation, else `draw_start` with `start_branching`. priors: hyper-parameters with a prior are drawn
    after every sweep. temperatures: of the first sweeps, one each; 1 draws from the posterior, more flattens it
    (annealing). keep: keep every so many sweeps' allocation. merge_every: after every so many sweeps merge siblings
    where that gains (`merge_siblings`): to find modes; draws are then not from the posterior. Raises ValueError for bad
    counts, starts and settings.
    """
    if sweeps < 0 or score_every < 1 or keep < 0:
        raise ValueError(f"got sweeps={sweeps}, score_every={score_every}, keep={keep}; expected ≥ 0, ≥ 1, ≥ 0")
    if any(not temperature > 0 for temperature in temperatures):
        raise ValueError(f"got temperatures {list(temperatures)}, expected positive numbers")
    counts = canonical(counts)
    key_start, key_sweeps, key_hyper = jax.random.split(key, 3)
    rng = generator(key_hyper)
    if start is None:
        start = draw_start(generator(key_start), counts, hyper, start_branching)
    sampler = TreeSampler(counts, hyper, start)
    score = log_posterior(counts, start, hyper, priors)
    visited = [(0, score, sampler.nodes, 0.0)]
    best, nodes_each, kept, seconds = (score, start, hyper), [], [], 0.0
    for number in range(1, sweeps + 1):
        begun = perf_counter()
        hot = number <= len(temperatures)
        if hot or number == len(temperatures) + 1:
            sampler.set_hyper(sampler.hyper, 1 / float(temperatures[number - 1]) if hot else 1.0)
        sampler.step(jax.random.fold_in(key_sweeps, number))
        if priors != FIXED:
            inverse = 1 / float(temperatures[number - 1]) if hot else 1.0
            sampler.set_hyper(draw_hyper(rng, counts, sampler.allocation, sampler.hyper, priors), inverse)
        if merge_every and number % merge_every == 0:
            sampler.restart(merge_siblings(counts, sampler.allocation, sampler.hyper))
        seconds += perf_counter() - begun
        nodes_each.append(sampler.nodes)
        if number % score_every == 0 or number == sweeps:
            allocation = sampler.allocation
            score = log_posterior(counts, allocation, sampler.hyper, priors)
            visited.append((number, score, sampler.nodes, seconds))
            if score > best[0]:
                best = (score, allocation, sampler.hyper)
        if keep and number % keep == 0:
            kept.append((sampler.allocation, sampler.hyper))
    columns = list(zip(*visited, strict=True))
    return TreeTrace(
        *(np.array(column) for column in columns),
        best=best[1],
        best_hyper=best[2],
        best_log_joint=best[0],
        last=sampler.allocation,
        last_hyper=sampler.hyper,
        nodes_each=np.array(nodes_each, np.int64).reshape(sweeps, hyper.depth),
        kept=tuple(kept),
    )


def log_posterior(
    counts: scipy.sparse.csr_array, allocation: Allocation, hyper: TreeHyper, priors: TreePriors
) -> float:
    """log p(w, z, c | hyper-parameters) + log of the prior density of those that are drawn, nats.

    Without the second term the best of states with different hyper-parameters is the one whose hyper-parameters fit it
    best, however improbable they are.
    """
    return log_joint(counts, allocation, hyper).total + log_hyper_prior(hyper, priors)


COOLING = (*np.linspace(1.0, 0.1, 10).tolist(), *(0.05,) * 5)


def settle_levels(
    counts: scipy.sparse.csr_array, hyper: TreeHyper, allocation: Allocation, key: Array, passes: int = 4
) -> Allocation:
    """The same paths with their levels optimised; the best state by its density. What two trees get alike before they
    are compared.

    Blocks of levels first (`relevel_anew`); then, `passes` times, sweeps of levels alone, cooled to almost no
    temperature, and blocks again.
    """
    counts = canonical(counts)
    books = TreeBooks(counts, hyper, allocation)
    relevel_anew(books)
    best = max([allocation, books.allocation], key=lambda each: log_joint(counts, each, hyper).total)
    score = log_joint(counts, best, hyper).total
    sampler = TreeSampler(counts, hyper, best)
    for number in range(passes):
        for position, temperature in enumerate(COOLING):
            sampler.set_hyper(hyper, 1 / temperature)
            sampler.step(jax.random.fold_in(key, number * len(COOLING) + position), paths_fixed=True)
        books.load(sampler.allocation)
        relevel(books)
        if books.score() > score:
            best, score = books.allocation, books.score()
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
    """Several chains from starts of their own, the one with the best state first.

    starts: of the first chains, such as `agglomerated_start`; the others draw their own, with start_branchings, taken
    in turn, as the γ of their paths. Otherwise as `run_chain`.
    """
    if chains < 1:
        raise ValueError(f"got chains={chains}, expected at least 1")
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
