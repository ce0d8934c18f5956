"""The sampler of topic trees for the one run loop: sweeps, draws of hyper-parameters, chains side by side.

Before sampling, trees climb by merging siblings, which takes very long one document at a time. Gibbs sampling moves one
document at a time, and two nodes with the same topic persist as long as neither loses all its documents. A merge lets
the documents of one node pass the other from then on, and their children become siblings. With levels kept, it changes
log p(words, levels, paths) by closed forms. For siblings a and b at level ℓ with n_a and n_b documents, concentration
γ, and f the log Dirichlet-multinomial of a node's word counts (also called n here), they are

    words   f(n_a + n_b) − f(n_a) − f(n_b)

    paths   log Γ(n_a + n_b) − log Γ(n_a) − log Γ(n_b) − log γ, and for inner nodes
            log Γ(γ + n_a) + log Γ(γ + n_b) − log Γ(γ + n_a + n_b) − log Γ(γ)

The best merge is made as long as one gains. This finds modes: it is no step of a chain that samples a posterior.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import ClassVar, NamedTuple

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float64, Int, Int8, Int32
from scipy.special import gammaln

from lvsearch.inference.data.documents import row_of_each_nonzero
from lvsearch.inference.generators import generator
from lvsearch.inference.sampling import Quantity, Recorder
from lvsearch.inference.trees.corpus import TreeCorpus, sweep_documents
from lvsearch.inference.trees.density import Allocation, DirichletLevels, GEMLevels, TreeHyper, log_joint
from lvsearch.inference.trees.sweep import SweepTables
from lvsearch.inference.trees.updates import FIXED, TreePriors, draw_hyper, log_hyper_prior


class Trees(NamedTuple):
    """The trees, allocations and hyper-parameters of several chains side by side.

    | field | letter | shape | meaning |
    |---|---|---|---|
    | `levels` | z | (particle, token) | level of each token, tokens in the order of the stored counts |
    | `paths` | c | (particle, document, level) | nodes of each document's path, any labels |
    | `branching` | γ | (particle,) | concentration of the branching process |
    | `level_prior` | α, or (m, π) | (particle, parameter) | prior of the level proportions |
    | `topics` | η | (particle, level) | concentration of the topics at each level |
    """

    levels: Int8[np.ndarray, "*particle token"]
    paths: Int32[np.ndarray, "*particle document level"]
    branching: Float64[np.ndarray, "*particle"]
    level_prior: Float64[np.ndarray, "*particle parameter"]
    topics: Float64[np.ndarray, "*particle level"]


class TreeStates(NamedTuple):
    """The states of several chains side by side, with particles (chains) on the first axis.

    | field | meaning |
    |---|---|
    | `number` | how many sweeps were made |
    | `now` | the present trees |
    | `best`, `best_log_joint` | the best of the trees that were scored, and its log joint density, nats |
    """

    number: Int[np.ndarray, "*particle"]
    now: Trees
    best: Trees
    best_log_joint: Float64[np.ndarray, "*particle"]


@dataclass(frozen=True)
class TreeSampler:
    """A sampler of topic trees and allocations, with one chain from each of `starts`. It is `Hosted`: it runs in
    Python.

    | field | meaning |
    |---|---|
    | `corpus`, `hyper` | the documents, and the hyper-parameters to begin with |
    | `starts` | paths and levels that each chain begins with |
    | `priors` | hyper-parameters with a prior are drawn after every sweep |
    | `temperatures` | of the first sweeps, one each; those above 1 flatten the posterior and are no draws |
    | `merge_every` | sweeps between merges of siblings that gain, 0 for none; draws are then not from the posterior |
    | `score_every` | sweeps between looks for the best state, 0 for none |
    """

    corpus: TreeCorpus
    hyper: TreeHyper
    starts: tuple[Allocation, ...]
    priors: TreePriors = FIXED
    temperatures: tuple[float, ...] = ()
    merge_every: int = 0
    score_every: int = 0

    hosted: ClassVar[bool] = True

    def init(self, key: Array, particles: int) -> TreeStates:
        """Return the starts as states; `key` is not used.

        Raises ValueError if `particles`, the number of chains, is not the number of starts.
        """
        if particles != len(self.starts):
            raise ValueError(f"got {particles} chains, expected one for each of {len(self.starts)} starts")
        return _stack_chains([self._start_chain(start) for start in self.starts])

    def step(self, key: Array, state: TreeStates, temperature: Array, *, backward: bool) -> TreeStates:
        """Draw each chain's paths and levels, then its hyper-parameters, and return the new states.

        temperature: a number, (), not used; the field `temperatures` says which sweeps are tempered.
        backward: not used.
        """
        chains = split_chains(state)
        pairs = zip(jax.random.split(key, len(chains)), chains, strict=True)
        return _stack_chains([self._sweep_chain(k, one) for k, one in pairs])

    def log_density(self, state: TreeStates) -> Float64[np.ndarray, " particle"]:
        """Return log p(words, levels, paths) of each chain, (particle,), in nats, topics and proportions integrated
        out.

        It is at each state's hyper-parameters, plus the log prior density of those that are drawn.
        """
        return np.array([self.score(*self.read(one.now)) for one in split_chains(state)])

    def score(self, allocation: Allocation, hyper: TreeHyper) -> float:
        """Return log p(words, levels, paths) of one state plus the log prior of the hyper-parameters that are drawn, in
        nats.

        Without this prior, the best of several states would be the one whose hyper-parameters fit it best, however
        improbable they are.
        """
        return log_joint(self.corpus.counts, allocation, hyper).total + log_hyper_prior(hyper, self.priors)

    def read(self, one: Trees) -> tuple[Allocation, TreeHyper]:
        """Return one chain's state as (allocation, hyper-parameters), in the form that `log_joint` takes."""
        return self.corpus.allocation(one.levels, one.paths), self.hyper_of(one)

    def hyper_of(self, one: Trees) -> TreeHyper:
        """Return one chain's present hyper-parameters."""
        if self.priors == FIXED:
            return self.hyper
        levels, numbers = self.hyper.levels, one.level_prior
        if isinstance(levels, DirichletLevels):
            levels = DirichletLevels(np.array(numbers))
        else:
            levels = levels._replace(mean_share=float(numbers[0]), scale=float(numbers[1]))
        return TreeHyper(float(one.branching), levels, np.array(one.topics))

    @cached_property
    def _tables(self) -> SweepTables:
        """The tables in which sweeps look up log Γ at the given hyper-parameters, made once."""
        return self.corpus.tables(self.hyper)

    def _start_chain(self, start: Allocation) -> TreeStates:
        """Return the state of one chain at its start."""
        score = self.score(start, self.hyper) if self.score_every else -np.inf
        now = self._to_arrays(start, self.hyper)
        return TreeStates(np.asarray(0), now, now, np.asarray(score))

    def _sweep_chain(self, key: Array, one: TreeStates) -> TreeStates:
        """Return one chain's state after a sweep.

        Hyper-parameters that have priors are drawn, siblings merged and the best state updated as the settings ask.
        """
        key_sweep, key_hyper = jax.random.split(key)
        number, hyper = int(one.number) + 1, self.hyper_of(one.now)
        hot = number <= len(self.temperatures)
        inverse = 1 / self.temperatures[number - 1] if hot else 1.0
        tables = self._tables if self.priors == FIXED and not hot else self.corpus.tables(hyper, inverse)
        sticks = isinstance(hyper.levels, GEMLevels)
        levels, paths = sweep_documents(self.corpus, one.now.levels, one.now.paths, tables, key_sweep, sticks=sticks)
        now = one.now._replace(levels=levels.astype(np.int8), paths=paths)
        if self.priors != FIXED:
            allocation = self.corpus.allocation(levels, paths)
            hyper = draw_hyper(generator(key_hyper), self.corpus.counts, allocation, hyper, self.priors)
            now = self._to_arrays(allocation, hyper)
        if self.merge_every and number % self.merge_every == 0:
            merged = merge_siblings(self.corpus.counts, self.corpus.allocation(now.levels, now.paths), hyper)
            now = self._to_arrays(merged, hyper)
        moved = one._replace(number=np.asarray(number), now=now)
        if not self.score_every or number % self.score_every:
            return moved
        score = self.score(*self.read(now))
        return moved._replace(best=now, best_log_joint=np.asarray(score)) if score > one.best_log_joint else moved

    def _to_arrays(self, allocation: Allocation, hyper: TreeHyper) -> Trees:
        """Return one chain's allocation and hyper-parameters as arrays."""
        prior = hyper.levels
        numbers = prior.alpha if isinstance(prior, DirichletLevels) else np.array([prior.mean_share, prior.scale])
        return Trees(
            self.corpus.levels(allocation).astype(np.int8),
            np.unique(allocation.paths, return_inverse=True)[1].reshape(allocation.paths.shape).astype(np.int32),
            np.asarray(hyper.branching, np.float64),
            np.asarray(numbers, np.float64),
            np.asarray(hyper.topics, np.float64),
        )


class TreeRecorder(Recorder):
    """The recorder of trees: which numbers of each draw go into the trace.

    | quantity | meaning |
    |---|---|
    | `nodes` | nodes in use at each level, (level,) |
    | `branching`, `level_prior`, `topics` | hyper-parameters, recorded if they are drawn |
    | `levels`, `paths` | the level of each token and the path of each document; recorded only on request |
    """

    @classmethod
    def for_sampler(cls, sampler: TreeSampler, *, units: bool) -> "TreeRecorder":
        """Return the recorder for a sampler.

        units: True to record the levels of all tokens and the paths of all documents too.
        """
        depth, begin = sampler.hyper.depth, split_chains(sampler.init(jax.random.key(0), len(sampler.starts)))[0].now
        found = [Quantity("nodes", ("level",), (depth,), False)]
        if sampler.priors.branching is not None:
            found.append(Quantity("branching", (), (), False))
        if sampler.priors.levels is not None:
            found.append(Quantity("level_prior", ("parameter",), begin.level_prior.shape, False))
        if sampler.priors.topics is not None:
            found.append(Quantity("topics", ("level",), (depth,), False))
        if units:
            found.append(Quantity("levels", ("token",), begin.levels.shape, False))
            found.append(Quantity("paths", ("document", "level"), begin.paths.shape, True))
        return cls(tuple(found))

    def values(self, chain: TreeSampler, state: TreeStates) -> tuple[np.ndarray, ...]:
        """Return the recorded quantities of the present states, in the order of `quantities`, each (particle, …)."""
        nodes = np.array([[len(np.unique(column)) for column in paths.T] for paths in state.now.paths])
        found = {"nodes": nodes, **state.now._asdict()}
        return tuple(found[quantity.name] for quantity in self.quantities)


def split_chains(state: TreeStates) -> list[TreeStates]:
    """Return the state of each chain by itself, without the axis of particles."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], state) for i in range(len(state.number))]


def _stack_chains(chains: Sequence[TreeStates]) -> TreeStates:
    """Return the states of several chains side by side, with particles on the first axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *chains)


# ── merging siblings ──────────────────────────────────────────────────────────────────────────────────────────────────


def merge_siblings(counts: scipy.sparse.csr_array, allocation: Allocation, hyper: TreeHyper) -> Allocation:
    """Return the allocation after all merges of siblings that raise log p(words, levels, paths).

    Merges are made level by level from the root down. The levels of tokens are kept.

    counts: (docs, V) whole numbers, sorted indices, no stored zeros.
    allocation: paths and level counts to start from.
    hyper: the hyper-parameters.
    """
    paths = allocation.paths.copy()
    document = row_of_each_nonzero(counts)
    for level in range(1, hyper.depth):
        labels, at = np.unique(paths[:, level], return_inverse=True)
        table = np.zeros((len(labels), counts.shape[1]))
        np.add.at(table, (at[document], counts.indices), allocation.level_counts[:, level])
        words = dict(zip(labels.tolist(), table, strict=True))
        for parent in np.unique(paths[:, level - 1]).tolist():
            members = paths[:, level - 1] == parent
            _merge_children(paths, members, level, words, hyper)
    return allocation._replace(paths=paths)


def _merge_children(
    paths: np.ndarray, members: np.ndarray, level: int, words: dict[int, np.ndarray], hyper: TreeHyper
) -> None:
    """Merge children of one parent as long as that gains, the best pair first; changes `paths` and `words` in place.

    members: True for documents that pass the parent.
    level: the level of the children.
    words: the word counts of each child.
    """
    children, sizes = np.unique(paths[members, level], return_counts=True)
    size = dict(zip(children.tolist(), sizes.tolist(), strict=True))
    single = {child: _log_words(words[child], hyper.topics[level]) for child in size}
    gains = {pair: _gain(*pair, level, size, words, single, hyper) for pair in combinations(sorted(size), 2)}
    while gains:
        (kept, gone), gain = max(gains.items(), key=lambda item: item[1])
        if gain <= 0:
            return
        paths[members & (paths[:, level] == gone), level] = kept
        words[kept] = words[kept] + words.pop(gone)
        size[kept] += size.pop(gone)
        single[kept] = _log_words(words[kept], hyper.topics[level])
        gains = {pair: g for pair, g in gains.items() if gone not in pair and kept not in pair}
        for other in size:
            if other != kept:
                pair = (min(kept, other), max(kept, other))
                gains[pair] = _gain(*pair, level, size, words, single, hyper)


def _gain(
    a: int,
    b: int,
    level: int,
    size: dict[int, int],
    words: dict[int, np.ndarray],
    single: dict[int, float],
    hyper: TreeHyper,
) -> float:
    """Return the change of log p(words, levels, paths) if nodes a and b of a level are merged, in nats.

    size: documents of each node. words: word counts of each node. single: log probability of each node's words, nats.
    """
    gamma, n_a, n_b = hyper.branching, size[a], size[b]
    gain = _log_words(words[a] + words[b], hyper.topics[level]) - single[a] - single[b]
    gain += gammaln(n_a + n_b) - gammaln(n_a) - gammaln(n_b) - np.log(gamma)
    if level < hyper.depth - 1:
        gain += gammaln(gamma + n_a) + gammaln(gamma + n_b) - gammaln(gamma + n_a + n_b) - gammaln(gamma)
    return float(gain)


def _log_words(n: np.ndarray, eta: float) -> float:
    """Return the log probability of a node's words in order, in nats, with its topic integrated out.

    n: how often each word occurs. eta: the concentration of the topic's prior.
    """
    some = n[n > 0]
    mass = len(n) * eta
    return float((gammaln(some + eta) - gammaln(eta)).sum() + gammaln(mass) - gammaln(n.sum() + mass))
